"""The heads of the paper's ablations, as anyone can write them: they take the verbs of bert-tf.

    python benchmarks/heads_of_ones_own.py pretrain --task=next_token ...    left to right (5.1)
    python benchmarks/heads_of_ones_own.py classify --task_name=cola_bilstm_last ...

What a token sees stands in the configuration, `"attention": "causal"`. A BiLSTM between encoder and
classifier (tables 5 and 7) is a head with its own sizes and the layers that it reads; every task of
labels is registered with each of them, as <task>_bilstm_<features>.
"""

import dataclasses
import sys

from bert_tf import runtime

if __name__ == "__main__":
    runtime.prepare_process()  # as commands do, before TensorFlow loads

import keras
import tensorflow as tf
from bert_tf import heads, tasks
from bert_tf.heads import Labels, Tags
from bert_tf.heads.classification import classified
from bert_tf.heads.head import Head, is_likeliest
from bert_tf.modeling.heads import MaskedLmHead
from bert_tf.modeling.models import BertModel, encode, token_inputs
from bert_tf.modeling.rows import last_tokens
from keras import ops

FEATURES = ("last", "second_to_last", "embeddings", "sum_last_four", "concat_last_four", "sum_all")


@keras.saving.register_keras_serializable(package="heads_of_ones_own")
class WeightedSum(keras.layers.Layer):
    """The sum of layers with learned weights, which sum to 1 (paper, section 5.3)."""

    def build(self, x_shape):
        """Makes a weight for each layer; at first they are equal."""
        self.layer_weights = self.add_weight(
            shape=(x_shape[-1],), initializer="zeros", name="layer_weights"
        )

    def call(self, x):
        """x [B, S, D, layers] -> [B, S, D]."""
        return ops.matmul(x, ops.softmax(ops.convert_to_tensor(self.layer_weights)))

    def compute_output_shape(self, x_shape):
        """[B, S, D]."""
        return x_shape[:-1]


@keras.saving.register_keras_serializable(package="heads_of_ones_own")
class Lstm(keras.layers.LSTM):
    """Keras's, which fails in eager calls with 0 rows: it takes their sums for biases."""

    def call(self, sequences, initial_state=None, mask=None, training=False):
        """sequences [B, S, in] and mask bool [B, S] -> [B, S, H]."""
        if sequences.shape[0] == 0:
            return ops.zeros((*sequences.shape[:2], self.units))
        return super().call(sequences, initial_state, mask, training)


class BiLstm:
    """Mixed into a head of labels: BiLSTMs make the vectors that it classifies.

    Rows are not packed: `model` takes no num_sequences.
    """

    features = "last"  # what they read
    layers, size = 1, None  # how many, and of each of both directions; None: D
    weights = rf"bilstm_\d+/|weighted_sum/|{heads.OUTPUT}"
    required = rf"{heads.ENCODER}|{weights}"

    def model(self, config, *, num_classes=2, **_):
        """The encoder, the BiLSTMs and a classifier of sequences or of tokens."""
        inputs = token_inputs()
        outputs, _ = encode(config, inputs, all_layers=True)
        embeddings = outputs.pop("embedding_output")
        every = [outputs.pop(f"layer_{i}") for i in range(config.num_hidden_layers)]
        x, mask = self.read(embeddings, every), inputs["input_mask"]
        size = self.size or config.hidden_size  # H
        is_token = ops.not_equal(mask, 0)
        for i in range(self.layers):
            options = {"return_sequences": True, "use_cudnn": False, "dtype": "float32"}
            lstm = Lstm(size, name="lstm", **options)
            both = keras.layers.Bidirectional(lstm, dtype="float32", name=f"bilstm_{i}")
            x = both(x, mask=is_token)  # [B, S, 2 H], forward and backward
            x *= ops.cast(ops.expand_dims(is_token, 2), "float32")
        if self.vectors == "pooled_output":  # forward of the last token, backward of the first
            last = last_tokens(x[..., :size], mask, 1)[:, 0]  # [B, H]
            x = ops.concatenate([last, x[:, 0, size:]], axis=-1)  # [B, 2 H]
        outputs["logits"] = classified(config, x, num_classes)
        return BertModel(inputs, outputs, name=self.name)

    def read(self, embeddings, every):
        """The layers that the first BiLSTM reads, [B, S, D] or [B, S, 4 D]."""
        match self.features:
            case "embeddings":
                return embeddings
            case "concat_last_four":
                return ops.concatenate(every[-4:], axis=-1)
            case "sum_last_four" | "sum_all" as kind:
                summed = every if kind == "sum_all" else every[-4:]
                return WeightedSum(name="weighted_sum")(ops.stack(summed, axis=-1))
            case kind:
                return every[-2 if kind == "second_to_last" else -1]


