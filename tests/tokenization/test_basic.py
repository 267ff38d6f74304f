"""Text to words against the plain-Python reference, over all of Unicode and in context."""

import itertools
import unicodedata

import make_unicode_table
import numpy as np
import pytest
import reference_tokenizer as reference
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.tokenization import basic

pytestmark = pytest.mark.skipif(
    unicodedata.unidata_version != make_unicode_table.UNICODE_VERSION,
    reason=f"the reference asks this Python, which has Unicode {unicodedata.unidata_version}",
)
BOTH = pytest.mark.parametrize("do_lower_case", [True, False])
SURROGATES = range(0xD800, 0xE000)  # not to be had in UTF-8
CODE_POINTS = [p for p in range(make_unicode_table.CODE_POINTS) if p not in SURROGATES]

# Each asks a question that the neighbours decide.
CONTEXTS = (
    "a{c}b",
    "aΣ{c}",  # is the sigma final?
    "aΣ{c}b",
    "{c}Σ",
    "a{c}Σ{c}a",
    "aΣ{c}{c}Γ",
    "aΣ\u200b{c}",
    "!{c}?",
    "{c}{c}",
    "e{c}\u0301",
    "中{c}Σ中",
    "\u302e{c}\ua953b",  # marks that change places: classes 224 and 9
    "a\u0301{c}\U0001d165\u1734",  # 216 and 9
    "a\u1734\u200b{c}\U00016ff0",
    " {c}\u1734",
    "\uac00{c}\u11a8",
)


def _split(do_lower_case: bool):
    table = basic.UnicodeTable(
        *map(tf.constant, basic.load_unicode_table(do_lower_case=do_lower_case))
    )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def strings_and_splits(texts):
        result = basic.split_words(texts, table)
        return result.strings, result.text_splits

    def split(texts: list[str | bytes]) -> list[list[str]]:
        strings, splits = strings_and_splits(texts)
        strings = [string.decode() for string in strings.numpy().tolist()]
        return [strings[a:b] for a, b in itertools.pairwise(splits.numpy().tolist())]

    return split


SPLIT = {do_lower_case: _split(do_lower_case) for do_lower_case in (True, False)}


def check(texts: list[str], do_lower_case: bool) -> None:
    for text, found in zip(texts, SPLIT[do_lower_case](texts), strict=True):
        expected = reference.split_words(text, do_lower_case=do_lower_case)
        assert found == expected, ascii(text)


@BOTH
def test_every_code_point(do_lower_case):
    """Each between spaces, all 1,112,064 of them."""
    for first in range(0, len(CODE_POINTS), 1 << 15):
        points = CODE_POINTS[first : first + (1 << 15)]
        check(
            [" ".join(map(chr, points[i : i + 64])) for i in range(0, len(points), 64)],
            do_lower_case,
        )


@BOTH
def test_every_kind_of_code_point_in_context(do_lower_case):
    """All but the bulk of ideographs, syllables and unassigned ones, of which each 1,009th."""
    bulk = ("Lo", "Co", "Cn")
    points = [p for p in CODE_POINTS if p % 1009 == 0 or unicodedata.category(chr(p)) not in bulk]
    for first in range(0, len(points), 1000):
        chars = [chr(point) for point in points[first : first + 1000]]
        check([c.replace("{c}", char) for char in chars for c in CONTEXTS], do_lower_case)


# Cased, accented, sigmas, dotted and dotless i, punctuation that is and is not case-ignorable, an
# accent that stands alone, dropped, white space, decomposed to punctuation, CJK, Hangul, marks of
# several combining classes, two that stay and change places, a symbol that becomes such.
TELLING = (
    "aBéΣς\u03c3\u0130\u0131ß .,'·`\t\0\u200b\ufffd\u2028\u037e中\uf900한\u1100\u11a8"
    "\u0301\u0327\u0345\u0f71\u302e\ua953\U00016ff0\U0001d165\U0001d15e😀"
)
TEXT = st.text(st.one_of(st.sampled_from(TELLING), st.characters(codec="utf-8")), max_size=30)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts=st.lists(st.one_of(st.binary(max_size=12), TEXT.map(str.encode)), max_size=8))
def test_bytes_that_are_not_utf8_are_skipped(texts):
    expected = [
        reference.split_words(text.decode("utf-8", errors="ignore"), do_lower_case=True)
        for text in texts
    ]
    assert SPLIT[True](texts) == expected


PLAIN = st.text(
    st.characters(codec="ascii", min_codepoint=32, max_codepoint=126) | st.sampled_from("\t\n\r")
)


@BOTH
@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts=st.lists(PLAIN, max_size=8))
def test_the_short_cut_for_plain_text(do_lower_case, texts):
    assert all(tf.strings.regex_full_match(tf.constant(texts, tf.string), basic.PLAIN_TEXT))
    found = basic.plain_words(tf.constant(texts, tf.string), do_lower_case=do_lower_case)
    expected = [reference.split_words(text, do_lower_case=do_lower_case) for text in texts]
    assert found.to_list() == [[word.encode() for word in row] for row in expected]


def test_ideographs_among_words_of_their_own():
    """The characters of the original's Chinese blocks, and no punctuation mark."""
    for p in CODE_POINTS:
        if (is_cjk := reference.is_cjk(chr(p))) or reference.is_punctuation(chr(p)):
            assert basic.is_ideograph(p) == is_cjk, hex(p)


def test_what_is_plain_text():
    """Exactly the ASCII characters that the original keeps or takes for white space."""
    chars = [chr(point) for point in range(0x250)]
    plain = tf.strings.regex_full_match(chars, basic.PLAIN_TEXT)
    expected = [char.isascii() and reference.clean(char) != "" for char in chars]
    assert plain.numpy().tolist() == expected


def test_the_table_is_what_the_program_writes(tmp_path):
    case = {"do_lower_case": False, "strip_accents": False}  # the fastest to make
    made, kept = make_unicode_table.make_table(**case), basic.load_unicode_table(**case)
    for name in basic.UnicodeTable._fields:
        np.testing.assert_array_equal(getattr(made, name), getattr(kept, name), err_msg=name)
    make_unicode_table.save_unicode_tables(
        tmp_path / "again.npz", **dict.fromkeys(basic.NAMES.values(), made)
    )
    assert set(np.load(tmp_path / "again.npz").files) == set(np.load(basic.FILE).files)
    assert basic.FILE.stat().st_size < 50_000


@pytest.mark.parametrize(("lower", "strip"), [(True, True), (True, False), (False, True)])
def test_the_tables_of_other_cases(lower, strip):
    case = {"do_lower_case": lower, "strip_accents": strip}
    table = basic.load_unicode_table(**case)
    for point in (*range(0x3100), *range(0x3100, len(table.pages) * basic.PAGE, 101)):
        row = table.rows[table.pages[point // basic.PAGE], point % basic.PAGE]
        kept = [chr(point + d) for d in table.characters[row].tolist() if d != basic.ABSENT]
        wanted = make_unicode_table.entry(chr(point), **case)
        assert ("".join(kept), table.flags[row]) == wanted, hex(point)
