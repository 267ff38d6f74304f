"""A plan as text."""

import collections
import dataclasses
from collections.abc import Iterator, Sequence

from bert_tf.config import BertConfig
from bert_tf.planning.accelerators import accelerator_memory, largest_batch_on
from bert_tf.planning.devices import Accelerator
from bert_tf.planning.memory import largest_batch, step_memory
from bert_tf.planning.timing import Device, all_reduce_bytes, step_time
from bert_tf.planning.work import PHASES, step_parts, total_flops
from bert_tf.planning.workload import FLOAT32, Workload

GIB = 1 << 30
FITS_MEMORY = (8, 12, 16, 24, 40, 80)  # GB
FITS_LENGTHS = (64, 128, 256, 320, 384, 512)
# Bytes that XLA allocates for each temporary byte, at most, in float32 (benchmarks/plan_check.py).
PACKING = 1.07
CAVEAT = (
    "That is what the compiler allocates. On a CPU, processes grew by up to 28 % more, and "
    "bfloat16 took 29 % more: try it before you rely on it."
)
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


def memory_lines(work: Workload, device: Accelerator | None = None) -> Iterator[str]:
    """Bytes by purpose, on a CPU or an accelerator."""
    found = accelerator_memory(work, device.kind) if device else step_memory(work)
    yield f"Memory of a device: {amount(found.total)}, peak at: {found.peak}"
    purposes = {name: size for name, size in found.purposes.items() if size}
    yield from columns([(f"  {name}", amount(size)) for name, size in purposes.items()])
    others = {
        name: sum(found.constant.values()) + sum(purposes.values())
        for name, purposes in found.phases.items()
        if name != found.peak
    }
    yield "  at other times: " + ", ".join(f"{n} {amount(size)}" for n, size in others.items())


def work_lines(work: Workload) -> Iterator[str]:
    """FLOPs by part and phase."""
    totals = total_flops(work)
    total = sum(totals.values())
    tokens = work.train_batch_size * work.max_seq_length
    yield f"Work of a step: {amount(total, 'FLOP')}, {amount(total / tokens, 'FLOP')} a token"
    phases = [phase for phase in PHASES if phase in totals and phase != "update"]
    cells = collections.defaultdict(dict)
    for part in step_parts(work):
        if part.phase != "update":
            cells[part.name][part.phase] = work.num_replicas * part.matmul_flops
    rows = [("  products", *phases)]
    for name, by_phase in cells.items():
        rows.append((f"  {name}", *(amount(by_phase.get(p, 0), "FLOP") for p in phases)))
    yield from columns([*rows, ("  all", *(amount(totals[p], "FLOP") for p in phases))])
    yield f"  update: {amount(totals['update'], 'FLOP')}, element by element"


def time_lines(
    work: Workload, device: Device, *, num_train_steps: int = 0, price_per_hour: float = 0.0
) -> Iterator[str]:
    """Seconds by part, and what all steps take and cost."""
    found = step_time(work, device)
    rate = work.train_batch_size / found.total
    digits = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
    yield f"Time of a step: {precise_duration(found.total)}, {digits} examples/s"
    by_part = collections.Counter()
    for part, seconds in found.parts:
        by_part[part.name] += seconds
    rows = [(f"  {name}", precise_duration(seconds)) for name, seconds in by_part.items()]
    if work.num_replicas > 1:
        rows.append(("  all-reduce", precise_duration(found.all_reduce)))
    yield from columns(rows)
    if num_train_steps:
        seconds = num_train_steps * found.total
        yield f"  {num_train_steps:,} steps: {precise_duration(seconds)}"
        if price_per_hour:
            cost = work.num_replicas * price_per_hour * seconds / 3600
            yield f"  {cost:,.0f} at {price_per_hour:g} an hour for each of {work.num_replicas}"


def pod_lines(work: Workload, device: Device) -> Iterator[str]:
    """1 to 1024 devices, each with as many examples as a device has in `work`."""
    each = work.train_batch_size // work.num_replicas
    rows = [("Devices", "batch", "all-reduce", "time", "a step", "examples/s", "efficiency")]
    size = FLOAT32 * work.parameters()
    for devices in (2**n for n in range(11)):
        wide = dataclasses.replace(work, num_replicas=devices, train_batch_size=each * devices)
        found = step_time(wide, device)
        rows.append(
            (
                f"  {devices}",
                f"{each * devices:,}",
                amount(all_reduce_bytes(size, devices)),
                precise_duration(found.all_reduce),
                precise_duration(found.total),
                f"{each * devices / found.total:,.0f}",
                f"{found.scaling_efficiency:.0%}",
            )
        )
    yield from columns(rows)


def accelerator_batch_lines(work: Workload, device: Accelerator) -> Iterator[str]:
    """The largest batch that fits into an accelerator."""
    batch = largest_batch_on(work, device)
    yield f"Largest --train_batch_size on {device.name}: {batch or 'none fits'}"
    yield "  bert-tf compile-check asks the device's own compiler."


def batch_lines(work: Workload, memory_gb: float, reserved_gb: float) -> Iterator[str]:
    """The largest batch that fits into that memory."""
    batch = usable_batch(work, memory_gb, reserved_gb)
    yield f"Largest --train_batch_size in {memory_gb:g} GB: {batch or 'none fits'}"
    yield f"  {CAVEAT}"


def usable_batch(work: Workload, memory_gb: float, reserved_gb: float) -> int:
    """`largest_batch` in a device's memory, minus what is reserved in it."""
    return largest_batch(work, int((memory_gb - reserved_gb) * GIB), packing=PACKING)


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
    yield CAVEAT
