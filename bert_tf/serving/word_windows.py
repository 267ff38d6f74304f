"""Words of long texts -> windows of whole words, as TensorFlow operations.

The same windows as `bert_tf.tasks.features.word_windows` makes in Python; see there for a drawing.

Shapes: B texts, L the most words of a text, W windows of all texts.
"""

from typing import NamedTuple

import tensorflow as tf


class WordWindows(NamedTuple):
    """Windows of all texts, those of a text one after the other; each field int32 [W].

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
      sizes: int32 [B, L], pieces of each word, from 1 to `room`; 0 beyond a text's words.
      counts: int32 [B], words of each text.
      room: pieces that a window holds.
    """
    before = tf.pad(tf.cumsum(sizes, axis=1), [[0, 0], [1, 0]])  # [B, L + 1]
    middles = before[:, :-1] + before[:, 1:]  # [B, L]: twice the middle of each word

    def pieces_before(word: tf.Tensor) -> tf.Tensor:
        return tf.gather(before, word, batch_dims=1)

    def stop_of(start: tf.Tensor) -> tf.Tensor:
        behind = _search(before, pieces_before(start) + room, side="right") - 1
        return tf.minimum(behind, counts)

    def next_start(start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        # Half a window on, or as far as the next word needs to fit in; without a gap.
        half = pieces_before(start) + (room + 1) // 2
        needed = pieces_before(tf.minimum(stop + 1, counts)) - room
        return tf.minimum(_search(before, tf.maximum(half, needed), side="left"), stop)

    def body(number, start, stop, first, windows):
        following = tf.where(stop < counts, next_start(start, stop), counts)
        # Its first word with more pieces to its left there than to its right here.
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
    real = tf.where(found[:, :, 2] < found[:, :, 3])  # those that score a word
    return WordWindows(
        tf.cast(real[:, 0], tf.int32), *tf.unstack(tf.gather_nd(found, real), axis=1)
    )


def _search(rows: tf.Tensor, values: tf.Tensor, *, side: str) -> tf.Tensor:
    """Where in each row [B, n] its value [B] would go."""
    # Not tf.searchsorted, which cannot tell how many rows there are if they are empty.
    bound = tf.raw_ops.LowerBound if side == "left" else tf.raw_ops.UpperBound
    return bound(sorted_inputs=rows, values=values[:, tf.newaxis])[:, 0]
