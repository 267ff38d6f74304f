"""What is to be trained, and how: all that memory and time depend on."""

import dataclasses

from bert_tf.config import BertConfig
from bert_tf.errors import InputError

HEADS = ("pretraining", "classifier", "token_labels", "span")
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}  # of an activation
OPTIMIZERS = ("adamw", "lamb")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """A training; the fields are named as the flags of the scripts.

    Raises:
      InputError: a value cannot be, or the batch cannot be shared out.
    """

    config: BertConfig
    head: str = "pretraining"
    max_seq_length: int = 128  # S
    train_batch_size: int = 32  # of a step, all devices together
    max_predictions_per_seq: int = 20  # P; of pre-training only
    num_classes: int = 2  # C; of classifier and token_labels only
    precision: str = "float32"
    recompute: bool = False  # encoder blocks are computed again in the backward pass
    gradient_accumulation_steps: int = 1
    num_replicas: int = 1
    optimizer: str = "adamw"

    def __post_init__(self):
        self.config.check_sequence_length(self.max_seq_length)
        choices = {"head": HEADS, "precision": tuple(BYTES), "optimizer": OPTIMIZERS}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise _error(name, getattr(self, name), f"one of {', '.join(allowed)}")
        for name in (
            "train_batch_size",
            "max_predictions_per_seq",
            "num_classes",
            "gradient_accumulation_steps",
            "num_replicas",
        ):
            if getattr(self, name) < 1:
                raise _error(name, getattr(self, name), "1 or more")
        if self.train_batch_size % (self.num_replicas * self.gradient_accumulation_steps):
            raise _error(
                "train_batch_size",
                self.train_batch_size,
                f"a multiple of {self.num_replicas} replicas times "
                f"{self.gradient_accumulation_steps} accumulation steps",
            )

    @property
    def rows(self) -> int:
        """B of one device's micro-batch."""
        return self.train_batch_size // (self.num_replicas * self.gradient_accumulation_steps)

    @property
    def tokens(self) -> int:
        """T, tokens of one device's micro-batch."""
        return self.rows * self.max_seq_length

    @property
    def masked(self) -> int:
        """M, masked positions of one device's micro-batch; 0 without a masked-LM head."""
        return self.rows * self.max_predictions_per_seq if self.head == "pretraining" else 0

    @property
    def activation_bytes(self) -> int:
        """Bytes of an element that layers compute with."""
        return BYTES[self.precision]


def _error(name: str, value, expected: str) -> InputError:
    return InputError(
        received=f"--{name}={value}", expected=expected, remedy=f"use another --{name}"
    )
