"""What `fit` of a `TextModel` is given -> arrays: texts, datasets of texts, words, questions.

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
from bert_tf.library.text_models import Arrays, column_of
from bert_tf.squad.data import article_of_row, parse_squad, training_examples
from bert_tf.squad.windows import WindowSizes, record_values, training_windows
from bert_tf.tokenization.layer import Tokenizer
from bert_tf.tokenization.texts import as_columns, shown
from bert_tf.tokenization.wordpiece import FullTokenizer, Packer, padded, told_cut

# ---------------------------------------------------------------------------- texts


def ids_of_texts(tokenizer: FullTokenizer, x: Any) -> dict[str, np.ndarray]:
    """Ids of texts, of pairs, or of a tuple of two columns: int32 [B, S] by the inputs' names.

    How many were cut is logged.

    Raises:
      InputError: there are no texts, or something is none.
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
    return as_columns(*x) if _is_two_columns(x) else as_columns(x)


def _is_two_columns(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], str | bytes)


def dataset_of_ids(
    dataset: tf.data.Dataset, tokenizer: FullTokenizer | None, labels: Sequence[str] | None
) -> tf.data.Dataset:
    """A dataset of x, (x, y) or (x, y, sample_weight) with ids and numbers in place of texts.

    Raises:
      InputError: its texts are not in batches, there is no tokenizer, or labels have no names.
    """
    spec = dataset.element_spec
    parts = spec if isinstance(spec, tuple) else (spec,)
    has_texts = any(_is_text(part) for part in tf.nest.flatten(parts[0]))
    has_names = len(parts) > 1 and any(_is_text(part) for part in tf.nest.flatten(parts[1]))
    if not has_texts and not has_names:
        return dataset
    if any(part.shape.rank == 0 for part in tf.nest.flatten(parts[:2]) if _is_text(part)):
        remedy = "call dataset.batch(32) first"
        raise InputError("a dataset of single texts", "one of batches", remedy)
    if has_names and not labels:
        raise InputError("names of labels", "numbers of the logits", "use bert_tf.classifier")
    read = _reader(tokenizer, parts[0]) if has_texts else None

    def with_ids(*element: Any) -> Any:
        x = read(element[0]) if read else element[0]
        y = tuple(_numbers(names, labels or ()) if has_names else names for names in element[1:2])
        whole = (x, *y, *element[2:])
        return whole if isinstance(spec, tuple) else x

    return dataset.map(with_ids, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _is_text(spec: Any) -> bool:
    return getattr(spec, "dtype", None) == tf.string


def _reader(tokenizer: FullTokenizer | None, spec: Any) -> Callable[[Any], dict[str, tf.Tensor]]:
    """From texts [B], or a tuple of two, to ids padded to one of `LENGTHS`."""
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

    def read(texts: Any) -> dict[str, tf.Tensor]:
        features = layer(*texts) if isinstance(texts, tuple) else layer(texts)
        longest = tf.shape(features["input_ids"])[1]
        lengths = tf.constant([*(n for n in LENGTHS if n < layer.max_length), layer.max_length])
        length = tf.reduce_min(tf.boolean_mask(lengths, lengths >= longest))
        return {
            name: tf.pad(ids, [[0, 0], [0, length - longest]]) for name, ids in features.items()
        }

    return read


def _numbers(names: tf.Tensor, labels: Sequence[str]) -> tf.Tensor:
    """The places of names of labels, int64 of the same shape; an unknown name is an error."""
    matches = names[..., tf.newaxis] == tf.constant(list(labels))
    is_known = tf.reduce_any(matches, axis=-1)
    message = f"labels of the dataset that are none of {', '.join(labels)}:"
    unknown = tf.boolean_mask(names, ~is_known)
    with tf.control_dependencies(
        [tf.debugging.Assert(tf.reduce_all(is_known), [message, unknown])]
    ):
        return tf.argmax(matches, axis=-1)


def checked(dataset: tf.data.Dataset, num_labels: int) -> tf.data.Dataset:
    """A dataset of (x, y, ...) whose y, int of any shape, are places of labels, or it fails.

    Otherwise the loss would be NaN on some devices, and an error on others.
    """

    def check(x: Any, y: tf.Tensor, *weights: Any) -> Any:
        are_places = tf.reduce_all((y >= 0) & (y < num_labels))
        message = f"labels of the dataset that are not 0 to {num_labels - 1}:"
        with tf.control_dependencies([tf.debugging.Assert(are_places, [message, y])]):
            return x, tf.identity(y), *weights

    return dataset.map(check, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def weighted(dataset: tf.data.Dataset, class_weights: np.ndarray) -> tf.data.Dataset:
    """A dataset of (x, y, weights), those of y's classes [C] times the dataset's own.

    Raises:
      InputError: it has no labels, or they are not whole numbers.
    """
    spec = dataset.element_spec
    y_spec = spec[1] if isinstance(spec, tuple) and len(spec) > 1 else None
    if not isinstance(y_spec, tf.TensorSpec) or not y_spec.dtype.is_integer:
        received = f"class_weight for a dataset with labels of {shown(y_spec)}"
        raise InputError(received, "one of (texts, labels)", "leave class_weight out")
    table = tf.constant(class_weights, tf.float32)  # [C]

    def with_weights(x: Any, y: tf.Tensor, given: Any = 1.0) -> Any:
        weights = tf.gather(table, y)
        given = tf.cast(given, tf.float32)
        if given.shape.rank == 1 and weights.shape.rank == 2:  # of rows
            given = given[:, tf.newaxis]
        if given.shape.rank and given.shape.rank != weights.shape.rank:
            received = f"weights of shape {given.shape} for labels of {weights.shape}"
            raise InputError(received, "one for each label", "correct the dataset")
        return x, y, weights * given

    return dataset.map(with_weights, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


# ---------------------------------------------------------------------------- words


def of_words(
    tokenizer: FullTokenizer,
    number_of: Callable[[Any], int],
    x: Any,
    y: Any,
    sample_weight: Any,
) -> Arrays:
    """Lists of words as ids [B, S] and word_positions [B, W]; tags and weights, [B, W] each.

    Args:
      tokenizer: of the model.
      number_of: the number of a tag by name or number.
      x: lists of words.
      y: a list of tags for each; or None, and then weights are given back as they are.
      sample_weight: None, one for each sentence, or a list of one for each word of each.

    Raises:
      InputError: as `WordModel.read`.
    """
    sentences: list[Any] = [_words(row, words) for row, words in enumerate(column_of(x) or ())]
    if not any(sentences):
        received = f"{shown(x)}, of type {type(x).__name__}, as sentences"
        raise InputError(received, "lists of words, one or more", "give a list for each sentence")
    inputs, is_word = _inputs_of_words(tokenizer, sentences)
    if y is None:
        return inputs, None, sample_weight
    tags = column_of(y)
    if tags is None or len(tags) != len(sentences):
        received = f"{len(sentences)} sentences and {shown(y)} as tags"
        if tags is not None:
            received = f"{len(sentences)} sentences and {len(tags)} lists of tags"
        raise InputError(received, "a list of tags for each sentence", "correct one of them")
    numbers = np.zeros(is_word.shape, np.int32)
    for row, (words, given) in enumerate(zip(sentences, tags, strict=True)):
        names = None if isinstance(given, str | bytes) else column_of(given)
        received = f"the tags {shown(given)} of sentence {row}, {shown(words)}"
        if names is None or len(names) != len(words):
            raise InputError(received, "one for each word", "correct the tags")
        try:
            numbers[row, : len(words)] = [number_of(name) for name in names]
        except InputError as error:
            raise InputError(received, f"for each word {error.expected}", error.remedy) from None
    return inputs, numbers, _weights_of_words(sample_weight, is_word, sentences)


def _words(row: int, sentence: Any) -> list[str | bytes]:
    words = None if isinstance(sentence, str | bytes) else column_of(sentence)
    if words is None or not all(isinstance(word, str | bytes) for word in words):
        received = f"{shown(sentence)} as sentence {row}, counted from 0"
        raise InputError(received, "a list of words", "split it into words: text.split()")
    return words


def _inputs_of_words(
    tokenizer: FullTokenizer, sentences: Sequence[list[str]]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The inputs of a model, and where there are words, float32 [B, W]."""
    ids = tokenizer.iter_ids(word for words in sentences for word in words)
    unknown = tokenizer.vocab["[UNK]"]
    packer = Packer(tokenizer)
    longest = tokenizer.longest
    rows = []
    shape = len(sentences), max(map(len, sentences), default=0)
    is_word = np.zeros(shape, np.float32)
    positions = np.zeros(shape, np.int32)
    for row, words in enumerate(sentences):
        pieces = [next(ids) or [unknown] for _ in words]  # as many as words have
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
    """The weights of words, 0 where there is none; float32 [B, W]."""
    if sample_weight is None:
        return is_word
    given = [*sample_weight]
    if len(given) != len(sentences):
        received = f"{len(sentences)} sentences and {len(given)} weights"
        raise InputError(received, "one for each sentence", "correct sample_weight")
    weights = np.zeros_like(is_word)
    for row, (words, weight) in enumerate(zip(sentences, given, strict=True)):
        with contextlib.suppress(TypeError, ValueError):
            of_row = np.asarray(weight, np.float32)
            if of_row.ndim == 0 or len(of_row) >= len(words):  # arrays have some for padding
                weights[row, : len(words)] = of_row if of_row.ndim == 0 else of_row[: len(words)]
                continue
        received = f"{shown(weight)} as weights of sentence {row}, of {len(words)} words"
        raise InputError(received, "a number, or one for each word", "correct sample_weight")
    return weights


# ---------------------------------------------------------------------------- questions


def of_questions(
    tokenizer: FullTokenizer, sizes: Mapping[str, int], x: Any, y: Any, sample_weight: Any
) -> Arrays:
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
    answers = column_of(y)
    if answers is None or not 0 < len(answers) == len(questions):
        received = f"{len(questions)} questions and {shown(y)} as answers"
        raise InputError(received, "a list with an answer for each", "correct one of them")
    rows = zip(questions, contexts, answers, strict=True)
    articles = [_article(row, *columns) for row, columns in enumerate(rows)]
    file = parse_squad({"version": "2.0", "data": articles}, "what is given to fit")
    examples = training_examples(file, version_2_with_negative=True)
    window_sizes = WindowSizes(**sizes)
    windows = training_windows(examples, tokenizer, window_sizes)
    values = [record_values(window, window_sizes.max_seq_length) for window in windows]
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: np.array([row[name] for row in values], np.int32) for name in names}
    ends = {
        f"{end}_logits": np.array([row[f"{end}_positions"][0] for row in values], np.int32)
        for end in ("start", "end")
    }
    return inputs, ends, None


def _article(row: int, question: str | bytes, context: str | bytes, answer: Any) -> dict[str, Any]:
    """A question with its answer, as of SQuAD's files."""
    given = answer or {"text": [], "answer_start": []}
    if not isinstance(given, Mapping) or not given.keys() >= {"text", "answer_start"}:
        expected = '{"text": ["1386"], "answer_start": [24]}'
        received = f"{shown(answer)} as answer {row}, counted from 0"
        raise InputError(received, expected, "correct the answer")
    golds = {name: np.atleast_1d(given[name]) for name in ("text", "answer_start")}
    if len(golds["text"]) != len(golds["answer_start"]):
        received = f"{shown(answer)} as answer {row}, counted from 0"
        raise InputError(received, "an answer_start for each text", "correct the answer")
    return article_of_row(
        {
            "id": f"{row}, counted from 0",
            "question": _as_str(question),
            "context": _as_str(context),
            "answers": golds,
            "is_impossible": not len(golds["text"]),
        }
    )


def _as_str(text: str | bytes) -> str:
    return text.decode(errors="ignore") if isinstance(text, bytes) else text
