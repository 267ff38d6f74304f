"""The sizes of a BERT, `bert_config.json`.

Loads no TensorFlow: a command parses its flags first.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Self

from bert_tf.declarations import OtherKeys, check_fields, declared, size, typed
from bert_tf.errors import InputError
from bert_tf.files import own_path, read_json

# ---------------------------------------------------------------------------- the sizes of a BERT

# Keys of released configurations that nothing reads: every BERT has the pooler they describe.
_UNUSED = re.compile("directionality|pooler_")
ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")
# Hugging Face's names of these.
HUGGING_FACE_ACTIVATIONS = {
    "gelu_python": "gelu_erf",
    "gelu": "gelu_erf",
    "gelu_pytorch_tanh": "gelu",
    "gelu_new": "gelu",
    **{same: same for same in ("relu", "tanh", "linear")},
}
# The defaults of transformers that differ from ours, for files that leave a key out.
_HUGGING_FACE_DEFAULTS = {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"}
# Keys that only Hugging Face's file has. In a bert_config.json "gelu" is another function.
_HUGGING_FACE_KEYS = {"model_type", "architectures", "transformers_version"}


@dataclasses.dataclass(frozen=True)
class _HuggingFace(OtherKeys):
    """The keys of Hugging Face's config.json that change what is computed, as BERT has them."""

    hidden_act: str = declared(choices=tuple(HUGGING_FACE_ACTIVATIONS))
    model_type: str | None = declared(None, choices=("bert",))
    position_embedding_type: str | None = declared(None, choices=("absolute",))
    is_decoder: bool | None = declared(None, choices=(False,))
    add_cross_attention: bool | None = declared(None, choices=(False,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """Sizes of a BERT, named as the keys of `bert_config.json` (original: `BertConfig`).

    Roles of fields: `of_training`, the outputs of trained weights do not depend on it;
    `in_no_shape`, they do, but no weight's shape shows it.

    Raises:
      InputError: a size is not positive, sizes do not fit each other, or the activation is unknown.
    """

    # V, rows of the word-embedding table. Not by `size()`: type checkers must see no default.
    vocab_size: int = dataclasses.field(metadata=size().metadata)
    hidden_size: int = size(768)  # D
    num_hidden_layers: int = size(12, most=10_000)
    num_attention_heads: int = size(12, in_no_shape=True)  # N; the head size H is D / N
    intermediate_size: int = size(3072)  # F
    # gelu is the tanh form; gelu_erf the exact one
    hidden_act: str = declared("gelu", choices=ACTIVATIONS, in_no_shape=True)
    hidden_dropout_prob: float = declared(0.1, low=0, below=1, of_training=True)
    attention_probs_dropout_prob: float = declared(0.1, low=0, below=1, of_training=True)
    max_position_embeddings: int = size(512)  # the longest sequence
    type_vocab_size: int = size(16)  # the original's default; released files say 2
    # Deviation of a truncated normal.
    initializer_range: float = declared(0.02, low=0, high=1e6, of_training=True)
    # Fixed in the original.
    layer_norm_eps: float = declared(1e-12, low=0, high=1e6, in_no_shape=True)
    # Dropout of a classifier's input, named as in Hugging Face; None: 0.1, as in the original.
    classifier_dropout: float | None = declared(None, low=0, below=1, of_training=True)
    # Not in the original. causal: a token sees itself and those before it, and the last token
    # represents the text.
    attention: str = declared(
        "bidirectional", choices=("bidirectional", "causal"), in_no_shape=True
    )

    def __post_init__(self):
        check_fields(self)
        if self.hidden_size % self.num_attention_heads:
            heads = f"num_attention_heads {self.num_attention_heads}"
            received = f"hidden_size {self.hidden_size}, which is no multiple of {heads}"
            raise InputError(received, "a whole size for each head", "change one of the two")

    @property
    def is_causal(self) -> bool:
        """Whether tokens do not see later ones."""
        return self.attention == "causal"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "the given dict") -> Self:
        """Builds a configuration; `source` names it in messages.

        As in the original an empty hidden_act is linear, and its case has no effect.

        Raises:
          InputError: a key is unknown, vocab_size is missing, or a value is wrong.
        """
        if isinstance(values, Mapping):
            values = {key: value for key, value in values.items() if not _UNUSED.match(str(key))}
            activation = values.get("hidden_act", "gelu")
            if activation in (None, ""):
                activation = "linear"
            if isinstance(activation, str):
                activation = activation.lower()
            values["hidden_act"] = activation
        return typed(cls, values, source=source)

    @classmethod
    def from_hugging_face(cls, values: Mapping[str, Any], *, source: str) -> Self:
        """Builds a configuration from the values of Hugging Face's config.json.

        Raises:
          InputError: the architecture is another one, or a value is one that BERT does not have.
        """
        values = _HUGGING_FACE_DEFAULTS | typed(dict[str, Any], values, source=source)
        try:
            theirs = typed(_HuggingFace, values, source=source)
        except InputError as error:
            remedy = "give a model of the architecture BERT: the weights of others do not fit"
            raise InputError(error.received, error.expected, remedy) from None
        names = {field.name for field in dataclasses.fields(cls)}
        sizes = {key: value for key, value in values.items() if key in names}
        sizes["hidden_act"] = HUGGING_FACE_ACTIVATIONS[theirs.hidden_act]
        return cls.from_dict(sizes, source=source)

    @classmethod
    def from_json_file(cls, path: str | pathlib.Path) -> Self:
        """Reads a released `bert_config.json`, or Hugging Face's config.json, local or remote."""
        remedy = "check that --bert_config_file names the right file"
        values = read_json(own_path(path), expected="a model's bert_config.json", remedy=remedy)
        if isinstance(values, Mapping) and _HUGGING_FACE_KEYS & values.keys():
            return cls.from_hugging_face(values, source=str(path))
        return cls.from_dict(values, source=str(path))

    def to_dict(self) -> dict[str, Any]:
        """The configuration as JSON values, without attention and classifier_dropout if they are
        as in the original, which does not know these keys.
        """
        values = dataclasses.asdict(self)
        if not self.is_causal:
            del values["attention"]
        if self.classifier_dropout is None:
            del values["classifier_dropout"]
        return values

    def to_json_string(self) -> str:
        """The configuration as the text of a `bert_config.json`."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def check_sequence_length(self, max_seq_length: int) -> None:
        """Raises `InputError` if sequences of that length have no position embeddings."""
        longest = self.max_position_embeddings
        if not 0 < max_seq_length <= longest:
            expected = f"1 to {longest}, the max_position_embeddings of the model"
            remedy = f"use a max_seq_length of {longest} or less; records are made for one length"
            raise InputError(f"max_seq_length {max_seq_length}", expected, remedy)

    def check_vocabulary_size(self, num_pieces: int, *, vocab_file: str) -> None:
        """Raises `InputError` if the vocabulary is longer than the word-embedding table."""
        if num_pieces > self.vocab_size:
            received = f"{vocab_file} with {num_pieces} word pieces"
            expected = f"at most {self.vocab_size}, the vocab_size of the model"
            raise InputError(received, expected, "give the vocabulary of the model")
