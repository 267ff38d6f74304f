"""Schedule, clipping and updates, against the rules of the original worked out in NumPy float64."""

import dataclasses
import math
import re

import numpy as np
import pytest
import reference
import small
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.errors import InputError
from bert_tf.training.optimization import (
    AdamWeightDecay,
    Lamb,
    Schedule,
    clip_by_global_norm,
    layer_scales,
    trained_names,
)

# ---------------------------------------------------------------------------- schedule


def rates(schedule: Schedule, steps) -> list[float]:
    values = [schedule(tf.constant(step)) for step in steps]
    assert {value.dtype for value in values} == {tf.float32}
    return [float(value) for value in values]


def test_schedule_by_hand():
    """T = 100, W = 10: 0 at first, up to 9/10, then down from 90/100; 1/100 at the last step."""
    schedule = Schedule(learning_rate=2e-3, num_train_steps=100, num_warmup_steps=10)
    steps = {0: 0, 1: 0.1, 9: 0.9, 10: 0.9, 11: 0.89, 50: 0.5, 99: 0.01, 100: 0, 101: 0, 10**6: 0}
    expected = [2e-3 * share for share in steps.values()]
    assert rates(schedule, steps) == pytest.approx(expected, rel=1e-5, abs=1e-11)


def test_schedule_without_warmup():
    schedule = Schedule(learning_rate=0.5, num_train_steps=7)
    assert rates(schedule, range(9)) == pytest.approx(
        [0.5 * share / 7 for share in (7, 6, 5, 4, 3, 2, 1, 0, 0)]
    )


def test_schedule_down_to_another_end():
    schedule = Schedule(
        learning_rate=0.5, num_train_steps=8, num_warmup_steps=2, end_learning_rate=0.1
    )
    assert rates(schedule, (0, 1, 2, 4, 7, 8, 9)) == pytest.approx(
        [0, 0.25, 0.4, 0.3, 0.15, 0.1, 0.1]
    )


def test_schedule_that_is_all_warmup():
    schedule = Schedule(learning_rate=0.5, num_train_steps=4, num_warmup_steps=5)
    assert rates(schedule, range(6)) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0])


@pytest.mark.parametrize(
    ("rate", "total", "warmup", "warning"),
    [
        (1e-4, 200, 10000, "ends at 1.99e-06, still rising to 0.0001. Use .* 20 steps"),
        (1e-4, 200, 200, "ends at 9.95e-05, still rising"),
        (1e-4, 200, 199, None),
        (1e-4, 1, 1, "ends at 0, still rising to 0.0001. Use .* 0 steps"),
        (1e-4, 1, 0, None),
        (1e-50, 200, 20, "0 in every step"),  # in float32
        (5e-5, 100000, 10000, None),
    ],
)
def test_a_schedule_that_learns_little_is_said(rate, total, warmup, warning):
    schedule = Schedule(learning_rate=rate, num_train_steps=total, num_warmup_steps=warmup)
    found = schedule.warning()
    assert re.search(warning, found) if warning else not found


INVALID = [
    ("num_train_steps", (0, -3, 2.5, "9", True)),
    ("num_warmup_steps", (-1, 0.5)),
    ("learning_rate", (0.0, -1.0, float("nan"), float("inf"), 1e300, "x")),
    ("end_learning_rate", (-1.0, float("nan"))),
]


@pytest.mark.parametrize(
    ("name", "value"), [(n, value) for n, values in INVALID for value in values]
)
def test_a_schedule_that_is_none(name, value):
    with pytest.raises(InputError, match=name):
        Schedule(**{"learning_rate": 0.1, "num_train_steps": 9, name: value})


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 10**6), st.integers(0, 10**6), st.floats(1e-6, 1), st.floats(0, 1e-6), st.data()
)
def test_schedule_in_general(total, warmup, peak, end, data):
    schedule = Schedule(
        learning_rate=peak,
        num_train_steps=total,
        num_warmup_steps=warmup,
        end_learning_rate=end,
    )
    t = data.draw(st.integers(0, 2 * total))
    decayed = end + (peak - end) * (1 - min(t, total) / total)
    expected = peak * t / warmup if t < warmup else decayed
    assert rates(schedule, [t]) == pytest.approx([expected], rel=1e-4, abs=peak * 1e-6)


