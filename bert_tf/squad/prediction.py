"""Questions -> answers, by a model in any state: cut into windows once, answered at any time."""

import dataclasses
import hashlib
from collections.abc import Sequence

from bert_tf.data.batches import BatchingConfig
from bert_tf.data.shards import RecordFiles
from bert_tf.files import digest_of
from bert_tf.squad import thresholds
from bert_tf.squad.alignment import make_alignment
from bert_tf.squad.answers import AnswerSizes, Prediction, rank_answers
from bert_tf.squad.data import SquadFile
from bert_tf.squad.model import window_logits
from bert_tf.squad.windows import Window
from bert_tf.tokenization.wordpiece import FullTokenizer
from bert_tf.training.trainer import Trainer


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerConfig:
    """How windows are answered."""

    sizes: AnswerSizes
    batching: BatchingConfig
    predict_batch_size: int
    version_2_with_negative: bool
    legacy_alignment: bool = True
    verbose_logging: bool = False


@dataclasses.dataclass(frozen=True)
class AskedQuestions:
    """Questions with their windows.

    Attributes:
      questions: in the order of their file.
      windows: of all of them, in order.
      records: of the windows; None if there are none.
      tokenizer: that made the windows.
      config: how they are answered.
    """

    questions: SquadFile
    windows: Sequence[Window]
    records: RecordFiles | None
    tokenizer: FullTokenizer
    config: AnswerConfig

    @property
    def digest(self) -> str:
        """A hash of all that a score depends on besides the model."""
        golds = [(one.qas_id, one.answers) for one in self.questions.examples]
        records = digest_of(self.records.paths[0]) if self.records else ""
        config = self.config
        answered = (config.sizes, config.version_2_with_negative, config.legacy_alignment)
        return hashlib.blake2b(
            repr((golds, records, answered)).encode(), digest_size=16
        ).hexdigest()

    def predict(self, trainer: Trainer) -> list[Prediction]:
        """The answers of the trainer's model as it is now, in the order of the questions."""
        config, start_logits, end_logits = self.config, [], []
        if self.records:
            start_logits, end_logits = window_logits(
                trainer,
                self.records,
                self.windows,
                config.batching,
                batch_size=config.predict_batch_size,
            )
        align = make_alignment(
            self.windows,
            self.tokenizer,
            legacy_alignment=config.legacy_alignment,
            verbose_logging=config.verbose_logging,
        )
        return rank_answers(
            self.questions.examples,
            self.windows,
            start_logits,
            end_logits,
            align,
            sizes=config.sizes,
            version_2_with_negative=config.version_2_with_negative,
        )

    def score(
        self, predictions: Sequence[Prediction], *, null_score_diff_threshold: float = 0.0
    ) -> dict[str, float]:
        """The official scores of answers, as `thresholds.scores`."""
        threshold = null_score_diff_threshold
        return thresholds.scores(self.questions, predictions, null_score_diff_threshold=threshold)
