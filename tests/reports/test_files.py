"""Public reports on files: pointers, archives, encodings, vocabularies and checkpoints."""

import gzip
import json
import os
import subprocess
import sys

import model_files
import numpy as np
import pytest
import safetensors.numpy
import small
from walking import in_process

import bert_tf
from bert_tf import Predictor
from bert_tf.checkpoints.loading import open_weights
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError
from bert_tf.heads import Labels
from bert_tf.tasks.examples import TextColumns
from bert_tf.tokenization.wordpiece import FullTokenizer

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 440473133\n"
CLASSIFIER = model_files.tensors_of("classifier")
CSV = TextColumns(text_a="text", label="label", file_format="csv")


@pytest.fixture
def hugging_face(tmp_path):
    """Writes a folder as transformers does, with these tensors; returns it."""

    def make(tensors, **config):
        files = dict(model_files.HUGGING_FACE_FILES)
        del files["model_facts.json"]
        config = files.pop("config.json") | config
        files["vocab.txt"] = "".join(f"{piece}\n" for piece in model_files.PIECES)
        return model_files.write_hugging_face(tmp_path / "hf", tensors, config=config, files=files)

    return make


# ------------------------------------------------------------------------------ Git LFS


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "config.json", "vocab.txt"]
)
def test_pointers_of_git_lfs_in_a_model(hugging_face, name):
    """transformers#27923: "HeaderTooLarge", where git had no LFS."""
    folder = hugging_face(model_files.state_dict(CLASSIFIER))
    if name == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    (folder / name).write_text(POINTER)
    with pytest.raises(InputError, match=f"{name}, a pointer of Git LFS") as caught:
        bert_tf.load(folder)
    assert "git lfs pull" in caught.value.remedy


@pytest.mark.parametrize("ending", [".index", ".data-00000-of-00001"])
def test_pointers_of_git_lfs_in_a_checkpoint(tmp_path, ending):
    prefix = model_files.write_tf1(tmp_path / "m", CLASSIFIER)
    (tmp_path / f"m/bert_model.ckpt{ending}").write_text(POINTER)
    with pytest.raises(InputError, match=f"{ending}, a pointer of Git LFS"):
        open_weights(prefix).read("output_bias")


@pytest.mark.parametrize("name", ["a.tfrecord", "a.keras", "train.csv"])
def test_pointers_of_git_lfs_elsewhere(write, name):
    readers = {
        "a.tfrecord": lambda path: RecordFiles([path], small.RECORD),
        "train.csv": lambda path: CSV.read(path, Labels()),
    }
    with pytest.raises(InputError, match="a pointer of Git LFS"):
        readers.get(name, open_weights)(write(name, POINTER))


# ------------------------------------------------------------------------------ other kinds

