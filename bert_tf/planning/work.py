"""The work and the time of a training step: FLOPs of its matrix products, seconds of a device.

A product of [m, k] and [k, n] takes 2 m k n FLOPs. Its backward pass is two products of the same
size, one for each factor's gradient. Element-wise operations cost next to no FLOPs but move their
operands through memory; XLA fuses chains of them into single passes, which are counted here.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from bert_tf.errors import InputError
from bert_tf.planning.workload import FLOAT32, Workload

# Passes of a block over T * D, T * F and B * N * S * S arrays, forward, besides the products.
# Biases and splitting into heads 6, joining them 2, adding, dropout and normalization 7 twice.
NARROW_PASSES = 22
WIDE_PASSES = 3  # gelu: the product in, its tanh and itself out
SQUARE_PASSES = 6  # soft-max: in for maximum, sum and result, out; dropout: in, out
# Weights, two moments in and out, the gradient in twice: for the norm, and for the update.
UPDATE_PASSES = 8
LAMB_PASSES = 3  # its norms come before its step: update out and in, and the weight in once more
IN_BLOCKS = ("projections", "attention", "feed-forward")  # what `recompute` computes again


class Part(NamedTuple):
    """A part of one micro-batch's forward pass, on one device."""

    name: str
    shapes: tuple[tuple[int, int, int], ...]  # m, k, n of each product
    repeats: int = 1  # of all products
    moved_bytes: int = 0  # by element-wise operations
    gradients: float = 2  # backward products for a forward one, on average

    @property
    def flops(self) -> int:
        """2 m k n for each product."""
        return self.repeats * sum(2 * m * k * n for m, k, n in self.shapes)

    @property
    def elements(self) -> int:
        """Of operands and results, each once."""
        return self.repeats * sum(m * k + k * n + m * n for m, k, n in self.shapes)


def forward_parts(work: Workload) -> list[Part]:
    """The forward pass of one micro-batch."""
    config, size = work.config, work.activation_bytes
    tokens, length, hidden = work.tokens, work.max_seq_length, config.hidden_size
    layers, wide = config.num_hidden_layers, config.intermediate_size
    cores = layers * work.rows * config.num_attention_heads
    narrow = work.hidden_elements * size  # bytes of T * D
    of_head = hidden // config.num_attention_heads
    core = ((length, of_head, length), (length, length, of_head))  # scores, context
    square = work.attention_elements * FLOAT32 * layers
    gelu = WIDE_PASSES * work.intermediate_elements * size * layers
    return [
        # Rows of three tables, sum, normalization, dropout; one-hot rows have no gradient.
        Part("embeddings", ((tokens, config.type_vocab_size, hidden),), 1, 8 * narrow, 1),
        Part(
            "projections", ((tokens, hidden, hidden),), 4 * layers, NARROW_PASSES * narrow * layers
        ),
        Part("attention", core, cores, SQUARE_PASSES * square),
        Part("feed-forward", ((tokens, hidden, wide), (tokens, wide, hidden)), layers, gelu),
        *_head_parts(work),
    ]


def _head_parts(work: Workload) -> Iterator[Part]:
    hidden, vocabulary = work.config.hidden_size, work.config.vocab_size
    if work.head in ("token_labels", "question_answering"):
        yield Part("head", ((work.tokens, hidden, work.classes),))
        return
    pooled = ((work.rows, hidden, hidden), (work.rows, hidden, work.classes))
    transform = ((work.masked, hidden, hidden),) if work.masked else ()
    yield Part("head", (*pooled, *transform))
    if work.masked:  # max, exp, sum; the gradient of the bias is a product too
        moved = 4 * FLOAT32 * work.masked * vocabulary
        shapes = ((work.masked, hidden, vocabulary),)
        yield Part("masked-LM logits", shapes, 1, moved, 2 + 1 / hidden)


def total_flops(work: Workload) -> dict[str, int]:
    """FLOPs of a step's products by phase, of all devices together."""
    parts = forward_parts(work)
    times = work.num_replicas * work.gradient_accumulation_steps
    phases = {
        "forward": sum(part.flops for part in parts),
        "backward": round(sum(part.gradients * part.flops for part in parts)),
    }
    if work.recompute:
        phases["recompute"] = sum(part.flops for part in parts if part.name in IN_BLOCKS)
    return {phase: times * flops for phase, flops in phases.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speed:
    """A device's speed from its data sheet, and the share of it that matrix products reach."""

    flops_per_second: float  # in the precision of the layers
    bytes_per_second: float  # of its memory
    efficiency: float = 0.5  # share of flops_per_second that products reach
    link_bytes_per_second: float = 0.0  # to its neighbour in a ring; 0: a single device


def step_seconds(work: Workload, speed: Speed) -> dict[str, float]:
    """The expected time of a training step, by part.

    Products take their FLOPs or their bytes, whichever takes longer; everything else its bytes.
    Backward passes move twice as much. Gradients are then exchanged in a ring, in which each of N
    devices sends (N - 1) / N of the sums and of the results.

    Raises:
      InputError: a speed is missing.
    """
    given = {"device_tflops": speed.flops_per_second, "device_gb_per_s": speed.bytes_per_second}
    if work.num_replicas > 1:
        given["link_gb_per_s"] = speed.link_bytes_per_second
    for name, value in given.items():
        if not value:
            raise InputError(
                f"no --{name} of {work.num_replicas} devices",
                "the speed of products, of memory and, of several devices, of their link",
                f"add --{name}, from the device's data sheet",
            )
    steps, found = work.gradient_accumulation_steps, {}
    for part in forward_parts(work):
        passes = 1 + part.gradients + (work.recompute and part.name in IN_BLOCKS)
        by_flops = part.flops / (speed.flops_per_second * speed.efficiency)
        by_bytes = part.elements * work.activation_bytes / speed.bytes_per_second
        moved = part.moved_bytes / speed.bytes_per_second
        found[part.name] = steps * passes * (max(by_flops, by_bytes) + moved)
    size = FLOAT32 * work.parameters()
    moved = UPDATE_PASSES + (LAMB_PASSES if work.optimizer == "lamb" else 0)
    moved += 3 * steps if steps > 1 else 0  # adding gradients up
    found["update"] = moved * size / speed.bytes_per_second
    if work.num_replicas > 1:
        sent = 2 * (work.num_replicas - 1) / work.num_replicas * size
        found["all-reduce"] = sent / speed.link_bytes_per_second
    return found
