"""The work of a training step, by part: FLOPs of the matrix products, and bytes moved.

A product of [m, k] and [k, n] takes 2 m k n FLOPs. Its backward pass is two products of the same
size, one for each factor's gradient. Element-wise operations cost next to no FLOPs but move their
operands through memory; XLA fuses chains of them into single passes, which are counted here.
"""

import collections
import itertools
from typing import NamedTuple

from bert_tf.planning.workload import FLOAT32, Workload

# Passes of a block over T * D, T * F and B * N * S * S arrays, forward, besides the products.
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
    moved_bytes: int  # by element-wise operations


class Product(NamedTuple):
    """`repeats` products of [m, k] and [k, n]."""

    part: str
    m: int
    k: int
    n: int
    repeats: int = 1
    gradients: int = 2  # 1 if one of the factors needs none

    @property
    def flops(self) -> int:
        """2 m k n for each repeat."""
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
    hidden = work.config.hidden_size
    if work.head in ("token_labels", "question_answering"):
        return [Product("head", work.tokens, hidden, work.classes)]
    pooled = [
        Product("head", work.rows, hidden, hidden),
        Product("head", work.rows, hidden, work.classes),
    ]
    if work.head == "classification":
        return pooled
    return [
        *pooled,
        Product("head", work.masked, hidden, hidden),
        Product("masked-LM logits", work.masked, hidden, work.config.vocab_size),
    ]


def step_parts(work: Workload) -> list[Part]:
    """The parts of one device's step, all its micro-batches together, and the update."""
    steps, moved, parts = work.gradient_accumulation_steps, _moved(work), []
    for name, group in itertools.groupby(products(work), key=lambda product: product.part):
        group = list(group)
        flops = sum(product.flops for product in group)
        operands = sum(product.moved(work.activation_bytes) for product in group)
        forward = Part(name, "forward", flops, operands, moved.get(name, 0))
        # Two products for each, and about twice as many element-wise passes.
        flops = sum(product.gradients * product.flops for product in group)
        backward = Part(name, "backward", flops, 2 * operands, 2 * forward.moved_bytes)
        if name == "masked-LM logits":  # the bias's gradient is a product; one pass for the loss
            flops += 2 * work.masked * work.config.vocab_size
            backward = backward._replace(matmul_flops=flops, moved_bytes=forward.moved_bytes)
        parts += [forward, backward]
        if work.recompute and name in ("projections", "attention", "feed-forward"):
            parts.append(forward._replace(phase="recompute"))
    parts = [Part(*part[:2], *(steps * size for size in part[2:])) for part in parts]
    size = FLOAT32 * work.parameters()
    passes = UPDATE_PASSES + (3 * steps if steps > 1 else 0)  # adding gradients up
    passes += LAMB_PASSES if work.optimizer == "lamb" else 0
    return [*parts, Part("update", "update", 0, 0, passes * size)]


def _moved(work: Workload) -> dict[str, int]:
    """Bytes moved by element-wise operations in the forward pass."""
    layers, size = work.config.num_hidden_layers, work.activation_bytes
    narrow, wide = work.hidden_elements * size, work.intermediate_elements * size
    return {
        "embeddings": 8 * narrow,  # rows of three tables, sum, normalization, dropout
        "projections": NARROW_PASSES * narrow * layers,
        "attention": SQUARE_PASSES * work.attention_elements * FLOAT32 * layers,
        "feed-forward": WIDE_PASSES * wide * layers,
        "masked-LM logits": 4 * FLOAT32 * work.masked * work.config.vocab_size,  # max, exp, sum
    }


def total_flops(work: Workload) -> dict[str, int]:
    """FLOPs of a step by phase, of all devices together."""
    found = collections.Counter()
    for part in step_parts(work):
        found[part.phase] += part.matmul_flops
    of_weight = UPDATE_FLOPS + (LAMB_FLOPS if work.optimizer == "lamb" else 0)
    found["update"] = of_weight * work.parameters()
    return {phase: work.num_replicas * flops for phase, flops in found.items()}
