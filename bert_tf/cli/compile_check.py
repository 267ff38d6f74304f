"""What the compilers of TPUs and GPUs make of the training scripts' steps, without such a device.

    bert-tf compile-check --for=v5e,h100
    bert-tf compile-check --for=v5e --bert_config_file=bert_config.json --head=pretraining \\
        --max_seq_length=512 --max_predictions_per_seq=77 --train_batch_size=32 --precision=bfloat16

Each head's step of training, evaluation and prediction is built as the scripts build it, and
compiled for one device: by default those of BERT-Base and BERT-Large. Memory and FLOPs of each
program are printed (of a loop over parts one pass), and the largest batch of training that fits.
Arguments are weights, moments and batch; the peak is compared with the memory that the device's
compiler gives to a program. GB are 10^9 bytes. The command fails if a compiler refuses an
operation, or if a program is too large for its device. The other flags mean the same as in the
scripts, except for batch sizes: there they are of all devices together, here of one.

The compilers come with `pip install 'bert-tf[compile-check]'`, those for GPUs with
`'bert-tf[compile-check-gpu]'` (6 GB installed). A program of BERT-Base takes a minute or two, of
BERT-Large twice as long; a line is logged before each.
"""

from collections.abc import Iterator, Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.cli import plan
from bert_tf.errors import InputError
from bert_tf.planning import compilers
from bert_tf.planning.devices import DEVICES, STEPS

FLAGS = flags.FLAGS
BATCH_FLAGS = dict(zip(STEPS, ("train", "eval", "predict"), strict=True))


def define_flags() -> None:
    """Devices, programs, shapes."""
    for name, default, choices, text in (
        ("for", (), DEVICES, "Devices to compile for"),
        ("head", plan.HEADS, plan.HEADS, "What is trained on top of the encoder"),
        ("steps", STEPS, STEPS, "Which programs to compile"),
    ):
        shared_flags.define_choices(name, default, choices, text)
    plan.define_model(devices="on one device")
    for name, step in (("eval_batch_size", "evaluation"), ("predict_batch_size", "prediction")):
        shared_flags.define_count(name, 8, f"Examples of a step of {step}.")
    flags.DEFINE_bool(
        "largest_batch", True, "Find the largest --train_batch_size, with up to six compilations."
    )


def check_flags(words: Sequence[str]) -> None:
    """Refuses a command that names no device, or one whose compiler is not installed."""
    shared_flags.refuse_words(words)
    if not FLAGS["for"].value:
        raise InputError(
            "no --for",
            f"devices to compile for, of {', '.join(DEVICES)}",
            "add --for=v5e,h100, say",
        )
    for name in ("head", "steps"):
        if not FLAGS[name].value:
            raise InputError(f"an empty --{name}", "what to compile", f"leave out --{name} for all")
    compilers.check_packages(FLAGS["for"].value)


if __name__ == "__main__":
    cli.parse(define_flags, check_flags, needs_tensorflow=False)

from absl import logging

from bert_tf.config import BertConfig
from bert_tf.planning.accelerators import largest_batch_on
from bert_tf.planning.compilers import Compiled, compile_program
from bert_tf.planning.lowering import Programs
from bert_tf.planning.tables import PUBLISHED, amount
from bert_tf.planning.workload import Workload
from bert_tf.terminal.progress import Progress, duration

COLUMNS = ("arguments", "temporary", "output", "code", "peak", "of", "FLOP", "compiled in")
ROW = "  {:<6}{:<10}{:>6}" + "{:>13}" * len(COLUMNS)


def main(_: Sequence[str]) -> None:
    """Compiles all programs; fails at the end if one of them cannot run."""
    problems = []
    for name, config in models().items():
        for head in FLAGS.head:
            work = workload(config, head)
            print(f"{name}, {head}: {settings(work)}")
            print(ROW.format("", "", "batch", *COLUMNS), flush=True)
            with Programs(work) as programs:
                for device in FLAGS["for"].value:
                    for text in check(programs, device):
                        logging.warning("%s", text)
                        problems.append(f"{name}, {head}: {text}")
    if problems:
        raise InputError(
            "\n".join(problems),
            "programs that the devices can run",
            "change the model where an operation is refused; less memory is taken by a smaller "
            "batch, --recompute, --precision=bfloat16 and --gradient_accumulation_steps",
        )


