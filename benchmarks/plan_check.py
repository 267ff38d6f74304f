"""The planner's figures beside those of XLA and the operating system for real steps.

    python benchmarks/plan_check.py --quick      # small models, some minutes
    python benchmarks/plan_check.py              # BERT-Base as well: needs 10 GB and half an hour
    python benchmarks/plan_check.py --for=v5e,h100 --model=BERT-Base   # accelerators' compilers

Every case is a process that compiles the shipped training step (tests/helpers/compiled_step.py):

    GFLOP         of forward and backward pass, beside that of all products in the compiled step;
                  the body of a loop over parts counts once for each of them
    constant      weights, moments and batch, beside the compiled step's arguments
    temporary     what lives for a part of the step, beside XLA's buffer assignment; the sums of
                  gradients over parts, which live for all of it, are included on both sides
    more          memory than the case before it, which has the same model with another batch or
                  computed in another way: by the plan, and by the processes' peaks (VmHWM)
    seconds       of a step on this machine: the plan's, if --device_gflops and --device_gb_per_s
                  are given, beside the measured

With --for, the largest batches of pre-training in bfloat16 on accelerators, none of which need be
here. The planned one is within 10 % of the largest that the device's compiler accepts, if that
accepts planned / 1.1 and refuses planned / 0.9: both are compiled. A line of BERT-Large for a TPU
takes ten minutes and more on one core.
"""

import argparse
import dataclasses
import itertools
import math
import pathlib
import sys

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

import bert_tf
from bert_tf.planning import tables
from bert_tf.planning.accelerators import largest_batch_on
from bert_tf.planning.compilers import compile_program
from bert_tf.planning.devices import DEVICES, Accelerator
from bert_tf.planning.lowering import Programs
from bert_tf.planning.memory import step_memory
from bert_tf.planning.timing import Device, step_time
from bert_tf.planning.work import total_flops
from bert_tf.planning.workload import Workload

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "helpers"))
import compiled_step


def main() -> None:
    """Cases one after the other -> a table."""
    options = parse_options()
    if options.devices:
        compare_largest_batches(options)
        return
    row = "{:40} {:>8} {:>8} {:>6}  {:>8} {:>6}  {:>9} {:>9} {:>6}  {:>8} {:>8}  {:>7} {:>7}"
    print(
        row.format(
            *("case", "GFLOP", "XLA", "ratio", "constant", "ratio"),
            *("temporary", "XLA, MB", "ratio", "more, MB", "VmHWM", "s plan", "s"),
        )
    )
    before = None
    for name, work in cases(options.quick):
        found, planned = compiled_step.run(work, steps=options.steps), step_memory(work)
        flops = total_flops(work)
        products = flops["forward"] + flops["backward"] + flops.get("recompute", 0)
        sums = planned.constant.get("summed gradients", 0)
        constant = sum(planned.constant.values()) - sums
        temporary = planned.temporary + sums
        more = more_planned = float("nan")
        if before and before[0].config == work.config:
            more = found["peak_bytes"] - before[2]["peak_bytes"]
            more_planned = planned.total - before[1].total
        print(
            row.format(
                name,
                f"{products / 1e9:.2f}",
                f"{found['product_flops'] / 1e9:.2f}",
                f"{products / found['product_flops']:.3f}",
                f"{constant / 1e6:.1f}",
                f"{constant / found['constant_bytes']:.3f}",
                f"{temporary / 1e6:.1f}",
                f"{found['temporary_bytes'] / 1e6:.1f}",
                f"{temporary / found['temporary_bytes']:.3f}",
                f"{more_planned / 1e6:.0f}",
                f"{more / 1e6:.0f}",
                planned_seconds(work, options),
                f"{found['seconds']:.2f}",
            ),
            flush=True,
        )
        before = (work, planned, found)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without BERT-Base")
    parser.add_argument("--for", dest="devices", type=lambda text: text.split(","), default=())
    parser.add_argument("--model", choices=tables.PUBLISHED, help="of --for; default: both")
    parser.add_argument("--steps", type=int, default=3, help="of each case")
    parser.add_argument("--device_gflops", type=float, help="10^9 FLOP/s that products reach here")
    parser.add_argument("--device_gb_per_s", type=float, help="10^9 bytes/s of memory")
    return parser.parse_args()


