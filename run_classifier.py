"""Fine-tunes, evaluates and predicts: sentences, pairs, multiple choice, words with tags.

    python run_classifier.py --task_name=mrpc --data_dir=glue/MRPC --do_train --do_eval \\
        --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=/models/mrpc

Configuration and vocabulary are those beside the checkpoint unless flags name others. With several
learning rates or trials every combination is trained, and the best by the first metric kept:

    ... --learning_rate=5e-5,4e-5,3e-5,2e-5 --num_trials=5
"""

import dataclasses
import itertools
from collections.abc import Sequence

from bert_tf import files
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.cli import model_flags
from bert_tf.cli.flags import FLAGS
from bert_tf.errors import InputError
from bert_tf.tasks import examples, registry
from bert_tf.tasks.examples import OWN_FORMATS

OWN_FILES = [field.name for field in dataclasses.fields(registry.OwnFiles)]
FILE_FLAGS = ("train_file", "dev_file", "test_file")


class ClassifierFlags:
    """The flags of this script.

    Attributes:
      task_name: Of your own files by default what their content shows; else one of:
      data_dir: The folder of the task's files.
      do_eval: Evaluate on the dev data; after training, if both.
      do_predict: Predict the test data.
      report: Write report.html, a page about the dev data: scores of each label, the confusion
        matrix, mistakes, lengths.
      eval_batch_size: Examples of an evaluation step.
      learning_rate: The peak learning rate; several for a grid.
      num_trials: Seeds for each learning rate: --seed, --seed + 1, ...
      best_metric: The result by which the best checkpoint, the end of training and the best trial
        are chosen: macro_f1, say, or loss. Default: the task's first metric.
      class_weights: How often a label counts in the loss of training: balanced, for labels of one
        number of examples to count alike; or a JSON file, {"label": weight, ...}.
      calibrate: Divide the logits by a temperature, so that the probabilities of the dev data are
        closer to how often predictions are right; recorded with the model.
      doc_stride: Read texts longer than --max_seq_length whole, in windows: tokens from the start
        of a window to the start of the next. A text's logits are the mean over its windows, each of
        which is an example in training. 0: cut long texts, as the original does.
      document_context: ner: fill each sequence with the words around its sentence in the document,
        as in the paper; documents begin with -DOCSTART-.
    """

    _acts = """
        do_train: learning_rate num_trials class_weights calibrate best_metric
        do_eval: eval_batch_size report calibrate best_metric
        task_name=ner: document_context"""
    _recorded = "doc_stride document_context best_metric"
    _most_used = (
        "task_name data_dir init_checkpoint output_dir do_train do_eval do_predict learning_rate "
        "train_batch_size num_train_epochs max_seq_length"
    )
    task_name = None
    data_dir = shared_flags.Path()
    do_eval = False
    do_predict = False
    report = False
    eval_batch_size = 8
    learning_rate = shared_flags.Numbers((5e-5,), shared_flags.ABOVE_0)
    num_trials = 1
    best_metric = None
    class_weights = shared_flags.Path()
    calibrate = False
    doc_stride = shared_flags.Count(0, 0)
    document_context = False


def define_flags() -> None:
    """The flags of this script and those that fine-tuning shares."""
    model_flags.define_fine_tuning(ClassifierFlags, registry.OwnFiles, max_seq_length=128)
    FLAGS["task_name"].help += f"\n{registry.describe_tasks()}"


def check_flags(words: Sequence[str]) -> None:
    """Refuses flags that contradict each other, before anything is loaded."""
    shared_flags.refuse_words(words)
    model_flags.require_one_of("do_train", "do_eval", "do_predict")
    if FLAGS.data_dir is FLAGS.tfds_name is None and any(FLAGS[name].value for name in FILE_FLAGS):
        FLAGS.data_dir = "."  # of the files that are named
    are_own = not FLAGS.tfds_name and any(FLAGS[name].value for name in FILE_FLAGS)
    if not FLAGS.task_name and not are_own:
        expected = "--task_name=mrpc, say, or a file of your own: --train_file=tickets.csv"
        raise InputError("no --task_name", expected, "add one of the two")
    model_flags.require_one_of("data_dir", "tfds_name")
    _refuse_unread_files()
    num_runs = FLAGS.do_train * len(FLAGS.learning_rate) * FLAGS.num_trials
    if num_runs > 1 and not FLAGS.do_eval:
        expected = "dev data, by which the best is chosen"
        raise InputError("several trials without --do_eval", expected, "add --do_eval")


