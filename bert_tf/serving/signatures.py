"""What all served tasks share: a model, its texts and answers, and the signatures of its export.

A new task is a subclass of `ServingTask` in a file of its own, listed in `registry.py`; it says
what its texts are called and how they become answers.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.heads import OUTPUT as HEAD
from bert_tf.serving import graph_text
from bert_tf.serving.graph_text import FEATURE_NAMES, Features, Sequences, checked
from bert_tf.serving.inference import InferenceModel
from bert_tf.serving.options import DEFAULT, FROM_EXAMPLES, FROM_IDS, ServingOptions
from bert_tf.tokenization.wordpiece import FullTokenizer

Answers = dict[str, tf.Tensor]
TEXT = tf.TensorSpec([None], tf.string)
IDS = tf.TensorSpec([None, None], tf.int32)


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of named tensors.

    Attributes:
      inputs: types and shapes by name.
      function: takes the inputs by name and returns the answers by name.
      outputs: each answer's type, shape and meaning.
    """

    inputs: Mapping[str, tf.TensorSpec]
    function: Callable[..., Answers]
    outputs: Mapping[str, str]

    def traced(self) -> tf.types.experimental.ConcreteFunction:
        """Traces the function for any batch size and length."""
        specs = {
            name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
            for name, spec in self.inputs.items()
        }
        # `autograph=False`: nothing here is Python control flow over tensors.
        return tf.function(self.function, autograph=False).get_concrete_function(**specs)


def refuse_not_finite(answers: Mapping[str, np.ndarray]) -> None:
    """Raises InputError if an answer is NaN or infinite: it would look like any other."""
    for name, value in answers.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise InputError(
                f"a model whose {name} are NaN or infinite",
                "finite numbers: its training diverged, or its weights are damaged",
                "give another checkpoint",
            )


class ServingTask:
    """A model with the texts it takes and the answers it gives.

    Attributes:
      name: a key of `bert_tf.config.HEADS`, as in --task.
      title: one line for the model card.
      required: a pattern of the weights that a checkpoint must have.
      texts: the text inputs: what each is.
      outputs: the answers: each one's type, shape and meaning.
      feature_names: the model's inputs.
      own_options: fields of `ServingOptions` that affect this task, beside task and max_seq_length.
      text_options: those of them that an export of ids alone cannot have.
    """

    name: str
    title: str
    required = f"bert/|{HEAD}"
    texts: Mapping[str, str]
    outputs: Mapping[str, str]
    feature_names: Sequence[str] = FEATURE_NAMES
    own_options: Sequence[str] = ()
    text_options: Sequence[str] = ()

    def __init__(
        self,
        model: InferenceModel,
        tokenizer: FullTokenizer,
        config: BertConfig,
        options: ServingOptions,
    ):
        """Connects a model with its tokenizer.

        Args:
          model: with the head of this task.
          tokenizer: the one it was trained with.
          config: of the model.
          options: with a value in every field of `own_options`.

        Raises:
          InputError: they do not fit each other.
        """
        self.model, self.options = model, options
        # One function for all signatures: traced once, and once in the graph.
        specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in self.feature_names}
        self.outputs_of = tf.function(model, input_signature=[specs], autograph=False)
        self.sequences = Sequences(tokenizer, config, max_seq_length=options.max_seq_length)

    # ------------------------------------------------------------------------ to be defined

    def answer(self, **texts: tf.Tensor) -> Answers:
        """Texts by name, each [B] -> the answers, each [B, ...]."""
        raise NotImplementedError

    def answer_ids(self, features: Features) -> Answers:
        """Features without columns that are all padding -> the answers."""
        raise NotImplementedError

    def samples(self) -> list[dict[str, Any]]:
        """Requests of different lengths: a value for each text input."""
        raise NotImplementedError

    def id_outputs(self) -> Mapping[str, str]:
        """The answers to features, as `outputs`; S is the length of the request's longest row."""
        return self.outputs

    def listed_options(self) -> dict[str, Any]:
        """The options that were chosen at export, for the model card."""
        names = ("max_seq_length", *self.own_options)
        values = {name: getattr(self.options, name) for name in names}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def further_signatures(self) -> dict[str, Signature]:
        """Signatures of this task alone."""
        return {}

    # ------------------------------------------------------------------------ signatures

    def text_specs(self) -> dict[str, tf.TensorSpec]:
        """Types and shapes of the text inputs."""
        return dict.fromkeys(self.texts, TEXT)

    def id_specs(self) -> dict[str, tf.TensorSpec]:
        """Types and shapes of a record's features."""
        return dict.fromkeys(self.feature_names, IDS)

    def signatures(self) -> dict[str, Signature]:
        """All signatures by name."""

        def of_texts(**texts):
            counts = [tf.shape(text)[0] for text in texts.values()]
            if len(texts) > 1:
                alike = tf.reduce_all(tf.equal(counts[0], tf.stack(counts)))
                texts = checked(texts, alike, f"{' and '.join(texts)} must have the same length")
            return self.answer(**texts)

        def of_ids(**features):
            return self.answer_ids(self.accepted(features))

        def of_examples(examples):
            return of_ids(**self.parse(examples))

        return {
            DEFAULT: Signature(self.text_specs(), of_texts, self.outputs),
            FROM_IDS: Signature(self.id_specs(), of_ids, self.id_outputs()),
            FROM_EXAMPLES: Signature({"examples": TEXT}, of_examples, self.id_outputs()),
            **self.further_signatures(),
        }

    def accepted(self, features: Features) -> Features:
        """Checks a request's features, and removes columns that are padding in every row.

        Raises (at run time):
          InvalidArgumentError: they do not fit each other or the model.
        """
        config = self.sequences.config
        features = graph_text.in_range(features, "input_ids", config.vocab_size)
        features = graph_text.in_range(features, "segment_ids", config.type_vocab_size)
        least = 1
        if "masked_lm_positions" in features:
            features, least = _checked_positions(features)
        most = config.max_position_embeddings
        return graph_text.without_padding(features, most=most, least=least)

    def parse(self, serialized: tf.Tensor) -> Features:
        """Serialized tf.Examples [B] -> the features of their records."""
        return graph_text.parse_examples(serialized, tuple(self.feature_names))


def _checked_positions(features: Features) -> tuple[Features, tf.Tensor]:
    """Features with positions [B, P] inside the rows, and the columns that these need."""
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
    return features, tf.reduce_max(tf.concat([positions, [0]], 0)) + 1
