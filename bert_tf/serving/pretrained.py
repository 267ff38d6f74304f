"""A pre-trained model without a task: vectors of its layers, and how likely texts are.

Vectors (paper, section 5.3: BERT as a fixed encoder; source: the original's extract_features.py):

    lines       "a ||| b" -> tokens of one example, [CLS] a [SEP] b [SEP]
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

BATCHES_OF_A_WINDOW = 64  # at most; the lines of a window are sorted by length
BYTES_OF_A_WINDOW = 1 << 28  # of vectors
DECIMALS = 6  # in the original's JSON
_LARGEST_EXPONENT = 709  # exp of more is beyond a float

# ---------------------------------------------------------------------------- vectors

Line = tuple[str, str | None]  # a text, and the second one of a pair
Example = tuple[list[int], list[int]]  # ids and segment ids [T]

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
      given: the columns of the first and the second text; None for these names.
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
    first = row.cells.get("first")
    second = row.cells.get("second")
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
      load_report: the report on loading the weights.
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
          weights: the weights of an encoder; heads are ignored.
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
        self._tokenizer = tokenizer
        self._packer = Packer(tokenizer, max_seq_length)
        self._pooling = pooling
        self._batch_size = batch_size
        self._max_seq_length = max_seq_length
        self._window_size = _window_size(
            batch_size,
            num_layers=len(layers),
            num_vectors=max_seq_length if pooling == "none" else 1,
            hidden_size=config.hidden_size,
        )
        model: Any = BertModel(config, all_layers=True)
        self.load_report = load_checkpoint(model, weights)
        names = [_output_of_layer(layer, config) for layer in layers]
        outputs_of = functools.partial(model, training=False)
        if precision == BFLOAT16:
            served = InferenceModel(model, config, (), precision=precision)
            outputs_of = functools.partial(_outputs_of, served, config)
        warn_of_precision(precision)
        # XLA for CPUs multiplies bfloat16 in float32.
        by_xla = precision == FLOAT32 or bool(tf.config.list_physical_devices("GPU"))
        self._run = _compiled(outputs_of, names, pooling, config.is_causal, by_xla=by_xla)

    def extract(self, lines: Iterable[Line]) -> Iterator[Vectors]:
        """Yields the vectors of each line, in order, while lines are read.

        At the end the number of cut lines is logged.
        """
        lines = iter(lines)
        number = 0
        num_cut = 0
        num_special = 0
        while window := list(itertools.islice(lines, self._window_size)):
            vectors, num_cut_of_window = self._window(window)
            number += len(window)
            num_cut += num_cut_of_window
            for line in window:
                text = " ".join(filter(None, line))
                num_special += SPECIAL_TOKEN.search(text) is not None
            yield from vectors
        if num_cut:
            logging.warning("%s", told_cut(num_cut, number, self._max_seq_length))
        warn_of_special_tokens(num_special, number)

    def _window(self, lines: Sequence[Line]) -> tuple[list[Vectors], int]:
        """The vectors of lines, in their order, and the number of lines that were cut."""
        texts = [text or "" for line in lines for text in line]
        ids = self._tokenizer.tokenize_ids(texts).to_list()
        # Original: `convert_examples_to_features`.
        examples: list[Example] = []
        num_cut = 0
        for ids_a, ids_b in zip(ids[0::2], ids[1::2], strict=True):
            example_ids, segments, is_cut = self._packer.pack(ids_a, ids_b)
            examples.append((example_ids, segments))
            num_cut += is_cut
        lengths = [len(example_ids) for example_ids, _ in examples]
        vectors: dict[int, Vectors] = {}
        for rows in batches_by_length(lengths, batch_size=self._batch_size):
            values = self._batch([examples[i] for i in rows])
            for i, value in zip(rows, values, strict=True):
                tokens = self._tokenizer.convert_ids_to_tokens(examples[i][0])
                layers = value[:, : len(tokens)] if self._pooling == "none" else value
                vectors[i] = Vectors(tokens, layers)
        return [vectors[i] for i in range(len(examples))], num_cut

    def _batch(self, examples: Sequence[Example]) -> np.ndarray:
        """Vectors [B, L, S, D] or [B, L, D] of at most B examples.

        Every batch that is computed has B rows, so that fewer shapes are compiled.
        """
        longest = max(len(ids) for ids, _ in examples)
        length = min(padded_length(longest, LENGTHS), max(self._max_seq_length, longest))
        # Rows without an example have one piece: a mean over nothing is NaN.
        fillers = [([0], [0])] * (self._batch_size - len(examples))
        is_new = not self._run.experimental_get_tracing_count()
        with announced("compile: extract (may take a minute)", when=is_new):
            vectors = self._run(padded([*examples, *fillers], length)).numpy()
        return vectors[: len(examples)]


def _window_size(batch_size: int, *, num_layers: int, num_vectors: int, hidden_size: int) -> int:
    """The lines of a window, in whole batches; `num_vectors` are those of a line and layer."""
    batch_bytes = 4 * batch_size * num_layers * num_vectors * hidden_size
    batches = min(BATCHES_OF_A_WINDOW, max(1, BYTES_OF_A_WINDOW // batch_bytes))
    return batches * batch_size


def _output_of_layer(layer: int | str, config: BertConfig) -> str:
    """The name of the model's output with the vectors of a layer, as from `parse_layers`."""
    if isinstance(layer, str):
        return "embedding_output"
    return f"layer_{layer % config.num_hidden_layers}"


