"""Examples -> features -> records, the inputs of the model (original: `convert_single_example`).

    text          [CLS] a [SEP]
    pair          [CLS] a [SEP] b [SEP]         segments 0 0 0 1 1
    four endings  four such pairs, one after the other in the record
    long text     with a doc_stride, several windows: [CLS] a part of it [SEP]
    words         [CLS] pieces of the words [SEP]; the first piece of a word carries its label
    in a document [CLS] words before, the words, words after [SEP]; only the words have labels

S positions of a sequence, C sequences of an example (1 except for multiple choice), L labels,
W words of a sentence.
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
    """The features of a record.

    Attributes:
      guid: the id of the example; the windows of a long text or sentence share it.
      input_ids: C lists of at most S ids.
      segment_ids: the segment of each id.
      label_ids: as `Labels.ids` returns them; of token_labels one for each position, IGNORED where
        no word begins. The words of a sentence without labels have label id 0, so that a word is
        scored wherever label_ids != IGNORED.
      is_per_token: whether label_ids are of token_labels.
      is_cut: whether the example had more than S tokens and lost some; set in the first of several
        windows only.
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
            values: list[int] = []
            for sequence in sequences:
                values += sequence
                values += [0] * (max_seq_length - len(sequence))
            return values

        label_ids = self.label_ids
        if self.is_per_token:
            label_ids = label_ids + [IGNORED] * (max_seq_length - len(label_ids))
        return {
            "input_ids": padded(self.input_ids),
            "input_mask": padded([1] * len(ids) for ids in self.input_ids),
            "segment_ids": padded(self.segment_ids),
            "label_ids": label_ids,
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
    """Tokenizes examples and yields their features, in order.

    Args:
      examples: all of one kind.
      labels: with their names.
      tokenizer: with [CLS] and [SEP] in its vocabulary.
      max_seq_length: S.
      doc_stride: the stride of texts too long for S, tokens from the start of a window to the start
        of the next; 0: such texts are cut, as in the original.
      document_context: whether sentences in words get the words around them in their document.

    Yields:
      The features of each example; of each window of a long sentence in words, and with doc_stride
      of each window of a long text.

    Raises:
      InputError: S is too short, or the vocabulary lacks [CLS] or [SEP].
    """
    tokenizer.require_special_tokens("[CLS]", "[SEP]")
    if max_seq_length < LEAST_LENGTH:
        received = f"--max_seq_length={max_seq_length}"
        raise InputError(received, f"{LEAST_LENGTH} or more", "use a greater one")
    if examples and isinstance(examples[0], WordsExample):
        yield from _of_words(examples, labels, tokenizer, max_seq_length, document_context)
    else:
        yield from _of_texts(examples, labels, tokenizer, max_seq_length, doc_stride)


def _of_texts(
    examples: Sequence, labels: Labels, tokenizer: FullTokenizer, length: int, doc_stride: int
) -> Iterator[Features]:
    """The features of texts, pairs or choices."""
    packer = Packer(tokenizer, length)
    texts = (text for example in examples for pair in example.pairs for text in pair if text)
    ids_of_texts = tokenizer.iter_ids(texts)
    for example in examples:
        pairs = []
        for a, b in example.pairs:
            ids_a = next(ids_of_texts) if a else []
            ids_b = next(ids_of_texts) if b else []
            pairs.append((ids_a, ids_b))
        windows = [pairs]
        is_cut = False
        if doc_stride:
            windows, is_cut = text_windows(*pairs[0], length, doc_stride)
        label_ids = labels.ids(example.label)
        for window in windows:
            # [CLS] a [SEP] b [SEP] of each pair; b may be empty.
            packed = [packer.pack(a, b) for a, b in window]
            input_ids, segment_ids, are_cut = zip(*packed, strict=True)
            is_cut = is_cut or any(are_cut)
            yield Features(example.guid, input_ids, segment_ids, label_ids, is_cut=is_cut)
            is_cut = False


def text_windows(
    a: list[int], b: list[int], max_seq_length: int, doc_stride: int
) -> tuple[list[list[tuple[list[int], list[int]]]], bool]:
    """The windows of a text or pair: all of it if it fits, else overlapping parts of the longer.

    The shorter text is in every window, whole or cut to half of the room. Every piece of the longer
    text is in a window; all parts but the last are full. Of equally long texts the second counts as
    the longer.

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
    shortened = shorter[: room // 2]
    size = room - len(shortened)
    stride = min(doc_stride, size)
    windows = []
    for start in range(0, len(longer) - size + stride, stride):
        part = longer[start : start + size]
        windows.append([(part, shortened) if is_a else (shortened, part)])
    return windows, len(shortened) < len(shorter)


def join_texts(guids: Sequence[str], values: np.ndarray) -> np.ndarray:
    """The mean over the windows of each text: [windows, ...] -> [N, ...], in order."""
    starts = first_windows(guids)
    counts = np.diff([*starts, len(guids)])
    sums = np.add.reduceat(np.asarray(values), starts, axis=0)
    counts = counts.astype(sums.dtype).reshape([-1] + [1] * (sums.ndim - 1))  # [N, 1, ...]
    return sums / counts


def first_windows(guids: Sequence[str]) -> list[int]:
    """The number of each text's first window; its windows are consecutive and share the guid."""
    starts = []
    previous = None
    for number, guid in enumerate(guids):
        if guid != previous:
            starts.append(number)
        previous = guid
    return starts


# ------------------------------------------------------------------------------ words


def _of_words(
    examples: Sequence, labels: Labels, tokenizer: FullTokenizer, length: int, in_document: bool
) -> Iterator[Features]:
    """The features of sentences in words; alone, or with the words around them."""
    unknown = tokenizer.vocab["[UNK]"]
    packer = Packer(tokenizer)
    room = length - 2
    ids_of_words = tokenizer.iter_ids(word for sentence in examples for word in sentence.words)
    key = operator.attrgetter("document" if in_document else "guid")
    for _, members in itertools.groupby(examples, key):
        document = list(members)  # a sentence alone, unless `in_document`
        num_words = sum(len(sentence.words) for sentence in document)
        # A word of dropped characters has no piece, but is scored like any other.
        pieces = [(next(ids_of_words) or [unknown])[:room] for _ in range(num_words)]
        sizes = [len(pieces_of_word) for pieces_of_word in pieces]
        start = 0  # the sentence's first word in the document
        for sentence in document:
            stop = start + len(sentence.words)
            if sentence.label is None:
                ids_of_labels = [0] * len(sentence.words)
            else:
                ids_of_labels = labels.ids(sentence.label)
            for window in sentence_windows(sizes, start, stop, room=room):
                ids, label_ids = _window_ids(window, pieces, ids_of_labels, start)
                input_ids, segment_ids = packer.join(ids, [])
                yield Features(
                    sentence.guid, (input_ids,), (segment_ids,), label_ids, is_per_token=True
                )
            start = stop


def _window_ids(
    window: "WordWindow", pieces: Sequence[list[int]], ids_of_labels: Sequence[int], start: int
) -> tuple[list[int], list[int]]:
    """The pieces of a window without [CLS] and [SEP], and the label ids with them.

    Args:
      window: the words.
      pieces: the word pieces of each word of the document.
      ids_of_labels: the label ids of each word of the sentence.
      start: the sentence's first word in the document.
    """
    ids: list[int] = []
    label_ids = [IGNORED]  # of [CLS]
    for word in range(window.start, window.stop):
        is_scored = window.first <= word < window.last
        label_ids.append(ids_of_labels[word - start] if is_scored else IGNORED)
        label_ids += [IGNORED] * (len(pieces[word]) - 1)
        ids += pieces[word]
    label_ids.append(IGNORED)  # of [SEP]
    return ids, label_ids


class WordWindow(NamedTuple):
    """Words start .. stop-1 of a document, of which first .. last-1 are scored here."""

    start: int
    stop: int
    first: int
    last: int


def sentence_windows(sizes: Sequence[int], first: int, last: int, *, room: int) -> list[WordWindow]:
    """Windows over words `first` to `last` - 1 of a document, with the words around them.

    A sentence that fits has one window, filled with whole words around it: half of the spare room
    is for words before the sentence, half for words after; what one side leaves, the other takes. A
    longer sentence has the windows of `word_windows`, without words around it.

    Args:
      sizes: pieces of each word of the document, from 1 to `room`.
      first, last: the words of the sentence are `first` to `last` - 1.
      room: pieces that a window holds.
    """
    spare = room - sum(sizes[first:last])
    if spare <= 0:
        windows = []
        for window in word_windows(sizes[first:last], room=room):
            in_document = [word + first for word in window]
            windows.append(WordWindow(*in_document))
        return windows
    sizes_before = sizes[max(0, first - spare) : first][::-1]  # from the sentence outwards
    sizes_after = sizes[last : last + spare]
    _, pieces_before = _words_that_fit(sizes_before, spare // 2)
    words_after, pieces_after = _words_that_fit(sizes_after, spare - pieces_before)
    words_before, _ = _words_that_fit(sizes_before, spare - pieces_after)
    return [WordWindow(first - words_before, last + words_after, first, last)]


def _words_that_fit(sizes: Sequence[int], room: int) -> tuple[int, int]:
    """How many of the first words fit into `room` pieces together, and their number of pieces."""
    before = list(itertools.accumulate(sizes, initial=0))
    count = _stop(before, 0, room)
    return count, before[count]


def word_windows(sizes: Sequence[int], *, room: int) -> list[WordWindow]:
    """Windows over the words of a sentence, each with as many whole words as it holds.

    A sentence that fits is one window. In a longer one, each window begins half a window after the
    one before it. A word in two windows is scored in the one where its shorter side of context is
    longer, or in the earlier one if they are equal. So every word is scored once:

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
        # Half a window further, or more if the next word needs the room.
        least = max(before[start] + room / 2, before[stop + 1] - room)
        start = min(int(np.searchsorted(before, least)), stop)
        spans.append((start, _stop(before, start, room)))
    borders = [0]  # the first word that each window scores
    for (_, stop), (start, _) in itertools.pairwise(spans):  # of an earlier and a later window
        border = start
        while border < stop:
            context_in_later = before[border] - before[start]  # pieces left of the word
            context_in_earlier = before[stop] - before[border + 1]  # pieces right of the word
            if context_in_later > context_in_earlier:
                break
            border += 1
        borders.append(border)
    borders.append(len(sizes))
    windows = []
    for (start, stop), (first, last) in zip(spans, itertools.pairwise(borders), strict=True):
        if first < last:
            windows.append(WordWindow(start, stop, first, last))
    return windows


def _stop(before: Sequence[int], start: int, room: int) -> int:
    """Where a window ends that begins at the word `start`; `before` counts pieces before words."""
    return int(np.searchsorted(before, before[start] + room, side="right")) - 1


def join_words(
    guids: Sequence[str], label_ids: Sequence[np.ndarray], values: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """A model's values for the words of each sentence, from those for windows.

    Args:
      guids: the ids of the windows, in order.
      label_ids: the label ids of each window [S], as in its record, with or without the padding.
      values: for each window [S, ...].

    Returns:
      For each sentence [W, ...]: the values at the first piece of each word.
    """
    sentences: dict[str, list[np.ndarray]] = {}
    for guid, ids, value in zip(guids, label_ids, values, strict=True):
        scored = np.flatnonzero(np.asarray(ids) != IGNORED)
        sentences.setdefault(guid, []).append(np.asarray(value)[scored])
    return [np.concatenate(parts) for parts in sentences.values()]
