"""Causal attention: who sees whom, which token stands for a text, what is learned (section 5.1)."""

import dataclasses

import keras
import numpy as np
import pytest
import small
import tensorflow as tf
from small_runs import make_batch, make_trainer, packed, take_steps

from bert_tf import BertModel, heads, make_model
from bert_tf.data import PACKED_TOKENS
from bert_tf.heads.pretraining import NextToken
from bert_tf.modeling.layers import SelfAttention, last_tokens
from bert_tf.modeling.models import packed_inputs

CAUSAL = dataclasses.replace(small.CONFIG, attention="causal")
LENGTHS = np.array([7, 5, 2])
MASK = (np.arange(small.S) < LENGTHS[:, None]).astype(np.int32)  # [B, S]


def random_inputs() -> dict[str, np.ndarray]:
    ids = np.random.default_rng(3).integers(1, CAUSAL.vocab_size, MASK.shape)
    values = {"input_ids": ids * MASK, "input_mask": MASK, "segment_ids": 0 * MASK}
    return {name: value.astype(np.int32) for name, value in values.items()}


@pytest.mark.parametrize("mask", ["none", "padding", "rows"])
def test_a_token_sees_itself_and_those_before_it(mask):
    """With equal scores and values as they are: the mean of what is seen."""
    layer = SelfAttention(CAUSAL)
    x = small.hidden_states(1, 5, CAUSAL.hidden_size).astype(np.float32)
    layer.build(x.shape)
    zeros, eye = np.zeros_like(layer.query.kernel), np.eye(CAUSAL.hidden_size)
    for projection, kernel in ((layer.query, zeros), (layer.key, zeros), (layer.value, eye)):
        projection.kernel.assign(kernel)
    masks = {"padding": np.int32([[1, 1, 1, 0, 0]]), "none": None}
    numbers = np.int32([[1, 1, 2, 2, 2]])
    masks["rows"] = (numbers[:, :, None] == numbers[:, None]).astype(np.int32)
    seen = {
        "none": [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]],
        "padding": [[0], [0, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2]],
        "rows": [[0], [0, 1], [2], [2, 3], [2, 3, 4]],
    }[mask]
    expected = np.stack([x[0, places].mean(axis=0) for places in seen])
    small.close(layer(x, masks[mask])[0], expected, 1e-6)


@pytest.mark.parametrize("changed", [1, 4, 6])
def test_a_later_token_changes_nothing_before_it(changed):
    """Bit for bit; in predictions nothing at its own place either, which do not see it."""
    model = make_model("fill_mask", CAUSAL)
    inputs = random_inputs() | {
        "masked_lm_positions": np.tile(np.arange(small.S, dtype="i4"), (3, 1))
    }
    other = inputs["input_ids"].copy()
    other[:, changed] = other[:, changed] % (CAUSAL.vocab_size - 1) + 1
    before, after = (
        {k: np.asarray(v) for k, v in model({**inputs, "input_ids": ids}).items()}
        for ids in (inputs["input_ids"], other)
    )
    same = (before["sequence_output"] == after["sequence_output"]).all(axis=2)  # [B, S]
    assert same[:, :changed].all()
    assert not same[0, changed:].any()
    same = (before["masked_lm_logits"] == after["masked_lm_logits"]).all(axis=2)
    assert same[:, : changed + 1].all()
    assert not same[0, changed + 1 :].any()


def test_the_last_token_stands_for_the_text():
    """Of padded rows, of batches that the step packs, and of packed rows."""
    model, inputs = BertModel(CAUSAL), random_inputs()
    outputs = {name: np.asarray(value) for name, value in model(inputs).items()}
    last = outputs["sequence_output"][np.arange(3), LENGTHS - 1]  # [B, D]
    dense = model.get_layer("pooler").projection
    expected = np.tanh(last @ np.asarray(dense.kernel) + np.asarray(dense.bias))
    small.close(outputs["pooled_output"], expected)

    with packed_inputs():
        other = BertModel(CAUSAL)
    other.set_weights(model.get_weights())
    tokens = np.int32([[*range(7), *range(14, 16)], [*range(7, 12), *[-1] * 4]])  # rows 0, 2; 1
    found = other({**inputs, PACKED_TOKENS: tokens})
    small.close(found["pooled_output"], expected, 1e-5)
    real = outputs["sequence_output"] * MASK[..., None]
    small.close(found["sequence_output"], real, 1e-5)

    x = np.arange(16.0).reshape(2, 8, 1)
    numbers = np.int32([[1, 1, 1, 2, 3, 3, 0, 0], [1] * 8])
    assert np.asarray(last_tokens(x, numbers, 3))[:, :, 0].tolist() == [[2, 3, 5], [15, 15, 15]]


