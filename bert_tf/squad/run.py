"""Fine-tuning on questions: windows, answers and scores as a `Run` needs them.

    pieces         [CLS] who founded it ? [SEP] ru ##pre ##cht founded it [SEP]
    start_logits     0.1 ...                    7.9 0.3   0.2     1.1 ...
    end_logits       0.4 ...                    0.2 0.1   8.3     0.9 ...

The logits of [CLS] score "no answer in this window".
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.data.records import Record
from bert_tf.heads import head_named
from bert_tf.squad.answers import AnswerConfig, Prediction, make_alignment, rank_answers
from bert_tf.squad.data import SquadFile, TrainingExample
from bert_tf.squad.evaluation import main_scores, scores
from bert_tf.squad.windows import (
    Window,
    WindowSizes,
    prediction_windows,
    record_values,
    squad_record,
    training_windows,
)
from bert_tf.training.fine_tuning import Run, SplitData


@dataclasses.dataclass(kw_only=True)
class QuestionData(SplitData):
    """Questions to train on, or to answer.

    Attributes:
      questions: the file; None in training, whose examples have one answer each.
      windows: of all examples, in order; set by `SquadRun.prepare`.
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


@dataclasses.dataclass(kw_only=True, eq=False)
class SquadRun(Run):
    """Fine-tuning on questions about contexts.

    Attributes:
      sizes: of the windows.
      config: how they are answered.
      threshold: of null odds, above which `evaluate` takes a question as unanswered.
    """

    sizes: WindowSizes
    config: AnswerConfig
    threshold: float = 0.0
    head = head_named("question_answering")

    def __post_init__(self):
        self.metric = "best_f1" if self.config.version_2_with_negative else "f1"

    def facts(self) -> dict[str, Any]:
        """Sizes of windows, and whether questions may have no answer."""
        version_2 = {"version_2_with_negative": self.config.version_2_with_negative}
        return dataclasses.asdict(self.sizes) | version_2

    # ------------------------------------------------------------------------ records

    def prepare(self, data: QuestionData) -> QuestionData:
        """Cuts the questions into windows, and writes their records if there are any."""
        if data.digest:
            return data
        make = prediction_windows if data.questions else training_windows
        data.windows = make(data.examples, self.model.tokenizer, self.sizes)
        if data.windows:
            super().prepare(data)
        if data.questions:
            golds = [(one.qas_id, one.answers) for one in data.examples]
            answered = dataclasses.replace(self.config, verbose_logging=False)
            text = repr((golds, data.digest, answered))
            data.digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        else:
            data.windows = ()  # the records have them
        return data

    def record(self, data: QuestionData) -> Record:
        """See `squad_record`."""
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
        """Start logits, then end logits of every window, in order, each float32 [S].

        Of packed batches S is the number of pieces T. Otherwise S is max_seq_length, as in the
        original, which lets the logits of padding compete for a place among the best.

        Raises:
          InputError: logits are NaN or infinite.
        """
        if not self.prepare(data).windows:
            return [[], []]
        by_length, whole = self.batching.bucket_by_length, self.batching.max_seq_length
        lengths = [len(w.input_ids) if by_length else whole for w in data.windows]
        return [
            [row[:length] for row, length in zip(rows, lengths, strict=True)]
            for rows in self.outputs(data).values()
        ]

    def predict(self, data: QuestionData) -> list[Prediction]:
        """The answers to the questions, in order."""
        logits = self.window_logits(data)
        align = make_alignment(data.windows, self.model.tokenizer, self.config)
        return rank_answers(data.examples, data.windows, *logits, align, self.config)

    def evaluate(self, data: QuestionData) -> dict[str, float]:
        """The official scores of all questions together, as `main_scores`."""
        return main_scores(scores(data.questions, self.predict(data), threshold=self.threshold))
