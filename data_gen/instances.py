"""Documents -> masked instances -> pre-training records.

pair        A = he went home        B = it was late                    next
tokens      [CLS] he went home [SEP] it was late [SEP]
segments      0   0   0    0     0   1  1   1      1
masked      [CLS] he went [MASK] [SEP] it was late [SEP]
positions   3       labels   home
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_tf.data.records import pretraining_record
from data_gen import wire
from data_gen.corpus import TOKEN_BYTES, TOKEN_TYPE, Corpus, MemoryCorpus
from data_gen.documents import Counts
from data_gen.draws import Draws
from data_gen.masking import (
    MASK_PROBABILITY,
    MASKED,
    UNCHANGED,
    Masked,
    MaskingRules,
    chosen_positions,
    mask,
)
from data_gen.pairs import Pair, document_pairs
from data_gen.settings import NUM_SPECIAL_TOKENS, Settings
from data_gen.spaced_words import ID_BITS

TOKENS_AT_A_TIME = 1 << 18


class InstanceMaker:
    """Makes instances and records of tokenized documents.

    Attributes:
      row_type: what is kept of an instance until it is a record: half as many bytes.
    """

    def __init__(self, settings: Settings, vocab: Mapping[str, int]):
        """Prepares for one vocabulary.

        Args:
          settings: of the instances.
          vocab: word piece to id; has [CLS], [SEP] and [MASK].
        """
        self._settings = settings
        size, num_predictions = settings.max_seq_length, settings.max_predictions_per_seq
        self._cls, self._sep = (
            np.array(vocab[piece], TOKEN_TYPE).tobytes() for piece in ("[CLS]", "[SEP]")
        )
        self._padding = bytes(TOKEN_BYTES * size)
        most = max(vocab.values())
        continues_word = np.zeros(most + 1, bool)
        continues_word[[vocab[piece] for piece in vocab if piece.startswith("##")]] = True
        self._rules = MaskingRules(
            masked_lm_prob=settings.masked_lm_prob,
            max_predictions_per_seq=num_predictions,
            mask_id=vocab["[MASK]"],
            vocab_ids=np.array([*vocab.values()]),
            continues_word=continues_word,
            do_whole_word_mask=settings.do_whole_word_mask,
            words_from_spaces=settings.words_from_spaces,
            one_draw_per_word=settings.one_draw_per_word,
        )
        self._record = pretraining_record(
            max_seq_length=size, max_predictions_per_seq=num_predictions
        )
        an_id, a_place = np.min_scalar_type(most), np.min_scalar_type(size)
        self.row_type = np.dtype(
            [
                ("key", np.uint64),  # of the shuffle
                ("input_ids", an_id, size),  # after masking
                ("lengths", a_place, 2),  # of A and B
                ("num_masked", a_place),
                ("positions", a_place, num_predictions),  # ascending
                ("labels", an_id, num_predictions),  # the original ids at the positions
                ("is_random_next", np.bool_),
            ]
        )

    def rows(
        self,
        block: MemoryCorpus,
        *,
        first_document: int,
        corpus: Corpus,
        rng: random.Random,
        counts: Counts,
    ) -> Iterator[np.ndarray]:
        """`dupe_factor` passes over the documents, each with other cuts, pairs and masks.

        Args:
          block: consecutive documents of `corpus`.
          first_document: the number of the first of them in `corpus`.
          corpus: where random next segments are drawn from.
          rng: the source of all random numbers.
          counts: what the report needs is added to it.

        Yields:
          Some instances in the order in which they were drawn: of `row_type`, without keys.
        """
        size = self._settings.max_seq_length
        draws = Draws(rng, longest=size, threshold=MASK_PROBABILITY)
        rows_at_a_time = 1 + TOKENS_AT_A_TIME // size
        pairs: list[Pair] = []
        masked: list[Masked] = []
        for _ in range(self._settings.dupe_factor):
            for document in range(block.num_documents):
                for pair in document_pairs(
                    block,
                    document,
                    first_document=first_document,
                    corpus=corpus,
                    max_num_tokens=size - NUM_SPECIAL_TOKENS,
                    short_seq_prob=self._settings.short_seq_prob,
                    draws=draws,
                ):
                    pairs.append(pair)
                    masked.append(mask(pair, self._rules, draws))
                    if len(pairs) == rows_at_a_time:
                        yield self._counted(self.make_rows(pairs, masked), counts)
                        pairs, masked = [], []
        if pairs:
            yield self._counted(self.make_rows(pairs, masked), counts)
        draws.put_into(rng)

    def input_ids(self, pairs: Sequence[Pair]) -> np.ndarray:
        """[CLS] A [SEP] B [SEP] of each pair, padded with 0: int32 [B, S]."""
        size = TOKEN_BYTES * self._settings.max_seq_length
        parts = []
        for a, b, _ in pairs:
            padding = self._padding[: size - len(a) - len(b) - TOKEN_BYTES * NUM_SPECIAL_TOKENS]
            parts += (self._cls, a, self._sep, b, self._sep, padding)
        return np.frombuffer(b"".join(parts), TOKEN_TYPE).reshape(len(pairs), -1) & ID_BITS

    def make_rows(self, pairs: Sequence[Pair], masked: Sequence[Masked]) -> np.ndarray:
        """Pairs and what `mask` gave for each -> rows [B]."""
        input_ids = self.input_ids(pairs)  # [B, S]
        lengths = np.array([pair.lengths for pair in pairs])  # [B, 2]
        position = chosen_positions(masked, lengths[:, 0], self._rules)  # [all masked tokens]
        choice = np.fromiter(itertools.chain.from_iterable(m.choices for m in masked), np.int64)
        numbers = np.array([len(m.choices) for m in masked])  # [B]
        row = np.repeat(np.arange(len(pairs)), numbers)
        place = np.arange(len(row)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        behind = self._settings.max_seq_length
        positions = np.full((len(pairs), self._settings.max_predictions_per_seq), behind)  # [B, P]
        positions[row, place] = position
        positions.sort(axis=1)
        is_position = positions < behind
        positions *= is_position
        rows = np.zeros(len(pairs), self.row_type)
        rows["positions"] = positions
        rows["labels"] = np.take_along_axis(input_ids, positions, 1) * is_position
        changed = choice != UNCHANGED
        shown = np.where(choice == MASKED, self._rules.mask_id, self._rules.vocab_ids[choice])
        input_ids[row[changed], position[changed]] = shown[changed]
        rows["input_ids"] = input_ids
        rows["lengths"] = lengths
        rows["num_masked"] = numbers
        rows["is_random_next"] = [pair.is_random_next for pair in pairs]
        return rows

    def records(self, rows: np.ndarray) -> Iterator[bytes]:
        """Serialized records (`bert_tf.data.records.pretraining_record`)."""
        step = 1 + TOKENS_AT_A_TIME // self._settings.max_seq_length
        for begin in range(0, len(rows), step):
            values = self.record_values(rows[begin : begin + step])
            yield from wire.serialize(self._record, values)

    def record_values(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The features of records: [B, S], [B, P], and [B, 1]."""
        size, num_predictions = (
            self._settings.max_seq_length,
            self._settings.max_predictions_per_seq,
        )
        length_a, length_b = rows["lengths"].astype(np.int64).T[..., np.newaxis]  # [B, 1]
        is_token = np.arange(size) < length_a + length_b + NUM_SPECIAL_TOKENS
        is_masked = np.arange(num_predictions) < rows["num_masked"][:, np.newaxis]
        return {
            "input_ids": rows["input_ids"],
            "input_mask": is_token,
            "segment_ids": is_token & (np.arange(size) >= length_a + 2),
            "masked_lm_positions": rows["positions"],
            "masked_lm_ids": rows["labels"],
            "masked_lm_weights": is_masked,
            "next_sentence_labels": rows["is_random_next"][:, np.newaxis],
        }

    def _counted(self, rows: np.ndarray, counts: Counts) -> np.ndarray:
        lengths = rows["lengths"].sum(axis=1, dtype=np.int64) + NUM_SPECIAL_TOKENS
        positions = rows["positions"].astype(np.int64)
        shown = np.take_along_axis(rows["input_ids"], positions, 1)
        is_masked = positions > 0  # at 0 is [CLS]
        found = {
            "instances": len(rows),
            "instance_tokens": lengths.sum(),
            "full_instances": (lengths == self._settings.max_seq_length).sum(),
            "random_next": rows["is_random_next"].sum(),
            "masked": is_masked.sum(),
            "masked_as_mask": (is_masked & (shown == self._rules.mask_id)).sum(),
            "masked_as_itself": (is_masked & (shown == rows["labels"])).sum(),
        }
        counts.update({name: int(number) for name, number in found.items()})
        return rows
