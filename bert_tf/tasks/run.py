"""A task's data and a model brought together: records, evaluation, prediction.

SplitData   the examples of a part of the data, and what the model says of them
Run         one task in one folder, with the trainer that has the model now
"""

import dataclasses
import gc
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import ENCODER, HEAD, PretrainedModel, load_checkpoint
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.checkpoints.saving import write_model_files
from bert_tf.config import HEADS
from bert_tf.data.batches import BatchingConfig
from bert_tf.data.shards import RecordFiles, write_records
from bert_tf.errors import InputError
from bert_tf.files import digest_of
from bert_tf.tasks import metrics, outputs
from bert_tf.tasks.examples import AnyExample
from bert_tf.tasks.features import Features, classifier_record, join_words, make_features
from bert_tf.tasks.heads import (
    OBJECTIVES,
    mean_loss,
    probabilities,
    task_model,
)
from bert_tf.tasks.tables import FORMATS
from bert_tf.tasks.task import Split, Task
from bert_tf.training.fine_tuning import predictions_in_order
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.settings import StepConfig
from bert_tf.training.trainer import Trainer

RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}  # the original's files
HEAD_WEIGHTS = "output_weights"  # [classes, D]


@dataclasses.dataclass
class SplitData:
    """A part of the data.

    Attributes:
      split: which.
      examples: in the order of the file.
      files: its records, once they are written.
      guids: of each record; the windows of a long sentence share one.
      label_ids: of each record, as in it.
      digest: of the file of records.
      probabilities: of each example, once they were predicted: [N, L], or [W, L] of each sentence.
    """

    split: Split
    examples: Sequence[AnyExample]
    files: RecordFiles | None = None
    guids: list[str] = dataclasses.field(default_factory=list)
    label_ids: list[list] = dataclasses.field(default_factory=list)
    probabilities: Sequence[np.ndarray] = ()
    digest: str = ""

    @property
    def has_labels(self) -> bool:
        """Whether every example has one. Sets of labels that are all empty are none."""
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
    ):
        """Takes in what belongs together.

        Args:
          task: with its label names.
          model: what it begins with.
          strategy: what it runs on.
          batching: how records become batches.
          output_dir: the folder of the run.
          step_config: how steps are computed, as for `Trainer`.
        """
        self.step_config = step_config or StepConfig()
        self.task, self.model, self.strategy, self.batching = task, model, strategy, batching
        self.output_dir = output_dir
        self.record = classifier_record(
            max_seq_length=batching.max_seq_length,
            head=task.head,
            num_labels=task.labels.size,
            num_choices=task.num_choices,
        )
        self.train_files: RecordFiles | None = None
        self.num_train_examples = 0
        self.train_digest = ""
        self.trainer: Trainer | None = None  # with the model that is evaluated
        self.step = 0  # of that model

    # ------------------------------------------------------------------------ records

    def write_records(self, name: str, examples: Sequence[AnyExample]) -> None:
        """Writes train.tf_record."""
        path = tf.io.gfile.join(self.output_dir, f"{name}.tf_record")
        rows = (f.values(self.batching.max_seq_length) for f in self._features(examples))
        count = write_records(path, self.record, rows)
        logging.info("%s: %d records of %d examples", path, count, len(examples))
        self.train_files = RecordFiles(path, self.record)
        self.num_train_examples = len(examples)
        self.train_digest = digest_of(path)

    def _features(self, examples: Sequence[AnyExample]) -> Iterator[Features]:
        length, num_cut = self.batching.max_seq_length, 0
        task, tokenizer = self.task, self.model.tokenizer
        for features in make_features(examples, task.labels, tokenizer, max_seq_length=length):
            num_cut += features.is_cut
            yield features
        if num_cut:
            logging.warning(
                "%d of %d examples have more than %d pieces and were cut; --max_seq_length says "
                "how many there may be.",
                *(num_cut, len(examples), length),
            )

    def _prepare(self, data: SplitData) -> RecordFiles:
        """The records of a part of the data, written when they are first asked for."""
        if data.files is not None:
            return data.files
        kind, _, rest = data.split.name.partition("_")
        name = RECORD_NAMES[kind] + (f"_{rest}" if rest else "")
        path = tf.io.gfile.join(self.output_dir, f"{name}.tf_record")

        def rows() -> Iterator[dict]:
            for features in self._features(data.examples):
                data.guids.append(features.guid)
                data.label_ids.append(features.label_ids)
                yield features.values(self.batching.max_seq_length)

        data.guids.clear()
        data.label_ids.clear()
        count = write_records(path, self.record, rows())
        logging.info("%s: %d records of %d examples", path, count, len(data.examples))
        data.files = RecordFiles(path, self.record)
        data.digest = digest_of(path)
        return data.files

    def digest_of(self, data: SplitData) -> str:
        """A hash of the records of a part of the data."""
        self._prepare(data)
        return data.digest

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
        """Takes the model that the run begins with as it is, head included.

        Raises:
          InputError: it has no head, or one for other labels or another kind of task, or was
            trained on pairs where the task has single texts or the other way round.
        """
        source, head = self.model.source, self.task.head
        self._refuse_other_purpose()
        trained, asked = source.metadata.max_seq_length, self.batching.max_seq_length
        if trained is not None and trained != asked:
            logging.warning(
                "%s was trained with %d pieces at most; --max_seq_length is %d.",
                *(source.path, trained, asked),
            )
        schedule = Schedule(learning_rate=0.0, num_train_steps=1)
        trainer = self.make_trainer(AdamWeightDecay(schedule=schedule), seed=0)
        encoder = ENCODER if head == "token_labels" else "bert/"
        logging.info("%s", load_checkpoint(trainer.model, source, required=f"{encoder}|{HEAD}"))
        self.step = tf1.step_of(source.path)

    def _other_purpose(self) -> tuple[str, str] | None:
        """What the model says that it was trained for and what this task is, if they differ."""
        said, own = self.model.source.metadata, self.metadata()
        if said.architecture not in map(HEADS.get, OBJECTIVES):
            said = dataclasses.replace(said, architecture=None)
        for name in ("architecture", "task", "pairs"):
            theirs, ours = getattr(said, name), getattr(own, name)
            if theirs is not None and theirs != ours:
                return f"{name} = {theirs}", f"{name} = {ours}"
        return None

    def _refuse_other_purpose(self) -> None:
        if purposes := self._other_purpose():
            theirs, ours = purposes
            flags = "the flags that it was trained with (--label_kind, --text_b_column), or "
            raise InputError(
                received=f"{self.model.source.path}, a model with {theirs}",
                expected=f"{ours}, for the task {self.task.name}",
                remedy=f"give {flags if self.task.name in FORMATS else ''}a model that was trained "
                "for such a task",
            )

    def load_pretrained(self) -> None:
        """Puts the weights that training begins with into the trainer's model.

        A head is not taken if it has another shape, or is known to be for other labels or of
        another kind; that is logged.
        """
        source = self.model.source
        other = self._other_head() if HEAD_WEIGHTS in source.shapes else None
        if other:
            logging.warning("The head of %s is for %s: a fresh one is trained.", source.path, other)
        skip = HEAD if other else None
        logging.info("%s", load_checkpoint(self.trainer.model, source, skip=skip))

    def _other_head(self) -> str | None:
        """What the model's head is for, if not for this task."""
        source, labels = self.model.source, self.task.labels
        if purposes := self._other_purpose():
            return purposes[0]
        classes = source.shapes[HEAD_WEIGHTS][0]
        if classes != labels.size:
            return f"{classes} classes"
        said = source.metadata.labels
        if said and labels.size > 1 and self.task.names_of_model(said) != labels.names:
            return f"the labels {', '.join(said)}"
        return None

    def metadata(self) -> ModelMetadata:
        """What belongs to the model beside its weights."""
        return ModelMetadata(
            do_lower_case=self.model.tokenizer.do_lower_case,
            architecture=HEADS[self.task.head],
            labels=self.task.labels.names or None,
            task=self.task.head,
            pairs=self.task.has_pairs,
            num_choices=self.task.num_choices,
            max_seq_length=self.batching.max_seq_length,
        )

    def write_model_files(self, folder: str) -> None:
        """Makes a folder of checkpoints a whole model: configuration, vocabulary, metadata."""
        write_model_files(folder, self.model.config, self.model.tokenizer, self.metadata())

    # ------------------------------------------------------------------------ predictions

    def predict(self, data: SplitData, *, batch_size: int) -> np.ndarray:
        """Puts the probabilities of each example into `data`; returns the logits of its records."""
        if self.trainer is None:
            raise ValueError("received no trainer, expected one: train or restore first")
        batches = self.batching.once(self._prepare(data), batch_size=batch_size)
        logits = predictions_in_order(self.trainer, batches, ["logits"])["logits"]
        values = probabilities(self.task.head, logits)
        if self.task.head == "token_labels":
            cut = [value[: len(ids)] for value, ids in zip(values, data.label_ids, strict=True)]
            data.probabilities = join_words(data.guids, data.label_ids, cut)
        else:
            data.probabilities = values
        return logits

    def evaluate(self, data: SplitData, *, batch_size: int) -> dict[str, float]:
        """Loss and metrics of the model on a part of the data.

        Returns:
          loss and eval_loss, the mean over all examples, and eval_<metric> of the task's metrics.

        Raises:
          InputError: not every example has a label.
        """
        unlabelled = sum(example.label is None for example in data.examples)
        if unlabelled:
            raise InputError(
                received=f"{data.split.name} data with {unlabelled} examples without a label",
                expected="labels to compare with",
                remedy="use --do_predict for data without labels",
            )
        return self.score(data, self.predict(data, batch_size=batch_size))

    def score(self, data: SplitData, logits: np.ndarray) -> dict[str, float]:
        """Loss and metrics of what `predict` has given for labelled data, as `evaluate`."""
        loss = mean_loss(self.task.head, logits, data.label_ids)
        gold = [example.label for example in data.examples]
        task = self.task
        found = metrics.evaluate(task.metrics, task.labels, gold, data.probabilities)
        return {"loss": loss, "eval_loss": loss, **found}

    def write_labeled(self, data: SplitData, path: str) -> None:
        """The predictions of a part of the data with ids, labels and names."""
        has_gold = data.has_labels
        if self.task.head == "token_labels":
            outputs.write_labeled_words(
                path, self.task.labels, data.examples, data.probabilities, with_gold=has_gold
            )
            return
        gold = [example.label for example in data.examples] if has_gold else None
        guids = [example.guid for example in data.examples]
        outputs.write_labeled(path, self.task.labels, guids, data.probabilities, gold=gold)
