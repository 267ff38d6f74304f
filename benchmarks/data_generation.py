"""Text to pre-training records: seconds beside the original's generator, and a gigabyte in shards.

    pip download --no-deps bert-tensorflow==1.0.4 && unzip -q bert_tensorflow-*.whl -d original
    python benchmarks/data_generation.py speed --input_file='wiki/*' --vocab_file=vocab.txt \\
        --output_dir=speed --original=original
    python benchmarks/data_generation.py large --input_file='wiki/*' --vocab_file=vocab.txt \\
        --output_dir=large

The input is WikiExtractor's; it is written as a sentence a line, with documents again in another
order until there are enough. Every run is a process of its own, from its start to its end.

`speed`: one worker, two workers, the original if it is given; in turn, each --rounds times. Prints
the wall time of each, and the medians. Files of one and two workers must be the same.

`large`: --megabytes of text into 64 shards with two workers. Once for the first of the sizes, to
compare the memory; then undisturbed for the second; then again, killed with all its workers after
half of that time, and started again. All files of both must be the same. Memory is that of all
processes which no file backs; what processes share counts once. It is the greatest of three looks a
second. (What a process shares with no other would leave out TensorFlow's objects, which the workers
share, and would rise when one of them ends.)
"""

import argparse
import contextlib
import glob
import hashlib
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
from data_gen.documents import DocumentReader, sentence_splitter

ROOT = pathlib.Path(__file__).parents[1]
SECONDS_BETWEEN_LOOKS = 0.3
HELD = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")  # in smaps_rollup, in kB


def main() -> None:
    """The chosen comparison."""
    options = parse_options()
    folder = pathlib.Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    {"speed": speed, "large": large}[options.what](options, folder)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["speed", "large"])
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--original", help="folder with the original as the package bert")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, nargs="+", help="16, or 60 and 1000")
    parser.add_argument("--dupe_factor", type=int, default=5)
    return parser.parse_args()


def write_text(path: pathlib.Path, pattern: str, num_bytes: int) -> None:
    """Documents of WikiExtractor's files, one sentence a line, until there are `num_bytes`."""
    paths = sorted(glob.glob(pattern))
    if not paths:
        sys.exit(f"--input_file={pattern} matches no file")
    reader = DocumentReader(paths, input_format="wikiextractor")
    split = sentence_splitter("wikiextractor", "en")
    order, documents, size = random.Random(1), [], 0
    with open(path, "w", encoding="utf-8") as file:
        for document in reader.documents():
            lines = [sentence for line in document for sentence in split(line)]
            documents.append("\n".join(lines) + "\n\n")
            size += file.write(documents[-1])
            if size >= num_bytes:
                return
        while True:
            for document in order.sample(documents, len(documents)):
                size += file.write(document)
                if size >= num_bytes:
                    return


def command(text: pathlib.Path, output: pathlib.Path, options, **flags) -> list[str]:
    """The command line of our generator."""
    flags = {"input_file": text, "output_file": output, "vocab_file": options.vocab_file,
             "dupe_factor": options.dupe_factor, "max_seq_length": 128, **flags}  # fmt: skip
    words = [f"--{name}={value}" for name, value in flags.items()]
    return [sys.executable, str(ROOT / "create_pretraining_data.py"), *words]


# ------------------------------------------------------------------------- speed


def speed(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Seconds of each way, in turn."""
    text = folder / "text.txt"
    write_text(text, options.input_file, (options.megabytes or [16])[0] * 10**6)
    outputs = {name: folder / name for name in ("one", "two", "original")}
    commands = {
        "one": command(text, outputs["one"], options, num_workers=1),
        "two": command(text, outputs["two"], options, num_workers=2),
    }
    if options.original:
        flags = command(text, outputs["original"], options)[2:]
        commands["original"] = [sys.executable, "-m", "bert.create_pretraining_data", *flags]
    seconds, paths = {name: [] for name in commands}, [str(ROOT), options.original or ""]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    print(f"{text.stat().st_size / 1e6:.1f} MB of text, dupe_factor {options.dupe_factor}")
    for _ in range(options.rounds):
        for name, words in commands.items():
            started = time.perf_counter()
            subprocess.run(words, check=True, stderr=subprocess.DEVNULL, env=environment)
            seconds[name].append(time.perf_counter() - started)
            print(f"{name:10}{seconds[name][-1]:8.1f} s", flush=True)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    for name, median in medians.items():
        times = medians.get("original", 0) / median
        print(f"{name:10}{median:8.1f} s" + (f", {times:.1f} times as fast" if times > 1 else ""))
    same = outputs["one"].read_bytes() == outputs["two"].read_bytes()
    print(f"one and two workers, the same bytes: {same}")
    sys.exit(0 if same else 1)


# ------------------------------------------------------------------------- a gigabyte


def large(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Minutes and memory of two sizes of text; the larger one also killed and continued."""
    small, big = options.megabytes or [60, 1000]
    for megabytes in (small, big):
        write_text(folder / f"{megabytes}.txt", options.input_file, megabytes * 10**6)
    print(f"{'':24}{'minutes':>9}{'MB of all processes':>21}", flush=True)
    run("small", small, folder, options)
    undisturbed = run("undisturbed", big, folder, options)
    run("killed", big, folder, options, seconds=undisturbed / 2)
    run("killed", big, folder, options, goes_on=True)
    same = digests(folder / "undisturbed") == digests(folder / "killed")
    print(f"{len(digests(folder / 'killed'))} files, the same bytes: {same}")
    sys.exit(0 if same else 1)


def run(
    name: str,
    megabytes: int,
    folder: pathlib.Path,
    options: argparse.Namespace,
    *,
    seconds: float = float("inf"),
    goes_on: bool = False,
) -> float:
    """Runs the command, prints a line, and returns its seconds; kills it after `seconds`."""
    if not goes_on:
        shutil.rmtree(folder / name, ignore_errors=True)
    words = command(
        folder / f"{megabytes}.txt", folder / name / "data", options, num_workers=2, num_shards=64
    )
    started, most = time.perf_counter(), 0
    with open(folder / f"{name}.log", "a", encoding="utf-8") as log:
        process = subprocess.Popen(words, stderr=log, start_new_session=True)
        while process.poll() is None:
            most = max(most, held_bytes(process.pid))
            time.sleep(SECONDS_BETWEEN_LOOKS)
            if time.perf_counter() - started > seconds:
                os.killpg(process.pid, signal.SIGKILL)
    took = time.perf_counter() - started
    what = f"{name}, {megabytes} MB" + (", goes on" if goes_on else "")
    print(f"{what:24}{took / 60:9.2f}{most / 1e6:21.0f}", flush=True)
    if process.wait() != (-signal.SIGKILL if seconds < float("inf") else 0):
        sys.exit(f"it ended with {process.returncode}: see {folder / name}.log")
    return took


def held_bytes(pid: int) -> int:
    """The memory of a process and all its descendants that no file backs."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            # It may end meanwhile.
            with contextlib.suppress(OSError), open(f"/proc/{process.pid}/smaps_rollup") as file:
                rows = map(str.split, file.readlines()[1:])
                total += sum(int(size) << 10 for name, size, _ in rows if name in HELD)
    return total


def digests(folder: pathlib.Path) -> dict[str, str]:
    """Of all files but the report, which names their paths."""
    return dict(_digests(folder))


def _digests(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.glob("*data-*")):
        with open(path, "rb") as file:
            yield path.name, hashlib.file_digest(file, "blake2b").hexdigest()


if __name__ == "__main__":
    main()
