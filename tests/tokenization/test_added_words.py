"""Added words: ids that the library `tokenizers` computed, and what the tokenizer says itself."""

import hashlib

import pytest
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tokenization.whole_pieces import any_of
from bert_tf.tokenization.wordpiece import FullTokenizer
from bert_tf.tokenization.words import words_of_texts

PIECES = ["[UNK]", "a", "##a", "b", "##b", "an", "##an", "co", "##vid", "19", "-", "漢", "字", "e"]
PIECES += ["##e", ".", "[", "]", "mask", "[MASK]", "##ς", "ς", "##σ", "σ"]
# Prefixes of each other, overlapping ones, ideographs, spaces, a soft hyphen, a part of a syllable.
WORDS = ("Covid-19", "COVID", "Éa", "漢字", "a  b", "an\u00adb", "anb.a", "ΣΑΣ", "한")
UNCASED = [
    ("Anti", [0], [(0, 4)]),
    ("Covid-19 covid19", [24, 25, 9], [(0, 8), (9, 14), (14, 16)]),
    ("aCOVID-19b covid -19", [1, 24, 3, 25, 10, 9],
     [(0, 1), (1, 9), (9, 10), (11, 16), (17, 18), (18, 20)]),
    ("e\u0301a éA ÉA ea é a", [26, 26, 26, 26, 13, 1],
     [(0, 3), (4, 6), (7, 9), (10, 12), (13, 14), (15, 16)]),
    ("a漢字b 漢 字", [1, 27, 3, 11, 12], [(0, 1), (1, 3), (3, 4), (5, 6), (7, 8)]),
    ("漢字漢字漢", [27, 27, 11], [(0, 2), (2, 4), (4, 5)]),
    ("a \t b a b a\t\nb", [1, 3, 1, 3, 28], [(0, 1), (4, 5), (6, 7), (8, 9), (10, 14)]),
    ("A  B\u3000\u3000b", [28, 3], [(0, 4), (6, 7)]),
    ("anb anb.a anb.", [29, 30, 29, 15], [(0, 3), (4, 9), (10, 13), (13, 14)]),
    ("a\u200bn\x00b", [29], [(0, 5)]),
    ("ΣΑΣ σας ΣΑΣΑ", [31, 0, 31, 0], [(0, 3), (4, 7), (8, 11), (11, 12)]),
    ("하 한한", [0, 32, 32], [(0, 1), (2, 3), (3, 4)]),
    ("[MASK]Covid[mask]", [19, 25, 16, 18, 17], [(0, 6), (6, 11), (11, 12), (12, 16), (16, 17)]),
    ("COVIDCOVID", [25, 25], [(0, 5), (5, 10)]),
    ("covid-1", [25, 10, 0], [(0, 5), (5, 6), (6, 7)]),
    ("", [], []),
]  # fmt: skip
CASED = [
    ("Covid-19 covid19", [24, 0], [(0, 8), (9, 16)]),
    ("aCOVID-19b", [1, 25, 10, 9, 4], [(0, 1), (1, 6), (6, 7), (7, 9), (9, 10)]),
    ("e\u0301 ÉA Éa", [0, 0, 26], [(0, 2), (3, 5), (6, 8)]),
    ("a漢字b 漢 字", [1, 27, 3, 11, 12], [(0, 1), (1, 3), (3, 4), (5, 6), (7, 8)]),
    ("ΣΑΣ σας ΣΑΣΑ", [31, 0, 31, 0], [(0, 3), (4, 7), (8, 11), (11, 12)]),
    ("[MASK]Covid-19[mask]", [19, 24, 16, 18, 17],
     [(0, 6), (6, 14), (14, 15), (15, 19), (19, 20)]),
    ("ANB.aN.B anb.a", [0, 15, 0, 15, 0, 30],
     [(0, 3), (3, 4), (4, 6), (6, 7), (7, 8), (9, 14)]),
]  # fmt: skip


def make(words=WORDS, *, lower: bool = True, **options) -> FullTokenizer:
    pieces = [*PIECES, *words]
    return FullTokenizer("v", lower, pieces=pieces, added_words=words, **options)


@pytest.mark.parametrize(("lower", "cases"), [(True, UNCASED), (False, CASED)])
def test_as_the_library_finds_them(lower, cases):
    """Together in one batch, so that nothing depends on what other texts have."""
    tokenizer = make(lower=lower, never_split=("[MASK]",))
    texts = [text for text, _, _ in cases]
    expected = [ids for _, ids, _ in cases]
    ids, starts, ends = (ragged.to_list() for ragged in tokenizer.tokenize_with_offsets(texts))
    assert ids == expected
    assert tokenizer.tokenize_ids(texts).to_list() == expected
    places = [[*zip(*row, strict=True)] for row in zip(starts, ends, strict=True)]
    assert places == [offsets for _, _, offsets in cases]


