"""What every head has: a model, the loss of its outputs, and the names of its weights.

Everything about the loss is a sum, and every mean is the quotient of two, so that a batch can be
spread over replicas or cut into micro-batches: sums are added up first and divided last, and the
loss is that of the whole batch.

TensorFlow and Keras are imported by the methods that compute, here and in the heads: what only
names a head, such as --help, loads neither.
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

    per_token: bool = False  # an output for each token, otherwise for the pooled vector
    classes: int | None = None  # outputs; None: as many as there are classes
    masked: bool = False  # it predicts masked words, too


class Head:
    """What stands on top of the encoder, and all that depends on it.

    The loss is the sum over `terms` of loss_sum / denominator. A term is a mean over weighted
    items: examples, predictions or tokens. Subclasses give weight, loss and correctness of each.

    Attributes:
      name: as in --task, model_facts.json and `bert_tf.heads.NAMES`.
      architecture: the class of Hugging Face's transformers for it.
      problem_type: as in their config.json, where an architecture has several heads.
      weights: pattern of the checkpoint names of its own weights.
      required: pattern of the weights that a checkpoint must have to be used with it.
      outputs: names of the model's outputs that predictions are made of.
      terms: names of the parts of the loss.
      labels: the class of its labels; None: it has none, or they are no task's.
      has_names: whether its classes have names.
      metrics: of its labels, names in `tasks.results.METRICS`: those of a task on one's own files;
        the first one selects the best model.
      further_metrics: what else --best_metric may name.
      sizes: what its model is made for besides a configuration, of num_classes and num_choices.
      added_sizes: what it adds to the encoder; None: `bert-tf plan` does not count it.
      reads_windows: whether a library's or served model reads long texts in windows.
      serving: the class of its signatures in an export, as "module:class"; None: not served.
      class_weights: of each label, as `weighted` has set them.
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
        """This head, with a weight for each of its labels in the loss; (): all are 1."""
        if not class_weights:
            return self
        head = copy.copy(self)
        head.class_weights = tuple(class_weights)
        return head

    def with_thresholds(self, thresholds: Mapping[str, float], labels: Sequence[str]) -> "Head":
        """This head, whose labels, in this order, apply from such probabilities on; {}: as usual.

        Raises:
          InputError: its labels have no thresholds, or others have.
        """
        if thresholds:
            received = f"thresholds of labels for the head {self.name}"
            raise InputError(received, "a head of any number of labels", "remove them")
        del labels
        return self

    @property
    def is_ambiguous(self) -> bool:
        """Whether neither architecture nor weights show which head it is."""
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
          num_choices: C, sequences of an example of multiple choice; the weights are the same for
            any number.
          num_sequences: K, of the rows of packed batches (data/packing.py): as for `encode`. A head
            whose `model` does not take it is given a row for each sequence.

        Returns:
          A model from input_ids, input_mask and segment_ids, int32 [B, S] each, to `outputs` and
          the outputs of `BertModel(config)`.
        """
        raise NotImplementedError

    def label_features(
        self, max_seq_length: int, num_labels: int, num_choices: int
    ) -> "tuple[Feature, ...]":
        """The labels in a record of S tokens, L labels and C choices."""
        raise NotImplementedError

    # ------------------------------------------------------------------------ the loss

    def item_weights(self, batch: Batch) -> Batch:
        """Weights by term; 0 for rows that only fill up a batch."""
        return {self.terms[0]: batch["is_real_example"]}  # [B], or [B, K / C] of packed rows

    def losses(self, outputs: Batch, batch: Batch) -> Batch:
        """Losses by term, float32, of the weights' shape."""
        raise NotImplementedError

    def correct(self, outputs: Batch, batch: Batch) -> Batch:
        """By term 1 where the prediction is the label, else 0; no terms without an accuracy."""
        del outputs, batch
        return {}

    def denominators(self, batch: Batch) -> Sums:
        """The sum of the weights of each term; of a part of the batch, or the whole."""
        import tensorflow as tf

        return {t: tf.reduce_sum(weights) for t, weights in self.item_weights(batch).items()}

    def loss_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """The weighted sum of each term's losses."""
        weights = self.item_weights(batch)
        losses = self.losses(outputs, batch)
        return {t: _weighted_sum(weights[t], losses[t]) for t in self.terms}

    def metric_sums(self, outputs: Batch, batch: Batch) -> Sums:
        """The weighted number of correct predictions, as <term>_accuracy."""
        weights = self.item_weights(batch)
        correct = self.correct(outputs, batch)
        return {f"{t}_accuracy": _weighted_sum(weights[t], correct[t]) for t in correct}

    def loss(self, loss_sums: Sums, denominators: Sums) -> "tf.Tensor":
        """The loss, from the sums of the whole batch; a term without items is 0."""
        import tensorflow as tf

        quotients = [tf.math.divide_no_nan(loss_sums[t], denominators[t]) for t in self.terms]
        return tf.add_n(quotients)

    # ------------------------------------------------------------------------ serving

    # A line for the model card, and of each answer its type, shape and meaning.
    title: str = ""
    answer_meanings: Mapping[str, str] = {}
    # Whether answers have a value for each position, [B, S], and so depend on the longest row.
    has_padded_answers = False

    def answers(self, outputs: Batch, labels: Sequence[str]) -> "dict[str, tf.Tensor]":
        """Outputs of the model and the names of its classes -> what a served model answers."""
        raise NotImplementedError


def _weighted_sum(weights: "tf.Tensor", values: "tf.Tensor") -> "tf.Tensor":
    """Of values of the weights' shape; others are refused, which would be broadcast."""
    import tensorflow as tf

    tf.TensorShape(values.shape).assert_is_compatible_with(weights.shape)
    return tf.reduce_sum(weights * values)


def of_classes(
    weights: "tf.Tensor", labels: "tf.Tensor", class_weights: Sequence[float]
) -> "tf.Tensor":
    """Weights of items times those of their classes, label_ids; negative ones are of no class."""
    import tensorflow as tf

    if not class_weights:
        return weights
    of_class = tf.gather(tf.constant(class_weights, tf.float32), tf.maximum(labels, 0))
    return weights * tf.reshape(of_class, tf.shape(weights))


def of_tokens(values: "tf.Tensor", batch: Batch) -> "tf.Tensor":
    """Of each token what its sequence has: [B] -> [B, 1], of packed rows [B, K] -> [B, S]."""
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
    """1 where the likeliest class is the label: logits [..., classes] -> float32 [...]."""
    import tensorflow as tf

    predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return tf.cast(predicted == labels, tf.float32)
