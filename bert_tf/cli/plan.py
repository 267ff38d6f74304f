"""What a training will need, before it is started: parameters, memory, FLOPs, time, what fits.

    bert-tf plan --bert_config_file=bert_config.json --max_seq_length=128 --train_batch_size=32 \\
        --memory_gb=16 --device_tflops=15.7 --device_gb_per_s=900
    bert-tf plan --bert_config_file=bert_config.json --num_replicas=8 --train_batch_size=2048 \\
        --gradient_accumulation_steps=4 --device_tflops=15.7 --device_gb_per_s=900 \\
        --link_gb_per_s=12.5 --num_train_steps=1000000
    bert-tf plan --bert_config_file=bert_config.json --device=v5e --num_replicas=8 \\
        --train_batch_size=256 --precision=bfloat16 --num_train_steps=900000 --price_per_hour=1.2
    bert-tf plan --fits --head=classifier      # BERT-Base and BERT-Large on 8 to 80 GB

Nothing is built and no device is needed. The flags that `bert-tf pretrain` has too mean the same
here. GB are 10^9 bytes; only --memory_gb, --reserved_gb and the columns of --fits are of 2^30, as
devices are sold.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.planning import tables
from bert_tf.planning.devices import DEVICES
from bert_tf.planning.timing import Device
from bert_tf.planning.workload import Workload
from bert_tf.training.settings import OPTIMIZERS, PRECISIONS

FLAGS = flags.FLAGS
HEADS = {  # value of --head: name in heads.NAMES
    "pretraining": "pretraining",
    "classifier": "classification",
    "token_labels": "token_labels",
    "span": "question_answering",
}


def define_model(*, devices: str = "all devices together") -> None:
    """The model and the shapes of its batch, of so many devices: the fields of a workload."""
    flags.DEFINE_string("bert_config_file", None, "The bert_config.json of the model.")
    shared_flags.define_count("max_seq_length", 128, "Tokens of a sequence.")
    shared_flags.define_count("train_batch_size", 32, f"Examples of a step, {devices}.")
    shared_flags.define_count("max_predictions_per_seq", 20, "Masked tokens of a sequence.")
    shared_flags.define_count("num_classes", 2, "Labels, of classifier and token_labels.")
    flags.DEFINE_enum("precision", "float32", PRECISIONS, "What the layers compute with.")
    flags.DEFINE_bool("recompute", False, "Compute encoder blocks again rather than keep them.")
    shared_flags.define_count(
        "gradient_accumulation_steps", 1, "Parts a device takes its batch in."
    )
    flags.DEFINE_enum(
        "optimizer", "adamw", OPTIMIZERS, "The update; lamb takes longer, in the same memory."
    )


def define_flags() -> None:
    """What is trained, how, and on what."""
    define_model()
    flags.DEFINE_enum("head", "pretraining", list(HEADS), "What is trained on top of the encoder.")
    shared_flags.define_count("num_replicas", 1, "Devices.")
    flags.DEFINE_enum(
        "device",
        None,
        list(DEVICES),
        "An accelerator: its memory as its compiler lays it out, its published speed in half "
        "precision. Without it: memory as on a CPU.",
    )
    shared_flags.define_count(
        "num_train_steps", 0, "Also tell how long so many steps take.", least=0
    )
    for name, default, text in (
        ("memory_gb", 0, "Memory of a device: also tell the largest batch."),
        ("reserved_gb", 0.75, "What driver and libraries keep of a device's memory, about."),
        ("device_tflops", 0, "10^12 FLOP/s of a device: also tell the time."),
        ("device_gb_per_s", 0, "10^9 bytes/s of its memory."),
        ("link_gb_per_s", 0, "10^9 bytes/s from a device to its neighbour."),
        ("price_per_hour", 0, "Of one device: also tell what --num_train_steps cost."),
    ):
        shared_flags.define_number(name, default, text, lower_bound=0.0, upper_bound=1e9)
    shared_flags.define_number(
        "efficiency",
        0.5,
        "Share of its FLOP/s that matrix products reach, above 0.",
        lower_bound=math.nextafter(0.0, 1.0),
        upper_bound=1.0,
    )
    flags.DEFINE_bool("variables", False, "List every variable.")
    flags.DEFINE_bool("fits", False, "The table of what fits for BERT-Base and BERT-Large.")


def check_flags(words: Sequence[str]) -> None:
    """Refuses a command that names no model, and flags that would have no effect."""
    shared_flags.refuse_words(words)
    shared_flags.require("price_per_hour", "num_train_steps")
    if FLAGS.device and FLAGS.memory_gb:
        shared_flags.refuse_without_effect("memory_gb", f"with --device={FLAGS.device}")
    for name in ("num_train_steps", "link_gb_per_s"):
        if FLAGS[name].value and not is_timed():
            raise InputError(
                f"--{name} without a device's speed",
                "that of --device with --precision=bfloat16 or float16, for which data sheets have "
                "it, or --device_tflops and --device_gb_per_s",
                f"add these, or leave out --{name}",
            )
    if not FLAGS.bert_config_file and not FLAGS.fits:
        raise InputError(
            "no --bert_config_file",
            "the sizes of a model, or --fits for those of the published ones",
            "add --bert_config_file=bert_config.json",
        )


def main(_: Sequence[str]) -> None:
    """Prints what the flags ask for."""
    work, device = make_workload(), make_device()
    print("\n".join(lines(work, device)))


def make_workload() -> Workload:
    """The fields of a workload are named as the flags."""
    config = tables.PUBLISHED["BERT-Base"]
    if FLAGS.bert_config_file:
        config = BertConfig.from_json_file(FLAGS.bert_config_file)
    names = {field.name for field in dataclasses.fields(Workload)} - {"config", "head"}
    values = {name: FLAGS[name].value for name in names}
    return Workload(config=config, head=HEADS[FLAGS.head], **values)


def is_timed() -> bool:
    """Whether a device's speed is given: by its figures, or by a name for which it is published."""
    figures = FLAGS.device_tflops or FLAGS.device_gb_per_s
    return bool(figures or (FLAGS.device and FLAGS.precision != "float32"))


