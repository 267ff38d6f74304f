"""tokenization/words.py: words of raw texts that can have a label each."""

import pytest
import small_squad
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from make_unicode_table import CJK, is_dropped, is_space, is_word

from bert_tf.tokenization.whole_pieces import NeverSplit
from bert_tf.tokenization.words import words_of_texts


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def words_of(texts):
    return words_of_texts(texts)


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def words_and_marks_of(texts):
    return words_of_texts(texts, every_mark=True)


def found_in(texts, every_mark: bool = False) -> list[list[tuple[str, int, int]]]:
    make = words_and_marks_of if every_mark else words_of
    words = make(tf.constant([text.encode() for text in texts], tf.string))
    strings = [string.decode() for string in words.strings.numpy()]
    rows = zip(strings, words.starts.numpy().tolist(), words.ends.numpy().tolist(), strict=True)
    return [[next(rows) for _ in range(count)] for count in words.counts.numpy()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ruprecht founded it.", "Ruprecht|founded|it|."),
        ("(He's of the U.S., 1386-1412)", "(|He's|of|the|U.S|.|,|1386-1412|)"),
        ("東京 and 「東京」。", "東|京|and|「|東|京|」|。"),
        ("...", ".|.|."),
        ("a\u00a0b\u3000c\td", "a|b|c|d"),
        ("\u200b \0 ", ""),
        ("\u200bab\u200b!\u200b", "ab|!"),
        ("café\u0301!", "café\u0301|!"),
        ("", ""),
        ("😀 ok😀", "😀|ok😀"),
        ("使用Linux，很(好)U.S.的", "使|用|Linux|，|很|(|好|)|U.S|.|的"),
        ("Windows、Linux。ｶﾅ「テスト、x」", "Windows|、|Linux|。|ｶﾅ|「|テスト|、|x|」"),
        ("他说“Linux”和3.5％，a—b", "他|说|“|Linux|”|和|3.5|％|，|a—b"),
    ],
)
def test_words(text, words):
    (found,) = found_in([text])
    assert [word for word, *_ in found] == (words.split("|") if words else [])
    assert all(text[start:end] == word for word, start, end in found)


KEPT = NeverSplit({"<e1>": 7, "[x y]": 9})


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def words_and_kept_pieces(texts):
    return words_of_texts(texts, KEPT)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(<e1>Ruprecht<e1>, é) <e1", ["(", "<e1>", "Ruprecht", "<e1>", ",", "é", ")", "<", "e1"]),
        ("a[x y]b [x y].", ["a", "[x y]", "b", "[x y]", "."]),
        ("<e1><e1>", ["<e1>", "<e1>"]),
        ("é 東 <E1>", ["é", "東", "<", "E1", ">"]),
        ("", []),
    ],
)
def test_pieces_that_are_never_split_are_words(text, words):
    texts = [b"\xff <e1>", text.encode(), b"", b"it <e1>"]
    found = words_and_kept_pieces(tf.constant(texts))
    assert found.counts.numpy().tolist() == [1, len(words), 0, 2]
    strings = [string.decode() for string in found.strings.numpy()]
    assert strings == ["<e1>", *words, "it", "<e1>"]
    starts, ends = found.starts.numpy().tolist(), found.ends.numpy().tolist()
    assert [text[i:j] for i, j in zip(starts[1:-2], ends[1:-2], strict=True)] == words
    assert (starts[-1], ends[-1]) == (3, 7)


clean = small_squad.texts.map(lambda text: text.encode("utf-8", "replace").decode())


def words_in_python(text: str, every_mark: bool) -> list[str]:
    """The words as the module's head describes them, from the original's own rules."""
    chunks = [""]
    for char in text:
        wide = is_word(char) and ("\u3000" <= char < "\u3040" or "\uff00" <= char < "\ufff0")
        if is_space(char) and not is_dropped(char):
            chunks.append("")
        elif (wide or ord(char) in CJK) and not is_dropped(char):
            chunks += [char, ""]
        elif not is_dropped(char):
            chunks[-1] += char
    words = []
    for chunk in chunks:
        if every_mark:
            marked = "".join(f" {char} " if is_word(char) else char for char in chunk)
            words += filter(None, marked.split(" "))
            continue
        core = [at for at, char in enumerate(chunk) if not is_word(char)] or [len(chunk)]
        first, last = core[0], core[-1] + 1
        words += [
            *chunk[:first],
            *([chunk[first:last]] if chunk[first:last] else []),
            *chunk[last:],
        ]
    return words


@pytest.mark.parametrize("every_mark", [False, True])
@settings(max_examples=60)
@given(st.lists(st.lists(st.one_of(clean, st.sampled_from("Li .，、“”—(好々・テ")), max_size=20)))
def test_words_are_those_of_a_plain_loop(every_mark, parts):
    texts = ["".join(part) for part in parts]
    for text, found in zip(texts, found_in(texts, every_mark), strict=True):
        cleaned = ["".join(c for c in word if not is_dropped(c)) for word, *_ in found]
        assert cleaned == words_in_python(text, every_mark)
        assert all(text[start:end] == word for word, start, end in found)
        assert sorted(found, key=lambda word: word[1]) == found


def test_bytes_that_are_not_utf8_are_skipped():
    words = words_of(tf.constant([b"a\xff b\xc3", b"\xfe"]))
    assert words.strings.numpy().tolist() == [b"a", b"b"]
    assert words.starts.numpy().tolist() == [0, 2]
    assert words.counts.numpy().tolist() == [2, 0]
