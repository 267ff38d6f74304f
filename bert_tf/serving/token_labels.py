"""Texts -> words, each with a label and its place in the text, as TensorFlow operations.

    text     "Ruprecht (I.) of the U.S., 東京"
    words     Ruprecht  (  I  .  )  of  the  U.S  .  ,  東  京

White space separates chunks. Each punctuation mark at the start or end of a chunk is a word, as in
the published data of named entities; inside a chunk it is part of the word. An ideograph is always
a chunk, and so are the marks of East Asian text and a piece that the tokenizer never splits.

The windows are those that `bert_tf.tasks.features.word_windows` makes in Python; see there for a
drawing.

Shapes: B texts, C code points of all texts, V of them that are neither space nor dropped by the
tokenizer, W words of all texts, N the most words of a text, L labels.
"""

from typing import ClassVar, NamedTuple

import tensorflow as tf

from bert_tf.serving.graph_text import Features, in_chunks
from bert_tf.serving.signatures import Answers, ServingTask
from bert_tf.tokenization import basic
from bert_tf.tokenization.basic import NeverSplit
from bert_tf.tokenization.layer import Runs, runs_of

# ---------------------------------------------------------------------------- words


class TextWords(NamedTuple):
    """Words of texts, one after the other.

    Attributes:
      strings: string [W].
      starts, ends: int32 [W], code points in their text.
      counts: int32 [B], words of each text.
    """

    strings: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    counts: tf.Tensor


def words_of_texts(texts: tf.Tensor, splitter: NeverSplit | None = None) -> TextWords:
    """The words of texts [B] of UTF-8; bytes that are not UTF-8 are skipped.

    Args:
      texts: any.
      splitter: of pieces that are never split: each is a word. None: there are none.
    """
    if splitter is None:
        return _words_between(texts)
    parts = splitter.split(texts)
    between = _words_between(parts.strings)
    counts = tf.cast(between.counts, tf.int64)
    words = tf.RaggedTensor.from_row_lengths(between.strings, counts, validate=False)
    shift = tf.gather(parts.starts, words.value_rowids())
    start = tf.gather(parts.starts, parts.pieces.value_rowids())
    end = start + tf.gather(parts.lengths, parts.pieces.value_rowids())

    def joined(own: tf.Tensor, other: tf.Tensor) -> tf.RaggedTensor:  # a part has either
        return tf.concat([parts.pieces.with_values(own), words.with_values(other)], axis=1)

    strings = joined(parts.pieces.values, words.values)
    before = tf.gather(strings.row_splits, parts.text_splits)
    return TextWords(
        strings=strings.values,
        starts=joined(start, between.starts + shift).values,
        ends=joined(end, between.ends + shift).values,
        counts=tf.cast(before[1:] - before[:-1], tf.int32),
    )


def _words_between(texts: tf.Tensor) -> TextWords:
    points = tf.strings.unicode_decode(texts, "UTF-8", errors="ignore")  # [B, (points)]
    text = tf.cast(points.value_rowids(), tf.int32)  # [C]
    found = _flags_of(points.values)  # [C]
    is_solo = (
        found & (basic.BREAK_BEFORE | basic.BREAK_AFTER) == basic.BREAK_BEFORE | basic.BREAK_AFTER
    )
    is_space = (found & basic.BREAK_BEFORE != 0) & ~is_solo
    own = tf.cast(is_solo & basic.is_east_asian(points.values), tf.int32)
    # Grows at spaces, before and after each chunk of one character, and with the text.
    chunk = tf.cumsum(tf.cast(is_space, tf.int32) + own) + tf.cumsum(own, exclusive=True) + text
    seen = tf.where(~is_space & (found & basic.DROPPED == 0))[:, 0]  # [V]
    begins = _begins(tf.gather(chunk, seen), tf.gather(is_solo, seen))  # [V]
    first = tf.where(begins)[:, 0]  # [W], in V
    last = tf.concat([first, tf.shape(seen, tf.int64)], 0)[1:] - 1
    start, end = tf.gather(seen, first), tf.gather(seen, last) + 1  # [W], in C
    of_text = tf.gather(text, start)
    before = tf.gather(points.row_starts(), of_text)
    places = tf.ragged.range(start, end)
    return TextWords(
        strings=tf.strings.unicode_encode(
            places.with_values(tf.gather(points.values, places.values)), "UTF-8"
        ),
        starts=tf.cast(start - before, tf.int32),
        ends=tf.cast(end - before, tf.int32),
        counts=tf.math.bincount(of_text, minlength=tf.shape(texts)[0], dtype=tf.int32),
    )


