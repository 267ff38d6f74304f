"""A plan as text."""

import dataclasses
from collections.abc import Iterator, Sequence

from bert_tf.config import BertConfig
from bert_tf.planning.memory import largest_batch, model, step_memory
from bert_tf.planning.parameters import count
from bert_tf.planning.timing import Device, all_reduce_bytes, step_time
from bert_tf.planning.work import PHASES, step_parts, total_flops
from bert_tf.planning.workload import Workload

GIB = 1 << 30
FITS_MEMORY = (8, 12, 16, 24, 40, 80)  # GB
FITS_LENGTHS = (64, 128, 256, 320, 384, 512)
# What XLA takes over the bytes that are there at a time: in float32 at most this
# (benchmarks/plan_check.py).
PACKING = 1.07
CAVEAT = (
    "That is what the compiler allocates. On a CPU, processes grew by up to 28 % more, and "
    "bfloat16 took 29 % more: try it before you rely on it."
)

_SIZES = {
    "BERT-Base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
    "BERT-Large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16},
}
PUBLISHED = {
    name: BertConfig(
        vocab_size=30522,
        type_vocab_size=2,
        intermediate_size=4 * sizes["hidden_size"],
        **sizes,
    )
    for name, sizes in _SIZES.items()
}
# The original's README, "Out-of-memory issues": largest batch on a Titan X of 12 GB, fine-tuning,
# TensorFlow 1.11, by sequence length.
ORIGINAL_12_GB = {
    "BERT-Base": dict(zip(FITS_LENGTHS, (64, 32, 16, 14, 12, 6), strict=True)),
    "BERT-Large": dict(zip(FITS_LENGTHS, (12, 6, 2, 1, 0, 0), strict=True)),
}


def amount(number: float, unit: str = "B") -> str:
    """A number with three digits and a prefix.

    >>> amount(1234567890), amount(2.5e13, "FLOP"), amount(0)
    ('1.23 GB', '25 TFLOP', '0 B')
    """
    prefixes = ["", "k", "M", "G", "T", "P"]
    while abs(number) >= 999.5 and len(prefixes) > 1:
        number /= 1000
        prefixes.pop(0)
    return f"{number:.3g} {prefixes[0]}{unit}"


