"""Where each head looks: the encoder once more, of the weights of a loaded model.

The model's own function keeps the probabilities of attention to itself, and they are too many to be
given with every answer. Here they are computed for a single sequence, without padding, when someone
wants to see them.

Shapes: S pieces of the sequence, D hidden, N heads, H head size.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.serving.inference import ACTIVATIONS


def attention_of(
    model: Any, config: BertConfig, ids: Sequence[int], segments: Sequence[int], *, layer: int
) -> np.ndarray:
    """The probabilities of attention in a layer.

    Args:
      model: with the weights of an `inference.InferenceModel`, or of one that was exported.
      config: of the model.
      ids, segments: of S pieces, [CLS] and [SEP] included.
      layer: from 0.

    Returns:
      float32 [N, S, S]: of each head, how much of each row's piece comes from each column's.
    """
    return _encode(model, config, ids, segments, blocks=layer + 1)[1].numpy()


def _encode(
    model: Any, config: BertConfig, ids: Sequence[int], segments: Sequence[int], *, blocks: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """What some blocks make of a sequence [S, D], and the last one's attention [N, S, S]."""
    with tf.device("CPU:0"):  # a few thousand small products are no work for a GPU
        x = tf.gather(model.word_embeddings, ids) + tf.gather(model.token_type_embeddings, segments)
        x = _norm(x + model.position_embeddings[: len(ids)], model.embedding_norm, config)
        for number in range(blocks):
            x, probabilities = _block(x, model.blocks[number], config)
    return x, probabilities


def _block(x: tf.Tensor, block: Any, config: BertConfig) -> tuple[tf.Tensor, tf.Tensor]:
    """[S, D] -> [S, D], and attention [N, S, S]; as `inference.Block`, without a mask."""
    heads = config.num_attention_heads
    projected = tf.reshape(_dense(x, block.query_key_value), [len(x), 3, heads, -1])  # [S, 3, N, H]
    query, key, value = tf.unstack(tf.transpose(projected, [1, 2, 0, 3]))  # [N, S, H]
    probabilities = tf.nn.softmax(tf.matmul(query, key, transpose_b=True))  # query is scaled
    context = tf.transpose(tf.matmul(probabilities, value), [1, 0, 2])  # [S, N, H]
    attended = _dense(tf.reshape(context, [len(x), -1]), block.attention_output)
    x = _norm(x + attended, block.attention_norm, config)
    wide = ACTIVATIONS[config.hidden_act](_dense(x, block.intermediate))
    return _norm(x + _dense(wide, block.output), block.output_norm, config), probabilities


def _dense(x: tf.Tensor, weights: Any) -> tf.Tensor:
    return tf.matmul(x, weights.kernel) + weights.bias


def _norm(x: tf.Tensor, weights: Any, config: BertConfig) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(
        x, mean, variance, weights.beta, weights.gamma, config.layer_norm_eps
    )
