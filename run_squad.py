"""Fine-tunes on SQuAD v1.1 or v2.0, answers questions, and scores the answers.

    python run_squad.py --train_file=train-v1.1.json --predict_file=dev-v1.1.json \\
        --do_train --do_predict --do_eval --init_checkpoint=uncased_L-12_H-768_A-12 \\
        --output_dir=/models/squad
    python run_squad.py --version_2_with_negative ...      questions that may have no answer
    python run_squad.py --tfds_name=squad ...              without files, by tensorflow-datasets

Configuration and vocabulary are those beside the checkpoint unless flags name others. Written to
--output_dir: train.tf_record, eval.tf_record, checkpoints, predictions.json,
nbest_predictions.json, null_odds.json (v2.0), eval_results.txt (--do_eval), report.html (--report).
"""

from collections.abc import Sequence

from absl import flags, logging

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this script, shared ones first."""
    shared_flags.define_fine_tuned_model()
    shared_flags.define_training()
    shared_flags.define_fine_tuning(
        max_seq_length=384, max_seq_length_help="Most tokens of a window."
    )
    shared_flags.define_devices()
    shared_flags.define_export_dir()
    shared_flags.define_tfds("such as squad or squad/v2.0, for files not given")
    flags.DEFINE_string("train_file", None, "Questions with answers to train on, SQuAD's JSON.")
    flags.DEFINE_string("predict_file", None, "Questions to answer; with answers for --do_eval.")
    flags.DEFINE_bool("do_predict", False, "Answer the questions of --predict_file.")
    flags.DEFINE_bool("do_eval", False, "Score the answers, as the official scripts do.")
    flags.DEFINE_bool("report", False, "Write report.html, a page to look at the answers.")
    shared_flags.define_best_checkpoint()
    with shared_flags.recorded_in_checkpoints():
        shared_flags.define_number("learning_rate", 5e-5, "The peak learning rate, above 0.")
        shared_flags.define_count(
            "doc_stride", 128, "Tokens from the start of a window to the start of the next."
        )
        shared_flags.define_count(
            "max_query_length", 64, "Most tokens of a question; longer ones are cut.", least=0
        )
        flags.DEFINE_bool("version_2_with_negative", False, "Questions may have no answer (v2.0).")
    shared_flags.define_count(
        "n_best_size", 20, "Starts and ends tried in a window; answers ranked for a question."
    )
    shared_flags.define_count("max_answer_length", 30, "Most tokens of an answer.")
    shared_flags.define_number(
        "null_score_diff_threshold",
        0.0,
        "No answer if its score, a sum of logits, is above the best one's by more. Default: what "
        "--do_eval found for this model and stored with it, else (and with --do_train) 0.",
    )
    flags.DEFINE_bool(
        "legacy_alignment", True, "Cut answers from the text as the original does; else by offsets."
    )
    flags.DEFINE_bool(
        "verbose_logging", False, "Log the answers that --legacy_alignment cannot align exactly."
    )


def check_flags(words: Sequence[str]) -> None:
    """Refuses flags that contradict each other, before anything is loaded."""
    shared_flags.refuse_words(words)
    shared_flags.require_one_of("do_train", "do_predict")
    shared_flags.learning_rates()
    evaluate = "add --do_predict, or give a file of answers to bert-tf evaluate-squad"
    shared_flags.require("do_eval", "do_predict", remedy=evaluate)
    shared_flags.require("report", "do_predict", remedy=evaluate)
    shared_flags.check_best_checkpoint()
    files_of = {"do_train": "train_file", "do_predict": "predict_file"}
    if not FLAGS.tfds_name:
        for do, file in files_of.items():
            shared_flags.require(do, file)
        shared_flags.refuse_without_effect("tfds_data_dir", "without --tfds_name")
    elif all(FLAGS[file].value for do, file in files_of.items() if FLAGS[do].value):
        shared_flags.refuse_without_effect("tfds_name", "with the files themselves")
    # A flag of the original that it ignores itself is accepted.
    if FLAGS["null_score_diff_threshold"].present and not FLAGS.version_2_with_negative:
        logging.warning(
            "--null_score_diff_threshold has no effect without --version_2_with_negative: every "
            "question is answered."
        )
    if FLAGS.verbose_logging and not FLAGS.legacy_alignment:
        shared_flags.refuse_without_effect("verbose_logging", "with --nolegacy_alignment")


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.checkpoints import companions, loading, tf1
from bert_tf.checkpoints.companions import PretrainedModel
from bert_tf.checkpoints.metadata import ModelMetadata, Weights, write_model_files
from bert_tf.cli import from_flags
from bert_tf.config import HEADS, BertConfig
from bert_tf.data.batches import BatchingConfig
from bert_tf.data.shards import RecordFiles
from bert_tf.files import digest_of, locked, write_eval_results
from bert_tf.modeling import models
from bert_tf.modeling.losses import SpanObjective
from bert_tf.squad import data as squad_data
from bert_tf.squad import files, thresholds
from bert_tf.squad.answers import AnswerSizes, Prediction
from bert_tf.squad.data import TFDS_PREDICT, TFDS_TRAIN, SquadFile
from bert_tf.squad.evaluation import check_golds
from bert_tf.squad.model import ENCODER_AND_HEAD
from bert_tf.squad.prediction import AnswerConfig, AskedQuestions
from bert_tf.squad.report import write_report
from bert_tf.squad.windows import (
    Window,
    WindowSizes,
    prediction_windows,
    training_windows,
    write_windows,
)
from bert_tf.training.best import BestCheckpoint, refuse_best_of_others, train_keeping_best
from bert_tf.training.fine_tuning import make_optimizer, refuse_other_settings, with_run_ends
from bert_tf.training.logging import write_final_evaluation
from bert_tf.training.trainer import Trainer

AS_TRAINED = ("max_seq_length", "doc_stride", "max_query_length", "version_2_with_negative")


class TrainingData(NamedTuple):
    """The windows to train on, as records, and the number of updates."""

    records: RecordFiles
    num_train_steps: int


def main(_: Sequence[str]) -> None:
    """Flags -> model -> data -> trainer -> first weights -> train -> predict -> score -> export."""
    sizes = from_flags.of_flags(WindowSizes)  # refuses sizes that leave no room for the context
    strategy = from_flags.make_strategy()
    with locked(FLAGS.output_dir, folder=True):
        model = from_flags.open_pretrained(strategy)
        folder = tf1.CheckpointFolder(FLAGS.output_dir, keep_max=FLAGS.keep_checkpoint_max)
        if FLAGS.do_train:
            refuse_best_of_others(folder.path, is_kept=FLAGS.eval_steps > 0)
        questions = read_questions(FLAGS.predict_file, TFDS_PREDICT) if FLAGS.do_predict else None
        if FLAGS.do_eval:
            check_golds(questions)
        data = make_training_data(model, folder, sizes) if FLAGS.do_train else None
        asked = ask(model, questions, sizes) if FLAGS.do_predict else None
        trainer = make_trainer(model, strategy, data)
        settings = make_run_settings(model, strategy, data, asked)
        load_first_weights(trainer, model, folder, settings)
        step = tf1.step_of(model.source.path)
        if FLAGS.do_train:
            step = train(trainer, model, data, asked, folder, settings)
        if FLAGS.do_predict:
            answer(trainer, asked, null_threshold(model.source), step)
        export(model)
    newest = from_flags.newest_model(model)
    from_flags.log_results("playground", newest, predictions="predictions.json")


# ---------------------------------------------------------------------------- data


def read_questions(path: str | None, split: str) -> SquadFile:
    """The questions of the file or, without one, of this split of the dataset."""
    if path:
        return squad_data.read_squad(path)
    return squad_data.read_squad_tfds(FLAGS.tfds_name, split, data_dir=FLAGS.tfds_data_dir)


def make_training_data(
    model: PretrainedModel, folder: tf1.CheckpointFolder, sizes: WindowSizes
) -> TrainingData:
    """Questions -> windows -> train.tf_record, in the original's order."""
    companions.refuse_other_model(folder, model, metadata_of(model))
    questions = read_questions(FLAGS.train_file, TFDS_TRAIN)
    examples = squad_data.training_examples(
        questions, version_2_with_negative=FLAGS.version_2_with_negative
    )
    examples = squad_data.original_order(examples)
    num_train_steps = from_flags.schedule().num_train_steps(len(examples))
    windows = training_windows(examples, model.tokenizer, sizes)
    records = write_records("train", windows, questions, len(examples), model.config)
    return TrainingData(records, num_train_steps)


