"""How pre-training reads its records: rates beside others, files of any size, and the mixing.

    python benchmarks/reading.py rates --records=400000
    python benchmarks/reading.py size --records=10000000     needs 9 GB of disk
    python benchmarks/reading.py plan --records=330000000    arithmetic on a made-up index
    python benchmarks/reading.py mixing

Records of 128 tokens and 20 predictions, sentences of 90 to 128 pieces, batches of 256 on two
processors.

rates   Records a second, and processor time a record, the contenders in turn in one run:
        `Batches`, shuffled and every feature checked; tf.data with a shuffle of 10,000 records,
        batch and parse_example, with and without parallel reads; and the original's
        pipeline, the functions of its `input_fn_builder`, a record parsed at a time.
size    Seconds to the first batch without and with an index, and memory beyond that for ten
        thousand records, each in a fresh process; then what the kernel counts as read in an epoch,
        in one process and in each of two.
plan    The same questions for an index of so many records, without the records.
mixing  How often two rows of a batch are of one document: ours, a full shuffle, and the original's
        buffers; for records in the order of their documents, and for those that data generation
        writes.
"""

import argparse
import itertools
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

import numpy as np
import tensorflow as tf
from bert_tf.data.batches import Batches, SequentialSampler, ShuffledSampler
from bert_tf.data.records import BLOCK_BYTES, Record, index_path, pretraining_record
from bert_tf.data.shards import RecordFiles, read_index

SIZES = {"max_seq_length": 128, "max_predictions_per_seq": 20}
MODEL = {"vocab_size": 30522, "type_vocab_size": 2}
BATCH = 256
DISTINCT = 20_000  # records, written over and over
FILES = 10
BUFFER = 10_000  # of tf.data's shuffle
MB, GB = 1 << 20, 1e9


