"""The tokenized corpus: kept in memory when it is small, in three files when it is not.

The random next segments of the next-sentence task come from anywhere in the corpus. A process
that reads them from disk, a few hundred bytes at a time, needs no memory for that, however large
the corpus is:

    tokens       int32   the ids of all sentences, one after the other
    sentences    int64   where each sentence begins in tokens, and where the last one ends
    documents    int64   where each document begins in sentences, and where the last one ends
"""

import array
import bisect
import contextlib
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from data_gen.pairs import Sentence

INT64_BYTES = 8
INT32_BYTES = 4


@dataclasses.dataclass(frozen=True)
class TokenizedBlock:
    """The documents of a block, as three arrays."""

    tokens: np.ndarray  # int32 [tokens]
    sentence_lengths: np.ndarray  # int64 [sentences], none 0
    document_lengths: np.ndarray  # int64 [documents], in sentences, none 0

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


class MemoryCorpus:
    """Documents in memory."""

    def __init__(self, documents: Sequence[Sequence[Sentence]]):
        self.num_documents = len(documents)
        self._documents = documents

    def num_sentences(self, document: int) -> int:
        """How many sentences a document has."""
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
        self._files = {
            name: self.enter_context(open(folder / name, "wb"))  # noqa: SIM115
            for name in ("tokens", "sentences", "documents")
        }
        self._ends = {"sentences": 0, "documents": 0}
        for name in self._ends:
            self._files[name].write(np.int64(0).tobytes())
        self.num_documents = 0

    def append(self, block: TokenizedBlock) -> range:
        """Adds the block; returns the numbers of its documents in the corpus."""
        self._files["tokens"].write(block.tokens.astype(np.int32).tobytes())
        self._append_ends("sentences", block.sentence_lengths)
        self._append_ends("documents", block.document_lengths)
        first = self.num_documents
        self.num_documents += len(block.document_lengths)
        return range(first, self.num_documents)

    def _append_ends(self, name: str, lengths: np.ndarray) -> None:
        ends = self._ends[name] + np.cumsum(lengths, dtype=np.int64)
        self._files[name].write(ends.tobytes())
        self._ends[name] += int(lengths.sum())


class DiskCorpus:
    """Documents in the files of a `CorpusWriter`, read a few bytes at a time."""

    def __init__(self, folder: pathlib.Path):
        self._tokens, self._sentences, self._documents = (
            os.open(folder / name, os.O_RDONLY) for name in ("tokens", "sentences", "documents")
        )
        self.num_documents = os.fstat(self._documents).st_size // INT64_BYTES - 1

    def close(self) -> None:
        """Closes the files."""
        for file in (self._tokens, self._sentences, self._documents):
            os.close(file)

    def num_sentences(self, document: int) -> int:
        """How many sentences a document has."""
        first, end = self._read_int64(self._documents, document, 2)
        return end - first

    def read_sentences(self, document: int, start: int, *, min_tokens: int) -> list[int]:
        """Whole sentences from `start` on, joined, until `min_tokens` or the document's end."""
        first, end = self._read_int64(self._documents, document, 2)
        # No sentence is empty, so there are at most min_tokens of them.
        most = min(end - first - start, max(1, min_tokens))
        bounds = self._read_int64(self._sentences, first + start, most + 1)
        last = bisect.bisect_left(bounds, bounds[0] + min_tokens, lo=1, hi=most)
        return self._read_tokens(bounds[0], bounds[last])

    def read_documents(self, numbers: range) -> list[list[Sentence]]:
        """Some documents that follow one another, as lists."""
        firsts = self._read_int64(self._documents, numbers.start, len(numbers) + 1)
        bounds = self._read_int64(self._sentences, firsts[0], firsts[-1] - firsts[0] + 1)
        return _cut(_cut(self._read_tokens(bounds[0], bounds[-1]), bounds), firsts)

    def _read_int64(self, file: int, first: int, count: int) -> list[int]:
        numbers = array.array("q")
        numbers.frombytes(os.pread(file, count * INT64_BYTES, first * INT64_BYTES))
        return numbers.tolist()

    def _read_tokens(self, begin: int, end: int) -> list[int]:
        tokens = array.array("i")
        tokens.frombytes(os.pread(self._tokens, (end - begin) * INT32_BYTES, begin * INT32_BYTES))
        return tokens.tolist()