def duration(seconds: float) -> str:
    """
    >>> duration(0.0123), duration(100), duration(8000), duration(300000)
    ('12.3 ms', '100 s', '2.22 h', '3.47 days')
    """
    for limit, size, unit in ((1, 1e-3, "ms"), (3600, 1, "s"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:.3g} days"


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines; the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()


def parameter_lines(work: Workload, *, each: bool = False) -> Iterator[str]:
    """Parameters by part of the model, or of each variable."""
    shapes = model(work)
    yield f"Parameters: {count(shapes):,}"
    if each:
        yield from columns([(f"  {name}", f"{list(s)}") for name, s in shapes.items()])
        return
    parts = {"embeddings": "bert/embeddings/", "encoder": "bert/encoder/", "pooler": "bert/pooler/"}
    sizes = {name: count(shapes, prefix) for name, prefix in parts.items()}
    sizes["head"] = count(shapes) - sum(sizes.values())
    yield from columns([(f"  {name}", f"{size:,}") for name, size in sizes.items()])


def memory_lines(work: Workload) -> Iterator[str]:
    """Bytes by purpose."""
    found = step_memory(work)
    yield f"Memory of a device: {amount(found.total)}, most at: {found.fullest}"
    yield from columns([(f"  {name}", amount(size)) for name, size in found.purposes.items()])
    others = {
        name: sum(found.constant.values()) + sum(purposes.values())
        for name, purposes in found.moments.items()
        if name != found.fullest
    }
    yield "  at other moments: " + ", ".join(f"{n} {amount(size)}" for n, size in others.items())


def work_lines(work: Workload) -> Iterator[str]:
    """FLOPs by part and phase."""
    totals = total_flops(work)
    total = sum(totals.values())
    tokens = work.train_batch_size * work.max_seq_length
    yield f"Work of a step: {amount(total, 'FLOP')}, {amount(total / tokens, 'FLOP')} a token"
    phases = [phase for phase in PHASES if phase in totals and phase != "update"]
    cells: dict[str, dict[str, int]] = {}
    for part in step_parts(work):
        if part.phase != "update":
            flops = work.num_replicas * part.matmul_flops
            cells.setdefault(part.name, {})[part.phase] = flops
    rows = [("  products", *phases)]
    for name, by_phase in cells.items():
        rows.append((f"  {name}", *(amount(by_phase.get(p, 0), "FLOP") for p in phases)))
    yield from columns([*rows, ("  all", *(amount(totals[p], "FLOP") for p in phases))])
    yield f"  update: {amount(totals['update'], 'FLOP')}, element by element"


def time_lines(work: Workload, device: Device, *, num_train_steps: int = 0) -> Iterator[str]:
    """Seconds by part."""
    found = step_time(work, device)
    rate = work.train_batch_size / found.total
    yield f"Time of a step: {duration(found.total)}, {rate:.3g} examples/s"
    by_part: dict[str, float] = {}
    for part, seconds in found.parts:
        by_part[part.name] = by_part.get(part.name, 0.0) + seconds
    rows = [(f"  {name}", duration(seconds)) for name, seconds in by_part.items()]
    if work.num_replicas > 1:
        rows.append(("  all-reduce", duration(found.all_reduce)))
    yield from columns(rows)
    if num_train_steps:
        yield f"  {num_train_steps:,} steps: {duration(num_train_steps * found.total)}"


def pod_lines(work: Workload, device: Device) -> Iterator[str]:
    """More and more devices, each with the share of a batch that a device has now."""
    each = work.train_batch_size // work.num_replicas
    rows = [("Devices", "batch", "all-reduce", "time", "a step", "examples/s", "efficiency")]
    size = 4 * count(model(work))
    for devices in (2**n for n in range(11)):
        wide = dataclasses.replace(work, num_replicas=devices, train_batch_size=each * devices)
        found = step_time(wide, device)
        rows.append(
            (
                f"  {devices}",
                f"{each * devices:,}",
                amount(all_reduce_bytes(size, devices)),
                duration(found.all_reduce),
                duration(found.total),
                f"{each * devices / found.total:,.0f}",
                f"{found.scaling_efficiency:.0%}",
            )
        )
    yield from columns(rows)


def batch_lines(work: Workload, memory_gb: float, reserved_gb: float) -> Iterator[str]:
    """The largest batch of that memory."""
    batch = usable_batch(work, memory_gb, reserved_gb)
    yield f"Largest --train_batch_size in {memory_gb:g} GB: {batch or 'none fits'}"
    yield f"  {CAVEAT}"


def usable_batch(work: Workload, memory_gb: float, reserved_gb: float) -> int:
    """`largest_batch` in a device's memory, less what is reserved in it."""
    return largest_batch(work, int((memory_gb - reserved_gb) * GIB), packing=PACKING)


def fits_lines(work: Workload, reserved_gb: float) -> Iterator[str]:
    """The largest batch of BERT-Base and BERT-Large by length and memory, as `work` is trained."""
    sizes = [f"{size} GB" for size in FITS_MEMORY]
    rows = [("Largest batch", "length", *sizes, "original, 12 GB")]
    for name, config in PUBLISHED.items():
        for length in FITS_LENGTHS:
            one = dataclasses.replace(work, config=config, max_seq_length=length)
            batches = [str(usable_batch(one, size, reserved_gb)) for size in FITS_MEMORY]
            rows.append((f"  {name}", str(length), *batches, str(ORIGINAL_12_GB[name][length])))
    yield from columns(rows)
    yield CAVEAT
