"""What a training will need on GPUs or TPUs, before it is started: memory, FLOPs, time, what fits.

    bert-tf plan --bert_config_file=bert_config.json --device=v5e --num_replicas=8 \\
        --train_batch_size=256 --precision=bfloat16 --num_train_steps=900000 --price_per_hour=1.2
    bert-tf plan --bert_config_file=bert_config.json --memory_gb=16 --device_tflops=15.7 \\
        --device_gb_per_s=900            a GPU by its figures
    bert-tf plan --fits --head=classification      BERT-Base and BERT-Large on 8 to 80 GB
    bert-tf plan --for=v5e,h100          asks the compilers of these devices

The first three are arithmetic: nothing is built and no device is needed. The flags that
`bert-tf pretrain` has too mean the same here. GB are 10^9 bytes; only --memory_gb, --reserved_gb
and the columns of --fits are of 2^30, as devices are sold.

With --for, each head's step of training, evaluation and prediction is built as the scripts build it
and compiled for one device, without having one: those of BERT-Base and BERT-Large unless
--bert_config_file and --head say otherwise. Memory and FLOPs of each program are printed (of a loop
over parts one pass), and the largest batch of training that fits. Batch sizes are then those of one
device. The command fails if a compiler refuses an operation, or if a program is too large. The
compilers come with `pip install 'bert-tf[compile-check]'`, those for GPUs with
`'bert-tf[compile-check-gpu]'` (6 GB installed). A program of BERT-Base takes a minute or two, of
BERT-Large twice as long.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from absl import flags, logging

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.cli import model_flags
from bert_tf.cli.flags import ABOVE_0, Choice, Count, Number, Path
from bert_tf.config import OPTIMIZERS, PRECISIONS, BertConfig
from bert_tf.errors import InputError
from bert_tf.planning import compilers, tables
from bert_tf.planning.compilers import Compiled
from bert_tf.planning.memory import largest_batch
from bert_tf.planning.tables import Speed, amount
from bert_tf.planning.workload import DEVICES, HEADS, STEPS, Workload
from bert_tf.terminal import Progress, duration

FLAGS = flags.FLAGS
BATCH_FLAGS = dict(zip(STEPS, ("train", "eval", "predict"), strict=True))


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
      optimizer: The update; lamb takes longer, in the same memory.
      num_replicas: Devices.
      device: An accelerator (a100, h100: 80 GB): its memory; its speed, not in float32.
      num_train_steps: Also tell how long they take.
      memory_gb: Memory of a GPU: also tell the largest batch.
      reserved_gb: What driver and libraries keep of a device's memory, about.
      device_tflops: 10^12 FLOP/s of a device: also tell the time.
      device_gb_per_s: 10^9 bytes/s of its memory.
      link_gb_per_s: 10^9 bytes/s from a device to its neighbour.
      price_per_hour: Of one device: also tell what --num_train_steps cost.
      efficiency: Share of its FLOP/s that matrix products reach, above 0.
      variables: List every variable.
      fits: The table of what fits for BERT-Base and BERT-Large.
      for_: Devices to compile for, separated by commas; as --device has.
      steps: With --for: which programs to compile, separated by commas.
      eval_batch_size: With --for: examples of a step of evaluation.
      predict_batch_size: With --for: examples of a step of prediction.
      largest_batch: With --for: find the largest batch, by up to six compilations.
    """

    _most_used = "bert_config_file device train_batch_size max_seq_length num_train_steps fits"
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
    optimizer = Choice("adamw", OPTIMIZERS)
    num_replicas = 1
    device = Choice(None, [*DEVICES])
    num_train_steps = Count(0, 0)
    memory_gb = Number(0.0, 0.0, 1e9)
    reserved_gb = Number(0.75, 0.0, 1e9)
    device_tflops = Number(0.0, 0.0, 1e9)
    device_gb_per_s = Number(0.0, 0.0, 1e9)
    link_gb_per_s = Number(0.0, 0.0, 1e9)
    price_per_hour = Number(0.0, 0.0, 1e9)
    efficiency = Number(0.5, ABOVE_0, 1.0)
    variables = False
    fits = False
    for_ = ()
    steps = STEPS
    eval_batch_size = 8
    predict_batch_size = 8
    largest_batch = True