def _refuse_unread_files() -> None:
    """Refuses files that the task does not read: the scores would be those of other data."""
    unread = [*FILE_FLAGS, "data_dir"] if FLAGS.tfds_name else []
    source = f"--tfds_name={FLAGS.tfds_name}"
    own = not FLAGS.task_name or registry.find_name(FLAGS.task_name) in OWN_FORMATS
    if not unread and not own:
        unread, source = [*FILE_FLAGS], f"--task_name={FLAGS.task_name}"
    if FLAGS.dev_share and (unread or FLAGS.dev_file):
        what = f"--dev_file={FLAGS.dev_file}" if FLAGS.dev_file else source
        expected = "dev data of one source: a file, or a share of your own training file"
        raise InputError(f"--dev_share with {what}", expected, "leave out one of the two")
    unread += [] if own and not FLAGS.tfds_name else ["encoding", "skip_bad_rows"]
    for name in unread:
        if FLAGS[name].value:
            received = f"--{name}={FLAGS[name].value} with {source}, which does not read it"
            remedy = "leave out one of the two; a file of your own: --task_name=csv, tsv or jsonl"
            raise InputError(received, "data from one source", remedy)


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

from absl import logging

from bert_tf.checkpoints.metadata import Weights
from bert_tf.cli import fine_tuning, from_flags
from bert_tf.files import locked
from bert_tf.heads.labels import Labels
from bert_tf.tasks.results import (
    check_libraries,
    examples_text,
    write_probabilities,
    write_submission,
)
from bert_tf.tasks.task import Split, Task
from bert_tf.tasks.text_run import TextData, TextRun, class_weights, train_trials
from bert_tf.training.trainer import write_eval_results, write_final_evaluation


def main(_: Sequence[str]) -> None:
    """Flags -> task, data -> model -> train or restore -> evaluate -> predict -> export."""
    task = make_task()
    strategy = from_flags.make_strategy()
    with locked(FLAGS.output_dir, folder=True):
        model = fine_tuning.open_pretrained()
        train = read_split(task, task.split("train")) if FLAGS.do_train else None
        task = with_labels(task, train, model.source)
        dev = [read_split(task, split) for split in wanted(task, "dev", FLAGS.do_eval)]
        test = [read_split(task, split) for split in wanted(task, "test", FLAGS.do_predict)]
        sizes = {"max_seq_length": FLAGS.max_seq_length}
        sizes["doc_stride"] = FLAGS.doc_stride if task.labels.takes_windows else 0
        run = TextRun(
            task=task,
            doc_stride=sizes["doc_stride"],
            document_context=FLAGS.document_context,
            best_metric=best_metric(),
            class_weights=class_weights(
                FLAGS.class_weights, task.labels, train, model.tokenizer, **sizes
            ),
            **fine_tuning.of_run(model, strategy),
        )
        calibration = {}
        if FLAGS.do_train:
            train_or_choose(run, train, dev[0] if dev else None)
            run.record_temperature(None)  # of a command before
            calibration = run.calibrate(dev[0]) if FLAGS.calibrate else {}
        else:
            run.restore()
        if FLAGS.dev_share:
            keep_dev_rows(dev[0])
        if dev:
            evaluate(run, dev, calibration)
        for data in test:
            predict(run, data)
        export(run)
        from_flags.write_record()
    logging.info("Wrote %s", FLAGS.output_dir)


# ---------------------------------------------------------------------------- data


def make_task() -> Task:
    """The task of the flags."""
    name = registry.find_name(FLAGS.task_name) if FLAGS.task_name else own_format()
    options = {}
    if name == "xnli":
        options = {"language": registry.language_of(FLAGS.task_name)}
    elif name in OWN_FORMATS:
        options = {flag: FLAGS[flag].value for flag in OWN_FILES}
    task = registry.get_task(name, **options)
    task = task.with_choices_in(FLAGS.data_dir) if FLAGS.data_dir else task
    task = task.with_metric(best_metric())
    if FLAGS.calibrate and type(task.labels) is not Labels:
        received = f"--calibrate for the labels of {task.labels.head}"
        raise InputError(received, "labels of which a text has one", "leave it out")
    if FLAGS.do_eval:
        of_report = ["accuracy"] if FLAGS.report else []  # its page needs scikit-learn as well
        check_libraries([*task.metrics, *of_report])
    return task


def keep_dev_rows(dev: TextData) -> None:
    """Writes the rows that are not trained on; without training they must be those of before."""
    path, text = f"{FLAGS.output_dir}/dev.jsonl", examples_text(dev.examples)
    if FLAGS.do_train:
        files.write_text(path, text)
    elif not files.is_file(path) or "".join(files.read_text_lines(path)) != text:
        received = f"--dev_share={FLAGS.dev_share} --seed={FLAGS.seed} without --do_train"
        expected = f"the rows of {path}, which the model was not trained on"
        remedy = f"give the flags and file of the training, or --task_name=jsonl --dev_file={path}"
        raise InputError(received, expected, remedy)


def own_format() -> str:
    """The format of one's own files, as the first of them shows."""
    path = next(FLAGS[name].value for name in FILE_FLAGS if FLAGS[name].value)
    return examples.format_of(files.gfile().join(FLAGS.data_dir, path), FLAGS.encoding)


def best_metric() -> str:
    """--best_metric as the results have it, without eval_."""
    return (FLAGS.best_metric or "").removeprefix("eval_")


