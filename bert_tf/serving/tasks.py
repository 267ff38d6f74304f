"""Signatures of embeddings, masked words and multiple choice.

Shapes: B rows of a request, S the longest sequence, D hidden, V vocabulary; M [MASK]s of a text,
P masked positions, k guesses; C endings of a context.
"""

from typing import ClassVar

import tensorflow as tf

from bert_tf.serving.graph_text import Features, checked, parse_records
from bert_tf.serving.options import DEFAULT, FROM_EXAMPLES, MASK
from bert_tf.serving.signatures import TEXT, Answers, ServingTask, Signature
from bert_tf.tokenization.layer import FEATURE_NAMES, Runs, runs_of


class EmbeddingTask(ServingTask):
    """The encoder's vectors. A model without a pooler has no pooled vector."""

    padded = ("tokens",)

    def __init__(self, *args):
        """See `ServingTask`."""
        super().__init__(*args)
        self.outputs = {
            "mean": "float [B, D], the mean of the vectors of all its pieces; not of length 1"
        }
        pooled_piece = "the last piece" if self.sequences.config.is_causal else "[CLS]"
        if self.model and "pooled_output" in self.model.outputs:
            self.outputs["pooled"] = f"float [B, D], the pooled vector of {pooled_piece}"

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S] -> mean over all tokens, [CLS] and [SEP] too, and pooled; [B, D] each."""
        outputs = self.outputs_of(features)
        vectors = outputs["sequence_output"]  # [B, S, D]
        mask = tf.cast(features["input_mask"], vectors.dtype)[:, :, tf.newaxis]  # [B, S, 1]
        count = tf.maximum(tf.reduce_sum(mask, 1), 1.0)  # [B, 1]
        answers = {"mean": tf.reduce_sum(vectors * mask, 1) / count}
        if "pooled" in self.outputs:
            answers["pooled"] = outputs["pooled_output"]
        return answers

    def further_signatures(self) -> dict[str, Signature]:
        """The signature `tokens`: a vector for each token.

        It is not the default one, whose answers would be too large.
        """

        def tokens(text: tf.Tensor) -> Answers:
            features = self.sequences.of_texts(text)
            piece_names = tf.constant(self.sequences.piece_names())  # [V]
            mask = features["input_mask"]  # [B, S]
            vectors = self.outputs_of(features)["sequence_output"]  # [B, S, D]
            return {
                "pieces": tf.where(mask != 0, tf.gather(piece_names, features["input_ids"]), ""),
                "vectors": vectors * tf.cast(mask, tf.float32)[:, :, tf.newaxis],
                "num_pieces": tf.reduce_sum(mask, 1),
            }

        outputs = {
            "pieces": "string [B, S], [CLS] and [SEP] included; empty beyond num_pieces",
            "vectors": "float [B, S, D]; 0 beyond num_pieces",
            "num_pieces": "int32 [B]",
        }
        return {"tokens": Signature({"text": TEXT}, tokens, outputs)}


class MaskedLmTask(ServingTask):
    """The masked-LM head of a pre-trained model: guesses for each [MASK] of a text."""

    padded = (DEFAULT, FROM_EXAMPLES)  # to the most [MASK]s, the most positions
    own_options = ("top_k",)
    texts: ClassVar = {"text": f"a text with {MASK} in it, once or more often"}
    outputs: ClassVar = {
        "pieces": "string [B, M, k], the likeliest first; empty beyond num_masks",
        "probabilities": "float [B, M, k]",
        "num_masks": f"int32 [B], how many {MASK} the text has, of those that fit",
    }
    id_outputs: ClassVar = {  # a row of guesses for each of P positions
        "pieces": "string [B, P, k], the likeliest first",
        "piece_ids": "int32 [B, P, k]",
        "probabilities": "float [B, P, k]",
    }
    samples = (
        {"text": f"Bread is made from {MASK} and water."},
        {"text": f"{MASK} is the capital of {MASK}, " * 20},
    )
    feature_names = (*FEATURE_NAMES, "masked_lm_positions")

    def __init__(self, *args):
        """See `ServingTask`.

        Raises:
          InputError: the vocabulary has no [MASK].
        """
        super().__init__(*args)
        self.sequences.tokenizer.require_special_tokens(MASK)
        self._most = min(self.options.top_k, self.sequences.config.vocab_size)  # k
        self._mask_id = self.sequences.tokenizer.vocab[MASK]

    def features(self, **texts: tf.Tensor) -> Features:
        """text [B] -> sequences with [MASK] as one piece, which the tokenizer alone would split."""
        parts = tf.strings.split(texts["text"], MASK)  # [B, (parts)]
        pieces = self.sequences.tokenizer.tokenize_ids(parts.values)  # [parts of all, (pieces)]
        pieces = pieces.with_row_splits_dtype(tf.int64)
        # A [MASK] after each part: part i moves by i places. (For a tf.concat of ragged tensors
        # oneDNN would log that it does not support it.)
        ends = pieces.row_splits + tf.range(tf.size(pieces.row_splits, tf.int64))
        places = tf.range(tf.size(pieces.values, tf.int64)) + pieces.value_rowids()
        masks = tf.fill(ends[-1:], self._mask_id)
        ids = tf.tensor_scatter_nd_update(masks, places[:, tf.newaxis], pieces.values)
        splits = tf.gather(ends, parts.row_splits)
        runs = runs_of(tf.RaggedTensor.from_row_splits(ids, splits, validate=False))
        # The last part of a text has no [MASK] after it.
        return self.sequences.of_runs(Runs(runs.ids, runs.starts, runs.lengths - 1))

    def answer(self, **texts: tf.Tensor) -> Answers:
        """text [B] -> pieces, probabilities [B, M, k] and num_masks [B]."""
        features = self.features(**texts)
        is_mask = tf.cast(features["input_ids"] == self._mask_id, tf.int32)  # [B, S]
        num_masks = tf.reduce_sum(is_mask, 1)  # [B]
        most = tf.reduce_max(tf.concat([num_masks, [0]], 0))  # M
        # A stable sort by "is a mask" puts the positions of a row's masks first, in order.
        order = tf.argsort(is_mask, direction="DESCENDING", stable=True)
        answers = self.answer_ids(features | {"masked_lm_positions": order[:, :most]})
        real = (tf.range(most) < num_masks[:, tf.newaxis])[:, :, tf.newaxis]  # [B, M, 1]
        return {
            "pieces": tf.where(real, answers["pieces"], ""),
            "probabilities": tf.where(real, answers["probabilities"], 0.0),
            "num_masks": num_masks,
        }

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S], masked_lm_positions [B, P] -> pieces, ids, probabilities [B, P, k]."""
        logits = self.outputs_of(features)["masked_lm_logits"]  # [B, P, V]
        probabilities, ids = tf.math.top_k(tf.nn.softmax(logits), self._most)  # [B, P, k]
        pieces = tf.gather(tf.constant(self.sequences.piece_names()), ids)
        return {"pieces": pieces, "piece_ids": ids, "probabilities": probabilities}


