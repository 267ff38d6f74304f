"""Fine-tunes on SQuAD v1.1 or v2.0, answers questions, and scores the answers.

    python run_squad.py --train_file=train-v1.1.json --predict_file=dev-v1.1.json \
        --do_train --do_predict --do_eval --init_checkpoint=uncased_L-12_H-768_A-12 \
        --output_dir=/models/squad
    python run_squad.py --version_2_with_negative ...      questions that may have no answer
    python run_squad.py --tfds_name=squad ...              without files, by tensorflow-datasets

Configuration and vocabulary are those beside the checkpoint unless flags name others. Written to
--output_dir: train.tf_record, eval.tf_record, checkpoints, predictions.json,
nbest_predictions.json, null_odds.json (v2.0), eval_results.txt (--do_eval), report.html (--report).
"""

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf
from absl import flags, logging

from bert_tf.checkpoints import loading as weights
from bert_tf.checkpoints import saving, tf1
from bert_tf.checkpoints.loading import PretrainedModel
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata, Weights
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError
from bert_tf.files import digest_of, write_eval_results, write_text
from bert_tf.serving.export import export_run
from bert_tf.serving.options import ServingOptions
from bert_tf.squad import files, thresholds
from bert_tf.squad.alignment import make_alignment
from bert_tf.squad.answers import AnswerSizes, Prediction, predict
from bert_tf.squad.data import SquadFile, original_order, read_squad, training_set
from bert_tf.squad.evaluation import check_golds
from bert_tf.squad.model import make_trainer, restore, window_logits
from bert_tf.squad.report import report_html
from bert_tf.squad.tfds import PREDICT, TRAIN, read_squad_tfds
from bert_tf.squad.window_records import write_windows
from bert_tf.squad.windows import Window, WindowSizes, prediction_windows, training_windows
from bert_tf.training.fine_tuning import make_optimizer, refuse_other_settings
from bert_tf.training.settings import FineTuningSchedule
from bert_tf.training.trainer import Trainer

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this script, shared ones first."""
    shared_flags.define_tuned_model()
    shared_flags.define_fine_tuning()
    shared_flags.define_training()
    shared_flags.define_devices()
    shared_flags.define_export()
    flags.DEFINE_string("train_file", None, "Questions with answers to train on, SQuAD's JSON.")
    flags.DEFINE_string("predict_file", None, "Questions to answer; with answers for --do_eval.")
    flags.DEFINE_string(
        "tfds_name",
        None,
        "A dataset of tensorflow-datasets, such as squad or squad/v2.0, for files not given.",
    )
    flags.DEFINE_string("tfds_data_dir", None, "Where tensorflow-datasets keeps its data.")
    flags.DEFINE_bool("do_predict", False, "Answer the questions of --predict_file.")
    flags.DEFINE_bool("do_eval", False, "Score the answers, as the official scripts do.")
    flags.DEFINE_bool("report", False, "Write report.html, a page to look at the answers.")
    flags.DEFINE_float("learning_rate", 5e-5, "The peak learning rate.")
    flags.DEFINE_integer("max_seq_length", 384, "Most pieces of a window.")
    flags.DEFINE_integer("doc_stride", 128, "How far a window begins behind the one before.")
    flags.DEFINE_integer("max_query_length", 64, "Most pieces of a question; longer ones are cut.")
    flags.DEFINE_integer("n_best_size", 20, "Starts and ends of a window, answers of a question.")
    flags.DEFINE_integer("max_answer_length", 30, "Most pieces of an answer.")
    flags.DEFINE_bool("version_2_with_negative", False, "Questions may have no answer (v2.0).")
    flags.DEFINE_float(
        "null_score_diff_threshold",
        0.0,
        "No answer if its score, a sum of logits, is above the best one's by more. Not given: what "
        "--do_eval found for this model and stored with it, else (and with --do_train) 0.",
    )
    flags.DEFINE_bool(
        "legacy_alignment", True, "Cut answers from the text as the original does; else by offsets."
    )
    flags.DEFINE_bool(
        "verbose_logging", False, "Log the answers that --legacy_alignment cannot cut to pieces."
    )


def main(argv: Sequence[str]) -> None:
    """Flags -> model -> questions -> training -> answers -> scores, report, export."""
    check_flags(argv[1:])
    strategy = shared_flags.make_strategy()
    shared_flags.check_batch_sizes(strategy)
    model = shared_flags.open_pretrained()
    if not FLAGS.do_train:
        warn_of_other_training(model.source)
    folder = tf1.CheckpointFolder(FLAGS.output_dir, keep_max=FLAGS.keep_checkpoint_max)
    questions = read_questions(FLAGS.predict_file, PREDICT) if FLAGS.do_predict else None
    if FLAGS.do_eval:
        check_golds(questions)
    if FLAGS.do_train:
        trainer = train(model, read_questions(FLAGS.train_file, TRAIN), folder, strategy)
    else:
        step_config = shared_flags.make_step_config()
        trainer = restore(model.source, model.config, strategy, step_config=step_config)
    if questions is not None:
        predictions = answer(trainer, model, questions)
        threshold = null_threshold(model.source)
        write_predictions(predictions, threshold)
        results = {}
        if FLAGS.do_eval:
            answering = folder.latest() if FLAGS.do_train else model.source.path
            results = score(questions, predictions, threshold, tf1.step_of(answering))
            best = thresholds.threshold_to_keep(questions, predictions, results)
            keep_threshold(best, folder)
        if FLAGS.report:
            write_report(questions, predictions, threshold, results)
    if FLAGS.export_dir:
        export(model)


# ---------------------------------------------------------------------------- flags


def check_flags(words: Sequence[str]) -> None:
    """Refuses what makes no sense, before anything is read."""
    shared_flags.refuse_words(words)
    shared_flags.check_limits()
    window_sizes()
    if not FLAGS.do_train and not FLAGS.do_predict:
        raise InputError(
            received="neither --do_train nor --do_predict",
            expected="at least one of them",
            remedy="add what is to be done",
        )
    for do, name in (("do_train", "train_file"), ("do_predict", "predict_file")):
        if FLAGS[do].value and not FLAGS[name].value and not FLAGS.tfds_name:
            raise InputError(
                received=f"--{do} without --{name}",
                expected="a file of questions in SQuAD's format",
                remedy=f"add --{name}=... or --tfds_name=squad",
            )
    for name in ("do_eval", "report"):
        if FLAGS[name].value and not FLAGS.do_predict:
            raise InputError(
                received=f"--{name} without --do_predict",
                expected="answers to look at",
                remedy="add --do_predict, or give a file of answers to "
                "python -m bert_tf.squad_evaluate",
            )
    refuse_without_effect()


def refuse_without_effect() -> None:
    """Refuses flags that say what is not done; one that the original ignores is let pass."""
    files_given = {"do_train": FLAGS.train_file, "do_predict": FLAGS.predict_file}
    is_read = any(FLAGS[do].value and not path for do, path in files_given.items())
    for name, has_effect, where in (
        ("tfds_name", is_read, "with the files themselves"),
        ("tfds_data_dir", FLAGS.tfds_name, "without --tfds_name"),
        ("verbose_logging", FLAGS.legacy_alignment, "with --nolegacy_alignment"),
    ):
        if FLAGS[name].value and not has_effect:
            raise InputError(
                received=f"--{name} {where}",
                expected="flags that have an effect",
                remedy=f"leave out --{name}",
            )
    if FLAGS["null_score_diff_threshold"].present and not FLAGS.version_2_with_negative:
        logging.warning(
            "--null_score_diff_threshold has no effect without --version_2_with_negative: every "
            "question is answered."
        )


def warn_of_other_training(source: Weights) -> None:
    """Says where questions are asked otherwise than the model was trained."""
    for name in ("version_2_with_negative", "max_seq_length", "doc_stride", "max_query_length"):
        trained, asked = getattr(source.metadata, name), FLAGS[name].value
        if trained is not None and trained != asked:
            logging.warning(
                "%s was trained with %s = %s; questions are asked with %s.",
                *(source.path, name, trained, asked),
            )


def window_sizes() -> WindowSizes:
    """How contexts are cut."""
    return WindowSizes(
        max_seq_length=FLAGS.max_seq_length,
        doc_stride=FLAGS.doc_stride,
        max_query_length=FLAGS.max_query_length,
    )


# ---------------------------------------------------------------------------- questions


def read_questions(path: str | None, part: str) -> SquadFile:
    """Those of the file, or where there is none of this part of the dataset."""
    if path:
        return read_squad(path)
    return read_squad_tfds(FLAGS.tfds_name, part, data_dir=FLAGS.tfds_data_dir)


# ---------------------------------------------------------------------------- training


def train(
    model: PretrainedModel,
    questions: SquadFile,
    folder: tf1.CheckpointFolder,
    strategy: tf.distribute.Strategy,
) -> Trainer:
    """Questions -> windows -> train.tf_record -> the trained model."""
    found = training_set(questions, version_2_with_negative=FLAGS.version_2_with_negative)
    examples = original_order(found.examples)
    schedule = make_schedule()
    num_train_steps = schedule.num_train_steps(len(examples))
    metadata = metadata_of(model)
    weights.refuse_other_model(folder, model, metadata)
    windows = training_windows(examples, model.tokenizer, window_sizes())
    logging.info("%s: %d questions, %d windows", questions.source, len(examples), len(windows))
    records = make_records("train", windows, is_training=True)
    trainer = make_trainer(
        model.config,
        make_optimizer(schedule, num_train_steps),
        strategy,
        seed=FLAGS.seed,
        freeze=FLAGS.freeze,
        step_config=shared_flags.make_step_config(),
    )
    noted = run_settings(records, num_train_steps, model, strategy)
    refuse_other_settings(folder, noted)
    if folder.latest() is None:
        logging.info("%s", weights.load_checkpoint(trainer.model, model.source))
    trainer.train(
        shared_flags.make_batching(model.config).training(
            records,
            batch_size=FLAGS.train_batch_size,
            num_train_steps=num_train_steps,
            seed=FLAGS.seed,
        ),
        num_train_steps=num_train_steps,
        folder=folder,
        intervals=shared_flags.make_intervals(eval_steps=0),
        run_settings=noted,
        on_begin=lambda: saving.write_model_files(
            folder.path, model.config, model.tokenizer, metadata
        ),
    )
    return trainer


def metadata_of(model: PretrainedModel) -> ModelMetadata:
    """What belongs to the model that is trained; a threshold is yet to be found."""
    return ModelMetadata(
        do_lower_case=model.tokenizer.do_lower_case,
        architecture="BertForQuestionAnswering",
        max_seq_length=FLAGS.max_seq_length,
        doc_stride=FLAGS.doc_stride,
        max_query_length=FLAGS.max_query_length,
        version_2_with_negative=FLAGS.version_2_with_negative,
    )


def make_records(name: str, windows: Sequence[Window], *, is_training: bool) -> RecordFiles:
    """train.tf_record or eval.tf_record, as the original writes them."""
    path = f"{FLAGS.output_dir}/{name}.tf_record"
    length = FLAGS.max_seq_length
    return write_windows(path, windows, max_seq_length=length, is_training=is_training)


def make_schedule() -> FineTuningSchedule:
    """How long and how fast."""
    return FineTuningSchedule(
        train_batch_size=FLAGS.train_batch_size,
        learning_rate=FLAGS.learning_rate,
        num_train_epochs=FLAGS.num_train_epochs,
        warmup_proportion=FLAGS.warmup_proportion,
        end_learning_rate=FLAGS.end_learning_rate,
        layerwise_lr_decay=FLAGS.layerwise_lr_decay,
        optimizer=FLAGS.optimizer,
        bias_correction=FLAGS.bias_correction,
    )


def run_settings(
    records: RecordFiles,
    num_train_steps: int,
    model: PretrainedModel,
    strategy: tf.distribute.Strategy,
) -> dict:
    """What decides how the run ends, noted in its checkpoints."""
    names = (
        "seed",
        "train_batch_size",
        "max_seq_length",
        "learning_rate",
        "num_train_epochs",
        "warmup_proportion",
        "end_learning_rate",
        "bucket_by_length",
        "legacy_shuffle",
        "optimizer",
        "bias_correction",
        "layerwise_lr_decay",
        "freeze",
        "doc_stride",
        "max_query_length",
        "version_2_with_negative",
    )
    own = {
        "num_records": len(records),
        "num_train_steps": num_train_steps,
        "init_checkpoint": model.source.path,
        "train_data": digest_of(records.paths[0]),
    }
    computed = shared_flags.make_step_config().run_settings(strategy.num_replicas_in_sync)
    return {name: FLAGS[name].value for name in names} | own | computed | model.config.to_dict()


# ---------------------------------------------------------------------------- answers


def answer(trainer: Trainer, model: PretrainedModel, questions: SquadFile) -> list[Prediction]:
    """Questions -> windows -> eval.tf_record -> logits -> the answers, in order."""
    windows = prediction_windows(questions.examples, model.tokenizer, window_sizes())
    logging.info(
        "%s: %d questions, %d windows", questions.source, len(questions.examples), len(windows)
    )
    start_logits, end_logits = [], []
    if windows:
        start_logits, end_logits = window_logits(
            trainer,
            make_records("eval", windows, is_training=False),
            windows,
            shared_flags.make_batching(model.config),
            batch_size=FLAGS.predict_batch_size,
        )
    align = make_alignment(
        windows,
        model.tokenizer,
        legacy_alignment=FLAGS.legacy_alignment,
        verbose_logging=FLAGS.verbose_logging,
    )
    return predict(
        questions.examples,
        windows,
        start_logits,
        end_logits,
        align,
        sizes=AnswerSizes(n_best_size=FLAGS.n_best_size, max_answer_length=FLAGS.max_answer_length),
        version_2_with_negative=FLAGS.version_2_with_negative,
    )


def null_threshold(source: Weights) -> float:
    """--null_score_diff_threshold: as given, or as found for this model before, or its default.

    With --do_train not what was found: the same command has the same answers when it is run again.
    """
    given = FLAGS["null_score_diff_threshold"]
    found = None if FLAGS.do_train else source.metadata.null_score_diff_threshold
    kept = not given.present and found is not None
    threshold = found if kept else given.value
    if FLAGS.version_2_with_negative:
        place = f"stored with {source.path}" if kept else "default"
        origin = "as given" if given.present else place
        logging.info("null_score_diff_threshold %s (%s)", threshold, origin)
    return threshold


def write_predictions(predictions: Sequence[Prediction], threshold: float) -> None:
    """predictions.json, nbest_predictions.json and, of v2.0, null_odds.json."""
    paths = files.write_prediction_files(
        FLAGS.output_dir,
        predictions,
        version_2_with_negative=FLAGS.version_2_with_negative,
        null_score_diff_threshold=threshold,
    )
    logging.info("Wrote %s", ", ".join(paths))


# ---------------------------------------------------------------------------- scores, report


def score(
    questions: SquadFile,
    predictions: Sequence[Prediction],
    threshold: float,
    step: int,
) -> dict[str, float]:
    """eval_results.txt: the official scores, and for v2.0 those under the best threshold."""
    results = thresholds.scores(questions, predictions, null_score_diff_threshold=threshold)
    results["global_step"] = step
    write_eval_results(FLAGS.output_dir, results)
    return results


def keep_threshold(threshold: float | None, folder: tf1.CheckpointFolder) -> None:
    """Stores the best threshold with the model, if that is the one of --output_dir and has none.

    One that was found for these weights before stays: these questions may be those of a test.
    """
    if threshold is None:
        return
    if not folder.latest():
        logging.info(
            "The model is not in --output_dir, so the threshold is not stored with it; use "
            "--null_score_diff_threshold=%s",
            threshold,
        )
        return
    metadata = ModelMetadata.from_json_file(f"{FLAGS.output_dir}/{METADATA_FILE}")
    stored = metadata.null_score_diff_threshold
    if stored is not None:
        logging.info(
            "The best null_score_diff_threshold of these questions is %s; the model's own stays "
            "%s. To store another one, write it into %s.",
            *(threshold, stored, METADATA_FILE),
        )
        return
    metadata = dataclasses.replace(metadata, null_score_diff_threshold=threshold)
    write_text(f"{FLAGS.output_dir}/{METADATA_FILE}", metadata.to_json_string())
    logging.info("Stored null_score_diff_threshold %s in %s", threshold, METADATA_FILE)


def write_report(
    questions: SquadFile,
    predictions: Sequence[Prediction],
    threshold: float,
    results: Mapping[str, float],
) -> None:
    """report.html: every question with its answers, to look at in a browser."""
    shown = {name: value for name, value in results.items() if not name.startswith("at_best")}
    page = report_html(
        questions,
        predictions,
        thresholds.decided(predictions, null_score_diff_threshold=threshold),
        totals=shown,
        with_golds=questions.has_golds,
    )
    write_text(f"{FLAGS.output_dir}/report.html", page)
    logging.info("Wrote %s/report.html", FLAGS.output_dir)


# ---------------------------------------------------------------------------- export


def export(model: PretrainedModel) -> None:
    """The model as a SavedModel that takes questions and contexts."""
    # Not given: as the model was trained, and what is stored with it, perhaps just now.
    names = ["max_seq_length", "doc_stride", "max_query_length", "version_2_with_negative"]
    if FLAGS.version_2_with_negative:  # else every question is answered, there as here
        names.append("null_score_diff_threshold")
    options = ServingOptions(
        task="question_answering",
        **{name: FLAGS[name].value for name in names if FLAGS[name].present},
        n_best_size=FLAGS.n_best_size,
        max_answer_length=FLAGS.max_answer_length,
        top_k=min(ServingOptions.top_k, FLAGS.n_best_size),
    )
    export_run(
        FLAGS.output_dir,
        model.source,
        model.config,
        model.tokenizer,
        FLAGS.export_dir,
        options=options,
    )


if __name__ == "__main__":
    cli.parse(define_flags)
    cli.run(main)
