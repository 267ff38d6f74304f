"""What a pre-trained model itself says of texts: vectors of its layers, and how likely they are.

Vectors (paper, section 5.3: BERT as a fixed encoder; source: the original's extract_features.py):

    lines       "a ||| b"           -> tokens of one example, [CLS] a [SEP] b [SEP]
    batches     examples of similar length, padded to one of a few lengths
    vectors     of the chosen layers, in the order of the lines; a window of them is in memory
    file        the original's JSON lines, one NumPy archive, or TFRecords

Scores (Salazar et al., 2020, "Masked Language Model Scoring", sections 2 and 2.3): each token is
masked in turn and predicted from all others; [CLS] and [SEP] are not scored.

    score = sum over t of log P(token t | the other tokens)      perplexity = exp(-score / tokens)

Shapes: B examples of a batch, S its length, T tokens of a line, L chosen layers, N lines.
"""

import dataclasses
import functools
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.checkpoints.keras_files import refuse_other_tokenizer
from bert_tf.checkpoints.matching import load_checkpoint
from bert_tf.checkpoints.metadata import Weights
from bert_tf.config import BertConfig
from bert_tf.data.grouping import LENGTHS, batches_by_length, padded_length
from bert_tf.errors import InputError, quoted
from bert_tf.modeling.models import BertModel
from bert_tf.options import Reading
from bert_tf.serving.inference import InferenceModel, encode
from bert_tf.serving.options import BFLOAT16, EMBEDDINGS, FEATURE_FORMATS, FLOAT32, MASK
from bert_tf.serving.signatures import refuse_not_finite, warn_of_precision
from bert_tf.tables import JSON, JSONL, TEXT, Columns, Row, Texts, open_table, refuse_rows
from bert_tf.terminal import announced
from bert_tf.tokenization.wordpiece import (
    SPECIAL_TOKEN,
    FullTokenizer,
    Packer,
    padded,
    told_cut,
    warn_of_special_tokens,
)

BATCHES_OF_A_WINDOW = 64  # at most; a window is sorted by length
BYTES_OF_A_WINDOW = 1 << 28  # of the vectors of a window
DECIMALS = 6  # of the original's JSON
_LARGEST_EXPONENT = 709  # of exp in a float

# ---------------------------------------------------------------------------- vectors

Line = tuple[str, str | None]  # a text, and another one of a pair


FIRST, SECOND = "text_a", "text_b"  # columns of texts


def read_pairs(
    path: str,
    *,
    given: tuple[str | None, str | None] = (None, None),
    input_format: str | None = None,
    reading: Reading | None = None,
    skip_bad_rows: bool = False,
) -> Iterator[Line]:
    """The texts of a file, one at a time (original: `read_examples`).

    Args:
      path: a file, local or remote: a text a line, or two with " ||| " between; or a table or JSON
        lines with the columns text_a (of JSON also text) and perhaps text_b.
      given: other columns of the first and the second text.
      input_format: one of `tables.KINDS`; None: what the content shows.
      reading: how its bytes are decoded; None where the user has no such options.
      skip_bad_rows: whether rows that cannot be read are empty texts, with a warning.

    Raises:
      InputError: the file cannot be read, or some rows; the message names all of these.
    """
    hint = "; --text_a_column and --text_b_column name the columns of the texts"
    optional = () if given[1] else ("second",)
    by_field = {"first": given[0] or FIRST, "second": given[1] or SECOND}
    columns = Columns(by_field, optional, hint=hint)
    texts = Texts(0 if any(given) else 1)
    table = open_table(path, columns, reading=reading, form=input_format or "", texts=texts)
    flaws: list[InputError] = []
    for row in table.rows:
        line = _line_of(row, table.format.kind, columns)
        if isinstance(line, InputError):
            flaws.append(line)
            line = ("", None)
        if skip_bad_rows or not flaws:
            yield line
    skipped = "empty texts here"
    refuse_rows(table.source, flaws, skip=skip_bad_rows, hint=hint, skipped=skipped)


