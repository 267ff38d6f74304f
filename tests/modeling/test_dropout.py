"""Dropout: shares, independence, and that a mask depends on seed, place and row alone."""

import contextlib
import itertools
import math

import keras
import numpy as np
import pytest
import small
import tensorflow as tf
from small import hidden_states

from bert_tf import BertModel
from bert_tf.modeling.memory import Dropout, TrainingStep, recomputed
from bert_tf.modeling.parts import parts_of

B, D = small.ROWS, small.CONFIG.hidden_size


def sequences(rows: int, first: int = 0) -> np.ndarray:
    """Numbers in the global batch, [rows, 1]."""
    return np.arange(first, first + rows, dtype=np.int32)[:, None]


def draw(rate=0.1, shape=(B, 131, 97), *, seed=11, first_row=0, layer=None) -> np.ndarray:
    """Dropout of ones: 0 or 1 / (1 - rate)."""
    layer = layer or Dropout(rate, name="dropout")
    with TrainingStep(seed, sequences(shape[0], first_row)):
        return np.array(layer(np.ones(shape, np.float32), training=True))


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """In standard deviations of what independent masks give."""
    a, b = a.ravel() - a.mean(), b.ravel() - b.mean()
    return float((a * b).mean() / (a.std() * b.std()) * math.sqrt(a.size))


@pytest.mark.parametrize("rate", [0.1, 0.83])
def test_share_and_scale(rate):
    x = draw(rate)
    assert set(np.unique(x)) == {np.float32(0), np.float32(1 / (1 - rate))}
    dropped = (x == 0).mean()
    assert abs(dropped - rate) < 4 * math.sqrt(rate * (1 - rate) / x.size)
    for axis in (0, 1, 2):  # rows, columns and examples alike
        others = tuple({0, 1, 2} - {axis})
        share = (x == 0).mean(axis=others)
        deviation = math.sqrt(rate * (1 - rate) * share.size / x.size)
        assert np.abs(share - rate).max() < 4.5 * deviation


def test_the_mean_stays_in_bfloat16():
    """0.9 is 0.8984 there: dividing by that would add a part in 600."""
    x = tf.constant(hidden_states(300, 8, 5), tf.bfloat16)
    layer = Dropout(0.1, dtype="bfloat16")
    kept, x = (np.float32(v) for v in (layer(x, training=True), x))
    assert abs((kept[kept != 0] / x[kept != 0]).mean() * 0.9 - 1) < 3e-4


def test_nothing_is_dropped_outside_of_training():
    x = hidden_states(2, 3, 5).astype(np.float32)
    layer = Dropout(0.9)
    for output in (layer(x), layer(x, training=False), Dropout(0.0)(x, training=True)):
        np.testing.assert_array_equal(output, x)


def test_masks_of_different_steps_rows_and_places_are_unrelated():
    x = draw()
    assert not np.array_equal(x, draw(seed=12))
    for seed in (12, 13, 11 + 2**16, -11):
        assert abs(correlation(x, draw(seed=seed))) < 4
    for one, other in itertools.combinations(x, 2):
        assert abs(correlation(one, other)) < 4
    masks = [draw(layer=Dropout(0.1, name=name)) for name in ("a", "b", "layer_0", "layer_1")]
    for one, other in itertools.combinations(masks, 2):
        assert abs(correlation(one, other)) < 4

    half = draw(0.5).reshape(B, -1)
    for lag in (1, 2, 3, 5, 97, 98, 194):  # neighbours
        assert abs(correlation(half[:, lag:], half[:, :-lag])) < 4


def test_a_mask_depends_on_the_row_in_the_global_batch_alone():
    whole = draw()
    parts = [draw(shape=(rows, 131, 97), first_row=first) for first, rows in ((0, 2), (2, 3))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(draw(), whole)


def test_the_same_mask_in_a_compiled_function():
    layer = Dropout(0.1, name="dropout")

    @tf.function(jit_compile=True)
    def compiled(seed, first_row):
        with TrainingStep(seed, first_row + sequences(3)):
            return layer(tf.ones([3, 131, 97]), training=True)

    seeds = tf.constant(11), tf.constant(2)
    np.testing.assert_array_equal(compiled(*seeds), draw(shape=(3, 131, 97), first_row=2))


@pytest.mark.parametrize("key", [False, True])
def test_sizes_that_only_the_graph_knows(key):
    """As Keras's `fit` may have them; with a key the masks are those of known sizes."""
    layer = Dropout(0.1, name="dropout")

    @tf.function(input_signature=[tf.TensorSpec([None, None, 97])])
    def masked(x):
        with TrainingStep(11, sequences(3, 2)) if key else contextlib.nullcontext():
            return layer(x, training=True)

    found = masked(tf.ones([3, 131, 97]))
    assert 0.09 < np.mean(found == 0) < 0.11
    if key:
        np.testing.assert_array_equal(found, draw(shape=(3, 131, 97), first_row=2))


@pytest.mark.parametrize("seed", [11, -(2**31), 65535])
def test_what_is_recomputed_has_the_same_masks(seed):
    """The gradient is 1 / (1 - rate) where the output is not 0; without a key there is no seed."""
    layer = Dropout(0.4, name="dropout")
    x = tf.constant(hidden_states(3, 5, 7).astype(np.float32))

    @tf.function
    def output_and_gradient():
        with tf.GradientTape() as tape, TrainingStep(seed, sequences(3, 2)):
            tape.watch(x)
            y = recomputed(lambda x: layer(x, training=True), x)
        return y, tape.gradient(y, x)

    output, gradient = output_and_gradient()
    with TrainingStep(seed, sequences(3, 2)):
        np.testing.assert_allclose(output, layer(x, training=True), rtol=1e-6)
    np.testing.assert_allclose(output, x * gradient, rtol=1e-6)
    assert 0 < (gradient.numpy() == 0).mean() < 1
    np.testing.assert_array_equal(recomputed(lambda x: 2 * x, x), 2 * x)


def test_every_place_of_a_model_has_its_own_mask():
    dropping = parts_of(BertModel(small.CONFIG), Dropout)
    places = ("attention/self", "attention/output", "output")
    expected = {f"layer_{i}/{place}/dropout" for i in range(2) for place in places}
    assert {layer.path for layer in dropping} == expected | {"embeddings/dropout"}
    assert len(dropping) == 7


def test_masks_without_a_key():
    """In `fit` there is none: each call has a new mask, and Keras's seed decides which."""

    def three_masks(seed):
        keras.utils.set_random_seed(seed)
        layer = Dropout(0.5, name="dropout")
        return [np.array(layer(np.ones([2, 331]), training=True)) for _ in range(3)]

    masks = three_masks(5)
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert abs(correlation(masks[a], masks[b])) < 4
    np.testing.assert_array_equal(masks, three_masks(5))
    assert not np.array_equal(masks[0], three_masks(6)[0])
