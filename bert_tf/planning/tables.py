"""A plan as text."""

import dataclasses
from collections.abc import Iterator, Sequence

from bert_tf.config import BertConfig
from bert_tf.planning.devices import GIB
from bert_tf.planning.memory import largest_batch, step_memory
from bert_tf.planning.work import Speed, forward_parts, step_seconds, total_flops
from bert_tf.planning.workload import Workload

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
            devices = f"{work.num_replicas} device{'s' * (work.num_replicas > 1)}"
            yield f"  cost: {cost:,.0f}, of {devices} at {price_per_hour:g} an hour each"


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
