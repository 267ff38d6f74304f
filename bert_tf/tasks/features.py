"""Examples -> features -> records, the inputs of the model (original: `convert_single_example`).

    text          [CLS] a [SEP]
    pair          [CLS] a [SEP] b [SEP]         segments 0 0 0 1 1
    four endings  four such pairs, one after the other in the record
    long text     [CLS] a part of it [SEP], several times, with a doc_stride
    words         [CLS] pieces of the words [SEP]; the first piece of a word carries its label
    in a document [CLS] words before, the words, words after [SEP]; only the words have labels

S positions of a sequence, C sequences of an example (1 but for multiple choice), L labels.
"""

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data.records import Feature, Record, input_features
from bert_tf.errors import InputError
from bert_tf.heads import Labels, head_named
from bert_tf.heads.labels import IGNORED
from bert_tf.tasks.examples import AnyExample, WordsExample
from bert_tf.tokenization.wordpiece import LEAST_LENGTH, FullTokenizer, Packer


@dataclasses.dataclass(frozen=True, slots=True)
class Features:
    """One row of a record file.

    Attributes:
      guid: of the example; the windows of a long text or sentence share it.
      input_ids: C lists of at most S ids.
      segment_ids: of the same lengths.
      label_ids: as `Labels.ids` gives them; of token_labels one for each position, IGNORED where
        no word begins. The words of a sentence without labels have label id 0, so that
        label_ids != IGNORED always says where a word is scored.
      is_per_token: whether label_ids are of token_labels.
      is_cut: whether the example had more than S tokens, and lost some; of several windows the
        first says it.
    """

    guid: str
    input_ids: tuple[list[int], ...]
    segment_ids: tuple[list[int], ...]
    label_ids: list[int] | list[float]
    is_per_token: bool = False
    is_cut: bool = False

    def values(self, max_seq_length: int) -> dict[str, list]:
        """The values for `Record.serialize`: C sequences one after the other, each padded to S."""

        def padded(sequences: Iterable[list[int]]) -> list[int]:
            return [n for ids in sequences for n in ids + [0] * (max_seq_length - len(ids))]

        labels = self.label_ids
        if self.is_per_token:
            labels = labels + [IGNORED] * (max_seq_length - len(labels))
        return {
            "input_ids": padded(self.input_ids),
            "input_mask": padded([1] * len(ids) for ids in self.input_ids),
            "segment_ids": padded(self.segment_ids),
            "label_ids": labels,
            "is_real_example": [1],
        }


def classifier_record(
    *,
    max_seq_length: int,
    head: str = "classification",
    num_labels: int = 2,
    num_choices: int = 1,
    **model_sizes: int,
) -> Record:
    """The record of a task (original: `file_based_convert_examples_to_features`).

    Features: input_ids, input_mask, segment_ids int64 [C * S]; label_ids int64 [1], of regression
    float32 [1], of multi_label int64 [L] zeros and ones, of token_labels int64 [S];
    is_real_example int64 [1]. `model_sizes`: as for `input_features`.
    """
    inputs = input_features(max_seq_length, sequences=num_choices, **model_sizes)
    labels = head_named(head).label_features(max_seq_length, num_labels, num_choices)
    return Record("task", (*inputs, *labels, Feature("is_real_example", tf.int64, 1, most=1)))


def make_features(
    examples: Sequence[AnyExample],
    labels: Labels,
    tokenizer: FullTokenizer,
    *,
    max_seq_length: int,
    doc_stride: int = 0,
    document_context: bool = False,
) -> Iterator[Features]:
    """The features of examples, in their order, while they are tokenized.

    Args:
      examples: all of one kind.
      labels: with their names.
      tokenizer: with [CLS] and [SEP] in its vocabulary.
      max_seq_length: S.
      doc_stride: of texts too long for S, tokens from the start of a window to the start of the
        next; 0: they are cut, as in the original.
      document_context: whether sentences in words stand among the other words of their document.

    Yields:
      One for each example; for a long sentence in words, and with doc_stride for a long text, one
      for each of its windows.

    Raises:
      InputError: S is too short, or the vocabulary lacks [CLS] or [SEP].
    """
    tokenizer.require_special_tokens("[CLS]", "[SEP]")
    if max_seq_length < LEAST_LENGTH:
        received = f"--max_seq_length={max_seq_length}"
        raise InputError(received, f"{LEAST_LENGTH} or more", "use a greater one")
    shared = (examples, labels, tokenizer, max_seq_length)
    are_words = examples and isinstance(examples[0], WordsExample)
    yield from _words(*shared, document_context) if are_words else _texts(*shared, doc_stride)


