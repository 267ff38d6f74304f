"""Every head with a tiny model and one batch of it, for tests of what all heads have in common."""

import dataclasses
from collections.abc import Callable, Sequence

import keras
import numpy as np
import small
import tensorflow as tf

from bert_tf import BertConfig, heads, make_model
from bert_tf.training import distribution
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.settings import StepConfig
from bert_tf.training.trainer import Trainer

CLASSES, CHOICES = 3, 2
# At a rate of BERT: what rounding makes of gradients near 0 is multiplied by it.
SCHEDULE = Schedule(learning_rate=1e-4, num_train_steps=9)


@dataclasses.dataclass
class Head:
    """What a `Trainer` needs for it."""

    model: Callable[[BertConfig], keras.Model]
    objective: heads.Head
    labels: Callable[[np.random.Generator, int], dict]


def _ids(rng, high: int, *shape: int) -> np.ndarray:
    return rng.integers(0, high, shape).astype(np.int32)


HEADS = {
    "pretraining": Head(
        lambda config: make_model("pretraining", config, with_losses=True),
        heads.Pretraining(),
        lambda rng, rows: {},
    ),
    "classes": Head(
        lambda config: make_model("classification", config, num_classes=CLASSES),
        heads.Classification(),
        lambda rng, rows: {"label_ids": _ids(rng, CLASSES, rows, 1)},
    ),
    "regression": Head(
        lambda config: make_model("classification", config, num_classes=1),
        heads.Regression(),
        lambda rng, rows: {"label_ids": rng.normal(size=[rows, 1]).astype(np.float32)},
    ),
    "multi_label": Head(
        lambda config: make_model("classification", config, num_classes=CLASSES),
        heads.MultiLabel(),
        lambda rng, rows: {"label_ids": _ids(rng, 2, rows, CLASSES)},
    ),
    "multiple_choice": Head(
        lambda config: make_model("multiple_choice", config, num_choices=CHOICES),
        heads.Classification(),
        lambda rng, rows: {"label_ids": _ids(rng, CHOICES, rows, 1)},
    ),
    "token_labels": Head(
        lambda config: make_model("token_labels", config, num_classes=CLASSES),
        heads.TokenLabels(),
        lambda rng, rows: {"label_ids": _ids(rng, CLASSES + 1, rows, small.S) - 1},
    ),
    "span": Head(
        lambda config: make_model("question_answering", config),
        heads.QuestionAnswering(),
        lambda rng, rows: {
            f"{end}_positions": _ids(rng, small.S, rows, 1) for end in ("start", "end")
        },
    ),
}


def make_trainer(
    head: str,
    config: BertConfig = small.CONFIG,
    *,
    strategy=None,
    optimizer: AdamWeightDecay | None = None,
    seed: int = 3,
    freeze: Sequence[str] = (),
    objective: heads.Head | None = None,
    **step_config,
) -> Trainer:
    """A trainer; what is left over are the fields of `StepConfig`."""
    return Trainer(
        lambda: HEADS[head].model(config),
        objective or HEADS[head].objective,
        optimizer or AdamWeightDecay(SCHEDULE),
        strategy=strategy or distribution.make_strategy("one"),
        seed=seed,
        freeze=freeze,
        step_config=StepConfig(**step_config),
    )


def make_batch(head: str, rows: int, *, seed: int = 1) -> dict[str, np.ndarray]:
    """A batch of the head; the last row but one is no real example."""
    rng = np.random.default_rng(seed)
    real = np.ones(rows, np.float32)
    real[-2] = 0
    if head == "multiple_choice":
        choices = small.examples(rows * CHOICES, seed=seed)
        inputs = {
            name: choices[name].reshape(rows, CHOICES, small.S)
            for name in ("input_ids", "input_mask", "segment_ids")
        }
    else:
        inputs = small.examples(rows, seed=seed)
    return inputs | HEADS[head].labels(rng, rows) | {"is_real_example": real}


class Batches:
    """The same batch over and over, each time with its rows in another order."""

    def __init__(self, batch: dict[str, np.ndarray], number: int):
        self._batches = [
            {n: np.roll(v, i, axis=0) for n, v in batch.items()} for i in range(number)
        ]
        self.batch_size = len(batch["is_real_example"])

    def dataset(self, *, start, num_parts, first_part, parts_here) -> tf.data.Dataset:
        """As of `Batches`."""
        size = self.batch_size // num_parts
        parts = [
            {n: v[part * size : (part + 1) * size] for n, v in batch.items()}
            for batch in self._batches[start:]
            for part in range(first_part, first_part + parts_here)
        ]
        stacked = {n: np.stack([part[n] for part in parts]) for n in parts[0]}
        return tf.data.Dataset.from_tensor_slices(stacked)


def take_steps(trainer: Trainer, batch: dict[str, np.ndarray], steps: int = 3) -> dict[str, float]:
    """Updates over a batch whose rows change places; the mean losses."""
    iterator = distribution.distributed_batches(trainer.strategy, Batches(batch, steps))
    return trainer.run_steps(iterator, 0, steps)[1]


def tensors(trainer: Trainer) -> dict[str, np.ndarray]:
    """Weights and moments, by name."""
    values = {n: v for n, v in trainer.state(0, {}).items() if not n.startswith("bert_tf/")}
    return {name: np.asarray(value) for name, value in values.items()}


def largest_difference(one: Trainer, other: Trainer) -> float:
    """Between weights and moments of both."""
    ours, theirs = tensors(one), tensors(other)
    assert ours.keys() == theirs.keys()
    return max(float(np.abs(ours[name] - theirs[name]).max()) for name in ours)
