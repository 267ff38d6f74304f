"""The optimizer for `fit` against that of the training loop."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.library.optimizers import make_optimizer
from bert_tf.training.optimization import AdamWeightDecay, Schedule, clip_by_global_norm

STEPS = 7


def test_updates_are_those_of_the_training_loop():
    rng = np.random.default_rng(2)
    shapes = {"kernel": (3, 5), "gamma": (4,), "bias": (2,), "output_weights": (2, 3)}
    start = {name: rng.standard_normal(shape).astype("f") for name, shape in shapes.items()}
    variables = [keras.Variable(value, name=name) for name, value in start.items()]
    ours = make_optimizer(np.int64(STEPS), learning_rate=0.1, warmup_proportion=0.3)
    ours.build(variables)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(ours))
    assert again.get_config() == ours.get_config()
    schedule = Schedule(learning_rate=0.1, num_train_steps=STEPS, num_warmup_steps=2)
    theirs = AdamWeightDecay(schedule=schedule)
    states = [(tf.constant(value), *[tf.zeros_like(value)] * 2) for value in start.values()]
    for step in range(STEPS):
        gradients = [rng.standard_normal(shape).astype("f") * 3 for shape in shapes.values()]
        ours.apply([tf.constant(gradient) for gradient in gradients])
        clipped, _ = clip_by_global_norm(gradients, 1.0)
        states = [
            theirs.updated(*state, g, step=tf.constant(step), decays=name not in ("gamma", "bias"))
            for state, g, name in zip(states, clipped, shapes, strict=True)
        ]
        assert abs(float(ours.learning_rate) - schedule.rate(step + 1)) < 1e-7
    for variable, (expected, *_), value in zip(variables, states, start.values(), strict=True):
        np.testing.assert_allclose(variable, expected, atol=2e-6)
        assert np.abs(variable - value).max() > 0.05


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("num_train_steps", value) for value in (0, -3, 2.5)],
        *[("warmup_proportion", value) for value in (2, -0.1, float("nan"))],
        *[("learning_rate", value) for value in (0, -1, float("nan"), "x")],
    ],
)
def test_arguments_out_of_range(name, value):
    """Such as 0 steps, of which the rate would be NaN."""
    with pytest.raises(InputError, match=name):
        make_optimizer(**{"num_train_steps": 9, name: value})
