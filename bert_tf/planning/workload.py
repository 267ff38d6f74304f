"""What is trained, how and on what: all that memory and time depend on."""

import dataclasses
import functools
import math
import pathlib
from typing import NamedTuple

from bert_tf.config import BertConfig
from bert_tf.data import packed_sizes
from bert_tf.errors import InputError

FLOAT32 = INT32 = 4  # bytes of an element
GIB = 1 << 30
MASKED_SHARE = 0.15  # of the tokens of packed rows, the default of data generation
STEPS = ("train", "evaluate", "predict")  # programs that a training script runs on a device

# ---------------------------------------------------------------------------- devices

# The share of a GPU's memory up to which XLA takes a program as it is: 95 % of 80 %. Beyond it XLA
# recomputes parts of the program by itself; and libraries need memory too.
GPU_SHARE = 0.95 * 0.8


class Accelerator(NamedTuple):
    """What a TensorFlow replica runs on: a chip, of a TPU v4 one of the two cores of a chip.

    Rates are those of the maker's data sheet, in bfloat16 with dense operands. The memory of a TPU
    is what its compiler says it has: the rest is kept for the system.
    """

    name: str  # as the maker calls it
    memory_bytes: int  # that a program may use without parts that its compiler computes again
    flops_per_second: float
    bytes_per_second: float  # of its memory
    link_bytes_per_second: float  # to its neighbour, one way
    topology: str = ""  # of the smallest slice of TPUs, as libtpu calls it
    slice_type: str = ""  # of that slice, as the cloud calls it

    @property
    def kind(self) -> str:
        """tpu or gpu."""
        return "tpu" if self.topology else "gpu"

    @property
    def description(self) -> str:
        """Of a GPU: what XLA asks its driver for, as text of XLA's GpuTargetConfigProto."""
        name = self.name.split()[1].lower()
        return (pathlib.Path(__file__).parent / f"gpus/{name}.txtpb").read_text(encoding="utf-8")


DEVICES = {
    "v4": Accelerator("TPU v4 core", int(15.25 * GIB), 137.5e12, 614e9, 50e9, "v4:2x2x1", "v4-8"),
    "v5e": Accelerator("TPU v5e", int(15.75 * GIB), 197e12, 819e9, 50e9, "v5e:2x2", "v5litepod-4"),
    "v6e": Accelerator("TPU v6e", int(31.25 * GIB), 918e12, 1640e9, 112e9, "v6e:2x2", "v6e-4"),
    "a100": Accelerator("NVIDIA A100 80GB SXM", int(GPU_SHARE * 80 * GIB), 312e12, 2039e9, 300e9),
    "h100": Accelerator(
        "NVIDIA H100 80GB SXM", int(GPU_SHARE * 84942979072), 989e12, 3350e9, 450e9
    ),
}

# ---------------------------------------------------------------------------- heads


class HeadSizes(NamedTuple):
    """What a head adds to the encoder."""

    scope: str = ""  # of its output's weights
    per_token: bool = False  # an output for each token, otherwise for the pooled vector
    classes: int | None = None  # outputs; None: `num_classes`
    masked: bool = False  # it predicts masked words, too


HEADS = {  # of bert_tf.heads.NAMES
    "pretraining": HeadSizes("cls/seq_relationship/", classes=2, masked=True),
    "classification": HeadSizes(),
    "token_labels": HeadSizes(per_token=True),
    "question_answering": HeadSizes("cls/squad/", per_token=True, classes=2),
}

# ---------------------------------------------------------------------------- training