def define_flags() -> None:
    """The flags of this command."""
    shared_flags.define(Plan)
    for name, choices in (("for", DEVICES), ("steps", STEPS)):
        flags.register_validator(
            name,
            lambda words, choices=choices: len({*words} & {*choices}) == len(words),
            message=f"words of {', '.join(choices)}, each once, separated by commas",
        )


def check_flags(words: Sequence[str]) -> None:
    """Refuses a command that names no model, and flags that would have no effect."""
    shared_flags.refuse_words(words)
    if FLAGS["for"].value:
        compilers.check_packages(FLAGS["for"].value)
        for name in ("device", "memory_gb", "fits", "num_replicas", "num_train_steps"):
            model_flags.refuse_without_effect(name, "with --for")
        return
    for name in ("steps", "eval_batch_size", "predict_batch_size", "largest_batch"):
        model_flags.refuse_without_effect(name, "without --for")
    shared_flags.require("price_per_hour", "num_train_steps")
    for name in ("device", "memory_gb"):
        shared_flags.require(name, "bert_config_file")
    if FLAGS.device:
        model_flags.refuse_without_effect("memory_gb", f"with --device={FLAGS.device}")
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
            "the sizes of a model; --fits or --for for those of the published ones",
            "add --bert_config_file=bert_config.json",
        )


def main(_: Sequence[str]) -> None:
    """Prints what the flags ask for."""
    if FLAGS["for"].value:
        compile_all()
    else:
        print("\n".join(plan()))


def models() -> dict[str, BertConfig]:
    """The model of the flags, or the published ones, by name."""
    if FLAGS.bert_config_file:
        return {FLAGS.bert_config_file: BertConfig.from_json_file(FLAGS.bert_config_file)}
    return tables.PUBLISHED


def make_workload(config: BertConfig, head: str) -> Workload:
    """The fields of a workload are named as the flags."""
    names = {field.name for field in dataclasses.fields(Workload)} - {"config", "head"}
    return Workload(config=config, head=head, **{name: FLAGS[name].value for name in names})


# ---------------------------------------------------------------------------- arithmetic


def plan() -> Iterator[str]:
    """The sections that are asked for."""
    work = make_workload(next(iter(models().values())), FLAGS.head)
    if FLAGS.bert_config_file:
        accelerator = DEVICES.get(FLAGS.device)
        kind = accelerator.kind if accelerator else "gpu"
        yield from tables.parameter_lines(work, each=FLAGS.variables)
        yield from tables.memory_lines(work, kind)
        if accelerator:
            batch = largest_batch(work, accelerator.memory_bytes, kind)
            yield f"Largest --train_batch_size on {accelerator.name}: {batch or 'none fits'}"
            given = f"--for={FLAGS.device} --bert_config_file={FLAGS.bert_config_file}"
            yield f"  bert-tf plan {given} --head={FLAGS.head} asks the device's own compiler."
        elif FLAGS.memory_gb:
            batch = tables.usable_batch(work, FLAGS.memory_gb, FLAGS.reserved_gb)
            yield f"Largest --train_batch_size in {FLAGS.memory_gb:g} GB: {batch or 'none fits'}"
        yield from tables.work_lines(work)
        if is_timed():
            options = {n: FLAGS[n].value for n in ("num_train_steps", "price_per_hour")}
            yield from tables.time_lines(work, make_speed(), **options)
    if FLAGS.fits:
        yield from tables.fits_lines(work, FLAGS.reserved_gb)


def is_timed() -> bool:
    """Whether a device's speed is given: by its figures, or by a name for which it is published."""
    figures = FLAGS.device_tflops or FLAGS.device_gb_per_s
    return bool(figures or (FLAGS.device and FLAGS.precision != "float32"))


