"""The verb `plan`."""

import dataclasses
import re
from collections.abc import Iterator, Sequence

from absl import flags

from bert_tf.cli.flags import Choice, Path, verb
from bert_tf.config import PRECISIONS, BertConfig
from bert_tf.errors import InputError
from bert_tf.planning.memory import amount, largest_batch, step_memory
from bert_tf.planning.workload import DEVICES, GIB, HEADS, Workload
from bert_tf.terminal import aligned

FLAGS = flags.FLAGS
RESERVED = 0.75  # GB of a GPU that driver and libraries keep, about


class Plan:
    """What is trained, how, and on what.

    Attributes:
      bert_config_file: The bert_config.json of the model, or the config.json of Hugging Face.
      task: What is trained on top of the encoder.
      max_seq_length: Tokens of a sequence.
      train_batch_size: Examples of a step, all devices together.
      max_predictions_per_seq: Masked tokens of a sequence.
      pack: Rows of several sequences, as bert-tf data --pack makes them.
      precision: What the layers compute with.
      recompute: Compute encoder blocks again rather than keep them.
      gradient_accumulation_steps: Parts a device takes its batch in.
      device: v4, v5e, v6e, a100 or h100 (80 GB), or a GPU by its GB, such as 16: also tell the
        largest batch. Several: 8xh100.
    """

    _most_used = "bert_config_file device train_batch_size max_seq_length precision"
    _acts = """
        task=pretraining: max_predictions_per_seq pack"""
    bert_config_file = Path(required=True)
    task = Choice("pretraining", HEADS)
    max_seq_length = 128
    train_batch_size = 32
    max_predictions_per_seq = 20
    pack = False
    precision = Choice("float32", PRECISIONS)
    recompute = False
    gradient_accumulation_steps = 1
    device = None


def memory_of(device: str) -> tuple[str, int, str]:
    """The name of a device, the bytes that a step may take of it, and its kind."""
    if not device:
        return "", 0, "gpu"
    if known := DEVICES.get(device):
        return known.name, known.memory_bytes, known.kind
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", device):
        expected = f"one of {', '.join(DEVICES)}, or a GPU's memory in GB"
        raise InputError(f"--device={device}", expected, "correct it: --device=16, say")
    return f"a GPU of {device} GB", int((float(device) - RESERVED) * GIB), "gpu"


@verb(Plan, needs_tensorflow=False)
def plan(_: Sequence[str]) -> None:
    """What memory a training step will need on a GPU or TPU, and the largest batch that fits.

        bert-tf plan --bert_config_file=bert_config.json --device=h100 --precision=bfloat16
        bert-tf plan --bert_config_file=bert_config.json --device=16        a GPU of 16 GB

    This is arithmetic: nothing is built and no device is needed. The flags that `bert-tf pretrain`
    has too mean the same here. GB are 10^9 bytes; only those of --device are of 2^30, as devices
    are sold.
    """
    names = {field.name for field in dataclasses.fields(Workload)} & {*FLAGS}
    given = {name: FLAGS[name].value for name in names} | {"head": FLAGS.task}
    count, device = re.fullmatch(r"(?:([1-9]\d{0,5})x)?(.*)", FLAGS.device or "").groups()
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    work = Workload(config=config, num_replicas=int(count or 1), **given)
    print("\n".join(model_lines(work, device)))


def model_lines(work: Workload, device: str) -> Iterator[str]:
    """Parameters by part, bytes by purpose, and the largest batch of the device that is named."""
    name, available, kind = memory_of(device)
    yield f"Parameters: {sum(work.parameters.values()):,}"
    yield from aligned([(f"  {name}", f"{size:,}") for name, size in work.parameters.items()])
    memory = step_memory(work, kind)
    yield f"Memory of a device: {amount(memory.total)}, peak at: {memory.peak}"
    purposes = {name: size for name, size in memory.purposes.items() if size}
    yield from aligned([(f"  {name}", amount(size)) for name, size in purposes.items()])
    if name:
        batch = largest_batch(work, available, kind)
        yield f"Largest --train_batch_size on {name}: {batch or 'none fits'}"