def compare_largest_batches(options: argparse.Namespace) -> None:
    """Devices, models, lengths, with and without --recompute -> a table."""
    row = "{:8} {:12} {:>6} {:10} {:>8} {:>9} {:>6} {:>9} {:>6} {:>6}  {}"
    titles = ("planned", "fits", "GB", "too large", "GB", "of", "within 10 %")
    print(row.format("device", "model", "tokens", "", *titles), flush=True)
    all_within = True
    for model in [options.model] if options.model else tables.PUBLISHED:
        for (length, predictions), recompute in itertools.product(LENGTHS, (False, True)):
            work = Workload(
                config=tables.PUBLISHED[model],
                max_seq_length=length,
                max_predictions_per_seq=predictions,
                precision="bfloat16",
                recompute=recompute,
            )
            with Programs(work) as programs:
                for name in options.devices:
                    device = DEVICES[name]
                    planned = largest_batch_on(work, device)
                    batches = math.ceil(planned / 1.1), int(planned / 0.9) + 1
                    needed = [bytes_compiled(programs, device, batch) for batch in batches]
                    within = needed[0] <= device.memory_bytes < needed[1]
                    all_within &= within
                    words = [name, model, length, "recompute" if recompute else "", planned]
                    for batch, size in zip(batches, needed, strict=True):
                        words += [batch, f"{size / 1e9:.2f}"]
                    words += [f"{device.memory_bytes / 1e9:.2f}", within]
                    print(row.format(*words), flush=True)
    sys.exit(0 if all_within else 1)


def bytes_compiled(programs: Programs, device: Accelerator, batch: int) -> float:
    """What the training step of a batch needs, as it is; infinity if it is refused."""
    found = compile_program(device, programs.lowered("train", batch), as_is=True)
    if found.refused:
        print(f"{device.name} refuses batch {batch}: {found.refused}", file=sys.stderr)
    return found.bytes_on(device)


LENGTHS = ((128, 20), (512, 77))  # tokens, predictions


def planned_seconds(work: Workload, options: argparse.Namespace) -> str:
    """The plan's time of a step, if the machine is described."""
    if not (options.device_gflops and options.device_gb_per_s):
        return ""
    device = Device(
        flops_per_second=options.device_gflops * 1e9,
        bytes_per_second=options.device_gb_per_s * 1e9,
        efficiency=1.0,
    )
    return f"{step_time(work, device).total:.2f}"


WAYS = (  # to compute a step
    {"recompute": True},
    {"gradient_accumulation_steps": 4},
    {"gradient_accumulation_steps": 4, "recompute": True},
    {"precision": "bfloat16"},
    {"optimizer": "lamb"},
)


def cases(quick: bool) -> list[tuple[str, Workload]]:
    """Models of several sizes, other batches, lengths and heads, and all ways to compute a step."""
    tiny = Workload(config=config(2, 128), train_batch_size=8)
    mini = Workload(config=config(4, 256), train_batch_size=16)
    long = {"max_seq_length": 512, "max_predictions_per_seq": 76}
    chosen = [
        tiny,
        dataclasses.replace(tiny, train_batch_size=32),
        dataclasses.replace(tiny, train_batch_size=64),
        mini,
        dataclasses.replace(mini, train_batch_size=64),
        *(dataclasses.replace(mini, train_batch_size=64, **way) for way in WAYS),
        dataclasses.replace(mini, train_batch_size=4, **long),
        dataclasses.replace(mini, train_batch_size=16, **long),
        dataclasses.replace(mini, train_batch_size=32, head="classification"),
        dataclasses.replace(
            mini, train_batch_size=8, head="question_answering", max_seq_length=384
        ),
    ]
    if not quick:
        base = Workload(config=tables.PUBLISHED["BERT-Base"], train_batch_size=4)
        chosen += [
            base,
            dataclasses.replace(base, train_batch_size=16),
            dataclasses.replace(base, train_batch_size=4, **long),
        ]
    return [(describe(work), work) for work in chosen]


def config(layers: int, hidden: int) -> bert_tf.BertConfig:
    """The smaller models that the original's authors published."""
    return bert_tf.BertConfig(
        vocab_size=30522,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
        type_vocab_size=2,
    )


def describe(work: Workload) -> str:
    """Its sizes and unusual settings, as L4 H256 B4x16 S128 pretraining recompute."""
    sizes, parts = work.config, work.gradient_accumulation_steps
    rows = f"{parts}x{work.rows}" if parts > 1 else f"{work.rows}"
    words = [
        f"L{sizes.num_hidden_layers} H{sizes.hidden_size} B{rows} S{work.max_seq_length}",
        work.head,
        "recompute" if work.recompute else "",
        work.precision if work.precision != "float32" else "",
        work.optimizer if work.optimizer != "adamw" else "",
    ]
    return " ".join(word for word in words if word)


if __name__ == "__main__":
    main()