class NextToken(heads.FillMask):
    """Each token from those before it: what a causal model is trained with (section 5.1).

    next_token: the mean over all tokens of the batch but the first of each sequence.
    """

    name = "next_token"
    terms = ("next_token",)

    def model(self, config, *, with_losses=False, num_sequences=1, **sizes):
        """As `FillMask`'s; in training with losses float32 [B, S] of all tokens."""
        if not with_losses:
            return super().model(config, num_sequences=num_sequences, **sizes)
        inputs = token_inputs("masked_lm_positions", "masked_lm_ids")
        read = self.read(inputs)
        outputs, embeddings = encode(config, read, num_sequences=num_sequences)
        given = outputs["sequence_output"], read["masked_lm_positions"], read["masked_lm_ids"]
        logits, losses = MaskedLmHead.from_bert_config(config, embeddings=embeddings)(*given)
        outputs |= {"masked_lm_logits": logits, "masked_lm_losses": losses}
        return BertModel(inputs, outputs, name=self.name, num_sequences=num_sequences)

    def read(self, inputs):
        """Masked pieces are put back, and all positions predicted: int [B, S] each."""
        ids = inputs["input_ids"]
        every = ops.cumsum(ops.ones_like(ids), axis=-1) - 1  # [B, S]
        masked = ops.expand_dims(inputs["masked_lm_positions"], 1)  # [B, 1, P]
        # At 0 is [CLS], which is never masked: there is what fills up the predictions.
        is_here = ops.equal(ops.expand_dims(every, 2), masked) & (masked > 0)
        labels = ops.expand_dims(inputs["masked_lm_ids"], 1)
        labels = ops.max(ops.where(is_here, labels, -1), axis=2)  # [B, S]
        ids = ops.where(labels < 0, ids, labels)
        return {**inputs, "input_ids": ids, "masked_lm_ids": ids, "masked_lm_positions": every}

    def item_weights(self, batch):
        """1 for each token that has one of its sequence before it, [B, S]."""
        numbers = batch["input_mask"]
        follows = (numbers[:, 1:] == numbers[:, :-1]) & (numbers[:, 1:] > 0)  # [B, S - 1]
        weights = tf.pad(tf.cast(follows, tf.float32), [[0, 0], [1, 0]])
        return {"next_token": weights * batch["is_real_example"][:, None]}

    def losses(self, outputs, batch):
        """Cross entropies [B, S]."""
        del batch
        return {"next_token": outputs["masked_lm_losses"]}

    def correct(self, outputs, batch):
        """Correct predictions [B, S]."""
        labels = self.read(batch)["masked_lm_ids"]
        return {"next_token": is_likeliest(outputs["masked_lm_logits"], labels)}

    def loss(self, loss_sums, denominators):
        """The mean."""
        return Head.loss(self, loss_sums, denominators)


def bilstm(kind: type[heads.LabelHead], features: str, **sizes: int) -> heads.LabelHead:
    """A head of labels with BiLSTMs on these layers; layers and size as of `BiLstm`."""
    own = {"name": f"{kind.name}_bilstm_{features}", "features": features, **sizes}
    return type("BiLstmHead", (BiLstm, kind), own)()


def register() -> None:
    """Makes the heads, and tasks with them, known to commands."""
    heads.register(NextToken)
    kinds = {Labels: heads.Classification, Tags: heads.TokenLabels}
    named = map(tasks.get_task, tasks.list_tasks())
    for task in [task for task in named if type(task.labels) in kinds]:
        for features in FEATURES:
            kind = type(task.labels)
            heads.register(head := bilstm(kinds[kind], features))
            own = dataclasses.dataclass(frozen=True)(
                type(kind.__name__, (kind,), {"head": head.name})
            )
            labels = own(**{f.name: getattr(task.labels, f.name) for f in dataclasses.fields(kind)})
            name = f"{task.name}_bilstm_{features}"
            tasks.register(dataclasses.replace(task, name=name, labels=labels))


if __name__ == "__main__":
    from bert_tf.__main__ import main

    register()
    sys.exit(main())
