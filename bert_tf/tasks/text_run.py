"""Fine-tuning on texts: the records, the decisions and the scores of a `Task`.

With windows (`doc_stride`) the logits of a text are the mean over its windows, and loss, metrics
and predictions are of texts. In training each window is an example.

N examples (records of token_labels), S positions, L labels, C choices, W words of a sentence.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import classes
from bert_tf.checkpoints.loading import load_weights
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata, Weights
from bert_tf.data.records import Record
from bert_tf.declarations import typed
from bert_tf.errors import InputError
from bert_tf.files import BEST, read_json, write_text
from bert_tf.heads import OUTPUT, Head, Labels
from bert_tf.heads.multi_label import OF_DEV
from bert_tf.modeling.names import checkpoint_name
from bert_tf.options import Settings
from bert_tf.tasks.examples import OWN_FORMATS, AnyExample, WordColumns, texts_of
from bert_tf.tasks.features import (
    Features,
    classifier_record,
    join_texts,
    join_words,
    make_features,
)
from bert_tf.tasks.results import (
    calibration_error,
    compute_metrics,
    fit_temperature,
    write_labeled,
)
from bert_tf.tasks.sources import TaskData, read_examples
from bert_tf.tasks.task import Split, Task
from bert_tf.tokenization.wordpiece import (
    SPECIAL_TOKEN,
    FullTokenizer,
    strips_accents,
    told_cut,
    warn_of_lost_letters,
    warn_of_special_tokens,
)
from bert_tf.training.fine_tuning import Run, SplitData, TrainingConfig

RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}  # the original's files
MOST_LOOKED_AT = 2000  # examples that are searched for letters that the tokenizer drops
HEAD_WEIGHTS = "output_weights"  # [classes, D]


@dataclasses.dataclass(kw_only=True)
class TextData(SplitData):
    """The data of a split of a `Task`.

    Attributes:
      split: the split.
      guids: the ids of each record; the windows of a long text or sentence share one. Empty for
        training data, whose predictions nobody asks for; as are label_ids and lengths.
      label_ids: for labels of words, the label ids of each record's positions.
      lengths: the tokens of each record's longest sequence.
      num_cut: how many examples were longer than --max_seq_length, and were cut.
      probabilities: the probabilities of each example, set by `TextRun.predict`: [N, L], or [W, L]
        of each sentence.
    """

    name: str = ""
    split: Split
    guids: list[str] = dataclasses.field(default_factory=list)
    label_ids: list[list] = dataclasses.field(default_factory=list)
    lengths: list[int] = dataclasses.field(default_factory=list)
    num_cut: int = 0
    probabilities: Sequence[np.ndarray] = ()

    def __post_init__(self):
        kind = self.split.kind
        self.name = RECORD_NAMES[kind] + self.split.name.removeprefix(kind)

    @property
    def has_labels(self) -> bool:
        """Whether every example has a label; false if all of them are empty sets of labels."""
        labels = [example.label for example in self.examples]
        return None not in labels and any(label != () for label in labels)


def read_text_data(
    source: TaskData, task: Task, split: Split, *, seed: int, batch_size: int, in_documents: bool
) -> TextData:
    """The data of a split.

    Args:
      source: where the data are.
      task: the task.
      split: the split.
      seed: decides which examples are dev data, with --dev_share.
      batch_size: the batch size of predictions.
      in_documents: whether all sentences must be of a document.

    Raises:
      InputError: the data are missing, or something in them cannot be used.
    """
    examples = read_examples(source, task, split, seed=seed)
    if in_documents and not all(example.document for example in examples):
        received = f"--document_context, and {split.name} data with sentences of no document"
        expected = "a line with -DOCSTART- before the sentences of each document"
        raise InputError(received, expected, "give CoNLL-2003 as published, or leave the flag out")
    return TextData(split=split, examples=examples, batch_size=batch_size)


@dataclasses.dataclass(kw_only=True, eq=False)
class TextRun(Run):
    """Fine-tuning on the texts of a task.

    Attributes:
      task: with its label names.
      doc_stride: the stride of the windows of long texts, as for `make_features`; 0: texts are cut.
      document_context: whether sentences get the words around them in their document.
      best_metric: as --best_metric; "": the task's first.
      class_weights: the class weights of each label, in the loss of training; (): all are 1.
      threshold: the probability from which on a label of `LabelSets` applies in a trained model: a
        number, `OF_DEV`, or "" for one half.
    """

    task: Task
    doc_stride: int = 0
    best_metric: str = ""
    class_weights: tuple[float, ...] = ()
    threshold: str = ""
    document_context: bool = False

    def __post_init__(self):
        self.head = self.task.head.weighted(self.class_weights)
        self.metric = f"eval_{self.best_metric or self.task.metrics[0]}"
        self.num_classes = self.task.labels.size
        self.num_choices = self.task.num_choices
        if self.threshold not in ("", OF_DEV):
            thresholds = dict.fromkeys(self.task.labels.names, float(self.threshold))
            self.task = self.task.with_thresholds(thresholds)

    # ------------------------------------------------------------------------ records

    def record(self, _: TextData) -> Record:
        """The record of all splits, as in `classifier_record`."""
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
        """The values of each record; sets `num_cut`, and unless they train guids to lengths."""
        length = self.batching.max_seq_length
        is_train = data.split.kind == "train"
        self._warn_of_texts(data.examples, is_train=is_train)
        num_unknown = 0  # examples without a piece of the vocabulary
        for features in make_features(
            data.examples,
            self.task.labels,
            self.model.tokenizer,
            max_seq_length=length,
            doc_stride=self.doc_stride,
            document_context=self.document_context,
        ):
            data.num_cut += features.is_cut
            num_unknown += self._is_unknown(features)
            values = features.values(length)
            if not is_train:
                data.guids.append(features.guid)
                if self.task.labels.is_per_word:
                    data.label_ids.append(values["label_ids"])
                data.lengths.append(max(map(len, features.input_ids)))
            yield values
        if num_unknown:
            message = "%d of %d examples have no token that the vocabulary knows: all are [UNK]."
            logging.warning(message, num_unknown, len(data.examples))
        if data.num_cut:
            cut = told_cut(data.num_cut, len(data.examples), length, "examples")
            logging.warning("%s", cut)

    def _warn_of_texts(self, examples: Sequence[AnyExample], *, is_train: bool) -> None:
        """Warns of special tokens in texts, and of letters in training texts that are dropped."""
        texts = (" ".join(texts_of(example)) for example in examples)
        num_special = sum(SPECIAL_TOKEN.search(text) is not None for text in texts)
        warn_of_special_tokens(num_special, len(examples))
        if is_train and strips_accents(self.model.tokenizer):
            texts = itertools.chain(*map(texts_of, examples[:MOST_LOOKED_AT]))
            warn_of_lost_letters(texts, "A model that keeps accents, a cased one, can read them")

    def _is_unknown(self, features: Features) -> bool:
        """Whether an example has tokens, all of them [UNK]."""
        vocab = self.model.tokenizer.vocab
        ids = set(itertools.chain(*features.input_ids)) - {vocab["[CLS]"], vocab["[SEP]"]}
        return ids == {vocab["[UNK]"]}

    def settings_of(
        self, config: TrainingConfig, train: TextData, dev: TextData | None
    ) -> Settings:
        """As in `Run`, with class weights, and with what affects the metric that selects."""
        settings = super().settings_of(config, train, dev)
        selects_by_decisions = dev is not None and self.metric != "eval_loss"
        return settings.with_values(
            class_weights=[*self.class_weights],
            threshold=self.threshold if selects_by_decisions else "",
            positive_label=self.task.labels.label_of_f1 if self.metric == "eval_f1" else "",
        )

    # ------------------------------------------------------------------------ the model

    def facts(self) -> dict[str, Any]:
        """The model's facts: labels, task, sizes."""
        mean, deviation = self.task.labels.scale or (None, None)
        return {
            "labels": self.task.labels.names or None,
            "task": self.head.name,
            "pairs": self.task.has_pairs,
            "num_choices": self.num_choices,
            "score_mean": mean,
            "score_deviation": deviation,
            "max_seq_length": self.batching.max_seq_length,
            "doc_stride": self.doc_stride or None,
            "document_context": self.document_context or None,
        }

    def metadata(self) -> ModelMetadata:
        """As in `Run`, with the columns of texts, which `bert-tf predict` reads by default."""
        layout = self.task.layout
        texts = [getattr(layout, field, None) for field in ("text_a", "text_b")]
        if isinstance(layout, WordColumns) and layout.file and layout.file.has_header:
            texts = [layout.file.words]
        columns = tuple(column for column in texts if column is not None)
        return dataclasses.replace(super().metadata(), columns=columns or None)

    def restore(self) -> None:
        """Loads the model for evaluation and prediction, head included.

        Raises:
          InputError: it has no head; its head is for other labels or another kind of task; or it
            was trained on pairs and the task has single texts, or the other way round.
        """
        source = self.model.source
        if purposes := classes.other_purpose(source, self.head.name, self.task.has_pairs):
            purpose_of_model, purpose_of_task = purposes
            received = f"{source.path}, a model with {purpose_of_model}"
            expected = f"{purpose_of_task}, for the task {self.task.name}"
            remedy = "give a model that was trained for such a task"
            if self.task.name in OWN_FORMATS:
                remedy += ", or its --label_kind and --text_b_column"
            raise InputError(received, expected, remedy)
        if self.head.has_names:
            source = classes.with_labels(source, self.task.labels.names, self._names_in_source())
            self.model = dataclasses.replace(self.model, source=source)
        super().restore()

    def load_pretrained(self) -> None:
        """Loads the initial weights of training.

        A head for the same labels is loaded too, with its classes in the task's order. A head that
        has another shape, or is known to be for other labels or another kind of task, is replaced
        by a new one, and this is logged.
        """
        source = self.model.source
        skip = None
        if HEAD_WEIGHTS in source.shapes:
            if purposes := classes.other_purpose(source, self.head.name, self.task.has_pairs):
                source_in_order = None
                purpose, _ = purposes
            else:
                source_in_order = self._source_in_order()
                purpose = classes.classes_of(source)
            if source_in_order is None:
                skip = self.head.weights
                message = "The head of %s is for %s: a new head is initialised."
                logging.warning(message, source.path, purpose)
            else:
                source = source_in_order
        logging.info("%s", load_weights(self.trainer.model, source, skip=skip))

    def _source_in_order(self) -> Weights | None:
        """The initial weights, with their classes in the task's order.

        None if the classes are others, or if scores are scaled for training.
        """
        source = self.model.source
        labels = self.task.labels
        if self.head.has_names:
            return classes.in_order_of(source, labels.names, self._names_in_source())
        if source.num_classes == labels.size and not labels.scale:
            return source
        return None

    def _names_in_source(self) -> tuple[str, ...]:
        """The names of the initial weights' classes, in the task's spelling."""
        return self.task.names_of_model(self.model.source.metadata.labels or ())

    # ------------------------------------------------------------------------ predictions

    def predict(self, data: TextData) -> np.ndarray:
        """Sets `data.probabilities` of each example; returns the logits of texts or sentences."""
        logits = self.outputs(data)["logits"]
        if self.doc_stride:
            logits = join_texts(data.guids, logits)
        labels = self.task.labels
        probabilities = labels.unscaled(labels.probabilities(logits))
        if labels.is_per_word:
            probabilities = join_words(data.guids, data.label_ids, probabilities)
        data.probabilities = probabilities
        return logits

    def calibrate(self, data: TextData) -> dict[str, float]:
        """Divides the head's weights by the temperature that is best for labelled data.

        Call it after `train`. The head stays as it is if the calibration error does not fall. The
        weights in the checkpoints stay, too: the temperature is recorded in the folder's metadata,
        and applied where the model is loaded.

        Returns:
          eval_calibration_error before and after.
        """
        labels = self.task.labels
        logits = self.predict(data)
        gold = np.array([labels.numbers[example.label] for example in data.examples])
        temperature = fit_temperature(logits, gold)
        before = calibration_error(labels.probabilities(logits / 1.0), gold)
        after = calibration_error(labels.probabilities(logits / temperature), gold)
        is_better = after < before
        self.record_metadata(temperature=temperature if is_better else None)
        if is_better:
            for variable in self.trainer.model.weights:
                if re.fullmatch(OUTPUT, checkpoint_name(variable)):
                    variable.assign(variable / temperature)
        message = (
            "Calibration by %d %s examples: temperature %.3f, their error %.4f, before %.4f%s."
        )
        remark = "" if is_better else "; left as it is"
        if (logits.argmax(axis=1) == gold).all():
            remark += ", as every prediction is right and nothing can be learned of wrong ones"
        logging.info(message, len(gold), data.split.name, temperature, after, before, remark)
        return {
            "eval_calibration_error_before": before,
            "eval_calibration_error": after if is_better else before,
        }

    def choose_thresholds(self, dev: TextData | None) -> None:
        """Records the probability from which on each label applies, as `threshold` says.

        Call it after `train`. With `OF_DEV` the thresholds are chosen for the trained model; each
        evaluation during training has chosen its own.

        Args:
          dev: the dev data; None if there are none.
        """
        if not self.threshold:
            return
        if self.threshold == OF_DEV:
            self.predict(dev)
            self.task = dataclasses.replace(self.task, labels=self._labels_deciding(dev))
            self.threshold = ""
        thresholds = self.task.labels.thresholds_by_name
        shown = ", ".join(f"{name} {threshold:.4g}" for name, threshold in thresholds.items())
        logging.info("A label applies from this probability on: %s", shown)
        self.record_metadata(thresholds=thresholds)

    def _labels_deciding(self, data: TextData) -> Labels:
        """The task's labels; for dev data with the best thresholds, if `threshold` is `OF_DEV`."""
        labels = self.task.labels
        if self.threshold != OF_DEV or data.split.kind != "dev":
            return labels
        gold = [labels.ids(example.label) for example in data.examples]
        return labels.with_best_thresholds(gold, data.probabilities)

    def record_metadata(self, **values: Any) -> None:
        """Writes values into the metadata of the run's checkpoints, including the best one."""
        for folder in (self.output_dir, f"{self.output_dir}/{BEST}"):
            path = f"{folder}/{METADATA_FILE}"
            before = ModelMetadata.from_json_file(path)
            after = dataclasses.replace(before, **values)
            if tf.io.gfile.exists(path) and after != before:
                write_text(path, after.to_json_string())

    def evaluate(self, data: TextData) -> dict[str, float]:
        """Loss and metrics of the model on a split.

        Returns:
          loss and eval_loss, the mean over all examples, and eval_<metric> of the task's metrics.

        Raises:
          InputError: an example has no label.
        """
        if missing := sum(example.label is None for example in data.examples):
            received = f"{data.split.name} data with {missing} examples without a label"
            remedy = "use --do_predict for data without labels"
            raise InputError(received, "labels to compare with", remedy)
        return self.score(data, self.predict(data))

    def score(self, data: TextData, logits: np.ndarray) -> dict[str, float]:
        """Loss and metrics of the predictions for labelled data, as `evaluate` returns them.

        Args:
          data: labelled, with the probabilities of `predict`.
          logits: as `predict` returns them.
        """
        labels = self.task.labels
        if labels.is_per_word:
            label_ids = data.label_ids  # by position
            gold_labels = [example.label for example in data.examples]  # by word
        else:
            label_ids = [labels.ids(example.label) for example in data.examples]
            gold_labels = label_ids
        loss = mean_loss(self.task.head, labels.unscaled(logits), labels.unscaled(label_ids))
        deciding = self._labels_deciding(data)
        gold, predicted = deciding.for_metrics(gold_labels, data.probabilities)
        metrics = compute_metrics(self.task.metrics, gold, predicted)
        return {"loss": loss, "eval_loss": loss, **metrics}

    def write_labeled(self, data: TextData, path: str) -> None:
        """Writes the predictions of a split with ids and names, and its labels if it has them."""
        write_labeled(
            path,
            self.task.labels,
            data.examples,
            data.probabilities,
            with_gold=data.has_labels,
        )


