"""The model and the loss of each head, and what its logits say.

head             model                 logits        probabilities
classification   classifier_model      [N, L]        soft-max
regression       classifier_model      [N, 1]        the score itself
multi_label      classifier_model      [N, L]        sigmoid of each
multiple_choice  choice_model          [N, C]        soft-max
token_labels     token_model           [N, S, L]     soft-max
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling import losses, models
from bert_tf.tasks.labels import IGNORED
from bert_tf.tasks.task import Task

OBJECTIVES = {
    "classification": losses.ClassifierObjective,
    "regression": losses.RegressionObjective,
    "multi_label": losses.MultiLabelObjective,
    "multiple_choice": losses.ClassifierObjective,
    "token_labels": losses.TokenObjective,
}


def task_model(task: Task, config: BertConfig) -> keras.Model:
    """The model of a task whose labels are known."""
    if task.head == "multiple_choice":
        return models.choice_model(config, num_choices=task.num_choices)
    if task.head == "token_labels":
        return models.token_model(config, num_classes=task.labels.size)
    return models.classifier_model(config, num_classes=task.labels.size)


def probabilities(head: str, logits: np.ndarray) -> np.ndarray:
    """Logits [N, ..., L] -> probabilities of the same shape, float64; scores as they are."""
    logits = logits.astype(np.float64)
    if head == "regression":
        return logits
    if head == "multi_label":
        return 1 / (1 + np.exp(-logits))
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def mean_loss(head: str, logits: np.ndarray, label_ids: Sequence[Sequence]) -> float:
    """The objective's mean over all examples.

    Args:
      head: of the task.
      logits: float32 [N, ...] as the model gives them.
      label_ids: of each example; of token_labels as long as its tokens.
    """
    objective = OBJECTIVES[head]()
    labels = np.asarray(label_ids) if head != "token_labels" else _padded(label_ids, logits)
    dtype = np.float32 if head == "regression" else np.int32
    batch = {"label_ids": labels.astype(dtype), "is_real_example": np.ones(len(logits), np.float32)}
    sums = objective.loss_sums({"logits": tf.constant(logits)}, batch)
    return float(objective.loss(sums, objective.denominators(batch)))


def _padded(label_ids: Sequence[Sequence[int]], logits: np.ndarray) -> np.ndarray:
    labels = np.full(logits.shape[:2], IGNORED)
    for row, ids in enumerate(label_ids):
        labels[row, : len(ids)] = ids
    return labels
