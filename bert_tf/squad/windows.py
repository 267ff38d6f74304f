"""Questions -> windows, the model's input sequences, and their TFRecords.

    [CLS] who founded it ? [SEP] ruprecht founded it in [SEP]              window 0
    [CLS] who founded it ? [SEP] it in 138 ##6 . [SEP]                     window 1
      0    0     0     0 0   0      1       1    1  1  1                   segment_ids

A context that is too long for one window is cut into several that overlap. In prediction, of the
windows with a piece, only the one with most context around it may give an answer that begins there.

Each context is tokenized once, in batches of contexts. Windows are slices of its arrays.

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
# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, kana, ideographs.
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
      ids: int32 [D], of the pieces.
      starts, ends: int32 [D]; a piece comes from context[start:end].
      word_of_piece: int64 [D], ascending. A word may have no piece.
    """

    context: str
    words: ContextWords
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    word_of_piece: np.ndarray


def tokenize_contexts(contexts: Iterable[str], tokenizer: FullTokenizer) -> dict[str, Document]:
    """The documents of the different contexts, by context.

    The original tokenizes word by word, with the same result: words end at white space, and no rule
    of the tokenizer looks beyond white space, but for pieces that are kept whole.
    """
    texts = list(dict.fromkeys(contexts))
    documents = {}
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
    ids_of_texts: list[np.ndarray] = []
    for ids, splits in tokenizer.iter_batches(texts):
        ids_of_texts += np.split(ids, splits[1:-1])
    return ids_of_texts


def _rows(ragged: tf.RaggedTensor) -> list[np.ndarray]:
    """The rows of a ragged tensor as arrays."""
    return np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])


# ---------------------------------------------------------------------------- where windows lie


class DocSpan(NamedTuple):
    """A run of the pieces of a context."""

    start: int
    length: int


def doc_spans(num_pieces: int, *, room: int, doc_stride: int) -> list[DocSpan]:
    """The pieces of a context that each window holds; no windows for an empty context.

    num_pieces 10, room 4, doc_stride 3:

        pieces     0 1 2 3 4 5 6 7 8 9
        window 0   0 1 2 3                     (0, 4)
        window 1         3 4 5 6               (3, 4)
        window 2               6 7 8 9         (6, 4)

    >>> [tuple(span) for span in doc_spans(10, room=4, doc_stride=3)]
    [(0, 4), (3, 4), (6, 4)]
    """
    step = min(room, doc_stride)  # no wider than the window, or pieces would be left out
    starts = range(0, max(num_pieces - room, 0) + step, step) if num_pieces else ()
    return [DocSpan(start, min(room, num_pieces - start)) for start in starts]


def max_context_window(spans: Sequence[DocSpan], num_pieces: int) -> np.ndarray:
    """For each piece of a context, the window in which it has most context around it: int64 [D].

    The shorter side of the context counts, then the length of the window; the first window wins a
    tie (original: `_check_is_max_context`).

        pieces     0   1   2   3   4   5   6   7   8   9
        window 0   0   1   1   0                            pieces on the shorter side
        window 1               0   1   1   0
        window 2                           0   1   1   0
        result     0   0   0   0   1   1   1   2   2   2

    >>> spans = doc_spans(10, room=4, doc_stride=3)
    >>> max_context_window(spans, 10).tolist()
    [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    """
    best_scores = np.full(num_pieces, -1.0)
    best_windows = np.zeros(num_pieces, np.int64)
    for number, (start, length) in enumerate(spans):
        pieces = slice(start, start + length)
        left = np.arange(length)
        scores = np.minimum(left, left[::-1]) + 0.01 * length
        is_better = scores > best_scores[pieces]
        best_scores[pieces][is_better] = scores[is_better]
        best_windows[pieces][is_better] = number
    return best_windows


@functools.lru_cache(maxsize=4096)
def _layout(num_pieces: int, room: int, doc_stride: int) -> list[tuple[DocSpan, np.ndarray]]:
    """The pieces of each window, and which of them, bool [C], have most context in it."""
    spans = doc_spans(num_pieces, room=room, doc_stride=doc_stride)
    best_windows = max_context_window(spans, num_pieces)
    layout = []
    for number, span in enumerate(spans):
        is_max_context = best_windows[span.start : span.start + span.length] == number
        layout.append((span, is_max_context))
    return layout


# ---------------------------------------------------------------------------- answers in training


class PieceSpan(NamedTuple):
    """The first and the last piece of an answer, or of words, in a context or a window."""

    start: int
    end: int