def ask(model: PretrainedModel, questions: SquadFile, sizes: WindowSizes) -> AskedQuestions:
    """Questions -> windows -> eval.tf_record."""
    windows = prediction_windows(questions.examples, model.tokenizer, sizes)
    records = None
    if windows:
        count = len(questions.examples)
        records = write_records("eval", windows, questions, count, model.config)
    config = from_flags.of_flags(
        AnswerConfig,
        sizes=from_flags.of_flags(AnswerSizes),
        batching=from_flags.of_flags(BatchingConfig),
    )
    return AskedQuestions(questions, windows, records, model.tokenizer, config)


def write_records(
    name: str, windows: Sequence[Window], questions: SquadFile, count: int, config: BertConfig
) -> RecordFiles:
    """Writes train.tf_record or eval.tf_record, as the original does."""
    logging.info("%s: %d questions, %d windows", questions.source, count, len(windows))
    return write_windows(
        f"{FLAGS.output_dir}/{name}.tf_record",
        windows,
        max_seq_length=FLAGS.max_seq_length,
        is_training=name == "train",
        config=config,
    )


# ---------------------------------------------------------------------------- trainer


def make_trainer(
    model: PretrainedModel, strategy: tf.distribute.Strategy, data: TrainingData | None
) -> Trainer:
    """Model, loss and optimizer on the devices."""
    num_train_steps = data.num_train_steps if data else 1
    return Trainer(
        lambda: models.span_model(model.config),
        SpanObjective(),
        make_optimizer(from_flags.schedule(), num_train_steps),
        strategy=strategy,
        seed=FLAGS.seed,
        freeze=FLAGS.freeze if data else (),
        step_config=from_flags.step_config(),
    )


