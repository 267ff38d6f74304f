"""Texts with [MASK]s -> the likeliest pieces for each."""

from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.serving.fill_mask import MASK
from bert_tf.serving.graph_text import (
    FEATURE_NAMES,
    Features,
    Runs,
    checked,
    in_range,
    runs_of,
    without_padding,
)
from bert_tf.serving.piece_names import piece_names
from bert_tf.serving.signatures import Answers, ServingTask


class MaskedLmTask(ServingTask):
    """The masked-LM head of a pre-trained model. Shapes: M the most [MASK]s of a text, k guesses.

    Its model is a `pretraining_model` without the next-sentence head.
    """

    name = "fill_mask"
    title = f"Guesses the pieces that {MASK} stands for."
    texts = MappingProxyType({"text": f"a text with {MASK} in it, once or more often"})
    outputs = MappingProxyType(
        {
            "pieces": "string [B, M, k], the likeliest first; empty beyond num_masks",
            "probabilities": "float [B, M, k]",
            "num_masks": f"int32 [B], how many {MASK} the text has, of those that fit",
        }
    )
    feature_names = (*FEATURE_NAMES, "masked_lm_positions")

    def __init__(self, *args, top_k: int = 5, **kwargs):
        """As for `ServingTask`; `top_k`: k, guesses for each [MASK]."""
        super().__init__(*args, **kwargs)
        self.sequences.tokenizer.require_special_tokens(MASK)
        rows = self.sequences.config.vocab_size
        if not 1 <= top_k <= rows:
            raise InputError(
                received=f"--top_k={top_k}",
                expected=f"1 to {rows}, the size of the vocabulary",
                remedy="correct --top_k",
            )
        self.top_k = top_k
        self._mask_id = self.sequences.tokenizer.vocab[MASK]
        self._names = piece_names(self.sequences.tokenizer, self.sequences.config)

    def answer(self, **texts: tf.Tensor) -> Answers:
        """text [B] -> pieces, probabilities [B, M, k] and num_masks [B]."""
        features = self.sequences.of_runs(self._runs(texts["text"]))
        is_mask = features["input_ids"] == self._mask_id  # [B, S]
        num_masks = tf.reduce_sum(tf.cast(is_mask, tf.int32), 1)  # [B]
        most = tf.reduce_max(tf.concat([num_masks, [0]], 0))  # M
        # The positions of a row's masks come first in a stable order by "is no mask".
        order = tf.argsort(tf.cast(is_mask, tf.int32), direction="DESCENDING", stable=True)
        positions = order[:, :most]  # [B, M]
        answers = self._guess(features | {"masked_lm_positions": positions})
        real = (tf.range(most) < num_masks[:, tf.newaxis])[:, :, tf.newaxis]  # [B, M, 1]
        return {
            "pieces": tf.where(real, answers["pieces"], ""),
            "probabilities": tf.where(real, answers["probabilities"], 0.0),
            "num_masks": num_masks,
        }

    def _runs(self, texts: tf.Tensor) -> Runs:
        """The pieces of each text, with [MASK] as a piece: the tokenizer alone would split it."""
        parts = tf.strings.split(texts, MASK)  # [B, (parts)]
        pieces = self.sequences.tokenizer.tokenize_ids(parts.values)  # [parts of all, (pieces)]
        mask = tf.fill([tf.shape(pieces.row_splits)[0] - 1, 1], self._mask_id)
        with_mask = tf.concat([pieces, tf.RaggedTensor.from_tensor(mask)], axis=1)
        joined = with_mask.with_row_splits_dtype(tf.int64)
        splits = tf.gather(joined.row_splits, parts.row_splits)
        runs = runs_of(tf.RaggedTensor.from_row_splits(joined.values, splits, validate=False))
        return runs._replace(lengths=runs.lengths - 1)  # without the one behind the last part

    def accepted(self, features: Features) -> Features:
        """As for `ServingTask`; columns are kept up to the last one that is asked for."""
        config = self.sequences.config
        features = in_range(features, "input_ids", config.vocab_size)
        features = in_range(features, "segment_ids", config.type_vocab_size)
        rows, width = tf.unstack(tf.shape(features["input_ids"]))
        positions = features["masked_lm_positions"]
        fits = tf.reduce_all((positions >= 0) & (positions < width))
        features = checked(
            features,
            fits & (tf.shape(positions)[0] == rows),
            "masked_lm_positions must have a row for each of input_ids, and be 0 or more and below "
            "their width",
        )
        positions = tf.reshape(features["masked_lm_positions"], [-1])
        return without_padding(
            features,
            most=config.max_position_embeddings,
            least=tf.reduce_max(tf.concat([positions, [0]], 0)) + 1,
        )

    def id_outputs(self) -> dict[str, str]:
        """For each of P positions."""
        return {
            "pieces": "string [B, P, k], the likeliest first",
            "piece_ids": "int32 [B, P, k]",
            "probabilities": "float [B, P, k]",
        }

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S], masked_lm_positions [B, P] -> pieces, their ids and probabilities.

        Each is [B, P, k].
        """
        return self._guess(features)

    def _guess(self, features: Features) -> Answers:
        logits = self.outputs_of(features)["masked_lm_logits"]  # [B, P, V]
        probabilities, ids = tf.math.top_k(tf.nn.softmax(logits), self.top_k)  # [B, P, k]
        return {
            "pieces": tf.gather(tf.constant(self._names), ids),
            "piece_ids": ids,
            "probabilities": probabilities,
        }

    def samples(self) -> list[dict[str, Any]]:
        """One and more of them."""
        return [
            {"text": f"Bread is made from {MASK} and water."},
            {"text": f"{MASK} is the capital of {MASK}, " * 20},
        ]

    def options(self) -> dict[str, Any]:
        """With k."""
        return {**super().options(), "top_k": self.top_k}
