"""Questions -> windows, the model's input sequences, and their TFRecords.

    [CLS] who founded it ? [SEP] ruprecht founded it in [SEP]              window 0
    [CLS] who founded it ? [SEP] it in 138 ##6 . [SEP]                     window 1
      0    0     0     0 0   0      1       1    1  1  1                   segment_ids

A context that is too long for one window is cut into several that overlap. In prediction an answer
can begin with a piece only in the window in which the piece has most context on both sides.

Each context is tokenized once, in batches of contexts; windows are slices of its arrays.

Shapes: T pieces of a window, C of its context, D of the whole context; S is max_seq_length.
Source: `convert_examples_to_features` of the original's run_squad.py.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data.records import Feature, Record, input_features
from bert_tf.heads import head_named
from bert_tf.squad.data import ContextWords, SquadExample, TrainingExample, WordSpan, split_context
from bert_tf.squad.options import WindowSizes
from bert_tf.terminal import counted
from bert_tf.tokenization.wordpiece import FullTokenizer, Packer

FIRST_UNIQUE_ID = 1_000_000_000
CONTEXTS_AT_ONCE = 128  # tokenized in one call; bounds the memory
# Scripts that have no spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, kana, ideographs.
UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u9fff\uf900-\ufaff\uff66-\uff9d]")


# ---------------------------------------------------------------------------- contexts


@dataclasses.dataclass(frozen=True, eq=False)
class Document:
    """A context in words and in pieces.

    context          "Ruprecht founded it in 1386."
    words             Ruprecht       founded  it  in  1386.
    pieces            ru  ##pre ##cht founded it  in  138 ##6 .
    word_of_piece      0    0     0     1      2   3   4   4  4
    starts             0    2     5     9     17  20  23  26 27
    ends               2    5     8    16     19  22  26  27 28

    Attributes:
      context: the text.
      words: its words.
      ids: int32 [D], the pieces.
      starts, ends: int32 [D]; context[start:end] is what a piece comes from.
      word_of_piece: int64 [D], never falling. A word may have no piece.
    """

    context: str
    words: ContextWords
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    word_of_piece: np.ndarray


def tokenize_contexts(contexts: Iterable[str], tokenizer: FullTokenizer) -> dict[str, Document]:
    """The different contexts, each tokenized once.

    The original tokenizes word by word. The result is the same: it splits words at white space, as
    the tokenizer does, and no rule of the tokenizer looks beyond white space.
    """
    texts, documents = list(dict.fromkeys(contexts)), {}
    firsts = range(0, len(texts), CONTEXTS_AT_ONCE)
    for first in counted(firsts, "tokenize the contexts", len(firsts), "batches"):
        batch = texts[first : first + CONTEXTS_AT_ONCE]
        columns = [_rows(ragged) for ragged in tokenizer.tokenize_with_offsets(batch)]
        for text, ids, starts, ends in zip(batch, *columns, strict=True):
            words = split_context(text)
            word_of_piece = words.word_of_character(starts)
            documents[text] = Document(text, words, ids, starts, ends, word_of_piece)
    return documents


def _tokenize(texts: Sequence[str], tokenizer: FullTokenizer) -> list[np.ndarray]:
    """The ids of each text, each int32 [pieces]."""
    batches = tokenizer.iter_batches(texts)
    return [row for ids, splits in batches for row in np.split(ids, splits[1:-1])]


def _rows(ragged: tf.RaggedTensor) -> list[np.ndarray]:
    return np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])


# ---------------------------------------------------------------------------- where windows lie


class DocSpan(NamedTuple):
    """A run of the pieces of a context."""

    start: int
    length: int


def doc_spans(num_pieces: int, *, room: int, doc_stride: int) -> list[DocSpan]:
    """Which pieces of a context each window holds: none for an empty context.

    num_pieces 10, room 4, doc_stride 3:

        pieces     0 1 2 3 4 5 6 7 8 9
        window 0   0 1 2 3                     (0, 4)
        window 1         3 4 5 6               (3, 4)
        window 2               6 7 8 9         (6, 4)

    >>> [tuple(span) for span in doc_spans(10, room=4, doc_stride=3)]
    [(0, 4), (3, 4), (6, 4)]
    """
    # No wider than the window, or pieces would be left out.
    step = min(room, doc_stride)
    starts = range(0, max(num_pieces - room, 0) + step, step) if num_pieces else ()
    return [DocSpan(start, min(room, num_pieces - start)) for start in starts]


def max_context_window(spans: Sequence[DocSpan], num_pieces: int) -> np.ndarray:
    """For each piece of a context the window in which it has most context, int64 [D].

    What counts is the shorter of both sides, and a little the length of the window; the first
    window wins a tie (original: `_check_is_max_context`).

        pieces     0   1   2   3   4   5   6   7   8   9
        window 0   0   1   1   0                            pieces on the shorter side
        window 1               0   1   1   0
        window 2                           0   1   1   0
        result     0   0   0   0   1   1   1   2   2   2

    >>> spans = doc_spans(10, room=4, doc_stride=3)
    >>> max_context_window(spans, 10).tolist()
    [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    """
    best = np.full(num_pieces, -1.0)
    winner = np.zeros(num_pieces, np.int64)
    for number, (start, length) in enumerate(spans):
        left = np.arange(length)
        score = np.minimum(left, left[::-1]) + 0.01 * length
        better = score > best[start : start + length]
        best[start : start + length][better] = score[better]
        winner[start : start + length][better] = number
    return winner


@functools.lru_cache(maxsize=4096)
def _layout(num_pieces: int, room: int, doc_stride: int) -> list[tuple[DocSpan, np.ndarray]]:
    """Each window's pieces, and for which of them [C] it is the one with most context."""
    spans = doc_spans(num_pieces, room=room, doc_stride=doc_stride)
    winner = max_context_window(spans, num_pieces)
    return [
        (span, winner[span.start : span.start + span.length] == number)
        for number, span in enumerate(spans)
    ]


# ---------------------------------------------------------------------------- answers in training


class PieceSpan(NamedTuple):
    """First and last piece of something in a context or a window."""

    start: int
    end: int


def pieces_of_words(document: Document, words: WordSpan) -> PieceSpan:
    """The pieces of a run of words; where they have none, the end is before the start.

        words            0   1       2     3
        word_of_piece    0   1   1   3   3     word 2 has no piece
        words 0 to 1     0   1   2             ->  (0, 2)
        word 2                                 ->  (3, 2)

    >>> from types import SimpleNamespace
    >>> document = SimpleNamespace(word_of_piece=np.array([0, 1, 1, 3, 3]))
    >>> tuple(pieces_of_words(document, WordSpan(0, 1)))
    (0, 2)
    >>> tuple(pieces_of_words(document, WordSpan(2, 2)))
    (3, 2)
    """
    first = np.searchsorted(document.word_of_piece, words.start_position, side="left")
    behind = np.searchsorted(document.word_of_piece, words.end_position, side="right")
    return PieceSpan(int(first), int(behind) - 1)


def pieces_of_answer(document: Document, one: TrainingExample, alone: np.ndarray) -> PieceSpan:
    """The pieces of the answer to a question in its context.

    Words are parted by white space alone, so they may hold more than the answer, or hold it twice.
    It is the one at its offset:

        context   founded in (1386-1386).         answer   1386, at its second place
        pieces    founded in ( 138 ##6 - 138 ##6 ) .
        words' span          2   3   4 5   6   7 8 9
        result                             6   7

    If the answer by itself is cut into other pieces than there, as "Japan" in "(Japanese)", all
    pieces of its words are taken, as in the original (`_improve_answer_span`). But where words have
    no spaces between them, that may be a whole paragraph: there it is the pieces at the offset.

    Where the file's offset is not exact, the nearest such pieces among the words' are taken.

    Args:
      document: the context.
      one: the question; it has an answer.
      alone: int32, the pieces of the answer by itself.
    """
    text, first = one.answer
    start = int(np.searchsorted(document.ends, first, side="right"))
    end = int(np.searchsorted(document.starts, first + len(text), side="left")) - 1
    whole, size = pieces_of_words(document, one.words), len(alone)
    is_exact = document.context.startswith(text, first)
    if is_exact and start <= end:
        begin, behind = document.starts[whole.start], document.ends[whole.end]
        if UNSPACED.search(document.context, begin, behind):
            return PieceSpan(start, end)
    places = [start] if is_exact else range(whole.start, whole.end - size + 2)
    for place in sorted(places, key=lambda place: abs(place - start)) if size else ():
        if np.array_equal(document.ids[place : place + size], alone):
            return PieceSpan(place, place + size - 1)
    return whole


def positions_in_window(answer: PieceSpan, span: DocSpan, *, doc_offset: int) -> PieceSpan:
    """Where in a window an answer is; (0, 0), that is [CLS], if the window has not all of it.

    answer 5 to 6, doc_offset 9 (pieces before those of the context):

        (3, 4)   window with the pieces 3 4 5 6   ->  (11, 12)
        (6, 4)   window with the pieces 6 7 8 9   ->  (0, 0)

    >>> tuple(positions_in_window(PieceSpan(5, 6), DocSpan(3, 4), doc_offset=9))
    (11, 12)
    >>> tuple(positions_in_window(PieceSpan(5, 6), DocSpan(6, 4), doc_offset=9))
    (0, 0)
    """
    if answer.start < span.start or answer.end > span.start + span.length - 1:
        return PieceSpan(0, 0)
    shift = doc_offset - span.start
    return PieceSpan(answer.start + shift, answer.end + shift)


# ---------------------------------------------------------------------------- windows


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Window:
    """An input sequence of the model (original: `InputFeatures`).

    Attributes:
      unique_id: 1,000,000,000 and on, in order.
      example_index: the number of the question, from 0.
      doc_span_index: the number of the window among those of this question, from 0.
      document: the context.
      span: the pieces of the context that are in the window.
      input_ids: int32 [T] = [CLS] question [SEP] context [SEP], without padding.
      doc_offset: the number of pieces before those of the context.
      token_is_max_context: bool [C], whether the piece has most context in this window.
      answer: in training, where in the window the answer is.
      is_impossible: in training, whether the question is unanswerable.
    """

    unique_id: int
    example_index: int
    doc_span_index: int
    document: Document
    span: DocSpan
    input_ids: np.ndarray
    doc_offset: int
    token_is_max_context: np.ndarray
    answer: PieceSpan | None = None
    is_impossible: bool = False

    @property
    def segment_ids(self) -> np.ndarray:
        """int32 [T]: 0 for [CLS], the question and [SEP], 1 for the context and its [SEP]."""
        return (np.arange(len(self.input_ids)) >= self.doc_offset).astype(np.int32)


def prediction_windows(
    examples: Sequence[SquadExample], tokenizer: FullTokenizer, sizes: WindowSizes
) -> list[Window]:
    """The windows of all questions, in order; an empty context has none.

    Raises:
      InputError: the vocabulary lacks [CLS] or [SEP].
    """
    tokenizer.require_special_tokens("[CLS]", "[SEP]")
    packer = Packer(tokenizer)
    documents = tokenize_contexts((example.context for example in examples), tokenizer)
    questions = _tokenize([example.question_text for example in examples], tokenizer)
    windows = []
    pairs = zip(counted(examples, "cut", len(examples), "questions"), questions, strict=True)
    for index, (example, question) in enumerate(pairs):
        document, query = documents[example.context], question[: sizes.max_query_length]
        layout = _layout(len(document.ids), sizes.room(len(query)), sizes.doc_stride)
        for number, (span, is_max_context) in enumerate(layout):
            pieces = document.ids[span.start : span.start + span.length]
            input_ids, _ = packer.join(query.tolist(), pieces.tolist())
            windows.append(
                Window(
                    unique_id=FIRST_UNIQUE_ID + len(windows),
                    example_index=index,
                    doc_span_index=number,
                    document=document,
                    span=span,
                    input_ids=np.array(input_ids, np.int32),  # [T]
                    doc_offset=len(query) + 2,
                    token_is_max_context=is_max_context,
                )
            )
    return windows


def training_windows(
    examples: Sequence[TrainingExample], tokenizer: FullTokenizer, sizes: WindowSizes
) -> list[Window]:
    """The same with the place of each answer.

    Windows without the whole answer are kept and point at [CLS], as in the original (its comment
    says that it drops them; its code keeps them).
    """
    answers = _tokenize([one.answer.text if one.answer else "" for one in examples], tokenizer)
    windows = []
    for window in prediction_windows([one.example for one in examples], tokenizer, sizes):
        one, ids = examples[window.example_index], answers[window.example_index]
        position = PieceSpan(0, 0)
        if one.answer is not None:
            span = pieces_of_answer(window.document, one, ids)
            position = positions_in_window(span, window.span, doc_offset=window.doc_offset)
        labels = {"answer": position, "is_impossible": one.answer is None}
        windows.append(dataclasses.replace(window, **labels))
    return windows


# ---------------------------------------------------------------------------- records


def squad_record(*, max_seq_length: int, is_training: bool, **model_sizes: int) -> Record:
    """The record of a window (original: `FeatureWriter` of run_squad.py).

    Features: unique_ids int64 [1]; input_ids, input_mask, segment_ids int64 [S]; in training also
    start_positions, end_positions, is_impossible int64 [1]. `model_sizes`: as for
    `input_features`.
    """
    features = [Feature("unique_ids", tf.int64, 1), *input_features(max_seq_length, **model_sizes)]
    if is_training:
        features += head_named("question_answering").label_features(max_seq_length, 2, 1)
        features.append(Feature("is_impossible", tf.int64, 1, most=1))
    return Record("SQuAD", tuple(features))


def record_values(window: Window, max_seq_length: int) -> dict[str, list[int]]:
    """The features of a window's record, padded with zeros to S."""
    ids = window.input_ids
    values = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": window.segment_ids}
    padding = (0, max_seq_length - len(ids))
    result = {name: np.pad(value, padding).tolist() for name, value in values.items()}
    result["unique_ids"] = [window.unique_id]
    if window.answer is not None:
        result["start_positions"], result["end_positions"] = ([i] for i in window.answer)
        result["is_impossible"] = [int(window.is_impossible)]
    return result
