"""BERT for answering alone: the arithmetic of `bert_tf.layers` in a third of the operations.

Nothing of Keras is in it: TensorFlow variables, and a function of them. What differs:

- query, key and value are one matrix product, the scale of the scores already in the query's
  weights;
- all between two attentions works on a matrix with a row for each token;
- what a task does not need, such as the pooler of a model for questions, is left out.

Dimensions as in `bert_tf.layers`: B, S, D, N, H, V; T tokens of a batch, B * S; L classes.
"""

import math
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.tf1 import checkpoint_name
from bert_tf.config import BertConfig
from bert_tf.modeling.layers import MASKED_SCORE

SEQUENCE, TOKENS, SPANS, MASKED_LM, VECTORS = "sequence", "tokens", "spans", "masked_lm", "vectors"
HEADS = (SEQUENCE, TOKENS, SPANS, MASKED_LM, VECTORS)
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
# The exact form as LiteRT's converter knows it for its own operation. It does not know the other
# one, and the sessions not this one.
PORTABLE_ACTIVATIONS: Activations = {
    **ACTIVATIONS,
    "gelu_erf": lambda x: (x * 0.5) * (tf.math.erf(x * _SQRT_HALF) + 1.0),
}


def tensors_of(model: keras.Model) -> dict[str, np.ndarray]:
    """The weights of one of `bert_tf.models` by the original's names."""
    return {checkpoint_name(v): np.asarray(v.value) for v in model.trainable_variables}


class Dense(tf.Module):
    """x [T, in] -> x W + b [T, out]."""

    def __init__(self, kernel: np.ndarray, bias: np.ndarray):
        super().__init__()
        self.kernel, self.bias = _variable(kernel), _variable(bias)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        # These two operations are fused when a session runs them.
        return tf.nn.bias_add(tf.matmul(x, self.kernel), self.bias)


class Norm(tf.Module):
    """Layer normalization of [T, D]."""

    def __init__(self, tensors: Tensors, scope: str, epsilon: float):
        super().__init__()
        self.gamma = _variable(tensors[f"{scope}/gamma"])
        self.beta = _variable(tensors[f"{scope}/beta"])
        self._epsilon = epsilon

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        x -= tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x), -1, keepdims=True)
        return x * tf.math.rsqrt(variance + self._epsilon) * self.gamma + self.beta


class Block(tf.Module):
    """One Transformer block."""

    def __init__(self, tensors: Tensors, config: BertConfig, scope: str, activations: Activations):
        super().__init__()
        epsilon = config.layer_norm_eps
        self._heads = config.num_attention_heads
        self._activation = activations[config.hidden_act]
        self.query_key_value = _query_key_value(tensors, config, f"{scope}/attention/self")
        self.attention_output = _dense(tensors, f"{scope}/attention/output/dense")
        self.attention_norm = Norm(tensors, f"{scope}/attention/output/LayerNorm", epsilon)
        self.intermediate = _dense(tensors, f"{scope}/intermediate/dense")
        self.output = _dense(tensors, f"{scope}/output/dense")
        self.output_norm = Norm(tensors, f"{scope}/output/LayerNorm", epsilon)

    def __call__(self, x: tf.Tensor, mask_scores: tf.Tensor, batch_shape: list) -> tf.Tensor:
        """x [T, D], mask_scores [B, 1, 1, S], batch_shape [B, S] -> [T, D]."""
        hidden = x.shape[-1]
        projected = tf.reshape(
            self.query_key_value(x), [*batch_shape, 3, self._heads, hidden // self._heads]
        )
        query, key, value = tf.unstack(tf.transpose(projected, [2, 0, 3, 1, 4]))  # [B, N, S, H]
        scores = tf.matmul(query, key, transpose_b=True) + mask_scores  # [B, N, S, S]
        context = tf.matmul(tf.nn.softmax(scores), value)  # [B, N, S, H]
        context = tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, hidden])
        x = self.attention_norm(x + self.attention_output(context))
        return self.output_norm(x + self.output(self._activation(self.intermediate(x))))