# ---------------------------------------------------------------------------- three steps

GRADIENTS = np.array([[0.3, -2.0, 0.0, 1e-7], [-0.1, -3.0, 5.0, 1e-7], [0.2, 1.0, 0.0, -1e-7]])
WEIGHTS = np.array([0.7, -1.5, 0.0, 3.0])
SCHEDULE = Schedule(learning_rate=0.1, num_train_steps=4)  # 0.1, 0.075, 0.05
RATES = (0.1, 0.075, 0.05)


def three_steps(optimizer, *, decays: bool) -> list[np.ndarray]:
    """The weights after each of three updates."""
    p, m, v = tf.constant(WEIGHTS, tf.float32), tf.zeros([4]), tf.zeros([4])
    weights = []
    for step, gradient in enumerate(GRADIENTS):
        p, m, v = optimizer.updated(
            p, m, v, tf.constant(gradient, tf.float32), step=tf.constant(step), decays=decays
        )
        weights.append(p.numpy())
    return weights


def by_hand(*, decays: bool, bias_correction: bool = False, layerwise: bool = False):
    """The same in NumPy, float64, from the papers."""
    p, m, v = WEIGHTS, np.zeros(4), np.zeros(4)
    for t, gradient in enumerate(GRADIENTS):
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        m_hat = m / (1 - 0.9 ** (t + 1)) if bias_correction else m
        v_hat = v / (1 - 0.999 ** (t + 1)) if bias_correction else v
        update = m_hat / (np.sqrt(v_hat) + 1e-6) + (0.01 * p if decays else 0)
        ratio = np.linalg.norm(p) / np.linalg.norm(update) if layerwise and decays else 1
        p = p - RATES[t] * ratio * update
        yield p


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("bias_correction", [False, True])
def test_three_steps(decays, bias_correction):
    optimizer = AdamWeightDecay(schedule=SCHEDULE, bias_correction=bias_correction)
    expected = list(by_hand(decays=decays, bias_correction=bias_correction))
    np.testing.assert_allclose(
        three_steps(optimizer, decays=decays), expected, rtol=1e-5, atol=1e-6
    )


def test_the_first_step_by_hand():
    """Without bias correction 0.1 / sqrt(0.001) = 3.162 times the rate, whatever the gradient."""
    first = three_steps(AdamWeightDecay(schedule=SCHEDULE), decays=False)[0]
    step = 0.1 * 0.1 / math.sqrt(0.001)
    assert first[:3] == pytest.approx([0.7 - step, -1.5 + step, 0.0], rel=1e-4)
    # A gradient as small as epsilon is damped: 1e-8 / (sqrt(1e-17) + 1e-6).
    assert 3 - first[3] == pytest.approx(0.1 * 1e-8 / (math.sqrt(1e-17) + 1e-6), abs=2e-7)
    corrected = AdamWeightDecay(schedule=SCHEDULE, bias_correction=True)
    assert three_steps(corrected, decays=False)[0][:2] == pytest.approx([0.6, -1.4], rel=1e-4)


def test_skipped_steps_do_not_count_in_the_correction():
    """After two of them step 3 is the second update of the moments, at the rate of step 3."""
    optimizer = AdamWeightDecay(schedule=SCHEDULE, bias_correction=True)
    p, m, v = tf.constant(WEIGHTS, tf.float32), tf.fill([4], 0.25), tf.fill([4], 0.5)
    gradient = tf.constant(GRADIENTS[1], tf.float32)

    def change(step, **skipped):
        new, _, _ = optimizer.updated(
            p, m, v, gradient, step=tf.constant(step), decays=False, **skipped
        )
        return (new - p).numpy()

    expected = change(1) * float(SCHEDULE(3) / SCHEDULE(1))
    np.testing.assert_allclose(change(3, skipped=tf.constant(2)), expected, rtol=1e-4, atol=1e-6)
    assert not np.allclose(change(3), expected, rtol=1e-2)


