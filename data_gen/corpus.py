"""The tokenized corpus: in memory when it is a single block, in three files when it is larger.

The random next segments of the next-sentence task come from anywhere in the corpus. A process
reads them from disk, a few hundred bytes at a time, and so needs no memory for the corpus:

    tokens       int32   the ids of all sentences, one after the other
    sentences    int64   where each sentence begins in tokens, and where the last one ends
    documents    int64   where each document begins in sentences, and where the last one ends
"""

import array
import bisect
import collections
import contextlib
import dataclasses
import hashlib
import itertools
import os
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen.documents import Block, Counts
from data_gen.pairs import Sentence
from data_gen.report import Statistics


@dataclasses.dataclass(frozen=True)
class TokenizedBlock:
    """The documents of a block, as three arrays."""

    tokens: np.ndarray  # int32 [tokens]
    sentence_lengths: np.ndarray  # int64 [sentences], none 0
    document_lengths: np.ndarray  # int64 [documents], in sentences, none 0

    @classmethod
    def of(cls, documents: Sequence[Sequence[Sentence]]) -> "TokenizedBlock":
        """From lists."""
        sentences = list(itertools.chain.from_iterable(documents))
        return cls(
            np.fromiter(itertools.chain.from_iterable(sentences), np.int32),
            np.fromiter(map(len, sentences), np.int64),
            np.fromiter(map(len, documents), np.int64),
        )

    def documents(self) -> list[list[Sentence]]:
        """The same as lists."""
        sentences = _cut(self.tokens.tolist(), _ends(self.sentence_lengths))
        return _cut(sentences, _ends(self.document_lengths))


def _ends(lengths: np.ndarray) -> list[int]:
    return [0, *np.cumsum(lengths).tolist()]


def _cut(items: list, bounds: Sequence[int]) -> list[list]:
    """Cuts a list at `bounds`, which count from bounds[0]: [a b c], [7 9 10] -> [a b], [c]."""
    first = bounds[0]
    return [items[begin - first : end - first] for begin, end in itertools.pairwise(bounds)]


# ------------------------------------------------------------------------- text -> ids


def tokenize_block(
    block: Block,
    tokenizer: FullTokenizer,
    split_sentences: Callable[[str], list[str]],
    *,
    sample_every: int,
) -> tuple[TokenizedBlock, Statistics]:
    """Text -> ids, without sentences that have no token and documents that have no sentence.

    Args:
      block: its lines are split into sentences.
      tokenizer: has [UNK].
      split_sentences: see `documents.sentence_splitter`.
      sample_every: see `sample_sentences`.
    """
    texts = [
        [sentence for line in document for sentence in split_sentences(line)]
        for document in block.documents
    ]
    sentences = list(itertools.chain.from_iterable(texts))
    ids = tokenizer.iter_ids(sentences)
    documents = [list(filter(None, itertools.islice(ids, len(text)))) for text in texts]
    documents = [document for document in documents if document]
    tokenized = TokenizedBlock.of(documents)
    num_sentences = len(tokenized.sentence_lengths)
    counts = Counts(
        documents=len(documents),
        documents_without_tokens=len(texts) - len(documents),
        documents_of_one_sentence=sum(len(document) == 1 for document in documents),
        sentences=num_sentences,
        sentences_without_tokens=len(sentences) - num_sentences,
        tokens=len(tokenized.tokens),
        unknown_tokens=int(np.count_nonzero(tokenized.tokens == tokenizer.vocab["[UNK]"])),
    )
    return tokenized, Statistics(counts, sample_sentences(sentences, sample_every))


