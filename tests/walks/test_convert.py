"""bert-tf convert and extract_features.py: whole walks, and bad input of every kind."""

import dataclasses
import json
import os
import pathlib
import pickle
import struct
import zipfile
from collections.abc import Callable

import numpy as np
import pytest
import walking
from walking import TINY, contents, read_tensors, write_config, write_vocabulary

from bert_tf import BertConfig, BertModel, Predictor, load, load_checkpoint
from bert_tf.checkpoints.companions import config_of, tokenizer_of
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.saving import save_weights
from bert_tf.checkpoints.tf1 import write_checkpoint
from bert_tf.errors import InputError

pytestmark = pytest.mark.walk
CONVERT = "convert"
DATA = "bert_model.ckpt.data-00000-of-00001"
BIAS = "bert/encoder/layer_1/output/dense/bias"


@pytest.fixture(scope="module")
def convert():
    """The script's main, without a process of its own."""
    with walking.in_process(CONVERT) as call:
        yield call


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> pathlib.Path:
    """A folder as the original releases them: an encoder, its vocabulary, its configuration."""
    folder = tmp_path_factory.mktemp("model")
    write_config(folder / "bert_config.json")
    write_vocabulary(folder / "vocab.txt")
    encoder = BertModel(BertConfig(**TINY))
    rng = np.random.default_rng(4)
    for variable in encoder.trainable_variables:
        variable.assign(rng.standard_normal(variable.shape))
    encoder.save(str(folder / "model.keras"))
    made = open_weights(str(folder / "model.keras"))
    write_checkpoint(
        str(folder / "bert_model.ckpt"),
        {name: made.read(name) for name in made.names} | {"global_step": np.int64(3)},
        temporary=str(folder / "temporary"),
    )
    (folder / "model.keras").unlink()
    return folder


# ---------------------------------------------------------------------------- good input


def test_there_and_back(model, tmp_path, convert):
    """What the real script prints; and after the way back the last is the first."""
    ended = walking.run(CONVERT, **{"from": model, "to": tmp_path / "hf"})
    assert "in the format hugging_face" in ended.stdout
    assert "sequence_output: greatest difference 0\n" in ended.stdout
    assert "slots of the optimizer, such as global_step" in ended.stdout
    convert(**{"from": tmp_path / "hf", "to": tmp_path / "b"}, to_format="tf1")
    before, after = read_tensors(model), read_tensors(tmp_path / "b")
    assert before.keys() == after.keys() | {"global_step"}
    for name, value in after.items():
        np.testing.assert_array_equal(value, before[name])
    assert (tmp_path / "b/vocab.txt").read_bytes() == (model / "vocab.txt").read_bytes()


def test_verbs(model, tmp_path, convert, capsys):
    convert("inspect", **{"from": str(model)})
    shown = capsys.readouterr().out
    assert f"{BIAS} [12]\n" in shown
    assert "slots of an optimizer" in shown
    assert "39 weights" in shown
    convert("strip", **{"from": str(model), "to": str(tmp_path / "s")})
    assert read_tensors(tmp_path / "s").keys() == read_tensors(model).keys() - {"global_step"}
    both = f"{model},{tmp_path}/s"
    convert("average", **{"from": both, "to": str(tmp_path / "m")})
    np.testing.assert_array_equal(read_tensors(tmp_path / "m")[BIAS], read_tensors(model)[BIAS])
    convert(
        **{"from": str(model), "to": str(tmp_path / "e")},
        extra_tokens="[A],zz", pad_vocab_to=64, to_format="bert_tf",
    )  # fmt: skip
    capsys.readouterr()
    longer = open_weights(str(tmp_path / "e"))
    assert longer.pieces[-2:] == ("[A]", "zz")
    assert longer.config.vocab_size == 128
    assert longer.names == open_weights(str(model)).names