def test_decay_is_of_the_weight_before_the_update():
    """And pulls on the weight alone: with a gradient of 0 it shrinks by rate * 0.01."""
    optimizer = AdamWeightDecay(schedule=SCHEDULE)
    zero = tf.zeros([2])
    p, m, v = optimizer.updated(
        tf.constant([4.0, -2.0]), zero, zero, zero, step=tf.constant(0), decays=True
    )
    assert p.numpy() == pytest.approx([4 * (1 - 0.1 * 0.01), -2 * (1 - 0.1 * 0.01)], rel=1e-6)
    assert not m.numpy().any()
    assert not v.numpy().any()


def test_moments_move_while_the_rate_is_zero():
    optimizer = AdamWeightDecay(
        schedule=Schedule(learning_rate=1.0, num_train_steps=9, num_warmup_steps=3)
    )
    p, m, v = optimizer.updated(
        tf.constant([4.0]), tf.zeros([1]), tf.zeros([1]), tf.constant([2.0]),
        step=tf.constant(0), decays=True,
    )  # fmt: skip
    assert (p.numpy(), m.numpy(), v.numpy()) == (
        [4.0],
        pytest.approx([0.2]),
        pytest.approx([0.004]),
    )


# ---------------------------------------------------------------------------- LAMB


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize("bias_correction", [False, True])
def test_three_steps_of_lamb(decays, bias_correction):
    optimizer = Lamb(schedule=SCHEDULE, bias_correction=bias_correction)
    expected = list(by_hand(decays=decays, bias_correction=bias_correction, layerwise=True))
    np.testing.assert_allclose(
        three_steps(optimizer, decays=decays), expected, rtol=1e-5, atol=1e-6
    )
    assert decays == (
        not np.allclose(expected, list(by_hand(decays=decays, bias_correction=bias_correction)))
    )


def test_lambs_step_is_as_long_as_the_weights():
    """|new - old| = rate * |old|, whatever the gradient's size."""
    for scale in (1e-3, 1.0, 1e4):
        gradient = tf.constant([1.0, -2.0, 2.0]) * scale
        p = tf.constant([3.0, 0.0, -4.0])
        zero = tf.zeros([3])
        new, _, _ = Lamb(schedule=SCHEDULE).updated(
            p, zero, zero, gradient, step=tf.constant(0), decays=True
        )
        assert float(tf.norm(new - p)) == pytest.approx(0.1 * 5, rel=1e-4)


def test_lamb_without_decay_is_lamb_still():
    """Which steps are as long as their weights is said by the names, not by the rate of decay."""
    optimizer = Lamb(schedule=SCHEDULE, weight_decay_rate=0.0)
    p, zero = tf.constant([3.0, 0.0, -4.0]), tf.zeros([3])
    for name, length in (("bert/pooler/dense/kernel", 0.1 * 5), ("bert/pooler/dense/bias", None)):
        new, _, _ = optimizer.updated(
            p,
            zero,
            zero,
            tf.constant([1.0, -2.0, 2.0]),
            step=tf.constant(0),
            decays=optimizer.decays(name),
        )
        plain = 0.1 * 0.1 / math.sqrt(0.001) * math.sqrt(3)
        assert float(tf.norm(new - p)) == pytest.approx(length or plain, rel=1e-4)


