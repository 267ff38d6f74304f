"""data_gen/corpus.py: what is read from disk is what a list in memory would give."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen.corpus import (
    TOKEN_TYPE,
    CorpusWriter,
    DiskCorpus,
    MemoryCorpus,
    TokenizedBlock,
    tokenize_block,
)
from data_gen.documents import Block

sentences = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4)
blocks = st.lists(st.lists(st.lists(sentences, min_size=1, max_size=4), max_size=4), max_size=4)


def test_half_a_read_is_completed_and_a_file_that_ends_too_early_is_noticed(tmp_path, monkeypatch):
    documents = [[[1, 2, 3], [4]], [[5, 6]]]
    with CorpusWriter(tmp_path / "corpus") as writer:
        writer.append(TokenizedBlock.of(documents))
    whole, disk = os.pread, DiskCorpus(tmp_path / "corpus")
    monkeypatch.setattr(os, "pread", lambda file, size, at: whole(file, (size + 1) // 2, at))
    assert disk.read_block(range(2)).documents() == documents
    os.truncate(tmp_path / "corpus" / "tokens", 20)
    assert disk.tokens(3, 2) == np.array([4, 5], TOKEN_TYPE).tobytes()
    with pytest.raises(OSError, match="has become shorter"):
        disk.tokens(4, 2)
    disk.close()


@given(blocks=blocks, data=st.data())
@settings(max_examples=60)
def test_disk_and_memory_agree(tmp_path_factory, blocks, data):
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    with CorpusWriter(folder) as writer:
        numbers = [writer.append(TokenizedBlock.of(documents)) for documents in blocks]
    documents = [document for block in blocks for document in block]
    disk, memory = DiskCorpus(folder), MemoryCorpus(TokenizedBlock.of(documents))
    assert disk.num_documents == memory.num_documents == writer.num_documents == len(documents)
    for block, block_numbers in zip(blocks, numbers, strict=True):
        assert TokenizedBlock.of(block).documents() == block
        assert disk.read_block(block_numbers).documents() == block
        assert (
            TokenizedBlock.of(block[::-1]).reordered(range(len(block))[::-1]).documents() == block
        )
    if documents:
        document = data.draw(st.integers(0, len(documents) - 1))
        sentences = disk.sentences(document)
        assert sentences == memory.sentences(document)
        assert len(sentences) == len(documents[document])
        start = data.draw(st.integers(0, len(sentences) - 1))
        for min_tokens in (-3, 0, 1, 2, 5, 999):
            span = disk.span(sentences[start:], min_tokens)
            assert span == memory.span(sentences[start:], min_tokens)
            assert disk.tokens(*span) == memory.tokens(*span)
    disk.close()


def test_sentences_are_taken_until_there_are_enough_tokens():
    corpus = MemoryCorpus(TokenizedBlock.of([[[9]], [[1, 2], [3, 4, 5], [6]]]))
    for start, min_tokens, expected in (
        (0, 2, [1, 2]),
        (0, 3, [1, 2, 3, 4, 5]),
        (1, 9, [3, 4, 5, 6]),
    ):
        span = corpus.span(corpus.sentences(1)[start:], min_tokens)
        assert np.frombuffer(corpus.tokens(*span), TOKEN_TYPE).tolist() == expected


def test_a_corpus_is_not_written_over_another(tmp_path):
    with CorpusWriter(tmp_path / "corpus"), pytest.raises(FileExistsError):
        CorpusWriter(tmp_path / "corpus")


@pytest.mark.parametrize("text", [[], ["", "\x01", "a bc", ""], ["\x01"], ["c", "\x02", "b a"]])
def test_tokenized_blocks_have_no_empty_part(vocab_file, text):
    """As documents: these sentences, one that has none, and a last one."""
    tokenizer = FullTokenizer(vocab_file)
    block = Block(0, [text, ["\x01"], ["a", "bc"]])
    found, statistics = tokenize_block(block, tokenizer, lambda line: [line], sample_every=1)
    expected = [[tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line)) for line in document]
                for document in block.documents]  # fmt: skip
    kept = [[sentence for sentence in document if sentence] for document in expected]
    assert found.documents() == [document for document in kept if document]
    assert statistics.counts["documents"] == len(found.document_lengths)
    assert statistics.counts["documents_without_tokens"] == 3 - len(found.document_lengths)
    assert statistics.counts["sentences_without_tokens"] == sum(map(len, expected)) - sum(
        map(len, kept)
    )
    nothing, _ = tokenize_block(Block(0, []), tokenizer, lambda line: [line], sample_every=1)
    assert nothing.documents() == []