@pytest.mark.parametrize("to_format", ["tf1", "bert_tf", "hugging_face"])
def test_tokens_that_are_never_split(model, tmp_path, convert, to_format):
    """The folder alone is enough for every way that a model's tokenizer is made."""
    flags = {"extra_tokens": "<e1>,</e1>", "never_split": "<e1>,</e1>", "to_format": to_format}
    convert(**{"from": str(model), "to": str(tmp_path / "kept")}, **flags)
    text, pieces = "w1<e1>w2</e1>", ["w1", "<e1>", "w2", "</e1>"]
    assert load(tmp_path / "kept")[1].tokenize(text) == pieces
    assert Predictor(tmp_path / "kept").model.tokenizer.tokenize(text) == pieces
    convert(**{"from": str(tmp_path / "kept"), "to": str(tmp_path / "same")})  # the other format
    again = open_weights(str(tmp_path / "same"))
    assert tokenizer_of(again, again.config).tokenize(text) == pieces
    convert(**{"from": str(tmp_path / "kept"), "to": str(tmp_path / "cut")}, never_split="")
    loaded = load(tmp_path / "cut")[1]
    assert loaded.never_split == ()
    assert loaded.tokenize(text) != pieces


def test_never_split_without_the_piece(model, tmp_path, convert):
    with pytest.raises(InputError, match="never_split '<e1>' for") as caught:
        convert(**{"from": str(model), "to": str(tmp_path / "x")}, never_split="w3,<e1>")
    assert "--extra_tokens" in caught.value.remedy
    assert not list(tmp_path.iterdir())


POSITIONS = "bert/embeddings/position_embeddings"


@pytest.mark.parametrize("to_format", ["tf1", "bert_tf", "hugging_face"])
def test_more_positions(model, tmp_path, convert, capsys, caplog, to_format):
    """24 become 60: the rows in every format and on the way back; then a text of 50 tokens."""
    flags = {"max_position_embeddings": 60, "to_format": to_format}
    convert(**{"from": str(model), "to": str(tmp_path / "long")}, **flags)
    assert "sequence_output: greatest difference 0\n" in capsys.readouterr().out
    assert any("positions 24 to 59 are copies" in message for message in caplog.messages)
    old = read_tensors(model)[POSITIONS]
    longer = open_weights(str(tmp_path / "long"))
    assert longer.config.max_position_embeddings == 60
    np.testing.assert_array_equal(longer.read(POSITIONS), [*old, *old, *old[:12]])
    convert(**{"from": str(tmp_path / "long"), "to": str(tmp_path / "back")}, to_format="bert_tf")
    np.testing.assert_array_equal(
        read_tensors(tmp_path / "back")[POSITIONS], longer.read(POSITIONS)
    )
    loaded, tokenizer = load(tmp_path / "long")
    batch = tokenizer(["w1 " * 48], max_length=60)
    assert loaded(batch)["sequence_output"].shape == (1, 50, 12)


def test_fewer_positions(model, tmp_path, convert):
    with pytest.raises(InputError, match="which has 24"):
        convert(**{"from": str(model), "to": str(tmp_path / "x")}, max_position_embeddings=23)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------- bad input


@dataclasses.dataclass(frozen=True)
class Case:
    """A source in a folder, made of the good model; what must be said of it."""

    name: str
    says: str
    prepare: Callable[[pathlib.Path, pathlib.Path], str]  # good model, folder -> --from


def copied(change: Callable[[pathlib.Path], None]) -> Callable[[pathlib.Path, pathlib.Path], str]:
    """A changed copy of the good model."""

    def prepare(model: pathlib.Path, folder: pathlib.Path) -> str:
        source = folder / "source"
        source.mkdir()
        for name, content in contents(model).items():
            (source / name).write_bytes(content)
        change(source)
        return str(source)

    return prepare


def hugging_face(change: Callable[[pathlib.Path], None]):
    """A changed copy of the good model in Hugging Face's format."""

    def prepare(model: pathlib.Path, folder: pathlib.Path) -> str:
        save_weights(str(folder / "source"), open_weights(str(model)), to_format="hugging_face")
        change(folder / "source")
        return str(folder / "source")

    return prepare


