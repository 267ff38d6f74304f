"""The heads against BERT in plain NumPy; the one-pass masked-LM loss against soft-max and log."""

import numpy as np
import pytest
import reference
import tensorflow as tf

from bert_tf.modeling.heads import tied_cross_entropy

# ------------------------------------------------------------------ the loss in one pass

M, D, V = 11, 5, 23
LABELS = np.array([0, 22, 7, 7, 7, 3, 1, 4, 1, 5, 9], np.int32)  # some twice, most not at all


def inputs(*, scale: float = 1.0, bias_scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    x, table, bias = (rng.standard_normal(shape) for shape in ([M, D], [V, D], [V]))
    return [np.float32(scale * x), np.float32(table), np.float32(bias_scale * bias)]


def expected(x, table, bias, upstream):
    """Losses [M], and the gradients of their sum weighted by `upstream`."""
    x, table, bias = (np.asarray(value, np.float64) for value in (x, table, bias))
    logits = x @ table.T + bias
    losses = -reference.log_softmax(logits)[range(M), LABELS]
    d_logits = reference.softmax(logits)
    d_logits[range(M), LABELS] -= 1
    d_logits *= np.asarray(upstream)[:, None]
    return losses, [d_logits @ table, d_logits.T @ x, d_logits.sum(axis=0)]


def ours(x, table, bias, upstream):
    given = [tf.convert_to_tensor(value) for value in (x, table, bias)]
    with tf.GradientTape() as tape:
        tape.watch(given)
        losses = tied_cross_entropy(*given, tf.constant(LABELS))
        total = tf.reduce_sum(losses * tf.cast(upstream, tf.float32))
    return losses, tape.gradient(total, given)


UPSTREAM = np.float32([0, 1, -2, 0.5, 3, 1e-3, 0, 7, 1, 1, 0.25])


@pytest.mark.parametrize("compiled", [False, True])
def test_losses_and_gradients(compiled):
    """Logits up to some hundreds, biases some 60 apart: no overflow, and nothing lost."""
    function = tf.function(ours, jit_compile=True) if compiled else ours
    for scale, bias_scale in [(1, 1), (0, 0), (50, 1), (1, 15), (30, 15), (1e-3, 1)]:
        given = inputs(scale=scale, bias_scale=bias_scale)
        losses, gradients = function(*given, UPSTREAM)
        golden_losses, golden_gradients = expected(*given, UPSTREAM)
        assert losses.dtype == tf.float32
        exact = {"rtol": 1e-5, "atol": 1e-6 if scale == 1 else 1e-3}
        np.testing.assert_allclose(losses, golden_losses, **exact)
        for gradient, golden in zip(gradients, golden_gradients, strict=True):
            worst = np.abs(tf.convert_to_tensor(gradient) - golden).max()
            assert worst < (1e-5 if scale == 1 else 1e-4) * max(1, np.abs(golden).max())


@pytest.mark.parametrize(("precision", "exact"), [("bfloat16", 0.05), ("float16", 0.02)])
def test_half_precision_is_summed_in_single(precision, exact):
    """The product is rounded, nothing else; and no loss is below 0 where the label has it all."""
    for scale in (1.0, 30.0):
        half = [tf.cast(value, precision) for value in inputs(scale=scale)]
        x, table, bias = half
        logits = tf.cast(tf.matmul(x, tf.transpose(table)), tf.float64) + tf.cast(bias, tf.float64)
        labels = LABELS if scale == 1 else np.argmax(logits, axis=1).astype(np.int32)
        with tf.GradientTape() as tape:
            tape.watch(half)
            losses = tied_cross_entropy(*half, tf.constant(labels))
            total = tf.reduce_sum(losses)
        assert losses.dtype == tf.float32
        golden_losses = -reference.log_softmax(logits.numpy())[range(M), labels]
        np.testing.assert_allclose(losses, golden_losses, atol=1e-4)
        if scale == 1:
            rounded = [tf.cast(value, tf.float32).numpy() for value in half]
            _, golden_gradients = expected(*rounded, np.ones(M))
            for gradient, golden in zip(tape.gradient(total, half), golden_gradients, strict=True):
                assert gradient.dtype == precision
                np.testing.assert_allclose(tf.cast(gradient, tf.float32), golden, atol=exact)
