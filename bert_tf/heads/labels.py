"""What labels of all kinds share: the text of a cell, and names that look alike.

Each kind of label has a file with the rest, from a cell to a metric. L labels, C choices:

    cell "yes"  --parse-->  label "yes"  --ids-->  record [1]  --model-->  logits [L]
                                                                             | probabilities, decide
                            prediction "yes"  <--spell--  1  <---------------+

    file               labels      one example has           output of the model
    classification.py  Labels      one of several names      logits [B, L] -> soft-max
    multi_label.py     LabelSets   any of several names      logits [B, L] -> sigmoid each
    regression.py      Scores      a number                  score  [B, 1]
    choices.py         Choices     the number of an answer   logit of each answer [B, C] -> soft-max
    tags.py            Tags        a tag for each word       logits [B, S, L] -> soft-max each
"""

import decimal
import json
import math
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_tf.decoding import LONE_SURROGATE

DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# What no font shows: Default_Ignorable_Code_Point of Unicode 16 (DerivedCoreProperties.txt).
INVISIBLE = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
# What pandas and spreadsheets take for a missing value (pandas.read_csv, na_values).
MISSING_ELSEWHERE = {"#N/A", "#N/A N/A", "#NA", "N/A", "NA", "NULL", "None", "n/a", "null"}
MISSING = re.compile(r"nan|<na>", re.IGNORECASE)  # what pandas and NumPy write for no value
GREATEST = float(np.finfo(np.float32).max)  # score
MOST_USUAL = 10.0  # the greatest score that is learned as it is
LEAST_DEVIATION = 0.01  # likewise, the least standard deviation
IGNORED = -1  # the label id of no label
UNKNOWN = -2  # the label id of a tag that the model does not have

Label = str | float | tuple[str, ...]


def text_of(value: Any) -> str | None:
    """A text or finite number as text; None for anything else, and for invalid Unicode."""
    if isinstance(value, str):
        return None if LONE_SURROGATE.search(value) else value.strip()
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return json.dumps(value) if is_number else None


def look_alikes(names: Iterable[str]) -> list[list[str]]:
    """Groups of names that look alike.

    They differ only in case, white space, the spelling of a number, invisible characters, or
    characters that Unicode considers the same (NFKC).
    """
    groups: dict[str | decimal.Decimal, list[str]] = {}
    exact = decimal.Context(traps=[])  # an exponent of a hundred digits gives NaN, not an error
    for name in names:
        visible = unicodedata.normalize("NFKC", INVISIBLE.sub("", name))
        folded = " ".join(visible.casefold().split())
        key = decimal.Decimal(name, exact) if DECIMAL.fullmatch(name) else folded
        groups.setdefault(key, []).append(name)
    return [alike for alike in groups.values() if len(alike) > 1]
