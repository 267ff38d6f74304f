"""Logits of windows -> the answers to each question, as TensorFlow operations.

The same answers as `bert_tf.squad.answers` finds in Python with the alignment by offsets, ties
included; see there for drawings. Everything of all questions is one flat list:

    candidates   spans between one of the best starts and one of the best ends of a window
    entries      the best of them that read differently, best first, at most n_best_size each
    Nbest        the entries in a row for each question

Shapes: Q questions, W windows, S positions, K candidates, E entries, N the most of a question.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.serving.answer_windows import Contexts, Windows
from bert_tf.squad.answers import CERTAINLY_NULL, AnswerSizes

NOWHERE = -1  # start and end of no answer


class Spans(NamedTuple):
    """Possible answers, each field [K] or [E].

    Attributes:
      question: int32.
      start, end: int32, code points of the question's context; NOWHERE of no answer.
      score: float64, the sum of both logits.
    """

    question: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    score: tf.Tensor

    def gather(self, which: tf.Tensor) -> "Spans":
        """Some of them, in the order given."""
        return Spans(*(tf.gather(field, which) for field in self))


class Nbest(NamedTuple):
    """The entries of each question, best first; with no answer, where it is not the best, among
    them or behind them.

    Attributes:
      is_entry: bool [Q, N].
      text: string [Q, N].
      start, end: int32 [Q, N].
      score, probability: float64 [Q, N].
      null_score: float64 [Q], of no answer.
    """

    is_entry: tf.Tensor
    text: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    score: tf.Tensor
    probability: tf.Tensor
    null_score: tf.Tensor


def find_answers(
    contexts: Contexts,
    windows: Windows,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    *,
    sizes: AnswerSizes,
    version_2_with_negative: bool,
) -> Nbest:
    """The n-best answers to each question.

    Args:
      contexts: of Q questions.
      windows: W of them.
      start_logits, end_logits: float32 [W, S].
      sizes: how many, how long.
      version_2_with_negative: whether a question may have no answer.
    """
    num_questions = tf.shape(contexts.pieces.lengths)[0]
    spans = _candidates(contexts, windows, start_logits, end_logits, sizes)
    null_score = _null_score(windows, start_logits, end_logits, num_questions)
    if version_2_with_negative:
        nowhere = tf.fill([num_questions], NOWHERE)
        null = Spans(tf.range(num_questions), nowhere, nowhere, null_score)
        spans = Spans(*(tf.concat(pair, 0) for pair in zip(spans, null, strict=True)))
    spans = spans.gather(tf.argsort(spans.score, direction="DESCENDING", stable=True))
    spans = spans.gather(tf.argsort(spans.question, stable=True))
    entries, texts = _different(spans, _texts(contexts, spans))
    rank = _rank(entries.question)
    kept = tf.where((rank < sizes.n_best_size) | (entries.start == NOWHERE))[:, 0]
    entries, texts = entries.gather(kept), tf.gather(texts, kept)
    most = sizes.n_best_size + int(version_2_with_negative)  # N
    return _in_rows(entries, texts, null_score, num_questions=num_questions, most=most)


# ---------------------------------------------------------------------------- candidates


def _candidates(
    contexts: Contexts,
    windows: Windows,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    sizes: AnswerSizes,
) -> Spans:
    """The possible spans of all windows, in the order in which the original lists them."""
    is_piece = windows.features["input_mask"] != 0
    most = tf.minimum(sizes.n_best_size, tf.shape(start_logits)[1])

    def best(logits: tf.Tensor, allowed: tf.Tensor) -> tuple[tf.Tensor, ...]:
        # Padding does not compete; what else is not allowed takes up a place, as in the original.
        logits, index = tf.math.top_k(tf.where(is_piece, logits, logits.dtype.min), most)
        return tf.cast(logits, tf.float64), index, tf.gather(allowed, index, batch_dims=1)

    start_logit, start, is_start = best(start_logits, windows.is_max_context)  # [W, n]
    end_logit, end, is_end = best(end_logits, windows.in_context)  # [W, n]
    length = end[:, tf.newaxis, :] - start[:, :, tf.newaxis]  # [W, n, n]
    fits = (length >= 0) & (length < sizes.max_answer_length)
    found = tf.where(is_start[:, :, tf.newaxis] & is_end[:, tf.newaxis, :] & fits)  # [K, 3]
    of_start, of_end = found[:, :2], tf.gather(found, [0, 2], axis=1)
    window = found[:, 0]
    shift = tf.gather(windows.first_piece - windows.offset, window)  # [K]
    return Spans(
        question=tf.gather(windows.question, window),
        start=tf.gather(contexts.starts, tf.gather_nd(start, of_start) + shift),
        end=tf.gather(contexts.ends, tf.gather_nd(end, of_end) + shift),
        score=tf.gather_nd(start_logit, of_start) + tf.gather_nd(end_logit, of_end),
    )


def _null_score(
    windows: Windows, start_logits: tf.Tensor, end_logits: tf.Tensor, num_questions: tf.Tensor
) -> tf.Tensor:
    """The least score of [CLS] in the windows of each question [Q]; 0 without a window."""
    score = tf.cast(start_logits[:, 0], tf.float64) + tf.cast(end_logits[:, 0], tf.float64)
    least = tf.math.unsorted_segment_min(score, windows.question, num_questions)
    return tf.where(least == tf.float64.max, tf.zeros_like(least), least)


# ---------------------------------------------------------------------------- entries


def _texts(contexts: Contexts, spans: Spans) -> tf.Tensor:
    """The text [K] of each span, made of the code points of its context."""
    first = tf.gather(tf.cast(contexts.points.row_starts(), tf.int32), spans.question)
    is_span = spans.start != NOWHERE
    starts = tf.where(is_span, first + spans.start, 0)
    ends = tf.where(is_span, first + spans.end, 0)
    places = tf.ragged.range(starts, ends)  # [K, (code points)]
    points = tf.gather(contexts.points.values, places.values)
    return tf.strings.unicode_encode(places.with_values(points), "UTF-8")


def _different(spans: Spans, texts: tf.Tensor) -> tuple[Spans, tf.Tensor]:
    """Of spans of one question that read alike, the first."""
    number = tf.unique(texts).idx
    key = tf.cast(spans.question, tf.int64) * tf.size(texts, tf.int64) + tf.cast(number, tf.int64)
    unique = tf.unique(key)
    places = tf.range(tf.size(texts))
    first = tf.math.unsorted_segment_min(places, unique.idx, tf.size(unique.y))  # [E], rising
    return spans.gather(first), tf.gather(texts, first)


def _rank(question: tf.Tensor) -> tf.Tensor:
    """The place of each entry among those of its question, which follow one another."""
    first = tf.searchsorted(question, question, side="left")
    return tf.range(tf.size(question)) - first


def _in_rows(
    entries: Spans,
    texts: tf.Tensor,
    null_score: tf.Tensor,
    *,
    num_questions: tf.Tensor,
    most: int,
) -> Nbest:
    """A row of entries for each question, with probabilities."""
    where = tf.stack([entries.question, _rank(entries.question)], 1)  # [E, 2]
    shape = tf.stack([num_questions, most])

    def rows(values: tf.Tensor, other) -> tf.Tensor:
        empty = tf.fill(shape, tf.constant(other, values.dtype))
        return tf.tensor_scatter_nd_update(empty, where, values)

    is_entry = rows(tf.ones_like(entries.question, tf.bool), False)
    score = rows(entries.score, 0.0)
    best = tf.reduce_max(tf.where(is_entry, score, score.dtype.min), 1, keepdims=True)
    share = tf.where(is_entry, tf.exp(tf.minimum(score - best, 0.0)), 0.0)
    total = tf.reduce_sum(share, 1, keepdims=True)
    return Nbest(
        is_entry=is_entry,
        text=rows(texts, ""),
        start=rows(entries.start, NOWHERE),
        end=rows(entries.end, NOWHERE),
        score=score,
        probability=tf.math.divide_no_nan(share, total),
        null_score=null_score,
    )


# ---------------------------------------------------------------------------- decision


class Decision(NamedTuple):
    """What is said of each question, each field [Q].

    Attributes:
      has_answer: bool.
      place: int32, the column of Nbest of the answer, or of no answer.
      null_odds: float64, score of no answer less that of the best answer.
    """

    has_answer: tf.Tensor
    place: tf.Tensor
    null_odds: tf.Tensor


def decide(
    nbest: Nbest, *, version_2_with_negative: bool, null_score_diff_threshold: float
) -> Decision:
    """The best entry that is an answer, or in v2.0 no answer where its odds are too high."""
    is_answer = nbest.is_entry & (nbest.start != NOWHERE)  # [Q, N]
    exists = tf.reduce_any(is_answer, 1)
    place = tf.argmax(is_answer, axis=1, output_type=tf.int32)  # the first
    odds = nbest.null_score - tf.gather(nbest.score, place, batch_dims=1)
    odds = tf.where(exists, odds, tf.constant(CERTAINLY_NULL, tf.float64))
    if not version_2_with_negative:
        return Decision(exists, place, odds)
    has_answer = exists & (odds <= null_score_diff_threshold)
    of_null = tf.argmax(nbest.is_entry & ~is_answer, axis=1, output_type=tf.int32)
    return Decision(has_answer, tf.where(has_answer, place, of_null), odds)
