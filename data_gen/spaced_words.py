"""Text that has been cut into words with spaces -> tokens with a bit: it continues a word.

    text        使用 GPT2 模型。很快      cut by a segmenter such as jieba
    tokens      使 用 gp ##t ##2 模 型 。 很 快
    continues   0  1  0  1   1   0  1  0  0  1

The tokenizer cuts each Chinese character and each punctuation mark off as a token. Here characters
without white space between them are one word again, with the letters and digits beside them. A
punctuation mark, or a piece that is never split, remains a word, and another begins behind it:
"don't" is three words, as it is without --words_from_spaces. So this changes nothing in text
without Chinese characters.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_tf.tokenization.unicode_table import (
    BREAK_AFTER,
    BREAK_BEFORE,
    is_ideograph,
    load_unicode_table,
)
from bert_tf.tokenization.wordpiece import FullTokenizer, batches, utf8

CONTINUES_WORD = 1 << 30  # set in a token that continues the word before it; ids are below 2^24
ID_BITS = CONTINUES_WORD - 1


def iter_marked_batches(
    tokenizer: FullTokenizer, texts: Iterable[str]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What `FullTokenizer.iter_batches` gives, with CONTINUES_WORD set in the ids."""
    for batch in batches(map(utf8, texts)):
        ids, starts, _ = tokenizer.tokenize_with_offsets(batch)
        ends = ids.row_splits.numpy()[1:]
        continues = continue_words(
            [text.decode() for text in batch],
            starts.values.numpy(),
            ends,
            do_lower_case=tokenizer.do_lower_case,
        )
        values = ids.values.numpy()
        if tokenizer.never_split:
            kept = np.isin(values, [tokenizer.vocab[piece] for piece in tokenizer.never_split])
            continues[1:] &= ~kept[:-1]
            continues &= ~kept
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
    points = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")
    separators = np.concatenate([[0], np.cumsum(_separates(do_lower_case)[points])])
    lengths = np.fromiter(map(len, texts), np.int64)
    num_pieces = np.diff(ends, prepend=0)
    place = starts + np.repeat(np.cumsum(lengths) - lengths, num_pieces)  # in all texts
    continues = np.zeros(len(place), bool)
    # From the first character of a token to that of the next, both included, nothing separates.
    continues[1:] = separators[place[:-1]] == separators[place[1:] + 1]
    continues[(ends - num_pieces)[num_pieces > 0]] = False  # the first of each text
    return continues


@functools.cache
def _separates(do_lower_case: bool) -> np.ndarray:
    """Whether a code point is white space or a punctuation mark: bool [code points]."""
    table = load_unicode_table(do_lower_case=do_lower_case)
    flags = table.flags[table.rows[table.pages].ravel()]
    is_word = (flags & BREAK_BEFORE != 0) & (flags & BREAK_AFTER != 0)
    return (flags & BREAK_BEFORE != 0) & ~(is_word & is_ideograph(np.arange(len(flags))))
