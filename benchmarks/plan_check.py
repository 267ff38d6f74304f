"""The planner's largest batches beside those of the compilers of accelerators.

    python benchmarks/plan_check.py --for=v5e,h100 --model=BERT-Base

Pre-training in bfloat16, with and without --recompute; none of the devices need be here. The
planned batch is within 10 % of the largest that the device's compiler accepts, if that accepts
planned / 1.1 and refuses planned / 0.9: both are compiled. A line of BERT-Large for a TPU takes ten
minutes and more on one core. Exit code 1 if a batch is not within 10 %.
"""

import argparse
import itertools
import math
import sys

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

from bert_tf.planning import tables
from bert_tf.planning.compilers import compile_program
from bert_tf.planning.memory import largest_batch
from bert_tf.planning.programs import Programs
from bert_tf.planning.workload import DEVICES, Accelerator, Workload

LENGTHS = ((128, 20), (512, 77))  # tokens, predictions


def main() -> None:
    """Devices, models, lengths, with and without --recompute -> a table."""
    options = parse_options()
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
            programs = Programs(work)
            for name in options.devices:
                device = DEVICES[name]
                planned = largest_batch(work, device.memory_bytes, device.kind)
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


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    devices = {"dest": "devices", "type": lambda text: text.split(","), "required": True}
    parser.add_argument("--for", **devices)
    parser.add_argument("--model", choices=tables.PUBLISHED, help="default: both")
    return parser.parse_args()


def bytes_compiled(programs: Programs, device: Accelerator, batch: int) -> float:
    """What the training step of a batch needs, as it is; infinity if it is refused."""
    found = compile_program(device, programs.lowered("train", batch), as_is=True)
    if found.refused:
        print(f"{device.name} refuses batch {batch}: {found.refused}", file=sys.stderr)
    return found.bytes_on(device)


if __name__ == "__main__":
    main()