def main() -> None:
    """One of the four."""
    options = parse_options()
    if options.what == "child":
        child(options)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        {"rates": rates, "size": size, "plan": plan, "mixing": mixing}[options.what](
            pathlib.Path(folder), options
        )


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["rates", "size", "plan", "mixing", "child"])
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender")
    parser.add_argument("--folder", help="for the files; the system's for temporary ones if unset")
    parser.add_argument("--pattern", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--host", default="0/1", help=argparse.SUPPRESS)
    return parser.parse_args()


def kind() -> Record:
    """The records of all measurements."""
    return pretraining_record(**SIZES, **MODEL)


# ---------------------------------------------------------------------------- files


def random_record(rng: np.random.Generator, record: Record, document: int | None = None) -> bytes:
    """A record as data generation writes it; `document` is its first id, if it has one."""
    length, predictions = int(rng.integers(90, 129)), 20
    here = np.arange(SIZES["max_seq_length"])
    ids = np.where(here < length, rng.integers(1000, MODEL["vocab_size"], len(here)), 0)
    ids[0] = 101 if document is None else document
    values = {
        "input_ids": ids,
        "input_mask": np.int64(here < length),
        "segment_ids": np.int64((here >= length // 2) & (here < length)),
        "masked_lm_positions": np.sort(rng.choice(np.arange(1, length), predictions, False)),
        "masked_lm_ids": rng.integers(1000, MODEL["vocab_size"], predictions),
        "masked_lm_weights": np.ones(predictions),
        "next_sentence_labels": rng.integers(0, 2, 1),
    }
    return record.serialize({name: value.tolist() for name, value in values.items()})


def write(path: pathlib.Path, serialized: Iterator[bytes]) -> None:
    """A TFRecord file without an index."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for one in serialized:
            writer.write(one)


def write_many(folder: pathlib.Path, count: int) -> str:
    """So many records in `FILES` files; returns their pattern."""
    rng, record = np.random.default_rng(0), kind()
    distinct = min(DISTINCT, count // FILES)
    write(folder / "part", (random_record(rng, record) for _ in range(distinct)))
    data = (folder / "part").read_bytes()
    for number in range(FILES):
        with open(folder / f"{number:02}.tfrecord", "wb") as file:
            for _ in range(count // FILES // distinct):
                file.write(data)
    (folder / "part").unlink()
    return f"{folder}/*.tfrecord"


# ---------------------------------------------------------------------------- rates


def rates(folder: pathlib.Path, options: argparse.Namespace) -> None:
    """Contenders in turn -> a table."""
    pattern = write_many(folder, options.records)
    paths = sorted(map(str, folder.glob("*.tfrecord")))
    files = open_files(pattern)
    contenders: dict[str, Callable[[int], tf.data.Dataset]] = {
        "ours, shuffled, checked": lambda seed: shuffled(files, seed).dataset(),
        "tf.data, parallel reads": lambda seed: plain(paths, seed),
        "tf.data, without": lambda seed: plain(paths, seed, reads=None),
        "the original's": lambda _: original(paths),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    steps = len(files) // BATCH
    for number in range(options.rounds + 1):  # the first one warms up
        for name, make in contenders.items():
            seconds[name].append(timed(make(number), steps))
    print(f"{steps * BATCH:,} records of {FILES} files, {options.rounds} turns")
    print(f"{'records/s':28}{'min':>10}{'median':>10}{'max':>10}{'ours is':>10}{'CPU time':>12}")
    wall = {name: [clock for clock, _ in taken[1:]] for name, taken in seconds.items()}
    ours = next(iter(wall.values()))
    for name, taken in wall.items():
        ratio = statistics.median(b / a for a, b in zip(ours, taken, strict=True))
        rate = [steps * BATCH / s for s in taken]
        numbers = (min(rate), statistics.median(rate), max(rate))
        cpu = statistics.median(cpu for _, cpu in seconds[name][1:]) / (steps * BATCH)
        cells = "".join(f"{n:10,.0f}" for n in numbers)
        print(f"{name:28}{cells}{ratio:9.2f}x{cpu * 1e6:8.1f} us")


def open_files(patterns: str | list[str]) -> RecordFiles:
    """As pre-training opens them."""
    return RecordFiles(patterns, kind(), keep_indexes=True)


def shuffled(files: RecordFiles, seed: int = 1) -> Batches:
    """The batches of pre-training."""
    order = ShuffledSampler(files.block_records, batch_size=BATCH, seed=seed)
    return Batches(files, order, batch_size=BATCH)


def timed(dataset: tf.data.Dataset, steps: int) -> tuple[float, float]:
    """Seconds for so many batches, the first one's included: by the clock, and of processors."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for _ in dataset.take(steps):
        pass
    return time.perf_counter() - begin, time.process_time() - begin_cpu


def fixed_features() -> dict[str, tf.io.FixedLenFeature]:
    return {f.name: tf.io.FixedLenFeature([f.size], f.dtype) for f in kind().features}


def as_int32(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {n: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for n, v in features.items()}


def plain(paths: list[str], seed: int, reads: int | None = tf.data.AUTOTUNE) -> tf.data.Dataset:
    """What the documents of tf.data recommend."""
    dataset = tf.data.TFRecordDataset(paths, num_parallel_reads=reads)
    dataset = dataset.shuffle(BUFFER, seed=seed).repeat().batch(BATCH, drop_remainder=True)
    dataset = dataset.map(
        lambda rows: as_int32(tf.io.parse_example(rows, fixed_features())),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return dataset.prefetch(tf.data.AUTOTUNE)


def original(paths: list[str]) -> tf.data.Dataset:
    """As its `input_fn_builder`: files interleaved, 100 records mixed, each parsed by itself."""
    dataset = tf.data.Dataset.from_tensor_slices(paths).repeat().shuffle(len(paths))
    dataset = dataset.apply(
        tf.data.experimental.parallel_interleave(
            tf.data.TFRecordDataset, sloppy=True, cycle_length=4
        )
    )
    dataset = dataset.shuffle(100)
    return dataset.apply(
        tf.data.experimental.map_and_batch(
            lambda row: as_int32(tf.io.parse_single_example(row, fixed_features())),
            batch_size=BATCH,
            num_parallel_batches=4,
            drop_remainder=True,
        )
    )


# ---------------------------------------------------------------------------- size


def size(folder: pathlib.Path, options: argparse.Namespace) -> None:
    """First batches, memory and bytes, each in a process of its own."""
    (folder / "few").mkdir()
    few, many = write_many(folder / "few", 10_000), write_many(folder, options.records)
    total = sum(path.stat().st_size for path in folder.glob("*.tfrecord"))
    print(f"{options.records:,} records, {total / GB:.2f} GB, {FILES} files, batches of {BATCH}")
    first = {"without an index": in_process(many), "with an index": in_process(many)}
    for name, found in first.items():
        print(f"first batch {name}: {found['seconds']:.2f} s")
    steps = 300
    small, large = (in_process(pattern, steps=steps)["memory"] for pattern in (few, many))
    print(f"memory at its highest in {steps} steps: {large:.0f} MB, {large - small:+.0f} MB")
    epoch = options.records // BATCH
    for host in ("0/1", "0/2", "1/2"):
        found = in_process(many, steps=epoch, host=host)
        share = found["bytes"] / total
        print(f"process {host}: {share:.3f} of the bytes in an epoch, {found['rate']:,.0f} rows/s")


def in_process(pattern: str, **options: object) -> dict[str, float]:
    """What a fresh process measures."""
    words = [f"--{name}={value}" for name, value in ({"pattern": pattern} | options).items()]
    command = [sys.executable, __file__, "child", *words]
    return json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL).splitlines()[-1])


def child(options: argparse.Namespace) -> None:
    """Reads so many batches; prints seconds to the first one, memory and bytes as JSON."""
    host, hosts = map(int, options.host.split("/"))
    before, begin = bytes_read(), time.perf_counter()
    batches = shuffled(open_files(options.pattern))
    parts = batches.dataset(num_parts=hosts, first_part=host, parts_here=1)
    iterator = iter(parts)
    next(iterator)
    first = time.perf_counter() - begin
    for _ in range(options.steps - 1):
        next(iterator)
    seconds = time.perf_counter() - begin
    found = {
        "seconds": first,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB,
        "bytes": bytes_read() - before,
        "rate": options.steps * BATCH / hosts / seconds,
    }
    print(json.dumps(found), flush=True)
    os._exit(0)


def bytes_read() -> int:
    """By all calls of this process, as the kernel counts them."""
    return int(pathlib.Path("/proc/self/io").read_text().split()[1])


# ---------------------------------------------------------------------------- plan


def plan(folder: pathlib.Path, options: argparse.Namespace) -> None:
    """An index of so many records: what it takes to open it, and to find a place in the run."""
    record_bytes, files = 900, 1000
    records_of_block = -(-BLOCK_BYTES // record_bytes)
    blocks = -(-options.records // records_of_block // files)
    index = {
        "num_bytes": blocks * records_of_block * record_bytes,
        "block_bytes": [records_of_block * record_bytes] * blocks,
        "block_records": [records_of_block] * blocks,
    }
    for number in range(files):
        path = folder / f"{number}.tfrecord"
        with open(path, "wb") as file:
            file.truncate(index["num_bytes"])  # a hole
        pathlib.Path(index_path(str(path))).write_text(json.dumps(index))
    total, indexes = index["num_bytes"] * files, len(json.dumps(index)) * files
    print(f"{blocks * files * records_of_block:,} records, {total / GB:.0f} GB, {files} files")
    begin = time.perf_counter()
    found = [read_index(path) for path in sorted(map(str, folder.glob("*.tfrecord")))]
    print(f"indexes, {indexes / MB:.1f} MB: read in {time.perf_counter() - begin:.2f} s")
    sizes = list(itertools.chain.from_iterable(one.block_records for one in found))
    begin = time.perf_counter()
    order = ShuffledSampler(sizes, batch_size=BATCH, seed=1)
    order.rows(10**6 * BATCH, (10**6 + 1) * BATCH)
    print(f"rows of batch {10**6:,}: {time.perf_counter() - begin:.2f} s")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    print(f"memory at its highest, TensorFlow's included: {memory:.0f} MB")


# ---------------------------------------------------------------------------- mixing


def mixing(folder: pathlib.Path, options: argparse.Namespace) -> None:
    """Pairs of rows of one document in batches, by order of the files and way of reading."""
    orders = {"by document": by_document, "as generated": as_generated}
    print(
        f"{'pairs of rows of one document, in a million':46}{'rate':>10}{'of a full shuffle':>20}"
    )
    for order, make in orders.items():
        (folder / order).mkdir()
        documents = make(folder / order, options.records)
        paths = sorted(map(str, (folder / order).glob("*.tfrecord")))
        full = expected_share(documents)
        batches = shuffled(open_files(paths))
        readings = {
            "ours": batches.dataset(),
            "the original's": original(paths),
            f"tf.data, {BUFFER} records": plain(paths, 1),
        }
        print(f"{order + ': full shuffle':46}{1e6 * full:10.1f}")
        for name, dataset in readings.items():
            share = measured_share(dataset, len(documents) // BATCH)
            print(f"{order + ': ' + name:46}{1e6 * share:10.1f}{share / full:19.2f}x", flush=True)


def by_document(folder: pathlib.Path, count: int) -> np.ndarray:
    """Files of records in the order of their documents of 1 to 60 records; the documents."""
    rng, record = np.random.default_rng(0), kind()
    sizes = rng.integers(1, 61, count)
    documents = np.repeat(np.arange(count), sizes)[:count] % MODEL["vocab_size"]
    for number, part in enumerate(np.array_split(documents, FILES)):
        rows = (random_record(rng, record, int(document)) for document in part)
        write(folder / f"{number}.tfrecord", rows)
    return documents


def as_generated(folder: pathlib.Path, count: int) -> np.ndarray:
    """Files that `create_pretraining_data.py` makes of documents of one word each."""
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(20_000)]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    with open(folder / "text.txt", "w", encoding="utf-8") as file:
        for number in range(count // 60):
            word = words[number % len(words)]
            for _ in range(int(rng.integers(2, 60))):
                file.write(" ".join([word] * int(rng.integers(10, 30))) + "\n")
            file.write("\n")
    outputs = ",".join(str(folder / f"{number}.tfrecord") for number in range(FILES))
    script = pathlib.Path(__file__).resolve().parent.parent / "create_pretraining_data.py"
    flags = {"input_file": folder / "text.txt", "output_file": outputs, "vocab_file": vocabulary}
    flags |= {"do_lower_case": "true", "dupe_factor": 5, "random_seed": 1} | SIZES
    command = [sys.executable, str(script), *(f"--{n}={v}" for n, v in flags.items())]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    files = open_files(f"{folder}/*.tfrecord")
    order = SequentialSampler(len(files))
    dataset = Batches(files, order, batch_size=BATCH, num_examples=len(files)).dataset()
    batches = [documents_of(batch) for batch in dataset]
    return np.concatenate(batches)[: len(files)]


def documents_of(batch: dict[str, tf.Tensor]) -> np.ndarray:
    """The document of each row: its first id, or else the word of its first segment."""
    ids = batch["input_ids"].numpy()
    if (ids[:, 0] != 2).any():  # [CLS] of the vocabulary above
        return ids[:, 0]
    first = np.where((batch["segment_ids"].numpy() == 0) & (ids > 4), ids, 0)[:, 1:40]
    return np.array([np.bincount(row[row > 0]).argmax() if row.any() else 0 for row in first])


def expected_share(documents: np.ndarray) -> float:
    """How likely two different rows of all are of one document."""
    counts = np.bincount(documents).astype(float)
    return float((counts * (counts - 1)).sum() / (len(documents) * (len(documents) - 1)))


def measured_share(dataset: tf.data.Dataset, steps: int) -> float:
    """How often two rows of a batch are of one document."""
    pairs = 0.0
    for batch in dataset.take(steps):
        counts = np.bincount(documents_of(batch)).astype(float)
        pairs += (counts * (counts - 1)).sum()
    return pairs / (steps * BATCH * (BATCH - 1))


if __name__ == "__main__":
    main()
