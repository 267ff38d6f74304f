"""data_gen/corpus.py: what is read from disk is what a list in memory would give."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.corpus import CorpusWriter, DiskCorpus, MemoryCorpus, TokenizedBlock

sentences = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4)
blocks = st.lists(st.lists(st.lists(sentences, min_size=1, max_size=4), max_size=4), max_size=4)


@given(blocks=blocks, data=st.data())
@settings(max_examples=60)
def test_disk_and_memory_agree(tmp_path_factory, blocks, data):
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    with CorpusWriter(folder) as writer:
        numbers = [writer.append(TokenizedBlock.of(documents)) for documents in blocks]
    documents = [document for block in blocks for document in block]
    disk, memory = DiskCorpus(folder), MemoryCorpus(documents)
    assert disk.num_documents == memory.num_documents == writer.num_documents == len(documents)
    for block, block_numbers in zip(blocks, numbers, strict=True):
        assert TokenizedBlock.of(block).documents() == block
        assert disk.read_documents(block_numbers) == block
    if documents:
        document = data.draw(st.integers(0, len(documents) - 1))
        assert disk.num_sentences(document) == memory.num_sentences(document)
        start = data.draw(st.integers(0, len(documents[document]) - 1))
        for min_tokens in (-3, 0, 1, 2, 5, 999):
            read = disk.read_sentences(document, start, min_tokens=min_tokens)
            assert read == memory.read_sentences(document, start, min_tokens=min_tokens)
    disk.close()


def test_sentences_are_read_until_there_are_enough_tokens():
    corpus = MemoryCorpus([[[1, 2], [3, 4, 5], [6]]])
    assert corpus.read_sentences(0, 0, min_tokens=2) == [1, 2]
    assert corpus.read_sentences(0, 0, min_tokens=3) == [1, 2, 3, 4, 5]
    assert corpus.read_sentences(0, 1, min_tokens=9) == [3, 4, 5, 6]


def test_a_corpus_is_not_written_over_another(tmp_path):
    with CorpusWriter(tmp_path / "corpus"), pytest.raises(FileExistsError):
        CorpusWriter(tmp_path / "corpus")
