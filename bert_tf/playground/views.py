"""What the page is told: the model, answers, the model's pieces and its attention; all JSON."""

import base64
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.playground.sequences import SequenceReader
from bert_tf.serving.inference import encode
from bert_tf.serving.options import DEFAULT
from bert_tf.serving.predictor import Predictor
from bert_tf.serving.rows import RowReader, answers_of, arrays_of, size_of

MOST_BYTES = 200_000  # of the texts of a request: seconds of work, not minutes
MOST_ENDINGS = 20
Json = dict[str, Any]


class Playground:
    """One model, as the page sees it."""

    def __init__(self, predictor: Predictor):
        """Takes the model."""
        self._model = predictor.model
        self._metadata = predictor.model.metadata
        self._rows = RowReader(self._metadata)
        self._sequences = SequenceReader(self._model)

    def warm_up(self) -> None:
        """Answers something, so that the first real answer takes no longer than the others."""
        shapes = self._metadata["signatures"][DEFAULT]
        texts = {n: ["a", "b"] if len(shapes[n]["shape"]) > 1 else "a" for n in self._rows.names}
        self.answer({"texts": texts})

    def describe(self) -> Json:
        """The model: its task, its texts, its sizes."""
        metadata, config = self._metadata, self._model.config
        shapes = metadata["signatures"][DEFAULT]
        return {
            "name": self._model.path.rstrip("/").rsplit("/", 2)[-2:],
            "task": metadata["task"],
            "texts": [
                {"name": name, "what": what, "isList": len(shapes[name]["shape"]) > 1}
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
        """{"texts": by name} -> the answer, how long it took, and the names of its parts.

        Raises:
          InputError: that is no such request.
        """
        row = self._row(request)
        start = time.perf_counter()
        outputs = self._model.run(arrays_of([row]))
        seconds = time.perf_counter() - start
        (answer,) = answers_of(outputs, self._metadata["task"])
        return {
            "answer": answer,
            "milliseconds": round(seconds * 1000, 1),
            "parts": [part.name for part in self._sequences.parts(row)],
            "part": self._sequences.shown_first(row, answer),
        }

    def attention(self, request: Mapping[str, Any]) -> Json:
        """{"texts", "part", "layer"} -> pieces of a part, and where all heads of a layer look.

        The probabilities are bytes in base64, [N, S, S] of them, each in 255ths.

        Raises:
          InputError: that is no such request.
        """
        parts = self._sequences.parts(self._row(request))
        part = parts[_whole(request, "part", len(parts))]
        layer = _whole(request, "layer", self._model.config.num_hidden_layers)
        features = {
            "input_ids": tf.constant([part.ids]),
            "input_mask": tf.ones([1, len(part.ids)], tf.int32),
            "segment_ids": tf.constant([part.segments]),
        }
        with tf.device("CPU:0"):  # a few thousand small products are no work for a GPU
            _, probabilities = encode(self._model.model, self._model.config, features)
        found = probabilities[layer][0].numpy()  # [N, S, S]
        return {
            "pieces": [self._sequences.piece_names[i] for i in part.ids],
            "ids": part.ids,
            "segments": part.segments,
            "attention": base64.b64encode(np.rint(found * 255).astype(np.uint8)).decode(),
        }

    def _row(self, request: Mapping[str, Any]):
        texts = request.get("texts")
        if not isinstance(texts, Mapping):
            raise InputError(
                received="a request without texts",
                expected='{"texts": {...}}, with a string, or a list of strings, for each text',
                remedy="correct the request",
            )
        row = self._rows.read(texts, "the request")
        endings = max((len(v) for v in row.values() if isinstance(v, list)), default=0)
        if size_of(row) > MOST_BYTES or endings > MOST_ENDINGS:
            raise InputError(
                received=f"texts of {size_of(row):,} bytes"
                + f", {endings} endings" * bool(endings),
                expected=f"at most {MOST_BYTES:,} bytes and {MOST_ENDINGS} endings on this page",
                remedy="take a shorter text; predict.py takes any",
            )
        return row


def _whole(request: Mapping[str, Any], name: str, size: int) -> int:
    """A number of a request, from 0, below size."""
    value = request.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        raise InputError(
            received=f"a request with {name} {value!r}",
            expected=f"a number from 0 to {size - 1}",
            remedy="correct the request",
        )
    return value
