"""The case that vocabularies show, of the released ones and by hand."""

import pytest

from bert_tf.errors import InputError
from bert_tf.tokenization.wordpiece import choose_case, read_vocabulary


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("uncased_en_30522", True),
        ("chinese_21128", True),
        ("cased_en_28996", False),
        ("multi_cased_119547", False),
    ],
)
def test_the_released_vocabularies_show_their_case(data_dir, name, lower):
    file = str(data_dir / f"vocab/{name}.txt")
    pieces = read_vocabulary(file)
    assert choose_case(file, pieces, lower) is lower
    assert choose_case(file, pieces, None) is lower
    with pytest.raises(InputError, match="a vocabulary with") as caught:
        choose_case(file, pieces, not lower)
    assert caught.value.remedy == f"use --{'' if lower else 'no'}do_lower_case"


@pytest.mark.parametrize("piece", ["Paris", "caf\u00e9", "##\u304c", "\uac00"])
def test_a_small_vocabulary_with_a_piece_that_lower_casing_loses(piece):
    """A capital, an accent, a voiced kana, a Hangul syllable: lower-cased text has none of them."""
    pieces = ["[UNK]", "[MASK]", "the", "##is", "\u4e00"]
    assert choose_case("v", pieces, None) is True
    assert choose_case("v", pieces, False) is False  # who says so may know better
    with pytest.raises(InputError, match=rf"v, which does not show .* {piece!r}"):
        choose_case("v", [*pieces, piece], None)
    for lower in (True, False):
        assert choose_case("v", [*pieces, piece], lower) is lower


@pytest.mark.parametrize("piece", ["café", "##が"])
def test_accents_that_stay_are_in_lower_cased_text(piece):
    pieces = ["[UNK]", "the", piece]
    assert choose_case("v", pieces, None, strip_accents=False) is True
    for strip in (None, True):
        with pytest.raises(InputError, match=rf"v, which does not show .* {piece!r}"):
            choose_case("v", pieces, None, strip_accents=strip)
    with pytest.raises(InputError, match="'Paris'"):
        choose_case("v", [*pieces, "Paris"], None, strip_accents=False)
