"""Texts -> words, each with a label and its place in the text, as TensorFlow operations.

The words are those of `bert_tf.tokenization.words`, the windows those that
`bert_tf.tasks.features.word_windows` makes in Python; see there for a drawing.

Shapes: B texts, W words of all texts, N the most words of a text, L labels.
"""

from typing import ClassVar, NamedTuple

import tensorflow as tf

from bert_tf.serving.graph_text import Features, in_chunks
from bert_tf.serving.options import DEFAULT, FROM_EXAMPLES, FROM_IDS
from bert_tf.serving.signatures import Answers, ServingTask
from bert_tf.tokenization.layer import Runs, runs_of
from bert_tf.tokenization.words import TextWords, words_of_texts

# ---------------------------------------------------------------------------- windows


class WordWindows(NamedTuple):
    """Windows of all texts, those of a text one after the other; each field int32 [windows].

    Attributes:
      text: the number of its text.
      start, stop: its words, start .. stop-1, numbered within the text.
      first, last: the words that are scored in this window, first .. last-1.
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
        fitting = _search(before, pieces_before(start) + room, side="right") - 1
        return tf.minimum(fitting, counts)

    def next_start(start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        # Half a window further, or as far as the next word needs to fit; no word is left out.
        half = pieces_before(start) + (room + 1) // 2
        needed = pieces_before(tf.minimum(stop + 1, counts)) - room
        return tf.minimum(_search(before, tf.maximum(half, needed), side="left"), stop)

    def body(number, start, stop, first, windows):
        following = tf.where(stop < counts, next_start(start, stop), counts)
        # The first word with more pieces to its left in the next window than to its right here:
        # middle - following > stop - middle, all in pieces.
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
    table = tf.transpose(windows.stack(), [2, 0, 1])  # [B, windows of a text, 4]
    places = tf.where(table[:, :, 2] < table[:, :, 3])  # windows that score a word
    start, stop, first, last = tf.unstack(tf.gather_nd(table, places), axis=1)
    return WordWindows(tf.cast(places[:, 0], tf.int32), start, stop, first, last)


def _search(rows: tf.Tensor, values: tf.Tensor, *, side: str) -> tf.Tensor:
    """The place of each value [B] in its sorted row [B, n]."""
    # Not tf.searchsorted, which cannot infer the number of rows if they are empty.
    bound = tf.raw_ops.LowerBound if side == "left" else tf.raw_ops.UpperBound
    return bound(sorted_inputs=rows, values=values[:, tf.newaxis])[:, 0]


# ---------------------------------------------------------------------------- the task


SENTENCE = "Ruprecht I. founded the University of Heidelberg, in 1386. "


class TokenLabelsTask(ServingTask):
    """A label for each word of texts of any length, in windows as in training."""

    padded = (DEFAULT, FROM_IDS, FROM_EXAMPLES)
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
        tokenizer = self.sequences.tokenizer
        words = words_of_texts(texts["text"], tokenizer.splitter, tokenizer.word_finder)
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
        """The tokens of each word, at most as many as a window holds; [UNK] if it has none."""
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

        def rows(values: tf.Tensor, filler) -> tf.Tensor:
            ragged = tf.RaggedTensor.from_row_lengths(values, words.counts, validate=False)
            return ragged.to_tensor(default_value=filler)  # [B, N]

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
