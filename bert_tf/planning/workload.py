"""A training run as far as its memory depends on it: model, batch, precision, devices."""

import dataclasses
from typing import NamedTuple

from bert_tf.config import BertConfig
from bert_tf.data import packed_sizes
from bert_tf.errors import InputError
from bert_tf.heads import SHIPPED, head_named
from bert_tf.heads.head import HeadSizes

FLOAT32 = INT32 = 4  # bytes of an element
GIB = 1 << 30
MASKED_SHARE = 0.15  # of the tokens of packed rows, the default of data generation

# ---------------------------------------------------------------------------- devices

# The share of a GPU's memory that a program may need: 95 % of 80 %. Above it XLA recomputes parts
# of the program by itself. Libraries need memory too.
GPU_SHARE = 0.95 * 0.8


class Accelerator(NamedTuple):
    """The device of a TensorFlow replica: a chip, or one of the two cores of a TPU v4."""

    name: str  # the maker's
    kind: str  # tpu or gpu
    memory_bytes: int  # that a program may need before its compiler recomputes parts of it


# The memory of a TPU as its compiler states it: without the system's part.
DEVICES = {
    "v4": Accelerator("TPU v4 core", "tpu", int(15.25 * GIB)),
    "v5e": Accelerator("TPU v5e", "tpu", int(15.75 * GIB)),
    "v6e": Accelerator("TPU v6e", "tpu", int(31.25 * GIB)),
    "a100": Accelerator("NVIDIA A100 80GB SXM", "gpu", int(GPU_SHARE * 80 * GIB)),
    "h100": Accelerator("NVIDIA H100 80GB SXM", "gpu", int(GPU_SHARE * 84942979072)),
}

# ---------------------------------------------------------------------------- heads


PLANNED = tuple(head.name for head in SHIPPED if head.added_sizes)

# ---------------------------------------------------------------------------- training


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """A training run; the fields are named as the flags of the scripts.

    Raises:
      InputError: the sequence is too long, or the batch cannot be split evenly.
    """

    config: BertConfig
    head: str = "pretraining"  # one of PLANNED
    max_seq_length: int = 128  # S
    train_batch_size: int = 32  # of a step, all devices together
    max_predictions_per_seq: int = 20  # P; of pre-training only
    pack: bool = False  # rows of several sequences; of pre-training only
    num_classes: int = 2  # C; of heads with classes only
    precision: str = "float32"
    recompute: bool = False  # encoder blocks are computed again in the backward pass
    gradient_accumulation_steps: int = 1
    num_replicas: int = 1

    def __post_init__(self):
        self.config.check_sequence_length(self.max_seq_length)
        parts = self.num_replicas * self.gradient_accumulation_steps
        if self.train_batch_size % parts:
            received = f"--train_batch_size={self.train_batch_size}"
            expected = f"a multiple of {parts}, num_replicas times gradient_accumulation_steps"
            raise InputError(received, expected, "correct --train_batch_size")
        if self.pack and not self.of_head.masked:
            received = f"--pack with --task={self.head}"
            raise InputError(received, "packed rows of pre-training", "leave out --pack")

    @property
    def rows(self) -> int:
        """B of one device's micro-batch."""
        return self.train_batch_size // (self.num_replicas * self.gradient_accumulation_steps)

    @property
    def tokens(self) -> int:
        """T, tokens of one device's micro-batch."""
        return self.rows * self.max_seq_length

    @property
    def of_head(self) -> HeadSizes:
        """The sizes that the head adds to the encoder; a causal model has no next sentences."""
        sizes = head_named(self.head).added_sizes
        is_without_next = sizes.masked and self.config.is_causal
        return sizes._replace(classes=0) if is_without_next else sizes

    @property
    def masked(self) -> int:
        """M, masked positions of one device's micro-batch; 0 without a masked-LM head."""
        return self.rows * self.row_sizes[1] if self.of_head.masked else 0

    @property
    def row_sizes(self) -> tuple[int, int]:
        """The sequences and the predictions of a row: 1 and P, or those of packed rows."""
        if self.pack:
            return packed_sizes(self.max_seq_length, self.max_predictions_per_seq, MASKED_SHARE)
        return 1, self.max_predictions_per_seq

    @property
    def classes(self) -> int:
        """Outputs of the head for each row or token; start and end of an answer are 2."""
        return self.num_classes if self.of_head.classes is None else self.of_head.classes

    @property
    def hidden_elements(self) -> int:
        """T * D, elements of a layer's input."""
        return self.tokens * self.config.hidden_size

    @property
    def intermediate_elements(self) -> int:
        """T * F, elements of the feed-forward layer's inner result."""
        return self.tokens * self.config.intermediate_size

    @property
    def attention_elements(self) -> int:
        """B * N * S * S, elements of a layer's attention probabilities."""
        return self.tokens * self.config.num_attention_heads * self.max_seq_length

    @property
    def activation_bytes(self) -> int:
        """Bytes of an element in the precision of the layers."""
        return FLOAT32 if self.precision == "float32" else 2

    @property
    def parameters(self) -> dict[str, int]:
        """Trained numbers by part of the model."""
        config = self.config
        hidden = config.hidden_size
        norm = 2 * hidden
        rows = config.vocab_size + config.type_vocab_size + config.max_position_embeddings
        attention = 4 * _dense(hidden, hidden) + norm
        feed_forward = _dense(hidden, config.intermediate_size)
        feed_forward += _dense(config.intermediate_size, hidden) + norm
        head = _dense(hidden, self.classes)
        if self.of_head.masked:
            head += _dense(hidden, hidden) + norm + config.vocab_size
        return {
            "embeddings": rows * hidden + norm,
            "encoder": config.num_hidden_layers * (attention + feed_forward),
            "pooler": _dense(hidden, hidden),
            "head": head,
        }


def _dense(inputs: int, outputs: int) -> int:
    """Parameters of a dense layer: kernel and bias."""
    return inputs * outputs + outputs


# ---------------------------------------------------------------------------- published models

PUBLISHED = {
    name: BertConfig(
        vocab_size=30522,
        type_vocab_size=2,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )
    for name, hidden, layers in (("BERT-Base", 768, 12), ("BERT-Large", 1024, 24))
}
