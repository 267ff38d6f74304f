"""The programs that training scripts give to XLA: a step of training, evaluation and prediction.

They are lowered to HLO as TensorFlow does it, and not compiled: `lowering.py` does so in another
process, and `compilers.py` sends them to the compiler of any device. Shapes are those of one
device's part of a batch.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf.modeling import losses, models
from bert_tf.planning.workload import Workload
from bert_tf.training import optimization
from bert_tf.training.settings import StepConfig
from bert_tf.training.trainer import Trainer

OBJECTIVES = {  # by the name of a head
    "pretraining": losses.PretrainingObjective,
    "classification": losses.ClassifierObjective,
    "token_labels": losses.TokenObjective,
    "question_answering": losses.SpanObjective,
}
PREDICTED = {  # outputs by the name of a head
    "pretraining": ("masked_lm_logits", "next_sentence_logits"),
    "classification": ("logits",),
    "token_labels": ("logits",),
    "question_answering": ("start_logits", "end_logits"),
}


def make_trainer(work: Workload, *, recompute_attention: bool = True) -> Trainer:
    """The trainer of a workload of one replica, with random weights.

    Args:
      work: sizes and settings.
      recompute_attention: as for `StepConfig`: true on accelerators, false on CPUs.
    """

    def model_fn():
        if work.head == "pretraining":
            return models.pretraining_model(work.config, with_losses=True)
        return models.make_model(work.head, work.config, num_classes=work.num_classes)

    schedule = optimization.Schedule(learning_rate=1e-4, num_train_steps=10**6)
    return Trainer(
        model_fn,
        OBJECTIVES[work.head](),
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


def lower(trainer: Trainer, work: Workload, step: str, batch_size: int) -> bytes:
    """The HLO of a step of `STEPS`, a serialized HloModuleProto."""
    parts = work.gradient_accumulation_steps if step == "train" else 1
    work = dataclasses.replace(work, train_batch_size=batch_size, gradient_accumulation_steps=parts)
    batch = {name: tf.constant(value) for name, value in random_batch(work).items()}
    function, args = {
        "train": (trainer.steps.update, (batch, tf.constant(0))),
        "evaluate": (trainer.steps.sums, (batch,)),
        "predict": (trainer.steps.outputs, (batch, PREDICTED[work.head])),
    }[step]
    return function.experimental_get_compiler_ir(*args)("hlo_serialized")