def mean_loss(head: Head, logits: np.ndarray, label_ids: Sequence[Sequence]) -> float:
    """The loss of a head over all examples.

    Args:
      head: the head of the task.
      logits: float32 [N, ...], the model's.
      label_ids: the label ids of each example, as in its record.
    """
    labels = np.asarray(label_ids)
    if logits.ndim == 3:  # of words: without the padding after the longest sentence
        labels = labels[:, : logits.shape[1]]
    labels = labels.astype(np.float32 if labels.dtype.kind == "f" else np.int32)
    batch = {"label_ids": labels, "is_real_example": np.ones(len(logits), np.float32)}
    sums = head.loss_sums({"logits": tf.constant(logits)}, batch)
    return float(head.loss(sums, head.denominators(batch)))


def class_weights(
    option: str | None,
    labels: Labels,
    train: TextData | None,
    tokenizer: FullTokenizer | None = None,
    *,
    max_seq_length: int = 0,
    doc_stride: int = 0,
) -> tuple[float, ...]:
    """The weight of each label in training, as in `TextRun`.

    Args:
      option: --class_weights: "balanced", as in `Labels.balanced_weights`; the path of a JSON file
        with the weight of each label; or None for no weights.
      labels: with their names.
      train: the training data; None if nothing is trained.
      tokenizer, max_seq_length, doc_stride: as for `make_features`; with a stride, balanced weights
        count windows.

    Raises:
      InputError: the labels have no names, or the file has other names.
    """
    if not option or not train:
        return ()
    if not labels.takes_weights:
        received = f"--class_weights={option} for the labels of {labels.head}"
        raise InputError(received, "labels with names", "leave it out")
    if option != "balanced":
        by_name = typed(dict[str, float], read_json(option), source=option)
        are_positive = all(0 < weight < math.inf for weight in by_name.values())
        if by_name.keys() != {*labels.names} or not are_positive:
            expected = f"a weight above 0 for each of {', '.join(labels.names)}"
            raise InputError(f"{option} with {by_name}", expected, "correct the file")
        return tuple(by_name[name] for name in labels.names)
    counted = [example.label for example in train.examples]
    if doc_stride:
        label_of = {example.guid: example.label for example in train.examples}
        windows = make_features(
            train.examples,
            labels,
            tokenizer,
            max_seq_length=max_seq_length,
            doc_stride=doc_stride,
        )
        counted = [label_of[window.guid] for window in windows]
    weights = labels.balanced_weights(counted)
    named = zip(labels.names, weights, strict=True)
    shown = ", ".join(f"{name} {weight:.3g}" for name, weight in named)
    logging.info("Weights of the labels in training: %s", shown)
    return weights