def make_run_settings(
    model: PretrainedModel,
    strategy: tf.distribute.Strategy,
    data: TrainingData | None,
    asked: AskedQuestions | None,
) -> dict[str, Any]:
    """What decides the result of the run."""
    settings = from_flags.all_run_settings(strategy, model.config)
    if data is None:
        return settings
    return settings | {
        "num_records": len(data.records),
        "num_train_steps": data.num_train_steps,
        "init_checkpoint": model.source.path,
        "train_data": digest_of(data.records.paths[0]),
        "dev_data": asked.digest if FLAGS.eval_steps else None,
    }


def load_first_weights(
    trainer: Trainer, model: PretrainedModel, folder: tf1.CheckpointFolder, settings: dict
) -> None:
    """Loads the model to begin with, unless a run of its own is resumed."""
    if not FLAGS.do_train:
        warn_of_other_settings(model.source)
        logging.info(
            "%s", loading.load_checkpoint(trainer.model, model.source, required=ENCODER_AND_HEAD)
        )
        return
    refuse_other_settings(folder, settings)
    if folder.latest() is None:
        logging.info("%s", loading.load_checkpoint(trainer.model, model.source))


def warn_of_other_settings(source: Weights) -> None:
    """Warns where questions are asked with other settings than the model was trained with."""
    for name in AS_TRAINED:
        trained, asked = getattr(source.metadata, name), FLAGS[name].value
        if trained is not None and trained != asked:
            logging.warning(
                "%s was trained with %s = %s; questions are asked with %s.",
                *(source.path, name, trained, asked),
            )


