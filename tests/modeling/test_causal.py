"""Causal attention: who sees whom, which token stands for a text (section 5.1)."""

import dataclasses

import keras
import numpy as np
import pytest
import small
from small_runs import both_batches

from bert_tf import BertModel, make_model
from bert_tf.modeling.layers import SelfAttention
from bert_tf.modeling.rows import last_tokens
from bert_tf.training.step import is_packed

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
    layer = SelfAttention.from_bert_config(CAUSAL)
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
    given = {"attention_mask" if mask == "rows" else "padding_mask": masks[mask]}
    small.close(layer(x, **given)[0], expected, 1e-6)


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
    """Of padded rows and of packed ones."""
    model, inputs = BertModel(CAUSAL), random_inputs()
    outputs = {name: np.asarray(value) for name, value in model(inputs).items()}
    last = outputs["sequence_output"][np.arange(3), LENGTHS - 1]  # [B, D]
    dense = model.get_layer("pooler").projection
    expected = np.tanh(last @ np.asarray(dense.kernel) + np.asarray(dense.bias))
    small.close(outputs["pooled_output"], expected)

    x = np.arange(16.0).reshape(2, 8, 1)
    numbers = np.int32([[1, 1, 1, 2, 3, 3, 0, 0], [1] * 8])
    assert np.asarray(last_tokens(x, numbers, 3))[:, :, 0].tolist() == [[2, 3, 5], [15, 15, 15]]


def test_no_answer_is_scored_by_the_last_token():
    """At [CLS], where questions without an answer have theirs; in packed rows, too."""
    logits = []
    for batch in both_batches("question_answering", 5):
        keras.utils.set_random_seed(4)
        several = batch["sequences"].shape[1] if is_packed(batch) else 1
        model = make_model("question_answering", CAUSAL, num_sequences=several)
        outputs = model({name: batch[name] for name in model.input})
        x = np.array(outputs["sequence_output"])
        for row, numbers in enumerate(batch["input_mask"]):
            for number in range(1, numbers.max() + 1):
                places = np.flatnonzero(numbers == number)
                x[row, places[0]] = x[row, places[-1]]
        weights, bias = (np.asarray(v) for v in model.get_layer("squad").weights)
        expected = x @ weights.T + bias
        for number, name in enumerate(("start_logits", "end_logits")):
            small.close(outputs[name], expected[:, :, number], 1e-5)
        logits.append(np.sort(expected[batch["input_mask"] > 0], axis=0))
    small.close(*logits, 1e-5)


def test_the_last_token_where_a_mask_has_holes():
    """Padding before the text, and within it."""
    x = np.arange(10.0).reshape(2, 5, 1)
    numbers = np.int32([[0, 0, 1, 1, 1], [1, 1, 0, 1, 0]])
    assert np.asarray(last_tokens(x, numbers, 1))[:, 0, 0].tolist() == [4, 8]
