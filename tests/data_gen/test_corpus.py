"""data_gen/corpus.py: text -> ids, words between spaces, and the same documents from disk."""

import os

import numpy as np
import pytest
import reference_tokenizer
from generation import CHINESE_WORDS
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.errors import InputError
from bert_tf.tokenization import basic, wordpiece
from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen.corpus import (
    CONTINUES_WORD,
    ID_BITS,
    TOKEN_TYPE,
    Corpus,
    CorpusWriter,
    iter_marked_batches,
    tokenize_block,
)
from data_gen.documents import Block

# -------------------------------------------------------------------- in memory, on disk

sentences = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4)
blocks = st.lists(
    st.lists(st.lists(sentences, min_size=1, max_size=4), max_size=4), min_size=1, max_size=4
)


@given(blocks=blocks, data=st.data())
@settings(max_examples=60)
def test_files_and_memory_agree(tmp_path_factory, blocks, data):
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    blocks[0].append([[1]])  # a corpus is never empty
    with CorpusWriter(folder) as writer:
        numbers = [writer.append(Corpus.of(documents)) for documents in blocks]
    documents = [document for block in blocks for document in block]
    disk, memory = Corpus.open(folder), Corpus.of(documents)
    assert disk.num_documents == memory.num_documents == len(documents)
    for block, block_numbers in zip(blocks, numbers, strict=True):
        assert Corpus.of(block).lists() == disk.part(block_numbers).lists() == block
    document = data.draw(st.integers(0, len(documents) - 1))
    sentences = disk.sentences(document)
    assert sentences == memory.sentences(document)
    assert len(sentences) == len(documents[document])
    start = data.draw(st.integers(0, len(sentences) - 1))
    for min_tokens in (-3, 0, 1, 2, 5, 999):
        expected = documents[document][start]
        for sentence in documents[document][start + 1 :]:
            expected = expected + sentence if len(expected) < min_tokens else expected
        for corpus in (disk, memory):
            found = corpus.tokens(*corpus.span(sentences[start:], min_tokens))
            assert np.frombuffer(found, TOKEN_TYPE).tolist() == expected


@pytest.mark.parametrize("name", Corpus.FILES)
def test_files_that_have_lost_their_end_are_noticed(tmp_path, name):
    with CorpusWriter(tmp_path / "corpus") as writer:
        writer.append(Corpus.of([[[1, 2, 3], [4]], [[5, 6]]]))
    with pytest.raises(FileExistsError):
        CorpusWriter(tmp_path / "corpus")
    path = tmp_path / "corpus" / name
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(InputError, match="corpus, in which files are missing or have changed"):
        Corpus.open(tmp_path / "corpus")


# -------------------------------------------------------------------- text -> ids


@pytest.mark.parametrize("text", [[], ["", "\x01", "a bc", ""], ["\x01"], ["c", "\x02", "b a"]])
def test_tokenized_blocks_have_no_empty_part(vocab_file, text):
    """As documents: these sentences, one that has none, and a last one."""
    tokenizer = FullTokenizer(vocab_file)
    block = Block(0, [text, ["\x01"], ["a", "bc"]])
    found, statistics = tokenize_block(block, tokenizer, lambda line: [line], sample_every=1)
    expected = [[tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line)) for line in document]
                for document in block.documents]  # fmt: skip
    kept = [[sentence for sentence in document if sentence] for document in expected]
    lost = sum(map(len, expected)) - sum(map(len, kept))
    assert found.lists() == [document for document in kept if document]
    counts = statistics.counts
    assert counts["documents"] == found.num_documents == 3 - counts["documents_without_tokens"]
    assert counts["sentences_without_tokens"] == lost
    assert counts["documents_of_one_sentence"] == sum(len(document) == 1 for document in kept)
    nothing, _ = tokenize_block(Block(0, []), tokenizer, lambda line: [line], sample_every=1)
    assert nothing.lists() == []


# -------------------------------------------------------------------- words between spaces

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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" ".join(CHINESE_WORDS), ["使 用", "语 言", "模 型", "来", "预 测", "下", "一 个", "词"]),
        ("使用 GPT2 模型。很快", ["使 用", "gp ##t ##2", "模 型", "。", "很 快"]),
        ("GPT2模型2来", ["gp ##t ##2 模 型 2 来"]),
        ("don't!!", ["don", "'", "t", "!", "!"]),
        ("模型。来，词!", ["模 型", "。", "来", "，", "词", "!"]),
        (" 使\u3000用\t语\u2028言 ", ["使", "用", "语", "言"]),  # white space of any kind
        ("使\u200b用\0语\x0c言", ["使 用 语 言"]),  # control characters are none
        ("使鑫用 鑫𠀀 ☃ 来—词", ["使 [UNK] 用", "[UNK] [UNK]", "[UNK]", "来", "[UNK]", "词"]),
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
        table = basic.load_unicode_table(do_lower_case=lower)
        both = basic.BREAK_BEFORE | basic.BREAK_AFTER
        is_word = table.flags[table.rows[table.pages].ravel()] & both == both
        found = is_word & basic.is_ideograph(np.arange(len(is_word)))
        assert {*np.flatnonzero(found).tolist()} == reference_tokenizer.CJK


def test_marked_blocks_have_the_same_ids_and_counts(tokenizers):
    lines = ["使用 语言模型 。", "\0", "鑫 don't"]
    block, tokenizer = Block(0, [lines, ["\0"], ["来"]]), tokenizers[True]
    (plain, statistics), (marked, of_marked) = (
        tokenize_block(
            block, tokenizer, lambda line: [line], sample_every=1, words_from_spaces=spaced
        )
        for spaced in (False, True)
    )
    lists = [[[token & ID_BITS for token in s] for s in d] for d in marked.lists()]
    assert lists == plain.lists()
    assert of_marked.counts == statistics.counts | {"words": 8}
    assert of_marked.counts["unknown_tokens"] == 1
    assert of_marked.sampled == statistics.sampled
