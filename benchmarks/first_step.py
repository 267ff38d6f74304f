"""How long a new user waits: until the first visible word, and until the first training step.

    python benchmarks/first_step.py --data_dir=glue/MRPC --init_checkpoint=all-MiniLM-L6-v2
    python benchmarks/first_step.py ... --root=OTHER_CLONE      the code of another clone

Runs `run_classifier.py` on MRPC, several times, and ends each after its first step. Columns:
seconds until the first line on standard error, until the first step is done, and the processor
seconds (user and system) used until then. Only the last is the same on a machine that others use.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST_STEP = "train: 1 of"


def main() -> None:
    """Runs the command, and prints a line for each time and the medians."""
    flags = parse_arguments()
    rows = []
    print(f"{'first word':>12}{'first step':>12}{'processor':>12}")
    for _ in range(flags.repeats):
        rows.append(measure(flags))
        print_row(rows[-1])
    print("median")
    print_row([statistics.median(column) for column in zip(*rows, strict=True)])


def parse_arguments() -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", required=True, help="MRPC's folder")
    parser.add_argument("--init_checkpoint", required=True)
    parser.add_argument("--root", default=str(ROOT), help="whose run_classifier.py is measured")
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


def measure(flags: argparse.Namespace) -> list[float]:
    """Seconds to the first word, to the first step, and processor seconds up to that."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "run_classifier.py", "--task_name=mrpc", "--do_train"),
            *(f"--data_dir={flags.data_dir}", f"--init_checkpoint={flags.init_checkpoint}"),
            *(f"--output_dir={folder}/run", "--log_steps=1"),
        ]
        start = time.monotonic()
        with subprocess.Popen(
            command,
            cwd=flags.root,
            env=os.environ | {"PYTHONPATH": flags.root},
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            first = 0.0
            for line in process.stderr:
                first = first or time.monotonic() - start
                if FIRST_STEP in line:
                    break
            else:
                raise SystemExit(f"{' '.join(command)} made no step")
            seconds, used = time.monotonic() - start, processor_seconds(process.pid)
            process.kill()
    return [first, seconds, used]


def processor_seconds(process_id: int) -> float:
    """What a process has used: fields 14 and 15 of Linux's /proc/PID/stat."""
    text = pathlib.Path(f"/proc/{process_id}/stat").read_text()
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def print_row(numbers: list[float]) -> None:
    """Prints numbers in columns."""
    print("".join(f"{number:12.1f}" for number in numbers), flush=True)


if __name__ == "__main__":
    main()
