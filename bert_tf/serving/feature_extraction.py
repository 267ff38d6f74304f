"""Lines -> vectors -> a file: BERT as a fixed encoder (paper, section 5.3).

Lines       "a ||| b"           -> tokens of one example, [CLS] a [SEP] b [SEP]
batches     examples of similar length, padded to one of a few lengths
encoder     the chosen layers
Vectors     in the order of the lines again; a window of them is in memory, not all
file        the original's JSON lines, one NumPy archive, or TFRecords

Source: the original's extract_features.py.

Shapes: B examples of a batch, S its length, T tokens of a line, L chosen layers, N lines.
"""

import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.checkpoints.loading import Weights, load_checkpoint
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.modeling.models import BertModel
from bert_tf.serving.options import EMBEDDINGS, FEATURE_FORMATS
from bert_tf.terminal import announced
from bert_tf.tokenization.packing import Packer, padded
from bert_tf.tokenization.wordpiece import FullTokenizer

LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # S of a batch
BATCHES_OF_A_WINDOW = 64  # at most; a window is sorted by length
BYTES_OF_A_WINDOW = 1 << 28  # of the vectors of a window
DECIMALS = 6  # of the original's JSON

# ---------------------------------------------------------------------------- input


class Line(NamedTuple):
    """A text or a pair of texts."""

    text_a: str
    text_b: str | None = None


def read_lines(path: str, *, jsonl: bool) -> Iterator[Line]:
    """The lines of a file, one at a time (original: `read_examples`).

    Args:
      path: a file in UTF-8, local or remote.
      jsonl: each line is an object with text_a, or text, and perhaps text_b. Otherwise it is a
        text, or two with " ||| " between.

    Raises:
      InputError: the file cannot be read, or a line is not UTF-8 or no such object.
    """
    for number, raw in enumerate(files.read_lines(path), 1):
        yield _parse(raw, jsonl, f"{path}, line {number}")


def _parse(raw: bytes, jsonl: bool, place: str) -> Line:
    try:
        text = raw.decode("utf-8").strip()
        if not jsonl:
            pair = re.match(r"^(.*) \|\|\| (.*)$", text)
            return Line(*pair.groups()) if pair else Line(text)
        values = json.loads(text.removeprefix("\ufeff"), object_pairs_hook=files.each_key_once)
        line = Line(values.get("text_a", values.get("text")), values.get("text_b"))
        if not isinstance(line.text_a, str) or not isinstance(line.text_b, str | None):
            raise TypeError("a text is missing or not a string")
        return line
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        kind = 'JSON such as {"text_a": "...", "text_b": "..."}' if jsonl else "text in UTF-8"
        received = f"{place}: {raw[:80]!r} ({type(error).__name__}: {error})"
        raise InputError(received, kind, "correct the line, or save the file as UTF-8") from None


# ---------------------------------------------------------------------------- examples


class Example(NamedTuple):
    """The tokens of a line: ids and segments [T], with [CLS] and [SEP]."""

    ids: list[int]
    segments: list[int]


def make_examples(
    lines: Sequence[Line], tokenizer: FullTokenizer, max_seq_length: int
) -> list[Example]:
    """Tokenizes lines and cuts them to length (original: `convert_examples_to_features`)."""
    texts = [text for line in lines for text in (line.text_a, line.text_b or "")]
    ids = tokenizer.tokenize_ids(texts).to_list() if texts else []
    packer = Packer(tokenizer, max_seq_length)
    packed = [packer.pack(a, b) for a, b in zip(ids[0::2], ids[1::2], strict=True)]
    return [Example(input_ids, segment_ids) for input_ids, segment_ids, _ in packed]


# ---------------------------------------------------------------------------- vectors


class Vectors(NamedTuple):
    """The vectors of a line.

    Attributes:
      tokens: T word pieces, [CLS] and [SEP] included.
      layers: float32 [L, T, D], or [L, D] if pooled.
    """

    tokens: list[str]
    layers: np.ndarray


