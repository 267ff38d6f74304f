"""FullTokenizer against the original's golden values, the plain reference, and cases by hand."""

import gzip
import hashlib
import itertools
import json
import pathlib
import random
import re
import unicodedata

import pytest
import reference_tokenizer as reference
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from make_unicode_table import UNICODE_VERSION

from bert_tf.errors import InputError
from bert_tf.tokenization.wordpiece import FullTokenizer, read_vocabulary, vocabulary_sha256

BOTH = pytest.mark.parametrize("do_lower_case", [True, False])
needs_unicode_14 = pytest.mark.skipif(
    unicodedata.unidata_version != UNICODE_VERSION,
    reason=f"the reference asks this Python, which has Unicode {unicodedata.unidata_version}",
)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [
    *("he", "una", "##ffa", "##ble", "un", "##want", "##ed", "runn", "##ing", "cafe", "Café"),
    *(prefix + char for char in "abdefnorsuvA" for prefix in ("", "##")),
    *(prefix + char for char in "όσοςδιé한\u1112\u1161\u11ab\u1734\u302e" for prefix in ("", "##")),
    "##\U00010428",
    *"中国!,.'-[]=;",
]


def write_vocabulary(folder, lines: list[str]) -> str:
    path = folder / "vocab.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory) -> dict[bool, FullTokenizer]:
    path = write_vocabulary(tmp_path_factory.mktemp("vocabulary"), SPECIAL + PIECES)
    return {lower: FullTokenizer(path, do_lower_case=lower) for lower in (True, False)}


def test_goldens_of_the_original(goldens_dir, vocab_dir):
    paths = {path.name.split(".")[0]: path for path in goldens_dir.glob("tokenization_*")}
    assert paths.keys() >= {"tokenization_uncased", "tokenization_cased"}
    for name, path in paths.items():
        kind = name.removeprefix("tokenization_")
        (vocabulary,) = vocab_dir.glob(f"{kind}*.txt")
        tokenizer = FullTokenizer(vocabulary, do_lower_case=kind in ("uncased", "chinese"))
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
            check_golden(tokenizer, [json.loads(line) for line in lines])


def check_golden(tokenizer, rows):
    texts = [row["text"] for row in rows]
    assert len(rows) >= 1000
    for row, pieces in zip(rows, tokenizer.tokenize(texts), strict=True):
        assert pieces == row["tokens"], ascii(row["text"])
        assert tokenizer.convert_tokens_to_ids(pieces) == row["ids"]
    ids, starts, ends = (ragged.to_list() for ragged in tokenizer.tokenize_with_offsets(texts))
    assert ids == [row["ids"] for row in rows]
    if unicodedata.unidata_version == UNICODE_VERSION:
        some = slice(0, None, 4)  # the reference takes its time
        check_spans(tokenizer, *(rows[some] for rows in (texts, ids, starts, ends)))


def check_spans(tokenizer, texts, ids, starts, ends):
    """Against the reference, and by what a span promises."""
    lower = tokenizer.do_lower_case
    for text, *columns in zip(texts, ids, starts, ends, strict=True):
        pieces = tokenizer.convert_ids_to_tokens(columns[0])
        found = list(zip(pieces, *columns[1:], strict=True))
        assert found == reference.tokenize_with_spans(text, tokenizer.vocab, do_lower_case=lower)
        for piece, start, end in found:
            assert 0 <= start < end <= len(text)
            moved = lower and any(map(unicodedata.combining, piece))  # it keeps its new place
            if piece != "[UNK]" and not moved:
                words = reference.split_words(text[start:end], do_lower_case=lower)
                # The form of a sigma depends on the rest of its word.
                spanned = "".join(words).replace("ς", "σ")
                assert piece.removeprefix("##").replace("ς", "σ") in spanned


TEXT = st.text(
    st.one_of(
        st.sampled_from("abedo ADΣός δι.!,-\t\0\u200b\u2028\u0301\u0308\u1734\u302e中国한é≠\u037e"),
        st.characters(codec="utf-8"),
    ),
    max_size=25,
)


