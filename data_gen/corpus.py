"""Text -> ids; and the tokenized corpus, in memory or in three files.

The random next segments of the next-sentence task come from anywhere in the corpus. A process maps
its files and so needs memory for one block only:

    tokens       int32   the ids of all sentences, one after the other; with --words_from_spaces
                         a bit of each marks that it continues a word
    sentences    int64   where each sentence begins in tokens, and where the last one ends
    documents    int64   where each document begins in sentences, and where the last one ends

With --words_from_spaces the text was cut into words by a segmenter such as jieba:

    text        使用 GPT2 模型。很快
    tokens      使 用 gp ##t ##2 模 型 。 很 快
    continues   0  1  0  1   1   0  1  0  0  1

The tokenizer makes each Chinese character and each punctuation mark a token of its own. Characters
without white space between them form one word here, with the letters and digits beside them. A
punctuation mark, or a piece that is never split, remains a word, and the next word begins after it:
"don't" is three words, as it is without --words_from_spaces. Text without Chinese characters gives
the same words with and without it.
"""

import bisect
import collections
import contextlib
import functools
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from bert_tf.errors import InputError
from bert_tf.tokenization import basic
from bert_tf.tokenization.wordpiece import FullTokenizer, batches, utf8
from data_gen.documents import Block, Counts, Statistics

Sentence = list[int]  # the ids of one sentence, never empty
TOKEN_TYPE, TOKEN_BYTES = np.int32, 4
CONTINUES_WORD = 1 << 30  # set in a token that continues the word before it; ids are below 2^24
ID_BITS = CONTINUES_WORD - 1


class Corpus:
    """Tokenized documents; sentences and tokens are numbered throughout.

    Attributes:
      arrays: tokens, sentences and documents, as above.
      num_documents: how many.
      token_bounds: where each sentence begins in tokens, and where the last one ends.
    """

    FILES = ("tokens", "sentences", "documents")

    def __init__(self, tokens: np.ndarray, sentences: np.ndarray, documents: np.ndarray):
        self.arrays = tokens, sentences, documents
        self.num_documents = len(documents) - 1
        self._tokens = memoryview(tokens.view(np.uint8))
        self.token_bounds, self._sentence_bounds = memoryview(sentences), memoryview(documents)

    def __reduce__(self) -> tuple:
        return Corpus, self.arrays

    @classmethod
    def of(cls, documents: Sequence[Sequence[Sentence]]) -> "Corpus":
        """From lists."""
        sentences = list(itertools.chain.from_iterable(documents))
        tokens = np.fromiter(itertools.chain.from_iterable(sentences), TOKEN_TYPE)
        return cls(tokens, bounds_of(map(len, sentences)), bounds_of(map(len, documents)))

    @classmethod
    def open(cls, folder: pathlib.Path) -> "Corpus":
        """The files that a `CorpusWriter` has completed.

        Raises:
          InputError: one has lost its end.
        """
        paths = [folder / name for name in cls.FILES]
        types = (TOKEN_TYPE, np.int64, np.int64)
        corpus = cls(
            *(np.asarray(np.memmap(*each, "r")) for each in zip(paths, types, strict=True))
        )
        tokens, sentences, documents = corpus.arrays
        if (len(tokens), len(sentences) - 1) != (sentences[-1], documents[-1]):
            raise changed_files(folder)
        return corpus

    def lists(self) -> list[list[Sentence]]:
        """The documents as lists."""
        tokens, sentences, documents = (array.tolist() for array in self.arrays)
        cut = [tokens[begin:end] for begin, end in itertools.pairwise(sentences)]
        return [cut[begin:end] for begin, end in itertools.pairwise(documents)]

    def part(self, documents: range) -> "Corpus":
        """Consecutive documents, in memory."""
        tokens, sentences, bounds = self.arrays
        bounds = bounds[documents.start : documents.stop + 1]
        sentences = sentences[bounds[0] : bounds[-1] + 1]
        tokens = tokens[sentences[0] : sentences[-1]].copy()
        return Corpus(tokens, sentences - sentences[0], bounds - bounds[0])

    def sentences(self, document: int) -> range:
        """The numbers of a document's sentences."""
        return range(self._sentence_bounds[document], self._sentence_bounds[document + 1])

    def sentences_end(self, sentences: range, min_tokens: int) -> int:
        """The end of the shortest run of `sentences` from the first on with `min_tokens`.

        It has at least one sentence. Sentences of 4, 3, 5 and 2 tokens, from sentence 0 on: 7
        tokens end at 2, 8 at 3, 99 at 4.
        """
        bounds, first = self.token_bounds, sentences.start
        enough = bounds[first] + min_tokens
        return bisect.bisect_left(bounds, enough, lo=first + 1, hi=sentences.stop)

    def span(self, sentences: range, min_tokens: int) -> tuple[int, int]:
        """The first token of that run of sentences, and how many tokens it has."""
        first = self.token_bounds[sentences.start]
        return first, self.token_bounds[self.sentences_end(sentences, min_tokens)] - first

    def tokens(self, first: int, length: int) -> bytes:
        """Tokens as int32."""
        return bytes(self._tokens[TOKEN_BYTES * first : TOKEN_BYTES * (first + length)])


