"""Documents -> masked instances -> pre-training records.

pair        A = he went home        B = it was late                    next
tokens      [CLS] he went home [SEP] it was late [SEP]
segments      0   0   0    0     0   1  1   1      1
masked      [CLS] he went [MASK] [SEP] it was late [SEP]
positions   3       labels   home
"""

import dataclasses
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence

from bert_tf.data.records import pretraining_record
from bert_tf.errors import InputError
from data_gen.documents import Counts
from data_gen.masking import MaskedIds, MaskingRules, mask_ids
from data_gen.pairs import Corpus, Pair, Sentence, document_pairs

NUM_SPECIAL_TOKENS = 3  # [CLS], [SEP] and [SEP]
RANGES = {  # setting: least, most, and how an error says it
    "max_seq_length": (NUM_SPECIAL_TOKENS + 2, math.inf, "at least 5: [CLS] A [SEP] B [SEP]"),
    "max_predictions_per_seq": (1, math.inf, "at least 1"),
    "dupe_factor": (1, math.inf, "at least 1"),
    "masked_lm_prob": (sys.float_info.min, 1, "a share above 0, at most 1, such as 0.15"),
    "short_seq_prob": (0, 1, "a share from 0 to 1, such as 0.1"),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the instances depend on besides text and vocabulary; named as the flags.

    Raises:
      InputError: a value is out of its range.
    """

    max_seq_length: int  # S
    max_predictions_per_seq: int  # P
    masked_lm_prob: float
    short_seq_prob: float
    dupe_factor: int
    random_seed: int
    do_whole_word_mask: bool

    def __post_init__(self) -> None:
        for name, (least, most, expected) in RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise InputError(f"--{name}={value}", expected, f"use another --{name}")


class InstanceMaker:
    """Makes instances and records of tokenized documents."""

    def __init__(self, settings: Settings, vocab: Mapping[str, int]):
        """Prepares for one vocabulary.

        Args:
          settings: of the instances.
          vocab: word piece to id; has [CLS], [SEP] and [MASK].
        """
        self._settings = settings
        self._cls_id, self._sep_id = vocab["[CLS]"], vocab["[SEP]"]
        self._rules = MaskingRules(
            masked_lm_prob=settings.masked_lm_prob,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            mask_id=vocab["[MASK]"],
            special_ids=frozenset([self._cls_id, self._sep_id]),
            vocab_ids=tuple(vocab.values()),
            continuation_ids=frozenset(vocab[piece] for piece in vocab if piece.startswith("##")),
            do_whole_word_mask=settings.do_whole_word_mask,
        )
        self._record = pretraining_record(
            max_seq_length=settings.max_seq_length,
            max_predictions_per_seq=settings.max_predictions_per_seq,
        )

    def records(
        self,
        documents: Sequence[Sequence[Sentence]],
        *,
        first_document: int,
        corpus: Corpus,
        rng: random.Random,
        counts: Counts,
    ) -> Iterator[bytes]:
        """`dupe_factor` passes over the documents, each with other cuts, pairs and masks.

        Args:
          documents: consecutive documents of `corpus`.
          first_document: the number of the first of them in `corpus`.
          corpus: where random next segments are drawn from.
          rng: the source of all random numbers.
          counts: what the report needs is added to it.

        Yields:
          Serialized records (`bert_tf.data.records.pretraining_record`).
        """
        for _ in range(self._settings.dupe_factor):
            for index, document in enumerate(documents, start=first_document):
                for pair in document_pairs(
                    document,
                    document_index=index,
                    corpus=corpus,
                    max_num_tokens=self._settings.max_seq_length - NUM_SPECIAL_TOKENS,
                    short_seq_prob=self._settings.short_seq_prob,
                    rng=rng,
                ):
                    masked = mask_ids(self.input_ids(pair), self._rules, rng)
                    self._count(pair, masked, counts)
                    yield self._record.serialize(self.record_values(pair, masked))

    def input_ids(self, pair: Pair) -> list[int]:
        """[CLS] A [SEP] B [SEP], of length L."""
        return [self._cls_id, *pair.tokens_a, self._sep_id, *pair.tokens_b, self._sep_id]

    def record_values(self, pair: Pair, masked: MaskedIds) -> dict[str, list]:
        """The features of the record, padded with 0 to [S] and [P]."""
        segment_ids = [0] * (len(pair.tokens_a) + 2) + [1] * (len(pair.tokens_b) + 1)
        length, num_masked = len(masked.input_ids), len(masked.positions)
        padding = [0] * (self._settings.max_seq_length - length)  # [S - L]
        no_positions = [0] * (self._settings.max_predictions_per_seq - num_masked)  # [P - n]
        return {
            "input_ids": masked.input_ids + padding,
            "input_mask": [1] * length + padding,
            "segment_ids": segment_ids + padding,
            "masked_lm_positions": masked.positions + no_positions,
            "masked_lm_ids": masked.labels + no_positions,
            "masked_lm_weights": [1.0] * num_masked + [0.0] * len(no_positions),
            "next_sentence_labels": [int(pair.is_random_next)],
        }

    def _count(self, pair: Pair, masked: MaskedIds, counts: Counts) -> None:
        input_ids, positions, labels = masked
        shown = [input_ids[position] for position in positions]
        counts["instances"] += 1
        counts["instance_tokens"] += len(input_ids)
        counts["full_instances"] += len(input_ids) == self._settings.max_seq_length
        counts["random_next"] += pair.is_random_next
        counts["masked"] += len(positions)
        counts["masked_as_mask"] += shown.count(self._rules.mask_id)
        counts["masked_as_itself"] += sum(map(int.__eq__, shown, labels))
