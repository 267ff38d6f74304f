"""Records per second that training reads, with the checks of their values beside without.

    taskset -c 0,1 python benchmarks/reading_checked.py

Writes random pre-training records and reads shuffled batches of them as pre-training does (by
blocks) and as fine-tuning does (by rows). Both ways take turns in one process, each first in every
other round; every figure is a median over the rounds. CPU time tells more than wall time where
other processes share the cores.
"""

import argparse
import functools
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from unittest import mock

from bert_tf.data.batches import Batches
from bert_tf.data.blocks import BlockFiles
from bert_tf.data.lane_batches import LaneBatches
from bert_tf.data.record_batches import RecordBatches
from bert_tf.data.records import Record, pretraining_record
from bert_tf.data.samplers import ShuffledSampler
from bert_tf.data.shards import RecordFiles, write_records

import numpy as np

MODEL = {"vocab_size": 30522, "type_vocab_size": 2}
SIZES = {128: 20, 512: 80}  # S: P, as the original's README has them
WAYS = ("without", "with")


def by_blocks(path: str, record: Record, batch_size: int, seed: int) -> Batches:
    """As pre-training reads."""
    return LaneBatches(BlockFiles(path, record), batch_size=batch_size, seed=seed)


def by_rows(path: str, record: Record, batch_size: int, seed: int) -> Batches:
    """As fine-tuning reads."""
    files = RecordFiles(path, record)
    return RecordBatches(files, ShuffledSampler(len(files), seed=seed), batch_size=batch_size)


READERS = {"blocks": by_blocks, "rows": by_rows}


def main() -> None:
    """Records -> batches, in turn with and without checks -> rates."""
    options = parse_options()
    print(f"{'by':8}{'S':>4}{'B':>5}{'':>10}{'records/s':>12}{'of CPU time':>13}")
    with tempfile.TemporaryDirectory() as folder:
        for length, predictions in SIZES.items():
            record = pretraining_record(
                max_seq_length=length, max_predictions_per_seq=predictions, **MODEL
            )
            path = os.path.join(folder, f"{length}.tfrecord")
            write_records(path, record, random_rows(record, options.records))
            for reader, batch_size in itertools.product(READERS, options.batch_sizes):
                make = functools.partial(READERS[reader], path, record, batch_size)
                title = f"{reader:8}{length:4}{batch_size:5}"
                report(title, measure(make, options.rounds), options.records)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=32_768)
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--rounds", type=int, default=30)
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


def measure(make: Callable[[int], Batches], rounds: int) -> dict[str, tuple]:
    """The median seconds of one pass over the records, by way: of the clock, and of the CPU."""
    seconds: dict[str, list] = {way: [] for way in WAYS}
    for number in range(rounds + 1):
        for way in WAYS if number % 2 else reversed(WAYS):
            checks = Record.check_values if way == "with" else lambda *_, **__: None
            with mock.patch.object(Record, "check_values", checks):
                seconds[way].append(one_pass(make(number)))
    # The first round warms up.
    return {
        way: tuple(map(statistics.median, zip(*s[1:], strict=True))) for way, s in seconds.items()
    }


def one_pass(batches: Batches) -> tuple[float, float]:
    """Reads every record once, in whole batches; seconds of the clock and of the CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in batches.dataset().take(batches.num_records // batches.batch_size):
        pass
    return time.perf_counter() - wall, time.process_time() - cpu


def report(title: str, seconds: dict[str, tuple], num_records: int) -> None:
    """Prints both rates and what share of the rate the checks cost."""
    for way in WAYS:
        rates = (num_records / spent for spent in seconds[way])
        print(f"{title}{way:>10}" + "{:12,.0f}{:13,.0f}".format(*rates))
    ratios = (a / b for a, b in zip(seconds["without"], seconds["with"], strict=True))
    print(f"{'':17}{'ratio':>10}" + "{:12.3f}{:13.3f}".format(*ratios), flush=True)


if __name__ == "__main__":
    main()
