"""What `fit` of a `TextModel` is given -> arrays: texts, datasets of texts, words, questions.

Dimensions: B rows, S word pieces of the longest, W words of the longest.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.library.text_models import column_of
from bert_tf.squad.data import article_of_row, parse_squad, training_examples
from bert_tf.squad.windows import WindowSizes, record_values, training_windows
from bert_tf.tokenization.layer import Tokenizer
from bert_tf.tokenization.texts import as_columns
from bert_tf.tokenization.wordpiece import FullTokenizer, padded

Arrays = tuple[Any, Any, Any]  # x, y, sample_weight
# To which the texts of a dataset are padded: of each XLA compiles a program.
LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)

# ---------------------------------------------------------------------------- texts


def ids_of_texts(tokenizer: FullTokenizer, x: Any) -> Any:
    """Ids of texts, of pairs, or of a tuple of two columns; what is none of these as it is.

    Returns:
      input_ids, input_mask and segment_ids, int32 [B, S] each.

    Raises:
      InputError: some are texts and some are not.
    """
    columns = x if _is_two_columns(x) else (x,)
    items = [column_of(column) for column in columns]
    if None in items or not any(isinstance(item, str | bytes | tuple) for item in items[0]):
        return x
    return tokenizer(*as_columns(*items))


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
    read = _reader(tokenizer) if has_texts else None

    def with_ids(*element: Any) -> Any:
        x = read(element[0]) if read else element[0]
        y = tuple(_numbers(names, labels) if has_names else names for names in element[1:2])
        whole = (x, *y, *element[2:])
        return whole if isinstance(spec, tuple) else x

    return dataset.map(with_ids, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _is_text(spec: Any) -> bool:
    return getattr(spec, "dtype", None) == tf.string


def _reader(tokenizer: FullTokenizer | None) -> Callable[[Any], dict[str, tf.Tensor]]:
    """From texts [B], or a tuple of two, to ids padded to one of `LENGTHS`."""
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
    known = tf.reduce_all(tf.reduce_any(matches, axis=-1))
    message = f"a label of the dataset is none of {', '.join(labels)}"
    with tf.control_dependencies([tf.debugging.Assert(known, [message])]):
        return tf.argmax(matches, axis=-1)


# ---------------------------------------------------------------------------- words


def of_words(
    tokenizer: FullTokenizer,
    number_of: Callable[[Any], int],
    sentences: Sequence[Any],
    tags: Sequence[Any] | None,
    sample_weight: Any,
) -> Arrays:
    """Lists of words as ids [B, S] and word_positions [B, W]; tags and weights, [B, W] each.

    Args:
      tokenizer: of the model.
      number_of: the number of a tag by name or number.
      sentences: lists of words.
      tags: a list of tags for each; or None, and then weights are given back as they are.
      sample_weight: None, one for each sentence, or a list of one for each word of each.

    Raises:
      InputError: as `WordModel.read`.
    """
    sentences = [_words(row, sentence) for row, sentence in enumerate(sentences)]
    inputs, is_word = _inputs_of_words(tokenizer, sentences)
    if tags is None:
        return inputs, None, sample_weight
    if len(tags) != len(sentences):
        received = f"{len(sentences)} sentences and {len(tags)} lists of tags"
        raise InputError(received, "a list of tags for each sentence", "correct one of them")
    numbers = np.zeros(is_word.shape, np.int32)
    for row, (words, names) in enumerate(zip(sentences, tags, strict=True)):
        if not hasattr(names, "__len__") or isinstance(names, str) or len(names) != len(words):
            received = f"the tags {names!r:.80} of sentence {row}, {words!r:.80}"
            raise InputError(received, "one for each word", "correct the tags")
        try:
            numbers[row, : len(words)] = [number_of(name) for name in names]
        except InputError as error:
            received = f"the tags {list(names)!r:.80} of sentence {row}, {words!r:.80}"
            raise InputError(received, f"for each word {error.expected}", error.remedy) from None
    return inputs, numbers, _weights_of_words(sample_weight, is_word, sentences)


def _words(row: int, sentence: Any) -> list[str]:
    words = None if isinstance(sentence, str | bytes) else column_of(sentence)
    if words is None or not all(isinstance(word, str) for word in words):
        received = f"{sentence!r:.80} as sentence {row}, counted from 0"
        raise InputError(received, "a list of words", "split it into words: text.split()")
    return words


def _inputs_of_words(
    tokenizer: FullTokenizer, sentences: Sequence[list[str]]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The inputs of a model, and where there are words, float32 [B, W]."""
    ids = tokenizer.iter_ids(word for words in sentences for word in words)
    cls, sep, unknown = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "[UNK]"])
    longest = tokenizer.longest
    rows = []
    shape = len(sentences), max(map(len, sentences), default=0)
    is_word = np.zeros(shape, np.float32)
    positions = np.zeros(shape, np.int32)
    for row, words in enumerate(sentences):
        pieces = [next(ids) or [unknown] for _ in words]  # as many as words have
        flat = [cls, *(piece for word in pieces for piece in word), sep]
        if longest and len(flat) > longest:
            received = f"sentence {row}, counted from 0, of {len(flat)} word pieces"
            remedy = "split it; bert-tf classify cuts long ones into windows"
            raise InputError(received, f"{longest} or fewer", remedy)
        rows.append((flat, [0] * len(flat)))
        is_word[row, : len(words)] = 1
        positions[row, : len(words)] = np.cumsum([1, *map(len, pieces)])[:-1]
    return padded(rows) | {"word_positions": positions}, is_word