def train(
    trainer: Trainer,
    model: PretrainedModel,
    data: TrainingData,
    asked: AskedQuestions | None,
    folder: tf1.CheckpointFolder,
    settings: dict[str, Any],
) -> int:
    """Records -> checkpoints; returns the step of the model that the trainer has then."""
    settings = with_run_ends(folder, settings)
    batches = from_flags.of_flags(BatchingConfig).training(
        data.records,
        batch_size=FLAGS.train_batch_size,
        num_train_steps=data.num_train_steps,
        seed=FLAGS.seed,
        run_ends=settings.get(tf1.RUN_ENDS, ()),
    )

    def write_files(path: str) -> None:
        write_model_files(path, model.config, model.tokenizer, metadata_of(model))

    best = None
    if FLAGS.eval_steps:
        best = BestCheckpoint(
            folder.path,
            settings,
            metric="best_f1" if FLAGS.version_2_with_negative else "f1",
            early_stopping=FLAGS.early_stopping,
            evaluate=lambda: thresholds.main_scores(asked.score(asked.predict(trainer))),
            state=trainer.state,
            write_model_files=write_files,
        )
    return train_keeping_best(
        trainer,
        batches,
        best,
        num_train_steps=data.num_train_steps,
        folder=folder,
        intervals=from_flags.intervals(),
        run_settings=settings,
        on_begin=lambda: write_files(folder.path),
    )


def metadata_of(model: PretrainedModel) -> ModelMetadata:
    """What belongs to the trained model beside its weights; its threshold is yet to be found."""
    return ModelMetadata(
        do_lower_case=model.tokenizer.do_lower_case,
        never_split=model.tokenizer.never_split or None,
        architecture=HEADS["question_answering"],
        **{name: FLAGS[name].value for name in AS_TRAINED},
    )


# ---------------------------------------------------------------------------- answers


def answer(trainer: Trainer, asked: AskedQuestions, threshold: float, step: int) -> None:
    """The answers, and their scores and the report if they are asked for."""
    predictions = asked.predict(trainer)
    files.write_prediction_files(
        FLAGS.output_dir,
        predictions,
        version_2_with_negative=FLAGS.version_2_with_negative,
        null_score_diff_threshold=threshold,
    )
    scores = evaluate(asked, predictions, threshold, step) if FLAGS.do_eval else {}
    if FLAGS.report:
        write_report(
            f"{FLAGS.output_dir}/report.html", asked.questions, predictions, threshold, scores
        )


def null_threshold(source: Weights) -> float:
    """--null_score_diff_threshold: as given, else as stored with the model, else its default.

    With --do_train a stored one is ignored: the same command gives the same answers again.
    """
    given = FLAGS["null_score_diff_threshold"]
    stored = None if FLAGS.do_train else source.metadata.null_score_diff_threshold
    is_stored = not given.present and stored is not None
    threshold = stored if is_stored else given.value
    if FLAGS.version_2_with_negative:
        default = f"stored with {source.path}" if is_stored else "default"
        origin = "as given" if given.present else default
        logging.info("null_score_diff_threshold %s (%s)", threshold, origin)
    return threshold


# ---------------------------------------------------------------------------- scores


def evaluate(
    asked: AskedQuestions, predictions: Sequence[Prediction], threshold: float, step: int
) -> dict[str, float]:
    """eval_results.txt: the official scores, and for v2.0 those under the best threshold.

    The best threshold is stored with the model of --output_dir.
    """
    results = asked.score(predictions, null_score_diff_threshold=threshold)
    results["global_step"] = step
    write_eval_results(FLAGS.output_dir, results)
    main_ones = thresholds.main_scores(results)
    write_final_evaluation(FLAGS.output_dir, {"global_step": step, **main_ones})
    best = thresholds.threshold_to_keep(asked.questions, predictions, results)
    if best is not None:
        files.store_threshold(FLAGS.output_dir, best)
    return results


# ---------------------------------------------------------------------------- export


def export(model: PretrainedModel) -> None:
    """Exports a SavedModel that takes questions and contexts, if --export_dir asks for it."""
    # A flag that was not given: as the model was trained, and what was stored with it just now.
    names = [*AS_TRAINED]
    if FLAGS.version_2_with_negative:  # else every question is answered, there as here
        names.append("null_score_diff_threshold")
    from_flags.export(
        model,
        task="question_answering",
        **{name: FLAGS[name].value for name in names if FLAGS[name].present},
        n_best_size=FLAGS.n_best_size,
        max_answer_length=FLAGS.max_answer_length,
        top_k=min(5, FLAGS.n_best_size),
    )


if __name__ == "__main__":
    cli.run(main)
