"""The work of a training step, by part: FLOPs of the products, and bytes that are moved.

A product of [m, k] and [k, n] takes 2 m k n FLOPs. Its backward pass is two products of the same
size, one for each factor's gradient. What is done element by element costs next to no FLOPs but
moves its operands through memory; XLA fuses chains of it into single passes, which are what is
counted here.
"""

from typing import NamedTuple

from bert_tf.planning.memory import FLOAT32, parameters
from bert_tf.planning.workload import Workload

# Passes over T * D, T * F and B * N * S * S arrays of a block, forward, besides the products.
# Biases and splitting into heads 6, joining them 2, adding, dropout and normalization 7 twice.
NARROW_PASSES = 22
WIDE_PASSES = 3  # gelu: the product in, its tanh and itself out
SQUARE_PASSES = 6  # soft-max: in for maximum, sum and result, out; dropout: in, out
# Weights, two moments in and out, the gradient in twice: for the norm, and for the update.
UPDATE_PASSES = 8
UPDATE_FLOPS = 16  # of a weight, about
# LAMB's norms come before its step: the update out and in again, and the weight in once more.
LAMB_PASSES = 3
LAMB_FLOPS = 4  # two squares, added up
PHASES = ("forward", "backward", "recompute", "update")


class Part(NamedTuple):
    """A part of a step, summed over all micro-batches of one device."""

    name: str
    phase: str  # one of PHASES
    matmul_flops: int  # of products
    matmul_bytes: int  # their operands and results, each once
    moved_bytes: int  # by everything else


class Product(NamedTuple):
    """`repeats` products of [m, k] and [k, n]."""

    part: str
    m: int
    k: int
    n: int
    repeats: int = 1
    gradients: int = 2  # 1 where one of the factors needs none

    @property
    def flops(self) -> int:
        """2 m k n, so often as it is repeated."""
        return 2 * self.m * self.k * self.n * self.repeats

    def moved(self, size: int) -> int:
        """Bytes of operands and result, of `size` bytes an element."""
        return size * self.repeats * (self.m * self.k + self.k * self.n + self.m * self.n)


def products(work: Workload) -> list[Product]:
    """The forward pass of one micro-batch."""
    config = work.config
    tokens, length, hidden = work.tokens, work.max_seq_length, config.hidden_size
    layers, wide = config.num_hidden_layers, config.intermediate_size
    cores = layers * work.rows * config.num_attention_heads
    head_size = hidden // config.num_attention_heads
    return [
        Product("embeddings", tokens, config.type_vocab_size, hidden, gradients=1),
        Product("projections", tokens, hidden, hidden, 4 * layers),
        Product("attention", length, head_size, length, cores),  # scores
        Product("attention", length, length, head_size, cores),  # context
        Product("feed-forward", tokens, hidden, wide, layers),
        Product("feed-forward", tokens, wide, hidden, layers),
        *_head_products(work),
    ]


def _head_products(work: Workload) -> list[Product]:
    hidden, rows, classes = work.config.hidden_size, work.rows, work.num_classes
    pooler = Product("head", rows, hidden, hidden)
    if work.head == "pretraining":
        return [
            pooler,
            Product("head", rows, hidden, 2),
            Product("head", work.masked, hidden, hidden),
            Product("masked-LM logits", work.masked, hidden, work.config.vocab_size),
        ]
    if work.head == "classifier":
        return [pooler, Product("head", rows, hidden, classes)]
    return [Product("head", work.tokens, hidden, 2 if work.head == "span" else classes)]


def step_parts(workload: Workload) -> list[Part]:
    """The parts of a step of one device, all its micro-batches together, and one update."""
    work = workload
    forward = _forward(work)
    backward = [_backward(part, work) for part in forward]
    again = ("projections", "attention", "feed-forward")
    recompute = [part._replace(phase="recompute") for part in forward if part.name in again]
    parts = [*forward, *backward, *(recompute if work.recompute else [])]
    steps = work.gradient_accumulation_steps
    parts = [Part(*part[:2], *(steps * amount for amount in part[2:])) for part in parts]
    size = FLOAT32 * parameters(work)
    moved = UPDATE_PASSES * size + (3 * size * steps if steps > 1 else 0)  # adding gradients up
    if work.optimizer == "lamb":
        moved += LAMB_PASSES * size
    return [*parts, Part("update", "update", 0, 0, moved)]


def _forward(work: Workload) -> list[Part]:
    found: dict[str, Part] = {}
    for product in products(work):
        part = found.get(product.part, Part(product.part, "forward", 0, 0, 0))
        found[product.part] = part._replace(
            matmul_flops=part.matmul_flops + product.flops,
            matmul_bytes=part.matmul_bytes + product.moved(work.activation_bytes),
        )
    moved = _moved(work)
    return [part._replace(moved_bytes=moved.get(name, 0)) for name, part in found.items()]


def _moved(work: Workload) -> dict[str, int]:
    """Bytes moved by what is done element by element in the forward pass."""
    config, size = work.config, work.activation_bytes
    layers = config.num_hidden_layers
    narrow = work.tokens * config.hidden_size * size
    squares = work.tokens * config.num_attention_heads * work.max_seq_length
    return {
        "embeddings": 8 * narrow,  # rows of three tables, sum, normalization, dropout
        "projections": NARROW_PASSES * narrow * layers,
        "attention": SQUARE_PASSES * squares * FLOAT32 * layers,
        "feed-forward": WIDE_PASSES * work.tokens * config.intermediate_size * size * layers,
        "masked-LM logits": 4 * FLOAT32 * work.masked * config.vocab_size,  # maximum, exp, sum
    }


def _backward(part: Part, work: Workload) -> Part:
    """Two products for one; passes element by element about twice as many, but for the loss."""
    flops = sum(p.gradients * p.flops for p in products(work) if p.part == part.name)
    if part.name == "masked-LM logits":
        flops += 2 * work.masked * work.config.vocab_size  # the bias's gradient is a product too
    moved = part.moved_bytes * (1 if part.name == "masked-LM logits" else 2)
    return Part(part.name, "backward", flops, 2 * part.matmul_bytes, moved)


def total_flops(workload: Workload) -> dict[str, int]:
    """FLOPs of a step by phase, of all devices together."""
    found: dict[str, int] = {}
    for part in step_parts(workload):
        found[part.phase] = found.get(part.phase, 0) + part.matmul_flops
    of_weight = UPDATE_FLOPS + (LAMB_FLOPS if workload.optimizer == "lamb" else 0)
    found["update"] = of_weight * parameters(workload)
    return {phase: workload.num_replicas * flops for phase, flops in found.items()}
