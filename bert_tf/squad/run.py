"""Fine-tuning on questions: a `Run` on windows, with answers and their scores.

    pieces         [CLS] who founded it ? [SEP] ru ##pre ##cht founded it [SEP]
    start_logits     0.1 ...                    7.9 0.3   0.2     1.1 ...
    end_logits       0.4 ...                    0.2 0.1   8.3     0.9 ...

The logits of [CLS] are the score of "no answer in this window".
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.checkpoints.metadata import Weights
from bert_tf.data.records import Record
from bert_tf.files import write_text
from bert_tf.heads import head_named
from bert_tf.squad import evaluation, files
from bert_tf.squad.answers import AnswerConfig, Prediction, make_alignment, rank_answers
from bert_tf.squad.data import (
    TFDS_PREDICT,
    TFDS_TRAIN,
    SquadFile,
    TrainingExample,
    original_order,
    read_squad,
    read_squad_tfds,
    training_examples,
)
from bert_tf.squad.evaluation import main_scores
from bert_tf.squad.options import NULL_THRESHOLD
from bert_tf.squad.windows import (
    Window,
    WindowSizes,
    prediction_windows,
    record_values,
    squad_record,
    training_windows,
)
from bert_tf.training.fine_tuning import Run, SplitData
from bert_tf.training.log import write_final_evaluation


@dataclasses.dataclass(kw_only=True)
class QuestionData(SplitData):
    """Questions to train on, or to answer.

    Attributes:
      questions: the file; None in training, whose examples have one answer each.
      windows: the windows of all examples, in order; set by `SquadRun.prepare`.
    """

    examples: Sequence[TrainingExample] | Sequence = ()
    questions: SquadFile | None = None
    windows: Sequence[Window] = ()

    def __post_init__(self):
        if self.questions:
            self.examples = self.questions.examples

    @property
    def num_records(self) -> int:
        """The number of windows."""
        return len(self.windows)

    @property
    def num_counted(self) -> int:
        """The number of questions, from which the steps of an epoch are computed.

        As in the original, these steps train on only a share of the windows if contexts are long.
        """
        return len(self.examples)


@dataclasses.dataclass(kw_only=True, eq=False)
class SquadRun(Run):
    """Fine-tuning on questions about contexts.

    Attributes:
      sizes: the sizes of the windows.
      config: how questions are answered.
      threshold: null odds above which the answer is "".
    """

    sizes: WindowSizes
    config: AnswerConfig
    threshold: float = 0.0
    head = head_named("question_answering")

    def __post_init__(self):
        self.metric = "best_f1" if self.config.version_2_with_negative else "f1"

    def facts(self) -> dict[str, Any]:
        """The model's facts: sizes of windows, and whether questions may have no answer."""
        version_2 = {"version_2_with_negative": self.config.version_2_with_negative}
        return dataclasses.asdict(self.sizes) | version_2

    # ------------------------------------------------------------------------ records

    def prepare(self, data: QuestionData) -> QuestionData:
        """Cuts the questions into windows, and writes their records if there are any."""
        if data.digest:
            return data
        make_windows = prediction_windows if data.questions else training_windows
        data.windows = make_windows(data.examples, self.model.tokenizer, self.sizes)
        if data.windows:
            super().prepare(data)
        if data.questions:
            # The scores also depend on gold answers, and on how questions are answered.
            golds = [(example.qas_id, example.answers) for example in data.examples]
            config = dataclasses.replace(self.config, verbose_logging=False)
            text = repr((golds, data.digest, config))
            data.digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        else:
            data.windows = ()  # training needs the records only
        return data

    def record(self, data: QuestionData) -> Record:
        """The record of a window, as in `squad_record`."""
        config = self.model.config
        return squad_record(
            max_seq_length=self.sizes.max_seq_length,
            is_training=data.questions is None,
            vocab_size=config.vocab_size,
            type_vocab_size=config.type_vocab_size,
        )

    def rows(self, data: QuestionData) -> Iterator[dict]:
        """The values of the record of each window."""
        return (record_values(window, self.sizes.max_seq_length) for window in data.windows)

    # ------------------------------------------------------------------------ answers

    def window_logits(self, data: QuestionData) -> list[list[np.ndarray]]:
        """The start logits of all windows in order, each float32 [S], and the end logits.

        In packed batches S is the number of pieces T. Otherwise S is max_seq_length, as in the
        original, where the logits of padding compete for a place among the best.

        Raises:
          InputError: logits are NaN or infinite.
        """
        if not self.prepare(data).windows:
            return [[], []]
        if self.batching.bucket_by_length:
            lengths = [len(window.input_ids) for window in data.windows]
        else:
            lengths = [self.batching.max_seq_length] * len(data.windows)
        logits = []
        for rows in self.outputs(data).values():
            logits.append([row[:length] for row, length in zip(rows, lengths, strict=True)])
        return logits

    def predict(self, data: QuestionData) -> list[Prediction]:
        """The answers to the questions, in order."""
        logits = self.window_logits(data)
        align = make_alignment(data.windows, self.model.tokenizer, self.config)
        return rank_answers(data.examples, data.windows, *logits, align, self.config)

    def write_answers(self, data: QuestionData, *, scores: bool, report: bool) -> None:
        """Writes the answers to questions, their scores and report.html.

        Args:
          data: the questions.
          scores: whether to score them as the official scripts do, in eval_results.txt, and to
            store the best threshold of no answer with the model.
          report: whether to write report.html.

        Raises:
          InputError: the folder cannot be written to.
        """
        predictions = self.predict(data)
        answers = evaluation.decided(predictions, threshold=self.threshold)
        files.write_prediction_files(self.output_dir, predictions, answers)
        results: dict[str, float] = {}
        if scores:
            results = evaluation.scores(data.questions, predictions, threshold=self.threshold)
            results["global_step"] = self.step
            self._write_scores(results)
            threshold = evaluation.threshold_to_keep(data.questions, predictions, results)
            if threshold is not None:
                files.store_threshold(self.output_dir, threshold)
        if report:
            from bert_tf.squad.report import report_html

            page = report_html(data.questions, predictions, answers, totals=results)
            write_text(f"{self.output_dir}/report.html", page)
            logging.info("Wrote %s/report.html", self.output_dir)

    def _write_scores(self, results: Mapping[str, float]) -> None:
        """Writes eval_results.txt, and the last points of the curves."""
        self.write_results(results)
        points = {"global_step": results["global_step"], **main_scores(results)}
        write_final_evaluation(self.output_dir, points)

    def evaluate(self, data: QuestionData) -> dict[str, float]:
        """The official scores of all questions together, as `main_scores`."""
        predictions = self.predict(data)
        results = evaluation.scores(data.questions, predictions, threshold=self.threshold)
        return main_scores(results)


