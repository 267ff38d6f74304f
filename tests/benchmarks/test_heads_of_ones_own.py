"""Heads made through the public `register`: by hand, and as commands use them."""

import dataclasses
import subprocess
import sys

import heads_of_ones_own as own
import keras
import numpy as np
import pytest
import small
import tensorflow as tf
from small_runs import make_batch, make_trainer, take_steps, tensors
from walking import eagerly

from bert_tf import heads, make_model, tasks

H, LAYERS, STACKED = 9, 5, 2  # of a direction; of the encoder; BiLSTMs
CONFIG = dataclasses.replace(small.CONFIG, num_hidden_layers=LAYERS, initializer_range=0.2)
CAUSAL = dataclasses.replace(small.CONFIG, attention="causal")


def lstm(x: np.ndarray, kernel, recurrent, bias) -> np.ndarray:
    """x [T, in] -> [T, H] (Hochreiter & Schmidhuber, 1997); input, forget, cell, output gates."""
    h, c, found = np.zeros(H), np.zeros(H), []
    for step in x:
        i, f, g, o = np.split(step @ kernel + h @ recurrent + bias, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        found.append(h)
    return np.array(found)


def by_hand(model: keras.Model, features: str, every: list[np.ndarray]) -> np.ndarray:
    """What the BiLSTMs of a model make of one text's layers, [T, D] each: [T, 2 H]."""
    weights = {v.path: np.asarray(v, np.float64) for v in model.weights}
    embeddings, *blocks = every
    summed = {"sum_last_four": blocks[-4:], "sum_all": blocks}.get(features, [])
    if summed:
        shares = np.exp(weights["weighted_sum/layer_weights"])
        x = sum(s * y for s, y in zip(shares / shares.sum(), summed, strict=True))
    else:
        x = {"last": blocks[-1], "second_to_last": blocks[-2], "embeddings": embeddings,
             "concat_last_four": np.concatenate(blocks[-4:], axis=1)}[features]  # fmt: skip
    for i in range(STACKED):
        forward, backward = (
            [weights[f"bilstm_{i}/{way}_lstm/lstm_cell/{name}"]
             for name in ("kernel", "recurrent_kernel", "bias")]
            for way in ("forward", "backward")
        )  # fmt: skip
        x = np.concatenate([lstm(x, *forward), lstm(x[::-1], *backward)[::-1]], axis=1)
    return x


@pytest.mark.parametrize("features", own.FEATURES)
@pytest.mark.parametrize("kind", [heads.TokenLabels, heads.Classification])
def test_logits_are_those_by_hand(kind, features):
    keras.utils.set_random_seed(3)
    head = own.bilstm(kind, features, layers=STACKED, size=H)
    model = head.model(CONFIG, num_classes=3)
    for weight in model.weights:
        weight.assign(weight + np.random.default_rng(1).normal(0, 0.1, weight.shape))
    encoder = keras.Model(model.input, [model.get_layer("embeddings").output] + [
        model.get_layer(f"layer_{i}").output for i in range(LAYERS)
    ])  # fmt: skip
    batch = small.examples(4)
    inputs = {name: batch[name] for name in model.input}
    every, logits = [np.asarray(x) for x in encoder(inputs)], np.asarray(model(inputs)["logits"])
    kernel, bias = (np.asarray(w) for w in model.get_layer("classifier").weights)
    for row, length in enumerate(batch["input_mask"].sum(axis=1)):
        x = by_hand(model, features, [layer[row, :length] for layer in every])
        if kind is heads.Classification:
            x = np.concatenate([x[-1, :H], x[0, H:]])[None]
        found = logits[row, :length] if kind is heads.TokenLabels else logits[row][None]
        small.close(found, x @ kernel.T + bias, 1e-4)


def test_a_step_trains_every_weight_of_a_bilstm():
    head = own.bilstm(heads.TokenLabels, "sum_last_four", layers=1, size=H)
    trainer = make_trainer(
        CONFIG, head="token_labels", objective=head, model=lambda: head.model(CONFIG, num_classes=3)
    )
    before = tensors(trainer)
    with eagerly():
        take_steps(trainer, make_batch("token_labels", 8), steps=2)
    changed = [n for n, value in tensors(trainer).items() if not np.array_equal(value, before[n])]
    assert {"weighted_sum/layer_weights", "output_weights"} <= {*changed}
    assert sum(name.startswith("bilstm_0/") and "adam" not in name for name in changed) == 6


def test_the_loss_is_that_of_each_next_token():
    """By soft-max over the logits for the whole text, which is given without masks."""
    keras.utils.set_random_seed(5)
    lengths = np.array([7, 5, 2])
    mask = (np.arange(small.S) < lengths[:, None]).astype(np.int32)
    ids = np.random.default_rng(3).integers(4, CAUSAL.vocab_size, mask.shape).astype(np.int32)
    inputs = {"input_ids": ids * mask, "input_mask": mask, "segment_ids": 0 * mask}
    head = own.NextToken()
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
    cells = [(row, place) for row in range(3) for place in range(1, lengths[row])]
    of_label = [odds[row, place, inputs["input_ids"][row, place]] for row, place in cells]
    sums, weights = head.loss_sums(outputs, batch), head.denominators(batch)
    assert weights["next_token"] == len(cells) == 11
    assert float(head.loss(sums, weights)) == pytest.approx(-np.log(of_label).mean(), rel=1e-5)
    guessed = [logits[cell].argmax() == inputs["input_ids"][cell] for cell in cells]
    assert head.metric_sums(outputs, batch)["next_token_accuracy"] == sum(guessed)


def test_what_is_counted():
    """All tokens but the first of each sequence of a row, of real examples."""
    numbers = np.int32([[1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 0, 0], [1] * 6])
    batch = {"input_mask": numbers, "is_real_example": np.float32([1, 1, 0])}
    expected = [[0, 1, 0, 1, 1, 0], [0, 1, 1, 1, 0, 0], [0] * 6]
    assert own.NextToken().item_weights(batch)["next_token"].numpy().tolist() == expected


@pytest.mark.walk
def test_commands_know_the_tasks():
    text = subprocess.run(
        [sys.executable, own.__file__, "classify", "--help"], capture_output=True, text=True
    )
    assert "cola_bilstm_concat_last_four" in text.stdout + text.stderr
    assert "cola_bilstm_last" not in tasks.list_tasks()  # of this process
