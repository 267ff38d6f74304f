"""Fine-tuning on texts: the records, the decisions and the scores of a `Task`.

With windows (`doc_stride`) the logits of a text are the mean of those of its windows; everything
counted then counts texts: loss, metrics, predictions. Training takes windows as examples.

N examples (records of token_labels), S positions, L labels, C choices, W words of a sentence.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import loading
from bert_tf.checkpoints.loading import load_checkpoint
from bert_tf.checkpoints.metadata import Weights
from bert_tf.data.records import Record
from bert_tf.errors import InputError
from bert_tf.heads.label_head import LabelHead
from bert_tf.heads.labels import IGNORED
from bert_tf.tasks import metrics, outputs
from bert_tf.tasks.features import (
    classifier_record,
    first_windows,
    join_texts,
    join_words,
    make_features,
)
from bert_tf.tasks.run import Run, SplitData
from bert_tf.tasks.tables import FORMATS
from bert_tf.tasks.task import Split, Task

RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}  # the original's files
HEAD_WEIGHTS = "output_weights"  # [classes, D]


@dataclasses.dataclass(kw_only=True)
class TextData(SplitData):
    """The data of a split of a `Task`.

    Attributes:
      split: which.
      guids: of each record; the windows of a long text or sentence share one. Of training data
        there are none, as nothing is compared with them.
      label_ids: of each record, as in it.
      probabilities: of each example, set by `TextRun.predict`: [N, L], or [W, L] of each sentence.
    """

    name: str = ""
    split: Split
    guids: list[str] = dataclasses.field(default_factory=list)
    label_ids: list[list] = dataclasses.field(default_factory=list)
    probabilities: Sequence[np.ndarray] = ()

    def __post_init__(self):
        kind, *suffix = self.split.name.split("_", 1)
        self.name = "_".join([RECORD_NAMES[kind], *suffix])

    @property
    def has_labels(self) -> bool:
        """Whether every example has a label. Sets of labels that are all empty count as none."""
        labels = [example.label for example in self.examples]
        return None not in labels and any(label != () for label in labels)


class TextRun(Run):
    """Fine-tuning on the texts of a task."""

    def __init__(
        self, task: Task, *args, doc_stride: int = 0, document_context: bool = False, **of_run
    ):
        """Takes further what `Run` does.

        Args:
          task: with its label names.
          doc_stride: of the windows of long texts, as for `make_features`; 0: texts are cut.
          document_context: whether sentences in words stand in their document.
        """
        super().__init__(*args, **of_run)
        self.task, self.doc_stride, self.document_context = task, doc_stride, document_context
        self.name, self.head, self.metric = task.name, task.labels.head, f"eval_{task.metrics[0]}"
        self.num_classes, self.num_choices = task.labels.size, task.num_choices

    # ------------------------------------------------------------------------ records

    def record(self, data: TextData) -> Record:
        """See `classifier_record`; that of all splits."""
        del data
        config = self.model.config
        return classifier_record(
            max_seq_length=self.batching.max_seq_length,
            head=self.head.name,
            num_labels=self.num_classes,
            num_choices=self.num_choices,
            vocab_size=config.vocab_size,
            type_vocab_size=config.type_vocab_size,
        )

    def rows(self, data: TextData) -> Iterator[dict]:
        """The values of each record; sets guids and label ids of data for predictions."""
        length, num_cut = self.batching.max_seq_length, 0
        for features in make_features(
            data.examples,
            self.task.labels,
            self.model.tokenizer,
            max_seq_length=length,
            doc_stride=self.doc_stride,
            document_context=self.document_context,
        ):
            num_cut += features.is_cut
            if data.split.kind != "train":
                data.guids.append(features.guid)
                data.label_ids.append(features.label_ids)
            yield features.values(length)
        if num_cut:
            logging.warning(
                "%d of %d examples have more than %d tokens (--max_seq_length) and were cut.",
                *(num_cut, len(data.examples), length),
            )

    def num_examples(self, train: TextData) -> int:
        """Examples; with windows, each of them."""
        return len(self.prepare(train).files if self.doc_stride else train.examples)

    # ------------------------------------------------------------------------ the model

    def facts(self) -> dict[str, Any]:
        """Labels, task, sizes."""
        return {
            "labels": self.task.labels.names or None,
            "task": self.head.name,
            "pairs": self.task.has_pairs,
            "num_choices": self.num_choices,
            "max_seq_length": self.batching.max_seq_length,
            "doc_stride": self.doc_stride or None,
            "document_context": self.document_context or None,
        }

    def settings(self) -> dict[str, Any]:
        """The task's name and labels."""
        return {"task_name": self.name, "labels": list(self.task.labels.names)}

    def restore(self) -> None:
        """Loads the model for evaluation and prediction, head included.

        Raises:
          InputError: it has no head, or one for other labels or another kind of task, or was
            trained on pairs where the task has single texts or the other way round.
        """
        source = self.model.source
        if purposes := loading.other_purpose(source, self.head.name, self.task.has_pairs):
            theirs, ours = purposes
            flags = "the flags that it was trained with (--label_kind, --text_b_column), or "
            raise InputError(
                f"{source.path}, a model with {theirs}",
                f"{ours}, for the task {self.task.name}",
                f"give {flags if self.task.name in FORMATS else ''}a model that was trained for "
                "such a task",
            )
        if self.head.has_names:
            source = loading.with_labels(source, self.task.labels.names, self._own_names())
            self.model = dataclasses.replace(self.model, source=source)
        super().restore()

    def load_pretrained(self) -> None:
        """Loads the initial weights of training.

        A head for the same labels is kept, with its classes in the task's order. One of another
        shape, or known to be for other labels or another kind of task, is replaced by a fresh one,
        and this is logged.
        """
        source, skip = self.model.source, None
        if HEAD_WEIGHTS in source.shapes:
            other = loading.other_purpose(source, self.head.name, self.task.has_pairs)
            kept = None if other else self._with_labels()
            if kept is None:
                skip, is_for = (
                    self.head.weights,
                    other[0] if other else loading.classes_of(source),
                )
                logging.warning(
                    "The head of %s is for %s: a new head is initialised.", source.path, is_for
                )
            source = kept or source
        logging.info("%s", load_checkpoint(self.trainer.model, source, skip=skip))

    def _with_labels(self) -> Weights | None:
        """The initial weights, their classes in the task's order; None if the classes differ."""
        source, labels = self.model.source, self.task.labels
        if self.head.has_names:
            return loading.in_order_of(source, labels.names, self._own_names())
        return source if source.num_classes == labels.size else None

    def _own_names(self) -> tuple[str, ...]:
        """The names of the initial weights' classes, as the task spells them."""
        return self.task.names_of_model(self.model.source.metadata.labels or ())

    # ------------------------------------------------------------------------ predictions

    def predict(self, data: TextData) -> np.ndarray:
        """Sets `data.probabilities` of each example; returns the logits of texts or sentences."""
        logits = self.outputs(data)["logits"]
        if self.doc_stride:
            logits = join_texts(data.guids, logits)
        data.probabilities = self.head.probabilities(logits)
        if self.head.is_per_word:
            rows = zip(data.probabilities, data.label_ids, strict=True)
            cut = [row[: len(ids)] for row, ids in rows]
            data.probabilities = join_words(data.guids, data.label_ids, cut)
        return logits

    def evaluate(self, data: TextData) -> dict[str, float]:
        """Loss and metrics of the model on a split.

        Returns:
          loss and eval_loss, the mean over all examples, and eval_<metric> of the task's metrics.

        Raises:
          InputError: an example has no label.
        """
        unlabelled = sum(example.label is None for example in data.examples)
        if unlabelled:
            raise InputError(
                f"{data.split.name} data with {unlabelled} examples without a label",
                "labels to compare with",
                "use --do_predict for data without labels",
            )
        return self.score(data, self.predict(data))

    def score(self, data: TextData, logits: np.ndarray) -> dict[str, float]:
        """Loss and metrics of the predictions for labelled data, as `evaluate`."""
        task, ids = self.task, data.label_ids
        if self.doc_stride:
            ids = [ids[first] for first in first_windows(data.guids)]
        loss = mean_loss(self.head, logits, ids)
        if self.head.is_per_word:
            ids = join_words(data.guids, ids, ids)  # of the words, as the probabilities
        found = metrics.score_labels(task.metrics, task.labels, ids, data.probabilities)
        return {"loss": loss, "eval_loss": loss, **found}

    def write_labeled(self, data: TextData, path: str) -> None:
        """The predictions of a split with ids and names, beside the labels if it has them."""
        labels, examples, has_labels = self.task.labels, data.examples, data.has_labels
        outputs.write_labeled(path, labels, examples, data.probabilities, with_gold=has_labels)


def mean_loss(head: LabelHead, logits: np.ndarray, label_ids: Sequence[Sequence]) -> float:
    """The loss of a head over all examples.

    Args:
      head: of the task.
      logits: float32 [N, ...] as the model gives them.
      label_ids: of each example; of words as long as its tokens.
    """
    if head.is_per_word:
        longest = logits.shape[1]
        label_ids = [[*ids, *[IGNORED] * (longest - len(ids))] for ids in label_ids]
    labels, real = np.asarray(label_ids), np.ones(len(logits), np.float32)
    labels = labels.astype(np.float32 if labels.dtype.kind == "f" else np.int32)
    batch = {"label_ids": labels, "is_real_example": real}
    sums = head.loss_sums({"logits": tf.constant(logits)}, batch)
    return float(head.loss(sums, head.denominators(batch)))
