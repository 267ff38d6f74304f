"""BERT for inference alone: the arithmetic of `modeling.layers` in a third of the operations.

A second encoder, kept knowingly. An export of the Keras layers takes 22 to 26 % longer for one
short text (26 or 128 tokens) with MiniLM, and 11 to 14 % with BERT-Base (TensorFlow's C API on 2
cores of an AMD EPYC). tests/serving/test_inference.py holds it to the layers, for every head and
every option of a configuration. What differs from the layers:

- query, key and value are one matrix product, and the query's weights include the scores' scale;
- everything between two attentions works on a matrix with a row for each token;
- what a task does not need is left out, such as the pooler of a model for questions.

With a precision of bfloat16 weights are stored, and tensors between operations are, in bfloat16;
norms are computed in float32. oneDNN multiplies them where the CPU does, in a graph that XLA does
not compile: it would multiply float32.

On top of it stand the Keras layers of the head, whichever it is, as their model computes them. The
encoder is TensorFlow variables and functions of them. The functions also run on the variables of a
loaded SavedModel, which have the same names.

Dimensions as in `modeling.layers`: B, S, D, N, H, P, V; T tokens of a batch, B * S.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.loading import named_variables
from bert_tf.config import BertConfig
from bert_tf.modeling.layers import MASKED_SCORE

_SQRT_HALF, _SQRT_2_OF_PI = math.sqrt(0.5), math.sqrt(2 / math.pi)

Tensors = Mapping[str, np.ndarray]
Activations = Mapping[str, Callable[[tf.Tensor], tf.Tensor]]


def _gelu(x: tf.Tensor) -> tf.Tensor:
    """The tanh form."""
    return 0.5 * x * (1.0 + tf.tanh(_SQRT_2_OF_PI * (x + 0.044715 * (x * x * x))))


def _gelu_erf(x: tf.Tensor) -> tf.Tensor:
    """The exact form, written as sessions with oneDNN fuse it with the product before it."""
    return (tf.math.erf(x * _SQRT_HALF) + 1.0) * 0.5 * x


ACTIVATIONS: Activations = {
    "gelu": _gelu,
    "gelu_erf": _gelu_erf,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": lambda x: x,
}
# LiteRT's converter recognizes only this form of the exact GELU as its own operation; sessions
# fuse only the one above.
PORTABLE_ACTIVATIONS: Activations = {
    **ACTIVATIONS,
    "gelu_erf": lambda x: (x * 0.5) * (tf.math.erf(x * _SQRT_HALF) + 1.0),
}


# ---------------------------------------------------------------------------- weights


class _Part(tf.Module):
    """Variables, or parts, by name."""

    def __init__(self, **members: tf.Variable | tf.Module):
        super().__init__()
        for name, value in members.items():
            setattr(self, name, value)


def _variable(value: np.ndarray, precision: str = "float32") -> tf.Variable:
    return tf.Variable(tf.cast(value, precision), trainable=False)


def _dense(tensors: Tensors, scope: str, precision: str) -> _Part:
    kernel, bias = tensors[f"{scope}/kernel"], tensors[f"{scope}/bias"]
    return _Part(kernel=_variable(kernel, precision), bias=_variable(bias, precision))


def _norm(tensors: Tensors, scope: str) -> _Part:
    gamma, beta = tensors[f"{scope}/LayerNorm/gamma"], tensors[f"{scope}/LayerNorm/beta"]
    return _Part(gamma=_variable(gamma), beta=_variable(beta))


def _query_key_value(tensors: Tensors, config: BertConfig, scope: str, precision: str) -> _Part:
    """The three projections as one, [D, 3 * D]."""
    scale = (config.hidden_size // config.num_attention_heads) ** -0.5

    def joined(kind: str) -> np.ndarray:
        query, *rest = (tensors[f"{scope}/{name}/{kind}"] for name in ("query", "key", "value"))
        return np.concatenate([query * scale, *rest], -1)

    kernel, bias = joined("kernel"), joined("bias")
    return _Part(kernel=_variable(kernel, precision), bias=_variable(bias, precision))


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
    """Embeddings and encoder blocks.

    Args:
      weights: an `InferenceModel`, or the `model` of a loaded export.
      config: of the model.
      features: input_ids, input_mask, segment_ids int32 [B, S].
      activations: by name.

    Returns:
      The embeddings and each block's output [T, D], and its attention probabilities [B, N, S, S];
      float32, whatever the weights are.
    """
    ids, segments = features["input_ids"], features["segment_ids"]
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
    outputs, probabilities = [x], []
    for block in weights.blocks:
        context, attended = _attend(x, block, config, mask_scores, batch_shape)
        probabilities.append(attended)
        attention = x + _project(context, block.attention_output)
        x = _normalize(attention, block.attention_norm, config.layer_norm_eps)
        wide = activations[config.hidden_act](_project(x, block.intermediate))  # [T, F]
        x = _normalize(x + _project(wide, block.output), block.output_norm, config.layer_norm_eps)
        outputs.append(x)
    return [tf.cast(y, tf.float32) for y in outputs], [
        tf.cast(p, tf.float32) for p in probabilities
    ]


def _attend(
    x: tf.Tensor, block: Any, config: BertConfig, mask_scores: tf.Tensor, batch_shape: list
) -> tuple[tf.Tensor, tf.Tensor]:
    """x [T, D], mask_scores [B, 1, 1 or S, S] -> context [T, D], probabilities [B, N, S, S]."""
    heads, hidden = config.num_attention_heads, config.hidden_size
    projected = _project(x, block.query_key_value)  # [T, 3 * D]
    projected = tf.reshape(projected, [*batch_shape, 3, heads, hidden // heads])
    query, key, value = tf.unstack(tf.transpose(projected, [2, 0, 3, 1, 4]))  # [B, N, S, H]
    scores = tf.matmul(query, key, transpose_b=True) + mask_scores  # [B, N, S, S]
    probabilities = tf.nn.softmax(scores)
    context = tf.transpose(tf.matmul(probabilities, value), [0, 2, 1, 3])  # [B, S, N, H]
    return tf.reshape(context, [-1, hidden]), probabilities


class InferenceModel(tf.Module):
    """A BERT with what one head needs of it.

    Attributes:
      outputs: their names.
    """

    def __init__(
        self,
        model: keras.Model,
        config: BertConfig,
        outputs: Sequence[str],
        activations: Activations = ACTIVATIONS,
        precision: str = "float32",
    ):
        """Copies the weights of the encoder, and takes the layers on top of it.

        Args:
          model: of a head, with its weights.
          config: of the model.
          outputs: those of the model that are wanted.
          activations: by name; how they are written decides what a converter makes of them.
          precision: float32 or bfloat16; norms are always float32.
        """
        super().__init__()
        self._config, self._activations, self.outputs = config, activations, tuple(outputs)
        tensors = {name: np.asarray(v.value) for name, v in named_variables(model).items()}
        # The model has no layers above those that a BiLSTM reads.
        found = {layer.name for layer in model.layers}
        names = [f"layer_{i}" for i in range(config.num_hidden_layers) if f"layer_{i}" in found]
        scope = "bert/embeddings"
        self.word_embeddings = _variable(tensors[f"{scope}/word_embeddings"], precision)
        self.token_type_embeddings = _variable(tensors[f"{scope}/token_type_embeddings"], precision)
        self.position_embeddings = _variable(tensors[f"{scope}/position_embeddings"], precision)
        self.embedding_norm = _norm(tensors, scope)
        self.blocks = [_block(tensors, config, f"bert/encoder/{name}", precision) for name in names]
        every = [model.get_layer(name).output for name in ("embeddings", *names)]
        *others, last = every
        inputs = [last]
        if "masked_lm_positions" in model.input:
            inputs.append(model.input["masked_lm_positions"])
        on_top = {name: model.output[name] for name in outputs if name != "sequence_output"}
        taken = [name for name in ("input_mask", "segment_ids") if name in model.input]
        self._taken: list[str] = []  # inputs of the model that the head takes, too
        self._reads_all = False  # embeddings and layers
        self._has_choices = len(model.input["input_ids"].shape) == 3
        head = None
        for self._taken, self._reads_all in (([], False), (taken, False), (taken, True)):
            read = inputs + others * self._reads_all + [model.input[n] for n in self._taken]
            try:
                head = keras.Model(read, on_top) if on_top else None
                break
            except ValueError:  # it is not connected to these alone
                if self._reads_all:
                    raise
        # Not tracked: TF Serving's loader does not find the variables of a Keras model.
        self.__dict__["_head"] = head
        self.__dict__["_table"] = model.get_layer("embeddings").word_embeddings
        self.head_weights = [v.value for v in self._head.weights] if on_top else []

    def __call__(self, features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """input_ids, input_mask, segment_ids int32 [B, S] -> `outputs`, as of the Keras model.

        A model of masked tokens takes masked_lm_positions int32 [B, P] too.
        """
        batch_shape = tf.unstack(tf.shape(features["input_ids"]))  # [B, S]
        outputs, _ = encode(self, self._config, features, self._activations)  # [T, D] each
        shape = [*batch_shape, self._config.hidden_size]
        read = outputs if self._reads_all else outputs[-1:]
        *others, sequence = (tf.reshape(x, shape) for x in read)  # [B, S, D]
        taken = (features[name] for name in self._taken)
        if self._has_choices:  # of which there is one
            taken = (value[:, tf.newaxis] for value in taken)  # [B, 1, S]
        given = [sequence, *others, *taken]
        if (positions := features.get("masked_lm_positions")) is not None:
            first = 0
            if self._config.is_causal:  # the head takes each from the place before
                first, positions = 1, tf.maximum(positions - 1, 0)
            # `batch_dims`: a position beyond its row is refused, and never one of another row.
            chosen = tf.gather(sequence, positions, batch_dims=1)  # [B, P, D]
            places = tf.broadcast_to(first + tf.range(tf.shape(positions)[1]), tf.shape(positions))
            given = [chosen, places]
        found = {}
        if self._head is not None:
            # A head of masked words reads the table here, or an export would hold two.
            with keras.StatelessScope([(self._table, tf.convert_to_tensor(self.word_embeddings))]):
                found = self._head(given, training=False)
        answers = {name: found.get(name, sequence) for name in self.outputs}
        # A head of masked words answers in its table's precision.
        return {
            n: tf.cast(a, tf.float32) if a.dtype == tf.bfloat16 else a for n, a in answers.items()
        }
