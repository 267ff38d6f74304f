"""Computes the memory of a training step on a GPU or TPU, and the largest batch that fits.

    bert-tf plan --bert_config_file=bert_config.json --device=h100 --precision=bfloat16
    bert-tf plan --bert_config_file=bert_config.json --device=16        a GPU of 16 GB

This is arithmetic: nothing is built and no device is needed. The flags that `bert-tf pretrain` has
too mean the same here. GB are 10^9 bytes; only those of --device are of 2^30, as devices are sold.
"""

import re
from collections.abc import Iterator

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.options import Options, option
from bert_tf.planning.memory import amount, largest_batch, step_memory
from bert_tf.planning.workload import DEVICES, GIB, PLANNED, Accelerator, Workload
from bert_tf.terminal import aligned
from bert_tf.training.options import PRECISIONS

LOADS_TENSORFLOW = False
RESERVED = 0.75  # GB of a GPU for driver and libraries, about


class Plan(Options, most_used="bert_config_file device train_batch_size max_seq_length precision"):
    """The options of this command: model, batch, precision and device."""

    bert_config_file: str = option(
        "The bert_config.json of the model, or the config.json of Hugging Face.",
        path=True,
        original=True,
    )
    task: str = option(
        "What is trained on top of the encoder.", default="pretraining", choices=PLANNED
    )
    max_seq_length: int = option("Tokens of a sequence.", default=128, low=1, original=True)
    train_batch_size: int = option(
        "Examples of a step, all devices together.", default=32, low=1, original=True
    )
    max_predictions_per_seq: int = option(
        "Masked tokens of a sequence.", default=20, low=1, acts="task=pretraining", original=True
    )
    pack: bool = option(
        "Rows of several sequences, as bert-tf data --pack makes them.",
        default=False,
        acts="task=pretraining",
    )
    precision: str = option("What the layers compute with.", default="float32", choices=PRECISIONS)
    recompute: bool = option("Compute encoder blocks again rather than keep them.", default=False)
    gradient_accumulation_steps: int = option(
        "Parts a device takes its batch in.", default=1, low=1
    )
    device: str | None = option(
        "v4, v5e, v6e, a100 or h100 (80 GB), or a GPU by its GB, such as 16: also tell the largest "
        "batch. Several: 8xh100.",
        default=None,
    )


def main(options: Plan) -> None:
    """Configuration, devices -> memory of a step -> standard output."""
    num_devices, device = devices_of(options.device or "")
    work = Workload(
        config=BertConfig.from_json_file(options.bert_config_file),
        head=options.task,
        max_seq_length=options.max_seq_length,
        train_batch_size=options.train_batch_size,
        max_predictions_per_seq=options.max_predictions_per_seq,
        pack=options.pack,
        precision=options.precision,
        recompute=options.recompute,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
        num_replicas=num_devices,
    )
    print("\n".join(lines_of(work, device)))


def devices_of(text: str) -> tuple[int, Accelerator | None]:
    """The number of devices that a text names, and what one of them is.

    Args:
      text: "8xh100", "h100" or "16", a GPU of 16 GB; "" or "8x" for devices of unknown memory.

    Raises:
      InputError: there is no such device.
    """
    count, name = re.fullmatch(r"(?:([1-9]\d{0,5})x)?(.*)", text, re.DOTALL).groups()
    return int(count or 1), accelerator_of(name) if name else None


def accelerator_of(name: str) -> Accelerator:
    """A device by its name, or a GPU by its memory in GB; raises `InputError` for another text."""
    if name in DEVICES:
        return DEVICES[name]
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", name):
        expected = f"one of {', '.join(DEVICES)}, or a GPU's memory in GB"
        raise InputError(f"--device={name}", expected, "correct it: --device=16, say")
    return Accelerator(f"a GPU of {name} GB", "gpu", int((float(name) - RESERVED) * GIB))


def lines_of(work: Workload, device: Accelerator | None) -> Iterator[str]:
    """Parameters by part, bytes by purpose, and the largest batch of a device.

    Without a device the bytes are those of a GPU.
    """
    kind = device.kind if device else "gpu"
    yield f"Parameters: {sum(work.parameters.values()):,}"
    yield from aligned([(f"  {name}", f"{size:,}") for name, size in work.parameters.items()])
    memory = step_memory(work, kind)
    yield f"Memory of a device: {amount(memory.total)}, peak at: {memory.peak}"
    purposes = {name: size for name, size in memory.purposes.items() if size}
    yield from aligned([(f"  {name}", amount(size)) for name, size in purposes.items()])
    if device:
        batch = largest_batch(work, device.memory_bytes, kind)
        yield f"Largest --train_batch_size on {device.name}: {batch or 'none fits'}"
