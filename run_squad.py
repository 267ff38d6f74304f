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
from bert_tf.cli import model_flags
from bert_tf.errors import InputError

FLAGS = flags.FLAGS


class SquadFlags:
    """The flags of this script.

    Attributes:
      train_file: Questions with answers to train on, SQuAD's JSON.
      predict_file: Questions to answer; with answers for --do_eval.
      do_predict: Answer the questions of --predict_file.
      do_eval: Score the answers, as the official scripts do.
      report: Write report.html, a page to look at the answers.
      learning_rate: The peak learning rate, above 0.
      doc_stride: Tokens from the start of a window to the start of the next.
      max_query_length: Most tokens of a question; longer ones are cut.
      version_2_with_negative: Questions may have no answer (v2.0).
      n_best_size: Starts and ends tried in a window; answers ranked for a question.
      max_answer_length: Most tokens of an answer.
      null_score_diff_threshold: No answer if its score, a sum of logits, exceeds the best answer's
        by more than this. Default: what --do_eval found for this model and stored with it, else
        (and with --do_train) 0.
      legacy_alignment: Cut answers from the text as the original does; else by offsets.
      verbose_logging: Log the answers that --legacy_alignment cannot align exactly.
    """

    _acts = """
        do_train: train_file learning_rate
        do_predict: predict_file report legacy_alignment verbose_logging
        do_predict export_dir: n_best_size max_answer_length null_score_diff_threshold
        legacy_alignment: verbose_logging"""
    _recorded = "learning_rate doc_stride max_query_length version_2_with_negative"
    _most_used = (
        "train_file predict_file init_checkpoint output_dir do_train do_predict do_eval "
        "version_2_with_negative learning_rate train_batch_size num_train_epochs"
    )
    train_file = shared_flags.Path()
    predict_file = shared_flags.Path()
    do_predict = False
    do_eval = False
    report = False
    learning_rate = shared_flags.Number(5e-5, shared_flags.ABOVE_0)
    doc_stride = 128
    max_query_length = shared_flags.Count(64, 0)
    version_2_with_negative = False
    n_best_size = 20
    max_answer_length = 30
    null_score_diff_threshold = 0.0
    legacy_alignment = True
    verbose_logging = False


def define_flags() -> None:
    """The flags of this script and those that fine-tuning shares."""
    model_flags.define_fine_tuning(SquadFlags, max_seq_length=384)
    FLAGS["num_train_epochs"].help += " Questions count, not windows, as in the original."


def check_flags(words: Sequence[str]) -> None:
    """Refuses flags that contradict each other, before anything is loaded."""
    shared_flags.refuse_words(words)
    model_flags.require_one_of("do_train", "do_predict")
    shared_flags.require("do_eval", "do_predict")
    if not FLAGS.tfds_name:
        shared_flags.require("do_train", "train_file")
        shared_flags.require("do_predict", "predict_file")
    elif (FLAGS.train_file or not FLAGS.do_train) and (FLAGS.predict_file or not FLAGS.do_predict):
        received = f"--tfds_name={FLAGS.tfds_name} with files of all questions"
        raise InputError(received, "questions from one source", "leave out --tfds_name")


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

from bert_tf.checkpoints.metadata import Weights
from bert_tf.cli import fine_tuning, from_flags
from bert_tf.files import locked, write_text
from bert_tf.squad import data, evaluation, files
from bert_tf.squad.answers import AnswerConfig
from bert_tf.squad.run import QuestionData, SquadRun
from bert_tf.squad.windows import WindowSizes
from bert_tf.training.trainer import write_eval_results, write_final_evaluation


def main(_: Sequence[str]) -> None:
    """Flags -> questions -> model -> train or restore -> answers, scores, report -> export."""
    sizes = from_flags.of_flags(WindowSizes)  # refuses sizes that leave no room for the context
    strategy = from_flags.make_strategy()
    with locked(FLAGS.output_dir, folder=True):
        asked = read_questions() if FLAGS.do_predict else None
        train = read_training_data() if FLAGS.do_train else None
        model = fine_tuning.open_pretrained()
        config = from_flags.of_flags(AnswerConfig)
        of_run = {"threshold": null_threshold(model.source), **fine_tuning.of_run(model, strategy)}
        run = SquadRun(sizes=sizes, config=config, **of_run)
        if FLAGS.do_train:
            run.train(fine_tuning.training_config(run, FLAGS.learning_rate), train, asked)
        else:
            run.restore()
        if FLAGS.do_predict:
            answer(run, asked)
        export(run)
        from_flags.write_record()
    logging.info("Wrote %s", FLAGS.output_dir)


# ---------------------------------------------------------------------------- data


def read_questions() -> QuestionData:
    """The questions to answer, with gold answers for --do_eval."""
    questions = read_file(FLAGS.predict_file, data.TFDS_PREDICT)
    if FLAGS.do_eval:
        evaluation.check_golds(questions)
    return QuestionData(name="eval", questions=questions, batch_size=FLAGS.predict_batch_size)


def read_training_data() -> QuestionData:
    """The questions to train on, in the original's order."""
    examples = data.training_examples(
        read_file(FLAGS.train_file, data.TFDS_TRAIN),
        version_2_with_negative=FLAGS.version_2_with_negative,
    )
    return QuestionData(name="train", examples=data.original_order(examples))


def read_file(path: str | None, split: str) -> data.SquadFile:
    """The questions of the file or, without one, of this split of the dataset."""
    if path:
        return data.read_squad(path)
    return data.read_squad_tfds(FLAGS.tfds_name, split)


# ---------------------------------------------------------------------------- answers


def answer(run: SquadRun, asked: QuestionData) -> None:
    """The answers, and their scores and the report if they are asked for."""
    predictions, threshold = run.predict(asked), run.threshold
    answers = evaluation.decided(predictions, threshold=threshold)
    files.write_prediction_files(FLAGS.output_dir, predictions, answers)
    scores = {}
    if FLAGS.do_eval:
        scores = evaluation.scores(asked.questions, predictions, threshold=threshold)
        scores["global_step"] = run.step
        write_scores(scores, evaluation.threshold_to_keep(asked.questions, predictions, scores))
    if FLAGS.report:
        from bert_tf.squad.report import report_html

        page = report_html(asked.questions, predictions, answers, totals=scores)
        write_text(f"{FLAGS.output_dir}/report.html", page)
        logging.info("Wrote %s/report.html", FLAGS.output_dir)


def write_scores(scores: dict[str, float], best_threshold: float | None) -> None:
    """eval_results.txt; the best threshold is stored with the model of --output_dir."""
    write_eval_results(FLAGS.output_dir, scores)
    main_ones = evaluation.main_scores(scores)
    write_final_evaluation(FLAGS.output_dir, {"global_step": scores["global_step"], **main_ones})
    if best_threshold is not None:
        files.store_threshold(FLAGS.output_dir, best_threshold)


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


# ---------------------------------------------------------------------------- export


def export(run: SquadRun) -> None:
    """Exports a SavedModel that takes questions and contexts, if --export_dir asks for it."""
    # A flag that was not given: as the model was trained, and what was stored with it just now.
    names = [*run.facts()]
    if FLAGS.version_2_with_negative:  # else every question is answered, there as here
        names.append("null_score_diff_threshold")
    from_flags.export(
        run.model,
        task="question_answering",
        **{name: FLAGS[name].value for name in names if FLAGS[name].present},
        n_best_size=FLAGS.n_best_size,
        max_answer_length=FLAGS.max_answer_length,
        top_k=min(5, FLAGS.n_best_size),
    )


if __name__ == "__main__":
    cli.run(main)
