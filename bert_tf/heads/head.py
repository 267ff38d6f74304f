"""The base of all heads: a model, the loss of its outputs, and the names of its weights.

Everything about the loss is a sum, and every mean is the quotient of two sums. So a batch can be
spread over replicas or cut into micro-batches: the sums of the parts are added, then divided, and
the loss is that of the whole batch.

Here and in the heads, the methods that compute import TensorFlow and Keras themselves: `--help`,
which only names heads, loads neither.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bert_tf.config import BertConfig
from bert_tf.errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.data.records import Feature
    from bert_tf.heads.classification import Labels
    from bert_tf.modeling.models import BertModel

# Patterns of the names of weights in the original's checkpoints.
ENCODER = r"bert/(?!pooler/)"  # some models have no pooler
OUTPUT = r"output_(weights|bias)"  # the classifier of every fine-tuned head but that of SQuAD

Batch = Mapping[str, "tf.Tensor"]
Sums = dict[str, "tf.Tensor"]  # float32 scalars by name


class HeadSizes(NamedTuple):
    """What a head adds to the encoder, for the memory that `bert-tf plan` counts."""

    per_token: bool = False  # whether it has outputs for each token, or for the pooled vector
    classes: int | None = None  # the number of outputs; None: as many as the task has classes
    masked: bool = False  # whether it also predicts masked words


class Head:
    """A head on top of the encoder: its model, loss, predictions and weights.

    The loss is the sum over `terms` of loss_sum / denominator. A term is a mean over weighted
    items: examples, predictions or tokens. Subclasses give the weight, loss and correctness of
    each item.

    Attributes:
      name: as in --task, model_facts.json and `bert_tf.heads.NAMES`.
      architecture: the class of Hugging Face's transformers for it.
      problem_type: as in their config.json, if an architecture has several heads.
      weights: pattern of the names in checkpoints of the head's weights.
      required: pattern of the names of weights that a checkpoint must have for this head.
      outputs: names of the model's outputs that predictions are made from.
      terms: names of the terms of the loss.
      labels: the class of its labels; None: it has none, or no task has such labels.
      has_names: whether its classes have names.
      metrics: names in `tasks.results.METRICS`, for tasks on a user's files; the first one selects
        the best model.
      further_metrics: other names that --best_metric accepts.
      sizes: which of num_classes and num_choices its model depends on.
      added_sizes: what it adds to the encoder; None: `bert-tf plan` does not count it.
      reads_windows: whether a model of the library or a server reads long texts in windows.
      serving: the class of its signatures in an export, as "module:class"; None: not served.
      class_weights: the weight of each label in the loss, as `weighted` sets them.
    """

    name: str
    architecture: str = "BertForSequenceClassification"
    problem_type: str | None = None
    weights: str = OUTPUT
    required: str = f"bert/|{OUTPUT}"
    outputs: tuple[str, ...] = ("logits",)
    terms: tuple[str, ...] = ()
    labels: ClassVar["type[Labels] | None"] = None
    has_names: bool = False
    metrics: tuple[str, ...] = ()
    further_metrics: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ("num_classes", "num_choices")
    added_sizes: HeadSizes | None = None
    reads_windows: bool = False
    serving: str | None = "bert_tf.serving.signatures:ServingTask"
    class_weights: tuple[float, ...] = ()

    def weighted(self, class_weights: Sequence[float]) -> "Head":
        """This head with a weight for each of its labels in the loss; (): all are 1."""
        if not class_weights:
            return self
        head = copy.copy(self)
        head.class_weights = tuple(class_weights)
        return head

    def with_thresholds(self, thresholds: Mapping[str, float], labels: Sequence[str]) -> "Head":
        """This head with the least probability at which each label applies; {}: its defaults.

        Args:
          thresholds: by label.
          labels: all labels, in the order of the logits.

        Raises:
          InputError: this head has no thresholds, or they are of other labels.
        """
        del labels
        if thresholds:
            received = f"thresholds of labels for the head {self.name}"
            raise InputError(received, "a head of any number of labels", "remove them")
        return self

    @property
    def is_ambiguous(self) -> bool:
        """Whether other heads have the same architecture and names of weights."""
        return self.architecture == Head.architecture

    def model(
        self,
        config: BertConfig,
        *,
        num_classes: int = 2,
        num_choices: int = 1,
        num_sequences: int = 1,
    ) -> "BertModel":
        """The Keras model, with new weights.

        Args:
          config: sizes of the model.
          num_classes: L, of heads with classes.
          num_choices: C, sequences of an example of multiple choice; the weights do not depend on
            it.
          num_sequences: K, of the rows of packed batches (data/packing.py): as for `encode`. For a
            head whose `model` does not take it, batches are not packed.

        Returns:
          A model from input_ids, input_mask and segment_ids, int32 [B, S] each, to `outputs` and
          the outputs of `BertModel(config)`.
        """
        raise NotImplementedError

    def label_features(
        self, max_seq_length: int, num_labels: int, num_choices: int
    ) -> "tuple[Feature, ...]":
        """The label features of a record with S tokens, L labels and C choices."""
        raise NotImplementedError

    # ------------------------------------------------------------------------ the loss

    def item_weights(self, batch: Batch) -> Batch:
        """Weights by term; 0 for rows that only fill up a batch."""
        return {self.terms[0]: batch["is_real_example"]}  # [B], or [B, K / C] of packed rows

    def losses(self, outputs: Batch, batch: Batch) -> Batch:
        """Losses by term, float32 of the weights' shape."""
        raise NotImplementedError

    def correct(self, outputs: Batch, batch: Batch) -> Batch:
        """1 where the prediction is the label, else 0; by term, without those of no accuracy."""
        del outputs, batch
        return {}

    def denominators(self, batch: Batch) -> Sums:
        """The sum of each term's weights, for a batch or a part of one."""
        import tensorflow as tf

        return {term: tf.reduce_sum(weights) for term, weights in self.item_weights(batch).items()}

    def loss_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """The weighted sum of each term's losses."""
        weights = self.item_weights(batch)
        losses = self.losses(outputs, batch)
        return {term: _weighted_sum(weights[term], losses[term]) for term in self.terms}

    def metric_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """The weighted number of correct predictions, as <term>_accuracy."""
        weights = self.item_weights(batch)
        correct = self.correct(outputs, batch)
        return {f"{term}_accuracy": _weighted_sum(weights[term], correct[term]) for term in correct}

    def loss(self, loss_sums: Sums, denominators: Sums) -> "tf.Tensor":
        """The loss, from the sums of the whole batch; a term without items is 0."""
        import tensorflow as tf

        return tf.add_n(
            [tf.math.divide_no_nan(loss_sums[term], denominators[term]) for term in self.terms]
        )

    # ------------------------------------------------------------------------ serving

    title: str = ""  # a line for the model card
    answer_meanings: Mapping[str, str] = {}  # type, shape and meaning of each answer
    # Whether answers have a value for each position, [B, S], and so depend on the longest row.
    has_padded_answers = False

    def answers(self, outputs: Batch, labels: Sequence[str]) -> "dict[str, tf.Tensor]":
        """The answers of a served model, from its outputs and the names of its classes."""
        raise NotImplementedError