@pytest.mark.parametrize("weights_are_zero", [True, False])
def test_lamb_where_a_norm_is_zero(weights_are_zero):
    """The plain rate, and no division by zero."""
    optimizer = Lamb(schedule=SCHEDULE, weight_decay_rate=0.0 if not weights_are_zero else 0.01)
    zero = tf.zeros([2])
    p = zero if weights_are_zero else tf.constant([3.0, 4.0])
    gradient = tf.constant([1.0, -1.0]) if weights_are_zero else zero
    new, _, _ = optimizer.updated(p, zero, zero, gradient, step=tf.constant(0), decays=True)
    step = 0.1 * 0.1 / math.sqrt(0.001)
    expected = [-step, step] if weights_are_zero else [3.0, 4.0]
    assert new.numpy() == pytest.approx(expected, rel=1e-4)


# ---------------------------------------------------------------------------- what decays


def test_which_variables_decay():
    """Kernels, the three tables and output_weights; of every name that the original has."""
    optimizer = AdamWeightDecay(schedule=SCHEDULE)
    config = dataclasses.replace(small.CONFIG, num_hidden_layers=1)
    names = [
        *reference.variable_shapes(config),
        *("output_weights", "output_bias"),  # a classifier's, at the top level
        *("cls/squad/output_weights", "cls/squad/output_bias"),
    ]
    layer = "bert/encoder/layer_0"
    assert {name for name in names if optimizer.decays(name)} == {
        "bert/embeddings/word_embeddings",
        "bert/embeddings/token_type_embeddings",
        "bert/embeddings/position_embeddings",
        f"{layer}/attention/self/query/kernel",
        f"{layer}/attention/self/key/kernel",
        f"{layer}/attention/self/value/kernel",
        f"{layer}/attention/output/dense/kernel",
        f"{layer}/intermediate/dense/kernel",
        f"{layer}/output/dense/kernel",
        "bert/pooler/dense/kernel",
        "cls/predictions/transform/dense/kernel",
        "cls/seq_relationship/output_weights",
        "output_weights",
        "cls/squad/output_weights",
    }
    assert len(names) == 5 + 16 + 2 + 5 + 2 + 4


def test_no_decay():
    """With a rate of 0 no weight is pulled on, whatever its name."""
    never = AdamWeightDecay(schedule=SCHEDULE, weight_decay_rate=0.0)
    for one, other in zip(*(three_steps(never, decays=d) for d in (True, False)), strict=True):
        np.testing.assert_array_equal(one, other)


# ---------------------------------------------------------------------------- some more than others

LAYER = "bert/encoder/layer_{}/output/dense/kernel"


def test_every_level_down_is_scaled_once_more():
    """Of two layers, with 1/2: as ELECTRA's code has them, the pooler on the level it leaves."""
    expected = {
        "output_weights": 1,
        "cls/squad/output_bias": 1,
        "cls/predictions/transform/LayerNorm/beta": 1,
        "bert/pooler/dense/bias": 1 / 2,
        LAYER.format(1): 1 / 4,
        LAYER.format(0): 1 / 8,
        "bert/embeddings/LayerNorm/gamma": 1 / 16,
        "bert/embeddings/position_embeddings": 1 / 16,
    }
    assert layer_scales(expected, 0.5) == expected
    assert set(layer_scales(expected, 1.0).values()) == {1.0}


def test_levels_of_twelve_layers():
    scales = layer_scales([LAYER.format(i) for i in range(12)], 0.9)
    assert list(scales.values()) == pytest.approx([0.9 ** (13 - i) for i in range(12)])


@pytest.mark.parametrize("kind", [AdamWeightDecay, Lamb])
@pytest.mark.parametrize("bias_correction", [False, True])
def test_a_scaled_step(kind, bias_correction):
    """A quarter of the way, decay included; the moments are those of the whole one."""
    optimizer = kind(schedule=SCHEDULE, bias_correction=bias_correction)
    p, m, v = tf.constant(WEIGHTS, tf.float32), tf.fill([4], 0.25), tf.fill([4], 0.5)
    gradient = tf.constant(GRADIENTS[1], tf.float32)
    whole, part = (
        optimizer.updated(p, m, v, gradient, step=tf.constant(1), decays=True, scale=scale)
        for scale in (1.0, 0.25)
    )
    assert (part[0] - p).numpy() == pytest.approx(0.25 * (whole[0] - p).numpy(), rel=1e-4)
    for one, other in zip(whole[1:], part[1:], strict=True):
        np.testing.assert_array_equal(one, other)


