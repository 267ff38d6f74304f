"""Logits -> answers: the best spans of each question, and whether it has an answer at all.

    logits of a window      best_indexes, window_candidates    which spans are possible
    windows of a question   n_best                             the best ones, as different texts
    SQuAD v2.0              null_odds, decide                  "" if no answer is likelier

Nothing here knows of files or flags; the names of the arguments are those of the flags.

Shapes: T pieces of a window, S logits of a window (T and perhaps padding), K candidates.
Source: `write_predictions` of the original's run_squad.py.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.squad.alignment import Alignment, context_characters
from bert_tf.squad.data import SquadExample
from bert_tf.squad.windows import Window
from bert_tf.terminal import counted

NO_CANDIDATE = "empty"  # the original's answer in v1.1 where no span is possible
# Null odds where no span is possible, so that "" is the answer under any threshold. (The original
# crashes there; the number is what its null score begins with.)
CERTAINLY_NULL = 1_000_000.0


@dataclasses.dataclass(frozen=True)
class AnswerSizes:
    """How many answers are looked at, and how long they may be; the names are those of the flags.

    Attributes:
      n_best_size: best starts and best ends of a window, and answers of a question.
      max_answer_length: pieces of an answer.
    """

    n_best_size: int = 20
    max_answer_length: int = 30


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
    *,
    n_best_size: int,
    max_answer_length: int,
    number: int = 0,
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
      n_best_size: best starts, and best ends, to look at.
      max_answer_length: in pieces.
      number: which of the question's windows this is.
    """
    start_logits, end_logits = np.float64(start_logits), np.float64(end_logits)
    is_start = np.zeros(len(start_logits), bool)
    is_end = np.zeros(len(end_logits), bool)
    context = slice(window.doc_offset, window.doc_offset + window.span.length)
    is_start[context], is_end[context] = window.token_is_max_context, True
    starts = best_indexes(start_logits, n_best_size)
    ends = best_indexes(end_logits, n_best_size)
    starts, ends = np.meshgrid(starts[is_start[starts]], ends[is_end[ends]], indexing="ij")
    possible = (starts <= ends) & (ends - starts < max_answer_length)
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
    candidates: Candidates, windows: Sequence[Window], align: Alignment, *, n_best_size: int
) -> list[NbestEntry]:
    """The best candidates that read differently; of equal texts the best one counts.

    span          (4, 5)          (7, 8)        (4, 4)      no answer
    score          9.0             8.0           5.0          2.0
    text        "Ruprecht I"    "Ruprecht I"   "Ruprecht"     ""
    result          0.981                        0.018        0.001       probability

    No answer, where it is a candidate, is in the result even if it is not among the best.
    """
    order = np.argsort(-(candidates.start_logit + candidates.end_logit), kind="stable")
    found: dict[str, NbestEntry] = {}
    for k in order.tolist():
        if len(found) == n_best_size:
            break
        entry = _entry(candidates, k, windows, align)
        found.setdefault(entry.text, entry)
    if (candidates.start_index == 0).any() and "" not in found:
        k = int(np.argmin(candidates.start_index))
        found[""] = _entry(candidates, k, windows, align)
    return _with_probabilities(list(found.values()))


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
    if not entries:
        return [NbestEntry(NO_CANDIDATE, 1.0, 0.0, 0.0)]
    scores = np.array([entry.start_logit + entry.end_logit for entry in entries])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    return [
        entry._replace(probability=share)
        for entry, share in zip(entries, shares.tolist(), strict=True)
    ]


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
    *,
    sizes: AnswerSizes,
    version_2_with_negative: bool,
) -> list[Prediction]:
    """The answers to all questions, in order.

    Args:
      examples: the questions.
      windows: all their windows, in order, as `prediction_windows` makes them.
      start_logits, end_logits: for each window [S], as many as its pieces or more. For the
        original's results they have the padding too: see `window_candidates`.
      align: how pieces become text, from `make_alignment`.
      sizes: how many answers, how long.
      version_2_with_negative: whether a question may have no answer.

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
            window_candidates(window, *logits, number=number, **dataclasses.asdict(sizes))
            for number, (window, logits) in enumerate(of_example)
        ]
        null = null_candidate([logits for _, logits in of_example])
        if version_2_with_negative or not found:
            found.append(null if version_2_with_negative else _no_candidates())
        candidates = Candidates(*map(np.concatenate, zip(*found, strict=True)))
        own_windows = [window for window, _ in of_example]
        nbest = n_best(candidates, own_windows, align, n_best_size=sizes.n_best_size)
        odds = null_odds(nbest, null) if version_2_with_negative else None
        predictions.append(Prediction(example.qas_id, nbest, odds))
    return predictions


def _no_candidates() -> Candidates:
    return Candidates(*(np.zeros(0, np.int64),) * 3, *(np.zeros(0),) * 2)
