"""The sizes and constants of a BERT: `bert_config.json`."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable
from typing import Any

from bert_tf.errors import InputError
from bert_tf.files import read_json

# Written into released configurations, read by nothing: the pooler they describe is the one
# that every BERT has.
UNUSED_KEYS = frozenset(
    {
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    }
)
# What stands on top of the encoder: each head and the class of Hugging Face's transformers for it.
HEADS = {
    "pretraining": "BertForPreTraining",
    "fill_mask": "BertForMaskedLM",
    "classification": "BertForSequenceClassification",
    "multi_label": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "multiple_choice": "BertForMultipleChoice",
    "token_labels": "BertForTokenClassification",
    "question_answering": "BertForQuestionAnswering",
    "embeddings": "BertModel",
}
ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """Sizes of a BERT, named as the keys of `bert_config.json` (original: `BertConfig`).

    Raises:
      InputError: a size is not positive, sizes do not fit each other, or the activation is unknown.
    """

    vocab_size: int  # V, rows of the word-embedding table
    hidden_size: int = 768  # D
    num_hidden_layers: int = 12
    num_attention_heads: int = 12  # N; the head size H is D / N
    intermediate_size: int = 3072  # F
    hidden_act: str = "gelu"  # gelu is the tanh form; gelu_erf the exact one
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512  # the longest sequence
    type_vocab_size: int = 16  # the original's default; released files say 2
    initializer_range: float = 0.02  # standard deviation of the truncated normal
    layer_norm_eps: float = 1e-12  # ours; the original has 1e-12 in its code

    def __post_init__(self):
        for field in dataclasses.fields(self):
            self._check_value(field, getattr(self, field.name))
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size {self.hidden_size} with num_attention_heads "
                f"{self.num_attention_heads}",
                "a hidden size that is a multiple of the number of heads",
                "change one of the two in the configuration",
            )
        if self.hidden_act not in ACTIVATIONS:
            raise InputError(
                f"hidden_act {self.hidden_act!r}",
                f"one of {', '.join(ACTIVATIONS)}",
                "change hidden_act in the configuration",
            )

    def _check_value(self, field: dataclasses.Field, value: Any) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if field.type is int and not (is_number and isinstance(value, int) and value > 0):
            expected = "a whole number above 0"
        elif field.type is float and not (is_number and 0 <= value < math.inf):
            expected = "a number, 0 or more"
        elif field.name.endswith("dropout_prob") and value >= 1:
            expected = "a probability below 1"
        else:
            return
        raise InputError(
            f"{field.name} {value!r}", expected, f"correct {field.name} in the configuration"
        )

    @classmethod
    def from_dict(cls, values: dict[str, Any], *, source: str = "the given dict") -> "BertConfig":
        """Builds a configuration; `source` names it in messages.

        Raises:
          InputError: a key is unknown, vocab_size is missing, or a value is wrong.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        # null is how the original spells "no activation".
        values = {k: "linear" if k == "hidden_act" and not v else v for k, v in values.items()}
        refuse_unknown_keys(values.keys() - UNUSED_KEYS, known, source=source)
        if "vocab_size" not in values:
            raise InputError(
                f"{source} without vocab_size", "the size of the vocabulary", "add vocab_size"
            )
        try:
            return cls(**{k: v for k, v in values.items() if k in known})
        except InputError as error:
            raise InputError(
                f"{error.received} in {source}", error.expected, error.remedy
            ) from None

    @classmethod
    def from_json_file(cls, path: str | pathlib.Path) -> "BertConfig":
        """Reads a released `bert_config.json`; local or remote path."""
        values = read_json(
            str(path),
            expected="the bert_config.json of a model, a JSON object with its sizes",
            remedy="check that --bert_config_file names the right file",
        )
        return cls.from_dict(values, source=str(path))

    def to_dict(self) -> dict[str, Any]:
        """The configuration as a dict of JSON values."""
        return dataclasses.asdict(self)

    def to_json_string(self) -> str:
        """The configuration as the text of a `bert_config.json`."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def check_sequence_length(self, max_seq_length: int) -> None:
        """Raises `InputError` if sequences of that length have no position embeddings."""
        longest = self.max_position_embeddings
        if not 0 < max_seq_length <= longest:
            raise InputError(
                f"max_seq_length {max_seq_length}",
                f"1 to {longest}, the max_position_embeddings of the model",
                f"use --max_seq_length={longest} or less, with data made for it",
            )

    def check_vocabulary_size(self, num_pieces: int, *, vocab_file: str) -> None:
        """Raises `InputError` if the vocabulary is longer than the word-embedding table."""
        if num_pieces > self.vocab_size:
            raise InputError(
                f"{vocab_file} with {num_pieces} word pieces",
                f"at most {self.vocab_size}, the vocab_size of the model",
                "give the vocabulary that belongs to the model, or set vocab_size in the "
                "configuration",
            )


def refuse_unknown_keys(keys: Iterable[str], known: Iterable[str], *, source: str) -> None:
    """Raises `InputError` naming the keys of a JSON object that are not known."""
    if unknown := sorted(set(keys) - set(known)):
        raise InputError(
            f"{source} with the unknown keys {', '.join(unknown)}",
            f"only {', '.join(sorted(known))}",
            "correct the spelling, or remove keys of another kind of model",
        )