@needs_unicode_14
@BOTH
@settings(max_examples=75, deadline=None, derandomize=True)
@example(texts=["\ud800", "a\udfffb", "a \ud83d\ude00, b", "Σ\ud800Σ"])
@given(texts=st.lists(TEXT, max_size=6))
def test_any_texts_equal_the_reference(tokenizers, do_lower_case, texts):
    tokenizer = tokenizers[do_lower_case]
    expected = [
        reference.tokenize(text, tokenizer.vocab, do_lower_case=do_lower_case) for text in texts
    ]
    lone = (row for t, row in zip(texts, expected, strict=True) if re.search("[\ud800-\udfff]", t))
    assert all("[UNK]" in row for row in lone)
    assert tokenizer.tokenize(texts) == expected
    ids, starts, ends = (ragged.to_list() for ragged in tokenizer.tokenize_with_offsets(texts))
    assert [tokenizer.convert_ids_to_tokens(row) for row in ids] == expected
    check_spans(tokenizer, texts, ids, starts, ends)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("UNwant\u00e9d,", [("un", "UN"), ("##want", "want"), ("##ed", "\u00e9d"), (",", ",")]),
        ("e\u0301\u200b\u0308\u200b b", [("e", "e\u0301\u200b\u0308"), ("b", "b")]),
        ("한", [("\u1112", "한"), ("##\u1161", "한"), ("##\u11ab", "한")]),
        ("\u200bxyz\0-中", [("[UNK]", "xyz"), ("-", "-"), ("中", "中")]),
        ("ΟΔΟΣ", [("ο", "Ο"), ("##δ", "Δ"), ("##ο", "Ο"), ("##ς", "Σ")]),
        ("a\U00010400b", [("a", "a"), ("##\U00010428", "\U00010400"), ("##b", "b")]),
        ("ⱥ" * 201 + ".", [("[UNK]", "ⱥ" * 201), (".", ".")]),
        ("\u302e\u1734", [("\u1734", "\u302e"), ("##\u302e", "\u1734")]),  # they change places
        (" \u3000", []),
    ],
)
def test_spans_by_hand(tokenizers, text, spans):
    ids, starts, ends = (r.to_list()[0] for r in tokenizers[True].tokenize_with_offsets([text]))
    pieces = tokenizers[True].convert_ids_to_tokens(ids)
    assert [(p, text[a:b]) for p, a, b in zip(pieces, starts, ends, strict=True)] == spans


def test_texts_of_a_batch_do_not_touch_each_other(tokenizers):
    tokenizer = tokenizers[True]
    # Sigmas that would be final or not; marks that would change places; accents; words; spaces.
    texts = [
        "A\u03a3", "B", "A", "\u03a3", "", "\u302e", "\u1734", "a", "\u0301\u0301", "b", "", "É",
    ]  # fmt: skip
    alone = [
        [column.to_list()[0] for column in tokenizer.tokenize_with_offsets([text])]
        for text in texts
    ]
    columns = [column.to_list() for column in tokenizer.tokenize_with_offsets(texts)]
    assert [list(row) for row in zip(*columns, strict=True)] == alone
    assert tokenizer.tokenize_ids(texts).to_list() == [ids for ids, *_ in alone]
    assert tokenizer.tokenize(texts)[:4] == [["a", "##ς"], ["b"], ["a"], ["σ"]]


@pytest.mark.parametrize("char", ["a", "\u00e9"])  # by the short cut, and by the table
def test_words_of_more_than_200_characters_are_unknown(tokenizers, char):
    longest, longer = char * 200, char * 201
    pieces = tokenizers[False].tokenize(f"a {longest} {longer}.{longer}")
    assert pieces == ["a", char] + ["##" + char] * 199 + ["[UNK]", ".", "[UNK]"]


def test_forms_of_input_and_output(tokenizers):
    tokenizer = tokenizers[True]
    assert tokenizer.tokenize("") == tokenizer.tokenize([]) == []
    assert tokenizer.tokenize(("a", b"b\xff", " ")) == [["a"], ["b"], []]
    assert tokenizer.tokenize(text for text in ("é", "b")) == [["e"], ["b"]]
    assert tokenizer.tokenize_ids([]).shape.as_list() == [0, None]
    assert [r.to_list() for r in tokenizer.tokenize_with_offsets([])] == [[], [], []]
    ids = tokenizer.tokenize_ids(tf.constant(["a é", ""]))
    assert [tokenizer.convert_ids_to_tokens(row) for row in ids.to_list()] == [["a", "e"], []]
    assert {r.dtype for r in (ids, *tokenizer.tokenize_with_offsets(["a"]))} == {tf.int32}


def test_ids_and_pieces_are_each_others_inverse(tokenizers):
    tokenizer = tokenizers[True]
    assert tokenizer.convert_tokens_to_ids(SPECIAL) == [0, 1, 2, 3, 4]
    ids = list(range(tokenizer.vocab_size))
    assert tokenizer.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(ids)) == ids
    with pytest.raises(KeyError, match="nosuchpiece"):
        tokenizer.convert_tokens_to_ids(["nosuchpiece"])
    with pytest.raises(KeyError):
        tokenizer.convert_ids_to_tokens([tokenizer.vocab_size])
    for method in (tokenizer.tokenize_ids, tokenizer.tokenize_with_offsets):
        with pytest.raises(InputError, match="a single text, 'ab'"):
            method("ab")


