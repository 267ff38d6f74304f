"""Fine-tuning on texts: the records, the decisions and the scores of a `Task`; a grid of trials.

With windows (`doc_stride`) the logits of a text are the mean of those of its windows; everything
counted then counts texts: loss, metrics, predictions. Training takes windows as examples.

A grid is the paper's protocol: several learning rates and seeds, the best by the dev data (section
4.1). Each trial is a run of its own, in a folder of its own, and is resumed if it was killed. Its
best checkpoint is that of the evaluation with the best first metric, or its last one if it has no
evaluations during training.

    trial.json            of each trial: its settings and its results
    trials.tsv            the results of every trial
    trials_summary.tsv    of each learning rate: mean, deviation, best

N examples (records of token_labels), S positions, L labels, C choices, W words of a sentence.
"""

import dataclasses
import itertools
import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import runtime
from bert_tf.checkpoints import classes, tf1
from bert_tf.checkpoints.loading import load_weights
from bert_tf.checkpoints.metadata import (
    METADATA_FILE,
    ModelMetadata,
    Weights,
)
from bert_tf.data.records import Record
from bert_tf.declarations import typed
from bert_tf.errors import InputError
from bert_tf.files import BEST, read_json, write_text
from bert_tf.heads import OUTPUT, Head, Labels
from bert_tf.heads.multi_label import OF_DEV
from bert_tf.modeling.names import checkpoint_name
from bert_tf.options import Settings
from bert_tf.tasks.examples import OWN_FORMATS, WordColumns, texts_of
from bert_tf.tasks.features import (
    Features,
    classifier_record,
    first_windows,
    join_texts,
    join_words,
    make_features,
)
from bert_tf.tasks.results import (
    calibration_error,
    compute_metrics,
    fit_temperature,
    write_labeled,
    write_table,
)
from bert_tf.tasks.sources import TaskData, read_examples
from bert_tf.tasks.task import Split, Task
from bert_tf.terminal import aligned
from bert_tf.tokenization.wordpiece import (
    SPECIAL_TOKEN,
    FullTokenizer,
    strips_accents,
    told_cut,
    warn_of_lost_letters,
    warn_of_special_tokens,
)
from bert_tf.training.best import REMEDY
from bert_tf.training.fine_tuning import Run, SplitData, TrainingConfig
from bert_tf.training.log import with_nan, with_null

RECORD_NAMES = {"train": "train", "dev": "eval", "test": "predict"}  # the original's files
Point = tuple[float, int]  # learning rate and seed of a trial
MOST_LOOKED_AT = 2000  # examples, for letters that are lost
HEAD_WEIGHTS = "output_weights"  # [classes, D]


