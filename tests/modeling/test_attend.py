"""The hand-written gradient of attention is that of its formula."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.memory import Dropout, TrainingStep, attend

B, N, S, H = 2, 3, 5, 4
RNG = np.random.default_rng(3)
QUERY, KEY, VALUE = (tf.constant(RNG.normal(size=[B, N, S, H]), tf.float32) for _ in range(3))
UPSTREAM = tf.constant(RNG.normal(size=[B, S, N, H]), tf.float32)
# Of two sequences of 5 and 3 tokens.
BIAS = tf.constant(np.where(np.arange(S) < [[5], [3]], 0.0, -1e4)[:, None, None], tf.float32)


def formula(query, key, value, bias, dropout):
    """dropout(softmax(Q Kᵀ / √H + bias)) V, [B, S, N, H]."""
    scores = tf.matmul(query, key, transpose_b=True) / H**0.5 + bias  # [B, N, S, S]
    probabilities = dropout(tf.nn.softmax(scores), training=True)
    return tf.transpose(tf.matmul(probabilities, value), (0, 2, 1, 3))


@pytest.mark.parametrize("recompute", ["", "attention", "blocks"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_context_and_gradients_are_those_of_the_formula(rate, recompute):
    dropout = Dropout(rate)
    results = []
    for function in (attend, formula):
        with TrainingStep(7, recompute=recompute), tf.GradientTape() as tape:
            tape.watch([QUERY, KEY, VALUE])
            context = function(QUERY, KEY, VALUE, BIAS, dropout)
            gradients = tape.gradient(context, [QUERY, KEY, VALUE], UPSTREAM)
        results.append([context, *gradients])
    for ours, wanted in zip(*results, strict=True):
        assert keras.ops.shape(ours) == wanted.shape
        np.testing.assert_allclose(ours, wanted, atol=2e-6)
    assert np.abs(results[0][1]).max() > 0.1