def make_device() -> Device | None:
    """The device to be timed, if its speed is given."""
    if not is_timed():
        return None
    flops, of_memory = FLAGS.device_tflops * 1e12, FLAGS.device_gb_per_s * 1e9
    link = FLAGS.link_gb_per_s * 1e9
    if FLAGS.device and FLAGS.precision != "float32":
        known = DEVICES[FLAGS.device]
        flops, of_memory = flops or known.flops_per_second, of_memory or known.bytes_per_second
        link = link or known.link_bytes_per_second
    return Device(
        flops_per_second=flops,
        bytes_per_second=of_memory,
        efficiency=FLAGS.efficiency,
        link_bytes_per_second=link,
    )


def lines(work: Workload, device: Device | None) -> Iterator[str]:
    """The sections that are asked for."""
    if FLAGS.bert_config_file:
        yield from tables.parameter_lines(work, each=FLAGS.variables)
        accelerator = DEVICES.get(FLAGS.device)
        yield from tables.memory_lines(work, accelerator)
        if accelerator:
            yield from tables.accelerator_batch_lines(work, accelerator)
        elif FLAGS.memory_gb:
            yield from tables.batch_lines(work, FLAGS.memory_gb, FLAGS.reserved_gb)
        yield from tables.work_lines(work)
        if device:
            yield from tables.time_lines(
                work,
                device,
                num_train_steps=FLAGS.num_train_steps,
                price_per_hour=FLAGS.price_per_hour,
            )
        if device and device.link_bytes_per_second:
            yield from tables.pod_lines(work, device)
    if FLAGS.fits:
        yield from tables.fits_lines(work, FLAGS.reserved_gb)


if __name__ == "__main__":
    cli.parse(define_flags, check_flags, needs_tensorflow=False)
    cli.run(main)
