"""bert_tf.training.settings: sizes, numbers of steps and intervals."""

import dataclasses

import pytest

from bert_tf.errors import InputError
from bert_tf.training.settings import FineTuningSchedule, Intervals, StepConfig


def stops(intervals: Intervals, first: int, last: int) -> list[int]:
    steps = [first]
    while steps[-1] < last:
        steps.append(intervals.next_stop(steps[-1], last))
    return steps[1:]


def test_intervals():
    intervals = Intervals(iterations_per_loop=4, log_steps=5, save_checkpoints_steps=7)
    assert stops(intervals, 0, 16) == [4, 5, 7, 10, 14, 15, 16]
    assert stops(intervals, 6, 12) == [7, 10, 12]
    evaluating = dataclasses.replace(intervals, eval_steps=3, iterations_per_loop=1000)
    assert stops(evaluating, 0, 10) == [3, 5, 6, 7, 9, 10]
    only_at_the_end = Intervals(iterations_per_loop=10, log_steps=0, save_checkpoints_steps=0)
    assert stops(only_at_the_end, 0, 25) == [10, 20, 25]


@pytest.mark.parametrize(
    "wrong",
    [
        {"iterations_per_loop": 0},
        {"log_steps": -1},
        {"save_checkpoints_steps": -5},
        {"eval_steps": -1},
    ],
)
def test_invalid_intervals(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(InputError, match=f"--{name}={value}"):
        Intervals(**wrong)


def test_a_batch_that_cannot_be_shared_out():
    step_config = StepConfig(gradient_accumulation_steps=3)
    step_config.check_batch_size(12, 2)
    with pytest.raises(InputError) as caught:
        step_config.check_batch_size(8, 2, name="--train_batch_size")
    assert "--train_batch_size=8 for 2 replicas" in caught.value.received
    assert "--gradient_accumulation_steps=3" in caught.value.received
    assert "a multiple of 6" in caught.value.remedy
    with pytest.raises(InputError, match="=5 for 2 replicas"):
        StepConfig().check_batch_size(5, 2)


def test_an_unknown_precision():
    with pytest.raises(ValueError, match="float8"):
        StepConfig(precision="float8")


def test_no_step():
    with pytest.raises(InputError, match="--train_batch_size=32"):
        FineTuningSchedule(num_train_epochs=0.5).num_train_steps(63)
