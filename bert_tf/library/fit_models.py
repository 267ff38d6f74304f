"""Models that `fit` trains on texts, words or questions as they are, and compiles by itself.

model = bert_tf.classifier("all-MiniLM-L6-v2", labels=["bad", "good"])
model.fit(["A fine film.", "Two hours lost."], ["good", "bad"], epochs=3)

model = bert_tf.token_classifier("bert-base-cased", labels=["O", "B-PER", "I-PER"])
model.fit([["Ada", "Lovelace", "wrote"]], [["B-PER", "I-PER", "O"]])

model = bert_tf.question_answerer("bert-base-uncased")
model.fit((questions, contexts), answers)
"""

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import Any

import keras
from absl import logging

from bert_tf.declarations import check
from bert_tf.heads import OUTPUT
from bert_tf.library.models import loaded, log_new
from bert_tf.library.text_models import QuestionModel, TextModel, WordModel
from bert_tf.modeling.models import BertModel
from bert_tf.squad.windows import WindowSizes


def classifier(
    path: str | os.PathLike,
    *,
    labels: Sequence[str],
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    name: str | None = None,
    dtype: Any = None,
) -> TextModel:
    """A model with one output, logits [B, C] of the labels, to `fit`.

        model.fit(texts, names_of_labels, epochs=3)
        model.predict(texts)                                     logits [B, C]

    Unless you compile it, each `fit` compiles it with the optimizer and schedule of
    run_classifier.py for its steps, cross entropy, and accuracy. All weights are trainable,
    whatever was frozen in the files.

    Args:
      path: as for `load`; the head of a model that has one for the same labels is kept.
      labels: the names of the C classes, in the order of the logits.
      bert_config_file, vocab_file, do_lower_case, name, dtype: as for `load`.

    Returns:
      A model from the inputs of `BertModel`, such as `model.tokenizer` gives, and from texts. Its
      loss is `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, of labels int [B].

    Raises:
      InputError: as `load`.
    """
    files = bert_config_file, vocab_file, do_lower_case
    whole = _loaded(path, "classification", labels, *files, name, dtype)
    return _like(whole, TextModel, whole.input, whole.output["logits"])


def token_classifier(
    path: str | os.PathLike,
    *,
    labels: Sequence[str],
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    name: str | None = None,
    dtype: Any = None,
) -> WordModel:
    """A model with one output, logits [B, W, C] of each word's tag, to `fit`.

        model.fit(sentences, tags, epochs=3)                     lists of words, lists of names
        model.predict(sentences)                                 logits [B, W, C]

    A word has the logits of its first word piece, as in run_classifier.py's tasks of tags; W is the
    number of words of the longest sentence, and what is behind a shorter one counts for nothing.
    All else is as for `classifier`.

    Args:
      path: as for `load`; the head of a model that has one for the same labels is kept.
      labels: the names of the C tags, in the order of the logits.
      bert_config_file, vocab_file, do_lower_case, name, dtype: as for `load`.

    Returns:
      A model from the inputs of `BertModel` and word_positions int [B, W], by default those of all
      word pieces; and from sentences. Given arrays, `fit` takes labels int [B, W], and weights
      [B, W] that are 0 where there is no word.

    Raises:
      InputError: as `load`. By its methods: a sentence is no list of words, is longer than the
        tokenizer's max_length, or has another number of tags.
    """
    files = bert_config_file, vocab_file, do_lower_case
    whole = _loaded(path, "token_labels", labels, *files, name, dtype)
    positions = keras.Input((None,), dtype="int32", name="word_positions")
    at = keras.ops.expand_dims(positions, -1)  # [B, W, 1]
    words = keras.ops.take_along_axis(whole.output["logits"], at, axis=1)  # [B, W, C]
    return _like(whole, WordModel, whole.input | {"word_positions": positions}, words)


def question_answerer(
    path: str | os.PathLike,
    *,
    max_seq_length: int | None = None,
    doc_stride: int = 128,
    max_query_length: int | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    name: str | None = None,
    dtype: Any = None,
) -> QuestionModel:
    """A model with start_logits and end_logits, float [B, S] each, to `fit` on questions.

        model.fit((questions, contexts), answers, epochs=2)
        model.save("answers.keras")
        bert_tf.Predictor("answers.keras").predict([{"question": ..., "context": ...}])

    A long context is cut into windows, as in run_squad.py, each a row of a batch. An answer is a
    dict, {"text": ["1386"], "answer_start": [24]} as in SQuAD's files by Hugging Face, of which the
    first is trained on; without a text, or with only empty ones or ones at -1, the question has no
    answer. All else is as for `classifier`.

    Args:
      path: as for `load`; a head for questions is kept.
      max_seq_length, doc_stride, max_query_length: of windows, as the flags of run_squad.py.
        Without them 384 or the model's positions, 128, and 64 or half of max_seq_length, if fewer.
      bert_config_file, vocab_file, do_lower_case, name, dtype: as for `load`.

    Returns:
      A model from the inputs of `BertModel`. Given arrays, `fit` takes the positions int [B] of an
      answer's first and last word piece, by the names of the outputs.

    Raises:
      InputError: as `load`. By its methods: an answer is no such dict, no answer is in its context
        (some that are not are left out, with a warning), or there are none, as for `predict`, for
        which there is `Predictor`.
    """
    files = bert_config_file, vocab_file, do_lower_case
    whole: Any = _loaded(path, "question_answering", None, *files, name, dtype)
    positions = whole.config.max_position_embeddings
    length = min(384, positions) if max_seq_length is None else max_seq_length
    check("max_seq_length", length, int, high=positions)
    of_query = min(64, length // 2) if max_query_length is None else max_query_length
    sizes = WindowSizes(length, doc_stride, of_query)
    outputs = {name: whole.output[name] for name in ("start_logits", "end_logits")}
    return _like(whole, QuestionModel, whole.input, outputs, sizes=dataclasses.asdict(sizes))


# ---------------------------------------------------------------------------- what they share


def _loaded(path: Any, head: str, labels: Sequence[str] | None, *options: Any) -> BertModel:
    """The model of a head, whose weights may be new."""
    whole, _, new = loaded(path, head, labels, *options)
    is_new_head = all(re.match(rf"{OUTPUT}|cls/squad/", name) for name in new)
    log_new(logging.INFO if is_new_head else logging.WARNING, path, new)
    return whole


def _like(whole: BertModel, kind: type, inputs: Any, outputs: Any, **options: Any) -> Any:
    """A model of a kind, of other inputs and outputs of the same layers."""
    belongings = {"labels": whole.labels, "metadata": whole.metadata}
    model = kind(inputs, outputs, name=whole.name, **belongings, **options)
    model.tokenizer = whole.tokenizer
    return model