def _weights_of_words(sample_weight: Any, is_word: np.ndarray, sentences: Any) -> np.ndarray:
    """The weights of words, 0 where there is none; float32 [B, W]."""
    if sample_weight is None:
        return is_word
    given = list(sample_weight)
    if len(given) != len(sentences):
        received = f"{len(sentences)} sentences and {len(given)} weights"
        raise InputError(received, "one for each sentence", "correct sample_weight")
    weights = np.zeros_like(is_word)
    for row, (words, weight) in enumerate(zip(sentences, given, strict=True)):
        if np.ndim(weight) == 1 and len(weight) < len(words):
            received = f"{len(weight)} weights for the {len(words)} words of sentence {row}"
            raise InputError(received, "one for each word", "correct sample_weight")
        weights[row, : len(words)] = weight if np.ndim(weight) == 0 else weight[: len(words)]
    return weights


# ---------------------------------------------------------------------------- questions


def of_questions(
    tokenizer: FullTokenizer, sizes: Mapping[str, int], x: Any, y: Any, sample_weight: Any
) -> Arrays:
    """Windows of (questions, contexts) [B, S], and where their answers begin and end [B].

    Raises:
      InputError: as `QuestionModel.read`.
    """
    columns = [column_of(column) for column in x] if _is_two_columns(x) else [column_of(x)]
    questions, contexts = as_columns(*columns)
    if contexts is None:
        received = f"{questions[0]!r:.80} without a context"
        raise InputError(received, "(questions, contexts)", "give a tuple of both columns")
    if y is None or sample_weight is not None:
        received = "questions without answers" if y is None else "questions with weights"
        remedy = "save the model and ask bert_tf.Predictor(path), which joins windows"
        raise InputError(received, "answers to train on", remedy)
    rows = zip(questions, contexts, y, strict=True)
    articles = [_article(row, *columns) for row, columns in enumerate(rows)]
    file = parse_squad({"version": "2.0", "data": articles}, "what is given to fit")
    examples = training_examples(file, version_2_with_negative=True)
    windows = training_windows(examples, tokenizer, WindowSizes(**sizes))
    values = [record_values(window, sizes["max_seq_length"]) for window in windows]
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: np.array([row[name] for row in values], np.int32) for name in names}
    ends = {
        f"{end}_logits": np.array([row[f"{end}_positions"][0] for row in values], np.int32)
        for end in ("start", "end")
    }
    return inputs, ends, None


def _article(row: int, question: str, context: str, answer: Any) -> dict[str, Any]:
    """A question with its answer, as of SQuAD's files."""
    given = answer or {"text": [], "answer_start": []}
    if not isinstance(given, Mapping) or not given.keys() >= {"text", "answer_start"}:
        expected = '{"text": ["1386"], "answer_start": [24]}'
        received = f"{answer!r:.80} as answer {row}, counted from 0"
        raise InputError(received, expected, "correct the answer")
    first = {name: np.atleast_1d(given[name])[:1] for name in ("text", "answer_start")}
    return article_of_row(
        {
            "id": f"{row}, counted from 0",
            "question": question,
            "context": context,
            "answers": first,
            "is_impossible": not len(first["text"]),
        }
    )
