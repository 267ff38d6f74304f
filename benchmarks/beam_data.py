"""Pre-training data by Beam's local runner beside the local generator: records, minutes, memory.

    python benchmarks/beam_data.py --input_file='wiki/*' --vocab_file=vocab.txt --output_dir=beam

One after the other, each a process of its own with its workers: the same text, flags and seed; the
flags are those of `bert-tf data`. The records of both are compared, as a set and in order. Memory
is what processes share with no other (USS), sampled several times a second: the greatest sum over
all processes of a run, and the greatest of one. Needs the extra `beam`, and psutil.
"""

import argparse
import glob
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import psutil

SECONDS_BETWEEN_LOOKS = 0.3


def main() -> None:
    """Both generators -> a table, and whether the records are the same."""
    options = parse_options()
    folder = pathlib.Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    local, beam = folder / "local.tfrecord", folder / "beam.tfrecord"
    for old in (local, *map(pathlib.Path, glob.glob(f"{beam}-*-of-*"))):
        old.unlink(missing_ok=True)
    print(f"{'':8}{'minutes':>9}{'MB of all':>11}{'of one':>8}{'records':>10}", flush=True)
    digests = {}
    for name, verb, output in (("local", "data", local), ("beam", "beam-data", beam)):
        seconds, together, single = measured(command(verb, output, options))
        digests[name] = digest(sorted(glob.glob(f"{output}*")))
        number = digests[name][0]
        print(
            f"{name:8}{seconds / 60:9.2f}{together / 1e6:11.0f}{single / 1e6:8.0f}{number:10,}",
            flush=True,
        )
    local_digest, beam_digest = digests.values()
    same_set = local_digest[:2] == beam_digest[:2]
    print(f"same set of records: {same_set}; same order: {local_digest == beam_digest}")
    sys.exit(0 if same_set else 1)


def parse_options() -> argparse.Namespace:
    """The command line; flags unknown here are passed to both generators."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_dir", required=True)
    options, options.others = parser.parse_known_args()
    return options


def command(verb: str, output: pathlib.Path, options: argparse.Namespace) -> list[str]:
    """A generator's command line."""
    start = [sys.executable, "-m", "bert_tf", verb]
    return [*start, f"--output_file={output}", *options.others]


def measured(words: list[str]) -> tuple[float, int, int]:
    """Seconds; peak bytes of all processes together; peak bytes of one."""
    started = time.perf_counter()
    together = single = 0
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors)
        while process.poll() is None:
            sizes = list(own_bytes(process.pid))
            together, single = max(together, sum(sizes)), max(single, *sizes, 0)
            time.sleep(SECONDS_BETWEEN_LOOKS)
        errors.seek(0)
        if process.returncode:
            sys.exit(f"{' '.join(words)} failed:\n{errors.read()[-3000:]}")
    return time.perf_counter() - started, together, single


def own_bytes(pid: int) -> Iterator[int]:
    """The memory that a process and each of its descendants shares with no other."""
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            yield process.memory_full_info().uss
        except psutil.Error:  # ended meanwhile
            continue


def digest(paths: list[str]) -> tuple[int, int, str]:
    """The number of records; a sum that ignores their order; a hash of them in order."""
    import tensorflow as tf

    number, total, in_order = 0, 0, hashlib.blake2b()
    for record in tf.data.TFRecordDataset(paths).as_numpy_iterator():
        own = hashlib.blake2b(record).digest()
        number, total = number + 1, (total + int.from_bytes(own)) % (1 << 512)
        in_order.update(own)
    return number, total, in_order.hexdigest()


if __name__ == "__main__":
    main()
