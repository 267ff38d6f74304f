"""Pieces that are never split, in exports: the graph keeps whole what the Python tokenizer does."""

import json
import pathlib

import numpy as np
import pytest
import served_models
import small_squad
from saved_models import SERVED_OPERATIONS, TEXT_OPERATIONS, operations_of
from served_models import CONFIG, LENGTH

from bert_tf import FullTokenizer, Predictor
from bert_tf.playground.sequences import InputSequences
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.loading import ServedModel, of_weights, open_model
from bert_tf.serving.rows import RowReader

KEPT = ("<e1>", "[X y]")
PIECES = [*small_squad.PIECES, *KEPT]
TOKENIZER = FullTokenizer("v", pieces=PIECES, never_split=KEPT)
TEXT = "who<e1> founded [X y]it, <E1>."


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Gives the export of a kind, and its checkpoint served without one."""
    made: dict[str, tuple[ServedModel, ServedModel]] = {}

    def get(kind: str) -> tuple[ServedModel, ServedModel]:
        if kind not in made:
            folder, options = tmp_path_factory.mktemp(kind), served_models.options(kind)
            weights = served_models.write_folder(kind, folder / "model")
            path = export_checkpoint(
                weights, CONFIG, TOKENIZER, str(folder / "export"), options=options, commands=[]
            )
            made[kind] = open_model(path), of_weights(weights, CONFIG, TOKENIZER, options)
        return made[kind]

    return get


def texts(*values: str) -> np.ndarray:
    return np.array([value.encode() for value in values], object)


def test_the_export_answers_texts_as_the_ids_of_the_python_tokenizer(exported):
    model, _ = exported("classification")
    batch = TOKENIZER([TEXT], max_length=LENGTH)
    assert {*map(PIECES.index, KEPT)} <= {*batch["input_ids"][0].tolist()}
    by_ids, by_text = model.run(batch, "ids"), model.run({"text": texts(TEXT)})
    np.testing.assert_allclose(by_text["probabilities"], by_ids["probabilities"], atol=1e-6)
    split = FullTokenizer("v", pieces=PIECES)([TEXT], max_length=LENGTH)
    others = model.run(split, "ids")["probabilities"]
    assert np.abs(by_text["probabilities"] - others).max() > 1e-3


def test_the_export_says_so(exported):
    model, _ = exported("classification")
    metadata = json.loads((pathlib.Path(model.path) / "export.json").read_text())
    assert metadata["never_split"] == [*KEPT]
    card = (pathlib.Path(model.path) / "README.md").read_text()
    assert "never split, wherever a text has them: `<e1>`, `[X y]`; vocabulary in" in card
    assert model.tokenizer.tokenize(TEXT) == TOKENIZER.tokenize(TEXT)
    Predictor(model.path)  # its file is read


def test_words_with_labels(exported):
    model, unexported = exported("token_labels")
    found = model.run({"text": texts(TEXT, "", "it")})
    words = [b"who", b"<e1>", b"founded", b"[X y]", b"it", b",", b"<", b"E1", b">", b"."]
    assert found["words"][0].tolist() == words
    assert found["num_words"].tolist() == [10, 0, 1]
    again = unexported.run({"text": texts(TEXT, "", "it")})
    np.testing.assert_allclose(found["probabilities"], again["probabilities"], atol=1e-6)
    row = RowReader(unexported.metadata).read({"text": TEXT}, "the row")
    shown = InputSequences(unexported).of_row(row)
    assert PIECES.index("<e1>") in shown[0].ids


@pytest.mark.parametrize("kind", ["classification", "token_labels"])
def test_every_operation_is_one_that_tf_serving_has(exported, kind):
    assert not operations_of(exported(kind)[0].path) - SERVED_OPERATIONS - TEXT_OPERATIONS
