"""The programs that training scripts give to XLA: a step of training, evaluation and prediction.

They are lowered to HLO as TensorFlow does it, and not compiled: `compilers.py` sends them to the
compiler of any device. Shapes are those of one device's part of a batch.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf.config import StepConfig
from bert_tf.data.records import input_features, pretraining_record
from bert_tf.errors import InputError, first_line
from bert_tf.heads import head_named
from bert_tf.heads.pretraining import NextToken
from bert_tf.planning.workload import MASKED_SHARE, Workload
from bert_tf.training import optimization
from bert_tf.training.trainer import Trainer

NO_XLA = "could not find registered transfer manager"  # TensorFlow's words


def make_trainer(work: Workload, *, recompute_attention: bool = True) -> Trainer:
    """The trainer of a workload on one device, with random weights."""
    head = NextToken() if work.masked and work.config.is_causal else head_named(work.head)
    options = {"num_classes": work.num_classes}
    if work.masked:
        options = {"with_losses": True, "num_sequences": work.row_sizes[0]}
    schedule = optimization.Schedule(learning_rate=1e-4, num_train_steps=10**6)
    return Trainer(
        lambda: head.model(work.config, **options),
        head,
        optimization.CLASSES[work.optimizer](schedule),
        strategy=tf.distribute.get_strategy(),
        seed=1,
        step_config=StepConfig(
            precision=work.precision,
            recompute=work.recompute,
            recompute_attention=recompute_attention,
            gradient_accumulation_steps=work.gradient_accumulation_steps,
        ),
    )


class Programs:
    """The programs of a workload on one device; its model is built once for all of them."""

    def __init__(self, work: Workload):
        """Builds the model, with random weights, and the optimizer's moments."""
        self.work = work
        self._trainer = make_trainer(work)
        self._lowered: dict[tuple[str, int], bytes] = {}

    def lowered(self, step: str, batch_size: int) -> bytes:
        """The HLO of a step of `workload.STEPS`, a serialized HloModuleProto.

        Raises:
          InputError: this TensorFlow has no XLA.
        """
        key = step, batch_size
        if key not in self._lowered:
            parts = self.work.gradient_accumulation_steps if step == "train" else 1
            sizes = {"train_batch_size": batch_size, "gradient_accumulation_steps": parts}
            made = random_batch(dataclasses.replace(self.work, **sizes))
            batch = {name: tf.constant(value) for name, value in made.items()}
            steps = self._trainer.steps
            function, args = {
                "train": (steps.update, (batch, tf.constant(0))),
                "evaluate": (steps.sums, (batch,)),
                "predict": (steps.outputs, (batch, self._trainer.objective.outputs)),
            }[step]
            try:
                hlo = function.experimental_get_compiler_ir(*args)("hlo_serialized")
            except (tf.errors.OpError, ValueError) as error:
                if NO_XLA not in str(error):
                    raise
                received = f"a TensorFlow without XLA for CPUs ({first_line(error)})"
                remedy = "run bert-tf plan --for in an environment of its own"
                raise InputError(received, "tensorflow, not tensorflow-tpu", remedy) from None
            self._lowered[key] = hlo
        return self._lowered[key]


def random_batch(work: Workload) -> dict[str, np.ndarray]:
    """One batch of the records of the workload's head, with every position real.

    The arrays are input_ids, input_mask and segment_ids int32 [B, S], is_real_example float32 [B],
    and the labels as in the head's records.
    """
    rng, rows, length = np.random.default_rng(0), work.train_batch_size, work.max_seq_length
    vocabulary = {"vocab_size": work.config.vocab_size, "type_vocab_size": 2}
    if work.masked:
        positions = work.max_predictions_per_seq
        features = pretraining_record(
            max_seq_length=length,
            max_predictions_per_seq=positions,
            packed_with=MASKED_SHARE if work.pack else None,
            **vocabulary,
        ).features
    else:
        labels = head_named(work.head).label_features(length, work.num_classes, 1)
        features = (*input_features(length, **vocabulary), *labels)
    batch = {"is_real_example": np.ones(rows, np.float32)}
    for feature in features:
        shape, dtype = (rows, feature.size), feature.batch_dtype
        is_one = feature.name == "input_mask" or dtype == np.float32
        drawn = 1 if is_one else rng.integers(feature.least, feature.most + 1, shape)
        batch[feature.name] = np.full(shape, drawn, dtype)
    return batch