@dataclasses.dataclass(kw_only=True)
class TextData(SplitData):
    """The data of a split of a `Task`.

    Attributes:
      split: which.
      guids: of each record; the windows of a long text or sentence share one. Of training data
        there are none, as nothing is compared with them.
      label_ids: of each record, as in it.
      lengths: of each record, its longest sequence in tokens; of training data there are none.
      num_cut: examples that were longer than --max_seq_length, and were cut.
      probabilities: of each example, set by `TextRun.predict`: [N, L], or [W, L] of each sentence.
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
        """Whether every example has a label. Sets of labels that are all empty count as none."""
        labels = [example.label for example in self.examples]
        return None not in labels and any(label != () for label in labels)


def read_split(
    source: TaskData, task: Task, split: Split, *, seed: int, batch_size: int, in_documents: bool
) -> TextData:
    """The data of a split.

    Args:
      source: where they are.
      task: whose they are.
      split: which.
      seed: of what is dev data, with --dev_share.
      batch_size: of predictions.
      in_documents: whether sentences must stand in documents.

    Raises:
      InputError: they are not there, or something cannot be used.
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
      doc_stride: of the windows of long texts, as for `make_features`; 0: texts are cut.
      document_context: whether sentences in words stand in their document.
      best_metric: as of --best_metric; "": the task's first.
      class_weights: of each label, in the loss of training; (): all are 1.
      threshold: from which probability on a label of `LabelSets` applies in a model that is
        trained: a number, `OF_DEV`, or "" for one half.
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
        self.num_classes, self.num_choices = self.task.labels.size, self.task.num_choices
        if self.threshold not in ("", OF_DEV):
            thresholds = dict.fromkeys(self.task.labels.names, float(self.threshold))
            self.task = self.task.with_thresholds(thresholds)

    # ------------------------------------------------------------------------ records

    def record(self, _: TextData) -> Record:
        """See `classifier_record`; that of all splits."""
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
        length = self.batching.max_seq_length
        unknown = 0  # examples that the vocabulary does not know
        texts = (" ".join(texts_of(example)) for example in data.examples)
        number = sum(SPECIAL_TOKEN.search(text) is not None for text in texts)
        warn_of_special_tokens(number, len(data.examples))
        if data.split.kind == "train" and strips_accents(self.model.tokenizer):
            texts = itertools.chain(*map(texts_of, data.examples[:MOST_LOOKED_AT]))
            warn_of_lost_letters(texts, "A model that keeps accents, a cased one, can read them")
        for features in make_features(
            data.examples,
            self.task.labels,
            self.model.tokenizer,
            max_seq_length=length,
            doc_stride=self.doc_stride,
            document_context=self.document_context,
        ):
            data.num_cut += features.is_cut
            unknown += self._is_unknown(features)
            values = features.values(length)
            if data.split.kind != "train":
                data.guids.append(features.guid)
                data.label_ids.append(values["label_ids"])
                data.lengths.append(max(map(len, features.input_ids)))
            yield values
        if unknown:
            says = "%d of %d examples have no token that the vocabulary knows: all are [UNK]."
            logging.warning(says, unknown, len(data.examples))
        if data.num_cut:
            number = len(data.examples)
            logging.warning("%s", told_cut(data.num_cut, number, length, "examples"))

    def _is_unknown(self, features: Features) -> bool:
        """Whether all tokens of an example, and there are some, are [UNK]."""
        special = {self.model.tokenizer.vocab[piece] for piece in ("[CLS]", "[SEP]")}
        ids = set(itertools.chain(*features.input_ids)) - special
        return ids == {self.model.tokenizer.vocab["[UNK]"]}

    def settings_of(
        self, config: TrainingConfig, train: TextData, dev: TextData | None
    ) -> Settings:
        """As of `Run`, with the weights of classes, and what else the selecting metric hangs on."""
        settings = super().settings_of(config, train, dev)
        is_of_decisions = dev is not None and self.metric != "eval_loss"
        return settings.with_values(
            class_weights=[*self.class_weights],
            threshold=self.threshold if is_of_decisions else "",
            positive_label=self.task.labels.label_of_f1 if self.metric == "eval_f1" else "",
        )

    # ------------------------------------------------------------------------ the model

    def facts(self) -> dict[str, Any]:
        """Labels, task, sizes."""
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
        """As of `Run`, with the columns that predict reads as well."""
        layout = self.task.layout
        texts = [getattr(layout, field, None) for field in ("text_a", "text_b")]
        if isinstance(layout, WordColumns) and layout.file and layout.file.has_header:
            texts = [layout.file.words]
        columns = tuple(column for column in texts if column is not None)
        return dataclasses.replace(super().metadata(), columns=columns or None)

    def restore(self) -> None:
        """Loads the model for evaluation and prediction, head included.

        Raises:
          InputError: it has no head, or one for other labels or another kind of task, or was
            trained on pairs where the task has single texts or the other way round.
        """
        source = self.model.source
        if purposes := classes.other_purpose(source, self.head.name, self.task.has_pairs):
            theirs, ours = purposes
            flags = ", or its --label_kind and --text_b_column" * (self.task.name in OWN_FORMATS)
            expected = f"{ours}, for the task {self.task.name}"
            remedy = f"give a model that was trained for such a task{flags}"
            raise InputError(f"{source.path}, a model with {theirs}", expected, remedy)
        if self.head.has_names:
            source = classes.with_labels(source, self.task.labels.names, self._own_names())
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
            other = classes.other_purpose(source, self.head.name, self.task.has_pairs)
            kept = None if other else self._in_order_of_task()
            if kept is None:
                skip, why = self.head.weights, other[0] if other else classes.classes_of(source)
                logging.warning(
                    "The head of %s is for %s: a new head is initialised.", source.path, why
                )
            source = kept or source
        logging.info("%s", load_weights(self.trainer.model, source, skip=skip))

    def _in_order_of_task(self) -> Weights | None:
        """The initial weights, with the classes in the task's order.

        None if the classes are others, or if scores are learned in a scale.
        """
        source, labels = self.model.source, self.task.labels
        if self.head.has_names:
            return classes.in_order_of(source, labels.names, self._own_names())
        return source if source.num_classes == labels.size and not labels.scale else None

    def _own_names(self) -> tuple[str, ...]:
        """The names of the initial weights' classes, as the task spells them."""
        return self.task.names_of_model(self.model.source.metadata.labels or ())

    # ------------------------------------------------------------------------ predictions

    def predict(self, data: TextData) -> np.ndarray:
        """Sets `data.probabilities` of each example; returns the logits of texts or sentences."""
        logits = self.outputs(data)["logits"]
        if self.doc_stride:
            logits = join_texts(data.guids, logits)
        labels = self.task.labels
        data.probabilities = labels.unscaled(labels.probabilities(logits))
        if labels.is_per_word:
            data.probabilities = join_words(data.guids, data.label_ids, data.probabilities)
        return logits

    def calibrate(self, data: TextData) -> dict[str, float]:
        """Divides the head's weights by the temperature that is best for labelled data.

        After `train`, with the weights as they are in checkpoints; and only if the probabilities
        then are closer to how often predictions are right. The folder's metadata say it, and what
        loads the model does the same.

        Returns:
          eval_calibration_error before and after.
        """
        logits = self.predict(data)
        gold = np.array([self.task.labels.numbers[one.label] for one in data.examples])
        found, shares = fit_temperature(logits, gold), self.task.labels.probabilities
        before, after = (calibration_error(shares(logits / t), gold) for t in (1.0, found))
        results = {"eval_calibration_error_before": before, "eval_calibration_error": before}
        self.record_metadata(temperature=found if after < before else None)
        if after < before:
            results |= {"eval_calibration_error": after}
            for variable in self.trainer.model.weights:
                if re.fullmatch(OUTPUT, checkpoint_name(variable)):
                    variable.assign(variable / found)
        says = "Calibration by %d %s examples: temperature %.3f, their error %.4f, before %.4f%s."
        kept = "" if after < before else "; left as it is"
        if (logits.argmax(axis=1) == gold).all():
            kept += ", as every prediction is right and nothing can be learned of wrong ones"
        logging.info(says, len(gold), data.split.name, found, after, before, kept)
        return results

    def choose_thresholds(self, dev: TextData | None) -> None:
        """Records from which probability on each label applies, as `threshold` says.

        After `train`. Thresholds of the dev data are chosen once, for the model that was kept;
        evaluations during training have each their own.

        Args:
          dev: the dev data; None if there are none.
        """
        if not self.threshold:
            return
        if self.threshold == OF_DEV:
            self.predict(dev)
            labels = self._deciding(dev)
            self.task = dataclasses.replace(self.task, labels=labels)
            self.threshold = ""
        thresholds = self.task.labels.thresholds_by_name
        shown = ", ".join(f"{name} {threshold:.4g}" for name, threshold in thresholds.items())
        logging.info("A label applies from this probability on: %s", shown)
        self.record_metadata(thresholds=thresholds)

    def _deciding(self, data: TextData) -> Labels:
        """The labels that decide: of dev data those with the best thresholds, if asked for."""
        labels = self.task.labels
        if self.threshold != OF_DEV or data.split.kind != "dev":
            return labels
        gold = [labels.ids(example.label) for example in data.examples]
        return labels.with_best_thresholds(gold, data.probabilities)

    def record_metadata(self, **values: Any) -> None:
        """Writes values into the metadata of the run's checkpoints, the best one's too."""
        for folder in (self.output_dir, f"{self.output_dir}/{BEST}"):
            path = f"{folder}/{METADATA_FILE}"
            known = ModelMetadata.from_json_file(path)
            recorded = dataclasses.replace(known, **values)
            if tf.io.gfile.exists(path) and recorded != known:
                write_text(path, recorded.to_json_string())

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
        """Loss and metrics of the predictions for labelled data, as `evaluate`."""
        task, ids = self.task, data.label_ids
        if self.doc_stride:
            ids = [ids[first] for first in first_windows(data.guids)]
        loss = mean_loss(task.head, *map(task.labels.unscaled, (logits, ids)))
        if task.labels.is_per_word:
            ids = [example.label for example in data.examples]  # of the words, as probabilities
        compared = self._deciding(data).for_metrics(ids, data.probabilities)
        return {"loss": loss, "eval_loss": loss, **compute_metrics(task.metrics, *compared)}

    def write_labeled(self, data: TextData, path: str) -> None:
        """The predictions of a split with ids and names, beside the labels if it has them."""
        shown = (self.task.labels, data.examples, data.probabilities)
        write_labeled(path, *shown, with_gold=data.has_labels)


