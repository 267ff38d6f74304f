"""Documents -> pairs of segments -> masked instances -> pre-training records.

pair        A = he went home        B = it was late                    next
tokens      [CLS] he went home [SEP] it was late [SEP]
segments      0   0   0    0     0   1  1   1      1
masked      [CLS] he went [MASK] [SEP] it was late [SEP]
positions   3       labels   home

Random numbers are drawn in the original's order, so one `random.Random` for a whole corpus gives
the original's records byte for byte.

With --pack a record holds several instances, which are drawn as without it:

record      [CLS] he went [MASK] [SEP] it was late [SEP] [CLS] no [SEP] [MASK] [SEP]
sequences     1   1   1     1      1    1   1   1    1     2   2    2     2      2
positions   3 12    labels   home yes

Shapes: B instances, S max_seq_length, P max_predictions_per_seq; R packed records of K sequences.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from bert_tf.data import packed_sizes
from bert_tf.data.records import PACKED, DataSettings, fill_rows, pretraining_record
from bert_tf.tokenization.wordpiece import joined
from data_gen.corpus import ID_BITS, TOKEN_BYTES, TOKEN_TYPE, Corpus
from data_gen.documents import Counts
from data_gen.masking import MASKED, NUM_SPECIAL_TOKENS, UNCHANGED, Masked, Pair, mask
from data_gen.serialization import serialize

TOKENS_AT_A_TIME = 1 << 18  # of the rows in memory
DOCUMENT_DRAWS = 10  # to find another document


def document_pairs(
    corpus: Corpus, document: int, settings: DataSettings, rng: random.Random
) -> Iterator[Pair]:
    """Cuts a document into pairs (paper, appendix A.2; `create_instances_from_document`).

    Sentences are collected until they have the tokens of a sequence, or more; then they are divided
    at random into A and a rest. In half of the pairs B is that rest. In the others B is drawn from
    another document, and the rest goes into the next pair:

        document  s0 s1 s2 s3 s4 s5      a sequence holds about three sentences
        pair 1    A = s0      B = s1 s2             next
        pair 2    A = s3      B = from elsewhere    random: s4 and s5 go back
        pair 3    A = s4      B = s5                next

    A chunk of one sentence has no rest, so its B is always from elsewhere: more than half of all
    pairs are random.

    With the probability `short_seq_prob` the whole document is cut into shorter sequences, of a
    length drawn from 2 to max_seq_length - 3.

    Args:
      corpus: all documents; random next segments come from anywhere in it.
      document: the number of the document to cut.
      settings: how instances are made.
      rng: the source of all random numbers.
    """
    max_num_tokens = settings.max_seq_length - NUM_SPECIAL_TOKENS
    target_length = max_num_tokens
    if rng.random() < settings.short_seq_prob:
        target_length = rng.randint(2, max_num_tokens)
    bounds = corpus.token_bounds
    sentences = corpus.sentences(document)
    begin = sentences.start
    while begin < sentences.stop:
        end = corpus.sentences_end(range(begin, sentences.stop), target_length)
        num_sentences = end - begin
        a_end = begin + (rng.randint(1, num_sentences - 1) if num_sentences >= 2 else 1)
        first_a = bounds[begin]
        length_a = bounds[a_end] - first_a
        is_random_next = num_sentences == 1 or rng.random() < 0.5
        if is_random_next:
            first_b, length_b = random_span(corpus, document, target_length - length_a, rng)
            begin = a_end
        else:
            first_b = bounds[a_end]
            length_b = bounds[end] - first_b
            begin = end
        cut_a, cut_b = truncate_at_random_ends(length_a, length_b, max_num_tokens, rng)
        tokens_a = corpus.tokens(first_a + cut_a.start, len(cut_a))
        tokens_b = corpus.tokens(first_b + cut_b.start, len(cut_b))
        yield Pair(tokens_a, tokens_b, is_random_next)


def random_span(
    corpus: Corpus, not_document: int, min_tokens: int, rng: random.Random
) -> tuple[int, int]:
    """Sentences from a random place of another document: their first token, and how many tokens.

    If `not_document` is drawn ten times it is used, as in the original: in a corpus of one document
    the pair is labelled random although it is not.
    """
    for _ in range(DOCUMENT_DRAWS):
        document = rng.randrange(corpus.num_documents)
        if document != not_document:
            break
    sentences = corpus.sentences(document)
    return corpus.span(sentences[rng.randrange(len(sentences)) :], min_tokens)


def truncate_at_random_ends(
    length_a: int, length_b: int, max_num_tokens: int, rng: random.Random
) -> tuple[range, range]:
    """Cuts single tokens off the longer segment until both fit (`truncate_seq_pair`).

    Of two equally long segments B is cut. Each token is cut from the front or the back with equal
    probability, so that segments do not always begin or end with a sentence. A = 1 2 3 4,
    B = 5 6 7, at most 5 tokens, draws front, front:

        1 2 3 4 | 5 6 7     A is longer: cut its front
          2 3 4 | 5 6 7     a tie: cut B's front
          2 3 4 |   6 7

    Returns:
      The tokens of A and of B that stay, numbered from 0 in each.
    """
    first_a = 0
    first_b = 0
    for _ in range(length_a + length_b - max_num_tokens):
        is_front = rng.random() < 0.5
        if length_a > length_b:
            length_a -= 1
            first_a += is_front
        else:
            length_b -= 1
            first_b += is_front
    return range(first_a, first_a + length_a), range(first_b, first_b + length_b)


# ------------------------------------------------------------------------- pairs -> rows


class InstanceMaker:
    """Makes instances and records of tokenized documents.

    Attributes:
      row_type: dtype of a row: an instance in half of the bytes of its record.
    """

    def __init__(self, settings: DataSettings, vocab: Mapping[str, int]):
        """Prepares for one vocabulary.

        Args:
          settings: how instances are made.
          vocab: word piece to id; has [CLS], [SEP] and [MASK].
        """
        self._settings = settings
        self._cls = TOKEN_TYPE(vocab["[CLS]"]).tobytes()
        self._sep = TOKEN_TYPE(vocab["[SEP]"]).tobytes()
        self._mask_id = vocab["[MASK]"]
        self._vocab_ids = np.array([*vocab.values()])
        largest_id = max(vocab.values())
        self._is_continuation = np.zeros(largest_id + 1, bool)
        self._is_continuation[[vocab[piece] for piece in vocab if piece.startswith("##")]] = True

        size = settings.max_seq_length
        num_predictions = settings.max_predictions_per_seq
        prob = settings.masked_lm_prob
        self._record = pretraining_record(
            max_seq_length=size,
            max_predictions_per_seq=num_predictions,
            packed_with=prob if settings.pack else None,
        )
        self._most_sequences, self._most_predictions = packed_sizes(size, num_predictions, prob)
        self._rows_at_a_time = 1 + TOKENS_AT_A_TIME // size
        id_type = np.min_scalar_type(largest_id)
        place_type = np.min_scalar_type(size)
        self.row_type = np.dtype(
            [
                ("key", np.uint64),  # of the shuffle
                ("input_ids", id_type, size),  # after masking
                ("lengths", place_type, 2),  # of A and B
                ("num_masked", place_type),
                ("positions", place_type, num_predictions),  # ascending
                ("labels", id_type, num_predictions),  # the original ids at the positions
                ("is_random_next", np.bool_),
            ]
        )

    def rows(
        self, corpus: Corpus, documents: range, rng: random.Random, counts: Counts
    ) -> np.ndarray:
        """`dupe_factor` passes over some documents, each with other cuts, pairs and masks.

        Args:
          corpus: all documents.
          documents: the numbers of those to make instances of.
          rng: the source of all random numbers.
          counts: the numbers that the report needs are added to it.

        Returns:
          The instances in the order in which they were drawn: of `row_type`, without keys.
        """
        masked_pairs = self._masked_pairs(corpus, documents, rng)
        parts = [np.empty(0, self.row_type)]
        while drawn := list(itertools.islice(masked_pairs, self._rows_at_a_time)):
            pairs, masked = zip(*drawn, strict=True)
            rows = self.make_rows(pairs, masked)
            self._count(rows, counts)
            parts.append(rows)
        return np.concatenate(parts)

    def _masked_pairs(
        self, corpus: Corpus, documents: range, rng: random.Random
    ) -> Iterator[tuple[Pair, Masked]]:
        """Yields pairs, and how each is masked."""
        settings = self._settings
        num_pieces = len(self._vocab_ids)
        for _ in range(settings.dupe_factor):
            for document in documents:
                for pair in document_pairs(corpus, document, settings, rng):
                    yield pair, mask(pair, settings, self._is_continuation, num_pieces, rng)

    def input_ids(self, pairs: Sequence[Pair]) -> np.ndarray:
        """[CLS] A [SEP] B [SEP] of each pair, padded with 0: int32 [B, S]."""
        size = TOKEN_BYTES * self._settings.max_seq_length
        rows = (joined(self._cls, a, self._sep, b).ljust(size, b"\0") for a, b, _ in pairs)
        return np.frombuffer(b"".join(rows), TOKEN_TYPE).reshape(len(pairs), -1) & ID_BITS

    def make_rows(self, pairs: Sequence[Pair], masked: Sequence[Masked]) -> np.ndarray:
        """A row for each of B pairs and what `mask` drew for it: an array of `row_type` [B].

        M is the number of masked tokens of all pairs.
        """
        settings = self._settings
        input_ids = self.input_ids(pairs)  # [B, S]
        all_positions = np.fromiter(_chained(drawn.positions for drawn in masked), np.int64)  # [M]
        choices = np.fromiter(_chained(drawn.choices for drawn in masked), np.int64)  # [M]
        num_masked = np.array([len(drawn.choices) for drawn in masked])  # [B]
        offsets = np.cumsum(num_masked) - num_masked  # each pair's first masked token, [B]
        pair_number = np.repeat(np.arange(len(pairs)), num_masked)  # [M]
        number_in_pair = np.arange(len(pair_number)) - np.repeat(offsets, num_masked)  # [M]

        absent = settings.max_seq_length  # is sorted last, and becomes 0
        positions = np.full((len(pairs), settings.max_predictions_per_seq), absent)  # [B, P]
        positions[pair_number, number_in_pair] = all_positions
        positions.sort(axis=1)
        is_position = positions < absent
        positions *= is_position

        rows = np.zeros(len(pairs), self.row_type)
        rows["positions"] = positions
        # The labels are the ids before any is replaced.
        rows["labels"] = np.take_along_axis(input_ids, positions, 1) * is_position
        is_changed = choices != UNCHANGED
        shown = np.where(choices == MASKED, self._mask_id, self._vocab_ids[choices])
        input_ids[pair_number[is_changed], all_positions[is_changed]] = shown[is_changed]
        rows["input_ids"] = input_ids
        rows["lengths"] = [pair.lengths for pair in pairs]
        rows["num_masked"] = num_masked
        rows["is_random_next"] = [pair.is_random_next for pair in pairs]
        return rows

    def records(self, rows: np.ndarray) -> Iterator[bytes]:
        """Yields serialized records (`bert_tf.data.records.pretraining_record`)."""
        if not self._settings.pack:
            for begin in range(0, len(rows), self._rows_at_a_time):
                values = self.record_values(rows[begin : begin + self._rows_at_a_time])
                yield from serialize(self._record, values)
            return
        packed = fill_rows(
            self._lengths(rows),
            self._settings.max_seq_length,
            rows["num_masked"],
            most_sequences=self._most_sequences,
            most_predictions=self._most_predictions,
        )
        for begin in range(0, len(packed), self._rows_at_a_time):
            values = self.packed_values(rows, packed[begin : begin + self._rows_at_a_time])
            yield from serialize(self._record, values)

    def record_values(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The features of records: [B, S], [B, P], and [B, 1]."""
        places = np.arange(self._settings.max_seq_length)  # [S]
        length_a, length_b = rows["lengths"].astype(np.int64).T[..., np.newaxis]  # [B, 1]
        is_token = places < length_a + length_b + NUM_SPECIAL_TOKENS  # [B, S]
        predictions = np.arange(self._settings.max_predictions_per_seq)  # [P]
        return {
            "input_ids": rows["input_ids"],
            "input_mask": is_token,
            "segment_ids": is_token & (places >= length_a + 2),
            "masked_lm_positions": rows["positions"],
            "masked_lm_ids": rows["labels"],
            "masked_lm_weights": predictions < rows["num_masked"][:, np.newaxis],
            "next_sentence_labels": rows["is_random_next"][:, np.newaxis],
        }

    def packed_values(
        self, rows: np.ndarray, packed: Sequence[Sequence[int]]
    ) -> dict[str, np.ndarray]:
        """The features of packed records.

        Args:
          rows: instances.
          packed: the numbers of the instances of each record, as `fill_rows` gives them.

        Returns:
          input_ids, sequence_numbers, segment_ids [R, S], predictions [R, P], labels [R, K].
        """
        members = [len(numbers) for numbers in packed]  # [R]
        record = np.repeat(np.arange(len(packed)), members)  # of each sequence, [B]
        first = np.searchsorted(record, record)  # the first sequence of its record, [B]
        number = np.arange(len(record)) - first  # of each sequence in its record, [B]
        values = self.record_values(rows[np.concatenate(packed)])
        is_token = values.pop("input_mask")  # [B, S]
        is_prediction = values["masked_lm_weights"]  # [B, P]

        length = is_token.sum(axis=1)  # [B]
        begin = np.cumsum(length) - length
        begin_in_record = begin - begin[first]  # [B]
        values["masked_lm_positions"] = (
            values["masked_lm_positions"] + begin_in_record[:, np.newaxis]
        )
        values[PACKED] = np.broadcast_to(number[:, np.newaxis] + 1, is_token.shape)
        labels = np.zeros((len(packed), self._most_sequences), bool)  # [R, K]
        labels[record, number] = values.pop("next_sentence_labels")[:, 0]

        packed_values = {"next_sentence_labels": labels}
        for name, value in values.items():
            if name.startswith("masked_lm_"):
                size = self._most_predictions
                packed_values[name] = in_records(value, is_prediction, record, size)
            else:
                size = self._settings.max_seq_length
                packed_values[name] = in_records(value, is_token, record, size)
        return packed_values

    def _lengths(self, rows: np.ndarray) -> np.ndarray:
        """The tokens of instances, [B]."""
        return rows["lengths"].sum(axis=1, dtype=np.int64) + NUM_SPECIAL_TOKENS

    def _count(self, rows: np.ndarray, counts: Counts) -> None:
        lengths = self._lengths(rows)
        positions = rows["positions"].astype(np.int64)
        shown = np.take_along_axis(rows["input_ids"], positions, 1)
        is_masked = positions > 0  # at 0 is [CLS]
        numbers = {
            "instances": len(rows),
            "instance_tokens": lengths.sum(),
            "full_instances": (lengths == self._settings.max_seq_length).sum(),
            "random_next": rows["is_random_next"].sum(),
            # The text of a pass is in every A, and in each B that is next.
            "kept_tokens": rows["lengths"].sum() - rows["lengths"][rows["is_random_next"], 1].sum(),
            "masked": is_masked.sum(),
            "masked_as_mask": (is_masked & (shown == self._mask_id)).sum(),
            "masked_as_itself": (is_masked & (shown == rows["labels"])).sum(),
        }
        counts.update({name: int(number) for name, number in numbers.items()})


def _chained(lists: Iterable[list[int]]) -> Iterator[int]:
    return itertools.chain.from_iterable(lists)


def in_records(
    value: np.ndarray, is_there: np.ndarray, record: np.ndarray, size: int
) -> np.ndarray:
    """Puts the values of sequences one after the other into the records that they share: [R, size].

    Args:
      value: [B, n] of B sequences.
      is_there: bool [B, n], which of them are no padding.
      record: int [B], ascending, the number of each sequence's record.
      size: the values of a record; 0 fills the rest.
    """
    filled = np.bincount(record, is_there.sum(axis=1))[:, np.newaxis]  # [R, 1]
    values = np.zeros((len(filled), size), value.dtype)
    values[np.arange(size) < filled] = value[is_there]
    return values
