"""Documents -> masked instances -> the values of pre-training records.

pair        A = he went home        B = it was late                    next
tokens      [CLS] he went home [SEP] it was late [SEP]
segments      0   0   0    0     0   1  1   1      1
masked      [CLS] he went [MASK] [SEP] it was late [SEP]
positions   3       labels   home
"""

import collections
import dataclasses
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from data_gen.masking import MaskedIds, MaskingRules, mask_ids
from data_gen.pairs import Corpus, Pair, Sentence, document_pairs

NUM_SPECIAL_TOKENS = 3  # [CLS], [SEP] and [SEP]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the instances depend on, named as the flags."""

    max_seq_length: int  # S
    max_predictions_per_seq: int  # P
    masked_lm_prob: float
    short_seq_prob: float
    dupe_factor: int
    random_seed: int
    do_whole_word_mask: bool


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What of a vocabulary the instances need."""

    cls_id: int
    sep_id: int
    mask_id: int
    unk_id: int
    ids: tuple[int, ...]  # of all pieces, in file order
    continues_word: tuple[bool, ...]  # [V], by id: the piece begins with ##

    @classmethod
    def from_pieces(cls, vocab: dict[str, int]) -> "Vocabulary":
        """From a tokenizer's `vocab`, which has the four special pieces."""
        continues_word = [False] * (max(vocab.values()) + 1)
        for piece, number in vocab.items():
            continues_word[number] = piece.startswith("##")
        specials = (vocab[piece] for piece in ("[CLS]", "[SEP]", "[MASK]", "[UNK]"))
        return cls(*specials, tuple(vocab.values()), tuple(continues_word))


class Instance(NamedTuple):
    """A sequence of length L as the model is to see it."""

    masked: MaskedIds
    segment_ids: list[int]  # [L]
    is_random_next: bool


class InstanceMaker:
    """Makes instances of documents; holds nothing but its settings."""

    def __init__(self, settings: Settings, vocabulary: Vocabulary):
        self._settings = settings
        self._vocabulary = vocabulary
        self._rules = MaskingRules(
            masked_lm_prob=settings.masked_lm_prob,
            max_predictions_per_seq=settings.max_predictions_per_seq,
            mask_id=vocabulary.mask_id,
            special_ids=frozenset([vocabulary.cls_id, vocabulary.sep_id]),
            vocab_ids=vocabulary.ids,
            continues_word=vocabulary.continues_word,
            do_whole_word_mask=settings.do_whole_word_mask,
        )

    def instances(
        self,
        documents: Sequence[Sequence[Sentence]],
        *,
        first_document: int,
        corpus: Corpus,
        rng: random.Random,
    ) -> Iterator[Instance]:
        """`dupe_factor` passes over documents, each with other cuts, other pairs and other masks.

        Args:
          documents: documents that follow one another in `corpus`.
          first_document: the number of the first of them.
          corpus: where random next segments come from.
          rng: draws everything.
        """
        for _ in range(self._settings.dupe_factor):
            for index, document in enumerate(documents, start=first_document):
                pairs = document_pairs(
                    document,
                    document_index=index,
                    corpus=corpus,
                    max_num_tokens=self._settings.max_seq_length - NUM_SPECIAL_TOKENS,
                    short_seq_prob=self._settings.short_seq_prob,
                    rng=rng,
                )
                for pair in pairs:
                    yield self._instance(pair, rng)

    def _instance(self, pair: Pair, rng: random.Random) -> Instance:
        cls_id, sep_id = self._vocabulary.cls_id, self._vocabulary.sep_id
        input_ids = [cls_id, *pair.tokens_a, sep_id, *pair.tokens_b, sep_id]
        segment_ids = [0] * (len(pair.tokens_a) + 2) + [1] * (len(pair.tokens_b) + 1)
        return Instance(mask_ids(input_ids, self._rules, rng), segment_ids, pair.is_random_next)

    def record_values(self, instance: Instance) -> dict[str, list]:
        """The features of `bert_tf.records.pretraining_record`, padded with 0."""
        masked = instance.masked
        length, num_masked = len(masked.input_ids), len(masked.positions)
        padding = [0] * (self._settings.max_seq_length - length)  # [S - L]
        no_positions = [0] * (self._settings.max_predictions_per_seq - num_masked)  # [P - n]
        return {
            "input_ids": masked.input_ids + padding,
            "input_mask": [1] * length + padding,
            "segment_ids": instance.segment_ids + padding,
            "masked_lm_positions": masked.positions + no_positions,
            "masked_lm_ids": masked.labels + no_positions,
            "masked_lm_weights": [1.0] * num_masked + [0.0] * len(no_positions),
            "next_sentence_labels": [int(instance.is_random_next)],
        }

    def count(self, instances: Iterable[Instance], counts: collections.Counter) -> Iterator:
        """Hands instances on and adds to `counts` what the report tells of them."""
        mask_id = self._vocabulary.mask_id
        for instance in instances:
            input_ids, positions, labels = instance.masked
            shown = [input_ids[position] for position in positions]
            counts["instances"] += 1
            counts["instance_tokens"] += len(input_ids)
            counts["full_instances"] += len(input_ids) == self._settings.max_seq_length
            counts["random_next"] += instance.is_random_next
            counts["masked"] += len(positions)
            counts["masked_as_mask"] += shown.count(mask_id)
            counts["masked_as_itself"] += sum(map(int.__eq__, shown, labels))
            yield instance
