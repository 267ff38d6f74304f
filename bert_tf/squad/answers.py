"""Logits -> answers: the best spans of each question, and whether it has an answer at all.

    logits of a window      best_indexes, window_candidates    which spans are possible
    windows of a question   n_best                             the best ones, as different texts
    pieces of an answer     text_by_offsets, find_final_text   the text of these pieces
    SQuAD v2.0              null_odds, decide                  "" if no answer is likelier

Nothing here reads files or flags; arguments are named as the flags.

Shapes: T pieces of a window, S logits of a window (T and perhaps padding), K candidates.
Source: `write_predictions` of the original's run_squad.py.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.squad.data import SquadExample
from bert_tf.squad.options import Answers, AnswerSizes
from bert_tf.terminal import counted

if TYPE_CHECKING:
    from bert_tf.squad.windows import Window
    from bert_tf.tokenization.wordpiece import FullTokenizer

# (window, first index in it, last index in it) -> the text
Alignment = Callable[["Window", int, int], str]

WORDS_AT_ONCE = 1024  # normalized in one call; bounds the memory
NO_CANDIDATE = "empty"  # the original's answer in v1.1 if no span is possible
# Null odds if no span is possible, so that "" is the answer under any threshold. (The original
# crashes there; its null score begins with this number.)
CERTAINLY_NULL = 1_000_000.0


class AnswerConfig(Answers):
    """How questions are answered: the options of `Answers` and this one.

    Attributes:
      version_2_with_negative: whether a question may have no answer.
    """

    version_2_with_negative: bool = False


class NbestEntry(NamedTuple):
    """One of the answers to a question.

    Attributes:
      text: "" for no answer.
      probability: among the question's answers.
      start_logit, end_logit: of its first and its last piece; of [CLS] for no answer.
      characters: its first character in the context, and the one after its last; None for no
        answer.
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float
    characters: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The answers to a question, best first.

    Attributes:
      qas_id: the id of the question.
      nbest: one or more.
      null_odds: the score of no answer minus that of the best answer; None in v1.1.
    """

    qas_id: str
    nbest: list[NbestEntry]
    null_odds: float | None = None


# ---------------------------------------------------------------------------- the text of pieces


def make_alignment(
    windows: Iterable[Window], tokenizer: FullTokenizer, config: AnswerConfig
) -> Alignment:
    """A function that turns pieces of these windows into text, as it stands in the context.

    Pieces are in lower case and without accents, and the spaces between them are lost.

        context                 "It was Steve Smith's  café."
        predicted pieces               steve smith
        by offsets                    "Steve Smith"     the characters that the pieces come from
        legacy                        "Steve Smith"     as the original: found by counting letters

    Offsets are always right. The original's way returns whole words if it cannot match the letters:
    if a piece is [UNK] or kept whole, if the tokenizer drops characters or changes one
    into several, and if a letter's accent is a character of its own.

    Args:
      windows: the windows of all questions.
      tokenizer: the one that made the windows.
      config: has `legacy_alignment`.
    """
    if not config.legacy_alignment:
        return text_by_offsets
    documents = dict.fromkeys(window.document for window in windows)
    words = itertools.chain.from_iterable(document.words.words for document in documents)
    normal = normal_words(words, **tokenizer.case)

    def legacy_text(window: Window, start_index: int, end_index: int) -> str:
        document = window.document
        shift = window.span.start - window.doc_offset
        first, last = document.word_of_piece[[start_index + shift, end_index + shift]]
        ids = window.input_ids[start_index : end_index + 1].tolist()
        pred_text = join_pieces(tokenizer.convert_ids_to_tokens(ids))
        orig_words = document.words.words[first : last + 1]
        orig_text = " ".join(orig_words)
        tok_text = " ".join(filter(None, map(normal.get, orig_words)))
        final_text = find_final_text(pred_text, orig_text, tok_text)
        if final_text is not None:
            return final_text
        if config.verbose_logging:
            logging.info("Unable to find text: %r in %r; whole words used", pred_text, orig_text)
        return orig_text

    return legacy_text


def context_characters(window: Window, start_index: int, end_index: int) -> tuple[int, int]:
    """The place of a window's pieces in the context: the first character, and that after the last.

    Args:
      window: with its context.
      start_index, end_index: the first and the last piece in the window.
    """
    shift = window.span.start - window.doc_offset
    document = window.document
    return int(document.starts[start_index + shift]), int(document.ends[end_index + shift])


def text_by_offsets(window: Window, start_index: int, end_index: int) -> str:
    """The context from the first character of the first piece to the last of the last piece."""
    start, end = context_characters(window, start_index, end_index)
    return window.document.context[start:end]


def join_pieces(pieces: Sequence[str]) -> str:
    """Pieces as text, with spaces between words.

    >>> join_pieces(["steve", "smith", "'", "s", "tea", "##pot"])
    "steve smith ' s teapot"
    """
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def find_final_text(pred_text: str, orig_text: str, tok_text: str) -> str | None:
    """Finds a prediction in the words that it comes from, by counting letters.

    Every character but a space counts as a letter. The words and their normal form must have the
    same number of letters:

        orig_text   "Steve Smith's"         the words of the predicted pieces
        tok_text    "steve smith ' s"       the same in normal form
        pred_text   "steve smith"           is in tok_text, from its letter 0 to its letter 9
        result      "Steve Smith"           orig_text from letter 0 to letter 9

    None if the letters cannot be matched:

        orig_text        tok_text      pred_text
        "Straße 5"       "straße 5"    "[UNK] 5"      not in tok_text
        "a\\u200bb c"     "ab c"        "c"            4 letters against 3

    (The original's `get_final_text` makes tok_text itself, with its BasicTokenizer.)

    >>> find_final_text("steve smith", "Steve Smith's", "steve smith ' s")
    'Steve Smith'
    >>> find_final_text("[UNK] 5", "Straße 5", "straße 5")
    >>> find_final_text("c", "a\\u200bb c", "ab c")
    """
    place = tok_text.find(pred_text)
    letters = [i for i, character in enumerate(orig_text) if character != " "]
    if place < 0 or not pred_text or len(letters) != _num_letters(tok_text):
        return None
    first = _num_letters(tok_text[:place])
    last = first + _num_letters(pred_text) - 1
    return orig_text[letters[first] : letters[last] + 1]


def _num_letters(text: str) -> int:
    """The number of characters that are no spaces."""
    return len(text) - text.count(" ")


def normal_words(words: Iterable[str], **case: Any) -> dict[str, str]:
    """Each different word in the tokenizer's normal form: "Smith's" is "smith ' s".

    A word whose characters are all dropped, such as a zero-width space, is "".
    """
    import tensorflow as tf  # not at the top, as scoring answers does not need it

    from bert_tf.tokenization.basic import UnicodeTable, load_unicode_table, split_words
    from bert_tf.tokenization.wordpiece import utf8

    table = UnicodeTable(*map(tf.constant, load_unicode_table(**case)))
    different = list(dict.fromkeys(words))
    normal: dict[str, str] = {}
    for first in range(0, len(different), WORDS_AT_ONCE):
        batch = different[first : first + WORDS_AT_ONCE]
        with tf.device("CPU:0"):  # strings cannot be elsewhere
            split = split_words(tf.constant([*map(utf8, batch)]), table)
            parts = tf.RaggedTensor.from_row_splits(split.strings, split.text_splits)
            joined = tf.strings.reduce_join(parts, axis=-1, separator=" ").numpy().tolist()
        normal |= zip(batch, (text.decode() for text in joined), strict=True)
    return normal


# ---------------------------------------------------------------------------- candidates


class Candidates(NamedTuple):
    """Spans in windows, each field [K].

    Attributes:
      window: the number of the window among those of the question, int64.
      start_index, end_index: the first and the last piece in the window, int64; 0 for no answer.
      start_logit, end_logit: float64.
    """

    window: np.ndarray
    start_index: np.ndarray
    end_index: np.ndarray
    start_logit: np.ndarray
    end_logit: np.ndarray


def best_indexes(logits: np.ndarray, n_best_size: int) -> np.ndarray:
    """The indexes of the highest logits, highest first; of equal logits the first comes first.

    >>> best_indexes(np.array([0.5, 3.0, -1.0, 3.0]), 3).tolist()
    [1, 3, 0]
    """
    return np.argsort(-logits, kind="stable")[:n_best_size]


def window_candidates(
    window: Window,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    sizes: AnswerSizes,
    number: int,
) -> Candidates:
    """The spans of a window between one of its best starts and one of its best ends.

    index            0     1   2     3     4       5    6
    pieces         [CLS]  who  ?   [SEP]  by  ruprecht [SEP]
    best starts      5     4   1          (1 is no piece of the context)
    best ends        6     5   4          (nor is 6)
    candidates     (5, 5)  (4, 5)  (4, 4)

    A span must lie in the context, end at or after its start, and have at most max_answer_length
    pieces. Of the windows with its first piece, this must be the one with most context around it.
    Padding, if it has logits, competes for a place among the best, as in the original.

    Args:
      window: T pieces.
      start_logits, end_logits: [S], S at least T.
      sizes: how many starts and ends to look at, and how long an answer may be.
      number: the number of the window among those of the question.
    """
    start_logits = np.float64(start_logits)
    end_logits = np.float64(end_logits)
    context = slice(window.doc_offset, window.doc_offset + window.span.length)
    may_start = np.zeros(len(start_logits), bool)
    may_start[context] = window.token_is_max_context
    may_end = np.zeros(len(end_logits), bool)
    may_end[context] = True
    starts = best_indexes(start_logits, sizes.n_best_size)
    starts = starts[may_start[starts]]
    ends = best_indexes(end_logits, sizes.n_best_size)
    ends = ends[may_end[ends]]
    starts, ends = np.meshgrid(starts, ends, indexing="ij")
    is_span = (starts <= ends) & (ends - starts < sizes.max_answer_length)
    starts = starts[is_span]
    ends = ends[is_span]
    windows = np.full(len(starts), number)
    return Candidates(windows, starts, ends, start_logits[starts], end_logits[ends])


def null_candidate(logits: Sequence[tuple[np.ndarray, np.ndarray]]) -> Candidates:
    """No answer, as a candidate, K = 1: [CLS] in the window where it has the least score.

    start and end logit of [CLS]    (4.0, 1.0)  (0.5, 1.5)  (2.0, 2.5)   in three windows
    result                                      (0.5, 1.5)

    A question has an answer if one of its windows has, so the window that is most against "no
    answer" decides. Without a window the logits are 0.

    Args:
      logits: start and end logits of each window, [S].

    >>> of_cls = [(4.0, 1.0), (0.5, 1.5), (2.0, 2.5)]
    >>> null = null_candidate([(np.array([start]), np.array([end])) for start, end in of_cls])
    >>> null.window.item(), null.start_logit.item(), null.end_logit.item()
    (1, 0.5, 1.5)
    """
    number = 0
    start_logit = 0.0
    end_logit = 0.0
    if logits:
        scores = [float(start[0]) + float(end[0]) for start, end in logits]
        number = int(np.argmin(scores))
        start_logits, end_logits = logits[number]
        start_logit = float(start_logits[0])
        end_logit = float(end_logits[0])
    return Candidates(
        window=np.array([number], np.int64),
        start_index=np.zeros(1, np.int64),
        end_index=np.zeros(1, np.int64),
        start_logit=np.array([start_logit]),
        end_logit=np.array([end_logit]),
    )


# ---------------------------------------------------------------------------- answers


def n_best(
    candidates_of_windows: Sequence[Candidates],
    windows: Sequence[Window],
    align: Alignment,
    *,
    n_best_size: int,
) -> list[NbestEntry]:
    """The best candidates with different texts; of equal texts the best one counts.

    span          (4, 5)          (7, 8)        (4, 4)      no answer
    score          9.0             8.0           5.0          2.0
    text        "Ruprecht I"    "Ruprecht I"   "Ruprecht"     ""
    result          0.981                        0.018        0.001       probability

    No answer, if it is a candidate, is in the result even if it is not among the best.

    Args:
      candidates_of_windows: the candidates of each window, and no answer if a question
        may have none.
      windows: the windows of the question.
      align: returns the text of pieces.
      n_best_size: how many, not counting no answer.
    """
    if not any(len(candidates.window) for candidates in candidates_of_windows):
        return [NbestEntry(NO_CANDIDATE, 1.0, 0.0, 0.0)]
    candidates = Candidates(*map(np.concatenate, zip(*candidates_of_windows, strict=True)))
    order = np.argsort(-(candidates.start_logit + candidates.end_logit), kind="stable")
    best: dict[str, NbestEntry] = {}
    for k in order.tolist():
        if len(best) == n_best_size:
            break
        entry = _entry(candidates, k, windows, align)
        best.setdefault(entry.text, entry)
    if (candidates.start_index == 0).any() and "" not in best:
        best[""] = _entry(candidates, int(np.argmin(candidates.start_index)), windows, align)
    return _with_probabilities(list(best.values()))


def _entry(
    candidates: Candidates, k: int, windows: Sequence[Window], align: Alignment
) -> NbestEntry:
    """The entry of candidate k, without its probability."""
    number, start, end, start_logit, end_logit = (field[k].item() for field in candidates)
    if start == 0:
        return NbestEntry("", 0.0, start_logit, end_logit)
    window = windows[number]
    text = align(window, start, end)
    characters = context_characters(window, start, end)
    return NbestEntry(text, 0.0, start_logit, end_logit, characters)


def _with_probabilities(entries: list[NbestEntry]) -> list[NbestEntry]:
    """The entries with their probabilities: the softmax over their scores."""
    scores = np.array([entry.start_logit + entry.end_logit for entry in entries])
    exponentials = np.exp(scores - scores.max())
    exponentials /= exponentials.sum()
    return [
        entry._replace(probability=probability)
        for entry, probability in zip(entries, exponentials.tolist(), strict=True)
    ]


def best_non_null(nbest: Sequence[NbestEntry]) -> NbestEntry | None:
    """The best entry that is an answer; None if there is none.

    >>> best_non_null([NbestEntry("", 0.9, 4.0, 3.0), NbestEntry("Ruprecht", 0.1, 3.0, 2.0)]).text
    'Ruprecht'
    >>> best_non_null([NbestEntry("", 1.0, 4.0, 3.0)])
    """
    return next((entry for entry in nbest if entry.text), None)


def null_odds(nbest: Sequence[NbestEntry], null: Candidates) -> float:
    """The score of no answer minus that of the best answer; high if there is hardly an answer.

    no answer (0.5, 1.5), best answer (3.0, 2.0)   ->   2.0 - 5.0 = -3.0

    >>> null = null_candidate([(np.array([0.5]), np.array([1.5]))])
    >>> null_odds([NbestEntry("Ruprecht", 0.95, 3.0, 2.0), NbestEntry("", 0.05, 0.5, 1.5)], null)
    -3.0
    """
    best = best_non_null(nbest)
    if best is None:
        return CERTAINLY_NULL
    null_score = float(null.start_logit[0]) + float(null.end_logit[0])
    return null_score - best.start_logit - best.end_logit


def decide(prediction: Prediction, *, null_score_diff_threshold: float = 0.0) -> str:
    """The answer: "" if the null odds are above the threshold, otherwise the best answer.

    null odds   threshold   answer
      -3.0         0.0      "Ruprecht"
      -3.0        -5.0      ""

    >>> entries = [NbestEntry("Ruprecht", 0.95, 3.0, 2.0), NbestEntry("", 0.05, 0.5, 1.5)]
    >>> decide(Prediction("q1", entries, -3.0), null_score_diff_threshold=0.0)
    'Ruprecht'
    >>> decide(Prediction("q1", entries, -3.0), null_score_diff_threshold=-5.0)
    ''
    """
    if prediction.null_odds is None:
        return prediction.nbest[0].text
    best = best_non_null(prediction.nbest)
    if best is None or prediction.null_odds > null_score_diff_threshold:
        return ""
    return best.text


def rank_answers(
    examples: Sequence[SquadExample],
    windows: Sequence[Window],
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    align: Alignment,
    config: AnswerConfig,
) -> list[Prediction]:
    """The answers to all questions, in order.

    Args:
      examples: the questions.
      windows: all their windows, in order, as `prediction_windows` returns them.
      start_logits, end_logits: for each window [S], as many as its pieces or more. To get the
        original's results, include those of the padding: see `window_candidates`.
      align: returns the text of pieces, from `make_alignment`.
      config: how many answers, how long, and whether a question may have none.

    Raises:
      ValueError: the numbers of logits and windows differ.
    """
    windows_of: dict[int, list[Window]] = {}  # by the number of the question
    logits_of: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for window, start, end in zip(windows, start_logits, end_logits, strict=True):
        windows_of.setdefault(window.example_index, []).append(window)
        logits_of.setdefault(window.example_index, []).append((start, end))
    predictions = []
    for index, example in enumerate(counted(examples, "rank", len(examples), "questions")):
        question_windows = windows_of.get(index, [])
        question_logits = logits_of.get(index, [])
        candidates = []
        for number, window in enumerate(question_windows):
            start, end = question_logits[number]
            candidates.append(window_candidates(window, start, end, config, number))
        null = null_candidate(question_logits)
        if config.version_2_with_negative:
            candidates.append(null)
        nbest = n_best(candidates, question_windows, align, n_best_size=config.n_best_size)
        odds = null_odds(nbest, null) if config.version_2_with_negative else None
        predictions.append(Prediction(example.qas_id, nbest, odds))
    return predictions
