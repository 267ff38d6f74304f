"""The work and the time of a training step, and the whole plan as text.

A product of [m, k] and [k, n] takes 2 m k n FLOPs. Its backward pass is two products of the same
size, one for each factor's gradient. Element-wise operations cost next to no FLOPs but move their
operands through memory; XLA fuses chains of them into single passes, which are counted here.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.planning.memory import largest_batch, step_memory
from bert_tf.planning.workload import FLOAT32, GIB, Workload
from bert_tf.terminal import number_of

# Passes of a block over T * D, T * F and B * N * S * S arrays, forward, besides the products.
# Biases and splitting into heads 6, joining them 2, adding, dropout and normalization 7 twice.
NARROW_PASSES = 22
WIDE_PASSES = 3  # gelu: the product in, its tanh and itself out
LSTM_PASSES = 2  # over its gates, B * S * 4 H: the products in, gates out
SQUARE_PASSES = 6  # soft-max: in for maximum, sum and result, out; dropout: in, out
# Weights, two moments in and out, the gradient in twice: for the norm, and for the update.
UPDATE_PASSES = 8
LAMB_PASSES = 3  # its norms come before its step: update out and in, and the weight in once more
SPEEDS = ("device_tflops", "device_gb_per_s", "link_gb_per_s")
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
    tokens, length, masked = work.tokens, work.max_seq_length, work.masked
    layers, hidden, wide = config.num_hidden_layers, config.hidden_size, config.intermediate_size
    vocabulary = config.vocab_size
    of_head = hidden // config.num_attention_heads
    core = ((length, of_head, length), (length, length, of_head))  # scores, context
    narrow = work.hidden_elements * size  # bytes of T * D
    square = SQUARE_PASSES * work.attention_elements * FLOAT32 * layers
    gelu = WIDE_PASSES * work.intermediate_elements * size * layers
    classified = tokens if work.of_head.per_token else work.rows * work.row_sizes[0]
    head = ((classified, work.head_inputs, work.classes),) * bool(work.classes)
    if head and not work.of_head.per_token and not work.lstm_inputs:  # the pooler
        head += ((classified, hidden, hidden),)
    head += ((masked, hidden, hidden),) * bool(masked)  # the transform of masked words
    # Both directions of each BiLSTM: all tokens' inputs at once, then place by place.
    units, lstms = config.bilstm_size, len(work.lstm_inputs)
    lstm = tuple((tokens, size, 4 * units) for size in work.lstm_inputs)
    lstm += ((work.rows, units, 4 * units),) * length * lstms
    gates = LSTM_PASSES * FLOAT32 * tokens * 8 * units * lstms  # bytes
    # Of the logits max, exp, sum; the gradient of their bias is a product, too.
    logits, moved = ((masked, hidden, vocabulary),), 4 * FLOAT32 * masked * vocabulary
    return [
        # Rows of three tables, sum, normalization, dropout; one-hot rows have no gradient.
        Part("embeddings", ((tokens, config.type_vocab_size, hidden),), 1, 8 * narrow, 1),
        Part(
            "projections", ((tokens, hidden, hidden),), 4 * layers, NARROW_PASSES * narrow * layers
        ),
        Part("attention", core, layers * work.rows * config.num_attention_heads, square),
        Part("feed-forward", ((tokens, hidden, wide), (tokens, wide, hidden)), layers, gelu),
        *([Part("BiLSTM", lstm, 2, gates)] * bool(lstms)),
        Part("head", head),
        *([Part("masked-LM logits", logits, 1, moved, 2 + 1 / hidden)] * bool(masked)),
    ]


def total_flops(work: Workload) -> dict[str, int]:
    """FLOPs of a step's products by phase, of all devices together."""
    parts = forward_parts(work)
    times = work.num_replicas * work.gradient_accumulation_steps
    phases = {
        "forward": sum(part.flops for part in parts),
        "backward": round(sum(part.gradients * part.flops for part in parts)),
    }
    phases["recompute"] = round(sum(part.flops * computed_again(work, part) for part in parts))
    return {phase: times * flops for phase, flops in phases.items()}


def computed_again(work: Workload, part: Part) -> float:
    """The share of a part's forward pass that the backward pass repeats.

    Without `recompute` GPUs and TPUs repeat attention's scores and probabilities, not the context:
    half of its products, and all that is element-wise.
    """
    return float(part.name in IN_BLOCKS) if work.recompute else 0.5 * (part.name == "attention")


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
    link = speed.link_bytes_per_second or work.num_replicas == 1
    given = (speed.flops_per_second, speed.bytes_per_second, link)
    for name, value in zip(SPEEDS, given, strict=True):
        if not value:
            expected = "the speed of products, of memory and, of several devices, of their link"
            raise InputError(f"no --{name}", expected, f"add --{name}, from the data sheet")
    steps, found = work.gradient_accumulation_steps, {}
    for part in forward_parts(work):
        again = computed_again(work, part)
        by_flops = part.flops / (speed.flops_per_second * speed.efficiency)
        by_bytes = part.elements * work.activation_bytes / speed.bytes_per_second
        moved = part.moved_bytes / speed.bytes_per_second
        passes = 1 + part.gradients
        seconds = (passes + again) * max(by_flops, by_bytes) + (passes + math.ceil(again)) * moved
        found[part.name] = steps * seconds
    size = FLOAT32 * work.parameters()
    moved = UPDATE_PASSES + (LAMB_PASSES if work.optimizer == "lamb" else 0)
    moved += 3 * steps if steps > 1 else 0  # adding gradients up
    found["update"] = moved * size / speed.bytes_per_second
    if work.num_replicas > 1:
        sent = 2 * (work.num_replicas - 1) / work.num_replicas * size
        found["all-reduce"] = sent / speed.link_bytes_per_second
    return found


