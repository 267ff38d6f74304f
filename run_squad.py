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

import math
from typing import TYPE_CHECKING

from bert_tf.cli.main import run
from bert_tf.cli.training_options import FineTuningCommand, require, require_one_of
from bert_tf.data.options import Datasets
from bert_tf.errors import InputError
from bert_tf.options import option
from bert_tf.squad.options import NULL_THRESHOLD, WINDOW_SIZES, Answers, Windows
from bert_tf.training.options import FineTuningSchedule

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.checkpoints.loading import PretrainedModel
    from bert_tf.squad.run import QuestionData, SquadRun


class SquadSchedule(FineTuningSchedule, title="Fine-tuning"):
    """How long, how fast and with which optimizer a model is fine-tuned on questions."""

    num_train_epochs: float = option(
        "How often each example is trained on. Questions count, not windows, as in the original.",
        default=3.0,
        above=0.0,
        high=1e6,
        acts="do_train",
        recorded=True,
        may_change=True,
        original=True,
    )


class Squad(
    FineTuningCommand,
    most_used="train_file predict_file init_checkpoint output_dir do_train do_predict do_eval "
    "version_2_with_negative learning_rate train_batch_size num_train_epochs",
):
    """The options of this script."""

    train_file: str | None = option(
        "Questions with answers to train on, SQuAD's JSON.",
        default=None,
        path=True,
        acts="do_train",
        recorded=False,
        original=True,
    )
    predict_file: str | None = option(
        "Questions to answer; with answers for --do_eval.",
        default=None,
        path=True,
        acts="do_predict",
        original=True,
    )
    do_predict: bool = option(
        "Answer the questions of --predict_file.", default=False, original=True
    )
    do_eval: bool = option(
        "Score the answers, as the official scripts do.", default=False, original=True
    )
    report: bool = option(
        "Write report.html, a page to look at the answers.", default=False, acts="do_predict"
    )
    version_2_with_negative: bool | None = option(
        "Questions may have no answer (v2.0). Without it those are left out of training.",
        default=None,
        shown=False,
        recorded=True,
        original=True,
    )
    null_score_diff_threshold: float | None = option(
        "No answer if its score, a sum of logits, exceeds the best answer's by more than this. "
        "Default: what --do_eval found for this model and stored with it, else (and with "
        "--do_train) 0.",
        default=None,
        shown=NULL_THRESHOLD,
        infinite=True,
        below=math.inf,
        acts="do_predict or export_dir",
        original=True,
    )
    datasets: Datasets = Datasets()
    schedule: SquadSchedule = SquadSchedule()
    windows: Windows = Windows()
    answers: Answers = Answers()

    def check(self) -> None:
        """Refuses options that contradict each other."""
        super().check()
        require_one_of(do_train=self.do_train, do_predict=self.do_predict)
        require("do_eval", self.do_eval, do_predict=self.do_predict)
        tfds_name = self.datasets.tfds_name
        if not tfds_name:
            require("do_train", self.do_train, train_file=self.train_file)
            require("do_predict", self.do_predict, predict_file=self.predict_file)
            return
        has_training_file = self.train_file or not self.do_train
        has_questions_file = self.predict_file or not self.do_predict
        if has_training_file and has_questions_file:
            received = f"--tfds_name={tfds_name} with files of all questions"
            raise InputError(received, "questions from one source", "leave out --tfds_name")

    @property
    def may_have_no_answer(self) -> bool:
        """--version_2_with_negative; false if it is not given."""
        return bool(self.version_2_with_negative)


def main(options: Squad) -> None:
    """Questions -> model -> train or restore -> answers, scores, report -> export."""
    from absl import logging

    from bert_tf.cli import training
    from bert_tf.cli.record import write_record
    from bert_tf.files import locked

    given = options
    options.windows.sizes()  # raises an error if windows have no room for the context
    strategy = training.make_strategy(options)
    with locked(options.output_dir, folder=True):
        train, asked = read_questions(options, strategy)
        training.refuse_others(options)
        model = training.open_initial_model(options)
        options = training.with_sizes(options, model, *WINDOW_SIZES)
        squad_run = make_run(options, model, strategy)
        if options.do_train:
            config = training.training_config(options, squad_run, options.schedule)
            squad_run.train(config, train, asked)
        else:
            squad_run.restore()
        if options.do_predict:
            squad_run.write_answers(asked, scores=options.do_eval, report=options.report)
        export(given, squad_run)
        write_record(options.output_dir, given, squad_run.results)
    logging.info("Wrote %s", options.output_dir)


def read_questions(
    options: Squad, strategy: "tf.distribute.Strategy"
) -> "tuple[QuestionData | None, QuestionData | None]":
    """The questions to train on, and those to answer; None without --do_train, --do_predict."""
    from bert_tf.cli.training import shared_size
    from bert_tf.squad.run import questions_to_answer, training_questions

    train = None
    asked = None
    if options.do_predict:
        asked = questions_to_answer(
            options.predict_file,
            options.datasets.tfds_name,
            have_answers=options.do_eval,
            batch_size=shared_size("predict_batch_size", options.predict_batch_size, strategy),
        )
    if options.do_train:
        train = training_questions(
            options.train_file,
            options.datasets.tfds_name,
            version_2_with_negative=options.may_have_no_answer,
        )
    return train, asked


def make_run(
    options: Squad, model: "PretrainedModel", strategy: "tf.distribute.Strategy"
) -> "SquadRun":
    """The run of a model on questions."""
    from bert_tf.cli.training import run_arguments
    from bert_tf.squad.answers import AnswerConfig
    from bert_tf.squad.run import SquadRun, null_threshold

    sizes = options.windows.sizes()
    threshold = null_threshold(
        options.null_score_diff_threshold,
        model.source,
        is_trained=options.do_train,
        is_used=options.may_have_no_answer,
    )
    return SquadRun(
        sizes=sizes,
        config=AnswerConfig.of(options.answers, version_2_with_negative=options.may_have_no_answer),
        threshold=threshold,
        **run_arguments(options, model, strategy, sizes.max_seq_length),
    )


def export(options: Squad, run: "SquadRun") -> None:
    """Exports a SavedModel that takes questions and contexts, if --export_dir is given.

    Options that are not given are as stored with the model.
    """
    from bert_tf.cli import training

    threshold = {}
    if options.may_have_no_answer:  # otherwise every question has an answer
        threshold = {"null_score_diff_threshold": options.null_score_diff_threshold}
    training.export(
        options,
        run.model,
        task="question_answering",
        version_2_with_negative=options.version_2_with_negative,
        n_best_size=options.answers.n_best_size,
        max_answer_length=options.answers.max_answer_length,
        top_k=min(5, options.answers.n_best_size),
        **options.windows.given(),
        **threshold,
    )


if __name__ == "__main__":
    run(main)