def read_split(task: Task, split: Split) -> TextData:
    """The examples of a split, from files or a dataset."""
    is_cut = FLAGS.dev_share and split.kind in ("train", "dev")
    if FLAGS.tfds_name:
        found = task.read_tfds(FLAGS.tfds_name, split.name)
    else:
        found = task.read(FLAGS.data_dir, "train" if is_cut else split.name)
    if is_cut:
        train, dev = examples.split_by_class(found, FLAGS.dev_share, FLAGS.seed)
        found = train if split.kind == "train" else dev
        text = "%s data: %d of the %d examples of the training data, by --dev_share and --seed"
        logging.info(text, split.name, len(found), len(train) + len(dev))
    if FLAGS.document_context and not all(example.document for example in found):
        received = f"--document_context, and {split.name} data with sentences of no document"
        expected = "a line with -DOCSTART- before the sentences of each document"
        raise InputError(received, expected, "give CoNLL-2003 as published, or leave the flag out")
    is_test = split.kind == "test"
    batch_size = FLAGS.predict_batch_size if is_test else FLAGS.eval_batch_size
    return TextData(split=split, examples=found, batch_size=batch_size)


def wanted(task: Task, kind: str, is_wanted: bool) -> tuple[Split, ...]:
    """The available splits of a kind; the first is required."""
    if not is_wanted:
        return ()
    splits = task.splits_of(kind) or (task.split(kind),)
    if FLAGS.tfds_name:
        return splits
    absent = [split for split in splits[1:] if not task.find_file(FLAGS.data_dir, split)]
    for split in absent:
        logging.warning("No %s in %s: left out.", split.files.replace("|", " or "), FLAGS.data_dir)
    return tuple(split for split in splits if split not in absent)


def with_labels(task: Task, train: TextData | None, source: Weights) -> Task:
    """The task with its label names: its own, those of the training data, or of the model."""
    if train:
        task = task.with_labels_of(train.examples)
    else:
        task = task.with_labels_of_model(
            source.metadata.labels, source=source.path, is_originals=source.format == "tf1"
        )
    names = ", ".join(task.labels.names) or "none (regression)"
    logging.info("Classes, in their order: %s", names)
    return task


# ---------------------------------------------------------------------------- train


def train_or_choose(run: TextRun, train: TextData, dev: TextData | None) -> None:
    """Trains once, or a grid of which the run keeps the best model."""
    config = fine_tuning.training_config(run, FLAGS.learning_rate[0])
    seeds = range(FLAGS.seed, FLAGS.seed + FLAGS.num_trials)
    points = list(itertools.product(FLAGS.learning_rate, seeds))
    if len(points) == 1:
        run.train(config, train, dev)
    else:
        train_trials(run, config, train, dev, points)


# ---------------------------------------------------------------------------- evaluate, predict


def evaluate(run: TextRun, dev: Sequence[TextData], calibration: dict[str, float]) -> None:
    """eval_results.txt, and the predictions for each dev example beside its label."""
    results = {"global_step": run.step, **calibration}
    for data in dev:
        ending = run.task.ending(data.split)
        scores = run.evaluate(data)
        results |= {f"{name}{ending}": value for name, value in scores.items()}
        run.write_labeled(data, f"{FLAGS.output_dir}/{data.split.name}_predictions.tsv")
        if FLAGS.report:
            from bert_tf.tasks.report import write_report

            write_report(run, data, scores | (calibration if data is dev[0] else {}))
    write_eval_results(FLAGS.output_dir, results)
    write_final_evaluation(FLAGS.output_dir, results)


def predict(run: TextRun, data: TextData) -> None:
    """test_results.tsv, the same with names, the submission file; scores if there are labels."""
    task, split, folder = run.task, data.split, FLAGS.output_dir
    logits = run.predict(data)
    ending = task.ending(split)
    write_probabilities(f"{folder}/test_results{ending}.tsv", data.probabilities)
    run.write_labeled(data, f"{folder}/test_results_labeled{ending}.tsv")
    if split.submission:
        guids = [example.guid for example in data.examples]
        path = f"{folder}/{split.submission}"
        write_submission(path, task.labels, guids, data.probabilities)
    if not data.has_labels:
        return
    try:
        check_libraries(task.metrics)
    except InputError as error:  # predictions alone need none
        logging.warning("No scores of the %s data: %s.", split.name, error.received)
        return
    results = {"global_step": run.step, **run.score(data, logits)}
    write_eval_results(folder, results, name=f"test_eval_results{ending}.txt")


# ---------------------------------------------------------------------------- export


def export(run: TextRun) -> None:
    """Exports the best model as a SavedModel that takes raw text, if --export_dir asks for it."""
    task, model = run.task, run.model
    length = FLAGS.max_seq_length
    if not FLAGS.do_train and not FLAGS["max_seq_length"].present:
        length = model.source.metadata.max_seq_length or length
    from_flags.export(
        model,
        task=task.head.name,
        labels=task.labels.names or None,
        pairs=task.has_pairs,
        num_choices=task.num_choices,
        max_seq_length=length,
    )


if __name__ == "__main__":
    cli.run(main)
