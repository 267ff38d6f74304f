"""Logits -> answers: the best spans of each question, and whether it has an answer at all.

    logits of a window      best_indexes, window_candidates    which spans are possible
    windows of a question   n_best                             the best ones, as different texts
    pieces of an answer     text_by_offsets, find_final_text   the text that they stand for
    SQuAD v2.0              null_odds, decide                  "" if no answer is likelier

Nothing here knows of files or flags; the names of the arguments are those of the flags.

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

WORDS_AT_ONCE = 1024  # brought into normal form in one call; bounds the memory
NO_CANDIDATE = "empty"  # the original's answer in v1.1 where no span is possible
# Null odds where no span is possible, so that "" is the answer under any threshold. (The original
# crashes there; the number is what its null score begins with.)
CERTAINLY_NULL = 1_000_000.0


class AnswerConfig(Answers):
    """How questions are answered: the options of `Answers` and these.

    Attributes:
      version_2_with_negative: whether a question may have no answer.
    """

    version_2_with_negative: bool = False


class NbestEntry(NamedTuple):
    """One of the answers to a question.

    Attributes:
      text: "" for no answer.
      probability: its share among the question's answers.
      start_logit, end_logit: of its first and its last piece; of [CLS] for no answer.
      characters: where it is in the context, first and behind the last; None for no answer.
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
      qas_id: the question's.
      nbest: at least one.
      null_odds: by how much no answer scores above the best answer; None in v1.1.
    """

    qas_id: str
    nbest: list[NbestEntry]
    null_odds: float | None = None


# ---------------------------------------------------------------------------- the text of pieces


def make_alignment(
    windows: Iterable[Window], tokenizer: FullTokenizer, config: AnswerConfig
) -> Alignment:
    """The function that turns pieces of these windows into text.

    Pieces are in lower case, without accents and without the spaces that were between them; the
    answer should read as its context does.

        context                 "It was Steve Smith's  café."
        predicted pieces               steve smith
        by offsets                    "Steve Smith"     the characters that the pieces come from
        legacy                        "Steve Smith"     the original's: found again by its letters

    The offsets are always right. The original's way falls back to whole words where it cannot find
    the letters again: with a piece [UNK] or one that is never split, with characters that the
    tokenizer drops or changes into several, and where an answer has a letter whose accent is a
    character of its own.

    Args:
      windows: of all questions.
      tokenizer: that made them.
      config: whether as in the original, or by offsets.
    """
    if not config.legacy_alignment:
        return text_by_offsets
    documents = dict.fromkeys(window.document for window in windows)
    words = itertools.chain.from_iterable(document.words.words for document in documents)
    normal = normal_words(words, **tokenizer.case)

    def legacy_text(window: Window, start_index: int, end_index: int) -> str:
        document, shift = window.document, window.span.start - window.doc_offset
        first, last = document.word_of_piece[[start_index + shift, end_index + shift]]
        ids = window.input_ids[start_index : end_index + 1].tolist()
        pred_text = join_pieces(tokenizer.convert_ids_to_tokens(ids))
        orig_words = document.words.words[first : last + 1]
        orig_text = " ".join(orig_words)
        tok_text = " ".join(filter(None, map(normal.get, orig_words)))
        found = find_final_text(pred_text, orig_text, tok_text)
        if found is None and config.verbose_logging:
            logging.info("Unable to find text: %r in %r; whole words used", pred_text, orig_text)
        return orig_text if found is None else found

    return legacy_text


def context_characters(window: Window, start_index: int, end_index: int) -> tuple[int, int]:
    """The characters of the context of some pieces of a window: first, and behind the last."""
    shift = window.span.start - window.doc_offset
    document = window.document
    return int(document.starts[start_index + shift]), int(document.ends[end_index + shift])


def text_by_offsets(window: Window, start_index: int, end_index: int) -> str:
    """The context from the first character of the first piece to the last one of the last."""
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
    """Finds a prediction in the words it was made from, by counting letters.

    All but spaces counts as a letter; the words and their normal form have equally many:

        orig_text   "Steve Smith's"         the words of the predicted pieces
        tok_text    "steve smith ' s"       the same in normal form
        pred_text   "steve smith"           is in tok_text, from its letter 0 to its letter 9
        result      "Steve Smith"           orig_text from letter 0 to letter 9

    None where the letters cannot be matched; then all the words are taken:

        orig_text        tok_text      pred_text
        "Straße 5"       "straße 5"    "[UNK] 5"      not in tok_text
        "a\\u200bb c"     "ab c"        "c"            4 letters against 3

    (The original's `get_final_text` makes tok_text itself, by its BasicTokenizer.)

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
    return len(text) - text.count(" ")


def normal_words(words: Iterable[str], **case: Any) -> dict[str, str]:
    """Each different word in the tokenizer's normal form: "Smith's" is "smith ' s".

    A word of which nothing remains, such as a zero-width space, is the empty string.
    """
    import tensorflow as tf  # not at the top: scores of answers need none of it

    from bert_tf.tokenization.basic import UnicodeTable, load_unicode_table, split_words
    from bert_tf.tokenization.wordpiece import utf8

    table = UnicodeTable(*map(tf.constant, load_unicode_table(**case)))
    different, found = list(dict.fromkeys(words)), {}
    for first in range(0, len(different), WORDS_AT_ONCE):
        batch = different[first : first + WORDS_AT_ONCE]
        with tf.device("CPU:0"):  # strings cannot be elsewhere
            split = split_words(tf.constant([*map(utf8, batch)]), table)
            parts = tf.RaggedTensor.from_row_splits(split.strings, split.text_splits)
            joined = tf.strings.reduce_join(parts, axis=-1, separator=" ").numpy().tolist()
        found |= zip(batch, (text.decode() for text in joined), strict=True)
    return found


# ---------------------------------------------------------------------------- candidates


class Candidates(NamedTuple):
    """Spans in windows, each field [K].

    Attributes:
      window: which of the question's windows, int64.
      start_index, end_index: first and last piece in this window, int64; 0 and 0 for no answer.
      start_logit, end_logit: float64.
    """

    window: np.ndarray
    start_index: np.ndarray
    end_index: np.ndarray
    start_logit: np.ndarray
    end_logit: np.ndarray


def best_indexes(logits: np.ndarray, n_best_size: int) -> np.ndarray:
    """Where the highest logits are, highest first, of equal ones the first.

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
    best ends        6     5   4          (6 neither)
    candidates     (5, 5)  (4, 5)  (4, 4)

    A span is left out that begins before the context or where another window has more context,
    ends behind the context or before it begins, or is longer than max_answer_length. Padding, if
    it has logits, competes for a place among the best, as in the original.

    Args:
      window: T pieces.
      start_logits, end_logits: [S], S at least T.
      sizes: how many starts and ends to look at, and how long an answer may be.
      number: which of the question's windows this is.
    """
    start_logits, end_logits = np.float64(start_logits), np.float64(end_logits)
    is_start = np.zeros(len(start_logits), bool)
    is_end = np.zeros(len(end_logits), bool)
    context = slice(window.doc_offset, window.doc_offset + window.span.length)
    is_start[context], is_end[context] = window.token_is_max_context, True
    starts = best_indexes(start_logits, sizes.n_best_size)
    ends = best_indexes(end_logits, sizes.n_best_size)
    starts, ends = np.meshgrid(starts[is_start[starts]], ends[is_end[ends]], indexing="ij")
    possible = (starts <= ends) & (ends - starts < sizes.max_answer_length)
    starts, ends = starts[possible], ends[possible]
    windows = np.full(len(starts), number)
    return Candidates(windows, starts, ends, start_logits[starts], end_logits[ends])


def null_candidate(logits: Sequence[tuple[np.ndarray, np.ndarray]]) -> Candidates:
    """No answer, as [CLS] has it in the window where this scores least; [1].

    start and end logit of [CLS]    (4.0, 1.0)  (0.5, 1.5)  (2.0, 2.5)   in three windows
    result                                      (0.5, 1.5)

    A question has an answer if any of its windows has one, so the window that believes least in no
    answer decides. Without a window the logits are 0.

    >>> of_cls = [(4.0, 1.0), (0.5, 1.5), (2.0, 2.5)]
    >>> null = null_candidate([(np.array([start]), np.array([end])) for start, end in of_cls])
    >>> null.window.item(), null.start_logit.item(), null.end_logit.item()
    (1, 0.5, 1.5)
    """
    scores = [float(start[0]) + float(end[0]) for start, end in logits]
    number = int(np.argmin(scores)) if scores else 0
    of_cls = [float(x[0]) for x in logits[number]] if scores else (0.0, 0.0)
    zero = np.zeros(1, np.int64)
    return Candidates(zero + number, zero, zero, *(np.array([logit]) for logit in of_cls))


# ---------------------------------------------------------------------------- answers


def n_best(
    found: Sequence[Candidates], windows: Sequence[Window], align: Alignment, *, n_best_size: int
) -> list[NbestEntry]:
    """The best candidates that read differently; of equal texts the best one counts.

    span          (4, 5)          (7, 8)        (4, 4)      no answer
    score          9.0             8.0           5.0          2.0
    text        "Ruprecht I"    "Ruprecht I"   "Ruprecht"     ""
    result          0.981                        0.018        0.001       probability

    No answer, where it is a candidate, is in the result even if it is not among the best.
    """
    if not any(len(one.window) for one in found):
        return [NbestEntry(NO_CANDIDATE, 1.0, 0.0, 0.0)]
    candidates = Candidates(*map(np.concatenate, zip(*found, strict=True)))
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
    number, start, end, *logits = (field[k].item() for field in candidates)
    if start == 0:
        return NbestEntry("", 0.0, *logits)
    window = windows[number]
    characters = context_characters(window, start, end)
    return NbestEntry(align(window, start, end), 0.0, *logits, characters)


def _with_probabilities(entries: list[NbestEntry]) -> list[NbestEntry]:
    """Softmax over the scores of the entries."""
    scores = np.array([entry.start_logit + entry.end_logit for entry in entries])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    pairs = zip(entries, shares.tolist(), strict=True)
    return [entry._replace(probability=share) for entry, share in pairs]


def best_non_null(nbest: Sequence[NbestEntry]) -> NbestEntry | None:
    """The best entry that is an answer, if there is one.

    >>> best_non_null([NbestEntry("", 0.9, 4.0, 3.0), NbestEntry("Ruprecht", 0.1, 3.0, 2.0)]).text
    'Ruprecht'
    >>> best_non_null([NbestEntry("", 1.0, 4.0, 3.0)])
    """
    return next((entry for entry in nbest if entry.text), None)


def null_odds(nbest: Sequence[NbestEntry], null: Candidates) -> float:
    """Score of no answer less that of the best answer; the higher, the less likely is an answer.

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
    """The answer: "" if the null odds are above the threshold, else the best answer.

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
      windows: all their windows, in order, as `prediction_windows` makes them.
      start_logits, end_logits: for each window [S], as many as its pieces or more. For the
        original's results they have the padding too: see `window_candidates`.
      align: how pieces become text, from `make_alignment`.
      config: how many answers, how long, and whether a question may have none.

    Raises:
      ValueError: there are not as many logits as windows.
    """
    rows = list(zip(windows, zip(start_logits, end_logits, strict=True), strict=True))
    by_example = {
        index: list(group)
        for index, group in itertools.groupby(rows, key=lambda row: row[0].example_index)
    }
    predictions = []
    for index, example in enumerate(counted(examples, "rank", len(examples), "questions")):
        of_example = by_example.get(index, [])
        found = [
            window_candidates(window, *logits, config, number)
            for number, (window, logits) in enumerate(of_example)
        ]
        null = null_candidate([logits for _, logits in of_example])
        found += [null] if config.version_2_with_negative else []
        own_windows = [window for window, _ in of_example]
        nbest = n_best(found, own_windows, align, n_best_size=config.n_best_size)
        odds = null_odds(nbest, null) if config.version_2_with_negative else None
        predictions.append(Prediction(example.qas_id, nbest, odds))
    return predictions
