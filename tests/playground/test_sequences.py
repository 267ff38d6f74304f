"""The input sequences that the page shows are those that the model is given."""

import pytest
import tensorflow as tf
from served_models import LENGTH, ROWS, TOKENIZER, open_kind

from bert_tf.playground.sequences import InputSequences
from bert_tf.serving.rows import RowReader


@pytest.mark.parametrize("kind", ROWS)
def test_the_sequences_shown_are_those_that_the_model_is_given(folders, kind, monkeypatch):
    """What the task's own function, run here step by step, hands to the model."""
    weights = folders(kind)
    model = open_kind(weights, kind)
    row = RowReader(model.metadata).read(ROWS[kind], "the row")
    given = []
    task = model.keep
    original = task.outputs_of
    monkeypatch.setattr(task, "outputs_of", lambda f: given.append(f) or original(f))
    task.answer(**{name: tf.constant([value]) for name, value in row.items()})
    (features,) = given
    parts = InputSequences(model).of_row(row)
    mask = features["input_mask"].numpy()
    assert [len(part.ids) for part in parts] == mask.sum(axis=1).tolist()
    for part, ids, segments in zip(
        parts, features["input_ids"].numpy(), features["segment_ids"].numpy(), strict=True
    ):
        assert part.ids == ids[: len(part.ids)].tolist()
        assert part.segments == segments[: len(part.ids)].tolist()
    several = kind in ("multiple_choice", "token_labels", "question_answering")
    assert (len(parts) > 1) == several
    assert [bool(part.name) for part in parts] == [several] * len(parts)
    assert max(len(part.ids) for part in parts) <= LENGTH


@pytest.mark.parametrize("kind", ROWS)
def test_empty_texts_are_a_sequence_too(folders, kind):
    model = open_kind(folders(kind), kind)
    empty = {name: [""] if name == "endings" else "" for name in ROWS[kind]}
    (part,) = InputSequences(model).of_row(RowReader(model.metadata).read(empty, "the row"))
    assert [TOKENIZER.inv_vocab[i] for i in part.ids] == ["[CLS]", "[SEP]"]
