"""The tokenized corpus, in three files; and a block of it in memory.

The random next segments of the next-sentence task come from anywhere in the corpus. A process
reads them from disk, a few hundred bytes at a time, and so needs memory for one block only:

    tokens       int32   the ids of all sentences, one after the other; with --words_from_spaces
                         a bit of each says whether it continues a word (spaced_words.py)
    sentences    int64   where each sentence begins in tokens, and where the last one ends
    documents    int64   where each document begins in sentences, and where the last one ends
"""

import array
import bisect
import collections
import contextlib
import dataclasses
import errno
import hashlib
import itertools
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen.documents import Block, Counts
from data_gen.report import Statistics
from data_gen.spaced_words import CONTINUES_WORD, ID_BITS, iter_marked_batches

Sentence = list[int]  # the ids of one sentence, never empty
TOKEN_TYPE, TOKEN_BYTES, BOUND_BYTES = np.int32, 4, 8


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
            np.fromiter(itertools.chain.from_iterable(sentences), TOKEN_TYPE),
            np.fromiter(map(len, sentences), np.int64),
            np.fromiter(map(len, documents), np.int64),
        )

    def documents(self) -> list[list[Sentence]]:
        """The same as lists."""
        sentences = _cut(self.tokens.tolist(), self.sentence_lengths)
        return _cut(sentences, self.document_lengths)

    def reordered(self, order: Sequence[int]) -> "TokenizedBlock":
        """The same documents in another order."""
        documents = self.documents()
        return TokenizedBlock.of([documents[number] for number in order])


def _bounds(lengths: np.ndarray) -> np.ndarray:
    """Where each of some parts begins, and where the last one ends: 2 3 4 -> 0 2 5 9."""
    return np.concatenate([[0], np.cumsum(lengths)])


def _cut(items: list, lengths: np.ndarray) -> list[list]:
    """Cuts a list into parts of these lengths."""
    return [items[begin:end] for begin, end in itertools.pairwise(_bounds(lengths).tolist())]


# ------------------------------------------------------------------------- text -> ids


def tokenize_block(
    block: Block,
    tokenizer: FullTokenizer,
    split_sentences: Callable[[str], list[str]],
    *,
    sample_every: int,
    words_from_spaces: bool = False,
) -> tuple[TokenizedBlock, Statistics]:
    """Text -> ids, without sentences that have no token and documents that have no sentence.

    Args:
      block: its lines are split into sentences.
      tokenizer: has [UNK].
      split_sentences: see `documents.sentence_splitter`.
      sample_every: see `sample_sentences`.
      words_from_spaces: whether to set CONTINUES_WORD in the tokens.
    """
    texts = [
        [sentence for line in document for sentence in split_sentences(line)]
        for document in block.documents
    ]
    sentences = list(itertools.chain.from_iterable(texts))
    nothing = np.empty(0, TOKEN_TYPE), np.empty(0, np.int64)
    if words_from_spaces:
        parts = [nothing, *iter_marked_batches(tokenizer, sentences)]
    else:
        parts = [nothing, *tokenizer.iter_batches(sentences)]
    lengths = np.concatenate([np.diff(ends, prepend=0) for _, ends in parts])
    tokens = np.concatenate([ids for ids, _ in parts])
    is_kept = lengths > 0
    kept_before = _bounds(is_kept)[_bounds(np.fromiter(map(len, texts), np.int64))]
    kept_of_document = np.diff(kept_before)
    document_lengths = kept_of_document[kept_of_document > 0]
    tokenized = TokenizedBlock(tokens, lengths[is_kept], document_lengths)
    num_sentences = len(tokenized.sentence_lengths)
    counts = Counts(
        documents=len(document_lengths),
        documents_without_tokens=len(texts) - len(document_lengths),
        documents_of_one_sentence=int(np.count_nonzero(document_lengths == 1)),
        sentences=num_sentences,
        sentences_without_tokens=len(sentences) - num_sentences,
        tokens=len(tokenized.tokens),
        unknown_tokens=int(np.count_nonzero(tokens & ID_BITS == tokenizer.vocab["[UNK]"])),
    )
    if words_from_spaces:
        counts["words"] = int(np.count_nonzero(tokens < CONTINUES_WORD))
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