def _begins(chunk: tf.Tensor, solo: tf.Tensor) -> tf.Tensor:
    """Whether a word begins at each character [V]."""
    always = tf.ones_like(chunk[:1], tf.bool)
    is_first = tf.concat([always, chunk[1:] != chunk[:-1]], 0)
    rank = tf.cumsum(tf.cast(is_first, tf.int32)) - 1  # of its chunk
    core = tf.cast(~solo, tf.int32)  # not punctuation
    before = tf.cumsum(core, exclusive=True)
    before -= tf.gather(tf.boolean_mask(before, is_first), rank)  # in its chunk
    behind = tf.gather(tf.math.segment_sum(core, rank), rank) - before - core
    alone = (core == 0) & ((before == 0) | (behind == 0))
    return is_first | alone | tf.concat([~always, alone[:-1]], 0)


def _flags_of(point: tf.Tensor) -> tf.Tensor:
    """Flags int32 [C] of code points [C], as in `basic`."""
    table = basic.load_unicode_table(do_lower_case=False)  # case makes no word boundaries
    page = tf.gather(tf.constant(table.pages), point // basic.PAGE)
    flags = tf.constant(table.flags[table.rows])  # [pages, PAGE]
    return tf.gather_nd(flags, tf.stack([page, point % basic.PAGE], 1))


# ---------------------------------------------------------------------------- windows


class WordWindows(NamedTuple):
    """Windows of all texts, those of a text one after the other; each field int32 [windows].

    Attributes:
      text: which text it is of.
      start, stop: its words, start .. stop-1, numbered in their text.
      first, last: those of them that are scored here, first .. last-1.
    """

    text: tf.Tensor
    start: tf.Tensor
    stop: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor


def word_windows(sizes: tf.Tensor, counts: tf.Tensor, *, room: int) -> WordWindows:
    """Windows in which every word of every text is scored once.

    Args:
      sizes: int32 [B, N], pieces of each word, from 1 to `room`; 0 beyond a text's words.
      counts: int32 [B], words of each text.
      room: pieces that a window holds.
    """
    before = tf.pad(tf.cumsum(sizes, axis=1), [[0, 0], [1, 0]])  # [B, N + 1]
    middles = before[:, :-1] + before[:, 1:]  # [B, N]: twice the middle of each word

    def pieces_before(word: tf.Tensor) -> tf.Tensor:
        return tf.gather(before, word, batch_dims=1)

    def stop_of(start: tf.Tensor) -> tf.Tensor:
        behind = _search(before, pieces_before(start) + room, side="right") - 1
        return tf.minimum(behind, counts)

    def next_start(start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        # Half a window further, or as far as the next word needs to fit; without a gap.
        half = pieces_before(start) + (room + 1) // 2
        needed = pieces_before(tf.minimum(stop + 1, counts)) - room
        return tf.minimum(_search(before, tf.maximum(half, needed), side="left"), stop)

    def body(number, start, stop, first, windows):
        following = tf.where(stop < counts, next_start(start, stop), counts)
        # The first word with more tokens to its left there than to its right here.
        border = _search(middles, pieces_before(stop) + pieces_before(following), side="right")
        border = tf.minimum(tf.maximum(border, following), stop)
        last = tf.where(stop < counts, border, counts)
        windows = windows.write(number, tf.stack([start, stop, first, last]))
        return number + 1, following, stop_of(following), last, windows

    zero = tf.zeros_like(counts)
    windows = tf.TensorArray(tf.int32, size=0, dynamic_size=True, element_shape=[4, None])
    *_, windows = tf.while_loop(
        lambda number, _start, _stop, first, _: (number == 0) | tf.reduce_any(first < counts),
        body,
        [0, zero, stop_of(zero), zero, windows],
        parallel_iterations=1,
    )
    found = tf.transpose(windows.stack(), [2, 0, 1])  # [B, windows, 4]
    real = tf.where(found[:, :, 2] < found[:, :, 3])  # windows that score a word
    return WordWindows(
        tf.cast(real[:, 0], tf.int32), *tf.unstack(tf.gather_nd(found, real), axis=1)
    )


def _search(rows: tf.Tensor, values: tf.Tensor, *, side: str) -> tf.Tensor:
    """Where in each sorted row [B, n] its value [B] belongs."""
    # Not tf.searchsorted, which cannot infer the number of rows if they are empty.
    bound = tf.raw_ops.LowerBound if side == "left" else tf.raw_ops.UpperBound
    return bound(sorted_inputs=rows, values=values[:, tf.newaxis])[:, 0]


# ---------------------------------------------------------------------------- the task


SENTENCE = "Ruprecht I. founded the University of Heidelberg, in 1386. "


class TokenLabelsTask(ServingTask):
    """A label for each word of texts of any length, in windows as in training."""

    own_options = ()
    part = "window"
    texts: ClassVar = {"text": "the text, of any length"}
    outputs: ClassVar = {
        "words": "string [B, N]; empty beyond num_words",
        "labels": "string [B, N]; empty beyond num_words",
        "probabilities": "float [B, N], of these labels",
        "starts": "int32 [B, N], the word's first code point in the text; -1 beyond num_words",
        "ends": "int32 [B, N], the code point behind its last",
        "num_words": "int32 [B]",
    }
    id_outputs: ClassVar = {
        "label_ids": "int32 [B, S], the number of the likeliest label of each piece",
        "probabilities": "float [B, S, L], of all labels",
    }
    samples = tuple({"text": SENTENCE * n} for n in (1, 40, 0))

    def __init__(self, *args):
        """See `ServingTask`."""
        super().__init__(*args)
        self._unknown = self.sequences.tokenizer.vocab["[UNK]"]
        self._room = self.sequences.max_seq_length - 2  # tokens of a window

    def features(self, **texts: tf.Tensor) -> Features:
        """text [B] -> the windows [W, S] of all texts."""
        return self._windows(**texts)[0]

    def _windows(self, **texts: tf.Tensor) -> tuple[Features, TextWords, tf.Tensor]:
        """text [B] -> windows [windows, S], words, and where each word is scored [W, 2]."""
        words = words_of_texts(texts["text"], self.sequences.tokenizer.splitter)
        pieces = self._pieces(words)
        first_word = tf.cumsum(words.counts, exclusive=True)  # [B]
        sizes = tf.RaggedTensor.from_row_lengths(pieces.lengths, words.counts, validate=False)
        windows = word_windows(sizes.to_tensor(), words.counts, room=self._room)
        start = tf.gather(first_word, windows.text) + windows.start  # [windows], word of all texts
        before = tf.concat([pieces.starts, [tf.size(pieces.ids)]], 0)  # pieces before each word
        first_piece = tf.gather(before, start)
        behind = tf.gather(before, start + windows.stop - windows.start)
        runs = Runs(pieces.ids, first_piece, behind - first_piece)
        places = _places(windows, first_word, pieces.starts, first_piece)
        return self.sequences.of_runs(runs), words, places

    def _pieces(self, words: TextWords) -> Runs:
        """The tokens of each word alone, at most a window of them; [UNK] for a word without any."""
        runs = runs_of(self.sequences.tokenizer.tokenize_ids(words.strings))
        ids = tf.concat([runs.ids, [self._unknown]], 0)
        starts = tf.where(runs.lengths > 0, runs.starts, tf.size(runs.ids))
        lengths = tf.clip_by_value(runs.lengths, 1, self._room)
        places = tf.ragged.range(starts, starts + lengths)
        return runs_of(places.with_values(tf.gather(ids, places.values)))

    def answer(self, **texts: tf.Tensor) -> Answers:
        """text [B] -> words, labels, probabilities, starts, ends [B, N] and num_words [B]."""
        features, words, places = self._windows(**texts)
        logits, *_ = in_chunks(
            lambda chunk: [self.outputs_of(chunk)["logits"]], features, dtypes=[tf.float32]
        )  # [windows, S, L]
        probabilities = tf.nn.softmax(tf.gather_nd(logits, places))  # [W, L]

        def rows(values: tf.Tensor, other) -> tf.Tensor:
            ragged = tf.RaggedTensor.from_row_lengths(values, words.counts, validate=False)
            return ragged.to_tensor(default_value=other)  # [B, N]

        best = tf.argmax(probabilities, axis=-1)
        return {
            "words": rows(words.strings, ""),
            "labels": rows(tf.gather(tf.constant(self.options.labels), best), ""),
            "probabilities": rows(tf.reduce_max(probabilities, axis=-1), 0.0),
            "starts": rows(words.starts, -1),
            "ends": rows(words.ends, -1),
            "num_words": words.counts,
        }

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> label_ids [B, S] and probabilities [B, S, L] of every position."""
        probabilities = tf.nn.softmax(self.outputs_of(features)["logits"])
        label_ids = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"label_ids": label_ids, "probabilities": probabilities}


def _places(
    windows: WordWindows, first_word: tf.Tensor, word_starts: tf.Tensor, first_piece: tf.Tensor
) -> tf.Tensor:
    """Where each word is scored [W, 2]: the window, and the position of its first token there."""
    shift = tf.gather(first_word, windows.text)
    # A text's windows score its words in order, so these are all words in order.
    words = tf.ragged.range(windows.first + shift, windows.last + shift)
    window = tf.cast(words.value_rowids(), tf.int32)
    position = 1 + tf.gather(word_starts, words.values) - tf.gather(first_piece, window)
    return tf.stack([window, position], 1)
