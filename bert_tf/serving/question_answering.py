"""A question and a context of any length -> the answer and its place, or that there is none.

Questions and contexts -> windows -> logits -> answers, as TensorFlow operations.

Windows and answers are the same, ties included, as `bert_tf.squad.windows` and
`bert_tf.squad.answers` (with the alignment by offsets) make in Python; see there for drawings. All
questions of a request share flat lists:

    windows      what the model takes, in the order of the questions
    candidates   spans between one of the best starts and one of the best ends of a window
    entries      the best of them that read differently, best first, at most n_best_size each
    Nbest        the entries in a row for each question

Shapes: Q questions, W windows of all questions, S the longest window, D tokens of all contexts,
K candidates, E entries, N the most entries of a question.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.serving.graph_text import Features, Sequences, in_chunks
from bert_tf.serving.options import FROM_EXAMPLES, FROM_IDS
from bert_tf.serving.signatures import Answers, ServingTask
from bert_tf.squad.answers import CERTAINLY_NULL, AnswerSizes
from bert_tf.squad.windows import WindowSizes
from bert_tf.tokenization import SPECIAL_PIECES
from bert_tf.tokenization.layer import Runs, runs_of

NOWHERE = -1  # start and end of no answer

# ---------------------------------------------------------------------------- windows


class Contexts(NamedTuple):
    """Tokenized contexts.

    Attributes:
      points: int32 ragged [Q, (code points)], without bytes that are not UTF-8.
      pieces: Q runs of ids [D].
      starts, ends: int32 [D], the code points of its context that a token comes from.
    """

    points: tf.RaggedTensor
    pieces: Runs
    starts: tf.Tensor
    ends: tf.Tensor


class Windows(NamedTuple):
    """Windows of all questions, those of a question one after the other.

    Attributes:
      features: int32 [W, S].
      question: int32 [W], the question of each.
      first_piece: int32 [W], the token of all contexts at position `offset` of the window.
      offset: int32 [W], the length of [CLS], question and [SEP].
      in_context: bool [W, S], whether a position holds a token of the context.
      is_max_context: bool [W, S], whether it does and no other window has more context there.
    """

    features: Features
    question: tf.Tensor
    first_piece: tf.Tensor
    offset: tf.Tensor
    in_context: tf.Tensor
    is_max_context: tf.Tensor


def read_contexts(contexts: tf.Tensor, sequences: Sequences) -> Contexts:
    """Tokenizes contexts [Q], with offsets."""
    ids, starts, ends = sequences.tokenizer.tokenize_with_offsets(contexts)
    points = tf.strings.unicode_decode(contexts, "UTF-8", errors="ignore")
    return Contexts(points, runs_of(ids), starts.values, ends.values)


def make_windows(
    questions: tf.Tensor, contexts: Contexts, sequences: Sequences, sizes: WindowSizes
) -> Windows:
    """The windows of questions [Q] about as many contexts; none where a context has no token."""
    query = runs_of(sequences.tokenizer.tokenize_ids(questions)).cut(sizes.max_query_length)
    room = sizes.max_seq_length - query.lengths - SPECIAL_PIECES  # [Q]
    step = tf.minimum(room, sizes.doc_stride)
    rest = tf.maximum(contexts.pieces.lengths - room, 0)
    count = tf.where(contexts.pieces.lengths > 0, (rest + step - 1) // step + 1, 0)
    behind = tf.cumsum(count)  # [Q]: windows of this question and those before
    number = tf.range(tf.reduce_sum(count))  # [W]
    question = tf.searchsorted(behind, number, side="right")  # [W]
    start = (number - tf.gather(behind - count, question)) * tf.gather(step, question)
    rest_of_context = tf.gather(contexts.pieces.lengths, question) - start
    length = tf.minimum(tf.gather(room, question), rest_of_context)  # [W]
    first_piece = tf.gather(contexts.pieces.starts, question) + start
    starts = tf.gather(query.starts, question)
    of_query = Runs(query.ids, starts, tf.gather(query.lengths, question))
    features = sequences.join(of_query, Runs(contexts.pieces.ids, first_piece, length))
    offset = of_query.lengths + 2  # [CLS] and [SEP]
    place = tf.range(tf.shape(features["input_ids"])[1]) - offset[:, tf.newaxis]  # [W, S]
    in_context = (place >= 0) & (place < length[:, tf.newaxis])
    piece = first_piece[:, tf.newaxis] + place
    # How much context a token has, as the original counts it; float64, for the same ties.
    shorter = tf.minimum(place, length[:, tf.newaxis] - 1 - place)
    score = tf.cast(shorter, tf.float64) + 0.01 * tf.cast(length[:, tf.newaxis], tf.float64)
    best = _is_best(score, piece, in_context, num_pieces=tf.size(contexts.starts))
    return Windows(features, question, first_piece, offset, in_context, best)


def _is_best(
    score: tf.Tensor, piece: tf.Tensor, in_context: tf.Tensor, *, num_pieces: tf.Tensor
) -> tf.Tensor:
    """Where a window has the highest score of a token, bool [W, S]; the first of equal windows."""
    rows = tf.shape(score)[0]
    size = num_pieces + 1
    piece = tf.where(in_context, piece, num_pieces)  # other positions share one more number
    most = tf.gather(tf.math.unsorted_segment_max(score, piece, size), piece)
    window = tf.broadcast_to(tf.range(rows)[:, tf.newaxis], tf.shape(score))
    candidate = tf.where(score == most, window, rows)
    first = tf.gather(tf.math.unsorted_segment_min(candidate, piece, size), piece)
    return in_context & (window == first)


# ---------------------------------------------------------------------------- answers


class Spans(NamedTuple):
    """Possible answers, each field [K] or [E].

    Attributes:
      question: int32.
      start, end: int32, code points of the question's context; NOWHERE for no answer.
      score: float64, the sum of both logits.
    """

    question: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    score: tf.Tensor

    def gather(self, which: tf.Tensor) -> "Spans":
        """The spans with these indices."""
        return Spans(*(tf.gather(field, which) for field in self))


class Nbest(NamedTuple):
    """The entries of each question, best first; "no answer" is one of them in v2.0.

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
      contexts: the contexts of Q questions.
      windows: W, of all questions.
      start_logits, end_logits: float32 [W, S].
      sizes: the number of answers that compete, and their maximum length.
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
    listed = tf.where((rank < sizes.n_best_size) | (entries.start == NOWHERE))[:, 0]
    entries = entries.gather(listed)
    texts = tf.gather(texts, listed)
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
        # Padding does not compete; other excluded positions take up a place, as in the original.
        logits, index = tf.math.top_k(tf.where(is_piece, logits, logits.dtype.min), most)
        return tf.cast(logits, tf.float64), index, tf.gather(allowed, index, batch_dims=1)

    start_logit, start, is_start = best(start_logits, windows.is_max_context)  # [W, n]
    end_logit, end, is_end = best(end_logits, windows.in_context)  # [W, n]
    length = end[:, tf.newaxis, :] - start[:, :, tf.newaxis]  # [W, n, n]
    fits = (length >= 0) & (length < sizes.max_answer_length)
    is_span = is_start[:, :, tf.newaxis] & is_end[:, tf.newaxis, :] & fits  # [W, n, n]
    places = tf.where(is_span)  # [K, 3]: window, rank of the start, rank of the end
    window = places[:, 0]
    of_start = places[:, :2]  # [K, 2]
    of_end = tf.gather(places, [0, 2], axis=1)  # [K, 2]
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
    """The lowest score of [CLS] in the windows of each question [Q]; 0 without a window."""
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
    """Keeps the first span of each distinct text of a question."""
    number = tf.unique(texts).idx
    key = tf.cast(spans.question, tf.int64) * tf.size(texts, tf.int64) + tf.cast(number, tf.int64)
    unique = tf.unique(key)
    places = tf.range(tf.size(texts))
    first = tf.math.unsorted_segment_min(places, unique.idx, tf.size(unique.y))  # [E], rising
    return spans.gather(first), tf.gather(texts, first)