def mean_loss(head: Head, logits: np.ndarray, label_ids: Sequence[Sequence]) -> float:
    """The loss of a head over all examples.

    Args:
      head: of the task.
      logits: float32 [N, ...] as the model gives them.
      label_ids: of each example, as in its record.
    """
    labels, real = np.asarray(label_ids), np.ones(len(logits), np.float32)
    labels = labels[:, : logits.shape[1]] if logits.ndim == 3 else labels  # of words
    labels = labels.astype(np.float32 if labels.dtype.kind == "f" else np.int32)
    batch = {"label_ids": labels, "is_real_example": real}
    sums = head.loss_sums({"logits": tf.constant(logits)}, batch)
    return float(head.loss(sums, head.denominators(batch)))


# ---------------------------------------------------------------------------- a grid


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialFile:
    """What a trial.json holds."""

    facts: dict[str, Any]  # the settings that affect its weights
    results: dict[str, float | None]  # None: undefined


def train_trials(
    run: TextRun, config: TrainingConfig, train: TextData, dev: TextData, points: Iterable[Point]
) -> None:
    """Trains at every point; the best model is then in the run and its folder.

    Args:
      run: the task, the initial weights and the folder.
      config: of all trials, but for learning rate and seed.
      train: the training data.
      dev: what selects the best model.
      points: learning rate and seed of each trial.
    """
    run.check_folder(keeps_best=False)
    results = {}
    for rate, seed in points:
        schedule = dataclasses.replace(config.schedule, learning_rate=rate)
        trial = dataclasses.replace(config, schedule=schedule, seed=seed)
        results[rate, seed] = train_or_read(run, trial, train, dev)
    write_sweep(results, run=run)
    keep_best(run, results)
    for point in results:
        for folder in (trial_folder(run, *point), f"{trial_folder(run, *point)}/{BEST}"):
            tf1.CheckpointFolder(folder).clear()


