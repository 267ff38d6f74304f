"""Pieces that are never split, in exports: the graph keeps whole what the Python tokenizer does."""

import pathlib

import numpy as np
import pytest
import served_models
import small_squad
from saved_models import SERVED_OPERATIONS, TEXT_OPERATIONS, operations_of
from served_models import CONFIG, LENGTH

from bert_tf import FullTokenizer
from bert_tf.playground.sequences import InputSequences
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.loading import ServedModel, of_weights, open_model
from bert_tf.serving.rows import RowReader

KEPT = ("<e1>", "[X y]")
PIECES = [*small_squad.PIECES, *KEPT]
TOKENIZER = FullTokenizer("v", pieces=PIECES, never_split=KEPT)
TEXT = "who<e1> founded [X y]it, <E1>."


@pytest.fixture(scope="module", params=["classification", "token_labels"])
def models(request, tmp_path_factory) -> tuple[ServedModel, ServedModel]:
    """An export, and its checkpoint served without one."""
    kind, folder = request.param, tmp_path_factory.mktemp("exported")
    options, weights = served_models.options(kind), served_models.write_folder(kind, folder / "m")
    path = export_checkpoint(weights, CONFIG, TOKENIZER, str(folder / "export"), options=options)
    return open_model(path), of_weights(weights, CONFIG, TOKENIZER, options)


def texts(*values: str) -> np.ndarray:
    return np.array([value.encode() for value in values], object)


def test_the_export_keeps_them_and_says_so(models):
    model, unexported = models
    assert not operations_of(model.path) - SERVED_OPERATIONS - TEXT_OPERATIONS
    assert model.metadata["never_split"] == [*KEPT]
    card = (pathlib.Path(model.path) / "README.md").read_text()
    assert "never split, wherever a text has them: `<e1>`, `[X y]`; vocabulary in" in card
    assert model.tokenizer.tokenize(TEXT) == TOKENIZER.tokenize(TEXT)
    found, again = (one.run({"text": texts(TEXT, "", "it")}) for one in models)
    np.testing.assert_allclose(found["probabilities"], again["probabilities"], atol=1e-6)
    if model.metadata["task"] == "classification":
        batch = TOKENIZER([TEXT], max_length=LENGTH)
        assert {*map(PIECES.index, KEPT)} <= {*batch["input_ids"][0].tolist()}
        by_ids = model.run(batch, "ids")["probabilities"]
        np.testing.assert_allclose(found["probabilities"][:1], by_ids, atol=1e-6)
        split = FullTokenizer("v", pieces=PIECES)([TEXT], max_length=LENGTH)
        assert np.abs(by_ids - model.run(split, "ids")["probabilities"]).max() > 1e-3
        return
    words = [b"who", b"<e1>", b"founded", b"[X y]", b"it", b",", b"<", b"E1", b">", b"."]
    assert found["words"][0].tolist() == words
    assert found["num_words"].tolist() == [10, 0, 1]
    row = RowReader(unexported.metadata).read({"text": TEXT}, "the row")
    assert PIECES.index("<e1>") in InputSequences(unexported).of_row(row)[0].ids