class InferenceModel(tf.Module):
    """A BERT with what one kind of task needs of it."""

    def __init__(
        self,
        tensors: Tensors,
        config: BertConfig,
        *,
        head: str,
        pooler: bool = True,
        activations: Activations = ACTIVATIONS,
    ):
        """Takes over the weights.

        Args:
          tensors: by the original's names.
          config: of the model.
          head: sequence for logits of the pooled vector, tokens for logits of each token, spans
            for start and end, masked_lm for logits of pieces, vectors for the encoder alone.
          pooler: for vectors: whether there is a pooler.
          activations: by name; how they are written decides what a converter makes of them.
        """
        super().__init__()
        if head not in HEADS:
            raise ValueError(f"received the head {head!r}, expected one of {HEADS}")
        self._config, self._head = config, head
        self._activation = activations[config.hidden_act]
        scope = "bert/embeddings"
        self.word_embeddings = _variable(tensors[f"{scope}/word_embeddings"])
        self.token_type_embeddings = _variable(tensors[f"{scope}/token_type_embeddings"])
        self.position_embeddings = _variable(tensors[f"{scope}/position_embeddings"])
        self.embedding_norm = Norm(tensors, f"{scope}/LayerNorm", config.layer_norm_eps)
        self.blocks = [
            Block(tensors, config, f"bert/encoder/layer_{i}", activations)
            for i in range(config.num_hidden_layers)
        ]
        has_pooler = head == SEQUENCE or (head == VECTORS and pooler)
        self.pooler = _dense(tensors, "bert/pooler/dense") if has_pooler else None
        self.classifier = None
        if head in (SEQUENCE, TOKENS, SPANS):
            names = "cls/squad/output" if head == SPANS else "output"
            self.classifier = Dense(tensors[f"{names}_weights"].T, tensors[f"{names}_bias"])
        if head == MASKED_LM:
            scope = "cls/predictions"
            self.transform = _dense(tensors, f"{scope}/transform/dense")
            self.transform_norm = Norm(
                tensors, f"{scope}/transform/LayerNorm", config.layer_norm_eps
            )
            self.output_bias = _variable(tensors[f"{scope}/output_bias"])

    @property
    def num_classes(self) -> int:
        """L, of a head with classes."""
        return 0 if self.classifier is None else self.classifier.bias.shape[0]

    @property
    def has_pooler(self) -> bool:
        """Whether it gives a pooled_output."""
        return self.pooler is not None

    def __call__(self, features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """input_ids, input_mask, segment_ids int32 [B, S] -> what the head gives.

        sequence: logits [B, L]. tokens: logits [B, S, L]. spans: start_logits, end_logits [B, S].
        masked_lm, of masked_lm_positions [B, P] too: masked_lm_logits [B, P, V]. vectors:
        sequence_output [B, S, D] and perhaps pooled_output [B, D].
        """
        ids = features["input_ids"]
        batch_shape = tf.unstack(tf.shape(ids))  # [B, S]
        x = self._encode(ids, features["input_mask"], features["segment_ids"], batch_shape)
        if self._head == MASKED_LM:
            return {
                "masked_lm_logits": self._pieces(x, features["masked_lm_positions"], batch_shape)
            }
        hidden = self._config.hidden_size
        if self._head in (TOKENS, SPANS):
            logits = tf.reshape(self.classifier(x), [*batch_shape, self.num_classes])
            if self._head == TOKENS:
                return {"logits": logits}
            return {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}
        sequence = tf.reshape(x, [*batch_shape, hidden])  # [B, S, D]
        outputs = {} if self._head == SEQUENCE else {"sequence_output": sequence}
        if self.has_pooler:
            outputs["pooled_output"] = tf.tanh(self.pooler(sequence[:, 0]))  # [B, D]
        if self._head == SEQUENCE:
            outputs["logits"] = self.classifier(outputs["pooled_output"])
        return outputs

    def _encode(
        self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, batch_shape: list
    ) -> tf.Tensor:
        """[B, S] each -> [T, D]."""
        x = tf.gather(self.word_embeddings, ids) + tf.gather(self.token_type_embeddings, segments)
        x += self.position_embeddings[: batch_shape[1]]  # [S, D] to each row
        x = self.embedding_norm(tf.reshape(x, [-1, self._config.hidden_size]))
        mask_scores = (1.0 - tf.cast(mask, tf.float32)) * MASKED_SCORE
        mask_scores = mask_scores[:, tf.newaxis, tf.newaxis, :]  # [B, 1, 1, S]
        for block in self.blocks:
            x = block(x, mask_scores, batch_shape)
        return x

    def _pieces(self, x: tf.Tensor, positions: tf.Tensor, batch_shape: list) -> tf.Tensor:
        """[T, D] at positions [B, P] -> [B, P, V]."""
        hidden, rows = self._config.hidden_size, batch_shape[0]
        sequence = tf.reshape(x, [*batch_shape, hidden])  # [B, S, D]
        # A position beyond its row is refused, and never one of another row.
        x = tf.reshape(tf.gather(sequence, positions, batch_dims=1), [-1, hidden])  # [B * P, D]
        x = self.transform_norm(self._activation(self.transform(x)))
        logits = tf.matmul(x, self.word_embeddings, transpose_b=True)
        logits = tf.nn.bias_add(logits, self.output_bias)
        return tf.reshape(logits, [rows, tf.shape(positions)[1], self._config.vocab_size])


# ---------------------------------------------------------------------------- pieces of it


def _variable(value: np.ndarray) -> tf.Variable:
    return tf.Variable(value.astype(np.float32), trainable=False)


def _dense(tensors: Tensors, scope: str) -> Dense:
    return Dense(tensors[f"{scope}/kernel"], tensors[f"{scope}/bias"])


def _query_key_value(tensors: Tensors, config: BertConfig, scope: str) -> Dense:
    """The three projections as one, [D, 3 * D]."""
    scale = (config.hidden_size // config.num_attention_heads) ** -0.5
    parts = [
        [tensors[f"{scope}/{name}/{kind}"] for name in ("query", "key", "value")]
        for kind in ("kernel", "bias")
    ]
    kernel, bias = (np.concatenate([query * scale, *rest], -1) for query, *rest in parts)
    return Dense(kernel, bias)
