"""The programs that training scripts give to XLA: a step of training, evaluation and prediction.

They are lowered to HLO as TensorFlow does it, and not compiled: `compilers.py` sends them to the
compiler of any device. Shapes are those of one device's part of a batch.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError, first_line
from bert_tf.heads import head_named, make_model
from bert_tf.planning.workload import Workload
from bert_tf.training import optimization
from bert_tf.training.settings import StepConfig
from bert_tf.training.trainer import Trainer

NO_XLA = "could not find registered transfer manager"  # TensorFlow's words


class Programs:
    """The programs of a workload on one device; its model is built once for all of them."""

    def __init__(self, work: Workload):
        """Builds the model, with random weights, and the optimizer's moments."""

        def model_fn():
            if work.head == "pretraining":
                return make_model("pretraining", work.config, with_losses=True)
            return make_model(work.head, work.config, num_classes=work.num_classes)

        schedule = optimization.Schedule(learning_rate=1e-4, num_train_steps=10**6)
        self.work = work
        self._trainer = Trainer(
            model_fn,
            head_named(work.head),
            optimization.CLASSES[work.optimizer](schedule),
            strategy=tf.distribute.get_strategy(),
            seed=1,
            step_config=StepConfig(
                precision=work.precision,
                recompute=work.recompute,
                recompute_attention=True,
                gradient_accumulation_steps=work.gradient_accumulation_steps,
            ),
        )
        self._lowered: dict[tuple[str, int], bytes] = {}

    def lowered(self, step: str, batch_size: int) -> bytes:
        """The HLO of a step of `devices.STEPS`, a serialized HloModuleProto.

        Raises:
          InputError: this TensorFlow has no XLA.
        """
        key = step, batch_size
        if key not in self._lowered:
            parts = self.work.gradient_accumulation_steps if step == "train" else 1
            work = dataclasses.replace(
                self.work, train_batch_size=batch_size, gradient_accumulation_steps=parts
            )
            batch = {name: tf.constant(value) for name, value in random_batch(work).items()}
            trainer = self._trainer
            function, args = {
                "train": (trainer.steps.update, (batch, tf.constant(0))),
                "evaluate": (trainer.steps.sums, (batch,)),
                "predict": (trainer.steps.outputs, (batch, head_named(work.head).outputs)),
            }[step]
            try:
                hlo = function.experimental_get_compiler_ir(*args)("hlo_serialized")
            except (tf.errors.OpError, ValueError) as error:
                if NO_XLA not in str(error):
                    raise
                raise InputError(
                    f"a TensorFlow without XLA for CPUs ({first_line(error)})",
                    "tensorflow; the build for TPUs, tensorflow-tpu, has none",
                    "run bert-tf plan --for in an environment of its own",
                ) from None
            self._lowered[key] = hlo
        return self._lowered[key]


def random_batch(work: Workload) -> dict[str, np.ndarray]:
    """One batch with every position real and the labels of the workload's head.

    The arrays are input_ids, input_mask and segment_ids int32 [B, S], is_real_example
    float32 [B], and the labels as in the head's records.
    """
    rng = np.random.default_rng(0)
    rows, length = work.train_batch_size, work.max_seq_length
    predictions, vocabulary = work.max_predictions_per_seq, work.config.vocab_size

    def ids(high: int, *shape: int) -> np.ndarray:
        return rng.integers(0, high, shape).astype(np.int32)

    batch = {
        "input_ids": ids(vocabulary, rows, length),
        "input_mask": np.ones([rows, length], np.int32),
        "segment_ids": ids(2, rows, length),
        "is_real_example": np.ones([rows], np.float32),
    }
    labels = {
        "pretraining": {
            "masked_lm_positions": ids(length, rows, predictions),
            "masked_lm_ids": ids(vocabulary, rows, predictions),
            "masked_lm_weights": np.ones([rows, predictions], np.float32),
            "next_sentence_labels": ids(2, rows, 1),
        },
        "classification": {"label_ids": ids(work.num_classes, rows, 1)},
        "token_labels": {"label_ids": ids(work.num_classes, rows, length)},
        "question_answering": {
            name: ids(length, rows, 1) for name in ("start_positions", "end_positions")
        },
    }
    return batch | labels[work.head]
