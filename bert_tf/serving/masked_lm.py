"""Texts with [MASK]s -> the likeliest word pieces for each."""

from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.serving.graph_text import FEATURE_NAMES, Features, Runs, runs_of
from bert_tf.serving.options import MASK
from bert_tf.serving.signatures import Answers, ServingTask


class MaskedLmTask(ServingTask):
    """The masked-LM head of a pre-trained model. Shapes: M [MASK]s, k guesses, P positions."""

    own_options = ("top_k",)
    texts = MappingProxyType({"text": f"a text with {MASK} in it, once or more often"})
    outputs = MappingProxyType(
        {
            "pieces": "string [B, M, k], the likeliest first; empty beyond num_masks",
            "probabilities": "float [B, M, k]",
            "num_masks": f"int32 [B], how many {MASK} the text has, of those that fit",
        }
    )
    feature_names = (*FEATURE_NAMES, "masked_lm_positions")

    def __init__(self, *args):
        """See `ServingTask`.

        Raises:
          InputError: the vocabulary has no [MASK], or too few pieces for top_k.
        """
        super().__init__(*args)
        self.sequences.tokenizer.require_special_tokens(MASK)
        rows = self.sequences.config.vocab_size
        if not 1 <= self.options.top_k <= rows:
            expected = f"1 to {rows}, the size of the vocabulary"
            raise InputError(f"--top_k={self.options.top_k}", expected, "correct --top_k")
        self._mask_id = self.sequences.tokenizer.vocab[MASK]

    def answer(self, **texts: tf.Tensor) -> Answers:
        """text [B] -> pieces, probabilities [B, M, k] and num_masks [B]."""
        features = self.sequences.of_runs(self._runs(texts["text"]))
        is_mask = features["input_ids"] == self._mask_id  # [B, S]
        num_masks = tf.reduce_sum(tf.cast(is_mask, tf.int32), 1)  # [B]
        most = tf.reduce_max(tf.concat([num_masks, [0]], 0))  # M
        # Sorted stably by "is a mask", the positions of a row's masks come first, in order.
        order = tf.argsort(tf.cast(is_mask, tf.int32), direction="DESCENDING", stable=True)
        answers = self.answer_ids(features | {"masked_lm_positions": order[:, :most]})
        real = (tf.range(most) < num_masks[:, tf.newaxis])[:, :, tf.newaxis]  # [B, M, 1]
        return {
            "pieces": tf.where(real, answers["pieces"], ""),
            "probabilities": tf.where(real, answers["probabilities"], 0.0),
            "num_masks": num_masks,
        }

    def _runs(self, texts: tf.Tensor) -> Runs:
        """The ids of each text, with [MASK] as one: the tokenizer alone would split it."""
        parts = tf.strings.split(texts, MASK)  # [B, (parts)]
        pieces = self.sequences.tokenizer.tokenize_ids(parts.values)  # [parts of all, (pieces)]
        mask = tf.fill([tf.shape(pieces.row_splits)[0] - 1, 1], self._mask_id)
        with_mask = tf.concat([pieces, tf.RaggedTensor.from_tensor(mask)], axis=1)
        joined = with_mask.with_row_splits_dtype(tf.int64)
        splits = tf.gather(joined.row_splits, parts.row_splits)
        runs = runs_of(tf.RaggedTensor.from_row_splits(joined.values, splits, validate=False))
        return runs._replace(lengths=runs.lengths - 1)  # without the one behind the last part

    def id_outputs(self) -> dict[str, str]:
        """A row of guesses for each of P positions."""
        return {
            "pieces": "string [B, P, k], the likeliest first",
            "piece_ids": "int32 [B, P, k]",
            "probabilities": "float [B, P, k]",
        }

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S], masked_lm_positions [B, P] -> the guesses, [B, P, k] each."""
        logits = self.outputs_of(features)["masked_lm_logits"]  # [B, P, V]
        probabilities, ids = tf.math.top_k(tf.nn.softmax(logits), self.options.top_k)  # [B, P, k]
        pieces = tf.gather(tf.constant(self.sequences.piece_names()), ids)
        return {"pieces": pieces, "piece_ids": ids, "probabilities": probabilities}

    def samples(self) -> list[dict[str, Any]]:
        """One [MASK], and many."""
        few, many = (
            f"Bread is made from {MASK} and water.",
            f"{MASK} is the capital of {MASK}, " * 20,
        )
        return [{"text": few}, {"text": many}]