def test_accents_belong_to_the_word_before_them():
    """As for other words; the library leaves them out."""
    _, starts, ends = make(("Éa",)).tokenize_with_offsets(["bE\u0301A\u0301 b"])
    assert (starts.to_list(), ends.to_list()) == ([[0, 1, 6]], [[1, 5, 7]])


def test_words_that_are_the_same_when_normalized():
    """The library finds one of them by chance; here it is the first of the vocabulary."""
    assert make(("Nano", "NANO", "nano")).tokenize("anNANO nano") == ["an", "Nano", "Nano"]
    assert make(("Nano", "NANO"), lower=False).tokenize("NANO") == ["NANO"]


def test_words_of_the_vocabulary():
    """They are found inside of words, too, and longer pieces that begin with them are not."""
    tokenizer = FullTokenizer("v", pieces=[*PIECES, "anb"], added_words=("an",))
    assert tokenizer.tokenize("anb ban") == ["an", "b", "b", "an"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"added_words": "Covid-19"}, "added_words 'Covid-19'"),
        ({"added_words": ("a", "")}, "added_words"),
        ({"added_words": ("Covid-19",)}, "without Covid-19"),
        ({"added_words": ("a",), "never_split": ("b", "a")}, "a in both never_split and added"),
        ({"added_words": ("\u00ad",), "pieces": [*PIECES, "\u00ad"]}, "nothing is left"),
    ],
)
def test_what_cannot_be_an_added_word(options, says):
    with pytest.raises(InputError, match=says):
        FullTokenizer("v", **({"pieces": PIECES} | options))


def test_the_case_of_a_vocabulary_is_not_that_of_its_added_words(tmp_path):
    words = [f"Word{number}" for number in range(50)]
    path = tmp_path / "vocab.txt"
    lower = [f"word{number}" for number in range(1100)]
    path.write_text("\n".join([*PIECES, *lower, *words]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="a vocabulary with capital letters"):
        FullTokenizer(path)
    assert FullTokenizer(path, added_words=words).tokenize("aWORD7") == ["a", "Word7"]


def test_more_words_than_can_be_searched_for():
    words = [hashlib.sha256(bytes([n // 256, n % 256])).hexdigest() for n in range(20_000)]
    with pytest.raises(InputError, match="20000 pieces that are kept whole"):
        any_of(words)


def test_the_config_has_them():
    config = make().get_config()
    assert config["added_words"] == [*WORDS]
    assert FullTokenizer(**config).tokenize("xcovid-19") == ["[UNK]", "Covid-19"]
    assert "added_words" not in FullTokenizer("v", pieces=PIECES).get_config()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(anti-Covid-19, x)", ["(", "anti", "-", "Covid-19", ",", "x", ")"]),
        ("東漢字COVID<e1>", ["東", "漢字", "COVID", "<e1>"]),
        ("xA\t\tb ba  b.", ["x", "A\t\tb", "b", "a  b", "."]),
        ("e\u0301a\u0301 ea", ["e\u0301a\u0301", "ea"]),
        ("한x covid", ["한", "x", "covid"]),
        ("", []),
    ],
)
def test_they_are_words_that_can_have_a_label(text, words):
    tokenizer = make()
    kept = FullTokenizer("v", pieces=[*PIECES, "<e1>"], never_split=("<e1>",))
    texts = ["<e1>", text, "", "it is"]
    found = words_of_texts(tf.constant(texts), kept.splitter, tokenizer.word_finder)
    assert found.counts.numpy().tolist() == [1, len(words), 0, 2]
    assert [string.decode() for string in found.strings.numpy()] == ["<e1>", *words, "it", "is"]
    borders = zip(found.starts.numpy()[1:-2], found.ends.numpy()[1:-2], strict=True)
    assert [text[start:end] for start, end in borders] == words


def test_two_added_words_in_one_character():
    """A Hangul syllable becomes several characters; as a word it is one."""
    tokenizer = make(("\u1112\u1161", "\u11ab"))
    ids, starts, _ = tokenizer.tokenize_with_offsets(["한b"])
    assert ids.to_list() == [[len(PIECES), len(PIECES) + 1, PIECES.index("b")]]
    assert starts.to_list() == [[0, 0, 1]]
    found = words_of_texts(tf.constant(["한b"]), None, tokenizer.word_finder)
    assert found.starts.numpy().tolist() == [0, 1]