# ---------------------------------------------------------------------------- text

FITS_MEMORY = (8, 12, 16, 24, 40, 80)  # GB
FITS_LENGTHS = (64, 128, 256, 320, 384, 512)
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
# From the original's README, "Out-of-memory issues": the largest batch by sequence length, for
# fine-tuning on a Titan X of 12 GB with TensorFlow 1.11.
ORIGINAL_12_GB = {
    "BERT-Base": dict(zip(FITS_LENGTHS, (64, 32, 16, 14, 12, 6), strict=True)),
    "BERT-Large": dict(zip(FITS_LENGTHS, (12, 6, 2, 1, 0, 0), strict=True)),
}


def amount(number: float, unit: str = "B") -> str:
    """A number with three digits and a unit prefix.

    >>> amount(1234567890), amount(2.5e13, "FLOP"), amount(0)
    ('1.23 GB', '25 TFLOP', '0 B')
    """
    prefixes = ["", "k", "M", "G", "T", "P"]
    while abs(number) >= 999.5 and len(prefixes) > 1:
        number /= 1000
        prefixes.pop(0)
    return f"{number:.3g} {prefixes[0]}{unit}"


def precise_duration(seconds: float) -> str:
    """A duration with three digits.

    >>> [precise_duration(seconds) for seconds in (0.0123, 100, 8000, 300000)]
    ['12.3 ms', '100 s', '2.22 h', '3.47 days']
    """
    for limit, size, unit in ((1, 1e-3, "ms"), (3600, 1, "s"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:.3g} days"


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as aligned lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()


def parameter_lines(work: Workload, *, each: bool = False) -> Iterator[str]:
    """Parameters by part of the model, or the shape of each variable."""
    yield f"Parameters: {work.parameters():,}"
    if each:
        yield from columns([(f"  {name}", f"{list(s)}") for name, s in work.variables.items()])
        return
    sizes = {name: work.parameters(f"bert/{name}/") for name in ("embeddings", "encoder", "pooler")}
    sizes["head"] = work.parameters() - sum(sizes.values())
    yield from columns([(f"  {name}", f"{size:,}") for name, size in sizes.items()])


def memory_lines(work: Workload, kind: str) -> Iterator[str]:
    """Bytes by purpose, on a gpu or tpu."""
    found = step_memory(work, kind)
    yield f"Memory of a device: {amount(found.total)}, peak at: {found.peak}"
    purposes = {name: size for name, size in found.purposes.items() if size}
    yield from columns([(f"  {name}", amount(size)) for name, size in purposes.items()])


def work_lines(work: Workload) -> Iterator[str]:
    """FLOPs by part of the forward pass, and by phase."""
    totals = total_flops(work)
    total, tokens = sum(totals.values()), work.train_batch_size * work.max_seq_length
    yield f"Work of a step: {amount(total, 'FLOP')}, {amount(total / tokens, 'FLOP')} a token"
    times = work.num_replicas * work.gradient_accumulation_steps
    rows = [(f"  forward, {part.name}", times * part.flops) for part in forward_parts(work)]
    rows += [(f"  {phase}", flops) for phase, flops in totals.items()]
    yield from columns([(name, amount(flops, "FLOP")) for name, flops in rows])


def time_lines(
    work: Workload, speed: Speed, *, num_train_steps: int = 0, price_per_hour: float = 0.0
) -> Iterator[str]:
    """Seconds by part, and what all steps take and cost."""
    parts = step_seconds(work, speed)
    total = sum(parts.values())
    rate = work.train_batch_size / total
    digits = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
    yield f"Time of a step: {precise_duration(total)}, {digits} examples/s"
    yield from columns([(f"  {n}", precise_duration(seconds)) for n, seconds in parts.items()])
    if num_train_steps:
        seconds = num_train_steps * total
        yield f"  {num_train_steps:,} steps: {precise_duration(seconds)}"
        if price_per_hour:
            cost = work.num_replicas * price_per_hour * seconds / 3600
            devices = number_of(work.num_replicas, "devices")
            yield f"  cost: {cost:,.2f} ({devices}, each {price_per_hour:g} an hour)"


def usable_batch(work: Workload, memory_gb: float, reserved_gb: float) -> int:
    """The largest batch in a GPU's memory, minus what is reserved in it."""
    return largest_batch(work, int((memory_gb - reserved_gb) * GIB))


def fits_lines(work: Workload, reserved_gb: float) -> Iterator[str]:
    """The largest batches of BERT-Base and BERT-Large by length and memory, trained as `work`."""
    sizes = [f"{size} GB" for size in FITS_MEMORY]
    rows = [("Largest batch", "length", *sizes, "original, 12 GB")]
    for name, config in PUBLISHED.items():
        for length in FITS_LENGTHS:
            one = dataclasses.replace(work, config=config, max_seq_length=length)
            batches = [str(usable_batch(one, size, reserved_gb)) for size in FITS_MEMORY]
            rows.append((f"  {name}", str(length), *batches, str(ORIGINAL_12_GB[name][length])))
    yield from columns(rows)