class Corpus(Protocol):
    """All documents, in memory or on disk; sentences and tokens are numbered throughout."""

    num_documents: int

    def sentences(self, document: int) -> range:
        """The numbers of a document's sentences."""

    def span(self, sentences: range, min_tokens: int) -> tuple[int, int]:
        """The number of the first token of some sentences, and how many to take.

        They end with the sentence with which they are at least `min_tokens`, or with the last one;
        there is at least one sentence, whatever `min_tokens` is.
        """

    def tokens(self, first: int, length: int) -> bytes:
        """Tokens as int32."""


class MemoryCorpus:
    """Documents in memory.

    Attributes:
      num_documents: how many.
      token_bounds: where each sentence begins among all tokens, and where the last one ends.
    """

    def __init__(self, block: TokenizedBlock):
        self.num_documents = len(block.document_lengths)
        self.token_bounds = _bounds(block.sentence_lengths).tolist()
        self._sentence_bounds = _bounds(block.document_lengths).tolist()
        self._tokens = block.tokens.astype(TOKEN_TYPE).tobytes()

    def sentences(self, document: int) -> range:
        """The numbers of a document's sentences."""
        return range(*self._sentence_bounds[document : document + 2])

    def sentences_end(self, sentences: range, min_tokens: int) -> int:
        """The end of the shortest run of `sentences` from the first on with `min_tokens`.

        Sentences of 4, 3, 5 and 2 tokens, from sentence 0 on: 7 tokens end at 2, 8 at 3, 99 at 4.
        """
        bounds, first = self.token_bounds, sentences.start
        enough = bounds[first] + min_tokens
        return bisect.bisect_left(bounds, enough, lo=first + 1, hi=sentences.stop)

    def span(self, sentences: range, min_tokens: int) -> tuple[int, int]:
        """The first token of some sentences, and how many to take: see `Corpus`."""
        first = self.token_bounds[sentences.start]
        return first, self.token_bounds[self.sentences_end(sentences, min_tokens)] - first

    def tokens(self, first: int, length: int) -> bytes:
        """Tokens as int32."""
        return self._tokens[TOKEN_BYTES * first : TOKEN_BYTES * (first + length)]


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
        self._tokens.write(block.tokens.astype(TOKEN_TYPE).tobytes())
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
        self.num_documents = os.fstat(self._documents).st_size // BOUND_BYTES - 1

    def close(self) -> None:
        """Closes the files."""
        for file in self._files:
            os.close(file)

    def sentences(self, document: int) -> range:
        """The numbers of a document's sentences."""
        return range(*_read_bounds(self._documents, document, 2))

    def span(self, sentences: range, min_tokens: int) -> tuple[int, int]:
        """The first token of some sentences, and how many to take: see `Corpus`."""
        # No sentence is empty, so there are at most min_tokens of them.
        most = min(len(sentences), max(1, min_tokens))
        bounds = _read_bounds(self._sentences, sentences.start, most + 1)
        end = bisect.bisect_left(bounds, bounds[0] + min_tokens, lo=1, hi=most)
        return bounds[0], bounds[end] - bounds[0]

    def tokens(self, first: int, length: int) -> bytes:
        """Tokens as int32."""
        return read_exactly(self._tokens, TOKEN_BYTES * length, TOKEN_BYTES * first)

    def read_block(self, documents: range) -> TokenizedBlock:
        """Consecutive documents."""
        firsts = np.array(_read_bounds(self._documents, documents.start, len(documents) + 1))
        bounds = np.array(_read_bounds(self._sentences, firsts[0], firsts[-1] - firsts[0] + 1))
        tokens = self.tokens(bounds[0], bounds[-1] - bounds[0])
        return TokenizedBlock(np.frombuffer(tokens, TOKEN_TYPE), np.diff(bounds), np.diff(firsts))


def _read_bounds(file: int, first: int, count: int) -> array.array:
    """Numbers int64 of an open file, by position."""
    bounds = array.array("q")
    bounds.frombytes(read_exactly(file, count * BOUND_BYTES, first * BOUND_BYTES))
    return bounds


def read_exactly(file: int, num_bytes: int, offset: int) -> bytes:
    """Bytes of an open file, by position; the system may give fewer at a time.

    Raises:
      OSError: the file ends before.
    """
    data = os.pread(file, num_bytes, offset)
    while len(data) < num_bytes:
        more = os.pread(file, num_bytes - len(data), offset + len(data))
        if not more:
            raise OSError(errno.EIO, "a temporary file has become shorter")
        data += more
    return data
