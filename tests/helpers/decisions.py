"""The answer decision of SQuAD: one table for the two that make it, in Python and in the graph."""

from typing import NamedTuple

import pytest

from bert_tf.squad.answers import CERTAINLY_NULL


class Case(NamedTuple):
    """A question's entries, and what is decided.

    Attributes:
      entries: text and score, best first; "" is no answer.
      null_score: of no answer; None in v1.1.
      threshold: null_score_diff_threshold.
      answer: "" for no answer.
      odds: null odds; None in v1.1.
    """

    entries: tuple[tuple[str, float], ...]
    null_score: float | None
    threshold: float
    answer: str
    odds: float | None


LIKELY = (("Ruprecht", 5.0), ("", 2.0))
UNLIKELY = (("", 7.0), ("Ruprecht", 5.0))
CASES = {
    "odds below the threshold": Case(LIKELY, 2.0, 0.0, "Ruprecht", -3.0),
    "odds above it": Case(LIKELY, 2.0, -5.0, "", -3.0),
    "odds equal to it": Case(LIKELY, 2.0, -3.0, "Ruprecht", -3.0),
    "no answer is the best": Case(UNLIKELY, 7.0, 0.0, "", 2.0),
    "but not by enough": Case(UNLIKELY, 7.0, 2.0, "Ruprecht", 2.0),
    "the best of two": Case((("", 6.0), ("a", 5.0), ("b", 4.0)), 6.0, 1.5, "a", 1.0),
    "no answer between two": Case((("a", 5.0), ("", 4.5), ("b", 4.0)), 4.5, 0.0, "a", -0.5),
    "great odds are odds": Case((("", 1e6), ("a", 0.0)), 1e6, 1e9, "a", 1e6),
    "no possible span": Case((("", 2.0),), 2.0, 1e9, "", CERTAINLY_NULL),
    "v1.1": Case((("a", 5.0), ("b", 4.0)), None, 0.0, "a", None),
    "v1.1, whatever the threshold": Case((("a", -5.0),), None, -1e9, "a", None),
    "v1.1, no possible span": Case((), None, 0.0, "", None),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