def pieces_of_words(document: Document, words: WordSpan) -> PieceSpan:
    """The pieces of consecutive words; if they have none, the end is before the start.

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
    start = np.searchsorted(document.word_of_piece, words.start_position, side="left")
    stop = np.searchsorted(document.word_of_piece, words.end_position, side="right")
    return PieceSpan(int(start), int(stop) - 1)


def pieces_of_answer(
    document: Document, question: TrainingExample, answer_ids: np.ndarray
) -> PieceSpan:
    """The pieces of the answer to a question in its context.

    Words end at white space only, so they may hold more than the answer, or hold it twice. The
    answer at its offset is taken:

        context   founded in (1386-1386).         answer   1386, at its second place
        pieces    founded in ( 138 ##6 - 138 ##6 ) .
        words' span          2   3   4 5   6   7 8 9
        result                             6   7

    If the answer alone has other pieces than in its context, as "Japan" in "(Japanese)", all pieces
    of its words are taken, as in the original (`_improve_answer_span`). In scripts without spaces
    that might be a whole paragraph, so there the pieces at the offset are taken.

    If the answer is not exactly at its offset, the nearest pieces like the answer's are taken.

    Args:
      document: the context.
      question: with an answer.
      answer_ids: int32, the pieces of the answer alone.
    """
    text, offset = question.answer
    start = int(np.searchsorted(document.ends, offset, side="right"))
    end = int(np.searchsorted(document.starts, offset + len(text), side="left")) - 1
    pieces = pieces_of_words(document, question.words)
    is_exact = document.context.startswith(text, offset)
    if is_exact and start <= end:
        # A piece that is kept whole, such as "New York", may begin in the word before the answer.
        pieces = PieceSpan(min(start, pieces.start), max(end, pieces.end))
        first_character = document.starts[pieces.start]
        end_character = document.ends[pieces.end]
        if UNSPACED.search(document.context, first_character, end_character):
            return PieceSpan(start, end)
    size = len(answer_ids)
    if not size:
        return pieces
    places = [start] if is_exact else range(pieces.start, pieces.end - size + 2)
    for place in sorted(places, key=lambda place: abs(place - start)):
        if np.array_equal(document.ids[place : place + size], answer_ids):
            return PieceSpan(place, place + size - 1)
    return pieces


def positions_in_window(answer: PieceSpan, span: DocSpan, *, doc_offset: int) -> PieceSpan:
    """The place of an answer in a window; (0, 0), that is [CLS], if it is not wholly in it.

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
      unique_id: 1,000,000,000 plus the number of the window.
      example_index: the number of the question, from 0.
      doc_span_index: the number of the window among those of the question, from 0.
      document: the context.
      span: the pieces of the context that are in the window.
      input_ids: int32 [T] = [CLS] question [SEP] context [SEP], without padding.
      doc_offset: the number of pieces before those of the context.
      token_is_max_context: bool [C], whether a piece has most context in this window.
      answer: in training, the place of the answer in the window.
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
        document = documents[example.context]
        query = question[: sizes.max_query_length]
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
    """The windows of `prediction_windows` with the place of each answer.

    In windows without the whole answer this is [CLS], as in the original, whose comment says that
    it drops such windows, but whose code keeps them.
    """
    texts = [question.answer.text if question.answer else "" for question in examples]
    ids_of_answers = _tokenize(texts, tokenizer)
    windows = []
    for window in prediction_windows([question.example for question in examples], tokenizer, sizes):
        question = examples[window.example_index]
        position = PieceSpan(0, 0)
        if question.answer is not None:
            answer_ids = ids_of_answers[window.example_index]
            answer = pieces_of_answer(window.document, question, answer_ids)
            position = positions_in_window(answer, window.span, doc_offset=window.doc_offset)
        is_impossible = question.answer is None
        windows.append(dataclasses.replace(window, answer=position, is_impossible=is_impossible))
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
    padding = (0, max_seq_length - len(ids))
    values = {
        "input_ids": np.pad(ids, padding).tolist(),
        "input_mask": np.pad(np.ones_like(ids), padding).tolist(),
        "segment_ids": np.pad(window.segment_ids, padding).tolist(),
        "unique_ids": [window.unique_id],
    }
    if window.answer is not None:
        values["start_positions"] = [window.answer.start]
        values["end_positions"] = [window.answer.end]
        values["is_impossible"] = [int(window.is_impossible)]
    return values