def _rank(question: tf.Tensor) -> tf.Tensor:
    """The rank of each entry [E] within its question, from 0; a question's entries are adjacent."""
    first = tf.searchsorted(question, question, side="left")
    return tf.range(tf.size(question)) - first


def _in_rows(
    entries: Spans, texts: tf.Tensor, null_score: tf.Tensor, *, num_questions: tf.Tensor, most: int
) -> Nbest:
    """A row of entries for each question, with probabilities."""
    table = tf.RaggedTensor.from_value_rowids(
        entries.question, entries.question, num_questions, validate=False
    )

    def rows(values: tf.Tensor, filler) -> tf.Tensor:
        return table.with_values(values).to_tensor(filler, shape=[None, most])  # [Q, N]

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


def decide(
    nbest: Nbest, *, version_2_with_negative: bool, null_score_diff_threshold: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Chooses the best answer; in v2.0 no answer if its odds are above the threshold.

    The twin of `bert_tf.squad.answers.decide`; both pass the cases of one table of tests.

    Returns:
      has_answer bool [Q]; the column of `Nbest` with the answer, or with "no answer", int32 [Q];
      and the odds float64 [Q], the score of no answer less that of the best answer.
    """
    is_answer = nbest.is_entry & (nbest.start != NOWHERE)  # [Q, N]
    exists = tf.reduce_any(is_answer, 1)  # [Q]
    place = tf.argmax(is_answer, axis=1, output_type=tf.int32)  # [Q], the first
    odds = nbest.null_score - tf.gather(nbest.score, place, batch_dims=1)
    odds = tf.where(exists, odds, tf.constant(CERTAINLY_NULL, tf.float64))
    if not version_2_with_negative:
        return exists, place, odds
    has_answer = exists & (odds <= null_score_diff_threshold)
    null_place = tf.argmax(nbest.is_entry & ~is_answer, axis=1, output_type=tf.int32)
    return has_answer, tf.where(has_answer, place, null_place), odds


# ---------------------------------------------------------------------------- the task


QUESTION = "When was the university founded?"
SENTENCE = "Ruprecht founded the university of Heidelberg in 1386. "


class QuestionAnsweringTask(ServingTask):
    """Windows, the model, n-best answers and the no-answer decision, all in the graph.

    Answers are those of run_squad.py --nolegacy_alignment: cut from the context by token offsets.
    Where no span is possible, the answer is empty (run_squad.py writes the original's "empty").
    Shapes: k listed answers.
    """

    padded = (FROM_IDS, FROM_EXAMPLES)
    own_options = (
        "doc_stride",
        "max_query_length",
        "n_best_size",
        "max_answer_length",
        "version_2_with_negative",
        "null_score_diff_threshold",
        "top_k",
    )
    part = "window"
    texts: ClassVar = {"question": "the question", "context": "the text, of any length"}
    outputs: ClassVar = {
        "answer": "string [B], empty where there is none",
        "has_answer": "bool [B]",
        "score": "float [B], sum of the logits of its first and last piece, or of no answer",
        "probability": "float [B], its share among the n_best_size best",
        "start": "int32 [B], its first code point in the context; -1 where there is none",
        "end": "int32 [B], the code point behind its last; -1 where there is none",
        "nbest_answers": "string [B, k], the best answers; an empty one says there is none",
        "nbest_probabilities": "float [B, k]; 0 beyond the last",
        "nbest_starts": "int32 [B, k]",
        "nbest_ends": "int32 [B, k]",
    }
    id_outputs: ClassVar = {
        "start_logits": "float [B, S], that the answer begins with this piece",
        "end_logits": "float [B, S], that it ends with it",
    }
    samples = tuple({"question": QUESTION, "context": SENTENCE * n} for n in (1, 40, 0))

    def __init__(self, *args):
        """See `ServingTask`.

        Raises:
          InputError: windows are too short, or there are fewer answers than are to be listed.
        """
        super().__init__(*args)
        chosen = self.options
        self._window_sizes = WindowSizes(
            chosen.max_seq_length, chosen.doc_stride, chosen.max_query_length
        )
        self._answer_sizes = AnswerSizes(
            n_best_size=chosen.n_best_size, max_answer_length=chosen.max_answer_length
        )
        most = chosen.n_best_size + int(chosen.version_2_with_negative)
        if not 1 <= chosen.top_k <= most:
            received = f"--top_k={chosen.top_k} with --n_best_size={chosen.n_best_size}"
            raise InputError(received, f"1 to {most}", "use a greater --n_best_size")
        if chosen.version_2_with_negative:
            odds = {"null_odds": "float [B], score of no answer less that of the best answer"}
            self.outputs = {**self.outputs, **odds}

    def _windows(self, **texts: tf.Tensor) -> tuple[Contexts, Windows]:
        sequences = self.sequences
        contexts = read_contexts(texts["context"], sequences)
        windows = make_windows(texts["question"], contexts, sequences, self._window_sizes)
        return contexts, windows

    def features(self, **texts: tf.Tensor) -> Features:
        """question, context [B] -> the windows [W, S] of all questions."""
        return self._windows(**texts)[1].features

    def part_of(self, answer: Mapping[str, Any], **texts: tf.Tensor) -> int:
        """The window where the answer's first token has most context."""
        contexts, windows = self._windows(**texts)
        piece = tf.math.count_nonzero(contexts.starts <= answer["start"], dtype=tf.int32) - 1
        place = (piece - windows.first_piece + windows.offset)[:, tf.newaxis]  # [W, 1]
        position = tf.range(tf.shape(windows.is_max_context)[1])
        has_answer = tf.reduce_any(windows.is_max_context & (position == place), 1)  # [W]
        number = int(tf.argmax(tf.concat([has_answer, [True]], 0)))  # W if no window has it
        return number % max(1, len(windows.question))

    def answer(self, **texts: tf.Tensor) -> Answers:
        """question, context [B] -> the answers."""
        contexts, windows = self._windows(**texts)
        logits = in_chunks(self._logits, windows.features, dtypes=[tf.float32] * 2)
        has_null = self.options.version_2_with_negative
        nbest = find_answers(
            contexts, windows, *logits, sizes=self._answer_sizes, version_2_with_negative=has_null
        )
        threshold = self.options.null_score_diff_threshold
        has_answer, place, null_odds = decide(
            nbest, version_2_with_negative=has_null, null_score_diff_threshold=threshold
        )

        def chosen(values: tf.Tensor) -> tf.Tensor:
            return tf.gather(values, place, batch_dims=1)  # [Q, N] -> [Q]

        listed = slice(self.options.top_k)
        answers = {
            "answer": tf.where(has_answer, chosen(nbest.text), ""),
            "has_answer": has_answer,
            "score": tf.cast(chosen(nbest.score), tf.float32),
            "probability": tf.cast(chosen(nbest.probability), tf.float32),
            "start": tf.where(has_answer, chosen(nbest.start), NOWHERE),
            "end": tf.where(has_answer, chosen(nbest.end), NOWHERE),
            "nbest_answers": nbest.text[:, listed],
            "nbest_probabilities": tf.cast(nbest.probability[:, listed], tf.float32),
            "nbest_starts": nbest.start[:, listed],
            "nbest_ends": nbest.end[:, listed],
            "null_odds": tf.cast(null_odds, tf.float32),
        }
        return {name: answers[name] for name in self.outputs}

    def _logits(self, features: Features) -> list[tf.Tensor]:
        outputs = self.outputs_of(features)
        return [outputs["start_logits"], outputs["end_logits"]]  # [n, S] each

    def answer_ids(self, features: Features) -> Answers:
        """Features of windows [B, S] -> start_logits, end_logits [B, S]."""
        return dict(zip(("start_logits", "end_logits"), self._logits(features), strict=True))
