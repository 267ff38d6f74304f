"""What each code point of a text becomes, frozen at Unicode 14.0.

Python's `unicodedata` changes with the version of Python, and with it the pieces that a text is
cut into. A model must not depend on that, so the outcome is kept in `unicode_14.npz`, which
`tools/make_unicode_table.py` wrote and a test compares.

The table has two levels, because nearly all of its 1,114,112 entries repeat: a code point's page
(its upper bits) says where its 256 neighbours are listed, and they say which row applies.
"""

import pathlib
from typing import NamedTuple

import numpy as np

UNICODE_VERSION = "14.0.0"
FILE = pathlib.Path(__file__).with_name("unicode_14.npz")
CODE_POINTS = 0x110000
PAGE = 256

# In `characters`: no character here. Larger than any distance between two code points.
ABSENT = 1 << 21

# Bits of `flags`.
DROPPED = 1  # control and format characters, U+0000, U+FFFD: as if never there
BREAK_BEFORE = 2  # white space, punctuation, CJK ideographs
BREAK_AFTER = 4  # punctuation and CJK ideographs, which are words of their own
ACCENT = 8  # becomes nothing, and belongs to the character before it (lower-casing only)
# What a capital sigma asks of its neighbours (Unicode 3.13, Final_Sigma).
CASED = 16
CASE_IGNORABLE = 32
# Canonical order of combining characters (Unicode 3.11).
STARTER = 64  # nothing moves across it
MOVABLE = 128  # leaves a character that is kept and may change places with its neighbours


class UnicodeTable(NamedTuple):
    """Code point `c` has row `rows[pages[c // PAGE], c % PAGE]`; rows are alike for many."""

    pages: np.ndarray  # [CODE_POINTS / PAGE] int32
    rows: np.ndarray  # [number of pages, PAGE] int32
    characters: np.ndarray  # [R, width] int32: what to add to c for each character, or ABSENT
    flags: np.ndarray  # [R] int32
    movable: np.ndarray  # [M, 2] int32: kept characters with a combining class, and the class


def load_unicode_table(*, do_lower_case: bool) -> UnicodeTable:
    """Reads the half of `unicode_14.npz` that is for lower-casing or for cased text."""
    prefix = "lower" if do_lower_case else "cased"
    with np.load(FILE) as file:
        parts = [file[f"{prefix}_{name}"] for name in UnicodeTable._fields]
    return UnicodeTable(*(np.cumsum(part, axis=0, dtype=np.int32) for part in parts))


def save_unicode_tables(path: pathlib.Path, *, lower: UnicodeTable, cased: UnicodeTable) -> None:
    """Writes both tables, as differences along the first axis: they compress far better."""
    arrays = {}
    for prefix, table in (("lower", lower), ("cased", cased)):
        for name, part in table._asdict().items():
            arrays[f"{prefix}_{name}"] = np.diff(part, axis=0, prepend=0).astype(np.int32)
    np.savez_compressed(path, **arrays)