def bounds_of(lengths: Iterable[int]) -> np.ndarray:
    """Where each of some parts begins, and where the last one ends: 2 3 4 -> 0 2 5 9."""
    return np.fromiter(itertools.accumulate(lengths, initial=0), np.int64)


def changed_files(folder: pathlib.Path) -> InputError:
    """The error for temporary files that another program has changed."""
    return InputError(
        f"{folder}, in which files are missing or have changed",
        "temporary files that only this command writes and removes",
        f"remove {folder.parent}, then give the same command again",
    )


class CorpusWriter(contextlib.ExitStack):
    """Writes the files of a `Corpus`, block after block; they are complete when it exits."""

    def __init__(self, folder: pathlib.Path):
        super().__init__()
        folder.mkdir(parents=True)
        paths = (folder / name for name in Corpus.FILES)
        self._files = [self.enter_context(path.open("wb")) for path in paths]
        for file in self._files[1:]:
            file.write(np.int64(0).tobytes())
        self._numbers = [0, 0, 0]  # of tokens, sentences and documents

    def append(self, block: Corpus) -> range:
        """Adds the documents of a block; returns their numbers in the corpus."""
        tokens, sentences, documents = block.arrays
        num_tokens, num_sentences, num_documents = self._numbers
        added = tokens, sentences[1:] + num_tokens, documents[1:] + num_sentences
        for number, (file, array) in enumerate(zip(self._files, added, strict=True)):
            file.write(array.tobytes())
            self._numbers[number] += len(array)
        return range(num_documents, self._numbers[2])


# ------------------------------------------------------------------------- text -> ids