def make_speed() -> Speed:
    """The speed of the device to be timed."""
    known = DEVICES.get(FLAGS.device) if FLAGS.precision != "float32" else None
    published = (0, 0, 0)
    if known:
        published = known.flops_per_second, known.bytes_per_second, known.link_bytes_per_second
    given = FLAGS.device_tflops * 1e12, FLAGS.device_gb_per_s * 1e9, FLAGS.link_gb_per_s * 1e9
    flops, of_memory, link = (own or theirs for own, theirs in zip(given, published, strict=True))
    return Speed(
        flops_per_second=flops,
        bytes_per_second=of_memory,
        link_bytes_per_second=link,
        efficiency=FLAGS.efficiency,
    )


# ---------------------------------------------------------------------------- compilers

COLUMNS = ("arguments", "temporary", "output", "code", "peak", "of", "FLOP", "compiled in")
ROW = "  {:<6}{:<10}{:>6}" + "{:>13}" * len(COLUMNS)


def compile_all() -> None:
    """Compiles all programs; fails at the end if one of them cannot run."""
    from bert_tf.planning.programs import Programs  # not at the top: it loads TensorFlow

    problems = []
    heads = [FLAGS.head] if FLAGS["head"].present else HEADS
    for name, config in models().items():
        for head in heads:
            work = make_workload(config, head)
            print(f"{name}, {head}: {work.max_seq_length} tokens, {work.precision}")
            print(ROW.format("", "", "batch", *COLUMNS), flush=True)
            programs = Programs(work)
            for device in FLAGS["for"].value:
                for text in compile_steps(programs, device):
                    logging.warning("%s", text)
                    problems.append(f"{name}, {head}: {text}")
    if problems:
        raise InputError(
            "\n".join(problems),
            "programs that the devices can run",
            "change the model where an operation is refused; less memory is taken by a smaller "
            "batch, --recompute, --precision=bfloat16 and --gradient_accumulation_steps",
        )


def compile_steps(programs, name: str) -> Iterator[str]:
    """Prints a line for each program on a device; yields what is wrong."""
    device = DEVICES[name]
    for step in FLAGS.steps:
        batch = FLAGS[f"{BATCH_FLAGS[step]}_batch_size"].value
        found = compile_step(programs, name, step, batch)
        needed = found.bytes_on(device)
        sizes = [found.arguments, found.temporary, found.output, found.code]
        sizes.append(0 if found.refused else needed)
        cells = [amount(size) if size else "" for size in sizes] + [amount(device.memory_bytes)]
        cells += [amount(found.flops, "") if found.flops else "", duration(found.seconds)]
        print(ROW.format(name, step, batch, *cells).rstrip(), flush=True)
        if found.refused:
            yield f"{name} refuses the step {step} of batch {batch}: {found.refused}"
            continue
        if needed > device.memory_bytes:
            room = f"{amount(needed)}, {name} has room for {amount(device.memory_bytes)}"
            yield f"the step {step} of batch {batch} needs {room}"
        if step == "train" and FLAGS.largest_batch:
            best = largest_compiled(programs, name, needed)
            print(f"  {name:<6}largest --train_batch_size: {best or 'none fits'}", flush=True)


def compile_step(programs, name: str, step: str, batch: int, *, as_is: bool = False) -> Compiled:
    """Lowers and compiles a step."""
    with Progress(f"compile the step {step} of batch {batch} for {name}"):
        hlo = programs.lowered(step, batch)
        return compilers.compile_program(DEVICES[name], hlo, as_is=as_is)


def largest_compiled(programs, name: str, first: float) -> int:
    """The largest batch of a training step of which the compiler recomputes nothing by itself.

    `first` are the bytes of the batch that is given.
    """
    work, device = programs.work, DEVICES[name]

    def peak(batch: int) -> float:
        found = compile_step(programs, name, "train", batch, as_is=True)
        if found.refused:
            logging.warning("%s refuses batch %d: %s", name, batch, found.refused)
        return found.bytes_on(device)

    if first > device.memory_bytes // 2:  # it may be less than that of the program as it is
        first = peak(work.train_batch_size)
    planned = largest_batch(work, device.memory_bytes, device.kind)
    return compilers.largest_batch(
        peak,
        device.memory_bytes,
        (work.train_batch_size, first),
        unit=work.gradient_accumulation_steps,
        guess=planned or work.train_batch_size // 2,
    )


if __name__ == "__main__":
    cli.parse(define_flags, check_flags, needs_tensorflow=False)
    cli.run(main)
