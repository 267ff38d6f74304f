"""What a task is to be exported: its signatures, each a function of tensors.

A new kind of task is a subclass of `ServingTask` in a file of its own: it says what its texts are
called and what becomes of them, and is entered in `kinds.py`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.serving.graph_text import (
    FEATURE_NAMES,
    Features,
    Sequences,
    checked,
    in_range,
    parse_examples,
    without_padding,
)
from bert_tf.serving.inference import InferenceModel
from bert_tf.tokenization.wordpiece import FullTokenizer

Answers = dict[str, tf.Tensor]
TEXT = tf.TensorSpec([None], tf.string)
IDS = tf.TensorSpec([None, None], tf.int32)
DEFAULT, FROM_IDS, FROM_EXAMPLES = "serving_default", "ids", "examples"


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of named tensors.

    Attributes:
      inputs: types and shapes by name.
      function: takes them by name, gives the answers by name.
      outputs: what each answer is, with its type and shape.
    """

    inputs: Mapping[str, tf.TensorSpec]
    function: Callable[..., Answers]
    outputs: Mapping[str, str]

    def traced(self) -> tf.types.experimental.ConcreteFunction:
        """The function as a graph, for any batch size and length."""
        specs = {
            name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
            for name, spec in self.inputs.items()
        }
        # `autograph=False`: nothing here is Python control flow over tensors.
        return tf.function(self.function, autograph=False).get_concrete_function(**specs)


def refuse_no_numbers(answers: Mapping[str, np.ndarray]) -> None:
    """Raises InputError if an answer is infinite or no number: it would look like any other."""
    for name, value in answers.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise InputError(
                received=f"a model whose {name} are infinite or no numbers",
                expected="numbers: its training has gone wrong, or its weights are damaged",
                remedy="give another checkpoint",
            )


class ServingTask:
    """A model with the texts it takes and the answers it gives.

    Attributes:
      name: of the kind of task, as in --task.
      model: the model.
      sequences: how texts become what it takes.
    """

    name: str
    title: str  # a line for the model card
    texts: Mapping[str, str]  # the text inputs: what each is
    outputs: Mapping[str, str]  # the answers: what each is, with its type and shape
    feature_names: Sequence[str] = FEATURE_NAMES
    text_options: Sequence[str] = ()  # of how texts become features, and numbers answers

    def __init__(
        self,
        model: InferenceModel,
        tokenizer: FullTokenizer,
        config: BertConfig,
        *,
        max_seq_length: int,
    ):
        """Takes in what belongs together.

        Args:
          model: with the head of this kind.
          tokenizer: that it was trained with.
          config: of the model.
          max_seq_length: most pieces of a sequence.

        Raises:
          InputError: they do not fit.
        """
        self.model = model
        # One function for all signatures: traced once, and once in the graph.
        specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in self.feature_names}
        self._model = tf.function(model, input_signature=[specs], autograph=False)
        self.sequences = Sequences(tokenizer, config, max_seq_length=max_seq_length)

    # ------------------------------------------------------------------------ to be defined

    def answer(self, **texts: tf.Tensor) -> Answers:
        """Texts by name, each [B] -> the answers, each [B, ...]."""
        raise NotImplementedError

    def answer_ids(self, features: Features) -> Answers:
        """Features of sequences without needless padding -> the answers."""
        raise NotImplementedError

    def samples(self) -> list[dict[str, Any]]:
        """Some requests of different lengths: a value for each text input."""
        raise NotImplementedError

    def id_outputs(self) -> Mapping[str, str]:
        """The answers to features, as `outputs`; S columns are those of the longest row asked."""
        return self.outputs

    def options(self) -> dict[str, Any]:
        """What was chosen at export and belongs in the model card."""
        return {"max_seq_length": self.sequences.max_seq_length}

    def options_of_ids(self) -> dict[str, Any]:
        """Those that hold where a program gives ids and reads numbers."""
        return {k: value for k, value in self.options().items() if k not in self.text_options}

    def further_signatures(self) -> dict[str, Signature]:
        """Signatures of this kind alone."""
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
                texts = checked(texts, alike, f"{' and '.join(texts)} must be equally many")
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
        """Features as they are given -> without the columns that are padding in every row.

        Raises (when it runs):
          InvalidArgumentError: they do not fit each other or the model.
        """
        config = self.sequences.config
        features = in_range(features, "input_ids", config.vocab_size)
        features = in_range(features, "segment_ids", config.type_vocab_size)
        return without_padding(features, most=config.max_position_embeddings)

    def parse(self, serialized: tf.Tensor) -> Features:
        """Serialized tf.Examples [B] -> the features of their records."""
        return parse_examples(serialized, tuple(self.feature_names))

    def outputs_of(self, features: Features) -> Answers:
        """What the model says of features."""
        return self._model(dict(features))
