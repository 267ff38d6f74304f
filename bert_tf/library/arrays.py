"""The arguments of a `TextModel`'s `fit` -> arrays: texts, datasets of texts, words, questions.

Dimensions: B rows, S word pieces of the longest, W words of the longest.
"""

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.data.grouping import LENGTHS
from bert_tf.errors import InputError
from bert_tf.library.arguments import FitArrays, items_of
from bert_tf.squad.data import article_of_row, parse_squad, training_examples
from bert_tf.squad.windows import WindowSizes, record_values, training_windows
from bert_tf.tokenization.layer import Tokenizer
from bert_tf.tokenization.texts import as_columns, shown
from bert_tf.tokenization.wordpiece import FullTokenizer, Packer, padded, told_cut

# ---------------------------------------------------------------------------- texts


def ids_of_texts(tokenizer: FullTokenizer, x: Any) -> dict[str, np.ndarray]:
    """Ids of texts, of pairs, or of a tuple of two columns: int32 [B, S] by the inputs' names.

    Logs how many texts were cut.

    Raises:
      InputError: there are no texts, or an item is not a text.
    """
    firsts, seconds = _columns(x)
    if not firsts:
        raise InputError("no texts", "one or more", "give texts")
    rows, num_cut = tokenizer.rows(firsts, seconds)
    if num_cut and tokenizer.longest:
        logging.warning("%s", told_cut(num_cut, len(rows), tokenizer.longest))
    return padded(rows)


def _columns(x: Any) -> tuple[list[Any], list[Any] | None]:
    """The first texts, and the second ones or None."""
    is_two_columns = isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], str | bytes)
    if is_two_columns:
        first, second = x
        return as_columns(first, second)
    return as_columns(x)


