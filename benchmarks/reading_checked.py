"""What the checks of all values take of the time that training needs to read its records.

    taskset -c 0,1 python benchmarks/reading_checked.py

Writes random pre-training records and reads shuffled batches of them. Prints records a second of
the clock and of CPU time, over all threads, and the share of this that the checks take, as their
own threads count it: rates with and without them, one after the other, differ by more from run to
run.
"""

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from unittest import mock

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

import numpy as np
from bert_tf.data import shards
from bert_tf.data.batches import Batches, ShuffledSampler
from bert_tf.data.records import Record, pretraining_record
from bert_tf.data.shards import RecordFiles
from bert_tf.training.fine_tuning import write_records

MODEL = {"vocab_size": 30522, "type_vocab_size": 2}
SIZES = {128: 20, 512: 80}  # S: P, as the original's README has them


def shuffled(path: str, record: Record, batch_size: int) -> Batches:
    """As training reads."""
    files = RecordFiles(path, record)
    order = ShuffledSampler(files.block_records, batch_size=batch_size, seed=1)
    return Batches(files, order, batch_size=batch_size)


def main() -> None:
    """Records -> batches -> rates and shares."""
    options = parse_options()
    print(f"{'by':8}{'S':>4}{'B':>5}{'records/s':>12}{'of CPU time':>13}{'checks':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for length, predictions in SIZES.items():
            record = pretraining_record(
                max_seq_length=length, max_predictions_per_seq=predictions, **MODEL
            )
            path = os.path.join(folder, f"{length}.tfrecord")
            write_records(path, record, random_rows(record, options.records))
            for batch_size in options.batch_sizes:
                batches = shuffled(path, record, batch_size)
                wall, cpu, share = measure(batches, options.passes)
                title = f"{'blocks':8}{length:4}{batch_size:5}"
                print(f"{title}{wall:12,.0f}{cpu:13,.0f}{share:9.2%}", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=32_768)
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--passes", type=int, default=5, help="over the records")
    return parser.parse_args()


def random_rows(record: Record, count: int) -> Iterator[dict[str, np.ndarray]]:
    """Records whose every value is drawn from its range, as long as records can be."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield {
            f.name: np.ones(f.size)
            if f.dtype == np.float32
            else rng.integers(f.least, f.most + 1, f.size)
            for f in record.features
        }


@contextlib.contextmanager
def timed_checks() -> Iterator[list[float]]:
    """Gives the seconds of CPU time of each call of `check_values`."""
    seconds: list[float] = []
    check = shards.check_values

    def timed(*arguments, **options) -> None:
        begin = time.thread_time()
        check(*arguments, **options)
        seconds.append(time.thread_time() - begin)

    with mock.patch.object(shards, "check_values", timed):
        yield seconds


def measure(batches: Batches, passes: int) -> tuple[float, float, float]:
    """Records a second of the clock, and of CPU time; the share of this that checks take."""
    per_pass = batches.num_records // batches.batch_size
    for _ in batches.dataset().take(per_pass):
        pass  # warms up
    count = passes * per_pass
    with timed_checks() as seconds:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in batches.dataset().take(count):
            pass
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    records = count * batches.batch_size
    return records / wall, records / cpu, sum(seconds) / cpu


if __name__ == "__main__":
    main()