def _outputs_of(
    served: InferenceModel, config: BertConfig, inputs: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """All layers by the encoder for inference, [B, S, D] each, under `BertModel`'s names."""
    shape = [*tf.unstack(tf.shape(inputs["input_ids"])), config.hidden_size]
    encoded, _ = encode(served, config, inputs)  # [T, D] each
    embeddings, *layers = (tf.reshape(x, shape) for x in encoded)
    return {"embedding_output": embeddings} | {f"layer_{i}": x for i, x in enumerate(layers)}


def _compiled(
    outputs_of: Callable[[Any], Mapping[str, tf.Tensor]],
    names: Sequence[str],
    pooling: str,
    is_causal: bool,
    *,
    by_xla: bool,
) -> Any:
    """A graph from a model's inputs [B, S] to the named outputs, [B, L, S, D] or [B, L, D]."""

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
        # Rounded in float64, which gives the same decimals as Python's `round`.
        numbers = np.round(values.astype(np.float64), DECIMALS).tolist()
        listed = []
        for layer, numbers_of_layer in zip(layers, numbers, strict=True):
            listed.append({"index": layer, "values": numbers_of_layer})
        return {"layers": listed}

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
    del layers  # an argument of every writer; the columns are in this order
    tables: list[np.ndarray] = []  # of each text
    tokens: list[str] = []
    splits = [0]
    for text in vectors:
        if text.layers.ndim == 2:  # pooled
            tables.append(text.layers.reshape(1, -1))
        else:
            tables.append(text.layers.swapaxes(0, 1).reshape(len(text.tokens), -1))  # [T, L * D]
            tokens += text.tokens
        splits.append(splits[-1] + len(tables[-1]))
    embeddings = np.concatenate(tables) if tables else np.zeros([0, 0], np.float32)
    arrays: dict[str, Any] = {"embeddings": embeddings}
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
    """The pseudo-log-likelihood of a text, in nats, and the number of tokens it is a sum over."""

    score: float
    tokens: int

    @property
    def perplexity(self) -> float | None:
        """exp of the mean loss of a token; None without tokens, or beyond the range of floats."""
        mean = -self.score / self.tokens if self.tokens else math.inf
        return math.exp(mean) if mean < _LARGEST_EXPONENT else None

    def __add__(self, other: "Score") -> "Score":
        """The score of two texts together."""
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
          model: the model of a head that has masked_lm_logits, such as "fill_mask".
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
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self._packer = Packer(tokenizer)
        self.most_tokens = max_seq_length - 2  # of a text that is scored as a whole
        self._losses = _losses_of(model)

    def score(self, text: str | bytes) -> Score:
        """Scores a text by a masked copy for each of its tokens.

        Raises:
          InputError: the model's logits are NaN or infinite.
        """
        (ids,) = self.tokenizer.tokenize_ids([text]).to_list()
        losses = []
        for first in range(0, len(ids), self.batch_size):
            labels = ids[first : first + self.batch_size]
            copies = []
            positions = []
            for place in range(first, first + len(labels)):
                copy, position = self._masked(ids, place)
                copies.append(copy)
                positions.append(position)
            batch_losses = self._losses(
                tf.constant(copies, tf.int32),
                tf.constant(positions, tf.int32),
                tf.constant(labels, tf.int32),
            ).numpy()
            refuse_not_finite({"masked-LM logits": batch_losses})
            losses += batch_losses.astype(np.float64).tolist()
        return Score(0.0 - math.fsum(losses), len(ids))  # 0, not -0, without tokens

    def _masked(self, ids: list[int], place: int) -> tuple[list[int], int]:
        """A copy with the token at `place` masked, and the position of [MASK] in it.

        It has the tokens around that one, as many as fit, with [CLS] and [SEP].
        """
        width = min(len(ids), self.most_tokens)
        first = min(max(place - width // 2, 0), len(ids) - width)  # token of the copy
        copy, _ = self._packer.join(ids[first : first + width], [])
        copy[place - first + 1] = self.tokenizer.vocab[MASK]
        return copy, place - first + 1


def _losses_of(model: keras.Model) -> Callable[..., tf.Tensor]:
    """A graph from copies int32 [B, S], the masked position and its token [B] to -log P [B]."""

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

    copies = tf.TensorSpec([None, None], tf.int32)
    numbers = tf.TensorSpec([None], tf.int32)
    return tf.function(losses, input_signature=[copies, numbers, numbers])
