"""Models that `fit` trains on texts, words or questions as they are, and compiles by itself.

model = bert_tf.classifier("all-MiniLM-L6-v2", labels=["bad", "good"])
model.fit(["A fine film.", "Two hours lost."], ["good", "bad"], epochs=3)

model = bert_tf.token_classifier("bert-base-cased", labels=["O", "B-PER", "I-PER"])
model.fit([["Ada", "Lovelace", "wrote"]], [["B-PER", "I-PER", "O"]])

model = bert_tf.question_answerer("bert-base-uncased")
model.fit((questions, contexts), answers)
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf.errors import InputError
from bert_tf.heads import OUTPUT
from bert_tf.library.models import loaded, log_new
from bert_tf.modeling.fit_data import texts_of
from bert_tf.modeling.models import BertModel
from bert_tf.squad.data import article_of_row, parse_squad, training_examples
from bert_tf.squad.windows import WindowSizes, record_values, training_windows
from bert_tf.tokenization.wordpiece import FullTokenizer, padded
from bert_tf.training.optimization import make_optimizer

Triple = tuple[Any, Any, Any]  # x, y, sample_weight


def classifier(
    path: str | os.PathLike,
    *,
    labels: Sequence[str],
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> BertModel:
    """A model with one output, logits [B, C] of the labels, to `fit`.

        model.fit(texts, names_of_labels, epochs=3)
        model.predict(texts)                                     logits [B, C]

    Unless you compile it, each `fit` compiles it with the optimizer and schedule of
    run_classifier.py for its steps, cross entropy, and accuracy. All weights are trainable,
    whatever was frozen in the files.

    Args:
      path: as for `load`; the head of a model that has one for the same labels is kept.
      labels: the names of the C classes, in the order of the logits.
      bert_config_file, vocab_file, do_lower_case: as for `load`.

    Returns:
      A model from the inputs of `BertModel`, such as `model.tokenizer` gives, and from texts. Its
      loss is `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, of labels int [B].

    Raises:
      InputError: as `load`.
    """
    whole = _loaded(path, "classification", labels, bert_config_file, vocab_file, do_lower_case)
    model = _like(whole, whole.input, whole.output["logits"])
    model.compile_for = _compiling(model, _cross_entropy(), metrics=["accuracy"])
    return model


def token_classifier(
    path: str | os.PathLike,
    *,
    labels: Sequence[str],
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> BertModel:
    """A model with one output, logits [B, W, C] of each word's tag, to `fit`.

        model.fit(sentences, tags, epochs=3)                     lists of words, lists of names
        model.predict(sentences)                                 logits [B, W, C]

    A word has the logits of its first word piece, as in run_classifier.py's tasks of tags; W is the
    number of words of the longest sentence, and what is behind a shorter one counts for nothing.
    All else is as for `classifier`.

    Args:
      path: as for `load`; the head of a model that has one for the same labels is kept.
      labels: the names of the C tags, in the order of the logits.
      bert_config_file, vocab_file, do_lower_case: as for `load`.

    Returns:
      A model from the inputs of `BertModel` and word_positions int [B, W], by default those of all
      word pieces; and from sentences. Given arrays, `fit` takes labels int [B, W], and weights
      [B, W] that are 0 where there is no word.

    Raises:
      InputError: as `load`. By its methods: a sentence is no list of words, is longer than the
        tokenizer's max_length, or has another number of tags.
    """
    whole = _loaded(path, "token_labels", labels, bert_config_file, vocab_file, do_lower_case)
    positions = keras.Input((None,), dtype="int32", name="word_positions")
    at = keras.ops.expand_dims(positions, -1)  # [B, W, 1]
    words = keras.ops.take_along_axis(whole.output["logits"], at, axis=1)  # [B, W, C]
    model = _like(whole, whole.input | {"word_positions": positions}, words)
    loss = _cross_entropy(reduction="mean_with_sample_weight")
    model.compile_for = _compiling(model, loss, weighted_metrics=["accuracy"])
    model.reads = lambda *given: _sentences(model, *given)
    return model


def question_answerer(
    path: str | os.PathLike,
    *,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> BertModel:
    """A model with start_logits and end_logits, float [B, S] each, to `fit` on questions.

        model.fit((questions, contexts), answers, epochs=2)
        model.save("answers.keras")
        bert_tf.Predictor("answers.keras").predict([{"question": ..., "context": ...}])

    A long context is cut into windows, as in run_squad.py, each a row of a batch. An answer is a
    dict, {"text": ["1386"], "answer_start": [24]} as in SQuAD's files by Hugging Face, of which the
    first is trained on; without a text the question has no answer. All else is as for `classifier`.

    Args:
      path: as for `load`; a head for questions is kept.
      max_seq_length, doc_stride, max_query_length: of windows, as the flags of run_squad.py.
      bert_config_file, vocab_file, do_lower_case: as for `load`.

    Returns:
      A model from the inputs of `BertModel`. Given arrays, `fit` takes the positions int [B] of an
      answer's first and last word piece, by the names of the outputs.

    Raises:
      InputError: as `load`. By its methods: an answer is no such dict, no answer is in its context
        (some that are not are left out, with a warning), or there are none, as for `predict`, for
        which there is `Predictor`.
    """
    files = bert_config_file, vocab_file, do_lower_case
    whole = _loaded(path, "question_answering", None, *files)
    outputs = {name: whole.output[name] for name in ("start_logits", "end_logits")}
    model = _like(whole, whole.input, outputs)
    loss = {name: _cross_entropy() for name in outputs}
    model.compile_for = _compiling(model, loss, loss_weights=dict.fromkeys(outputs, 0.5))
    sizes = WindowSizes(max_seq_length, doc_stride, max_query_length)
    model.reads = lambda *given: _questions(model.tokenizer, sizes, *given)
    return model


# ---------------------------------------------------------------------------- what they share


def _loaded(path: Any, head: str, labels: Sequence[str] | None, *files: Any) -> BertModel:
    """The model of a head, whose weights may be new."""
    whole, _, new = loaded(path, head, labels, *files)
    is_expected = all(re.match(rf"{OUTPUT}|cls/squad/", name) for name in new)  # else no pooler
    log_new(logging.INFO if is_expected else logging.WARNING, path, new)
    return whole


def _like(whole: BertModel, inputs: Any, outputs: Any) -> BertModel:
    """A model of other inputs and outputs of the same layers."""
    model = BertModel(inputs, outputs, name=whole.name)
    model.labels, model.tokenizer, model.metadata = whole.labels, whole.tokenizer, whole.metadata
    return model


def _cross_entropy(**options: Any) -> keras.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def _compiling(model: BertModel, loss: Any, **options: Any) -> Callable[[int], None]:
    """Compiles the model for so many steps."""

    def compile_for(num_steps: int) -> None:
        with model.distribute_strategy.scope():
            optimizer = make_optimizer(num_train_steps=num_steps)
            model.compile(optimizer=optimizer, loss=loss, **options)

    return compile_for


# ---------------------------------------------------------------------------- words


def _sentences(model: BertModel, x: Any, y: Any, weights: Any) -> Triple:
    """Ids and word_positions of lists of words, numbers of tags, weights of words; else as given.

    [B, S] and [B, W].
    """
    if not isinstance(x, list | tuple) or not x or any(hasattr(one, "shape") for one in x):
        return x, y, weights
    tokenizer, most = model.tokenizer, model.tokenizer.max_length
    for row, sentence in enumerate(x):
        if not isinstance(sentence, list | tuple) or not all(isinstance(w, str) for w in sentence):
            received = f"{sentence!r:.80} as sentence {row}, counted from 0"
            raise InputError(received, "a list of words", "split it into words: text.split()")
    ids = tokenizer.iter_ids(word for sentence in x for word in sentence)
    cls, sep, unknown = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "[UNK]"])
    rows: list[tuple[list[int], list[int]]] = []
    firsts = []
    for row, sentence in enumerate(x):
        pieces = [next(ids) or [unknown] for _ in sentence]  # as many as words have
        firsts.append(np.cumsum([1, *map(len, pieces)])[:-1])
        rows.append(([cls, *(n for word in pieces for n in word), sep], []))
        if most and len(rows[-1][0]) > most:
            received = f"sentence {row}, counted from 0, of {len(rows[-1][0])} word pieces"
            remedy = "split it; bert-tf classify cuts long ones into windows"
            raise InputError(received, f"{most} or fewer", remedy)
    longest = max(map(len, x), default=0)
    words = np.array([[n < len(one) for n in range(longest)] for one in x], np.float32)  # [B, W]
    positions = np.zeros(words.shape, np.int32)
    positions[words > 0] = np.concatenate(firsts)
    inputs = padded([(ids, [0] * len(ids)) for ids, _ in rows], max(len(ids) for ids, _ in rows))
    inputs |= {"word_positions": positions}
    if y is None:
        return inputs, None, weights
    tags = np.zeros(words.shape, np.int32)
    numbers = {name: number for number, name in enumerate(model.labels or ())}
    for row, (sentence, names) in enumerate(zip(x, y, strict=True)):
        if len(sentence) != len(names) or not {*names} <= {*numbers, *numbers.values()}:
            received = f"the tags {names!r:.80} of sentence {row}, {sentence!r:.80}"
            wanted = f"for each word one of {', '.join(numbers)}"
            raise InputError(received, wanted, "correct the tags, or the labels of the model")
        tags[row, : len(names)] = [numbers.get(name, name) for name in names]
    if weights is not None:  # of sentences
        words *= np.asarray(weights, np.float32)[:, None]
    return inputs, tags, words


# ---------------------------------------------------------------------------- questions


def _questions(
    tokenizer: FullTokenizer, sizes: WindowSizes, x: Any, y: Any, weights: Any
) -> Triple:
    """Windows of (questions, contexts), and where their answers are; else as given."""
    is_pair = isinstance(x, tuple) and len(x) == 2
    columns: list[Any] = [texts_of(one) for one in x] if is_pair else [None]
    if None in columns:
        return x, y, weights
    if y is None or weights is not None:
        received = "questions without answers" if y is None else "questions with weights"
        remedy = "save the model and ask bert_tf.Predictor(path), which joins windows"
        raise InputError(received, "answers to train on", remedy)
    articles = []
    for row, (question, context, answer) in enumerate(zip(columns[0], columns[1], y, strict=True)):
        given = answer or {"text": [], "answer_start": []}
        if not isinstance(given, Mapping) or not given.keys() >= {"text", "answer_start"}:
            expected = '{"text": ["1386"], "answer_start": [24]}'
            received = f"{answer!r:.80} as answer {row}, counted from 0"
            raise InputError(received, expected, "correct the answer")
        given = {name: np.atleast_1d(values)[:1] for name, values in given.items()}
        asked = {"id": f"{row}, counted from 0", "question": question, "context": context}
        asked |= {"answers": given, "is_impossible": not len(given["text"])}
        articles.append(article_of_row(asked))
    file = parse_squad({"version": "2.0", "data": articles}, "what is given to fit")
    examples = training_examples(file, version_2_with_negative=True)
    windows = training_windows(examples, tokenizer, sizes)
    values = [record_values(window, sizes.max_seq_length) for window in windows]
    arrays = {name: np.array([one[name] for one in values], np.int32) for name in values[0]}
    inputs = {name: arrays[name] for name in ("input_ids", "input_mask", "segment_ids")}
    ends = {f"{end}_logits": arrays[f"{end}_positions"][:, 0] for end in ("start", "end")}
    return inputs, ends, None
