"""Texts -> words, each with a label and its place in the text."""

from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.heads import ENCODER
from bert_tf.heads import OUTPUT as HEAD
from bert_tf.serving import graph_words
from bert_tf.serving.graph_text import Features, Runs, in_chunks, runs_of
from bert_tf.serving.signatures import Answers, ServingTask


class TokenLabelsTask(ServingTask):
    """A `token_model` for texts of any length, in windows as in training.

    Shapes: N words of the text with the most, W words of all texts, L labels.
    """

    name = "token_labels"
    title = "Gives each word of a text a label."
    required = f"{ENCODER}|{HEAD}"
    own_options = ("labels",)
    texts = MappingProxyType({"text": "the text, of any length"})
    outputs = MappingProxyType(
        {
            "words": "string [B, N]; empty beyond num_words",
            "labels": "string [B, N]; empty beyond num_words",
            "probabilities": "float [B, N], of these labels",
            "starts": "int32 [B, N], the word's first code point in the text; -1 beyond num_words",
            "ends": "int32 [B, N], the code point behind its last",
            "num_words": "int32 [B]",
        }
    )

    def __init__(self, *args):
        """See `ServingTask`."""
        super().__init__(*args)
        self._flags = graph_words.PointFlags()
        self._unknown = self.sequences.tokenizer.vocab["[UNK]"]
        self._room = self.sequences.max_seq_length - 2  # tokens of a window

    def answer(self, **texts: tf.Tensor) -> Answers:
        """text [B] -> words, labels, probabilities, starts, ends [B, N] and num_words [B]."""
        splitter = self.sequences.tokenizer.splitter
        words = graph_words.words_of_texts(texts["text"], self._flags, splitter)
        pieces = self._pieces(words)
        first_word = tf.cumsum(words.counts, exclusive=True)  # [B]
        sizes = tf.RaggedTensor.from_row_lengths(pieces.lengths, words.counts, validate=False)
        windows = graph_words.word_windows(sizes.to_tensor(), words.counts, room=self._room)
        start = tf.gather(first_word, windows.text) + windows.start  # [windows], word of all texts
        before = tf.concat([pieces.starts, [tf.size(pieces.ids)]], 0)  # pieces before each word
        first_piece = tf.gather(before, start)
        behind = tf.gather(before, start + windows.stop - windows.start)
        runs = Runs(pieces.ids, first_piece, behind - first_piece)
        features = self.sequences.of_runs(runs)
        logits, *_ = in_chunks(
            lambda chunk: [self.outputs_of(chunk)["logits"]], features, dtypes=[tf.float32]
        )  # [windows, S, L]
        place = _places(windows, first_word, pieces.starts, first_piece)  # [W, 2]
        return self._named(words, tf.gather_nd(logits, place))

    def _pieces(self, words: graph_words.TextWords) -> Runs:
        """The tokens of each word alone, at most a window of them; [UNK] for a word without any."""
        runs = runs_of(self.sequences.tokenizer.tokenize_ids(words.strings))
        ids = tf.concat([runs.ids, [self._unknown]], 0)
        starts = tf.where(runs.lengths > 0, runs.starts, tf.size(runs.ids))
        lengths = tf.clip_by_value(runs.lengths, 1, self._room)
        places = tf.ragged.range(starts, starts + lengths)
        return runs_of(places.with_values(tf.gather(ids, places.values)))

    def _named(self, words: graph_words.TextWords, logits: tf.Tensor) -> Answers:
        """Words and logits [W, L] -> the answers, a row for each text."""
        probabilities = tf.nn.softmax(logits)

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

    def id_outputs(self) -> dict[str, str]:
        """Labels of every token."""
        return {
            "label_ids": "int32 [B, S], the number of the likeliest label of each piece",
            "probabilities": "float [B, S, L], of all labels",
        }

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> label_ids [B, S] and probabilities [B, S, L] of every position."""
        probabilities = tf.nn.softmax(self.outputs_of(features)["logits"])
        label_ids = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"label_ids": label_ids, "probabilities": probabilities}

    def samples(self) -> list[dict[str, Any]]:
        """A sentence, a text of several windows, and nothing."""
        sentence = "Ruprecht I. founded the University of Heidelberg, in 1386. "
        return [{"text": sentence * n} for n in (1, 40, 0)]


def _places(
    windows: graph_words.WordWindows,
    first_word: tf.Tensor,
    word_starts: tf.Tensor,
    first_piece: tf.Tensor,
) -> tf.Tensor:
    """Where each word is scored [W, 2]: the window, and the position of its first token there."""
    shift = tf.gather(first_word, windows.text)
    # A text's windows score its words in order, so these are all words in order.
    words = tf.ragged.range(windows.first + shift, windows.last + shift)
    window = tf.cast(words.value_rowids(), tf.int32)
    position = 1 + tf.gather(word_starts, words.values) - tf.gather(first_piece, window)
    return tf.stack([window, position], 1)
