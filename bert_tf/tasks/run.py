"""One task in one folder: its records, the model, its evaluation and its predictions.

SplitData   the examples of a split, their records, and the model's predictions for them
Run         a task and a model in a folder, with the trainer that has the model now

The model and the loss of each head, and its logits:

head             model                 logits
classification   classifier_model      [N, L]
regression       classifier_model      [N, 1]
multi_label      classifier_model      [N, L]
multiple_choice  choice_model          [N, C]
token_labels     token_model           [N, S, L]

With windows (`doc_stride`) the logits of a text are the mean of those of its windows; everything
counted then counts texts: loss, metrics, predictions. Training takes windows as examples.

N examples (records of token_labels), S positions, L labels, C choices.
"""

import dataclasses
import gc
from collections.abc import Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import companions, tf1
from bert_tf.checkpoints.companions import PretrainedModel
from bert_tf.checkpoints.loading import ENCODER, load_checkpoint
from bert_tf.checkpoints.metadata import HEAD, ModelMetadata, Weights, write_model_files
from bert_tf.config import HEADS, BertConfig
from bert_tf.data.batches import BatchingConfig
from bert_tf.data.shards import RecordFiles, write_records
from bert_tf.errors import InputError
from bert_tf.files import digest_of
from bert_tf.modeling import losses, models
from bert_tf.tasks import metrics, outputs
from bert_tf.tasks.examples import AnyExample
from bert_tf.tasks.features import (
    classifier_record,
    first_windows,
    join_texts,
    join_words,
    make_features,
)
from bert_tf.tasks.labels import IGNORED, probabilities
from bert_tf.tasks.tables import FORMATS
from bert_tf.tasks.task import Split, Task
from bert_tf.training.fine_tuning import predictions_in_order
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.settings import StepConfig
from bert_tf.training.trainer import Trainer

OBJECTIVES = {
    "classification": losses.ClassifierObjective,
    "regression": losses.RegressionObjective,
    "multi_label": losses.MultiLabelObjective,
    "multiple_choice": losses.ClassifierObjective,
    "token_labels": losses.TokenObjective,
}
RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}  # the original's files
HEAD_WEIGHTS = "output_weights"  # [classes, D]


def task_model(task: Task, config: BertConfig) -> keras.Model:
    """The model of a task whose labels are known."""
    sizes = {"num_classes": task.labels.size, "num_choices": task.num_choices}
    return models.make_model(task.head, config, **sizes)


@dataclasses.dataclass
class SplitData:
    """The data of a split.

    Attributes:
      split: which.
      examples: in the order of the file.
      files: its records; this and the following three are set by `Run.prepare`.
      guids: of each record; the windows of a long text or sentence share one.
      label_ids: of each record, as in it.
      digest: of the file of records.
      probabilities: of each example, set by `Run.predict`: [N, L], or [W, L] of each sentence.
    """

    split: Split
    examples: Sequence[AnyExample]
    files: RecordFiles | None = None
    guids: list[str] = dataclasses.field(default_factory=list)
    label_ids: list[list] = dataclasses.field(default_factory=list)
    digest: str = ""
    probabilities: Sequence[np.ndarray] = ()

    @property
    def has_labels(self) -> bool:
        """Whether every example has a label. Sets of labels that are all empty count as none."""
        labels = [example.label for example in self.examples]
        return None not in labels and any(label != () for label in labels)