def _line_of(row: Row, kind: str, columns: Columns) -> Line | InputError:
    """The texts of a row, or why there are none."""
    if row.flaw:
        return row.flaw
    if kind == TEXT:
        pair = re.match(r"^(.*) \|\|\| (.*)$", row.value.strip())
        return (pair[1], pair[2]) if pair else (row.value.strip(), None)
    first, second = row.cells.get("first"), row.cells.get("second")
    if kind in (JSONL, JSON):
        values = row.value if isinstance(row.value, dict) else {FIRST: row.value}
        first = values.get(columns.by_field["first"], values.get("text"))
        second = values.get(columns.by_field["second"])
    if isinstance(first, str) and isinstance(second, str | None):
        return first, second
    received = f"{row.place}: {quoted(first, 40)} and {quoted(second, 40)} as the texts"
    expected = 'texts, as in the JSON {"text_a": "...", "text_b": "..."}'
    return InputError(received, expected, "correct or delete the row")


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
        precision: str = FLOAT32,
    ):
        """Builds the encoder and loads the weights.

        Args:
          weights: of an encoder; heads are ignored.
          config: sizes of the model.
          tokenizer: with its vocabulary.
          layers: as from `parse_layers`.
          pooling: none for a vector for each token; cls for that of [CLS], or of a causal model the
            last token's; mean for the mean over all tokens of the line, [CLS] and [SEP] included.
          max_seq_length: maximum number of tokens of an example.
          batch_size: B.
          precision: what vectors are computed in, one of `options.ANSWER_PRECISIONS`.

        Raises:
          InputError: a size is out of range, or the weights do not fit.
        """
        tokenizer.require_special_tokens("[CLS]", "[SEP]")
        config.check_sequence_length(max_seq_length)
        if max_seq_length < 3 or batch_size < 1:
            received = f"--max_seq_length={max_seq_length} --batch_size={batch_size}"
            raise InputError(received, "3 or more tokens, 1 or more examples", "correct the flags")
        self._tokenizer, self._pooling, self._batch_size = tokenizer, pooling, batch_size
        self._packer, self._max_seq_length = Packer(tokenizer, max_seq_length), max_seq_length
        model: Any = BertModel(config, all_layers=True)
        self.load_report = load_checkpoint(model, weights)
        pieces = max_seq_length if pooling == "none" else 1
        batch_bytes = 4 * batch_size * len(layers) * pieces * config.hidden_size
        batches = min(BATCHES_OF_A_WINDOW, max(1, BYTES_OF_A_WINDOW // batch_bytes))
        self._window_size = batches * batch_size
        depth = config.num_hidden_layers
        names = ["embedding_output" if x == EMBEDDINGS else f"layer_{x % depth}" for x in layers]
        outputs_of = functools.partial(model, training=False)
        if precision == BFLOAT16:
            served = InferenceModel(model, config, (), precision=precision)
            outputs_of = functools.partial(_outputs_of, served, config)
        warn_of_precision(precision)
        # XLA for CPUs would multiply bfloat16 in float32.
        by_xla = precision == FLOAT32 or bool(tf.config.list_physical_devices("GPU"))
        self._run = _compiled(outputs_of, names, pooling, config.is_causal, by_xla=by_xla)

    def extract(self, lines: Iterable[Line]) -> Iterator[Vectors]:
        """Yields the vectors of each line, in order, while lines are read.

        At the end it is logged how many were cut.
        """
        lines = iter(lines)
        number = num_cut = num_special = 0
        while window := list(itertools.islice(lines, self._window_size)):
            vectors, num_cut_here = self._window(window)
            number += len(window)
            num_cut += num_cut_here
            texts = (" ".join(filter(None, line)) for line in window)
            num_special += sum(SPECIAL_TOKEN.search(text) is not None for text in texts)
            yield from vectors
        if num_cut:
            logging.warning("%s", told_cut(num_cut, number, self._max_seq_length))
        warn_of_special_tokens(num_special, number)

    def _window(self, lines: Sequence[Line]) -> tuple[list[Vectors], int]:
        """The vectors of lines, computed in the order of their lengths; how many lines were cut."""
        ids = self._tokenizer.tokenize_ids(
            [text or "" for line in lines for text in line]
        ).to_list()
        pairs = zip(ids[0::2], ids[1::2], strict=True)
        # Original: `convert_examples_to_features`.
        packed = [self._packer.pack(a, b) for a, b in pairs]
        examples = [(ids, segments) for ids, segments, _ in packed]  # [T] each
        lengths = [len(ids) for ids, _ in examples]
        found: dict[int, Vectors] = {}
        for rows in batches_by_length(lengths, batch_size=self._batch_size):
            values = self._batch([examples[i] for i in rows])
            for i, value in zip(rows, values, strict=True):
                tokens = self._tokenizer.convert_ids_to_tokens(examples[i][0])
                layers = value[:, : len(tokens)] if self._pooling == "none" else value
                found[i] = Vectors(tokens, layers)
        num_cut = sum(is_cut for *_, is_cut in packed)
        return [found[i] for i in range(len(examples))], num_cut

    def _batch(self, rows: Sequence[tuple[list[int], list[int]]]) -> np.ndarray:
        """Vectors [B, L, S, D] or [B, L, D]; every batch has B rows: fewer shapes to compile."""
        longest = max(len(ids) for ids, _ in rows)
        length = min(padded_length(longest, LENGTHS), max(self._max_seq_length, longest))
        # One piece in rows without an example: a mean over nothing is NaN.
        whole = [*rows, *([([0], [0])] * (self._batch_size - len(rows)))]
        is_new = not self._run.experimental_get_tracing_count()
        with announced("compile: extract (may take a minute)", when=is_new):
            return self._run(padded(whole, length)).numpy()[: len(rows)]  # [B, L, (S,) D]


def _outputs_of(
    served: InferenceModel, config: BertConfig, inputs: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """As the encoder of all layers gives them, [B, S, D] each, by the encoder for inference."""
    shape = [*tf.unstack(tf.shape(inputs["input_ids"])), config.hidden_size]
    embeddings, *layers = (tf.reshape(x, shape) for x in encode(served, config, inputs)[0])
    return {"embedding_output": embeddings} | {f"layer_{i}": x for i, x in enumerate(layers)}


def _compiled(
    outputs_of: Callable[[Any], Mapping[str, tf.Tensor]],
    names: Sequence[str],
    pooling: str,
    is_causal: bool,
    *,
    by_xla: bool,
) -> Any:
    """The inputs of a model, [B, S] each -> the named outputs [B, L, S, D], or [B, L, D]."""

    @tf.function(jit_compile=by_xla or None)
    def run(inputs):
        outputs = outputs_of(inputs)
        chosen = tf.stack([outputs[name] for name in names], axis=1)  # [B, L, S, D]
        if pooling == "cls":
            if not is_causal:
                return chosen[:, :, 0]  # [B, L, D]
            last = tf.reduce_sum(inputs["input_mask"], 1) - 1  # [B]
            return tf.gather(chosen, last, axis=2, batch_dims=1)  # [B, L, D]
        if pooling == "mean":
            weights = tf.cast(inputs["input_mask"], chosen.dtype)[:, None, :, None]  # [B, 1, S, 1]
            return tf.reduce_sum(chosen * weights, 2) / tf.reduce_sum(weights, 2)  # [B, L, D]
        return chosen

    return run


# ---------------------------------------------------------------------------- files of vectors


def write_jsonl(path: str, vectors: Iterable[Vectors], layers: Sequence[int | str]) -> int:
    """Writes a line for each text, in the original's format; returns their number.

    Without pooling:
        {"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1, "values":
        [...]}]}, ...]}                             (the key is spelled so in the original)
    Pooled:
        {"linex_index": 0, "layers": [{"index": -1, "values": [...]}]}
    """

    def of_layers(values: np.ndarray) -> dict[str, Any]:  # [L, D]
        # float32 as Python numbers of six decimals, equal to `round` of each.
        numbers = np.round(values.astype(np.float64), DECIMALS).tolist()
        both = zip(layers, numbers, strict=True)
        return {"layers": [{"index": layer, "values": value} for layer, value in both]}

    count = 0
    with files.published(path) as temporary, tf.io.gfile.GFile(temporary, "w") as file:
        for count, (tokens, values) in enumerate(vectors, 1):
            content: dict[str, Any] = {"linex_index": count - 1}
            if values.ndim == 2:
                content |= of_layers(values)
            else:
                by_token = zip(tokens, values.swapaxes(0, 1), strict=True)  # [T, L, D]
                content["features"] = [{"token": token} | of_layers(v) for token, v in by_token]
            file.write(json.dumps(content) + "\n")
    return count


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
    table = np.concatenate(rows) if rows else np.zeros([0, 0], np.float32)
    arrays: dict[str, Any] = {"embeddings": table}
    if tokens:
        arrays |= {"tokens": np.array(tokens), "row_splits": np.array(splits, np.int64)}
    archive = io.BytesIO()  # np.savez seeks, which remote files cannot
    np.savez(archive, **arrays)
    with files.published(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(archive.getvalue())
    return len(splits) - 1


def write_tfrecord(path: str, vectors: Iterable[Vectors], layers: Sequence[int | str]) -> int:
    """Writes a tf.Example for each text; returns their number.

    linex_index int64; tokens bytes [T]; layers bytes [L]; embeddings float, flat; shape int64: that
    of embeddings, [L, T, D], or [L, D] if pooled.
    """
    names = [str(layer).encode() for layer in layers]
    count = 0
    with files.published(path) as temporary, tf.io.TFRecordWriter(temporary) as writer:
        for count, (tokens, values) in enumerate(vectors, 1):
            example = tf.train.Example()
            feature = example.features.feature
            feature["linex_index"].int64_list.value.append(count - 1)
            feature["tokens"].bytes_list.value.extend(map(str.encode, tokens))
            feature["layers"].bytes_list.value.extend(names)
            feature["embeddings"].float_list.value.extend(values.ravel())
            feature["shape"].int64_list.value.extend(values.shape)
            writer.write(example.SerializeToString())
    return count


WRITERS = dict(zip(FEATURE_FORMATS, (write_jsonl, write_npz, write_tfrecord), strict=True))

# ---------------------------------------------------------------------------- scores


@dataclasses.dataclass(frozen=True)
class Score:
    """The pseudo-log-likelihood of a text, in nats, and of how many tokens it is the sum."""

    score: float
    tokens: int

    @property
    def perplexity(self) -> float | None:
        """Of a token on average; None for no tokens, or beyond the range of floats."""
        mean = -self.score / self.tokens if self.tokens else math.inf
        return math.exp(mean) if mean < _LARGEST_EXPONENT else None

    def __add__(self, other: "Score") -> "Score":
        """Of both texts together."""
        return Score(self.score + other.score, self.tokens + other.tokens)


class Scorer:
    """Scores texts with a pre-trained model."""

    def __init__(
        self,
        model: keras.Model,
        tokenizer: FullTokenizer,
        *,
        max_seq_length: int,
        batch_size: int = 32,
    ):
        """Compiles the model at its first use.

        Args:
          model: of a head that has masked_lm_logits, such as "fill_mask".
          tokenizer: the one that the model was trained with.
          max_seq_length: maximum number of tokens, [CLS] and [SEP] included. Each token of a longer
            text is predicted from that many around it, nearer tokens first.
          batch_size: masked copies of a text that are computed at a time.

        Raises:
          InputError: the model has no masked_lm_logits, the vocabulary is not the model's or lacks
            [CLS], [SEP] or [MASK], or no token has room.
        """
        if max_seq_length < 3:
            remedy = "leave room for [CLS] and [SEP]"
            raise InputError(f"max_seq_length {max_seq_length}", "3 or more", remedy)
        refuse_other_tokenizer(model, tokenizer, max_seq_length=max_seq_length)
        tokenizer.require_special_tokens("[CLS]", "[SEP]", MASK)
        if "masked_lm_logits" not in (model.output if isinstance(model.output, dict) else ()):
            remedy = 'give a model of bert_tf.load(path, head="fill_mask")'
            raise InputError(model.name, "a model with the output masked_lm_logits", remedy)
        self.tokenizer, self.batch_size = tokenizer, batch_size
        self._packer = Packer(tokenizer)
        self.most_tokens = max_seq_length - 2  # of a text that is scored as a whole
        self._losses = _losses_of(model)

    def score(self, text: str | bytes) -> Score:
        """Scores a text, which takes a masked copy for each of its tokens.

        Raises:
          InputError: the model's logits are NaN or infinite.
        """
        (ids,) = self.tokenizer.tokenize_ids([text]).to_list()
        losses = []
        for first in range(0, len(ids), self.batch_size):
            labels = ids[first : first + self.batch_size]
            copies = (self._masked(ids, first + i) for i in range(len(labels)))
            rows, places = zip(*copies, strict=True)
            found = self._losses(*(tf.constant(x, tf.int32) for x in (rows, places, labels)))
            refuse_not_finite({"masked-LM logits": found.numpy()})
            losses += found.numpy().astype(np.float64).tolist()
        return Score(0.0 - math.fsum(losses), len(ids))  # 0, not -0, of no token

    def _masked(self, ids: list[int], place: int) -> tuple[list[int], int]:
        """The tokens around a masked one, and where it is among them."""
        width = min(len(ids), self.most_tokens)
        first = min(max(place - width // 2, 0), len(ids) - width)  # of the tokens that are seen
        copy, _ = self._packer.join(ids[first : first + width], [])
        copy[place - first + 1] = self.tokenizer.vocab[MASK]
        return copy, place - first + 1


def _losses_of(model: keras.Model) -> Callable[..., tf.Tensor]:
    """The graph from copies int32 [B, S], the masked position and its token [B] to -log P [B]."""

    def losses(ids: tf.Tensor, positions: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        inputs = {
            "input_ids": ids,
            "input_mask": tf.ones_like(ids),
            "segment_ids": tf.zeros_like(ids),
            "masked_lm_positions": positions[:, tf.newaxis],
        }
        logits = model(inputs, training=False)["masked_lm_logits"][:, 0]  # [B, V]
        return tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=tf.cast(logits, tf.float32)
        )

    shapes = ([None, None], [None], [None])
    return tf.function(losses, input_signature=[tf.TensorSpec(s, tf.int32) for s in shapes])
