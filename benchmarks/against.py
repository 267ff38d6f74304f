"""Compares the speed with another checkout: training step, reading, generation, answers of exports.

    git worktree add ../before COMMIT
    BERT_TF_DATA=... python benchmarks/against.py --before=../before

Each checkout runs its own benchmarks and commands, in processes that take turns, so that a change
of the machine's speed affects both. Prints the median of each and the median ratio of the turns,
above 1 where this checkout is faster. The parts:

    step        examples/s of the training loop (train_step.py, L2 H128 and L4 H256)
    reading     records/s of batches of 256 (reading_checked.py)
    generation  MB/s of `data` with one worker; both must write the same records
    answer      requests/s of an export of all-MiniLM-L6-v2, made by each checkout, by TensorFlow's
                C API (serving_latency.py); both must give the same vectors
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np

import data_generation
import serving_latency
import train_step

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = ("2x128", "4x256")  # of the step
READING = ("--records=16384", "--batch_sizes", "256", "--passes=4")
MEGABYTES = 4  # of text
CASES = ((20, 1), (200, 1), (20, 32))  # words of a text, texts of a request
ROUNDING = 1e-5


def main() -> None:
    """The parts, each in turn -> a table."""
    options = parse_options()
    trees = {"before": options.before.resolve(), "now": ROOT}
    print(f"{'':28}{'before':>12}{'now':>12}{'now is':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts:
            rates: dict[str, dict[str, list[float]]] = {}
            for name, tree, rate in PARTS[part](trees, pathlib.Path(folder), options.rounds):
                rates.setdefault(name, {}).setdefault(tree, []).append(rate)
            for name, found in rates.items():
                before, now = statistics.median(found["before"]), statistics.median(found["now"])
                pairs = zip(found["now"], found["before"], strict=True)
                ratio = statistics.median(a / b for a, b in pairs)
                print(f"{name:28}{before:12,.4g}{now:12,.4g}{ratio:8.3f}", flush=True)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=pathlib.Path, required=True, help="another checkout")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each")
    parser.add_argument("--parts", type=lambda names: names.split(","), default=list(PARTS))
    return parser.parse_args()


Rates = Iterator[tuple[str, str, float]]  # what is measured, in which tree, how much a second


def step(trees: dict[str, pathlib.Path], _: pathlib.Path, rounds: int) -> Rates:
    """Examples a second of a training step."""
    for size in SIZES:
        processes = {
            name: begin(tree, "benchmarks/train_step.py", "--contender=ours", f"--sizes={size}")
            for name, tree in trees.items()
        }
        steps = {}
        for name, process in processes.items():
            train_step.tell(process, 3)  # compiles
            steps[name] = max(1, round(4 / (train_step.tell(process, 5) / 5)))
        for name, process in in_turn(processes, rounds):
            seconds = train_step.tell(process, steps[name])
            yield f"step {size}, examples/s", name, train_step.BATCH * steps[name] / seconds
        end(processes)


def reading(trees: dict[str, pathlib.Path], _: pathlib.Path, rounds: int) -> Rates:
    """Records a second; earlier checkouts have two readers, of which this one replaces both."""
    for name, tree in in_turn(trees, rounds):
        printed = run(tree, "benchmarks/reading_checked.py", *READING)
        lines = [line.split() for line in printed.splitlines()[1:]]
        is_one = len({line[0] for line in lines}) == 1
        for by, length, _, rate, *_ in lines:
            for kind in ("blocks", "rows") if is_one else (by,):
                yield f"{kind}, S {length}, records/s", name, float(rate.replace(",", ""))


def generation(trees: dict[str, pathlib.Path], folder: pathlib.Path, rounds: int) -> Rates:
    """Megabytes of text a second, from start to end."""
    data = serving_latency.data_dir()
    text = folder / "text.txt"
    data_generation.write_text(text, f"{data}/wiki/extracted/*", MEGABYTES * 10**6)
    flags = {"input_file": text, "vocab_file": data / "vocab/uncased_en_30522.txt"}
    flags |= {"dupe_factor": 5, "num_workers": 1}
    written = {}
    for name, tree in in_turn(trees, rounds):
        output = folder / f"{name}.tfrecord"
        words = [f"--{key}={value}" for key, value in (flags | {"output_file": output}).items()]
        started = time.perf_counter()
        run(tree, "create_pretraining_data.py", *words)
        yield "generation, MB/s", name, MEGABYTES / (time.perf_counter() - started)
        written[name] = output.read_bytes()
    if written["before"] != written["now"]:
        sys.exit("the checkouts write different records")


def answer(trees: dict[str, pathlib.Path], folder: pathlib.Path, rounds: int) -> Rates:
    """Requests a second, one after the other."""
    processes, source = {}, serving_latency.data_dir() / "weights/all-MiniLM-L6-v2"
    for name, tree in trees.items():
        export = folder / name / "export"
        words = (f"--init_checkpoint={source}", f"--export_dir={export}", "--task=embeddings")
        run(tree, "-m", "bert_tf", "export", *words)
        names = json.dumps(serving_latency.names_of(export / "1"))
        (folder / name / "tensors.json").write_text(names)
        words = ("--contender=ours", f"--folder={folder / name}")
        processes[name] = begin(tree, "benchmarks/serving_latency.py", *words)
    for case in CASES:
        vectors: dict[str, list] = {}
        for turn, (name, process) in enumerate(in_turn(processes, rounds)):
            texts = serving_latency.texts_of(*case, turn // 2, 20 if case[1] == 1 else 4)
            print(json.dumps(texts), file=process.stdin, flush=True)
            found = json.loads(process.stdout.readline())
            title = f"answer {case[1]} x {case[0]} words, /s"
            yield title, name, 1 / statistics.median(found["seconds"])
            vectors.setdefault(name, []).append(found["vectors"])
        pairs = zip(vectors["before"], vectors["now"], strict=True)
        if (difference := max(np.abs(np.subtract(*pair)).max() for pair in pairs)) > ROUNDING:
            sys.exit(f"the exports of the checkouts differ by {difference:.1e}")
    end(processes)


PARTS: dict[str, Callable] = {
    "step": step,
    "reading": reading,
    "generation": generation,
    "answer": answer,
}


def in_turn(things: dict, rounds: int) -> Iterator[tuple]:
    """Names and things, `rounds` times, every other time in reverse order."""
    for number in range(rounds):
        yield from list(things.items())[:: -1 if number % 2 else 1]


def run(tree: pathlib.Path, *words: str) -> str:
    """The output of a script of a checkout."""
    return subprocess.run(
        [sys.executable, *words],
        **place(tree),
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ).stdout


def begin(tree: pathlib.Path, *words: str) -> subprocess.Popen:
    """A process of a checkout that waits for requests on its input."""
    return subprocess.Popen(
        [sys.executable, *words],
        **place(tree),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def place(tree: pathlib.Path) -> dict:
    """Folder and environment of the processes of a checkout."""
    return {"cwd": tree, "env": os.environ | {"PYTHONPATH": str(tree)}}


def end(processes: dict[str, subprocess.Popen]) -> None:
    """Ends processes that wait for requests."""
    for process in processes.values():
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
