"""The tokenizer of Hugging Face's folders, read, written and refused."""

import json

import model_files
import pytest

from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError

VOCAB_TEXT = "".join(f"{piece}\n" for piece in model_files.PIECES)


def write(folder, tensors, **given):
    return model_files.write_hugging_face(folder, model_files.state_dict(tensors), **given)


def fast_tokenizer(pieces=model_files.PIECES, added=(), **normalizer) -> dict:
    """The values of a tokenizer.json."""
    return {
        "normalizer": {"type": "BertNormalizer", "lowercase": True} | normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(pieces)}},
        "added_tokens": [{"id": i, "content": piece} for i, piece in added],
    }


@pytest.mark.parametrize(
    ("files", "lower"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"do_lower_case": False}}, False),
        ({"tokenizer_config.json": {"do_lower_case": True, "strip_accents": True}}, True),
        ({"tokenizer_config.json": {"tokenize_chinese_chars": True}}, None),
        ({"tokenizer.json": fast_tokenizer(lowercase=False, strip_accents=None)}, False),
        ({"tokenizer_config.json": {}, "tokenizer.json": fast_tokenizer(lowercase=True)}, True),
    ],
)
def test_case(tmp_path, tensors, files, lower):
    assert open_weights(write(tmp_path, tensors, files=files)).metadata.do_lower_case is lower


CONFIG_FILE = "tokenizer_config.json"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({CONFIG_FILE: {"do_lower_case": True, "strip_accents": False}}, "strip_accents False"),
        ({CONFIG_FILE: {"do_lower_case": False, "strip_accents": True}}, "strip_accents True"),
        ({CONFIG_FILE: {"tokenize_chinese_chars": False}}, "tokenize_chinese_chars false"),
        ({"tokenizer.json": fast_tokenizer(handle_chinese_chars=False)}, "chinese"),
        ({"tokenizer.json": fast_tokenizer(strip_accents=False)}, "strip_accents False"),
        ({"tokenizer.json": fast_tokenizer(type="NFKC")}, "normalizer of the type NFKC"),
        (
            {"tokenizer.json": fast_tokenizer() | {"pre_tokenizer": {"type": "Whitespace"}}},
            "pre_tokenizer of the type Whitespace",
        ),
        ({"tokenizer.json": fast_tokenizer() | {"model": {"type": "BPE"}}}, "of the kind BPE"),
    ],
)
def test_tokenizers_that_are_not_berts(tmp_path, tensors, files, says):
    with pytest.raises(InputError, match=says) as caught:
        open_weights(write(tmp_path, tensors, files=files))
    assert f"{tmp_path}/{next(iter(files))}" in caught.value.received


def test_vocabulary_of_tokenizer_json_alone(tmp_path, tensors):
    """In the order of the ids, whatever the order in the file."""
    values = fast_tokenizer(added=[(41, "[NEW]"), (2, "[CLS]")])
    values["model"]["vocab"] = dict(reversed(values["model"]["vocab"].items()))
    weights = open_weights(write(tmp_path, tensors, files={"tokenizer.json": values}))
    assert weights.pieces == (*model_files.PIECES, "[NEW]")
    assert weights.vocab_file == f"{tmp_path}/tokenizer.json"


def test_vocabularies_in_two_files(tmp_path, tensors):
    files = {"vocab.txt": VOCAB_TEXT, "tokenizer.json": fast_tokenizer(added=[(41, "[NEW]")])}
    weights = open_weights(write(tmp_path / "longer", tensors, files=files))
    assert weights.pieces == (*model_files.PIECES, "[NEW]")
    files["tokenizer.json"] = fast_tokenizer()
    weights = open_weights(write(tmp_path / "same", tensors, files=files))
    assert weights.pieces == model_files.PIECES
    assert weights.vocab_file == f"{tmp_path}/same/vocab.txt"


@pytest.mark.parametrize(("number", "piece"), [(7, "other"), (40, None)])
def test_vocabularies_that_differ(tmp_path, tensors, number, piece):
    pieces = list(model_files.PIECES)
    pieces[number:] = [piece, *pieces[number + 1 :]] if piece else []
    files = {"vocab.txt": VOCAB_TEXT, "tokenizer.json": fast_tokenizer(pieces)}
    with pytest.raises(InputError, match=f"differ at id {number}"):
        open_weights(write(tmp_path, tensors, files=files))


def test_added_tokens(tmp_path, tensors):
    files = {"vocab.txt": VOCAB_TEXT, "added_tokens.json": {"[B]": 42, "[A]": 41}}
    weights = open_weights(write(tmp_path / "a", tensors, files=files))
    assert weights.pieces == (*model_files.PIECES, "[A]", "[B]")
    files["added_tokens.json"] = {"[B]": 43}
    with pytest.raises(InputError, match=r"added_tokens\.json, whose ids are not 0 to 41"):
        open_weights(write(tmp_path / "b", tensors, files=files))


def test_gaps_in_the_ids(tmp_path, tensors):
    values = fast_tokenizer()
    del values["model"]["vocab"]["w3"]
    with pytest.raises(InputError, match="ids are not 0 to 39"):
        open_weights(write(tmp_path, tensors, files={"tokenizer.json": values}))


def test_tokenizer_files_that_are_written(tmp_path, tensors):
    """With what only Hugging Face's tokenizer asks for, and read again alike."""
    weights = model_files.weights_of(tensors, metadata=ModelMetadata(do_lower_case=False))
    folder = tmp_path / "made"
    again = open_weights(save_weights(str(folder), weights, to_format="hugging_face"))
    assert again.metadata.do_lower_case is False
    assert again.pieces == model_files.PIECES
    assert (folder / "vocab.txt").read_text() == VOCAB_TEXT
    special = {f"{p[1:-1].lower()}_token": p for p in model_files.SPECIAL}
    assert json.loads((folder / "special_tokens_map.json").read_text()) == special
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings == special | {
        "do_lower_case": False,
        "model_max_length": 13,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
    }
