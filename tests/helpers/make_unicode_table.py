"""Writes unicode_14.npz: the characters that each code point becomes in BERT's tokenizer.

Run with Python 3.11, whose `unicodedata` is Unicode 14.0:

    python tests/helpers/make_unicode_table.py

Each entry is the result of the original's BasicTokenizer for one code point (clean, spaces around
CJK, lower(), NFD, accents removed, punctuation split off). The final sigma and the order of
combining characters depend on the neighbours: flags mark the code points, the tokenizer does it.
"""

import pathlib
import sys
import unicodedata

import numpy as np

from bert_tf.tokenization import basic as ut

UNICODE_VERSION = "14.0.0"
CODE_POINTS = sys.maxunicode + 1

# The original's blocks, which are not all that Unicode calls CJK: no kana, hangul or newer blocks.
CJK_BLOCKS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
CJK = frozenset(point for first, last in CJK_BLOCKS for point in range(first, last + 1))
ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def is_dropped(char: str) -> bool:
    """Whether the original's cleaning removes the character."""
    control = unicodedata.category(char) in ("Cc", "Cf") and char not in "\t\n\r"
    return char in "\0\ufffd" or control


def is_space(char: str) -> bool:
    """Whether the character separates words: Zs and \\t \\n \\r, and what `str.split` splits at."""
    return char.isspace() or unicodedata.category(char) == "Zs"


def is_word(char: str) -> bool:
    """Whether the character is always a separate word."""
    return (
        ord(char) in CJK or char in ASCII_PUNCTUATION or unicodedata.category(char).startswith("P")
    )


def sigma_flags(char: str) -> int:
    """How `char` affects a capital sigma beside it, tried out with `str.lower`."""
    if (f"a\u03a3{char}a").lower()[1] == "\u03c2":  # a final sigma: the character ends the word
        return 0
    return ut.CASED if (f"a\u03a3{char}").lower()[1] == "\u03c3" else ut.CASE_IGNORABLE


def entry(char: str, *, do_lower_case: bool, strip_accents: bool) -> tuple[str, int]:
    """The characters that `char` becomes, and its flags."""
    if is_dropped(char):
        return "", ut.DROPPED
    starter = ut.STARTER if strip_accents else 0
    if is_space(char):
        return "", ut.BREAK_BEFORE | starter
    alone = ut.BREAK_BEFORE | ut.BREAK_AFTER
    lower = char.lower() if do_lower_case else char
    flags = sigma_flags(char) if do_lower_case else 0
    if any(map(is_word, {char, *lower})):
        flags |= alone
    if not strip_accents:
        return lower, flags
    decomposed = unicodedata.normalize("NFD", lower)
    stripped = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
    if not stripped:
        flags |= ut.ACCENT
    if not unicodedata.combining(decomposed[0]):
        flags |= starter
    if any(map(unicodedata.combining, stripped)):
        flags |= ut.MOVABLE
    if any(map(is_word, {char, *stripped})):
        flags |= alone
    return stripped, flags


def make_table(*, do_lower_case: bool, strip_accents: bool) -> ut.UnicodeTable:
    """The table of all code points; equal rows and equal pages are stored once, in order."""
    width = 3 if do_lower_case or strip_accents else 1
    rows = {}  # (distances, flags) -> its number
    pages = {}  # bytes of a page -> its number
    movable = set()
    row_of = np.zeros(CODE_POINTS, np.int32)
    for point in range(CODE_POINTS):
        new, flags = entry(chr(point), do_lower_case=do_lower_case, strip_accents=strip_accents)
        if len(new) > width or (len(new) > 1 and flags & ut.BREAK_BEFORE):
            raise ValueError(f"U+{point:04X} becomes {new!r}, for which the table has no form")
        distances = [ord(c) - point for c in new] + [ut.ABSENT] * (width - len(new))
        row_of[point] = rows.setdefault((*distances, flags), len(rows))
        if flags & ut.MOVABLE:
            movable |= {(ord(c), unicodedata.combining(c)) for c in new}
    page_of = [pages.setdefault(page.tobytes(), len(pages)) for page in row_of.reshape(-1, ut.PAGE)]
    return ut.UnicodeTable(
        pages=np.array(page_of, np.int32),
        rows=np.stack([np.frombuffer(page, np.int32) for page in pages]),
        characters=np.array([row[:-1] for row in rows], np.int32),
        flags=np.array([row[-1] for row in rows], np.int32),
        movable=np.array(sorted(movable), np.int32).reshape(-1, 2),
    )


def save_unicode_tables(path: pathlib.Path, **tables: ut.UnicodeTable) -> None:
    """Writes tables by their names, as differences along the first axis."""
    arrays = {}
    for prefix, table in tables.items():
        for name, part in table._asdict().items():
            arrays[f"{prefix}_{name}"] = np.diff(part, axis=0, prepend=0).astype(np.int32)
    np.savez_compressed(path, **arrays)


def main() -> None:
    """Writes the tables of all cases; refuses other versions of Unicode."""
    if unicodedata.unidata_version != UNICODE_VERSION:
        sys.exit(
            f"Received: a Python with Unicode {unicodedata.unidata_version}\n"
            f"Expected: Unicode {UNICODE_VERSION}\n"
            "To do: run this program with Python 3.11"
        )
    tables = {
        ut.NAMES[case]: make_table(do_lower_case=case[0], strip_accents=case[1])
        for case in ut.NAMES
    }
    save_unicode_tables(ut.FILE, **tables)
    print(f"{ut.FILE}: {ut.FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
