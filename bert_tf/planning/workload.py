"""What is trained and how: everything that memory and time depend on, and the model's variables."""

import dataclasses
import functools
import math

from bert_tf.config import BertConfig
from bert_tf.errors import InputError

HEADS = ("pretraining", "classification", "token_labels", "question_answering")  # of heads.NAMES
FLOAT32 = INT32 = 4  # bytes of an element

Shapes = dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """A training run; the fields are named as the flags of the scripts.

    Raises:
      InputError: the head is none of HEADS, the sequence is too long, or the batch cannot be split
        evenly.
    """

    config: BertConfig
    head: str = "pretraining"  # one of HEADS
    max_seq_length: int = 128  # S
    train_batch_size: int = 32  # of a step, all devices together
    max_predictions_per_seq: int = 20  # P; of pre-training only
    num_classes: int = 2  # C; of classification and token_labels only
    precision: str = "float32"
    recompute: bool = False  # encoder blocks are computed again in the backward pass
    gradient_accumulation_steps: int = 1
    num_replicas: int = 1
    optimizer: str = "adamw"

    def __post_init__(self):
        self.config.check_sequence_length(self.max_seq_length)
        if self.head not in HEADS:
            raise InputError(f"--head={self.head}", f"one of {', '.join(HEADS)}", "correct --head")
        parts = self.num_replicas * self.gradient_accumulation_steps
        if self.train_batch_size % parts:
            raise InputError(
                f"--train_batch_size={self.train_batch_size}",
                f"a multiple of {self.num_replicas} replicas times "
                f"{self.gradient_accumulation_steps} accumulation steps",
                f"use a multiple of {parts}",
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
    def classes(self) -> int:
        """Outputs of the head for each row or token; start and end of an answer are 2."""
        return self.num_classes if self.head in ("classification", "token_labels") else 2

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
    def variables(self) -> Shapes:
        """The shape of every trained variable, by its name in checkpoints."""
        return _variables(self.config, self.head, self.classes)

    def parameters(self, prefix: str = "") -> int:
        """Elements of all variables whose names begin with `prefix`."""
        shapes = self.variables.items()
        return sum(math.prod(shape) for name, shape in shapes if name.startswith(prefix))


@functools.lru_cache
def _variables(config: BertConfig, head: str, classes: int) -> Shapes:
    hidden, wide = config.hidden_size, config.intermediate_size
    tables = {
        "word_embeddings": config.vocab_size,
        "token_type_embeddings": config.type_vocab_size,
        "position_embeddings": config.max_position_embeddings,
    }
    shapes = {f"bert/embeddings/{name}": (rows, hidden) for name, rows in tables.items()}
    shapes |= _norm("bert/embeddings", hidden)
    for number in range(config.num_hidden_layers):
        layer = f"bert/encoder/layer_{number}"
        for projection in ("self/query", "self/key", "self/value", "output/dense"):
            shapes |= _dense(f"{layer}/attention/{projection}", hidden, hidden)
        shapes |= _norm(f"{layer}/attention/output", hidden)
        shapes |= _dense(f"{layer}/intermediate/dense", hidden, wide)
        shapes |= _dense(f"{layer}/output/dense", wide, hidden)
        shapes |= _norm(f"{layer}/output", hidden)
    shapes |= _dense("bert/pooler/dense", hidden, hidden)
    if head == "pretraining":
        shapes |= _dense("cls/predictions/transform/dense", hidden, hidden)
        shapes |= _norm("cls/predictions/transform", hidden)
        shapes["cls/predictions/output_bias"] = (config.vocab_size,)
    scope = {"pretraining": "cls/seq_relationship/", "question_answering": "cls/squad/"}
    name = f"{scope.get(head, '')}output"
    return shapes | {f"{name}_weights": (classes, hidden), f"{name}_bias": (classes,)}


def _dense(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}


def _norm(scope: str, size: int) -> Shapes:
    return {f"{scope}/LayerNorm/{name}": (size,) for name in ("gamma", "beta")}
