"""The frozen table against the program that wrote it, and against entries known by hand."""

import unicodedata

import make_unicode_table
import numpy as np
import pytest

from bert_tf.tokenization import basic as ut


@pytest.mark.skipif(
    unicodedata.unidata_version != ut.UNICODE_VERSION,
    reason=f"this Python has Unicode {unicodedata.unidata_version}, not {ut.UNICODE_VERSION}",
)
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_file_is_what_the_program_writes(do_lower_case, tmp_path):
    made = make_unicode_table.make_table(do_lower_case=do_lower_case)
    kept = ut.load_unicode_table(do_lower_case=do_lower_case)
    for name in ut.UnicodeTable._fields:
        np.testing.assert_array_equal(getattr(made, name), getattr(kept, name), err_msg=name)
    path = tmp_path / "again.npz"
    make_unicode_table.save_unicode_tables(path, lower=made, cased=made)
    assert set(np.load(path).files) == set(np.load(ut.FILE).files)


def test_file_is_small():
    assert ut.FILE.stat().st_size < 50_000


def look_up(table: ut.UnicodeTable, char: str) -> tuple[str, int]:
    row = table.rows[table.pages[ord(char) // ut.PAGE], ord(char) % ut.PAGE]
    kept = [ord(char) + distance for distance in table.characters[row] if distance != ut.ABSENT]
    return "".join(map(chr, kept)), int(table.flags[row])


ALONE = ut.BREAK_BEFORE | ut.BREAK_AFTER


@pytest.mark.parametrize(
    ("char", "lower", "flags"),
    [
        ("a", "a", ut.CASED | ut.STARTER),
        ("É", "e", ut.CASED | ut.STARTER),
        ("İ", "i", ut.CASED | ut.STARTER),  # lower() makes two characters, one of them an accent
        ("ß", "ß", ut.CASED | ut.STARTER),  # not folded to ss
        ("ﬁ", "ﬁ", ut.CASED | ut.STARTER),  # compatibility forms stay
        ("7", "7", ut.STARTER),
        ("한", "\u1112\u1161\u11ab", ut.STARTER),
        ("\u0301", "", ut.ACCENT | ut.CASE_IGNORABLE),
        ("\u0903", "\u0903", ut.STARTER),  # a spacing mark is no accent
        ("\u1734", "\u1734", ut.MOVABLE),  # but this one has a combining class
        (".", ".", ALONE | ut.CASE_IGNORABLE | ut.STARTER),
        ("≠", "=", ALONE | ut.STARTER),  # becomes punctuation
        ("\u037e", ";", ALONE | ut.STARTER),
        ("中", "中", ALONE | ut.STARTER),
        ("\uf900", "\u8c48", ALONE | ut.STARTER),
        ("\t", "", ut.BREAK_BEFORE | ut.STARTER),
        ("\u3000", "", ut.BREAK_BEFORE | ut.STARTER),
        ("\u2028", "", ut.BREAK_BEFORE | ut.STARTER),  # through str.split, not by its category
        ("\0", "", ut.DROPPED),
        ("\u200b", "", ut.DROPPED),
        ("\ufffd", "", ut.DROPPED),
    ],
)
def test_entries_by_hand(char, lower, flags):
    assert look_up(ut.load_unicode_table(do_lower_case=True), char) == (lower, flags)


def test_cased_entries_are_the_characters_themselves():
    table = ut.load_unicode_table(do_lower_case=False)
    for char in "aÉİ한\u0301\u1734":
        assert look_up(table, char) == (char, 0)
    for char in ".中\u037e":
        assert look_up(table, char) == (char, ALONE)
    assert look_up(table, "≠") == ("≠", 0)  # no punctuation until it is decomposed
    assert look_up(table, "\xa0") == ("", ut.BREAK_BEFORE)
    assert look_up(table, "\u200b") == ("", ut.DROPPED)