# ---------------------------------------------------------------------------- questions of a run


def questions_to_answer(
    path: str | None, tfds_name: str | None, *, have_answers: bool, batch_size: int
) -> QuestionData:
    """The questions of a file or, without one, of a dataset.

    Args:
      path: the path of the file.
      tfds_name: the dataset of tensorflow-datasets.
      have_answers: whether the questions must have gold answers.
      batch_size: windows of a prediction step.

    Raises:
      InputError: the questions cannot be read, or have no gold answers.
    """
    questions = _read(path, tfds_name, TFDS_PREDICT)
    if have_answers:
        evaluation.check_golds(questions)
    return QuestionData(name="eval", questions=questions, batch_size=batch_size)


def training_questions(
    path: str | None, tfds_name: str | None, *, version_2_with_negative: bool
) -> QuestionData:
    """The questions to train on, in the original's order; see `questions_to_answer`."""
    questions = _read(path, tfds_name, TFDS_TRAIN)
    examples = training_examples(questions, version_2_with_negative=version_2_with_negative)
    return QuestionData(name="train", examples=original_order(examples))


def _read(path: str | None, tfds_name: str | None, split: str) -> SquadFile:
    """The questions of a file or, without one, of a split of a dataset."""
    return read_squad(path) if path else read_squad_tfds(tfds_name, split)


def null_threshold(
    option: float | None, source: Weights, *, is_trained: bool, is_used: bool
) -> float:
    """The threshold of no answer: the option, or that stored with the model, or NULL_THRESHOLD.

    In training a stored threshold is ignored, so that a repeated command gives the same answers.

    Args:
      option: --null_score_diff_threshold.
      source: the model.
      is_trained: whether the command trains it.
      is_used: whether questions may have no answer.
    """
    stored = None if is_trained else source.metadata.null_score_diff_threshold
    if option is not None:
        threshold = option
        origin = "as given"
    elif stored is not None:
        threshold = stored
        origin = f"stored with {source.path}"
    else:
        threshold = NULL_THRESHOLD
        origin = "default"
    if is_used:
        logging.info("null_score_diff_threshold %s (%s)", threshold, origin)
    return threshold