def test_many_texts_are_tokenized_as_one_would_be(tokenizers, monkeypatch):
    monkeypatch.setattr("bert_tf.tokenization.wordpiece.MAX_TEXTS_PER_BATCH", 3)
    monkeypatch.setattr("bert_tf.tokenization.wordpiece.MAX_BYTES_PER_BATCH", 11)
    tokenizer = tokenizers[True]
    texts = ["a b", "", "ax", "c d e c d e c", "b", "e", "d", "", "é" * 3]
    alone = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) for text in texts]
    assert list(tokenizer.iter_ids(iter(texts))) == alone
    batches = [len(splits) - 1 for _, splits in tokenizer.iter_batches(iter(texts))]
    assert batches == [3, 1, 3, 2]


def test_in_a_dataset_and_a_function(tokenizers):
    tokenizer = tokenizers[True]
    texts = ["a é", "b", "", "cafe, 中"]
    expected = tokenizer.tokenize_ids(texts).to_list()
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(3).map(tokenizer.tokenize_ids)
    assert [row for batch in dataset for row in batch.to_list()] == expected
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(2)
    spans = [ends for *_, ends in dataset.map(tokenizer.tokenize_with_offsets)]
    assert [row for batch in spans for row in batch.to_list()] == [[1, 3], [1], [], [4, 5, 7]]


# The vocabulary


@pytest.mark.parametrize("seed", range(4))
def test_any_vocabulary_searched_as_the_reference_does(tmp_path, seed):
    """Pieces drawn at random, so that the longest match is often a dead end."""
    draw = random.Random(seed)
    pieces = ["".join(draw.choices("abé", k=draw.randint(1, 5))) for _ in range(40)]
    pieces = [draw.choice(["", "##"]) + piece for piece in pieces]
    odd = ["", "##", "###", "a b", "a\0b", "##\0", "a" * 201, "a.b", "##.", "[MASK]", " a", "##b\t"]
    lines = [*pieces, *odd, *pieces[:9], "b" * 200, "[UNK]", "\u00a0[UNK] "]
    draw.shuffle(lines)
    tokenizer = FullTokenizer(write_vocabulary(tmp_path, lines))
    vocab = {line.strip(): number for number, line in enumerate(lines)}
    assert tokenizer.vocab == vocab
    assert tokenizer.vocab_size == len(lines)
    # Words of the lower-casing tokenizer have no é, so that some pieces never match.
    sizes = [*(("ab", n) for n in range(1, 8)), *(("abß", n) for n in range(1, 6)), ("b", 200)]
    words = ["".join(word) for a, size in sizes for word in itertools.product(a, repeat=size)]
    expected = [reference.split_pieces(word, vocab) for word in words]
    assert tokenizer.tokenize(words) == expected
    assert tokenizer.tokenize_ids(words).to_list() == [[vocab[p] for p in e] for e in expected]
    assert any(len(pieces) > 3 for pieces in expected)
    assert ["[UNK]"] in expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_reading_a_vocabulary(tmp_path, encoding):
    path = tmp_path / "of_any_name"
    path.write_bytes("[UNK]\r\n  a\u3000\na\u2028b\n\na\nlast".encode(encoding))
    tokenizer = FullTokenizer(path)
    assert tokenizer.vocab == {"[UNK]": 0, "a": 4, "a\u2028b": 2, "": 3, "last": 5}
    assert tokenizer.vocab_size == 6
    assert tokenizer.convert_ids_to_tokens(range(6)) == ["[UNK]", "a", "a\u2028b", "", "a", "last"]
    assert tokenizer.tokenize_ids(["a last b"]).to_list() == [[4, 5, 0]]


@pytest.mark.parametrize(
    ("content", "received"),
    [
        (b"\n \n", "vocab.txt, which is empty"),
        (b"[UNK]\na\nb\xff\n", "vocab.txt, line 3: bytes that are not UTF-8"),
        (b"[PAD]\na\n", r"vocab.txt: 2 pieces, without \[UNK\]"),
    ],
)
def test_vocabularies_that_cannot_be_used(tmp_path, content, received):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{tmp_path}/{received}"):
        FullTokenizer(path)


def test_special_tokens_that_are_missing(tmp_path):
    tokenizer = FullTokenizer(write_vocabulary(tmp_path, ["[UNK]", "[SEP]", "a"]))
    tokenizer.require_special_tokens("[UNK]", "[SEP]")
    with pytest.raises(InputError, match=r"3 pieces, without \[CLS\], \[MASK\]\n"):
        tokenizer.require_special_tokens("[CLS]", "[SEP]", "[MASK]")


def test_the_hash_of_a_vocabulary_is_that_of_its_pieces(tmp_path):
    plain = pathlib.Path(write_vocabulary(tmp_path, PIECES))
    expected = hashlib.sha256(plain.read_bytes()).hexdigest()
    plain.write_text("\r\n".join(PIECES), encoding="utf-8")
    assert vocabulary_sha256(read_vocabulary(str(plain))) == expected
