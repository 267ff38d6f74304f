"""Fine-tunes on sentences, pairs, multiple choice or words with tags; evaluates and predicts.

    python run_classifier.py --task_name=mrpc --data_dir=glue/MRPC --do_train --do_eval \\
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=/models/mrpc

Configuration and vocabulary are those beside the checkpoint unless flags name others. With several
learning rates or trials every combination is trained, and the best by the first metric is kept:

    ... --learning_rate=5e-5,4e-5,3e-5,2e-5 --num_trials=5
"""

import itertools
from typing import TYPE_CHECKING

from bert_tf.cli.main import run
from bert_tf.cli.training_options import FineTuningCommand, require_one_of
from bert_tf.errors import InputError
from bert_tf.files import output
from bert_tf.options import LONGEST, option
from bert_tf.tasks.sources import DEV_FILE, TaskData
from bert_tf.training.options import Epochs

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.checkpoints.loading import PretrainedModel
    from bert_tf.tasks.task import Split, Task
    from bert_tf.tasks.text_run import TextData, TextRun


class Classify(
    FineTuningCommand,
    most_used="task_name data_dir train_file text_a_column label_column init_checkpoint output_dir "
    "do_train do_eval do_predict learning_rate train_batch_size num_train_epochs max_seq_length",
):
    """The options of this script."""

    data: TaskData = TaskData()
    do_eval: bool = option(
        "Evaluate on the dev data; after training, if both.", default=False, original=True
    )
    do_predict: bool = option("Predict the test data.", default=False, original=True)
    report: bool = option(
        "Write report.html, a page about the dev data: scores of each label, the confusion matrix, "
        "mistakes, lengths.",
        default=False,
        acts="do_eval",
    )
    eval_batch_size: int = option(
        "Examples of an evaluation step.", default=8, low=1, acts="do_eval", original=True
    )
    max_seq_length: int | None = option(
        "Most tokens of an example, or of a window where texts are read in windows; longer "
        "examples are cut. Without --do_train: as the model was trained.",
        default=None,
        shown=128,
        low=1,
        high=LONGEST,
        recorded=True,
        original=True,
    )
    learning_rate: tuple[float, ...] = option(
        "The peak learning rate; several for a grid.",
        default=(5e-5,),
        above=0.0,
        acts="do_train",
        recorded=False,  # the learning rate of each trial is
        original=True,
    )
    num_trials: int = option(
        "Seeds for each learning rate: --seed, --seed + 1, ...",
        default=1,
        low=1,
        acts="do_train",
        recorded=False,
    )
    best_metric: str | None = option(
        "The result by which the best checkpoint, the end of training and the best trial are "
        "chosen: macro_f1, say, or loss. Default: the task's first metric.",
        default=None,
        acts="do_train and do_eval",
        recorded=True,
    )
    positive_label: str | None = option(
        "Of two labels, the one that f1 is of; the results then have f1. Default: the last one by "
        "code points, as 1 of 0 and 1.",
        default=None,
        acts="do_eval or do_predict",
    )
    class_weights: str | None = option(
        "How often a label counts in the loss of training: balanced, for labels to count alike; "
        'or a JSON file, {"label": weight, ...}. Of several labels a text, how often a text that '
        "has the label counts beside one without it.",
        default=None,
        path=True,
        acts="do_train",
        recorded=False,  # the weights are
    )
    threshold: str | None = option(
        "multi_label: the probability from which on a label applies, or dev: of each label the one "
        "with the best F1 on the dev data. Recorded with the model. Default: 0.5.",
        default=None,
        acts="do_train",
        recorded=False,  # the run records it if it affects the metric that selects the model
    )
    calibrate: bool = option(
        "Divide the logits by a temperature, so that the probabilities of the dev data are closer "
        "to how often predictions are right; recorded with the model.",
        default=False,
        acts="do_train and do_eval",
        recorded=False,  # checkpoints have the weights from before the calibration
    )
    doc_stride: int = option(
        "Read texts longer than --max_seq_length whole, in windows: tokens from the start of a "
        "window to the start of the next. A text's logits are the mean over its windows, each of "
        "which is an example in training. 0: cut long texts, as the original does.",
        default=0,
        low=0,
        recorded=True,
        original=True,
    )
    document_context: bool = option(
        "ner: fill each sequence with the words around its sentence in the document, as in the "
        "paper; documents begin with -DOCSTART-.",
        default=False,
        acts="task_name=ner",
        recorded=True,
    )
    schedule: Epochs = Epochs()

    def check(self) -> None:
        """Refuses options that contradict each other."""
        super().check()
        require_one_of(do_train=self.do_train, do_eval=self.do_eval, do_predict=self.do_predict)
        self.data.check()
        if self.do_train and self.do_eval:
            self.data.refuse_trained_dev_file()
            if self.data.own.dev_share:
                output(f"{self.output_dir}/{DEV_FILE}", self.data.own_paths().values())
        num_runs = self.do_train * len(self.learning_rate) * self.num_trials
        if num_runs > 1 and not self.do_eval:
            expected = "dev data, by which the best is chosen"
            raise InputError("several trials without --do_eval", expected, "add --do_eval")

    @property
    def metric(self) -> str:
        """--best_metric without eval_; "" if it is not given."""
        return (self.best_metric or "").removeprefix("eval_")