def trial_folder(run: TextRun, learning_rate: float, seed: int) -> str:
    """The folder of a trial."""
    return f"{run.output_dir}/learning_rate_{learning_rate!r}_seed_{seed}"


def train_or_read(
    run: TextRun, config: TrainingConfig, train: TextData, dev: TextData
) -> dict[str, float]:
    """The results of a trial; one that is finished is not trained again.

    Raises:
      InputError: it was begun with other settings.
    """
    folder = trial_folder(run, config.schedule.learning_rate, config.seed)
    path, latest = f"{folder}/trial.json", tf1.CheckpointFolder(folder).latest()
    settings = run.settings_of(config, run.prepare(train), dev)
    is_finished = tf.io.gfile.exists(path)
    old = read_trial(path).facts if is_finished else run_settings_of(latest)
    if other := tf1.changed_settings(old, settings):
        received = f"{folder}, a trial with another {', '.join(other)}"
        raise InputError(received, "the trials of this command, or an empty folder", REMEDY)
    if not is_finished:
        logging.info("Trial: learning rate %g, seed %d", config.schedule.learning_rate, config.seed)
        run.train(config, train, dev, folder=folder)
        results = {"global_step": run.step, **run.evaluate(dev)}
        content = {"facts": settings, "results": with_null(results)}
        write_text(path, json.dumps(content, indent=2) + "\n")
        runtime.barrier()
    results = with_nan(read_trial(path).results)
    if run.metric not in results:
        raise InputError(f"{path} without {run.metric}", "the results of a trial", REMEDY)
    return results