OTHERS = {
    "a pickle": b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
    "a zip archive": b"PK\x03\x04\x14\x00\x06\x00\x08\x00[Content_Types].xml",
    "gzip": gzip.compress(b"text,label\nw1,a\n"),
    "bzip2": b"BZh91AY&SY\x01\xd2",
    "xz": b"\xfd7zXZ\x00\x00\x04\xe6",
    "Parquet": b"PAR1\x15\x04\x15\x10",
    "a PDF": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "HDF5": b"\x89HDF\r\n\x1a\n\x00",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_files_of_another_kind_are_named(write, kind):
    """transformers#728: "can't decode byte 0x80", where weights were given as a vocabulary.

    Their bytes are no text in another encoding: to convert them is no cure.
    """
    path = write("train.csv", OTHERS[kind])
    with pytest.raises(InputError, match=rf"train\.csv, a .*{kind}") as caught:
        CSV.read(path, Labels())
    assert "encoding" not in caught.value.remedy
    with pytest.raises(InputError, match=kind):
        FullTokenizer(path)


def test_any_locale_reads_utf_8(write):
    """transformers#52: "'charmap' codec can't decode byte 0x90" on Windows."""
    path = write("vocab.txt", "[UNK]\ncafé\n中\n")
    code = "import sys\nfrom bert_tf.files import read_text_lines\n"
    code += "print(ascii([*read_text_lines(sys.argv[1])]), sys.flags.utf8_mode)"
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = subprocess.run(
        [sys.executable, "-c", code, path],
        env=os.environ | ascii_only, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout == r"['[UNK]\n', 'caf\xe9\n', '\u4e2d\n'] 0" + "\n"


# ------------------------------------------------------------------------------ vocabularies


def test_special_tokens_with_other_ids(write):
    """FARM#800: 101, 102 and 103 were written down; a German vocabulary has other ids."""
    path = write("vocab.txt", "\n".join(["eins", "[UNK]", "[CLS]", "zwei", "[SEP]", "[PAD]"]))
    assert FullTokenizer(path)("zwei eins")["input_ids"].tolist() == [[2, 3, 0, 4]]


def test_tabs_part_words_of_a_new_vocabulary(write, tmp_path):
    """BERT-pytorch#33: 'you<tab>nice' became the word 'younice'."""
    text = write("a.txt", "how are you\tnice to meet you\n" * 9)
    with in_process("vocab") as main:
        main(input_file=text, output_file=tmp_path / "vocab.txt", vocab_size=45)
    pieces = (tmp_path / "vocab.txt").read_text().split()
    assert {"you", "nice", "meet", "how"} <= {*pieces}
    assert not [piece for piece in pieces if "un" in piece or "ni" in piece.removeprefix("ni")]


# ------------------------------------------------------------------------------ checkpoints


def test_half_a_checkpoint_is_named(tmp_path):
    """models#2675, the other way round: a file was not copied."""
    folder = tmp_path / "m"
    prefix = model_files.write_tf1(folder, CLASSIFIER)
    (folder / "bert_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(InputError, match=r"bert_model\.ckpt") as caught:
        open_weights(prefix).read("output_bias")
    assert caught.value.expected == "a complete checkpoint, its .index and all .data files"


def test_a_trained_checkpoint_is_converted_without_its_optimizer(tmp_path):
    """transformers#50, #98, #158: "has no attribute 'global_step'", "... 'adam_m'"."""
    moments = {
        f"{name}/{moment}": np.ones_like(value)
        for name, value in CLASSIFIER.items()
        for moment in ("adam_m", "adam_v")
    }
    model_files.write_tf1(tmp_path / "m", CLASSIFIER | moments | {"global_step": np.int64(7)})
    with in_process("convert") as main:
        main(**{"from": tmp_path / "m", "to": tmp_path / "hf", "format": "hugging_face"})
    found = safetensors.numpy.load_file(tmp_path / "hf/model.safetensors")
    expected = model_files.state_dict(CLASSIFIER)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.parametrize("prefix", ["module.", "model."])
def test_weights_under_names_of_a_wrapper_are_not_left_out(hugging_face, prefix):
    """bert-sentiment#4: a model of DataParallel, loaded as random weights."""
    folder = hugging_face({prefix + n: v for n, v in model_files.state_dict(CLASSIFIER).items()})
    model_files.assert_same(model_files.all_tensors(open_weights(folder)), CLASSIFIER)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "base_model.model."])
def test_names_of_an_unknown_wrapper_are_refused(hugging_face, prefix):
    """Of torch.compile, and of PEFT."""
    folder = hugging_face({prefix + n: v for n, v in model_files.state_dict(CLASSIFIER).items()})
    with pytest.raises(InputError, match="encoder's names begin with") as caught:
        Predictor(folder)
    assert f"{prefix}bert." in caught.value.received
    assert f"bert. in place of {prefix}bert." in caught.value.remedy


def test_labels_of_a_configuration_go_by_their_number(hugging_face):
    """bert#652: predictions by the order of the alphabet. Here the file's order decides."""
    numbers = {"2": "ant", "0": "cat", "1": "bee"}
    folder = hugging_face(
        model_files.state_dict(CLASSIFIER),
        id2label=numbers, label2id={name: int(n) for n, name in numbers.items()},
    )  # fmt: skip
    assert open_weights(folder).metadata.labels == ("cat", "bee", "ant")


def test_a_configuration_of_another_size(tmp_path):
    """clip-as-service#406: "Shape of variable doesn't match", deep in a server's log."""
    folder = tmp_path / "m"
    model_files.write_tf1(folder, CLASSIFIER)
    other = json.loads((folder / "bert_config.json").read_text()) | {"intermediate_size": 38}
    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(InputError, match=r"other\.json with intermediate_size 38") as caught:
        bert_tf.load(folder, bert_config_file=tmp_path / "other.json")
    assert caught.value.expected.startswith("intermediate_size 37")