class MultipleChoiceTask(ServingTask):
    """A context and C endings: a model of one class scores each ending with its context.

    A request of texts may have any C. Records have the C that was chosen at export, num_choices.
    """

    own_options = ("num_choices",)
    texts: ClassVar = {
        "context": "what goes before, a sentence to itself (SWAG's sent1)",
        "endings": "the endings, equally many of each, with the words that they go on from "
        "(SWAG's sent2 and ending)",
    }
    outputs: ClassVar = {
        "choice": "int32 [B], the number of the likeliest ending, from 0",
        "probabilities": "float [B, C], of each ending",
    }
    part = "ending"
    samples = (
        {
            "context": "In the evening",
            "endings": ["he slept.", "they ate bread for hours.", "", "it"],
        },
        {"context": "In the evening of a long day " * 8, "endings": ["he slept.", "it rained."]},
    )

    def text_specs(self) -> dict[str, tf.TensorSpec]:
        """context [B], endings [B, C]."""
        return {"context": TEXT, "endings": tf.TensorSpec([None, None], tf.string)}

    def id_specs(self) -> dict[str, tf.TensorSpec]:
        """[B, C, S] each."""
        return dict.fromkeys(FEATURE_NAMES, tf.TensorSpec([None, None, None], tf.int32))

    def features(self, **texts: tf.Tensor) -> Features:
        """context [B], endings [B, C] -> a sequence for each ending [B * C, S]."""
        endings = texts["endings"]
        contexts = tf.broadcast_to(texts["context"][:, tf.newaxis], tf.shape(endings))
        return self.sequences.of_pairs(tf.reshape(contexts, [-1]), tf.reshape(endings, [-1]))

    def answer(self, **texts: tf.Tensor) -> Answers:
        """context [B], endings [B, C] -> choice [B], probabilities [B, C]."""
        return self._choose(self.features(**texts), num_choices=tf.shape(texts["endings"])[1])

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, C, S] -> choice [B], probabilities [B, C]."""
        _, num_choices, length = tf.unstack(tf.shape(features["input_ids"]))
        flat = {name: _in_rows(value, length) for name, value in features.items()}
        return self._choose(flat, num_choices=num_choices)

    def _choose(self, features: Features, *, num_choices: tf.Tensor) -> Answers:
        scores = self.outputs_of(features)["logits"]  # [B * C, 1]
        probabilities = tf.nn.softmax(_in_rows(scores, num_choices))  # [B, C]
        choice = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {"choice": choice, "probabilities": probabilities}

    def parse(self, serialized: tf.Tensor) -> Features:
        """Serialized tf.Examples [B] -> features [B, C, S].

        A record holds its C sequences one after the other, equally long. Records may differ in
        length; shorter ones are padded with 0.

        Raises (at run time):
          InvalidArgumentError: a record's length is no multiple of C; or as for `parse_records`.
        """
        count = self.options.num_choices
        records = parse_records(serialized)
        lengths = records["input_ids"].row_lengths()  # [B]
        message = f"the length of a record must be a multiple of {count}, its number of sequences"
        records = checked(records, tf.reduce_all(lengths % count == 0), message)
        sequence_lengths = tf.repeat(lengths // count, count)  # [B * C]
        longest = tf.reduce_max(tf.concat([sequence_lengths, [1]], 0))  # S

        def in_sequences(record: tf.RaggedTensor) -> tf.Tensor:
            rows = tf.RaggedTensor.from_row_lengths(record.values, sequence_lengths, validate=False)
            dense = tf.cast(rows.to_tensor(shape=tf.stack([-1, longest])), tf.int32)  # [B * C, S]
            return tf.reshape(dense, [-1, count, tf.cast(longest, tf.int32)])

        return {name: in_sequences(record) for name, record in records.items()}


def _in_rows(x: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Reshapes a tensor to [rows, width]; there may be no rows."""
    return tf.reshape(x, [tf.size(x) // tf.maximum(width, 1), width])