def main(options: Classify) -> None:
    """Task, data -> model -> train or restore -> evaluate -> predict -> export."""
    from absl import logging

    from bert_tf.cli import training
    from bert_tf.cli.record import write_record
    from bert_tf.files import locked
    from bert_tf.tasks.run_results import write_evaluation, write_predictions
    from bert_tf.tasks.sources import write_dev_rows

    given = options
    task = make_task(options)
    strategy = training.make_strategy(options)
    with locked(options.output_dir, folder=True):
        training.refuse_others(options, options.data.own_paths().values())
        model = training.open_initial_model(options)
        options = training.with_sizes(options, model, "max_seq_length")
        task, train, dev, test = read_data(options, task, model, strategy)
        first_dev = dev[0] if dev else None  # selects the model
        text_run = make_run(options, task, train, model, strategy)
        calibration: dict[str, float] = {}
        written = []
        if options.do_train:
            train_or_choose(options, text_run, train, first_dev)
            if options.data.own.dev_share:
                write_dev_rows(options.output_dir, first_dev.examples)
                written.append(DEV_FILE)
            # The folder may have those of an earlier command.
            text_run.record_metadata(temperature=None, thresholds=None)
            if options.calibrate:
                calibration = text_run.calibrate(first_dev)
            text_run.choose_thresholds(first_dev)
        else:
            text_run.restore()
        if dev:
            write_evaluation(text_run, dev, calibration, report=options.report)
        for data in test:
            write_predictions(text_run, data)
        export(text_run, given)
        write_record(options.output_dir, given, text_run.results, written=written)
    logging.info("Wrote %s", options.output_dir)


# ---------------------------------------------------------------------------- task and data


def make_task(options: Classify) -> "Task":
    """The task with the options' metrics; raises `InputError` if options do not fit its labels."""
    from bert_tf.heads import Labels
    from bert_tf.heads.multi_label import check_threshold
    from bert_tf.tasks.results import check_libraries
    from bert_tf.tasks.sources import task_of

    task = task_of(options.data, options.metric)
    if options.positive_label:
        task = task.with_positive_label(options.positive_label)
    if options.calibrate and type(task.labels) is not Labels:
        received = f"--calibrate for the labels of {task.labels.head}"
        raise InputError(received, "labels of which a text has one", "leave it out")
    if options.threshold:
        check_threshold(options.threshold, task.labels, has_dev=options.do_eval)
    if options.do_eval:
        metrics = [*task.metrics]
        if options.report:
            metrics.append("accuracy")  # report.html needs scikit-learn as accuracy does
        check_libraries(metrics)
    return task


