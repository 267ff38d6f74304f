"""Documents -> pairs of segments -> masked instances -> pre-training records.

pair        A = he went home        B = it was late                    next
tokens      [CLS] he went home [SEP] it was late [SEP]
segments      0   0   0    0     0   1  1   1      1
masked      [CLS] he went [MASK] [SEP] it was late [SEP]
positions   3       labels   home

Random numbers are drawn in the original's order, so one `random.Random` for a whole corpus gives
the original's records byte for byte.

With --pack a record is a row of several instances, which are drawn as without it:

row         [CLS] he went [MASK] [SEP] it was late [SEP] [CLS] no [SEP] [MASK] [SEP]
sequences     1   1   1     1      1    1   1   1    1     2   2    2     2      2
positions   3 12    labels   home yes

Shapes: B instances, S max_seq_length, P max_predictions_per_seq; R packed rows of K sequences.
"""

import functools
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_tf.data import packed_sizes
from bert_tf.data.records import PACKED, DataSettings, Record, fill_rows, pretraining_record
from bert_tf.tokenization.wordpiece import joined
from data_gen.documents import ID_BITS, TOKEN_BYTES, TOKEN_TYPE, Corpus, Counts
from data_gen.masking import MASKED, NUM_SPECIAL_TOKENS, UNCHANGED, Masked, Pair, mask

TOKENS_AT_A_TIME = 1 << 18
# How many draws it takes to give up looking for another document.
DOCUMENT_DRAWS = 10


def document_pairs(
    corpus: Corpus, document: int, settings: DataSettings, rng: random.Random
) -> Iterator[Pair]:
    """Cuts a document into pairs (paper, appendix A.2; `create_instances_from_document`).

    Sentences are collected until they have the tokens of a sequence, or more; then they are divided
    at random into A and a rest.
    In half of the pairs B is that rest; in the others B is drawn from another document, and the
    rest goes into the next pair:

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
      document: the number of the one to cut.
      settings: of the instances.
      rng: the source of all random numbers.
    """
    max_num_tokens = target_length = settings.max_seq_length - NUM_SPECIAL_TOKENS
    if rng.random() < settings.short_seq_prob:
        target_length = rng.randint(2, max_num_tokens)
    bounds, sentences = corpus.token_bounds, corpus.sentences(document)
    begin = sentences.start
    while begin < sentences.stop:
        end = corpus.sentences_end(range(begin, sentences.stop), target_length)
        a_end = begin + (rng.randint(1, end - begin - 1) if end - begin >= 2 else 1)
        first_a, length_a = bounds[begin], bounds[a_end] - bounds[begin]
        first_b, length_b = bounds[a_end], bounds[end] - bounds[a_end]
        is_random_next = end - begin == 1 or rng.random() < 0.5
        if is_random_next:
            first_b, length_b = random_span(corpus, document, target_length - length_a, rng)
        begin = a_end if is_random_next else end
        cut_a, cut_b = truncate_at_random_ends(length_a, length_b, max_num_tokens, rng)
        tokens_a = corpus.tokens(first_a + cut_a.start, len(cut_a))
        yield Pair(tokens_a, corpus.tokens(first_b + cut_b.start, len(cut_b)), is_random_next)