def parse_layers(text: str, config: BertConfig) -> list[int | str]:
    """Parses --layers: numbers, negative from the end, and "embeddings".

    Raises:
      InputError: there is no such layer.
    """
    most = config.num_hidden_layers
    layers: list[int | str] = []
    for word in map(str.strip, text.split(",")):
        is_number = re.fullmatch(r"-?[0-9]{1,9}", word) and -most <= int(word) < most
        if not is_number and word != EMBEDDINGS:
            expected = f"{-most} to {most - 1} or {EMBEDDINGS}, with commas between"
            raise InputError(f"--layers with {word!r}", expected, "correct --layers")
        layers.append(int(word) if is_number else word)
    return layers


class Extractor:
    """Computes the vectors of lines.

    Attributes:
      load_report: of the weights.
    """

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
          weights: of an encoder; heads are ignored.
          config: sizes of the model.
          tokenizer: with its vocabulary.
          layers: as from `parse_layers`.
          pooling: none for a vector for each token; cls for that of [CLS]; mean for the mean over
            all tokens of the line, [CLS] and [SEP] included.
          max_seq_length: maximum number of tokens of an example.
          batch_size: B.

        Raises:
          InputError: a size is out of range, or the weights do not fit.
        """
        tokenizer.require_special_tokens("[CLS]", "[SEP]")
        config.check_sequence_length(max_seq_length)
        if max_seq_length < 3 or batch_size < 1:
            received = f"--max_seq_length={max_seq_length} --batch_size={batch_size}"
            raise InputError(received, "3 or more pieces, 1 or more examples", "correct the flags")
        self._tokenizer, self._pooling = tokenizer, pooling
        self._max_seq_length, self._batch_size = max_seq_length, batch_size
        model = BertModel(config, all_layers=True)
        self.load_report = load_checkpoint(model, weights)
        pieces = max_seq_length if pooling == "none" else 1
        batch_bytes = 4 * batch_size * len(layers) * pieces * config.hidden_size
        batches = min(BATCHES_OF_A_WINDOW, max(1, BYTES_OF_A_WINDOW // batch_bytes))
        self._window_size = batches * batch_size
        depth = config.num_hidden_layers
        names = ["embedding_output" if x == EMBEDDINGS else f"layer_{x % depth}" for x in layers]
        self._run = _compiled(model, names, pooling)

    def extract(self, lines: Iterable[Line]) -> Iterator[Vectors]:
        """Yields the vectors of each line, in order, while lines are read."""
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
                tokens = self._tokenizer.convert_ids_to_tokens(examples[i].ids)
                layers = value[:, : len(tokens)] if self._pooling == "none" else value
                found[i] = Vectors(tokens, layers)
        return [found[i] for i in range(len(examples))]

    def _batch(self, examples: Sequence[Example]) -> np.ndarray:
        """Vectors [B, L, S, D] or [B, L, D]; every batch has B rows: fewer shapes to compile."""
        longest = max(len(example.ids) for example in examples)
        length = min(
            next((n for n in LENGTHS if n >= longest), longest), max(self._max_seq_length, longest)
        )
        rows = [(example.ids, example.segments) for example in examples]
        # One piece in rows without an example: a mean over nothing is NaN.
        rows += [([0], [0])] * (self._batch_size - len(rows))
        is_new = not self._run.experimental_get_tracing_count()
        with announced("compile: extract", when=is_new):
            return self._run(padded(rows, length)).numpy()[: len(examples)]  # [B, L, (S,) D]


def _compiled(model: keras.Model, names: Sequence[str], pooling: str) -> Callable[..., tf.Tensor]:
    """The inputs of a model, [B, S] each -> the named outputs [B, L, S, D], or [B, L, D]."""

    @tf.function(jit_compile=True)
    def run(inputs):
        outputs = model(inputs, training=False)
        chosen = tf.stack([outputs[name] for name in names], axis=1)  # [B, L, S, D]
        if pooling == "cls":
            return chosen[:, :, 0]  # [B, L, D]
        if pooling == "mean":
            weights = tf.cast(inputs["input_mask"], chosen.dtype)[:, None, :, None]  # [B, 1, S, 1]
            return tf.reduce_sum(chosen * weights, 2) / tf.reduce_sum(weights, 2)  # [B, L, D]
        return chosen

    return run


# ---------------------------------------------------------------------------- files


def write_jsonl(path: str, vectors: Iterable[Vectors], layers: Sequence[int | str]) -> int:
    """Writes a line for each text, in the original's format; returns their number.

    Without pooling:
        {"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values":
        [...]}]}, ...]}                             (the key is spelled so in the original)
    Pooled:
        {"linex_index": 0, "layers": [{"index": -1, "values": [...]}]}
    """
    count = 0
    with files.whole_file(path) as temporary, tf.io.gfile.GFile(temporary, "w") as file:
        for count, line in enumerate(vectors, 1):
            file.write(json.dumps(_as_json(count - 1, line, layers)) + "\n")
    return count


def _as_json(number: int, line: Vectors, layers: Sequence[int | str]) -> dict:
    def of_layers(values: np.ndarray) -> list[dict]:  # [L, D]
        return [{"index": i, "values": v} for i, v in zip(layers, rounded(values), strict=True)]

    if line.layers.ndim == 2:
        return {"linex_index": number, "layers": of_layers(line.layers)}
    by_token = zip(line.tokens, line.layers.swapaxes(0, 1), strict=True)  # [T, L, D]
    features = [{"token": token, "layers": of_layers(values)} for token, values in by_token]
    return {"linex_index": number, "features": features}


def rounded(values: np.ndarray) -> list:
    """float32 as Python numbers of six decimals, equal to `round` of each."""
    return np.round(values.astype(np.float64), DECIMALS).tolist()


def write_npz(path: str, vectors: Iterable[Vectors], layers: Sequence[int | str]) -> int:
    """Writes one archive, all of it in memory; returns the number of texts.

    Pooled: embeddings float32 [N, L * D], the layers side by side in the order of --layers. Without
    pooling: embeddings float32 [T, L * D] of all tokens of all texts, tokens [T], and row_splits
    int64 [N + 1]: text i has the tokens row_splits[i] to row_splits[i + 1].
    """
    del layers  # their order is that of the columns
    rows, tokens, splits = [], [], [0]
    for line in vectors:
        if line.layers.ndim == 2:
            rows.append(line.layers.reshape(1, -1))
        else:
            rows.append(line.layers.swapaxes(0, 1).reshape(len(line.tokens), -1))  # [T, L * D]
            tokens += line.tokens
        splits.append(splits[-1] + len(rows[-1]))
    arrays = {"embeddings": np.concatenate(rows) if rows else np.zeros([0, 0], np.float32)}
    if tokens:
        arrays |= {"tokens": np.array(tokens), "row_splits": np.array(splits, np.int64)}
    archive = io.BytesIO()  # np.savez seeks, which remote files cannot
    np.savez(archive, **arrays)
    with files.whole_file(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(archive.getvalue())
    return len(splits) - 1


def write_tfrecord(path: str, vectors: Iterable[Vectors], layers: Sequence[int | str]) -> int:
    """Writes a tf.Example for each text; returns their number.

    linex_index int64; tokens bytes [T]; layers bytes [L]; embeddings float, flat; shape int64: that
    of embeddings, [L, T, D], or [L, D] if pooled.
    """
    kinds = {int: "int64_list", bytes: "bytes_list", float: "float_list"}
    lists = {int: tf.train.Int64List, bytes: tf.train.BytesList, float: tf.train.FloatList}

    def feature(kind: type, values: Iterable) -> tf.train.Feature:
        return tf.train.Feature(**{kinds[kind]: lists[kind](value=values)})

    count = 0
    with files.whole_file(path) as temporary, tf.io.TFRecordWriter(temporary) as writer:
        for count, line in enumerate(vectors, 1):
            features = {
                "linex_index": feature(int, [count - 1]),
                "tokens": feature(bytes, map(str.encode, line.tokens)),
                "layers": feature(bytes, (str(layer).encode() for layer in layers)),
                "embeddings": feature(float, line.layers.ravel()),
                "shape": feature(int, line.layers.shape),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return count


WRITERS = dict(zip(FEATURE_FORMATS, (write_jsonl, write_npz, write_tfrecord), strict=True))