def read_data(
    options: Classify, task: "Task", model: "PretrainedModel", strategy: "tf.distribute.Strategy"
) -> "tuple[Task, TextData | None, list[TextData], list[TextData]]":
    """The task with its labels, and the training, dev and test data that are asked for."""
    from bert_tf.cli.record import written_digests
    from bert_tf.cli.training import shared_size
    from bert_tf.tasks.equal_texts import say_equal_texts
    from bert_tf.tasks.sources import check_dev_rows, splits_of, with_labels
    from bert_tf.tasks.text_run import read_text_data

    def read(split: "Split", batch_size: int) -> "TextData":
        return read_text_data(
            options.data,
            task,
            split,
            seed=options.training.seed,
            batch_size=batch_size,
            in_documents=options.document_context,
        )

    eval_size = shared_size("eval_batch_size", options.eval_batch_size, strategy)
    predict_size = shared_size("predict_batch_size", options.predict_batch_size, strategy)
    train = read(task.split("train"), eval_size) if options.do_train else None
    task = with_labels(task, train and train.examples, model.source)
    dev_splits = splits_of(options.data, task, "dev") if options.do_eval else ()
    test_splits = splits_of(options.data, task, "test") if options.do_predict else ()
    dev = [read(split, eval_size) for split in dev_splits]
    test = [read(split, predict_size) for split in test_splits]
    if train:
        scored = {data.split.name: data.examples for data in [*dev, *test] if data.has_labels}
        say_equal_texts(train.examples, scored)
    if options.data.own.dev_share:
        check_dev_rows(
            options.output_dir,
            dev[0].examples,
            share=options.data.own.dev_share,
            seed=options.training.seed,
            is_trained=options.do_train,
            written=written_digests(options.output_dir, DEV_FILE),
        )
    return task, train, dev, test


# ---------------------------------------------------------------------------- the run


def make_run(
    options: Classify,
    task: "Task",
    train: "TextData | None",
    model: "PretrainedModel",
    strategy: "tf.distribute.Strategy",
) -> "TextRun":
    """The run of a model on the texts of the task."""
    from bert_tf.cli.training import run_arguments
    from bert_tf.tasks.text_run import TextRun, class_weights

    doc_stride = options.doc_stride if task.labels.takes_windows else 0
    weights = class_weights(
        options.class_weights,
        task.labels,
        train,
        model.tokenizer,
        max_seq_length=options.max_seq_length,
        doc_stride=doc_stride,
    )
    return TextRun(
        task=task,
        doc_stride=doc_stride,
        document_context=options.document_context,
        best_metric=options.metric,
        class_weights=weights,
        threshold=options.threshold or "",
        **run_arguments(options, model, strategy, options.max_seq_length),
    )


def train_or_choose(
    options: Classify, text_run: "TextRun", train: "TextData", dev: "TextData | None"
) -> None:
    """Trains once, or a grid of trials, of which the best model is kept."""
    from bert_tf.cli.training import training_config
    from bert_tf.tasks.trials import train_trials

    schedule = options.schedule.at(options.learning_rate[0])
    config = training_config(options, text_run, schedule)
    first_seed = options.training.seed
    seeds = range(first_seed, first_seed + options.num_trials)
    points = list(itertools.product(options.learning_rate, seeds))
    if len(points) == 1:
        text_run.train(config, train, dev)
    else:
        train_trials(text_run, config, train, dev, points)


def export(text_run: "TextRun", given: Classify) -> None:
    """Exports the best model as a SavedModel that takes raw text, if --export_dir is given.

    Without --do_train and --max_seq_length it takes texts of the length that it was trained on.
    """
    from bert_tf.cli import training

    task = text_run.task
    model = text_run.model
    length = text_run.batching.max_seq_length
    if not given.do_train and given.max_seq_length is None:
        length = model.source.metadata.max_seq_length or length
    training.export(
        given,
        model,
        task=task.head.name,
        labels=task.labels.names or None,
        pairs=task.has_pairs,
        num_choices=task.num_choices,
        max_seq_length=length,
    )


if __name__ == "__main__":
    run(main)