def random_span(
    corpus: Corpus, not_document: int, min_tokens: int, rng: random.Random
) -> tuple[int, int]:
    """Sentences from a random place of another document: their first token, and how many.

    After ten draws of `not_document` it is used, as in the original: in a corpus of one document
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
    first_a = first_b = 0
    for _ in range(length_a + length_b - max_num_tokens):
        is_front = rng.random() < 0.5
        if length_a > length_b:
            length_a, first_a = length_a - 1, first_a + is_front
        else:
            length_b, first_b = length_b - 1, first_b + is_front
    return range(first_a, first_a + length_a), range(first_b, first_b + length_b)


# ------------------------------------------------------------------------- pairs -> rows


class InstanceMaker:
    """Makes instances and records of tokenized documents.

    Attributes:
      row_type: of a row, what is kept of an instance until it becomes a record: half the bytes.
    """

    def __init__(self, settings: DataSettings, vocab: Mapping[str, int]):
        """Prepares for one vocabulary.

        Args:
          settings: of the instances.
          vocab: word piece to id; has [CLS], [SEP] and [MASK].
        """
        self._settings = settings
        size, num_predictions = settings.max_seq_length, settings.max_predictions_per_seq
        self._cls, self._sep = (TOKEN_TYPE(vocab[p]).tobytes() for p in ("[CLS]", "[SEP]"))
        self._mask_id, self._vocab_ids = vocab["[MASK]"], np.array([*vocab.values()])
        most = max(vocab.values())
        self._is_continuation = np.zeros(most + 1, bool)
        self._is_continuation[[vocab[piece] for piece in vocab if piece.startswith("##")]] = True
        sizes = {"max_seq_length": size, "max_predictions_per_seq": num_predictions}
        prob = settings.masked_lm_prob
        self._record = pretraining_record(**sizes, packed_with=prob if settings.pack else None)
        self._most = packed_sizes(**sizes, masked_lm_prob=prob)
        self._rows_at_a_time = 1 + TOKENS_AT_A_TIME // size
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
        self, corpus: Corpus, documents: range, rng: random.Random, counts: Counts
    ) -> np.ndarray:
        """`dupe_factor` passes over some documents, each with other cuts, pairs and masks.

        Args:
          corpus: all documents.
          documents: the numbers of those to make instances of.
          rng: the source of all random numbers.
          counts: what the report needs is added to it.

        Returns:
          The instances in the order in which they were drawn: of `row_type`, without keys.
        """
        settings, num_pieces = self._settings, len(self._vocab_ids)
        pairs = (
            pair
            for _ in range(settings.dupe_factor)
            for document in documents
            for pair in document_pairs(corpus, document, settings, rng)
        )
        masked = ((p, mask(p, settings, self._is_continuation, num_pieces, rng)) for p in pairs)
        parts = [np.empty(0, self.row_type)]
        while some := list(itertools.islice(masked, self._rows_at_a_time)):
            parts.append(self.make_rows(*zip(*some, strict=True)))
            self._count(parts[-1], counts)
        return np.concatenate(parts)

    def input_ids(self, pairs: Sequence[Pair]) -> np.ndarray:
        """[CLS] A [SEP] B [SEP] of each pair, padded with 0: int32 [B, S]."""
        size = TOKEN_BYTES * self._settings.max_seq_length
        rows = (joined(self._cls, a, self._sep, b).ljust(size, b"\0") for a, b, _ in pairs)
        return np.frombuffer(b"".join(rows), TOKEN_TYPE).reshape(len(pairs), -1) & ID_BITS

    def make_rows(self, pairs: Sequence[Pair], masked: Sequence[Masked]) -> np.ndarray:
        """Pairs and what `mask` gave for each -> rows [B]."""
        settings = self._settings
        input_ids = self.input_ids(pairs)  # [B, S]
        position, choice = (  # [all masked tokens]
            np.fromiter(itertools.chain.from_iterable(drawn), np.int64)
            for drawn in zip(*masked, strict=True)
        )
        numbers = np.array([len(m.choices) for m in masked])  # [B]
        row = np.repeat(np.arange(len(pairs)), numbers)
        number_in_row = np.arange(len(row)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        absent = settings.max_seq_length  # is sorted last, and becomes 0
        positions = np.full((len(pairs), settings.max_predictions_per_seq), absent)  # [B, P]
        positions[row, number_in_row] = position
        positions.sort(axis=1)
        is_position = positions < absent
        positions *= is_position
        rows = np.zeros(len(pairs), self.row_type)
        rows["positions"] = positions
        rows["labels"] = np.take_along_axis(input_ids, positions, 1) * is_position
        changed = choice != UNCHANGED
        shown = np.where(choice == MASKED, self._mask_id, self._vocab_ids[choice])
        input_ids[row[changed], position[changed]] = shown[changed]
        rows["input_ids"] = input_ids
        rows["lengths"] = [pair.lengths for pair in pairs]
        rows["num_masked"] = numbers
        rows["is_random_next"] = [pair.is_random_next for pair in pairs]
        return rows

    def records(self, rows: np.ndarray) -> Iterator[bytes]:
        """Serialized records (`bert_tf.data.records.pretraining_record`)."""
        if self._settings.pack:
            size = self._settings.max_seq_length
            most_sequences, most_predictions = self._most
            packed = fill_rows(
                *(self._lengths(rows), size, rows["num_masked"]),
                most_sequences=most_sequences,
                most_predictions=most_predictions,
            )
            made = functools.partial(self.packed_values, rows)
        else:
            packed, made = rows, self.record_values
        for begin in range(0, len(packed), self._rows_at_a_time):
            values = made(packed[begin : begin + self._rows_at_a_time])
            yield from serialize(self._record, values)

    def record_values(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The features of records: [B, S], [B, P], and [B, 1]."""
        places = np.arange(self._settings.max_seq_length)
        length_a, length_b = rows["lengths"].astype(np.int64).T[..., np.newaxis]  # [B, 1]
        is_token = places < length_a + length_b + NUM_SPECIAL_TOKENS
        predictions = np.arange(self._settings.max_predictions_per_seq)
        return {
            "input_ids": rows["input_ids"],
            "input_mask": is_token,
            "segment_ids": is_token & (places >= length_a + 2),
            "masked_lm_positions": rows["positions"],
            "masked_lm_ids": rows["labels"],
            "masked_lm_weights": predictions < rows["num_masked"][:, np.newaxis],
            "next_sentence_labels": rows["is_random_next"][:, np.newaxis],
        }

    def packed_values(self, rows: np.ndarray, packed: Sequence[Sequence[int]]) -> dict:
        """The features of packed records.

        Args:
          rows: instances.
          packed: for each record the numbers of its instances, as `fill_rows` gives them.

        Returns:
          input_ids, sequence_numbers, segment_ids [R, S], predictions [R, P], labels [R, K].
        """
        most_sequences, most_predictions = self._most
        row = np.repeat(np.arange(len(packed)), [len(members) for members in packed])  # [B]
        first = np.searchsorted(row, row)  # of each sequence's row, [B]
        number = np.arange(len(row)) - first  # of each sequence in its row, [B]
        values = self.record_values(rows[np.concatenate(packed)])
        is_token = values.pop("input_mask")  # [B, S]
        is_prediction = values["masked_lm_weights"]  # [B, P]
        length = is_token.sum(axis=1)
        begin = np.cumsum(length) - length
        start = begin - begin[first]  # of each sequence in its row, [B]
        values["masked_lm_positions"] = values["masked_lm_positions"] + start[:, np.newaxis]
        values[PACKED] = np.broadcast_to(number[:, np.newaxis] + 1, is_token.shape)
        labels = np.zeros((len(packed), most_sequences), bool)
        labels[row, number] = values.pop("next_sentence_labels")[:, 0]

        def joined(what: np.ndarray, is_there: np.ndarray, size: int) -> np.ndarray:
            """What is there of each sequence, [B, n], one after the other: [R, size]."""
            filled = np.bincount(row, is_there.sum(axis=1))[:, np.newaxis]  # [R, 1]
            made = np.zeros((len(packed), size), what.dtype)
            made[np.arange(size) < filled] = what[is_there]
            return made

        return {"next_sentence_labels": labels} | {
            name: joined(what, is_prediction, most_predictions)
            if name.startswith("masked_lm_")
            else joined(what, is_token, self._settings.max_seq_length)
            for name, what in values.items()
        }

    def _lengths(self, rows: np.ndarray) -> np.ndarray:
        """The tokens of instances, [B]."""
        return rows["lengths"].sum(axis=1, dtype=np.int64) + NUM_SPECIAL_TOKENS

    def _count(self, rows: np.ndarray, counts: Counts) -> None:
        lengths = self._lengths(rows)
        positions = rows["positions"].astype(np.int64)
        shown = np.take_along_axis(rows["input_ids"], positions, 1)
        is_masked = positions > 0  # at 0 is [CLS]
        found = {
            "instances": len(rows),
            "instance_tokens": lengths.sum(),
            "full_instances": (lengths == self._settings.max_seq_length).sum(),
            "random_next": rows["is_random_next"].sum(),
            # Each pass cuts the text into all A, and the B that are next.
            "kept_tokens": rows["lengths"].sum() - rows["lengths"][rows["is_random_next"], 1].sum(),
            "masked": is_masked.sum(),
            "masked_as_mask": (is_masked & (shown == self._mask_id)).sum(),
            "masked_as_itself": (is_masked & (shown == rows["labels"])).sum(),
        }
        counts.update({name: int(number) for name, number in found.items()})