def tokenize_block(
    block: Block,
    tokenizer: FullTokenizer,
    split_sentences: Callable[[str], list[str]],
    *,
    sample_every: int,
    words_from_spaces: bool = False,
) -> tuple[Corpus, Statistics]:
    """Text -> ids, without sentences that have no token and documents that have no sentence.

    Args:
      block: its lines are split into sentences.
      tokenizer: has [UNK].
      split_sentences: see `documents.Splitter`.
      sample_every: see `sample_sentences`.
      words_from_spaces: whether to set CONTINUES_WORD in the tokens.
    """
    texts = [
        [sentence for line in document for sentence in split_sentences(line)]
        for document in block.documents
    ]
    sentences = list(itertools.chain.from_iterable(texts))
    cut = functools.partial(iter_marked_batches, tokenizer)
    tokenized = (cut if words_from_spaces else tokenizer.iter_batches)(sentences)
    parts = [(np.empty(0, TOKEN_TYPE), np.empty(0, np.int64)), *tokenized]
    tokens = np.concatenate([ids for ids, _ in parts])
    lengths = np.concatenate([np.diff(ends, prepend=0) for _, ends in parts])
    # How many sentences with a token stand before each document; a document without one repeats it.
    before = bounds_of(lengths > 0)[bounds_of(map(len, texts))]
    found = Corpus(tokens, bounds_of(lengths[lengths > 0]), np.unique(before))
    num_sentences = len(found.token_bounds) - 1
    counts = Counts(
        documents=found.num_documents,
        documents_without_tokens=len(texts) - found.num_documents,
        documents_of_one_sentence=int(np.count_nonzero(np.diff(before) == 1)),
        sentences=num_sentences,
        sentences_without_tokens=len(sentences) - num_sentences,
        tokens=len(tokens),
        unknown_tokens=int(np.count_nonzero(tokens & ID_BITS == tokenizer.vocab["[UNK]"])),
    )
    if words_from_spaces:
        counts["words"] = int(np.count_nonzero(tokens < CONTINUES_WORD))
    return found, Statistics(counts, sample_sentences(sentences, sample_every))


def sample_sentences(sentences: Sequence[str], sample_every: int) -> collections.Counter[int]:
    """Counts the sentences whose hash is a multiple of `sample_every`, by hash.

    All copies of a sentence have the same hash, so the sample has all of them or none.
    """
    hashes = (
        hashlib.blake2b(sentence.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for sentence in sentences
    )
    numbers = (int.from_bytes(digest, "little") for digest in hashes)
    return collections.Counter(number for number in numbers if number % sample_every == 0)


def iter_marked_batches(
    tokenizer: FullTokenizer, texts: Iterable[str]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What `FullTokenizer.iter_batches` gives, with CONTINUES_WORD set in the ids."""
    kept_whole = [tokenizer.vocab[piece] for piece in tokenizer.never_split]
    for batch in batches(map(utf8, texts)):
        ids, starts, _ = tokenizer.tokenize_with_offsets(batch)
        ends, values = ids.row_splits.numpy()[1:], ids.values.numpy()
        continues = continue_words(
            [text.decode() for text in batch],
            starts.values.numpy(),
            ends,
            do_lower_case=tokenizer.do_lower_case,
        )
        is_kept = np.isin(values, kept_whole)
        continues[1:] &= ~is_kept[:-1]
        continues &= ~is_kept
        yield values | continues * np.int32(CONTINUES_WORD), ends


def continue_words(
    texts: Sequence[str], starts: np.ndarray, ends: np.ndarray, *, do_lower_case: bool
) -> np.ndarray:
    """Which tokens continue the word before them: bool [pieces].

    Args:
      texts: [N].
      starts: [pieces], where in its text each piece begins.
      ends: [N], where each text ends among the pieces.
      do_lower_case: the tokenizer's.
    """
    points = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")  # [characters]
    separators = bounds_of(_separates(do_lower_case)[points])  # how many before each character
    num_pieces = np.diff(ends, prepend=0)  # [N]
    place = starts + np.repeat(bounds_of(map(len, texts))[:-1], num_pieces)  # in all texts
    continues = np.zeros(len(place), bool)
    # From the first character of a token to that of the next, both included, nothing separates.
    continues[1:] = separators[place[:-1]] == separators[place[1:] + 1]
    continues[(ends - num_pieces)[num_pieces > 0]] = False  # the first of each text
    return continues


@functools.cache
def _separates(do_lower_case: bool) -> np.ndarray:
    """Whether a code point is white space or a punctuation mark: bool [code points]."""
    table = basic.load_unicode_table(do_lower_case=do_lower_case)
    flags = table.flags[table.rows[table.pages].ravel()]
    breaks_before = flags & basic.BREAK_BEFORE != 0
    breaks_after = flags & basic.BREAK_AFTER != 0
    ideographs = basic.is_ideograph(np.arange(len(flags)))
    return breaks_before & ~(breaks_after & ideographs)
