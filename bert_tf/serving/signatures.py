"""What all served tasks share: a model, its texts and answers, and the signatures of its export.

A head names the class of its signatures. `classification.TextTask` serves any head that defines
`answers`; a task that makes something else of texts is a subclass in a file of its own.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.heads.head import Head
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
        specs = {k: tf.TensorSpec(v.shape, v.dtype, name=k) for k, v in self.inputs.items()}
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
      head: of the model.
      texts: the text inputs: what each is.
      outputs: the answers: each one's type, shape and meaning.
      feature_names: the model's inputs.
      own_options: fields of `ServingOptions` that affect this task, beside task, max_seq_length
        and the labels of a head whose classes have names.
      text_options: those of them that an export of ids alone cannot have.
    """

    texts: Mapping[str, str]
    outputs: Mapping[str, str]
    feature_names: Sequence[str] = FEATURE_NAMES
    own_options: Sequence[str] = ()
    text_options: Sequence[str] = ()

    def __init__(
        self,
        head: Head,
        model: InferenceModel,
        tokenizer: FullTokenizer,
        config: BertConfig,
        options: ServingOptions,
    ):
        """Connects a model with its tokenizer.

        Args:
          head: whose signatures these are.
          model: with this head.
          tokenizer: the one it was trained with.
          config: of the model.
          options: with a value in every field of `own_options`.

        Raises:
          InputError: they do not fit each other.
        """
        self.head, self.model, self.options = head, model, options
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

    def further_signatures(self) -> dict[str, Signature]:
        """Signatures of this task alone."""
        return {}

    # ------------------------------------------------------------------------ signatures

    @classmethod
    def option_names(cls, head: Head) -> tuple[str, ...]:
        """The options that affect the task with a head, beside `task`."""
        return ("max_seq_length", *cls.own_options, *(["labels"] if head.has_names else []))

    def listed_options(self) -> dict[str, Any]:
        """The options that were chosen at export, for the model card."""
        values = {name: getattr(self.options, name) for name in self.option_names(self.head)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def text_specs(self) -> dict[str, tf.TensorSpec]:
        """Types and shapes of the text inputs."""
        return dict.fromkeys(self.texts, TEXT)

    def id_specs(self) -> dict[str, tf.TensorSpec]:
        """Types and shapes of a record's features."""
        return dict.fromkeys(self.feature_names, IDS)

    def signatures(self) -> dict[str, Signature]:
        """All signatures by name."""

        def of_texts(**texts):
            if len(texts) > 1:
                counts = tf.stack([tf.shape(text)[0] for text in texts.values()])
                alike = tf.reduce_all(tf.equal(counts[0], counts))
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
    fits = tf.reduce_all((positions >= 0) & (positions < width)) & (tf.shape(positions)[0] == rows)
    features = checked(
        features,
        fits,
        "masked_lm_positions must have a row for each of input_ids, and be 0 or more and below "
        "their width",
    )
    positions = tf.reshape(features["masked_lm_positions"], [-1])
    return features, tf.reduce_max(tf.concat([positions, [0]], 0)) + 1