# ------------------------------------------------------------------------- rows -> bytes

# Many `tf.train.Example` at a time, from arrays. With `Record.serialize` for each record the whole
# command takes 1.4 times as long (4 MB of text, --dupe_factor=5, one worker).
#
#   Example   field FIRST: Features
#   Features  field FIRST: a map entry for each feature, in the order of their names
#   entry     field FIRST: the name; field SECOND: Feature
#   Feature   field SECOND: FloatList, or field THIRD: Int64List
#   list      field FIRST: the numbers, packed: little-endian floats, or varints, which have seven
#             bits in each byte, the lowest first, and a one on top of all but the last

FIRST, SECOND, THIRD = b"\x0a", b"\x12", b"\x1a"  # fields whose length comes first
# A part of all records: uint8 [B, W], and bool [B, W], which of these bytes each record has.
Column = tuple[np.ndarray, np.ndarray]


def serialize(record: Record, values: Mapping[str, np.ndarray]) -> list[bytes]:
    """Records from arrays, as `Record.serialize` makes them of each row.

    Args:
      record: the declaration.
      values: for each declared feature [B, size], of bool or integers from 0 to 2^32 - 1 where it
        is int64.

    Raises:
      ValueError: a feature is missing, unknown, or has another length.
    """
    record.check_sizes({name: value.shape[-1] for name, value in values.items()})
    columns: list[Column] = []
    for feature in sorted(record.features, key=lambda feature: feature.name):
        numbers = values[feature.name]
        key = field(FIRST, [constant(feature.name.encode(), len(numbers))])
        if feature.dtype.is_integer:
            packed = field(THIRD, field(FIRST, [varints(numbers)]))
        else:
            data = np.ascontiguousarray(numbers, "<f4").view(np.uint8)
            packed = field(SECOND, field(FIRST, [(data, np.ones_like(data, bool))]))
        columns += field(FIRST, [*key, *field(SECOND, packed)])
    columns = field(FIRST, columns)
    data, is_there = (np.concatenate(parts, axis=1) for parts in zip(*columns, strict=True))
    joined, ends = data[is_there].tobytes(), np.cumsum(is_there.sum(axis=1)).tolist()
    return [joined[begin:end] for begin, end in itertools.pairwise([0, *ends])]


def field(tag: bytes, content: list[Column]) -> list[Column]:
    """A field of a message: its tag, the length of its content, the content."""
    sizes = np.sum([is_there.sum(axis=1) for _, is_there in content], axis=0)
    return [constant(tag, len(sizes)), varints(sizes[:, np.newaxis]), *content]


def constant(data: bytes, num_rows: int) -> Column:
    """The same bytes in each of B rows."""
    rows = np.broadcast_to(np.frombuffer(data, np.uint8), (num_rows, len(data)))
    return rows, np.ones_like(rows, bool)


def varints(numbers: np.ndarray) -> Column:
    """Integers [B, n], from 0 to 2^32 - 1, as varints."""
    rest = numbers.astype(np.uint32)
    bytes_of_each = []
    while not bytes_of_each or rest.any():
        bytes_of_each.append((rest & 0x7F, rest > 0))
        rest = rest >> 7
    low, is_there = (np.stack(parts, axis=-1) for parts in zip(*bytes_of_each, strict=True))
    is_there[..., 0] = True  # 0 has a byte too
    low[..., :-1] |= is_there[..., 1:] * np.uint32(0x80)
    return low.astype(np.uint8).reshape(len(low), -1), is_there.reshape(len(low), -1)