def _weighted_sum(weights: "tf.Tensor", values: "tf.Tensor") -> "tf.Tensor":
    """The sum of weights * values; refuses different shapes, which would be broadcast."""
    import tensorflow as tf

    tf.TensorShape(values.shape).assert_is_compatible_with(weights.shape)
    return tf.reduce_sum(weights * values)


def times_class_weights(
    weights: "tf.Tensor", labels: "tf.Tensor", class_weights: Sequence[float]
) -> "tf.Tensor":
    """The weights of items times those of their classes; no class weights: all are 1.

    Args:
      weights: float32, of any shape.
      labels: label_ids int32, as many as weights; negative only where the weight is 0.
      class_weights: the class weights of each label.
    """
    import tensorflow as tf

    if not class_weights:
        return weights
    factors = tf.gather(tf.constant(class_weights, tf.float32), tf.maximum(labels, 0))
    return weights * tf.reshape(factors, tf.shape(weights))


def repeated_for_tokens(values: "tf.Tensor", batch: Batch) -> "tf.Tensor":
    """Values of sequences for each of their tokens: [B] -> [B, 1], or packed [B, K] -> [B, S]."""
    import tensorflow as tf

    if len(values.shape) == 1:
        return values[:, None]
    return tf.gather(values, tf.maximum(batch["input_mask"] - 1, 0), batch_dims=1)


def cross_entropy(logits: "tf.Tensor", labels: "tf.Tensor") -> "tf.Tensor":
    """Logits [..., classes] and labels int32 [...] -> float32 [...], in nats."""
    import tensorflow as tf

    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=tf.cast(logits, tf.float32)
    )


def is_likeliest(logits: "tf.Tensor", labels: "tf.Tensor") -> "tf.Tensor":
    """1 where the likeliest class is the label, else 0: logits [..., classes] -> float32 [...]."""
    import tensorflow as tf

    predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return tf.cast(predicted == labels, tf.float32)