def dataset_of_ids(
    dataset: tf.data.Dataset, tokenizer: FullTokenizer | None, labels: Sequence[str] | None
) -> tf.data.Dataset:
    """A dataset of x, (x, y) or (x, y, sample_weight) with ids and numbers in place of texts.

    Raises:
      InputError: its texts are not in batches, there is no tokenizer, or labels have no names.
    """
    spec = dataset.element_spec
    parts = spec if isinstance(spec, tuple) else (spec,)
    has_texts = any(map(_is_text, tf.nest.flatten(parts[0])))
    has_names = len(parts) > 1 and any(map(_is_text, tf.nest.flatten(parts[1])))
    if not has_texts and not has_names:
        return dataset
    text_specs = filter(_is_text, tf.nest.flatten(parts[:2]))
    if any(text_spec.shape.rank == 0 for text_spec in text_specs):
        remedy = "call dataset.batch(32) first"
        raise InputError("a dataset of single texts", "one of batches", remedy)
    if has_names and not labels:
        raise InputError("names of labels", "numbers of the logits", "use bert_tf.classifier")
    read = _reader(tokenizer, parts[0]) if has_texts else None

    def with_ids(*element: Any) -> Any:
        x = read(element[0]) if read else element[0]
        if not isinstance(spec, tuple):
            return x
        if not has_names:
            return x, *element[1:]
        return x, _numbers(element[1], labels or ()), *element[2:]

    return dataset.map(with_ids, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _is_text(spec: Any) -> bool:
    return getattr(spec, "dtype", None) == tf.string


def _reader(tokenizer: FullTokenizer | None, spec: Any) -> Callable[[Any], dict[str, tf.Tensor]]:
    """A function from texts [B], or a tuple of two, to ids padded to one of `LENGTHS`."""
    columns = spec if isinstance(spec, tuple) else (spec,)
    are_texts = all(_is_text(column) and column.shape.rank == 1 for column in columns)
    if len(columns) > 2 or not are_texts:
        received = f"a dataset of {shown(spec)}"
        remedy = "map it to these, or to ids by bert_tf.layers.Tokenizer"
        raise InputError(received, "texts [B], or a tuple of two columns of them", remedy)
    if tokenizer is None:
        remedy = "set model.tokenizer, or give ids"
        raise InputError("texts for a model without a tokenizer", "ids", remedy)
    layer = Tokenizer(tokenizer)
    lengths = [*(length for length in LENGTHS if length < layer.max_length), layer.max_length]

    def read(texts: Any) -> dict[str, tf.Tensor]:
        features = layer(*texts) if isinstance(texts, tuple) else layer(texts)
        longest = tf.shape(features["input_ids"])[1]
        length = tf.reduce_min(tf.boolean_mask(lengths, tf.constant(lengths) >= longest))
        padding = [[0, 0], [0, length - longest]]
        return {name: tf.pad(ids, padding) for name, ids in features.items()}

    return read


def _numbers(names: tf.Tensor, labels: Sequence[str]) -> tf.Tensor:
    """The places of names of labels, int64 of the same shape; an unknown name is an error."""
    matches = names[..., tf.newaxis] == tf.constant(list(labels))
    is_known = tf.reduce_any(matches, axis=-1)
    message = f"labels of the dataset that are none of {', '.join(labels)}:"
    unknown = tf.boolean_mask(names, ~is_known)
    check = tf.debugging.Assert(tf.reduce_all(is_known), [message, unknown])
    with tf.control_dependencies([check]):
        return tf.argmax(matches, axis=-1)


def checked(dataset: tf.data.Dataset, num_labels: int) -> tf.data.Dataset:
    """A dataset of (x, y, ...) that fails where y, int of any shape, is not the place of a label.

    Without the check the loss would be NaN on some devices, and an error on others.
    """

    def check(x: Any, y: tf.Tensor, *weights: Any) -> Any:
        are_places = tf.reduce_all((y >= 0) & (y < num_labels))
        message = f"labels of the dataset that are not 0 to {num_labels - 1}:"
        with tf.control_dependencies([tf.debugging.Assert(are_places, [message, y])]):
            return x, tf.identity(y), *weights

    return dataset.map(check, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def weighted(dataset: tf.data.Dataset, class_weights: np.ndarray) -> tf.data.Dataset:
    """A dataset of (x, y, weights): the weights of y's classes [C] times the dataset's own.

    Raises:
      InputError: the dataset has no labels, or they are not whole numbers.
    """
    spec = dataset.element_spec
    y_spec = spec[1] if isinstance(spec, tuple) and len(spec) > 1 else None
    if not isinstance(y_spec, tf.TensorSpec) or not y_spec.dtype.is_integer:
        received = f"class_weight for a dataset with labels of {shown(y_spec)}"
        raise InputError(received, "one of (texts, labels)", "leave class_weight out")
    table = tf.constant(class_weights, tf.float32)  # [C]

    def with_weights(x: Any, y: tf.Tensor, sample_weight: Any = 1.0) -> Any:
        weights = tf.gather(table, y)
        sample_weight = tf.cast(sample_weight, tf.float32)
        if sample_weight.shape.rank == 1 and weights.shape.rank == 2:  # of rows
            sample_weight = sample_weight[:, tf.newaxis]
        if sample_weight.shape.rank and sample_weight.shape.rank != weights.shape.rank:
            received = f"weights of shape {sample_weight.shape} for labels of {weights.shape}"
            raise InputError(received, "one for each label", "correct the dataset")
        return x, y, weights * sample_weight

    return dataset.map(with_weights, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


# ---------------------------------------------------------------------------- words


def of_words(
    tokenizer: FullTokenizer,
    number_of: Callable[[Any], int],
    x: Any,
    y: Any,
    sample_weight: Any,
) -> FitArrays:
    """Lists of words as ids [B, S] and word_positions [B, W]; tags and weights, [B, W] each.

    Args:
      tokenizer: the model's tokenizer.
      number_of: the number of a tag by name or number.
      x: lists of words.
      y: a list of tags for each; or None: then weights are returned as they are.
      sample_weight: None, one for each sentence, or a list of one for each word of each.

    Raises:
      InputError: as `WordModel.read`.
    """
    sentences: list[Any] = []
    for row, sentence in enumerate(items_of(x) or ()):
        sentences.append(_words(row, sentence))
    if not any(sentences):
        received = f"{shown(x)}, of type {type(x).__name__}, as sentences"
        raise InputError(received, "lists of words, one or more", "give a list for each sentence")
    inputs, is_word = _inputs_of_words(tokenizer, sentences)
    if y is None:
        return inputs, None, sample_weight
    tags = items_of(y)
    if tags is None or len(tags) != len(sentences):
        received = f"{len(sentences)} sentences and {shown(y)} as tags"
        if tags is not None:
            received = f"{len(sentences)} sentences and {len(tags)} lists of tags"
        raise InputError(received, "a list of tags for each sentence", "correct one of them")
    numbers = np.zeros(is_word.shape, np.int32)
    for row, (words, tags_of_row) in enumerate(zip(sentences, tags, strict=True)):
        numbers[row, : len(words)] = _numbers_of_tags(number_of, tags_of_row, row, words)
    return inputs, numbers, _weights_of_words(sample_weight, is_word, sentences)


def _numbers_of_tags(
    number_of: Callable[[Any], int], tags: Any, row: int, words: Sequence[str | bytes]
) -> list[int]:
    """The numbers of a sentence's tags.

    Raises:
      InputError: they are not a list of one for each word, or a tag is unknown.
    """
    received = f"the tags {shown(tags)} of sentence {row}, {shown(words)}"
    names = None if isinstance(tags, str | bytes) else items_of(tags)
    if names is None or len(names) != len(words):
        raise InputError(received, "one for each word", "correct the tags")
    try:
        return [number_of(name) for name in names]
    except InputError as error:
        raise InputError(received, f"for each word {error.expected}", error.remedy) from None


def _words(row: int, sentence: Any) -> list[str | bytes]:
    """The words of a sentence; raises `InputError` if it is not a list of words."""
    words = None if isinstance(sentence, str | bytes) else items_of(sentence)
    if words is None or not all(isinstance(word, str | bytes) for word in words):
        received = f"{shown(sentence)} as sentence {row}, counted from 0"
        raise InputError(received, "a list of words", "split it into words: text.split()")
    return words


def _inputs_of_words(
    tokenizer: FullTokenizer, sentences: Sequence[list[str]]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The inputs of a model, and 1 for each word, 0 for padding: float32 [B, W]."""
    ids = tokenizer.iter_ids(itertools.chain.from_iterable(sentences))
    unknown = tokenizer.vocab["[UNK]"]
    packer = Packer(tokenizer)
    longest = tokenizer.longest
    rows = []
    shape = len(sentences), max(map(len, sentences), default=0)
    is_word = np.zeros(shape, np.float32)
    positions = np.zeros(shape, np.int32)
    for row, words in enumerate(sentences):
        pieces = [next(ids) or [unknown] for _ in words]  # of each word
        flat, segments = packer.join([*itertools.chain.from_iterable(pieces)], [])
        if longest and len(flat) > longest:
            received = f"sentence {row}, counted from 0, of {len(flat)} word pieces"
            remedy = "split it; bert-tf classify cuts long ones into windows"
            raise InputError(received, f"{longest} or fewer", remedy)
        rows.append((flat, segments))
        is_word[row, : len(words)] = 1
        positions[row, : len(words)] = np.cumsum([1, *map(len, pieces)])[:-1]
    return padded(rows) | {"word_positions": positions}, is_word


def _weights_of_words(
    sample_weight: Any, is_word: np.ndarray, sentences: Sequence[Any]
) -> np.ndarray:
    """The weights of words, 0 for padding: float32 [B, W]."""
    if sample_weight is None:
        return is_word
    rows = [*sample_weight]
    if len(rows) != len(sentences):
        received = f"{len(sentences)} sentences and {len(rows)} weights"
        raise InputError(received, "one for each sentence", "correct sample_weight")
    weights = np.zeros_like(is_word)
    for row, (words, weight) in enumerate(zip(sentences, rows, strict=True)):
        with contextlib.suppress(TypeError, ValueError):
            of_row = np.asarray(weight, np.float32)
            if of_row.ndim == 0:
                weights[row, : len(words)] = of_row
                continue
            if len(of_row) >= len(words):  # an array has weights of padding, too
                weights[row, : len(words)] = of_row[: len(words)]
                continue
        received = f"{shown(weight)} as weights of sentence {row}, of {len(words)} words"
        raise InputError(received, "a number, or one for each word", "correct sample_weight")
    return weights


# ---------------------------------------------------------------------------- questions


def of_questions(
    tokenizer: FullTokenizer, sizes: Mapping[str, int], x: Any, y: Any, sample_weight: Any
) -> FitArrays:
    """Windows of (questions, contexts) [B, S], and where their answers begin and end [B].

    Raises:
      InputError: as `QuestionModel.read`.
    """
    questions, contexts = _columns(x)
    if contexts is None:
        received = f"{shown(questions)} without contexts"
        raise InputError(received, "(questions, contexts)", "give a tuple of both columns")
    if y is None or sample_weight is not None:
        received = "questions without answers" if y is None else "questions with weights"
        remedy = "save the model and ask bert_tf.Predictor(path), which joins windows"
        raise InputError(received, "answers to train on", remedy)
    answers = items_of(y)
    if answers is None or not 0 < len(answers) == len(questions):
        received = f"{len(questions)} questions and {shown(y)} as answers"
        raise InputError(received, "a list with an answer for each", "correct one of them")
    articles = []
    rows = zip(questions, contexts, answers, strict=True)
    for row, (question, context, answer) in enumerate(rows):
        articles.append(_article(row, question, context, answer))
    file = parse_squad({"version": "2.0", "data": articles}, "what is given to fit")
    examples = training_examples(file, version_2_with_negative=True)
    window_sizes = WindowSizes(**sizes)
    windows = training_windows(examples, tokenizer, window_sizes)
    values = [record_values(window, window_sizes.max_seq_length) for window in windows]
    inputs = {}
    for name in ("input_ids", "input_mask", "segment_ids"):
        inputs[name] = np.array([row[name] for row in values], np.int32)
    starts = [row["start_positions"][0] for row in values]
    ends = [row["end_positions"][0] for row in values]
    positions = {
        "start_logits": np.array(starts, np.int32),
        "end_logits": np.array(ends, np.int32),
    }
    return inputs, positions, None


def _article(row: int, question: str | bytes, context: str | bytes, answer: Any) -> dict[str, Any]:
    """A question with its answer, as in SQuAD's files."""
    answer = answer or {"text": [], "answer_start": []}
    if not isinstance(answer, Mapping) or not answer.keys() >= {"text", "answer_start"}:
        raise _no_answer(row, answer, '{"text": ["1386"], "answer_start": [24]}')
    texts = np.atleast_1d(answer["text"])
    starts = np.atleast_1d(answer["answer_start"])
    if len(texts) != len(starts):
        raise _no_answer(row, answer, "an answer_start for each text")
    return article_of_row(
        {
            "id": f"{row}, counted from 0",
            "question": _as_str(question),
            "context": _as_str(context),
            "answers": {"text": texts, "answer_start": starts},
            "is_impossible": not len(texts),
        }
    )


def _no_answer(row: int, answer: Any, expected: str) -> InputError:
    """The error of an answer that is not as in SQuAD's files."""
    received = f"{shown(answer)} as answer {row}, counted from 0"
    return InputError(received, expected, "correct the answer")


def _as_str(text: str | bytes) -> str:
    return text.decode(errors="ignore") if isinstance(text, bytes) else text
