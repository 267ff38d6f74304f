"""data_gen/spaced_words.py: which tokens continue a word, by hand and against a plain way."""

import numpy as np
import pytest
import reference_tokenizer
from generation import CHINESE_WORDS
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.tokenization import unicode_table, wordpiece
from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen.corpus import tokenize_block
from data_gen.documents import Block
from data_gen.spaced_words import CONTINUES_WORD, ID_BITS, iter_marked_batches

CHARACTERS = "使用语言模型来预测下一个词很快"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CHARACTERS, "gp", "##t", "##2", "don",
          "t", "a", "##a", "e", "##e", *"'!，。2", "##使", "##語"]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizers() -> dict[bool, FullTokenizer]:
    """The tokenizer with and without lower-casing."""
    return {lower: FullTokenizer("vocab.txt", lower, pieces=PIECES) for lower in (True, False)}


def marked_words(tokenizer: FullTokenizer, text: str) -> list[str]:
    """The pieces of each word, joined by spaces."""
    ((tokens, ends),) = iter_marked_batches(tokenizer, [text])
    assert ends.tolist() == [len(tokens)]
    found: list[list[str]] = []
    for token in tokens.tolist():
        piece = tokenizer.inv_vocab[token & ID_BITS]
        if token & CONTINUES_WORD:
            found[-1].append(piece)
        else:
            found.append([piece])
    return [" ".join(pieces) for pieces in found]


def test_the_drawn_example(tokenizers):
    ((tokens, _),) = iter_marked_batches(tokenizers[True], ["使用 GPT2 模型。很快"])
    pieces = [tokenizers[True].inv_vocab[token] for token in (tokens & ID_BITS).tolist()]
    assert pieces == ["使", "用", "gp", "##t", "##2", "模", "型", "。", "很", "快"]
    assert (tokens >> 30).tolist() == [0, 1, 0, 1, 1, 0, 1, 0, 0, 1]


def test_a_sentence_of_segmented_chinese(tokenizers):
    found = marked_words(tokenizers[True], " ".join(CHINESE_WORDS))
    assert found == ["使 用", "语 言", "模 型", "来", "预 测", "下", "一 个", "词"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPT2模型", ["gp ##t ##2 模 型"]),
        ("模型2来", ["模 型 2 来"]),
        ("don't", ["don", "'", "t"]),
        ("模型。来，词!", ["模 型", "。", "来", "，", "词", "!"]),
        ("!!", ["!", "!"]),
        ("使\u3000用\t语\u2028言", ["使", "用", "语", "言"]),  # white space of any kind
        ("使\u200b用\0语\x0c言", ["使 用 语 言"]),  # control characters are none
        (" 使用 ", ["使 用"]),
        ("使鑫用 鑫𠀀 ☃ 来", ["使 [UNK] 用", "[UNK] [UNK]", "[UNK]", "来"]),
        ("来—词", ["来", "[UNK]", "词"]),  # a punctuation mark that the vocabulary lacks
        ("使\u0301用", ["使 用"]),
        ("", []),
    ],
)
def test_what_belongs_to_a_word(tokenizers, text, expected):
    assert marked_words(tokenizers[True], text) == expected


def test_a_piece_that_is_never_split_is_a_word():
    tokenizer = FullTokenizer("vocab.txt", True, pieces=PIECES, never_split=["don", "gp"])
    found = marked_words(tokenizer, "使don用 adone gpdon e使don")
    assert found == ["使", "don", "用", "a", "don", "e", "gp", "don", "e 使", "don"]


def test_without_lower_casing_accents_are_characters(tokenizers):
    assert marked_words(tokenizers[False], "e\u0301a使") == ["[UNK] 使"]
    assert marked_words(tokenizers[False], "!\u0301a") == ["!", "[UNK]"]


def test_no_word_goes_on_into_the_next_text(tokenizers, monkeypatch):
    texts = ["", "使用", "\0", "语", "言 模型", ""]
    for most in (1, 2, 8192):
        monkeypatch.setattr(wordpiece, "MAX_TEXTS_PER_BATCH", most)
        parts = [*iter_marked_batches(tokenizers[True], texts)]
        assert np.concatenate([ids >> 30 for ids, _ in parts]).tolist() == [0, 1, 0, 0, 0, 1]
        lengths = np.concatenate([np.diff(ends, prepend=0) for _, ends in parts])
        assert lengths.tolist() == [0, 2, 0, 1, 3, 0]


def plain_words(text: str, tokenizer: FullTokenizer) -> list[str]:
    """The same by the original's steps: white space and punctuation first, then each part."""
    found = []
    for part in "".join(map(reference_tokenizer.clean, text)).split():
        marks = reference_tokenizer.is_punctuation
        for word in "".join(f" {c} " if marks(c) else c for c in part).split():
            pieces = reference_tokenizer.tokenize(
                word, tokenizer.vocab, do_lower_case=tokenizer.do_lower_case
            )
            found += [" ".join(pieces)] if pieces else []
    return found


@given(
    text=st.text(alphabet="使用语gpta2eé가鑫𠀀豈語 \u3000\n\u200b\0\u0301'!，—\U0001f600"),
    lower=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_the_words_are_those_of_the_plain_way_and_the_ids_the_same(tokenizers, text, lower):
    tokenizer = tokenizers[lower]
    assert marked_words(tokenizer, text) == plain_words(text, tokenizer)
    ((tokens, _),) = iter_marked_batches(tokenizer, [text])
    (ids,) = tokenizer.iter_ids([text])
    assert (tokens & ID_BITS).tolist() == ids


def test_the_chinese_characters_are_those_that_the_tokenizer_cuts_off():
    for lower in (True, False):
        table = unicode_table.load_unicode_table(do_lower_case=lower)
        both = unicode_table.BREAK_BEFORE | unicode_table.BREAK_AFTER
        is_word = table.flags[table.rows[table.pages].ravel()] & both == both
        found = is_word & unicode_table.is_ideograph(np.arange(len(is_word)))
        assert {*np.flatnonzero(found).tolist()} == reference_tokenizer.CJK


def test_tokenized_blocks_have_the_same_ids_and_counts(tokenizers):
    lines = ["使用 语言模型 。", "\0", "鑫 don't"]
    block, tokenizer = Block(0, [lines, ["\0"], ["来"]]), tokenizers[True]
    made = {
        spaced: tokenize_block(
            block, tokenizer, lambda line: [line], sample_every=1, words_from_spaces=spaced
        )
        for spaced in (False, True)
    }
    (plain, statistics), (marked, of_marked) = made[False], made[True]
    assert (marked.tokens & ID_BITS).tolist() == plain.tokens.tolist()
    for name in ("sentence_lengths", "document_lengths"):
        np.testing.assert_array_equal(getattr(marked, name), getattr(plain, name))
    assert of_marked.counts == statistics.counts | {"words": 8}
    assert of_marked.counts["unknown_tokens"] == 1
    assert of_marked.sampled == statistics.sampled
