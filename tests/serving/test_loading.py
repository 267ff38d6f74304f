"""Exports and checkpoints, loaded: versions, options, and what cannot be loaded."""

import re
import shutil

import numpy as np
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
        np.testing.assert_allclose(
            found["probabilities"], wanted["probabilities"], rtol=0, atol=1e-5
        )
    metadata = dict(loaded.model.metadata), dict(pairs_export.model.metadata)
    for one in metadata:
        one.pop("metrics"), one.pop("source"), one.pop("versions"), one.pop("commands")
    assert metadata[0] == metadata[1]


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("export", {"version": 2}, r"(?s)version 2 of .*one of its versions: 1, 10"),
        ("export/1", {"version": 2}, "version 2 of "),
        ("model", {"version": 1}, "a folder with versions"),
        ("export", {"pairs": True}, "chosen when it was made"),
        ("export", {"vocab_file": "vocab.txt"}, "chosen when it was made"),
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
    names = ("task", "texts", "options", "config", "do_lower_case")
    assert [metadata[name] for name in names] == [
        pairs_export.model.metadata[name] for name in names
    ]


def test_saved_models_of_others_are_refused(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "1"))
    with pytest.raises(InputError, match=re.escape("export.json")):
        Predictor(tmp_path)