def sample_sentences(sentences: Sequence[str], sample_every: int) -> collections.Counter[int]:
    """Counts the sentences whose hash is a multiple of `sample_every`, by hash.

    All copies of a sentence have the same hash, so the sample has all of them or none.
    """
    sampled: collections.Counter[int] = collections.Counter()
    for sentence in sentences:
        digest = hashlib.blake2b(sentence.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number = int.from_bytes(digest, "little")
        if number % sample_every == 0:
            sampled[number] += 1
    return sampled


# ------------------------------------------------------------------------- in memory, on disk


class MemoryCorpus:
    """Documents in memory."""

    def __init__(self, documents: Sequence[Sequence[Sentence]]):
        self.num_documents = len(documents)
        self._documents = documents

    def num_sentences(self, document: int) -> int:
        """The number of sentences of a document."""
        return len(self._documents[document])

    def read_sentences(self, document: int, start: int, *, min_tokens: int) -> list[int]:
        """Whole sentences from `start` on, joined, until `min_tokens` or the document's end."""
        tokens: list[int] = []
        for sentence in self._documents[document][start:]:
            tokens.extend(sentence)
            if len(tokens) >= min_tokens:
                break
        return tokens


class CorpusWriter(contextlib.ExitStack):
    """Writes the files of a `DiskCorpus`, block after block; they are complete when it exits."""

    def __init__(self, folder: pathlib.Path):
        super().__init__()
        folder.mkdir(parents=True)
        self._tokens, self._sentences, self._documents = (
            self.enter_context(open(folder / name, "wb"))  # noqa: SIM115
            for name in DiskCorpus.FILES
        )
        self._ends = {self._sentences: 0, self._documents: 0}
        for file in self._ends:
            file.write(np.int64(0).tobytes())
        self.num_documents = 0

    def append(self, block: TokenizedBlock) -> range:
        """Adds the block; returns the numbers of its documents in the corpus."""
        self._tokens.write(block.tokens.astype(np.int32).tobytes())
        for file, lengths in (
            (self._sentences, block.sentence_lengths),
            (self._documents, block.document_lengths),
        ):
            file.write((self._ends[file] + np.cumsum(lengths, dtype=np.int64)).tobytes())
            self._ends[file] += int(lengths.sum())
        first = self.num_documents
        self.num_documents += len(block.document_lengths)
        return range(first, self.num_documents)


class DiskCorpus:
    """Documents in the files of a `CorpusWriter`, read a few bytes at a time."""

    FILES = ("tokens", "sentences", "documents")

    def __init__(self, folder: pathlib.Path):
        self._tokens, self._sentences, self._documents = self._files = [
            os.open(folder / name, os.O_RDONLY) for name in self.FILES
        ]
        self.num_documents = os.fstat(self._documents).st_size // array.array("q").itemsize - 1

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            os.close(file)

    def num_sentences(self, document: int) -> int:
        """The number of sentences of a document."""
        first, end = _read(self._documents, "q", document, 2)
        return end - first

    def read_sentences(self, document: int, start: int, *, min_tokens: int) -> list[int]:
        """Whole sentences from `start` on, joined, until `min_tokens` or the document's end."""
        first, end = _read(self._documents, "q", document, 2)
        # No sentence is empty, so there are at most min_tokens of them.
        most = min(end - first - start, max(1, min_tokens))
        bounds = _read(self._sentences, "q", first + start, most + 1)
        last = bisect.bisect_left(bounds, bounds[0] + min_tokens, lo=1, hi=most)
        return _read(self._tokens, "i", bounds[0], bounds[last] - bounds[0])

    def read_documents(self, numbers: range) -> list[list[Sentence]]:
        """Consecutive documents, as lists."""
        firsts = _read(self._documents, "q", numbers.start, len(numbers) + 1)
        bounds = _read(self._sentences, "q", firsts[0], firsts[-1] - firsts[0] + 1)
        tokens = _read(self._tokens, "i", bounds[0], bounds[-1] - bounds[0])
        return _cut(_cut(tokens, bounds), firsts)


def _read(file: int, typecode: str, first: int, count: int) -> list[int]:
    """Integers of an open file, by position: "i" for int32, "q" for int64."""
    numbers = array.array(typecode)
    size = numbers.itemsize
    numbers.frombytes(os.pread(file, count * size, first * size))
    return numbers.tolist()
