"""The verb `plan`."""

import dataclasses
from collections.abc import Iterator, Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli.flags import Choice, Number, Path, verb
from bert_tf.config import PRECISIONS, BertConfig
from bert_tf.errors import InputError
from bert_tf.planning.memory import amount, largest_batch, step_memory
from bert_tf.planning.workload import DEVICES, GIB, HEADS, PUBLISHED, Workload
from bert_tf.terminal import aligned

FLAGS = flags.FLAGS
FITS_MEMORY = (8, 12, 16, 24, 40, 80)  # GB
FITS_LENGTHS = (64, 128, 256, 320, 384, 512)
# From the original's README, "Out-of-memory issues": the largest batch by sequence length, for
# fine-tuning on a Titan X of 12 GB with TensorFlow 1.11.
ORIGINAL_12_GB = {"BERT-Base": (64, 32, 16, 14, 12, 6), "BERT-Large": (12, 6, 2, 1, 0, 0)}


class Plan:
    """What is trained, how, and on what.

    Attributes:
      bert_config_file: The bert_config.json of the model, or the config.json of Hugging Face.
      head: What is trained on top of the encoder.
      max_seq_length: Tokens of a sequence.
      train_batch_size: Examples of a step, all devices together.
      max_predictions_per_seq: Masked tokens of a sequence.
      pack: Rows of several sequences, as bert-tf data --pack makes them.
      num_classes: Labels, of classification and token_labels.
      precision: What the layers compute with.
      recompute: Compute encoder blocks again rather than keep them.
      gradient_accumulation_steps: Parts a device takes its batch in.
      num_replicas: Devices.
      device: An accelerator (a100, h100: 80 GB): also tell the largest batch.
      memory_gb: Memory of a GPU: also tell the largest batch.
      reserved_gb: What driver and libraries keep of a GPU's memory, about.
      fits: The table of what fits for BERT-Base and BERT-Large.
    """

    _most_used = "bert_config_file device train_batch_size max_seq_length precision fits"
    bert_config_file = Path()
    head = Choice("pretraining", HEADS)
    max_seq_length = 128
    train_batch_size = 32
    max_predictions_per_seq = 20
    pack = False
    num_classes = 2
    precision = Choice("float32", PRECISIONS)
    recompute = False
    gradient_accumulation_steps = 1
    num_replicas = 1
    device = Choice(None, [*DEVICES])
    memory_gb = Number(0.0, 0.0, 1e9)
    reserved_gb = Number(0.75, 0.0, 1e9)
    fits = False


def check_flags(words: Sequence[str]) -> None:
    """Refuses words, and a command that names no model."""
    shared_flags.refuse_words(words)
    if not FLAGS.bert_config_file and (FLAGS.device or FLAGS.memory_gb or not FLAGS.fits):
        expected = "the sizes of a model; --fits alone for those of the published ones"
        remedy = "add --bert_config_file=bert_config.json"
        raise InputError("no --bert_config_file", expected, remedy)


@verb(Plan, check=check_flags, needs_tensorflow=False)
def plan(_: Sequence[str]) -> None:
    """What memory a training step will need on a GPU or TPU, and the largest batch that fits.

        bert-tf plan --bert_config_file=bert_config.json --device=h100 --precision=bfloat16
        bert-tf plan --bert_config_file=bert_config.json --memory_gb=16     a GPU by its memory
        bert-tf plan --fits --head=classification       BERT-Base and BERT-Large on 8 to 80 GB

    This is arithmetic: nothing is built and no device is needed. The flags that `bert-tf pretrain`
    has too mean the same here. GB are 10^9 bytes; only --memory_gb, --reserved_gb and the columns
    of --fits are of 2^30, as devices are sold.
    """
    names = {field.name for field in dataclasses.fields(Workload)} - {"config"}
    given = {name: FLAGS[name].value for name in names}
    if FLAGS.bert_config_file:
        config = BertConfig.from_json_file(FLAGS.bert_config_file)
        print("\n".join(model_lines(Workload(config=config, **given))))
    if FLAGS.fits:
        rows = fits_rows(Workload(config=PUBLISHED["BERT-Base"], **given))
        print("\n".join(aligned([*rows])))


def model_lines(work: Workload) -> Iterator[str]:
    """Parameters by part, bytes by purpose, and the largest batch of the device that is named."""
    device = DEVICES.get(FLAGS.device)
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
    if FLAGS.memory_gb:
        batch = usable_batch(work, FLAGS.memory_gb)
        yield f"Largest --train_batch_size in {FLAGS.memory_gb:g} GB: {batch or 'none fits'}"


def usable_batch(work: Workload, memory_gb: float) -> int:
    """The largest batch in a GPU's memory, less what is reserved in it."""
    return largest_batch(work, int((memory_gb - FLAGS.reserved_gb) * GIB))


def fits_rows(work: Workload) -> Iterator[Sequence[object]]:
    """The largest batches of BERT-Base and BERT-Large by length and memory, trained as `work`."""
    sizes = [f"{size} GB" for size in FITS_MEMORY]
    yield ("Largest batch", "length", *sizes, "original, 12 GB")
    for name, config in PUBLISHED.items():
        for length, original in zip(FITS_LENGTHS, ORIGINAL_12_GB[name], strict=True):
            one = dataclasses.replace(work, config=config, max_seq_length=length)
            batches = [usable_batch(one, size) for size in FITS_MEMORY]
            yield (f"  {name}", length, *batches, original)
