"""Models whose `fit` takes texts, words or questions, and compiles them if need be.

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
    """A model of texts, to `fit`: one output, the logits [B, C] of the labels.

        model.fit(texts, names_of_labels, epochs=3)
        model.predict(texts)                                     logits [B, C]

    Unless you compile it, each `fit` compiles it with cross entropy, accuracy, and the optimizer
    and schedule of run_classifier.py for the steps of that call. All weights are trainable, even
    those that were frozen in the files.

    Args:
      path: as for `load`. A head for the same labels is loaded.
      labels: the names of the C classes, in the order of the logits.
      bert_config_file, vocab_file, do_lower_case, name, dtype: as for `load`.

    Returns:
      A model that takes texts, or the inputs of `BertModel`, such as `model.tokenizer` gives. Its
      loss is `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, of labels int [B].

    Raises:
      InputError: as `load`.
    """
    whole = _loaded(
        path,
        head="classification",
        labels=labels,
        bert_config_file=bert_config_file,
        vocab_file=vocab_file,
        do_lower_case=do_lower_case,
        name=name,
        dtype=dtype,
    )
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
    """A model of words, to `fit`: one output, the logits [B, W, C] of each word's tag.

        model.fit(sentences, tags, epochs=3)                     lists of words, lists of names
        model.predict(sentences)                                 logits [B, W, C]

    A word has the logits of its first word piece, as in run_classifier.py's tasks of tags. W is the
    number of words of the longest sentence; padding has no weight. All else is as for `classifier`.

    Args:
      path: as for `load`. A head for the same labels is loaded.
      labels: the names of the C tags, in the order of the logits.
      bert_config_file, vocab_file, do_lower_case, name, dtype: as for `load`.

    Returns:
      A model that takes sentences, or the inputs of `BertModel` and word_positions int [B, W], by
      default the positions of all word pieces. With arrays, `fit` takes labels int [B, W], and
      weights [B, W] that are 0 where there is no word.

    Raises:
      InputError: as `load`. Its methods raise it for a sentence that is not a list of words, is
        longer than the tokenizer's max_length, or has another number of tags than of words.
    """
    whole = _loaded(
        path,
        head="token_labels",
        labels=labels,
        bert_config_file=bert_config_file,
        vocab_file=vocab_file,
        do_lower_case=do_lower_case,
        name=name,
        dtype=dtype,
    )
    positions = keras.Input((None,), dtype="int32", name="word_positions")
    indices = keras.ops.expand_dims(positions, -1)  # [B, W, 1]
    logits = keras.ops.take_along_axis(whole.output["logits"], indices, axis=1)  # [B, W, C]
    return _like(whole, WordModel, whole.input | {"word_positions": positions}, logits)


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
    """A model of questions, to `fit`: start_logits and end_logits, float [B, S] each.

        model.fit((questions, contexts), answers, epochs=2)
        model.save("answers.keras")
        bert_tf.Predictor("answers.keras").predict([{"question": ..., "context": ...}])

    A long context is cut into windows, as in run_squad.py, each a row of a batch. An answer is a
    dict, {"text": ["1386"], "answer_start": [24]}, as in Hugging Face's SQuAD; the first text is
    trained on. Without a text, or with only empty ones or ones at -1, the question has no answer.
    All else is as for `classifier`.

    Args:
      path: as for `load`. A head for questions is loaded.
      max_seq_length: tokens of a window; None: 384, or the model's positions if fewer.
      doc_stride: tokens between the beginnings of two windows.
      max_query_length: tokens of a question; None: 64, or half of max_seq_length if fewer.
      bert_config_file, vocab_file, do_lower_case, name, dtype: as for `load`.

    Returns:
      A model that takes (questions, contexts), or the inputs of `BertModel`. With arrays, `fit`
      takes the positions int [B] of an answer's first and last word piece, by the names of the
      outputs.

    Raises:
      InputError: as `load`. Its methods raise it for an answer that is not such a dict, if no
        answer is in its context (a warning tells of some that are not), and without answers, as
        `predict` is: use `Predictor`.
    """
    whole: Any = _loaded(
        path,
        head="question_answering",
        labels=None,
        bert_config_file=bert_config_file,
        vocab_file=vocab_file,
        do_lower_case=do_lower_case,
        name=name,
        dtype=dtype,
    )
    positions = whole.config.max_position_embeddings
    length = min(384, positions) if max_seq_length is None else max_seq_length
    check("max_seq_length", length, int, high=positions)
    query_length = min(64, length // 2) if max_query_length is None else max_query_length
    sizes = WindowSizes(length, doc_stride, query_length)
    outputs = {name: whole.output[name] for name in ("start_logits", "end_logits")}
    return _like(whole, QuestionModel, whole.input, outputs, sizes=dataclasses.asdict(sizes))


def _loaded(path: str | os.PathLike, **options: Any) -> BertModel:
    """The whole model of a head; logs which of its weights are new. Options: as for `loaded`."""
    whole, _, new = loaded(path, **options)
    is_new_head = all(re.match(rf"{OUTPUT}|cls/squad/", name) for name in new)
    log_new(logging.INFO if is_new_head else logging.WARNING, path, new)
    return whole


def _like(whole: BertModel, kind: type, inputs: Any, outputs: Any, **options: Any) -> Any:
    """A model of a class with other inputs and outputs of the same layers.

    Args:
      whole: the model that has the layers.
      kind: the class.
      inputs, outputs: of Keras.
      **options: further arguments of the class.
    """
    model = kind(
        inputs,
        outputs,
        name=whole.name,
        labels=whole.labels,
        metadata=whole.metadata,
        **options,
    )
    model.tokenizer = whole.tokenizer
    return model
