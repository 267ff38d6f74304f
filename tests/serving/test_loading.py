"""Exports and checkpoints, loaded: versions, options, and what cannot be loaded."""

import functools
import json
import pathlib
import re
import shutil

import pytest
import served_models
import tensorflow as tf
from served_models import TOKENIZER, random_pairs

from bert_tf.errors import InputError
from bert_tf.serving.predictor import Predictor


def test_the_greatest_version_is_taken(pairs_folder, pairs_export):
    assert pairs_export.model.path == str(pairs_folder / "export/10")
    assert (pairs_export.task, list(pairs_export.texts)) == ("classification", ["text_a", "text_b"])
    assert "probabilities" in pairs_export.outputs
    assert pairs_export.model.tokenizer.vocab == TOKENIZER.vocab
    assert pairs_export.model.config == served_models.CONFIG


def test_a_checkpoint_answers_as_its_export(pairs_folder, pairs_export):
    loaded = Predictor(pairs_folder / "model", pairs=True, max_seq_length=served_models.LENGTH)
    asked = random_pairs(9)
    for found, wanted in zip(loaded.predict(asked), pairs_export.predict(asked), strict=True):
        assert found["label"] == wanted["label"]
        assert found["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)
    metadata = pairs_export.model.metadata
    assert loaded.model.metadata | {"commands": metadata["commands"]} == metadata


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("export", {"version": 2}, r"(?s)version 2 of .*one of its versions: 1, 10"),
        ("export/1", {"version": 2}, "version 2 of "),
        ("model", {"version": 1}, "a folder with versions"),
        ("export", {"pairs": True}, "pairs for the export"),
        ("export", {"vocab_file": "vocab.txt"}, "vocab_file for the export"),
        ("export", {"do_lower_case": False}, "chosen when it was made"),
        ("model", {"do_lower_case": False}, "do_lower_case False"),
        ("model", {"top_k": 3}, "--top_k"),
        ("model", {"max_seq_length": 0}, "max_seq_length 0"),
        ("export", {"batch_size": 0}, "a batch_size of 0"),
        ("model", {"task": "fill_mask"}, "without a masked-LM head"),
        ("export/11", {}, "export/11"),
        ("nowhere", {}, "nowhere"),
    ],
)
def test_what_cannot_be_loaded_is_named(pairs_folder, path, arguments, message):
    with pytest.raises(InputError, match=message):
        Predictor(pairs_folder / path, **arguments)


def test_what_is_not_beside_weights_is_given(pairs_folder, pairs_export, tmp_path):
    for path in (pairs_folder / "model").glob("model.ckpt*"):
        shutil.copy(path, tmp_path)
    options = {"labels": served_models.LABELS, "pairs": True, "do_lower_case": True}
    options["max_seq_length"] = served_models.LENGTH
    for argument, name in (("bert_config_file", "bert_config.json"), ("vocab_file", "vocab.txt")):
        with pytest.raises(InputError, match=f"--{argument}"):
            Predictor(tmp_path, **options)
        options[argument] = str(pairs_folder / "model" / name)
    metadata = Predictor(tmp_path, **options).model.metadata
    for name in ("task", "texts", "options", "config", "do_lower_case"):
        assert metadata[name] == pairs_export.model.metadata[name]


def test_saved_models_of_others_are_refused(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "1"))
    with pytest.raises(InputError, match=re.escape("export.json")):
        Predictor(tmp_path)


# ---------------------------------------------------------------------------- damaged exports

DATA = "variables/variables.data-00000-of-00001"


@pytest.fixture
def unlisted(pairs_folder, tmp_path) -> pathlib.Path:
    """A copy of an export without checksums."""
    folder = pathlib.Path(shutil.copytree(pairs_folder / "export/1", tmp_path / "1"))
    (folder / "SHA256SUMS").unlink()
    return folder


@pytest.mark.parametrize(
    ("name", "share", "says"),
    [
        (DATA, 0.5, "cannot be read (Read less bytes than requested)"),
        ("variables/variables.index", 0.5, "cannot be read (not an sstable"),
        ("saved_model.pb", 0.5, "cannot be read (Cannot parse file"),
        ("fingerprint.pb", 0.5, "cannot be read (SavedModel Fingerprint Error"),
        ("assets/vocab.txt", 0, "assets/vocab.txt, which is empty"),
        ("export.json", 0.5, "export.json, which is not JSON"),
        (DATA, None, "cannot be read ("),
        ("assets/vocab.txt", None, "assets/vocab.txt, which cannot be read"),
        ("export.json", None, "export.json, which is not a file"),
    ],
)
def test_a_cut_file_is_said_in_three_parts(unlisted, capfd, caplog, name, share, says):
    content = (unlisted / name).read_bytes()
    (unlisted / name).unlink()
    if share is not None:
        (unlisted / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        Predictor(unlisted)
    assert str(unlisted) in caught.value.received
    assert caught.value.remedy
    assert "Traceback" not in capfd.readouterr().err + caplog.text


@pytest.mark.parametrize(
    ("place", "values", "says"),
    [
        ("task", (7, None, []), "a text"),
        ("texts", (7, None, {"a": 1}, {}, {"text": "the text"}), "JSON object|a text|not fit"),
        ("outputs", (7, None, {"a": 1}, {}), "JSON object|a text|outputs do not fit"),
        ("signatures", (7, None, {}), "whose signatures do not fit"),
        ("signatures.ids", ({},), "whose signatures do not fit"),
        ("signatures.serving_default.text_a.shape", (7, [None, None]), "whose signatures do not"),
        ("options", (7, None, {"a": 1}), "JSON object|unknown keys"),
        ("options.max_seq_length", ("13", 10**12), "options.max_seq_length (13|'13'|10+)"),
        ("options.pairs", ("yes",), "options.pairs 'yes'"),
        ("do_lower_case", (7, None, "false"), "true or false"),
        ("config", (7, None, {"a": 1}), "JSON object|unknown keys"),
        ("config.hidden_size", ("22",), "config.hidden_size '22'"),
        ("config.vocab_size", (5,), "at most 5, the vocab_size"),
        ("metrics", (7, None, {"a": 1}), "JSON object|a text"),
    ],
)
def test_what_is_wrong_in_export_json_is_named(unlisted, place, values, says):
    path = unlisted / "export.json"
    content = path.read_text()
    *parents, key = place.split(".")
    for value in values:
        metadata = json.loads(content)
        inside = functools.reduce(dict.__getitem__, parents, metadata)
        inside[key] = value
        path.write_text(json.dumps(metadata))
        with pytest.raises(InputError, match=says) as caught:
            Predictor(unlisted)
        assert str(unlisted) in str(caught.value)
    if not parents:
        metadata = json.loads(content)
        del metadata[key]
        path.write_text(json.dumps(metadata))
        with pytest.raises(InputError, match=f"no {key}|{key} do not fit"):
            Predictor(unlisted)
