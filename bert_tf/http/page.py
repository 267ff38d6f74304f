"""Answers the page's requests in JSON: the model, the answer to texts, attention to look at.

    GET  /api/model      describe     task, texts to ask for, sizes
    POST /api/answer     answer       {"texts": ...} -> the answer, and names of the sequences
    POST /api/attention  attention    {"texts": ..., "part": 1, "layer": 0} -> the pieces of the
                                      second of these sequences, and the first layer's attention

Most requests are one input sequence of the model. A question or a text with token labels has one
for each window, a multiple choice one for each ending. The exported function makes them inside the
graph and does not return them, so they are made again here.

Shapes: N heads, S sequence.
"""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.heads import NAMES, head_named
from bert_tf.heads.head import Head
from bert_tf.serving.inference import encode
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.predictor import ServedModel
from bert_tf.serving.rows import Row, RowReader, answers_of, shape_of, size_of
from bert_tf.serving.signatures import class_of

MOST_BYTES = 200_000  # of the texts of a request: seconds of work, not minutes
MOST_ENDINGS = 20
Json = dict[str, Any]


class Page:
    """Answers the page's requests about one model. Several threads may ask."""

    def __init__(self, model: ServedModel):
        """Connects a model with the makers of its sequences."""
        self._model = model
        self._metadata = model.metadata
        self._rows = RowReader(model.metadata)
        name = self._metadata["task"]
        options = ServingOptions(**self._metadata["options"])
        # The process that exported the model may have had a head of its own.
        head = head_named(name) if name in NAMES else Head()
        self._task = class_of(head)(head, None, model.tokenizer, model.config, options)
        self._piece_names = self._task.sequences.piece_names()

    def describe(self) -> Json:
        """The model's task, texts and sizes."""
        shown = ("task", "options", "config", "do_lower_case", "metrics")
        return {name: self._metadata[name] for name in shown} | {
            "name": self._model.path.rstrip("/").rsplit("/", 2)[-2:],
            "texts": [
                {"name": name, "what": what, "isList": self._rows.is_list_by_name[name]}
                for name, what in self._metadata["texts"].items()
            ],
            "mostBytes": MOST_BYTES,
        }

    def row(self, request: Mapping[str, Any]) -> Row:
        """{"texts": by name} -> the texts.

        Raises:
          InputError: the request lacks something, or is too large for the page.
        """
        texts = request.get("texts")
        if not isinstance(texts, Mapping):
            expected = '{"texts": {...}}, with a string, or a list of strings, for each text'
            raise InputError("a request without texts", expected, "correct the request")
        row = self._rows.read(texts, "the request")
        num_endings = max(shape_of(row), default=0)
        if size_of(row) > MOST_BYTES or num_endings > MOST_ENDINGS:
            received = f"texts of {size_of(row):,} bytes"
            if num_endings:
                received += f", {num_endings} endings"
            expected = f"at most {MOST_BYTES:,} bytes and {MOST_ENDINGS} endings on this page"
            raise InputError(received, expected, "shorten it; bert-tf predict takes any text")
        return row

    def answer(self, row: Row, outputs: Mapping[str, np.ndarray]) -> Json:
        """The model's outputs for a row -> the answer, and the names of the row's sequences."""
        (answer,) = answers_of(outputs)
        texts = _tensors(row)
        count = len(self._sequences(texts))
        names = [f"{self._task.part} {number}" for number in range(1, count + 1)]
        return {
            "answer": answer,
            "parts": names if count > 1 else [""],
            "part": self._task.part_of(answer, **texts),
        }

    def attention(self, request: Mapping[str, Any]) -> Json:
        """{"texts", "part", "layer"} -> the pieces of a sequence, and a layer's attention.

        The probabilities of attention are bytes in base64, [N, S, S], in units of 1/255.

        Raises:
          InputError: the request lacks something, or a number is out of range.
        """
        sequences = self._sequences(_tensors(self.row(request)))
        ids, segments = sequences[_whole(request, "part", len(sequences))]
        layer = _whole(request, "layer", self._model.config.num_hidden_layers)
        features = {"input_ids": tf.constant([ids]), "segment_ids": tf.constant([segments])}
        features["input_mask"] = tf.ones_like(features["input_ids"])
        with tf.device("CPU:0"):  # one sequence is too little work for a GPU
            _, probabilities = encode(self._model.model, self._model.config, features)
        attention = probabilities[layer][0].numpy()  # [N, S, S]
        in_bytes = np.rint(attention * 255).astype(np.uint8)
        return {
            "pieces": [self._piece_names[i] for i in ids],
            "ids": ids,
            "segments": segments,
            "attention": base64.b64encode(in_bytes).decode(),
        }

    def _sequences(self, texts: Mapping[str, tf.Tensor]) -> list[tuple[list[int], list[int]]]:
        """The ids and segment ids of each sequence, without padding; at least one sequence."""
        features = self._task.features(**texts)
        if not len(features["input_ids"]):  # the context has no piece, so there is no window
            features = self._task.sequences.of_texts(tf.constant([""]))
        ids = features["input_ids"].numpy()
        segments = features["segment_ids"].numpy()
        lengths = features["input_mask"].numpy().sum(axis=1)
        sequences = []
        for number, length in enumerate(lengths):
            sequences.append((ids[number, :length].tolist(), segments[number, :length].tolist()))
        return sequences


def _tensors(row: Row) -> dict[str, tf.Tensor]:
    return {name: tf.constant([value]) for name, value in row.items()}


def _whole(request: Mapping[str, Any], name: str, size: int) -> int:
    """The number of this name in a request, from 0 to size - 1."""
    value = request.get(name)
    if type(value) is not int or not 0 <= value < size:
        expected = f"a number from 0 to {size - 1}"
        raise InputError(f"a request with {name} {value!r}", expected, "correct the request")
    return value
