"""Questions and contexts -> the windows that a model takes, as TensorFlow operations.

The same windows as `bert_tf.squad.windows` makes in Python, and in the same order; see there for
drawings.

Shapes: Q questions, W windows of all questions, S the longest window, D pieces of all contexts.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.serving.graph_text import Features, Runs, Sequences, runs_of
from bert_tf.squad.windows import SPECIAL_PIECES, WindowSizes


class Contexts(NamedTuple):
    """Contexts in pieces.

    Attributes:
      points: int32 ragged [Q, (code points)], without bytes that are not UTF-8.
      pieces: Q runs of ids [D].
      starts, ends: int32 [D], the code points of its context that a piece comes from.
    """

    points: tf.RaggedTensor
    pieces: Runs
    starts: tf.Tensor
    ends: tf.Tensor


class Windows(NamedTuple):
    """Windows of all questions, those of a question one after the other.

    Attributes:
      features: int32 [W, S].
      question: int32 [W], which question each is of.
      first_piece: int32 [W], the piece of all contexts at position `offset` of the window.
      offset: int32 [W], [CLS], question and [SEP].
      in_context: bool [W, S], whether a position holds a piece of the context.
      is_max_context: bool [W, S], whether it does and no other window has more context there.
    """

    features: Features
    question: tf.Tensor
    first_piece: tf.Tensor
    offset: tf.Tensor
    in_context: tf.Tensor
    is_max_context: tf.Tensor


def read_contexts(contexts: tf.Tensor, sequences: Sequences) -> Contexts:
    """Contexts [Q] in pieces with offsets."""
    ids, starts, ends = sequences.tokenizer.tokenize_with_offsets(contexts)
    points = tf.strings.unicode_decode(contexts, "UTF-8", errors="ignore")
    return Contexts(points, runs_of(ids), starts.values, ends.values)


def make_windows(
    questions: tf.Tensor, contexts: Contexts, sequences: Sequences, sizes: WindowSizes
) -> Windows:
    """The windows of questions [Q] about as many contexts; none where a context has no piece."""
    query = runs_of(sequences.tokenizer.tokenize_ids(questions)).cut(sizes.max_query_length)
    room = sizes.max_seq_length - query.lengths - SPECIAL_PIECES  # [Q]
    step = tf.minimum(room, sizes.doc_stride)
    rest = tf.maximum(contexts.pieces.lengths - room, 0)
    count = tf.where(contexts.pieces.lengths > 0, (rest + step - 1) // step + 1, 0)
    behind = tf.cumsum(count)  # [Q]: windows of this question and those before
    number = tf.range(tf.reduce_sum(count))  # [W]
    question = tf.searchsorted(behind, number, side="right")  # [W]
    start = (number - tf.gather(behind - count, question)) * tf.gather(step, question)
    left = tf.gather(contexts.pieces.lengths, question) - start
    length = tf.minimum(tf.gather(room, question), left)  # [W]
    first_piece = tf.gather(contexts.pieces.starts, question) + start
    of_query = Runs(query.ids, *(tf.gather(x, question) for x in query[1:]))
    features = sequences.join(of_query, Runs(contexts.pieces.ids, first_piece, length))
    offset = of_query.lengths + 2  # [CLS] and [SEP]
    place = tf.range(tf.shape(features["input_ids"])[1]) - offset[:, tf.newaxis]  # [W, S]
    in_context = (place >= 0) & (place < length[:, tf.newaxis])
    piece = first_piece[:, tf.newaxis] + place
    score = _context_score(place, length[:, tf.newaxis])
    best = _is_best(score, piece, in_context, num_pieces=tf.size(contexts.starts))
    return Windows(features, question, first_piece, offset, in_context, best)


def _context_score(place: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """How much context a piece has, as the original counts it; float64, so that ties are its."""
    shorter = tf.minimum(place, length - 1 - place)
    return tf.cast(shorter, tf.float64) + 0.01 * tf.cast(length, tf.float64)


def _is_best(
    score: tf.Tensor, piece: tf.Tensor, in_context: tf.Tensor, *, num_pieces: tf.Tensor
) -> tf.Tensor:
    """Whether a window [W, S] has the highest score of a piece; the first one of equal ones."""
    rows, size = tf.shape(score)[0], num_pieces + 1
    piece = tf.where(in_context, piece, num_pieces)  # what is none counts as one more
    most = tf.gather(tf.math.unsorted_segment_max(score, piece, size), piece)
    window = tf.broadcast_to(tf.range(rows)[:, tf.newaxis], tf.shape(score))
    candidate = tf.where(score == most, window, rows)
    first = tf.gather(tf.math.unsorted_segment_min(candidate, piece, size), piece)
    return in_context & (window == first)