def test_no_answer_is_scored_by_the_last_token():
    """At [CLS], where questions without an answer have theirs."""
    model, inputs = make_model("question_answering", CAUSAL), random_inputs()
    with packed_inputs():
        other = make_model("question_answering", CAUSAL)
    other.set_weights(model.get_weights())
    tokens = np.int32([[*range(7), *range(14, 16)], [*range(7, 12), *[-1] * 4]])  # rows 0, 2; 1
    x = np.array(model(inputs)["sequence_output"])
    x[:, 0] = x[np.arange(3), LENGTHS - 1]
    weights, bias = (np.asarray(v) for v in model.get_layer("squad").weights)
    logits = x @ weights.T + bias
    for found in (model(inputs), other({**inputs, PACKED_TOKENS: tokens})):
        for number, name in enumerate(("start_logits", "end_logits")):
            small.close(found[name] * MASK, logits[:, :, number] * MASK, 1e-5)


def test_masked_pieces_are_put_back():
    """[CLS] at 0 is no prediction, though what fills up the predictions stands there."""
    read = NextToken().read(
        {
            "input_ids": np.int32([[1, 3, 5, 3, 2, 0], [1, 9, 2, 0, 0, 0]]),
            "masked_lm_positions": np.int32([[1, 3, 0], [1, 0, 0]]),
            "masked_lm_ids": np.int32([[7, 8, 0], [6, 0, 0]]),
        }
    )
    for name in ("input_ids", "masked_lm_ids"):
        assert np.asarray(read[name]).tolist() == [[1, 7, 5, 8, 2, 0], [1, 6, 2, 0, 0, 0]]
    assert np.asarray(read["masked_lm_positions"]).tolist() == [[0, 1, 2, 3, 4, 5]] * 2


def test_what_is_counted():
    """All tokens but the first of each sequence, of real examples."""
    numbers = np.int32([[1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 0, 0], [1] * 6])
    batch = {"sequence_numbers": numbers, "is_real_example": np.float32([1, 1, 0])}
    expected = [[0, 1, 0, 1, 1, 0], [0, 1, 1, 1, 0, 0], [0] * 6]
    assert NextToken().item_weights(batch)["next_token"].numpy().tolist() == expected
    batch["input_mask"] = (batch.pop("sequence_numbers") > 0).astype(np.int32)
    expected[0] = [0, 1, 1, 1, 1, 0]
    assert NextToken().item_weights(batch)["next_token"].numpy().tolist() == expected


def test_the_loss_is_that_of_each_next_token():
    """By soft-max over the logits for the whole text, which is given without masks."""
    keras.utils.set_random_seed(5)
    head, inputs = NextToken(), random_inputs()
    model = head.model(CAUSAL, with_losses=True)
    shown = inputs["input_ids"].copy()
    positions, labels = np.int32([[1, 4], [3, 0], [1, 0]]), np.zeros([3, 2], np.int32)
    for row, column in ((0, 0), (0, 1), (1, 0), (2, 0)):
        place = positions[row, column]
        labels[row, column], shown[row, place] = shown[row, place], 3
    batch = inputs | {"is_real_example": np.ones(3, np.float32), "input_ids": shown}
    batch |= {"masked_lm_positions": positions, "masked_lm_ids": labels}
    batch = {name: tf.constant(value) for name, value in batch.items()}
    outputs = model({name: batch[name] for name in model.input})
    plain = make_model("fill_mask", CAUSAL)
    plain.set_weights(model.get_weights())
    every = np.tile(np.arange(small.S, dtype=np.int32), (3, 1))
    logits = np.asarray(plain(inputs | {"masked_lm_positions": every})["masked_lm_logits"])
    odds = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)  # [B, S, V]
    cells = [(row, place) for row in range(3) for place in range(1, LENGTHS[row])]
    of_label = [odds[row, place, inputs["input_ids"][row, place]] for row, place in cells]
    sums, weights = head.loss_sums(outputs, batch), head.denominators(batch)
    assert weights["next_token"] == len(cells) == 11
    loss = -np.log(of_label).mean()
    assert float(head.loss(sums, weights)) == pytest.approx(loss, rel=1e-5)
    guessed = [logits[cell].argmax() == inputs["input_ids"][cell] for cell in cells]
    assert head.metric_sums(outputs, batch)["next_token_accuracy"] == sum(guessed)


@pytest.mark.parametrize("kind", ["pretraining", "classification", "question_answering"])
def test_a_step_is_one_program(kind):
    """And lowers the loss; rows of fine-tuning are packed."""
    if kind == "pretraining":
        head, batch = NextToken(), make_batch(kind, 8)
        model = {"model": lambda: head.model(CAUSAL, with_losses=True)}
    else:
        head, batch, model = heads.head_named(kind), packed(kind, 8), {"pack": True}
    trainer = make_trainer(CAUSAL, head=kind, objective=head, xla=True, **model)
    first, later = (take_steps(trainer, batch, steps)["loss"] for steps in (1, 20))
    assert np.isfinite(later)
    assert later < first
