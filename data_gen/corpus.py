"""Documents of lines -> the corpus: the ids of all sentences, in files that a process maps.

    tokens       int32   the ids of all sentences, one after the other
    sentences    int64   where each sentence begins in tokens, and where the last one ends
    documents    int64   where each document begins in sentences, and where the last one ends

The random next segments of the next-sentence task come from anywhere in the corpus: so each process
needs all of it.

With --words_from_spaces a bit of each token marks that it continues a word. The text was cut into
words by a segmenter such as jieba:

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
import contextlib
import functools
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from bert_tf.tokenization import basic
from bert_tf.tokenization.wordpiece import SPECIAL_TOKEN, FullTokenizer, batches, utf8
from data_gen.documents import Block, Counts

Sentence = list[int]  # the ids of one sentence, never empty
TOKEN_TYPE = np.int32
TOKEN_BYTES = 4
CONTINUES_WORD = 1 << 30  # set in a token that continues the word before it; ids are below 2^24
ID_BITS = CONTINUES_WORD - 1


class Corpus:
    """Tokenized documents. Sentences and tokens are numbered through the whole corpus.

    Attributes:
      arrays: tokens, sentences and documents, as above.
      num_documents: how many documents there are.
      token_bounds: where each sentence begins in tokens, and where the last one ends.
    """

    FILES = ("tokens", "sentences", "documents")

    def __init__(self, tokens: np.ndarray, sentences: np.ndarray, documents: np.ndarray):
        self.arrays = tokens, sentences, documents
        self.num_documents = len(documents) - 1
        self._tokens = memoryview(tokens.view(np.uint8))
        self.token_bounds = memoryview(sentences)
        self._sentence_bounds = memoryview(documents)

    def __reduce__(self) -> tuple:
        return Corpus, self.arrays

    @classmethod
    def of(cls, documents: Sequence[Sequence[Sentence]]) -> "Corpus":
        """The corpus of documents that are lists."""
        sentences = list(itertools.chain.from_iterable(documents))
        tokens = np.fromiter(itertools.chain.from_iterable(sentences), TOKEN_TYPE)
        return cls(tokens, bounds_of(map(len, sentences)), bounds_of(map(len, documents)))

    @classmethod
    def open(cls, folder: pathlib.Path) -> "Corpus":
        """Maps the files that `write_corpus` has completed."""
        types = (TOKEN_TYPE, np.int64, np.int64)
        arrays = []
        for name, dtype in zip(cls.FILES, types, strict=True):
            file = np.memmap(folder / name, dtype, "r")
            arrays.append(np.asarray(file))
        return cls(*arrays)

    def lists(self) -> list[list[Sentence]]:
        """The documents as lists."""
        tokens, token_bounds, sentence_bounds = (array.tolist() for array in self.arrays)
        sentences = [tokens[begin:end] for begin, end in itertools.pairwise(token_bounds)]
        return [sentences[begin:end] for begin, end in itertools.pairwise(sentence_bounds)]

    def sentences(self, document: int) -> range:
        """The numbers of a document's sentences."""
        return range(self._sentence_bounds[document], self._sentence_bounds[document + 1])

    def sentences_end(self, sentences: range, min_tokens: int) -> int:
        """The end of the fewest first sentences that have `min_tokens`: at least one sentence.

        These are all sentences if they have fewer tokens. Of sentences 0 to 3 with 4, 3, 5 and 2
        tokens the end is 2 for 7 tokens, 3 for 8, and 4 for 99.
        """
        bounds = self.token_bounds
        first = sentences.start
        enough = bounds[first] + min_tokens
        return bisect.bisect_left(bounds, enough, lo=first + 1, hi=sentences.stop)

    def span(self, sentences: range, min_tokens: int) -> tuple[int, int]:
        """The first token of these first sentences, and how many tokens they have."""
        first = self.token_bounds[sentences.start]
        end = self.token_bounds[self.sentences_end(sentences, min_tokens)]
        return first, end - first

    def tokens(self, first: int, length: int) -> bytes:
        """The bytes of `length` tokens, int32."""
        return bytes(self._tokens[TOKEN_BYTES * first : TOKEN_BYTES * (first + length)])


def bounds_of(lengths: Iterable[int]) -> np.ndarray:
    """Where parts of these lengths begin, and where the last one ends: 2 3 4 -> 0 2 5 9."""
    return np.fromiter(itertools.accumulate(lengths, initial=0), np.int64)


def write_corpus(folder: pathlib.Path, blocks: Iterable[Corpus]) -> Iterator[range]:
    """Writes the files of a `Corpus`; yields the numbers of each block's documents."""
    folder.mkdir(parents=True)
    num_written = [0, 0, 0]  # tokens, sentences, documents
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in Corpus.FILES]
        for file in files[1:]:
            file.write(np.int64(0).tobytes())
        for block in blocks:
            tokens, sentences, documents = block.arrays
            num_tokens, num_sentences, first_document = num_written
            added = [tokens, sentences[1:] + num_tokens, documents[1:] + num_sentences]
            for number, (file, array) in enumerate(zip(files, added, strict=True)):
                file.write(array.tobytes())
                num_written[number] += len(array)
            yield range(first_document, num_written[2])