def models() -> dict[str, BertConfig]:
    """The model of the flags, or the published ones, by name."""
    if FLAGS.bert_config_file:
        return {FLAGS.bert_config_file: BertConfig.from_json_file(FLAGS.bert_config_file)}
    return PUBLISHED


def workload(config: BertConfig, head: str) -> Workload:
    """The training that the flags describe, on one device."""
    names = (
        *("max_seq_length", "train_batch_size", "max_predictions_per_seq", "num_classes"),
        *("precision", "recompute", "gradient_accumulation_steps", "optimizer"),
    )
    values = {name: FLAGS[name].value for name in names}
    return Workload(config=config, head=plan.HEADS[head], **values)


def settings(work: Workload) -> str:
    """What all programs of a workload have in common, in words."""
    words = [f"{work.max_seq_length} tokens", work.precision]
    if work.recompute:
        words.append("blocks are computed again")
    if work.gradient_accumulation_steps > 1:
        words.append(f"{work.gradient_accumulation_steps} parts")
    return ", ".join(words)


def check(programs: Programs, device: str) -> Iterator[str]:
    """Prints a line for each program on a device; yields what is wrong."""
    for step in FLAGS.steps:
        batch = FLAGS[f"{BATCH_FLAGS[step]}_batch_size"].value
        found = compiled(programs, device, step, batch)
        print(row(device, step, batch, found), flush=True)
        if found.refused:
            yield f"{device} refuses the step {step} of batch {batch}: {found.refused}"
            continue
        needed, available = found.bytes_on(DEVICES[device]), DEVICES[device].memory_bytes
        if needed > available:
            sizes = f"{amount(needed)}, {device} has room for {amount(available)}"
            yield f"the step {step} of batch {batch} needs {sizes}"
        if step == "train" and FLAGS.largest_batch:
            best = largest_train_batch(programs, device, needed)
            print(f"  {device:<6}largest --train_batch_size: {best or 'none fits'}", flush=True)


def compiled(
    programs: Programs, device: str, step: str, batch: int, *, as_is: bool = False
) -> Compiled:
    """Lowers and compiles a step."""
    with Progress(f"compile the step {step} of batch {batch} for {device}"):
        return compile_program(DEVICES[device], programs.lowered(step, batch), as_is=as_is)


def largest_train_batch(programs: Programs, name: str, first: float) -> int:
    """The largest batch of a training step of which the compiler recomputes nothing by itself.

    `first` are the bytes of the batch that is given.
    """
    work, device = programs.work, DEVICES[name]
    planned = largest_batch_on(work, device)

    def peak(batch: int) -> float:
        found = compiled(programs, name, "train", batch, as_is=True)
        if found.refused:
            logging.warning("%s refuses batch %d: %s", name, batch, found.refused)
        return found.bytes_on(device)

    if first > device.memory_bytes // 2:  # it may be less than that of the program as it is
        first = peak(work.train_batch_size)
    return compilers.largest_batch(
        peak,
        device.memory_bytes,
        (work.train_batch_size, first),
        unit=work.gradient_accumulation_steps,
        guess=planned or work.train_batch_size // 2,
    )


def row(device: str, step: str, batch: int, found: Compiled) -> str:
    """One line of the table."""
    peak = 0 if found.refused else found.bytes_on(DEVICES[device])
    sizes = [found.arguments, found.temporary, found.output, found.code, peak]
    cells = [amount(size) if size else "" for size in sizes]
    cells += [amount(DEVICES[device].memory_bytes)]
    cells += [amount(found.flops, "") if found.flops else "", duration(found.seconds)]
    return ROW.format(device, step, batch, *cells).rstrip()


if __name__ == "__main__":
    cli.run(main)