def _texts(
    examples: Sequence, labels: Labels, tokenizer: FullTokenizer, length: int, doc_stride: int
) -> Iterator[Features]:
    packer = Packer(tokenizer, length)
    all_pairs = (pair for example in examples for pair in example.pairs)
    ids = tokenizer.iter_ids(text for pair in all_pairs for text in pair if text)
    for example in examples:
        pairs = [[next(ids) if text else [] for text in pair] for pair in example.pairs]
        windows, is_cut = [pairs], False
        if doc_stride:
            windows, is_cut = text_windows(*pairs[0], length, doc_stride)
        label_ids = labels.ids(example.label)
        for window in windows:
            # [CLS] a [SEP] b [SEP] of each pair; b may be empty.
            packed = [packer.pack(*pair) for pair in window]
            input_ids, segment_ids, are_cut = zip(*packed, strict=True)
            is_cut = is_cut or any(are_cut)
            yield Features(example.guid, input_ids, segment_ids, label_ids, is_cut=is_cut)
            is_cut = False


def text_windows(
    a: list[int], b: list[int], max_seq_length: int, doc_stride: int
) -> tuple[list[list[tuple[list[int], list[int]]]], bool]:
    """The windows of a text or pair: all of it if it fits, else overlapping parts of the longer.

    The shorter text is in every window, whole or cut to half of the room. Every piece of the longer
    (of the second if equal) is in a window; parts are full but for the last one.

        a = 1 2 3 4 5, b = 8, S = 6, doc_stride 1:    [CLS] 1 2 [SEP] 8 [SEP]
                                                      [CLS] 2 3 [SEP] 8 [SEP]   ...   4 5

    Args:
      a, b: ids; b may be empty.
      max_seq_length: S.
      doc_stride: ids from the start of a part to the start of the next; at most a part's length.

    Returns:
      A list of one pair for each window, and whether the shorter text was cut.
    """
    room = max_seq_length - (3 if b else 2)
    if len(a) + len(b) <= room:
        return [[(a, b)]], False
    is_a = len(a) > len(b)
    longer, shorter = (a, b) if is_a else (b, a)
    kept = shorter[: room // 2]
    size = room - len(kept)
    stride = min(doc_stride, size)
    parts = [longer[at : at + size] for at in range(0, len(longer) - size + stride, stride)]
    return [[(part, kept) if is_a else (kept, part)] for part in parts], len(kept) < len(shorter)


def join_texts(guids: Sequence[str], values: np.ndarray) -> np.ndarray:
    """The mean over the windows of each text: [windows, ...] -> [N, ...], in order."""
    starts = first_windows(guids)
    counts = np.diff([*starts, len(guids)])
    sums = np.add.reduceat(np.asarray(values), starts, axis=0)
    return sums / counts.astype(sums.dtype).reshape([-1] + [1] * (sums.ndim - 1))


def first_windows(guids: Sequence[str]) -> list[int]:
    """The number of each text's first window."""
    return [at for at, guid in enumerate(guids) if at == 0 or guid != guids[at - 1]]


# ------------------------------------------------------------------------------ words


def _words(
    examples: Sequence, labels: Labels, tokenizer: FullTokenizer, length: int, in_document: bool
) -> Iterator[Features]:
    unknown = tokenizer.vocab["[UNK]"]
    packer = Packer(tokenizer)
    room = length - 2
    ids = tokenizer.iter_ids(word for sentence in examples for word in sentence.words)
    key = operator.attrgetter("document" if in_document else "guid")
    for document in (list(members) for _, members in itertools.groupby(examples, key)):
        words = [word for sentence in document for word in sentence.words]
        # A word of dropped characters has no piece, but is scored like any other.
        pieces = [(next(ids) or [unknown])[:room] for _ in words]
        sizes, start = [*map(len, pieces)], 0
        for sentence in document:
            stop, label = start + len(sentence.words), sentence.label
            of_words = [0] * (stop - start) if label is None else labels.ids(label)
            for window in sentence_windows(sizes, start, stop, room=room):
                of_window: list[int] = []
                label_ids = [IGNORED]
                for word in range(window.start, window.stop):
                    is_scored = window.first <= word < window.last
                    label_ids.append(of_words[word - start] if is_scored else IGNORED)
                    label_ids += [IGNORED] * (len(pieces[word]) - 1)
                    of_window += pieces[word]
                label_ids.append(IGNORED)
                input_ids, segment_ids = packer.join(of_window, [])
                sequence = (input_ids,), (segment_ids,), label_ids
                yield Features(sentence.guid, *sequence, is_per_token=True)
            start = stop


class WordWindow(NamedTuple):
    """Words start .. stop-1 of a document, of which first .. last-1 are scored here."""

    start: int
    stop: int
    first: int
    last: int


def sentence_windows(sizes: Sequence[int], first: int, last: int, *, room: int) -> list[WordWindow]:
    """Windows over words `first` to `last` - 1 of a document, with the words around them.

    A sentence that fits has one window, filled with as many whole words as it holds, half of the
    spare room before the sentence and half after; what one side leaves, the other one takes. A
    longer sentence has the windows of `word_windows`, without the others' words.

    Args:
      sizes: pieces of each word of the document, from 1 to `room`.
      first, last: of the sentence.
      room: pieces that a window holds.
    """
    spare = room - sum(sizes[first:last])
    if spare <= 0:
        within = word_windows(sizes[first:last], room=room)
        return [WordWindow(*(word + first for word in window)) for window in within]
    left, right = sizes[max(0, first - spare) : first][::-1], sizes[last : last + spare]
    _, used = _words_that_fit(left, spare // 2)
    after, used = _words_that_fit(right, spare - used)
    before, _ = _words_that_fit(left, spare - used)
    return [WordWindow(first - before, last + after, first, last)]


def _words_that_fit(sizes: Sequence[int], room: int) -> tuple[int, int]:
    """How many words from the first one on fit into so many pieces, and their pieces."""
    before = list(itertools.accumulate(sizes, initial=0))
    count = _stop(before, 0, room)
    return count, before[count]


def word_windows(sizes: Sequence[int], *, room: int) -> list[WordWindow]:
    """Windows over the words of a sentence, in each as many whole words as it holds.

    A sentence that fits is one window. Of a longer one, each window begins half a window after the
    one before it, and a word is scored where it has more context on its scarcer side, in the
    earlier window if that is equal. So every word is scored once:

        words     0 1 2 3 4 5 6 7 8
        window 1  0 1 2 3 4 .            scored: 0 to 4; word 5 has more context in window 2
        window 2        . . 5 6 7 8      scored: 5 to 8

    Args:
      sizes: pieces of each word, from 1 to `room`.
      room: pieces that a window holds.
    """
    before = list(itertools.accumulate(sizes, initial=0))  # pieces before each word
    spans = [(0, _stop(before, 0, room))]
    while spans[-1][1] < len(sizes):
        start, stop = spans[-1]
        # Half a window on, or later if the next word needs the room.
        least = max(before[start] + room / 2, before[stop + 1] - room)
        start = min(int(np.searchsorted(before, least)), stop)
        spans.append((start, _stop(before, start, room)))
    borders = [0]
    for (_, stop), (start, _) in itertools.pairwise(spans):
        # Pieces left of the word in the later window, against those right of it in the earlier.
        is_later = [
            before[w] - before[start] > before[stop] - before[w + 1] for w in range(start, stop)
        ]
        borders.append(start + is_later.index(True) if any(is_later) else stop)
    scored = itertools.pairwise([*borders, len(sizes)])
    windows = [WordWindow(*span, *words) for span, words in zip(spans, scored, strict=True)]
    return [window for window in windows if window.first < window.last]


def _stop(before: Sequence[int], start: int, room: int) -> int:
    """Where a window ends that begins at a word."""
    return int(np.searchsorted(before, before[start] + room, side="right")) - 1


def join_words(
    guids: Sequence[str], label_ids: Sequence[np.ndarray], values: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """A model's values for windows -> those for the words of each sentence.

    Args:
      guids: of the windows, in their order.
      label_ids: for each window [S], as in its record, with or without the padding.
      values: for each window [S, ...].

    Returns:
      For each sentence [W, ...], of the positions that are scored.
    """
    sentences: dict[str, list[np.ndarray]] = {}
    for guid, ids, value in zip(guids, label_ids, values, strict=True):
        scored = np.flatnonzero(np.asarray(ids) != IGNORED)
        sentences.setdefault(guid, []).append(np.asarray(value)[scored])
    return [np.concatenate(parts) for parts in sentences.values()]