# ------------------------------------------------------------------------- text -> ids


def tokenize_block(
    block: Block,
    tokenizer: FullTokenizer,
    split_sentences: Callable[[str], list[str]],
    words_from_spaces: bool,
) -> tuple[Corpus, Counts]:
    """The ids of a block's text, and the counts for the report.

    Sentences and documents without a token are left out.

    Args:
      block: its lines are split into sentences.
      tokenizer: has [UNK].
      split_sentences: see `sentences.sentence_splitter`.
      words_from_spaces: whether to set CONTINUES_WORD in the tokens.
    """
    documents = []
    for lines in block:
        documents.append([*itertools.chain.from_iterable(map(split_sentences, lines))])
    sentences = list(itertools.chain.from_iterable(documents))
    tokens, lengths = _tokens_of(sentences, tokenizer, words_from_spaces)
    # How many sentences with a token stand before each document. A document without a token repeats
    # the number of the one before it, and `np.unique` leaves it out.
    before = bounds_of(lengths > 0)[bounds_of(map(len, documents))]
    corpus = Corpus(tokens, bounds_of(lengths[lengths > 0]), np.unique(before))
    num_sentences = len(corpus.token_bounds) - 1
    counts = Counts(
        documents=corpus.num_documents,
        documents_without_tokens=len(documents) - corpus.num_documents,
        documents_of_one_sentence=int(np.count_nonzero(np.diff(before) == 1)),
        sentences=num_sentences,
        sentences_without_tokens=len(sentences) - num_sentences,
        tokens=len(tokens),
        unknown_tokens=int(np.count_nonzero(tokens & ID_BITS == tokenizer.vocab["[UNK]"])),
    )
    all_lines = itertools.chain.from_iterable(block)
    counts["lines_with_special_tokens"] = sum(map(bool, map(SPECIAL_TOKEN.search, all_lines)))
    if words_from_spaces:
        counts["words"] = int(np.count_nonzero(tokens < CONTINUES_WORD))
    return corpus, counts


def _tokens_of(
    sentences: Sequence[str], tokenizer: FullTokenizer, words_from_spaces: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of all sentences, one after the other, and each sentence's number of them."""
    if words_from_spaces:
        tokenized = iter_marked_batches(tokenizer, sentences)
    else:
        tokenized = tokenizer.iter_batches(sentences)
    tokens = [np.empty(0, TOKEN_TYPE)]
    lengths = [np.empty(0, np.int64)]
    for ids, splits in tokenized:
        tokens.append(ids)
        lengths.append(np.diff(splits))
    return np.concatenate(tokens), np.concatenate(lengths)


def iter_marked_batches(
    tokenizer: FullTokenizer, texts: Iterable[str]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields what `FullTokenizer.iter_batches` does, with CONTINUES_WORD set in the ids."""
    whole_pieces = itertools.chain(tokenizer.never_split, tokenizer.added_words)
    whole_ids = [tokenizer.vocab[piece] for piece in whole_pieces]
    is_separator = _separators(**tokenizer.case)
    for batch in batches(map(utf8, texts)):
        ids, starts, _ = tokenizer.tokenize_with_offsets(batch)
        values = ids.values.numpy()  # [pieces]
        # The texts as lines of one text: a line feed is a separator, too.
        code_points = np.frombuffer(b"\n".join(batch).decode().encode("utf-32-le"), "<u4")
        separators_before = bounds_of(is_separator[code_points])  # of each code point
        line_begins = bounds_of(1 + len(text.decode()) for text in batch)
        place = starts.values.numpy() + line_begins[ids.value_rowids().numpy()]  # [pieces]
        continues = np.zeros(len(place), bool)
        # No separator from the first character of a token to that of the next, both included.
        continues[1:] = separators_before[place[:-1]] == separators_before[place[1:] + 1]
        is_whole = np.isin(values, whole_ids)
        continues[1:] &= ~is_whole[:-1]
        continues &= ~is_whole
        yield values | continues * np.int32(CONTINUES_WORD), ids.row_splits.numpy()


@functools.cache
def _separators(do_lower_case: bool, strip_accents: bool | None) -> np.ndarray:
    """Whether each code point is white space or a punctuation mark: bool [code points]."""
    table = basic.load_unicode_table(do_lower_case=do_lower_case, strip_accents=strip_accents)
    flags = table.flags[table.rows[table.pages].ravel()]
    is_ideograph = (flags & basic.BREAK_AFTER != 0) & basic.is_ideograph(np.arange(len(flags)))
    return (flags & basic.BREAK_BEFORE != 0) & ~is_ideograph