NAMES = [
    "bert/embeddings/word_embeddings",
    "bert/embeddings/LayerNorm/beta",
    LAYER.format(1),
    LAYER.format(10),
    "bert/pooler/dense/bias",
    "output_bias",
]


@pytest.mark.parametrize(
    ("freeze", "left"),
    [
        ([], [0, 1, 2, 3, 4, 5]),
        (["bert/embeddings"], [2, 3, 4, 5]),
        (["layer_1/", "bert/embeddings/word"], [1, 3, 4, 5]),
        (["layer_1"], [0, 1, 4, 5]),
        (["^bert/"], [5]),
        (["LayerNorm|bias$"], [0, 2, 3]),
        (["layer_[0-9]+/", "bias", "bert/pooler"], [0, 1]),
    ],
)
def test_patterns_of_what_is_frozen(freeze, left):
    assert trained_names(NAMES, freeze) == [NAMES[i] for i in left]


@pytest.mark.parametrize(
    ("freeze", "received"),
    [
        (["bert/embeddings", "layer_2/"], "'layer_2/', which is in the name of no variable"),
        (["("], "'\\(' .missing"),
        ([""], "leaves no variable"),
        (["bert", "output"], "--freeze=bert,output, which leaves no variable"),
    ],
)
def test_patterns_that_cannot_be(freeze, received):
    with pytest.raises(InputError, match=received):
        trained_names(NAMES, freeze)


def test_a_pattern_without_a_match_is_told_a_name_of_every_part():
    with pytest.raises(InputError) as info:
        trained_names(NAMES, ["embedding/"])
    for part in ("bert/embeddings/", "layer_1/", "layer_10/", "bert/pooler/", "output_bias"):
        assert part in info.value.expected


# ---------------------------------------------------------------------------- clipping


def clipped(gradients, clip_norm=1.0):
    values, norm = clip_by_global_norm(gradients, clip_norm)
    return [value.numpy().tolist() for value in values], float(norm)


def test_clip_below_and_above():
    below = [tf.constant([0.3, 0.0]), tf.constant([[-0.4]])]
    assert clipped(below) == (
        [pytest.approx([0.3, 0.0]), [pytest.approx([-0.4])]],
        pytest.approx(0.5),
    )
    above = [tf.constant([3.0, 0.0]), tf.constant([[-4.0]])]
    assert clipped(above) == (
        [pytest.approx([0.6, 0.0]), [pytest.approx([-0.8])]],
        pytest.approx(5.0),
    )
    assert clipped(above, 10.0) == ([[3.0, 0.0], [[-4.0]]], pytest.approx(5.0))
    assert clipped(above, 0.0) == ([[3.0, 0.0], [[-4.0]]], pytest.approx(5.0))
    assert clipped([tf.zeros([2])]) == ([[0.0, 0.0]], 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_norm_that_is_not_finite_makes_every_gradient_nan(bad):
    values, norm = clipped([tf.constant([1.0, 2.0]), tf.constant([bad, 0.0])])
    assert np.isnan(values).all()
    assert not math.isfinite(norm)


def test_slices_of_a_table_are_added_before_the_norm():
    """A piece that is there twice has one gradient, the sum: norm 5 and not 3.6."""
    slices = tf.IndexedSlices(tf.constant([[1.0, 2.0], [2.0, 2.0]]), tf.constant([1, 1]), [3, 2])
    values, norm = clipped([slices], clip_norm=0.0)
    assert values == [[[0, 0], [3, 4], [0, 0]]]
    assert norm == pytest.approx(5.0)