Shapes = dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """A training run; the fields are named as the flags of the scripts.

    Raises:
      InputError: the sequence is too long, or the batch cannot be split evenly.
    """

    config: BertConfig
    head: str = "pretraining"  # one of HEADS
    max_seq_length: int = 128  # S
    train_batch_size: int = 32  # of a step, all devices together
    max_predictions_per_seq: int = 20  # P; of pre-training only
    pack: bool = False  # rows of several sequences; of pre-training only
    num_classes: int = 2  # C; of classification and token_labels only
    precision: str = "float32"
    recompute: bool = False  # encoder blocks are computed again in the backward pass
    gradient_accumulation_steps: int = 1
    num_replicas: int = 1
    optimizer: str = "adamw"

    def __post_init__(self):
        self.config.check_sequence_length(self.max_seq_length)
        parts = self.num_replicas * self.gradient_accumulation_steps
        if self.train_batch_size % parts:
            received = f"--train_batch_size={self.train_batch_size}"
            expected = f"a multiple of {parts}, num_replicas times gradient_accumulation_steps"
            raise InputError(received, expected, "correct --train_batch_size")
        if self.pack and not self.of_head.masked:
            received = f"--pack with --head={self.head}"
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
        """What the head adds to the encoder; a causal model's has no next sentences."""
        head = HEADS[self.head]
        return head._replace(classes=0) if head.masked and self.config.is_causal else head

    @property
    def masked(self) -> int:
        """M, masked positions of one device's micro-batch; 0 without a masked-LM head."""
        return self.rows * self.row_sizes[1] if self.of_head.masked else 0

    @property
    def row_sizes(self) -> tuple[int, int]:
        """The sequences and the predictions of a row: 1 and P, or those of packed rows.

        A causal model predicts every token.
        """
        sizes = 1, self.max_predictions_per_seq
        if self.pack:
            sizes = packed_sizes(self.max_seq_length, self.max_predictions_per_seq, MASKED_SHARE)
        return (sizes[0], self.max_seq_length) if self.config.is_causal else sizes

    @property
    def classes(self) -> int:
        """Outputs of the head for each row or token; start and end of an answer are 2."""
        return self.num_classes if self.of_head.classes is None else self.of_head.classes

    @property
    def lstm_inputs(self) -> list[int]:
        """Elements of a token that each BiLSTM reads; in pre-training there is none."""
        return _lstm_inputs(self.config, self.of_head)

    @property
    def head_inputs(self) -> int:
        """What the classifier reads: D, or 2 H of a BiLSTM with H units in each direction."""
        return 2 * self.config.bilstm_size if self.lstm_inputs else self.config.hidden_size

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
        return _variables(self.config, self.of_head, self.classes, self.head_inputs)

    def parameters(self, prefix: str = "") -> int:
        """Elements of all variables whose names begin with `prefix`."""
        shapes = self.variables.items()
        return sum(math.prod(shape) for name, shape in shapes if name.startswith(prefix))


def _lstm_inputs(config: BertConfig, head: HeadSizes) -> list[int]:
    layers = min(4, config.num_hidden_layers) if config.features == "concat_last_four" else 1
    sizes = [layers * config.hidden_size, *[2 * config.bilstm_size] * config.bilstm_layers]
    return [] if head.masked else sizes[: config.bilstm_layers]


@functools.lru_cache
def _variables(config: BertConfig, head: HeadSizes, classes: int, width: int) -> Shapes:
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
    if head.masked:
        shapes |= _dense("cls/predictions/transform/dense", hidden, hidden)
        shapes |= _norm("cls/predictions/transform", hidden)
        shapes["cls/predictions/output_bias"] = (config.vocab_size,)
    inputs, gates = _lstm_inputs(config, head), 4 * config.bilstm_size
    if inputs and config.features.startswith("sum_"):
        layers = config.num_hidden_layers
        summed = layers if config.features == "sum_all" else min(4, layers)
        shapes["weighted_sum/layer_weights"] = (summed,)
    for number, size in enumerate(inputs):
        for way in ("forward", "backward"):
            cell = f"bilstm_{number}/{way}_lstm/lstm_cell"
            shapes |= _dense(cell, size, gates)
            shapes[f"{cell}/recurrent_kernel"] = (config.bilstm_size, gates)
    name = f"{head.scope}output"
    output = {f"{name}_weights": (classes, width), f"{name}_bias": (classes,)}
    return shapes | (output if classes else {})


def _dense(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}


def _norm(scope: str, size: int) -> Shapes:
    return {f"{scope}/LayerNorm/{name}": (size,) for name in ("gamma", "beta")}