class Run:
    """One task in one folder."""

    def __init__(
        self,
        task: Task,
        model: PretrainedModel,
        strategy: tf.distribute.Strategy,
        batching: BatchingConfig,
        *,
        output_dir: str,
        step_config: StepConfig | None = None,
        doc_stride: int = 0,
        document_context: bool = False,
    ):
        """Has no trainer yet: `make_trainer` or `restore` makes one.

        Args:
          task: with its label names.
          model: the initial weights, with configuration and tokenizer.
          strategy: of the devices.
          batching: how records become batches.
          output_dir: the folder of the run.
          step_config: how steps are computed, as for `Trainer`.
          doc_stride: of the windows of long texts, as for `make_features`; 0: texts are cut.
          document_context: whether sentences in words stand in their document.
        """
        self.doc_stride, self.document_context = doc_stride, document_context
        self.step_config = step_config or StepConfig()
        self.task, self.model, self.strategy, self.batching = task, model, strategy, batching
        self.output_dir = output_dir
        self.record = classifier_record(
            max_seq_length=batching.max_seq_length,
            head=task.head,
            num_labels=task.labels.size,
            num_choices=task.num_choices,
            vocab_size=model.config.vocab_size,
            type_vocab_size=model.config.type_vocab_size,
        )
        self.trainer: Trainer | None = None  # with the model that is evaluated
        self.step = 0  # of that model

    def prepare(self, data: SplitData) -> SplitData:
        """Writes the records of a split, unless they are written; returns `data` with them."""
        if data.files is not None:
            return data
        kind, *suffix = data.split.name.split("_", 1)
        name = "_".join([RECORD_NAMES[kind], *suffix])
        path = tf.io.gfile.join(self.output_dir, f"{name}.tf_record")
        length, num_cut = self.batching.max_seq_length, 0

        def rows() -> Iterator[dict]:
            nonlocal num_cut
            for features in make_features(
                data.examples,
                self.task.labels,
                self.model.tokenizer,
                max_seq_length=length,
                doc_stride=self.doc_stride,
                document_context=self.document_context,
            ):
                num_cut += features.is_cut
                if kind != "train":  # only predictions are compared with them
                    data.guids.append(features.guid)
                    data.label_ids.append(features.label_ids)
                yield features.values(length)

        data.guids, data.label_ids = [], []
        total = len(data.examples)
        count = write_records(path, self.record, rows(), total=total)
        logging.info("%s: %d records of %d examples", path, count, total)
        if num_cut:
            logging.warning(
                "%d of %d examples have more than %d tokens (--max_seq_length) and were cut.",
                *(num_cut, total, length),
            )
        data.files, data.digest = RecordFiles(path, self.record), digest_of(path)
        return data

    # ------------------------------------------------------------------------ the model

    def make_trainer(
        self, optimizer: AdamWeightDecay, *, seed: int, freeze: Sequence[str] = ()
    ) -> Trainer:
        """A trainer with a fresh head; it becomes the run's."""
        self.trainer = None  # two models need not have room at once
        gc.collect()
        self.trainer = Trainer(
            lambda: task_model(self.task, self.model.config),
            OBJECTIVES[self.task.head](),
            optimizer,
            strategy=self.strategy,
            seed=seed,
            freeze=freeze,
            step_config=self.step_config,
        )
        return self.trainer

    def restore(self) -> None:
        """Loads the model for evaluation and prediction, head included.

        Raises:
          InputError: it has no head, or one for other labels or another kind of task, or was
            trained on pairs where the task has single texts or the other way round.
        """
        source, head = self.model.source, self.task.head
        if purposes := companions.other_purpose(source, head, self.task.has_pairs):
            theirs, ours = purposes
            flags = "the flags that it was trained with (--label_kind, --text_b_column), or "
            raise InputError(
                f"{source.path}, a model with {theirs}",
                f"{ours}, for the task {self.task.name}",
                f"give {flags if self.task.name in FORMATS else ''}a model that was trained for "
                "such a task",
            )
        trained, asked = source.metadata.max_seq_length, self.batching.max_seq_length
        if trained is not None and trained != asked:
            logging.warning(
                "%s was trained with %d tokens at most; --max_seq_length is %d.",
                *(source.path, trained, asked),
            )
        if (stride := source.metadata.doc_stride or 0) != self.doc_stride:
            logging.warning(
                "%s was trained with --doc_stride=%d; here it is %d (0: long texts are cut).",
                *(source.path, stride, self.doc_stride),
            )
        if bool(source.metadata.document_context) != self.document_context:
            logging.warning(
                "%s was trained with%s --document_context; here it is the other way round.",
                *(source.path, "" if source.metadata.document_context else "out"),
            )
        schedule = Schedule(learning_rate=1.0, num_train_steps=1)  # nothing is trained
        trainer = self.make_trainer(AdamWeightDecay(schedule=schedule), seed=0)
        encoder = ENCODER if head == "token_labels" else "bert/"
        if head in companions.WITH_NAMES:
            source = companions.with_labels(source, self.task.labels.names, self._own_names())
            self.model = dataclasses.replace(self.model, source=source)
        logging.info("%s", load_checkpoint(trainer.model, source, required=f"{encoder}|{HEAD}"))
        self.step = tf1.step_of(source.path)

    def load_pretrained(self) -> None:
        """Loads the initial weights of training into the trainer's model.

        A head for the same labels is kept, with its classes in the task's order. One of another
        shape, or known to be for other labels or another kind of task, is replaced by a fresh one,
        and this is logged.
        """
        source, skip = self.model.source, None
        if HEAD_WEIGHTS in source.shapes:
            other = companions.other_purpose(source, self.task.head, self.task.has_pairs)
            kept = None if other else self._with_labels()
            if kept is None:
                skip, is_for = HEAD, other[0] if other else companions.classes_of(source)
                logging.warning(
                    "The head of %s is for %s: a new head is initialised.", source.path, is_for
                )
            source = kept or source
        logging.info("%s", load_checkpoint(self.trainer.model, source, skip=skip))

    def _with_labels(self) -> Weights | None:
        """The initial weights, their classes in the task's order; None if the classes differ."""
        source, labels = self.model.source, self.task.labels
        if self.task.head in companions.WITH_NAMES:
            return companions.in_order_of(source, labels.names, self._own_names())
        return source if source.num_classes == labels.size else None

    def _own_names(self) -> tuple[str, ...]:
        """The names of the initial weights' classes, as the task spells them."""
        return self.task.names_of_model(self.model.source.metadata.labels or ())

    def metadata(self) -> ModelMetadata:
        """The metadata of the run's model, for model_facts.json."""
        return ModelMetadata(
            do_lower_case=self.model.tokenizer.do_lower_case,
            never_split=self.model.tokenizer.never_split or None,
            architecture=HEADS[self.task.head],
            labels=self.task.labels.names or None,
            task=self.task.head,
            pairs=self.task.has_pairs,
            num_choices=self.task.num_choices,
            max_seq_length=self.batching.max_seq_length,
            doc_stride=self.doc_stride or None,
            document_context=self.document_context or None,
        )

    def write_model_files(self, folder: str) -> None:
        """Makes a folder of checkpoints a whole model: configuration, vocabulary, metadata."""
        write_model_files(folder, self.model.config, self.model.tokenizer, self.metadata())

    # ------------------------------------------------------------------------ predictions

    def predict(self, data: SplitData, *, batch_size: int) -> np.ndarray:
        """Sets `data.probabilities` of each example; returns the logits of texts or sentences."""
        batches = self.batching.once(self.prepare(data).files, batch_size=batch_size)
        logits = predictions_in_order(self.trainer, batches, ["logits"])["logits"]
        if self.doc_stride:
            logits = join_texts(data.guids, logits)
        data.probabilities = probabilities(self.task.head, logits)
        if self.task.head == "token_labels":
            rows = zip(data.probabilities, data.label_ids, strict=True)
            cut = [row[: len(ids)] for row, ids in rows]
            data.probabilities = join_words(data.guids, data.label_ids, cut)
        return logits

    def evaluate(self, data: SplitData, *, batch_size: int) -> dict[str, float]:
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
        return self.score(data, self.predict(data, batch_size=batch_size))

    def score(self, data: SplitData, logits: np.ndarray) -> dict[str, float]:
        """Loss and metrics of the predictions for labelled data, as `evaluate`."""
        task, ids = self.task, data.label_ids
        if self.doc_stride:
            ids = [ids[first] for first in first_windows(data.guids)]
        loss = mean_loss(task.head, logits, ids)
        if task.head == "token_labels":
            ids = join_words(data.guids, ids, ids)  # of the words, as the probabilities
        found = metrics.evaluate(task.metrics, task.labels, ids, data.probabilities)
        return {"loss": loss, "eval_loss": loss, **found}

    def write_labeled(self, data: SplitData, path: str) -> None:
        """The predictions of a split with ids and names, beside the labels if it has them."""
        labels, examples, has_labels = self.task.labels, data.examples, data.has_labels
        outputs.write_labeled(path, labels, examples, data.probabilities, with_gold=has_labels)


def mean_loss(head: str, logits: np.ndarray, label_ids: Sequence[Sequence]) -> float:
    """The objective's mean over all examples.

    Args:
      head: of the task.
      logits: float32 [N, ...] as the model gives them.
      label_ids: of each example; of token_labels as long as its tokens.
    """
    objective = OBJECTIVES[head]()
    if head == "token_labels":
        longest = logits.shape[1]
        label_ids = [[*ids, *[IGNORED] * (longest - len(ids))] for ids in label_ids]
    dtype = np.float32 if head == "regression" else np.int32
    labels, real = np.asarray(label_ids, dtype), np.ones(len(logits), np.float32)
    batch = {"label_ids": labels, "is_real_example": real}
    sums = objective.loss_sums({"logits": tf.constant(logits)}, batch)
    return float(objective.loss(sums, objective.denominators(batch)))
