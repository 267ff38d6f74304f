"""Answers the page's requests in JSON: the model, the answer to texts, attention to look at.

GET  /api/model       describe    task, texts to ask for, sizes
POST /api/answer      answer      {"texts": ...} -> the answer, and its input sequences by name
POST /api/attention   attention   {"texts": ..., "part": 1, "layer": 0} -> the pieces of the
                                  second of these sequences, and the first layer's attention
"""

import base64
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.playground.sequences import InputSequences
from bert_tf.serving.inference import encode
from bert_tf.serving.predictor import Predictor
from bert_tf.serving.rows import Row, RowReader, answers_of, arrays_of, size_of, text_inputs

MOST_BYTES = 200_000  # of the texts of a request: seconds of work, not minutes
MOST_ENDINGS = 20
Json = dict[str, Any]


class Playground:
    """Answers the requests about one model."""

    def __init__(self, predictor: Predictor):
        """Takes the model of `predictor`."""
        self._model = predictor.model
        self._metadata = predictor.model.metadata
        self._rows, self._is_list = RowReader(self._metadata), text_inputs(self._metadata)
        self._sequences = InputSequences(self._model)

    def warm_up(self) -> None:
        """Answers once, so that the first request takes no longer than the others."""
        texts = {name: ["a", "b"] if many else "a" for name, many in self._is_list.items()}
        self.answer({"texts": texts})

    def describe(self) -> Json:
        """The model's task, texts and sizes."""
        metadata, config = self._metadata, self._model.config
        return {
            "name": self._model.path.rstrip("/").rsplit("/", 2)[-2:],
            "task": metadata["task"],
            "texts": [
                {"name": name, "what": what, "isList": self._is_list[name]}
                for name, what in metadata["texts"].items()
            ],
            "options": metadata["options"],
            "layers": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "hidden": config.hidden_size,
            "vocabulary": config.vocab_size,
            "lowerCase": metadata["do_lower_case"],
            "metrics": metadata["metrics"],
            "mostBytes": MOST_BYTES,
        }

    def answer(self, request: Mapping[str, Any]) -> Json:
        """{"texts": by name} -> the answer, its milliseconds, and the names of its sequences.

        Raises:
          InputError: the request lacks something.
        """
        row = self._row(request)
        start = time.perf_counter()
        outputs = self._model.run(arrays_of([row]))
        seconds = time.perf_counter() - start
        (answer,) = answers_of(outputs)
        return {
            "answer": answer,
            "milliseconds": round(seconds * 1000, 1),
            "parts": [sequence.name for sequence in self._sequences.of_row(row)],
            "part": self._sequences.number_of_answer(row, answer),
        }

    def attention(self, request: Mapping[str, Any]) -> Json:
        """{"texts", "part", "layer"} -> the pieces of a sequence, and a layer's attention.

        The probabilities of attention are bytes in base64, [N, S, S], each in 255ths.

        Raises:
          InputError: the request lacks something, or a number is out of range.
        """
        sequences = self._sequences.of_row(self._row(request))
        sequence = sequences[_whole(request, "part", len(sequences))]
        layer = _whole(request, "layer", self._model.config.num_hidden_layers)
        features = {
            "input_ids": tf.constant([sequence.ids]),
            "input_mask": tf.ones([1, len(sequence.ids)], tf.int32),
            "segment_ids": tf.constant([sequence.segments]),
        }
        with tf.device("CPU:0"):  # a few thousand small products are no work for a GPU
            _, probabilities = encode(self._model.model, self._model.config, features)
        found = probabilities[layer][0].numpy()  # [N, S, S]
        return {
            "pieces": [self._sequences.piece_names[i] for i in sequence.ids],
            "ids": sequence.ids,
            "segments": sequence.segments,
            "attention": base64.b64encode(np.rint(found * 255).astype(np.uint8)).decode(),
        }

    def _row(self, request: Mapping[str, Any]) -> Row:
        texts = request.get("texts")
        if not isinstance(texts, Mapping):
            raise InputError(
                "a request without texts",
                '{"texts": {...}}, with a string, or a list of strings, for each text',
                "correct the request",
            )
        row = self._rows.read(texts, "the request")
        endings = max((len(v) for v in row.values() if isinstance(v, list)), default=0)
        if size_of(row) > MOST_BYTES or endings > MOST_ENDINGS:
            raise InputError(
                f"texts of {size_of(row):,} bytes" + f", {endings} endings" * bool(endings),
                f"at most {MOST_BYTES:,} bytes and {MOST_ENDINGS} endings on this page",
                "take a shorter text; bert-tf predict takes any",
            )
        return row


def _whole(request: Mapping[str, Any], name: str, size: int) -> int:
    """The number of that name in a request, 0 to size - 1."""
    value = request.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        expected = f"a number from 0 to {size - 1}"
        raise InputError(f"a request with {name} {value!r}", expected, "correct the request")
    return value
