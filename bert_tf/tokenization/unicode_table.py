"""A table of what each code point of a text becomes, frozen at Unicode 14.0.

Python's `unicodedata` changes with the version of Python, and with it the tokens of a text. A model
must not depend on that, so the outcome is kept in `unicode_14.npz`, written by
tests/helpers/make_unicode_table.py, with which a test compares it.

The table has two levels, because nearly all of its 1,114,112 entries repeat: a code point's page
(its upper bits) is the line of `rows` for its 256 neighbours, which has the row of each.
"""

import pathlib
from typing import Any, NamedTuple

import numpy as np

UNICODE_VERSION = "14.0.0"
FILE = pathlib.Path(__file__).with_name("unicode_14.npz")
CODE_POINTS = 0x110000
PAGE = 256

# In `characters`: no character. Larger than any distance between two code points.
ABSENT = 1 << 21

# Bits of `flags`.
DROPPED = 1  # control and format characters, U+0000, U+FFFD
BREAK_BEFORE = 2  # white space, punctuation, CJK ideographs
BREAK_AFTER = 4  # punctuation and CJK ideographs, which are words of their own
ACCENT = 8  # becomes nothing, and belongs to the character before it (lower-casing only)
# What decides whether a capital sigma between them is final (Unicode 3.13, Final_Sigma).
CASED = 16
CASE_IGNORABLE = 32
# Canonical order of combining characters (Unicode 3.11).
STARTER = 64  # nothing moves across it
MOVABLE = 128  # leaves a character that is kept and may change places with its neighbours


class UnicodeTable(NamedTuple):
    """Code point `c` has row `rows[pages[c // PAGE], c % PAGE]`; many share a row."""

    pages: np.ndarray  # [CODE_POINTS / PAGE] int32
    rows: np.ndarray  # [number of pages, PAGE] int32
    characters: np.ndarray  # [R, width] int32: what to add to c for each character, or ABSENT
    flags: np.ndarray  # [R] int32
    movable: np.ndarray  # [M, 2] int32: kept characters with a combining class, and the class


def load_unicode_table(*, do_lower_case: bool) -> UnicodeTable:
    """Reads the table for lower-casing, or for cased text, from `unicode_14.npz`.

    The file has differences along the first axis, which compress far better.
    """
    prefix = "lower" if do_lower_case else "cased"
    with np.load(FILE) as file:
        parts = [file[f"{prefix}_{name}"] for name in UnicodeTable._fields]
    return UnicodeTable(*(np.cumsum(part, axis=0, dtype=np.int32) for part in parts))


def is_ideograph(point: Any) -> Any:
    """Whether a code point that is a word of its own is an ideograph, and not punctuation.

    An array or a tensor [...] of integers gives one of truth values.
    """
    blocks = (point >= 0x3400) & (point < 0xA000) | (point >= 0xF900) & (point < 0xFB00)
    return blocks | (point >= 0x20000)
