"""Schedule and updates, against the rules of the original worked out in NumPy float64."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import reference
import small
import tensorflow as tf

from bert_tf import make_optimizer
from bert_tf.errors import InputError
from bert_tf.training.optimization import (
    CLASSES,
    AdamWeightDecay,
    Lamb,
    Schedule,
    layer_scales,
    trained_names,
)

# ---------------------------------------------------------------------------- schedule


def rates(schedule: Schedule, steps) -> list[float]:
    values = [schedule(tf.constant(step)) for step in steps]
    assert {value.dtype for value in values} == {tf.float32}
    return [float(value) for value in values]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # Up to 9/10, then down from 90/100; 1/100 at the last step.
        ((2e-3, 100, 10), {0: 0, 1: 2e-4, 9: 18e-4, 10: 18e-4, 50: 1e-3, 99: 2e-5, 10**6: 0}),
        ((0.7, 7, 0), {0: 0.7, 1: 0.6, 6: 0.1, 7: 0, 8: 0}),
        ((0.5, 8, 2, 0.1), {0: 0, 1: 0.25, 2: 0.4, 4: 0.3, 7: 0.15, 8: 0.1, 9: 0.1}),
        ((0.5, 4, 5), {0: 0, 1: 0.1, 4: 0.4, 5: 0}),  # all of it is warm-up
    ],
)
def test_schedule_by_hand(fields, expected):
    names = [field.name for field in dataclasses.fields(Schedule)]
    schedule = Schedule(**dict(zip(names, fields, strict=False)))
    assert rates(schedule, expected) == pytest.approx([*expected.values()], rel=1e-5, abs=1e-11)


@pytest.mark.parametrize(("total", "warmup", "last"), [(200, 10000, "1.99e-06"), (1, 1, "0")])
def test_a_schedule_that_learns_little_is_said(total, warmup, last):
    schedule = Schedule(learning_rate=1e-4, num_train_steps=total, num_warmup_steps=warmup)
    assert (
        f"ends at {last}, still rising. --num_warmup_steps={total // 10} is" in schedule.warning()
    )
    sound = Schedule(learning_rate=1e-4, num_train_steps=total, num_warmup_steps=total - 1)
    assert not sound.warning()


INVALID = [
    ("num_train_steps", (0, -3, 2.5, "9", True, [9], [9, 9])),
    ("num_warmup_steps", (-1, 0.5)),
    ("learning_rate", (0.0, -1.0, float("nan"), float("inf"), 1e300, "x")),
    ("end_learning_rate", (-1.0, float("nan"))),
    ("warmup_proportion", (2, -0.1, float("nan"))),
    ("optimizer", ("adam", None)),
]


@pytest.mark.parametrize(("name", "values"), INVALID)
def test_a_schedule_that_is_none(name, values):
    """Such as 0 steps, of which the rate would be NaN."""
    for value in values:
        if name not in ("warmup_proportion", "optimizer"):
            with pytest.raises(InputError, match=name):
                Schedule(**{"learning_rate": 0.1, "num_train_steps": 9, name: value})
        if name != "num_warmup_steps":
            with pytest.raises(InputError, match=name):
                make_optimizer(**{"num_train_steps": 9, name: value})


# ---------------------------------------------------------------------------- updates

GRADIENTS = np.array([[0.3, -2.0, 0.0, 1e-7], [-0.1, -3.0, 5.0, 1e-7], [0.2, 1.0, 0.0, -1e-7]])
WEIGHTS = np.array([0.7, -1.5, 0.0, 3.0])
RATES = (0.1, 0.0, 0.05)
SCHEDULE = Schedule(learning_rate=0.1, num_train_steps=4)


def three_steps(optimizer, *, decays: bool) -> list[np.ndarray]:
    """The weights after each of three updates."""
    p, m, v = tf.constant(WEIGHTS, tf.float32), tf.zeros([4]), tf.zeros([4])
    weights = []
    for number, (rate, gradient) in enumerate(zip(RATES, np.float32(GRADIENTS), strict=True), 1):
        p, m, v = optimizer.new_values(
            p, m, v, gradient, rate=tf.constant(rate), count=tf.constant(number), decays=decays
        )
        weights.append(p.numpy())
    return weights


def by_hand(*, decay: float, bias_correction: bool, by_norm: bool):
    """The same in NumPy, float64, from the papers."""
    p, m, v = WEIGHTS, np.zeros(4), np.zeros(4)
    for t, (rate, gradient) in enumerate(zip(RATES, GRADIENTS, strict=True), 1):
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        m_hat = m / (1 - 0.9**t) if bias_correction else m
        v_hat = v / (1 - 0.999**t) if bias_correction else v
        update = m_hat / (np.sqrt(v_hat) + 1e-6) + decay * p
        ratio = np.linalg.norm(p) / np.linalg.norm(update) if by_norm else 1
        p = p - rate * ratio * update
        yield p


@pytest.mark.parametrize("kind", [AdamWeightDecay, Lamb])
@pytest.mark.parametrize("decay", [None, 0.0, 0.01])
@pytest.mark.parametrize("bias_correction", [False, True])
def test_three_steps(kind, decay, bias_correction):
    """Without decay by a weight's name (None), and at a rate of 0, where LAMB still is LAMB."""
    optimizer = kind(SCHEDULE, weight_decay_rate=decay or 0.0, bias_correction=bias_correction)
    found = three_steps(optimizer, decays=decay is not None)
    by_norm = kind is Lamb and decay is not None
    expected = by_hand(decay=decay or 0.0, bias_correction=bias_correction, by_norm=by_norm)
    np.testing.assert_allclose(found, [*expected], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights_are_zero", [True, False])
def test_lamb_where_a_norm_is_zero(weights_are_zero):
    """The plain rate, and no division by zero."""
    optimizer = Lamb(SCHEDULE, weight_decay_rate=0.0 if not weights_are_zero else 0.01)
    zero = tf.zeros([2])
    p = zero if weights_are_zero else tf.constant([3.0, 4.0])
    gradient = tf.constant([1.0, -1.0]) if weights_are_zero else zero
    new, _, _ = optimizer.new_values(p, zero, zero, gradient, rate=0.1, count=1, decays=True)
    step = 0.1 * 0.1 / math.sqrt(0.001)
    expected = [-step, step] if weights_are_zero else [3.0, 4.0]
    assert new.numpy() == pytest.approx(expected, rel=1e-4)


def test_which_variables_decay():
    """Kernels, the three tables and output_weights; of every name that the original has."""
    names = [*reference.variable_shapes(small.CONFIG), "output_weights", "output_bias"]
    names += ["cls/squad/output_weights", "cls/squad/output_bias"]
    decaying = [name for name in names if AdamWeightDecay(SCHEDULE).decays(name)]
    last = ("kernel", "_embeddings", "output_weights")
    assert decaying == [name for name in names if name.endswith(last)]
    assert len(decaying) == 3 + 2 * 6 + 1 + 4


# ---------------------------------------------------------------------------- in Keras


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_keras_updates_as_the_training_loop_does(name):
    """With clipping, a rate for each level, and after being saved and loaded."""
    rng, steps = np.random.default_rng(2), 7
    shapes = {"pooler/kernel": (3, 5), "gamma": (4,), "bias": (2,), "output_weights": (2, 3)}
    start = {name: rng.standard_normal(shape).astype("f") for name, shape in shapes.items()}
    variables = []
    for path, value in start.items():
        *scope, last = path.split("/")
        with keras.name_scope(*scope or ["classifier"]):
            variables.append(keras.Variable(value, name=last))
    ours = make_optimizer(
        np.int64(steps), learning_rate=0.1, warmup_proportion=0.3, end_learning_rate=0.02,
        optimizer=name, bias_correction=True, layerwise_lr_decay=0.5,
    )  # fmt: skip
    again = keras.optimizers.deserialize(keras.optimizers.serialize(ours))
    assert again.get_config() == ours.get_config()
    ours = again
    ours.build(variables)
    schedule = Schedule(
        learning_rate=0.1, num_train_steps=steps, num_warmup_steps=2, end_learning_rate=0.02
    )
    theirs = CLASSES[name](schedule, bias_correction=True)
    states = [(tf.constant(value), *[tf.zeros_like(value)] * 2) for value in start.values()]
    for step in range(steps):
        gradients = [rng.standard_normal(shape).astype("f") * 3 for shape in shapes.values()]
        ours.apply([tf.constant(gradient) for gradient in gradients])
        norm = np.sqrt(sum(np.square(gradient).sum() for gradient in gradients))
        states = [
            theirs.new_values(
                *(*state, gradient / norm),  # which is above 1
                rate=schedule(step) * (0.5 if "pooler" in path else 1.0),
                count=step + 1,
                decays=path not in ("gamma", "bias"),
            )
            for state, gradient, path in zip(states, gradients, shapes, strict=True)
        ]
        assert abs(float(ours.learning_rate) - schedule.rate(step + 1)) < 1e-7
    for variable, (expected, *_), value in zip(variables, states, start.values(), strict=True):
        np.testing.assert_allclose(variable, expected, atol=2e-6)
        assert np.abs(variable - value).max() > 0.05


# ---------------------------------------------------------------------------- some more than others

LAYER = "bert/encoder/layer_{}/output/dense/kernel"


def test_every_level_down_is_scaled_once_more():
    """Of two layers, with 1/2: as ELECTRA's code has them, the pooler on the level it leaves."""
    expected = {
        "output_weights": 1, "cls/squad/output_bias": 1,
        "cls/predictions/transform/LayerNorm/beta": 1, "bert/pooler/dense/bias": 1 / 2,
        LAYER.format(1): 1 / 4, LAYER.format(0): 1 / 8, "bert/embeddings/LayerNorm/gamma": 1 / 16,
        "bert/embeddings/position_embeddings": 1 / 16,
    }  # fmt: skip
    assert layer_scales(expected, 0.5) == expected
    assert set(layer_scales(expected, 1.0).values()) == {1.0}


NAMES = [
    "bert/embeddings/word_embeddings", "bert/embeddings/LayerNorm/beta", LAYER.format(1),
    LAYER.format(10), "bert/pooler/dense/bias", "output_bias",
]  # fmt: skip


def test_patterns_of_what_is_frozen():
    for freeze, left in (
        ([], [0, 1, 2, 3, 4, 5]),
        (["layer_1/", "bert/embeddings/word"], [1, 3, 4, 5]),
        (["^bert/"], [5]),
        (["layer_[0-9]+/", "bias", "bert/pooler"], [0, 1]),
    ):
        assert trained_names(NAMES, freeze) == [NAMES[i] for i in left]


def test_patterns_that_cannot_be():
    """The message names one variable of every part."""
    for freeze, received in (
        (["bert/embeddings", "layer_2/"], "'layer_2/', which is in the name of no variable"),
        (["("], "'\\(' .missing"),
        ([""], "leaves no variable"),
        (["bert", "output"], "'output', which leaves no variable"),
    ):
        with pytest.raises(InputError, match=received) as info:
            trained_names(NAMES, freeze)
        if "which" in received:
            parts = "bert/embeddings/ layer_1/ layer_10/ bert/pooler/ output_bias"
            assert all(part in info.value.expected for part in parts.split())