def truncate(name: str) -> Callable[[pathlib.Path], None]:
    def change(source: pathlib.Path) -> None:
        content = (source / name).read_bytes()
        (source / name).write_bytes(content[: len(content) // 2])

    return change


def other_tensors(**changes) -> Callable[[pathlib.Path], None]:
    """The checkpoint with some tensors replaced; None leaves one out."""

    def change(source: pathlib.Path) -> None:
        names = {name.replace("__", "/"): value for name, value in changes.items()}
        tensors = {n: v for n, v in (read_tensors(source) | names).items() if v is not None}
        write_checkpoint(
            str(source / "bert_model.ckpt"), tensors, temporary=str(source / "temporary")
        )

    return change


def of_another_architecture(source: pathlib.Path) -> None:
    tensors = {"model/wte": np.zeros([101, 12], np.float32), "model/h0/b": np.zeros(3, np.float32)}
    write_checkpoint(str(source / "bert_model.ckpt"), tensors, temporary=str(source / "temporary"))


def lie_about_the_size(source: pathlib.Path) -> None:
    """The last tensor ends behind the end of the file."""
    path = source / "model.safetensors"
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    last = max((n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"])
    start, end = header[last]["data_offsets"]
    header[last] |= {"data_offsets": [start, 2 * end - start], "shape": [2, *header[last]["shape"]]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def enormous_header(source: pathlib.Path) -> None:
    path = source / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:])


class Payload:
    """What makes a file when it is unpickled."""

    def __init__(self, path: pathlib.Path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def malicious(source: pathlib.Path) -> None:
    (source / "model.safetensors").unlink()
    content = pickle.dumps({"bert.pooler.dense.bias": Payload(source.parent / "executed")})
    (source / "pytorch_model.bin").write_bytes(content)


def zipped(model: pathlib.Path, folder: pathlib.Path) -> str:
    with zipfile.ZipFile(folder / "source.zip", "w") as archive:
        for name, content in contents(model).items():
            archive.writestr(name, content)
    return str(folder / "source.zip")


def another_kind(source: pathlib.Path) -> None:
    values = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(values | {"model_type": "roberta"}))


CASES = (
    Case("truncated data", "cannot be read", copied(truncate(DATA))),
    Case("truncated index", "cannot be read", copied(truncate("bert_model.ckpt.index"))),
    Case("index without data", "cannot be read", copied(lambda s: (s / DATA).unlink())),
    Case("data without index", "no checkpoint",
         copied(lambda s: (s / "bert_model.ckpt.index").unlink())),
    Case("another shape", f"{BIAS} has the shape \\(13,\\)",
         copied(other_tensors(**{BIAS.replace("/", "__"): np.zeros(13, np.float32)}))),
    Case("a weight less", f"lacks 1 .*{BIAS}",
         copied(other_tensors(**{BIAS.replace("/", "__"): None}))),
    Case("another architecture", "no table bert/embeddings", copied(of_another_architecture)),
    Case("another kind of model", "model_type 'roberta'", hugging_face(another_kind)),
    Case("a header that lies", "cannot be read", hugging_face(lie_about_the_size)),
    Case("a header without an end", "cannot be read", hugging_face(enormous_header)),
    Case("truncated safetensors", "cannot be read", hugging_face(truncate("model.safetensors"))),
    Case("a pickle that runs code", "can run code|weights_only=True\\) refuses",
         hugging_face(malicious)),
    Case("a zip", "an archive", zipped),
    Case("no configuration", "without a bert_config.json",
         copied(lambda s: (s / "bert_config.json").unlink())),
    Case("a damaged configuration", "not JSON",
         copied(lambda s: (s / "bert_config.json").write_text("{"))),
    Case("fewer rows than pieces", "with 102 word pieces",
         copied(lambda s: write_vocabulary(s / "vocab.txt", 102))),
    Case("a remote path", "gs://", lambda model, folder: "gs://nobody-has-this/model"),
    Case("nothing there", "no checkpoint", lambda model, folder: str(folder / "nothing")),
)  # fmt: skip


@pytest.fixture
def no_network(monkeypatch):
    """gs:// fails at once: nothing is asked for credentials or tried again."""
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("GCS_MAX_RETRIES", "0")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.usefixtures("no_network")
def test_bad_input(case, model, tmp_path, convert):
    source = case.prepare(model, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=case.says) as caught:
        convert(**{"from": source, "to": str(tmp_path / "made")})
    assert all((caught.value.received, caught.value.expected, caught.value.remedy))
    assert sorted(tmp_path.rglob("*")) == before


def test_bad_input_through_the_script(model, tmp_path):
    source = hugging_face(malicious)(model, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    ended = walking.attempt(CONVERT, **{"from": source, "to": tmp_path / "made"})
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    places = [ended.stderr.find(f"\n{part}: ") for part in ("Received", "Expected", "To do")]
    assert -1 < places[0] < places[1] < places[2], ended.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_the_pickle_would_have_run_code(tmp_path):
    """Else the case above proves nothing."""
    with pickle_of(tmp_path).open("rb") as file:
        pickle.load(file)["bert.pooler.dense.bias"].close()
    assert (tmp_path / "executed").exists()


def pickle_of(folder: pathlib.Path) -> pathlib.Path:
    (folder / "source").mkdir()
    (folder / "source/model.safetensors").touch()
    malicious(folder / "source")
    return folder / "source/pytorch_model.bin"


@pytest.mark.parametrize(
    ("words", "flags", "says"),
    [
        (["shrink"], {"to": "x"}, "'shrink'"),
        (["strip", "average"], {"to": "x"}, "'strip average'"),
        ([], {}, "convert without --to"),
        (["strip"], {"from": "a,b", "to": "x"}, "2 checkpoints"),
        ([], {"to": "x/bert_model.ckpt"}, r"bert_model.ckpt, the name of a file(?s:.*)--to=.*x$"),
        ([], {"to": "x.keras"}, r"x.keras, the name of a file(?s:.*)--to=.*x$"),
    ],
)
def test_bad_commands(model, tmp_path, convert, words, flags, says):
    source = str(model)
    flags = {"from": source} | flags
    flags["from"] = ",".join([source] * len(flags["from"].split(",")))
    if "to" in flags:
        flags["to"] = str(tmp_path / flags["to"])
    else:
        flags["to"] = ""
    with pytest.raises(InputError, match=says):
        convert(*words, **flags)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------- extract_features.py


def test_extract_features(data_dir, tmp_path):
    """20 sentences of STS-B by a real model, against each of them alone."""
    folder = data_dir / "weights/all-MiniLM-L6-v2"
    rows = (data_dir / "glue/STS-B/dev.tsv").read_text(encoding="utf-8").splitlines()[1:21]
    sentences = [row.split("\t")[7] for row in rows]
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")
    walking.run(
        "extract_features.py", init_checkpoint=folder, input_file=tmp_path / "a.txt",
        output_file=tmp_path / "a.npz", pooling="mean", output_format="npz", batch_size=8,
    )  # fmt: skip
    assert sorted(os.listdir(tmp_path)) == ["a.npz", "a.txt"]
    found = np.load(tmp_path / "a.npz")["embeddings"]
    assert found.shape == (20, 384)
    weights = open_weights(str(folder))
    tokenizer, encoder = tokenizer_of(weights, weights.config), BertModel(config_of(weights))
    load_checkpoint(encoder, weights)
    for text, vector in zip(sentences, found, strict=True):
        pieces = ["[CLS]", *tokenizer.tokenize(text), "[SEP]"]
        ids = np.array([tokenizer.convert_tokens_to_ids(pieces)], np.int32)
        inputs = {"input_ids": ids, "segment_ids": ids * 0, "input_mask": ids * 0 + 1}
        alone = np.asarray(encoder(inputs, training=False)["sequence_output"])[0]
        np.testing.assert_allclose(vector, alone.mean(axis=0), atol=1e-5)
