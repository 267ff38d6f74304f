"""Text -> vectors: BERT as a fixed encoder (paper, section 5.3; original: extract_features.py).

Lines       "a ||| b"           -> pieces of one example, [CLS] a [SEP] b [SEP]
by length   examples of alike length form a batch, padded to one of a few lengths
encoder     the layers asked for
Vectors     in the order of the lines again; a window of examples is held, not all
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.checkpoints.loading import Weights, load_checkpoint
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.modeling import models
from bert_tf.serving.options import EMBEDDINGS
from bert_tf.tokenization.packing import Packer
from bert_tf.tokenization.wordpiece import FullTokenizer

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # that batches are padded to
BATCHES_OF_A_WINDOW = 64  # at most, that are sorted by length at once
BYTES_OF_A_WINDOW = 1 << 28  # of their vectors, which are held until all are there

# ---------------------------------------------------------------------------- input


@dataclasses.dataclass(frozen=True)
class Line:
    """A text or a pair of texts."""

    text_a: str
    text_b: str | None = None


def read_lines(path: str, *, jsonl: bool) -> Iterator[Line]:
    """The lines of a file, one at a time (original: `read_examples`).

    Args:
      path: of a text in UTF-8, local or remote.
      jsonl: each line is an object with text_a, or text, and perhaps text_b. Otherwise it is a
        text, or two with " ||| " between.

    Raises:
      InputError: it cannot be read; or naming the line that is not UTF-8, or no such object.
    """
    for number, raw in enumerate(files.read_lines(path), 1):
        yield _parse(raw, jsonl, f"{path}, line {number}")


def _parse(raw: bytes, jsonl: bool, place: str) -> Line:
    try:
        text = raw.decode("utf-8").strip()
        if not jsonl:
            pair = re.match(r"^(.*) \|\|\| (.*)$", text)
            return Line(pair[1], pair[2]) if pair else Line(text)
        values = json.loads(text.removeprefix("\ufeff"))
        text_a = values["text_a"] if "text_a" in values else values["text"]
        text_b = values.get("text_b")
        if not isinstance(text_a, str) or not isinstance(text_b, str | None):
            raise TypeError("a text that is no string")
        return Line(text_a, text_b)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        kind = 'JSON such as {"text_a": "...", "text_b": "..."}' if jsonl else "text in UTF-8"
        raise InputError(
            received=f"{place}: {raw[:80]!r} ({type(error).__name__}: {error})",
            expected=kind,
            remedy="correct the line" + ("" if jsonl else ", or save the file as UTF-8"),
        ) from None


# ---------------------------------------------------------------------------- examples


@dataclasses.dataclass(frozen=True)
class Example:
    """The pieces of a line: ids and segments [T], with [CLS] and [SEP]."""

    ids: Sequence[int]
    segments: Sequence[int]


def make_examples(
    lines: Sequence[Line], tokenizer: FullTokenizer, max_seq_length: int
) -> list[Example]:
    """Tokenizes and cuts to length (original: `convert_examples_to_features`)."""
    texts = [text for line in lines for text in (line.text_a, line.text_b or "")]
    ids = tokenizer.tokenize_ids(texts).to_list() if texts else []
    packer = Packer(tokenizer, max_seq_length)
    packed = [packer.pack(a, b) for a, b in zip(ids[0::2], ids[1::2], strict=True)]
    return [Example(input_ids, segment_ids) for input_ids, segment_ids, _ in packed]


# ---------------------------------------------------------------------------- vectors


@dataclasses.dataclass(frozen=True)
class Vectors:
    """What one line became.

    Attributes:
      tokens: T pieces, [CLS] and [SEP] included.
      layers: float32 [L, T, D], or [L, D] if pooled; L layers as asked for.
    """

    tokens: list[str]
    layers: np.ndarray


def parse_layers(text: str, config: BertConfig) -> list[int | str]:
    """--layers as numbers, negative from the end, and the word embeddings.

    Raises:
      InputError: there is no such layer.
    """
    most = config.num_hidden_layers
    layers: list[int | str] = []
    for word in text.split(","):
        word = word.strip()
        if word == EMBEDDINGS:
            layers.append(word)
        elif re.fullmatch(r"-?\d+", word) and -most <= int(word) < most:
            layers.append(int(word))
        else:
            raise InputError(
                received=f"--layers with {word!r}",
                expected=f"{-most} to {most - 1} or {EMBEDDINGS}, with commas between",
                remedy="correct --layers",
            )
    return layers


class Extractor:
    """A BERT whose layers are looked at."""

    def __init__(
        self,
        weights: Weights,
        config: BertConfig,
        tokenizer: FullTokenizer,
        *,
        layers: Sequence[int | str],
        pooling: str,
        max_seq_length: int,
        batch_size: int,
    ):
        """Builds the encoder and loads the weights.

        Args:
          weights: of an encoder; heads are left aside.
          config: sizes of the model.
          tokenizer: with its vocabulary.
          layers: as `parse_layers` gives them.
          pooling: none for a vector for each piece; cls for that of [CLS]; mean for the mean over
            all pieces of the line, [CLS] and [SEP] included.
          max_seq_length: pieces of an example at most.
          batch_size: examples of a batch.
        """
        tokenizer.require_special_tokens("[CLS]", "[SEP]")
        config.check_sequence_length(max_seq_length)
        if max_seq_length < 3 or batch_size < 1:
            raise InputError(
                received=f"--max_seq_length={max_seq_length} --batch_size={batch_size}",
                expected="3 or more pieces, 1 or more examples",
                remedy="correct the flags",
            )
        self._tokenizer = tokenizer
        self._pooling = pooling
        self._max_seq_length = max_seq_length
        self._batch_size = batch_size
        model = models.bert_encoder(config, all_layers=True)
        self.load_report = load_checkpoint(model, weights)
        pieces = max_seq_length if pooling == "none" else 1
        batch_bytes = 4 * batch_size * len(layers) * pieces * config.hidden_size
        batches = min(BATCHES_OF_A_WINDOW, max(1, BYTES_OF_A_WINDOW // batch_bytes))
        self._window_size = batches * batch_size
        self._run = _compiled(model, _names_of(layers, config), pooling)

    def extract(self, lines: Iterable[Line]) -> Iterator[Vectors]:
        """The vectors of each line, in order, while lines are read."""
        lines = iter(lines)
        while window := list(itertools.islice(lines, self._window_size)):
            yield from self._window(make_examples(window, self._tokenizer, self._max_seq_length))

    def _window(self, examples: Sequence[Example]) -> list[Vectors]:
        by_length = sorted(range(len(examples)), key=lambda i: len(examples[i].ids))
        found: dict[int, Vectors] = {}
        for start in range(0, len(by_length), self._batch_size):
            rows = by_length[start : start + self._batch_size]
            values = self._batch([examples[i] for i in rows])
            for i, value in zip(rows, values, strict=True):
                ids = examples[i].ids
                tokens = self._tokenizer.convert_ids_to_tokens(ids)
                found[i] = Vectors(
                    tokens, value if self._pooling != "none" else value[:, : len(ids)]
                )
        return [found[i] for i in range(len(examples))]

    def _batch(self, examples: Sequence[Example]) -> np.ndarray:
        """[B, L, S, D] or [B, L, D]; always a whole batch, so that few shapes are compiled."""
        longest = max(len(example.ids) for example in examples)
        length = min(
            next((n for n in LENGTHS if n >= longest), longest), max(self._max_seq_length, longest)
        )
        ids, segments, mask = (np.zeros([self._batch_size, length], np.int32) for _ in range(3))
        mask[len(examples) :, 0] = 1  # rows that are none: a mean over nothing would be NaN
        for row, example in enumerate(examples):
            ids[row, : len(example.ids)] = example.ids
            segments[row, : len(example.ids)] = example.segments
            mask[row, : len(example.ids)] = 1
        return self._run(ids, segments, mask).numpy()[: len(examples)]


def _names_of(layers: Sequence[int | str], config: BertConfig) -> list[str]:
    """The encoder's outputs that are these layers."""
    depth = config.num_hidden_layers
    return ["embedding_output" if x == EMBEDDINGS else f"layer_{x % depth}" for x in layers]


def _compiled(model: keras.Model, names: Sequence[str], pooling: str) -> Callable[..., tf.Tensor]:
    """ids, segments and mask [B, S] -> outputs of those names [B, L, S, D], or [B, L, D]."""

    @tf.function(jit_compile=True)
    def run(ids, segments, mask):
        inputs = {"input_ids": ids, "segment_ids": segments, "input_mask": mask}
        outputs = model(inputs, training=False)
        chosen = tf.stack([outputs[name] for name in names], axis=1)  # [B, L, S, D]
        if pooling == "cls":
            return chosen[:, :, 0]  # [B, L, D]
        if pooling == "mean":
            share = tf.cast(mask, chosen.dtype)[:, None, :, None]  # [B, 1, S, 1]
            return tf.reduce_sum(chosen * share, 2) / tf.reduce_sum(share, 2)  # [B, L, D]
        return chosen

    return run