def keep_best(run: TextRun, results: Mapping[Point, Mapping[str, float]]) -> None:
    """Copies the best trial's checkpoint into the run's folder, and loads it.

    Of equal ones it is that whose model is already kept, otherwise the first.

    Args:
      run: of all trials.
      results: of each trial by learning rate and seed.

    Raises:
      InputError: its checkpoints are gone, and the folder keeps another trial's.
    """
    own = tf1.CheckpointFolder(run.output_dir)
    saved = own.latest()
    settings = run_settings_of(saved)
    kept = settings.get("learning_rate"), settings.get("seed")
    ranks = {point: run.rank(results[point][run.metric]) for point in results}
    best = max(ranks, key=lambda point: (ranks[point], point == kept))
    folder = trial_folder(run, *best)
    logging.info("The best trial: learning rate %g, seed %d", *best)
    if best != kept or tf1.CheckpointFolder(folder).latest():
        if saved and not tf1.CheckpointFolder(folder).latest():  # all was done before
            raise InputError(
                f"{folder}, the best trial, whose model was not kept; kept was that of {kept}",
                "a grid with the trial whose model was kept, as the best one",
                f"give the earlier trials again, or remove {folder} to train it again",
            )
        reader = tf1.CheckpointReader(folder)
        tensors = {name: reader.read(name) for name in reader.shapes}
        run.write_model_files(own.path)
        saved = own.save(tf1.step_of(reader.prefix), tensors)
    run.model = dataclasses.replace(run.model, source=tf1.open_tf1(saved))
    run.restore()


def run_settings_of(prefix: str | None) -> dict[str, Any]:
    """The settings of the run that wrote a checkpoint; of none nothing."""
    return tf1.CheckpointReader(prefix).run_settings() if prefix else {}


def read_trial(path: str) -> TrialFile:
    """The content of a trial.json."""
    return typed(TrialFile, read_json(path, remedy=REMEDY), source=path)


def write_sweep(results: Mapping[Point, Mapping[str, float]], *, run: TextRun) -> None:
    """Writes trials.tsv and trials_summary.tsv.

    Args:
      results: of every trial, by learning rate and seed.
      run: of all; its metric is shown.
    """
    metric, output_dir = run.metric.removeprefix("eval_"), run.output_dir
    names = sorted(set.intersection(*map(set, results.values())))
    rows = [["learning_rate", "seed", *names]]
    scores: dict[float, list[float]] = {}
    for (rate, seed), found in results.items():
        rows.append([f"{rate:g}", seed, *(found[name] for name in names)])
        scores.setdefault(rate, []).append(found[run.metric])
    write_table(f"{output_dir}/trials.tsv", rows)
    rows = [["learning_rate", "trials", f"mean_{metric}", "deviation", "best"]]
    for rate, values in scores.items():
        best = max(values, key=run.rank)
        numbers = (statistics.fmean(values), _deviation(values), best)
        rows.append([f"{rate:g}", len(values), *(f"{number:.4f}" for number in numbers)])
    write_table(f"{output_dir}/trials_summary.tsv", rows)
    logging.info("eval_%s over the trials:\n%s", metric, "\n".join(aligned(rows)))


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 for one value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def class_weights(
    given: str | None,
    labels: Labels,
    train: TextData | None,
    tokenizer: FullTokenizer | None = None,
    *,
    max_seq_length: int = 0,
    doc_stride: int = 0,
) -> tuple[float, ...]:
    """The weight of each label, as of `TextRun`.

    Args:
      given: --class_weights: "balanced", as of `Labels.balanced_weights`; or the path of a JSON
        file with the weight of each label; None for none.
      labels: with their names.
      train: the training data; None if nothing is trained.
      tokenizer, max_seq_length, doc_stride: as for `make_features`; with a stride the windows that
        are trained on are counted.

    Raises:
      InputError: the labels have no names, or the file lacks one or has another.
    """
    if not given or not train:
        return ()
    if not labels.takes_weights:
        received = f"--class_weights={given} for the labels of {labels.head}"
        raise InputError(received, "labels with names", "leave it out")
    if given != "balanced":
        found = typed(dict[str, float], read_json(given), source=given)
        if found.keys() != {*labels.names} or not all(0 < w < math.inf for w in found.values()):
            expected = f"a weight above 0 for each of {', '.join(labels.names)}"
            raise InputError(f"{given} with {found}", expected, "correct the file")
        return tuple(found[name] for name in labels.names)
    trained = [example.label for example in train.examples]
    if doc_stride:
        label_of = {example.guid: example.label for example in train.examples}
        sizes = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
        windows = make_features(train.examples, labels, tokenizer, **sizes)
        trained = [label_of[window.guid] for window in windows]
    weights = labels.balanced_weights(trained)
    named = zip(labels.names, weights, strict=True)
    shown = ", ".join(f"{name} {weight:.3g}" for name, weight in named)
    logging.info("Weights of the labels in training: %s", shown)
    return weights
