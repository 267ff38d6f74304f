"""BERT for inference alone: the arithmetic of `modeling.layers` in a third of the operations.

A second encoder, for its speed: an export of the Keras layers takes 22 to 26 % longer for one
short text (26 or 128 tokens) with MiniLM, and 11 to 14 % with BERT-Base (TensorFlow's C API on 2
cores of an AMD EPYC). tests/serving/test_inference.py compares it with the layers, for every head
and every option of a configuration. What differs from the layers:

- query, key and value are one matrix product, and the query's weights include the scores' scale;
- everything between two attentions works on a matrix with a row for each token;
- what a task does not need is left out, such as the pooler of a model for questions.

With the precision bfloat16, weights and the tensors between operations are bfloat16; norms are
computed in float32. oneDNN multiplies in bfloat16 on CPUs that can, but not in a graph that XLA
compiles: XLA for CPUs multiplies in float32.

The head is computed by the Keras layers of its model, on top of this encoder. The encoder consists
of TensorFlow variables and functions of them. The functions also run on the variables of a loaded
SavedModel, which have the same names.

Dimensions as in `modeling.layers`: B, S, D, N, H, F, P, V; T tokens of a batch, B * S.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.loading import named_variables
from bert_tf.config import BertConfig
from bert_tf.modeling.layers import MASKED_SCORE

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OF_PI = math.sqrt(2 / math.pi)

Tensors = Mapping[str, np.ndarray]
Activations = Mapping[str, Callable[[tf.Tensor], tf.Tensor]]


def _gelu(x: tf.Tensor) -> tf.Tensor:
    """GELU by the approximation with tanh."""
    return 0.5 * x * (1.0 + tf.tanh(_SQRT_2_OF_PI * (x + 0.044715 * (x * x * x))))


def _gelu_erf(x: tf.Tensor) -> tf.Tensor:
    """The exact GELU, in the form that oneDNN fuses with the matrix product before it."""
    return (tf.math.erf(x * _SQRT_HALF) + 1.0) * 0.5 * x


ACTIVATIONS: Activations = {
    "gelu": _gelu,
    "gelu_erf": _gelu_erf,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": lambda x: x,
}
# LiteRT's converter recognizes only this form of the exact GELU; oneDNN fuses only the one above.
PORTABLE_ACTIVATIONS: Activations = {
    **ACTIVATIONS,
    "gelu_erf": lambda x: (x * 0.5) * (tf.math.erf(x * _SQRT_HALF) + 1.0),
}


# ---------------------------------------------------------------------------- weights


class _Part(tf.Module):
    """Variables and other parts as attributes, by name."""

    def __init__(self, **members: tf.Variable | tf.Module):
        super().__init__()
        for name, value in members.items():
            setattr(self, name, value)


def _variable(value: np.ndarray, precision: str = "float32") -> tf.Variable:
    return tf.Variable(tf.cast(value, precision), trainable=False)


def _dense(tensors: Tensors, scope: str, precision: str) -> _Part:
    return _Part(
        kernel=_variable(tensors[f"{scope}/kernel"], precision),
        bias=_variable(tensors[f"{scope}/bias"], precision),
    )


def _norm(tensors: Tensors, scope: str) -> _Part:
    return _Part(
        gamma=_variable(tensors[f"{scope}/LayerNorm/gamma"]),
        beta=_variable(tensors[f"{scope}/LayerNorm/beta"]),
    )


def _query_key_value(tensors: Tensors, config: BertConfig, scope: str, precision: str) -> _Part:
    """The three projections as one, [D, 3 * D]; the query's includes the scale 1 / sqrt(H)."""
    scale = (config.hidden_size // config.num_attention_heads) ** -0.5

    def joined(kind: str) -> np.ndarray:
        query = tensors[f"{scope}/query/{kind}"]
        key = tensors[f"{scope}/key/{kind}"]
        value = tensors[f"{scope}/value/{kind}"]
        return np.concatenate([query * scale, key, value], -1)

    return _Part(
        kernel=_variable(joined("kernel"), precision), bias=_variable(joined("bias"), precision)
    )


def _block(tensors: Tensors, config: BertConfig, scope: str, precision: str) -> _Part:
    projections = _query_key_value(tensors, config, f"{scope}/attention/self", precision)
    return _Part(
        query_key_value=projections,
        attention_output=_dense(tensors, f"{scope}/attention/output/dense", precision),
        attention_norm=_norm(tensors, f"{scope}/attention/output"),
        intermediate=_dense(tensors, f"{scope}/intermediate/dense", precision),
        output=_dense(tensors, f"{scope}/output/dense", precision),
        output_norm=_norm(tensors, f"{scope}/output"),
    )


# ---------------------------------------------------------------------------- arithmetic


def _project(x: tf.Tensor, weights: Any) -> tf.Tensor:
    """x [T, in] -> x W + b [T, out]; sessions fuse these two operations."""
    return tf.nn.bias_add(tf.matmul(x, weights.kernel), weights.bias)


def _normalize(x: tf.Tensor, weights: Any, epsilon: float) -> tf.Tensor:
    """Layer normalization of x [T, D], computed in float32."""
    y = tf.cast(x, tf.float32)
    y -= tf.reduce_mean(y, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(y), -1, keepdims=True)
    y = y * tf.math.rsqrt(variance + epsilon) * weights.gamma + weights.beta
    return tf.cast(y, x.dtype)


def encode(
    weights: Any,
    config: BertConfig,
    features: Mapping[str, tf.Tensor],
    activations: Activations = ACTIVATIONS,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Computes the embeddings and the encoder blocks.

    Args:
      weights: an `InferenceModel`, or the `model` of a loaded export.
      config: the configuration of the model.
      features: input_ids, input_mask, segment_ids int32 [B, S].
      activations: by name.

    Returns:
      The embeddings and the output of each block, [T, D] each; and the attention probabilities of
      each block, [B, N, S, S]. All are float32, whatever the weights are.
    """
    ids = features["input_ids"]
    segments = features["segment_ids"]
    batch_shape = tf.unstack(tf.shape(ids))  # [B, S]
    x = tf.gather(weights.word_embeddings, ids) + tf.gather(weights.token_type_embeddings, segments)
    x += weights.position_embeddings[: batch_shape[1]]  # [S, D] to each row
    x = tf.reshape(x, [-1, config.hidden_size])  # [T, D]
    x = _normalize(x, weights.embedding_norm, config.layer_norm_eps)
    seen = tf.cast(features["input_mask"], tf.float32)[:, tf.newaxis, tf.newaxis]  # [B, 1, 1, S]
    if config.is_causal:
        places = tf.range(batch_shape[1])
        seen *= tf.cast(places[:, tf.newaxis] >= places, tf.float32)  # [B, 1, S, S]
    mask_scores = tf.cast((1.0 - seen) * MASKED_SCORE, x.dtype)
    outputs = [x]
    probabilities = []
    for block in weights.blocks:
        context, block_probabilities = _attend(x, block, config, mask_scores, batch_shape)
        probabilities.append(block_probabilities)
        attention = x + _project(context, block.attention_output)
        x = _normalize(attention, block.attention_norm, config.layer_norm_eps)
        wide = activations[config.hidden_act](_project(x, block.intermediate))  # [T, F]
        x = _normalize(x + _project(wide, block.output), block.output_norm, config.layer_norm_eps)
        outputs.append(x)
    outputs = [tf.cast(output, tf.float32) for output in outputs]
    probabilities = [tf.cast(p, tf.float32) for p in probabilities]
    return outputs, probabilities


def _attend(
    x: tf.Tensor, block: Any, config: BertConfig, mask_scores: tf.Tensor, batch_shape: list
) -> tuple[tf.Tensor, tf.Tensor]:
    """x [T, D], mask_scores [B, 1, 1 or S, S] -> context [T, D], probabilities [B, N, S, S]."""
    heads = config.num_attention_heads
    hidden = config.hidden_size
    projected = _project(x, block.query_key_value)  # [T, 3 * D]
    projected = tf.reshape(projected, [*batch_shape, 3, heads, hidden // heads])
    query, key, value = tf.unstack(tf.transpose(projected, [2, 0, 3, 1, 4]))  # [B, N, S, H]
    scores = tf.matmul(query, key, transpose_b=True) + mask_scores  # [B, N, S, S]
    probabilities = tf.nn.softmax(scores)
    context = tf.transpose(tf.matmul(probabilities, value), [0, 2, 1, 3])  # [B, S, N, H]
    return tf.reshape(context, [-1, hidden]), probabilities


class InferenceModel(tf.Module):
    """A BERT with one head, and only the layers that the head needs.

    Attributes:
      outputs: the names of the outputs.
      word_embeddings, token_type_embeddings, position_embeddings, embedding_norm, blocks: weights
        of the encoder, which `encode` reads.
      head_weights: the variables of the head.
    """

    def __init__(
        self,
        model: keras.Model,
        config: BertConfig,
        outputs: Sequence[str],
        activations: Activations = ACTIVATIONS,
        precision: str = "float32",
    ):
        """Copies the weights of the encoder, and uses the model's layers on top of it.

        Args:
          model: the model of a head, with its weights.
          config: the configuration of the model.
          outputs: the names of the model's outputs that are computed.
          activations: by name, in the form that a converter recognizes.
          precision: float32 or bfloat16; norms are always float32.
        """
        super().__init__()
        self._config = config
        self._activations = activations
        self.outputs = tuple(outputs)
        tensors = {name: np.asarray(v.value) for name, v in named_variables(model).items()}
        layers = {layer.name for layer in model.layers}
        # A model whose head reads an inner layer has no layers above it.
        names = [f"layer_{i}" for i in range(config.num_hidden_layers) if f"layer_{i}" in layers]
        scope = "bert/embeddings"
        self.word_embeddings = _variable(tensors[f"{scope}/word_embeddings"], precision)
        self.token_type_embeddings = _variable(tensors[f"{scope}/token_type_embeddings"], precision)
        self.position_embeddings = _variable(tensors[f"{scope}/position_embeddings"], precision)
        self.embedding_norm = _norm(tensors, scope)
        self.blocks = [_block(tensors, config, f"bert/encoder/{name}", precision) for name in names]
        self._has_choices = len(model.input["input_ids"].shape) == 3
        self._taken: list[str] = []  # names of the model's inputs that the head takes too
        self._reads_all = False  # whether the head reads the embeddings and all layers
        head = self._head_of(model, names)
        # Not tracked: TF Serving's loader does not find the variables of a Keras model.
        self.__dict__["_head"] = head
        self.__dict__["_table"] = model.get_layer("embeddings").word_embeddings
        self.head_weights = [v.value for v in head.weights] if head else []

    def _head_of(self, model: keras.Model, names: Sequence[str]) -> keras.Model | None:
        """The layers above the encoder, as a model of as few inputs as they need; None for none.

        Sets `_taken` and `_reads_all`, by which `__call__` makes its inputs.

        Args:
          model: the model of a head.
          names: the names of its encoder blocks.
        """
        outputs = {name: model.output[name] for name in self.outputs if name != "sequence_output"}
        if not outputs:
            return None
        *others, last = (model.get_layer(name).output for name in ("embeddings", *names))
        inputs = [last]
        if "masked_lm_positions" in model.input:
            inputs.append(model.input["masked_lm_positions"])
        features = [name for name in ("input_mask", "segment_ids") if name in model.input]

        def head_with(taken: list[str], *, reads_all: bool) -> keras.Model:
            self._taken = taken
            self._reads_all = reads_all
            layers = others if reads_all else []
            return keras.Model([*inputs, *layers, *(model.input[n] for n in taken)], outputs)

        for taken in ([], features):
            # Keras raises ValueError where the outputs need more inputs than these.
            with contextlib.suppress(ValueError):
                return head_with(taken, reads_all=False)
        return head_with(features, reads_all=True)

    def __call__(self, features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """input_ids, input_mask, segment_ids int32 [B, S] -> the outputs that the Keras model has.

        A model with a masked-LM head takes masked_lm_positions int32 [B, P] too.
        """
        batch_shape = tf.unstack(tf.shape(features["input_ids"]))  # [B, S]
        outputs, _ = encode(self, self._config, features, self._activations)  # [T, D] each
        shape = [*batch_shape, self._config.hidden_size]
        read = outputs if self._reads_all else outputs[-1:]
        *others, sequence = (tf.reshape(x, shape) for x in read)  # [B, S, D]
        taken = [features[name] for name in self._taken]
        if self._has_choices:  # every row is the only choice
            taken = [value[:, tf.newaxis] for value in taken]  # [B, 1, S]
        inputs = [sequence, *others, *taken]
        if (positions := features.get("masked_lm_positions")) is not None:
            inputs = self._inputs_of_positions(sequence, positions)
        head_outputs = {}
        if self._head is not None:
            # A masked-LM head reads this table instead of its own, or an export would hold two.
            with keras.StatelessScope([(self._table, tf.convert_to_tensor(self.word_embeddings))]):
                head_outputs = self._head(inputs, training=False)
        answers = {}
        for name in self.outputs:
            answer = head_outputs.get(name, sequence)
            # A masked-LM head answers in the precision of the table.
            answers[name] = tf.cast(answer, tf.float32) if answer.dtype == tf.bfloat16 else answer
        return answers

    def _inputs_of_positions(self, sequence: tf.Tensor, positions: tf.Tensor) -> list[tf.Tensor]:
        """The inputs of a masked-LM head: vectors of the positions only, and where they are now.

        Args:
          sequence: float [B, S, D].
          positions: int32 [B, P].

        Returns:
          Vectors [B, P, D], and the positions of these vectors [B, P].
        """
        first = 0
        if self._config.is_causal:  # the head reads the vector before each position
            first = 1
            positions = tf.maximum(positions - 1, 0)
        # With `batch_dims` a position beyond its row is refused, and never reads another row.
        chosen = tf.gather(sequence, positions, batch_dims=1)  # [B, P, D]
        places = tf.broadcast_to(first + tf.range(tf.shape(positions)[1]), tf.shape(positions))
        return [chosen, places]
