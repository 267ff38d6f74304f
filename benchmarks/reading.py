"""Records a second that pre-training reads, beside tf.data and the original's pipeline.

    python benchmarks/reading.py --records=400000

Records of 128 tokens and 20 predictions in 10 files, sentences of 90 to 128 pieces, batches of 256;
the contenders in turn, each in a process of its own:

    ours            `Batches`, shuffled and every feature checked
    parallel reads  tf.data with a shuffle of 10,000 records, batch and parse_example
    one reader      the same without `num_parallel_reads`
    original        the functions of its `input_fn_builder`, a record parsed at a time
"""

import pathlib
import tempfile
import time

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

import numpy as np
import tensorflow as tf
from bert_tf.data.batches import Batches, ShuffledSampler
from bert_tf.data.records import pretraining_record
from bert_tf.data.shards import RecordFiles

from measuring import Contender, command, in_turn, parse_options, print_rates, serve

SIZES = {"max_seq_length": 128, "max_predictions_per_seq": 20}
VOCAB, BATCH = 30522, 256
DISTINCT = 20_000  # records, written over and over
FILES = 10
BUFFER = 10_000  # of tf.data's shuffle
RECORD = pretraining_record(**SIZES, vocab_size=VOCAB, type_vocab_size=2)


def main() -> None:
    """Contenders in turn -> a table."""
    options = parse_options(
        __doc__,
        records=400_000,
        rounds=7,
        contender=None,  # the pattern of the files that this process reads, if it is one
        way="ours",
    )
    if options.contender:
        serve(reader(CONTENDERS[options.way](options.contender)))
        return
    with tempfile.TemporaryDirectory() as folder:
        pattern = write_many(pathlib.Path(folder), options.records)
        contenders = {n: Contender(command(__file__, contender=pattern, way=n)) for n in CONTENDERS}
        rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        for contender in contenders.values():
            contender.ask(50)
        for name in in_turn(CONTENDERS, options.rounds):
            rates[name].append(contenders[name].ask(options.records // BATCH))
        for contender in contenders.values():
            contender.close()
    print_rates("records/s", rates)


def reader(dataset: tf.data.Dataset):
    """Reads n batches; answers records a second."""
    batches = iter(dataset)

    def answer(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            next(batches)
        return count * BATCH / (time.perf_counter() - begin)

    return answer


# ---------------------------------------------------------------------------- files


def random_record(rng: np.random.Generator) -> bytes:
    """A record as data generation writes it."""
    length, predictions = int(rng.integers(90, 129)), SIZES["max_predictions_per_seq"]
    here = np.arange(SIZES["max_seq_length"])
    values = {
        "input_ids": np.where(here < length, rng.integers(1000, VOCAB, len(here)), 0),
        "input_mask": np.int64(here < length),
        "segment_ids": np.int64((here >= length // 2) & (here < length)),
        "masked_lm_positions": np.sort(rng.choice(np.arange(1, length), predictions, False)),
        "masked_lm_ids": rng.integers(1000, VOCAB, predictions),
        "masked_lm_weights": np.ones(predictions),
        "next_sentence_labels": rng.integers(0, 2, 1),
    }
    return RECORD.serialize({name: value.tolist() for name, value in values.items()})


def write_many(folder: pathlib.Path, count: int) -> str:
    """So many records in `FILES` files; returns their pattern."""
    rng, distinct = np.random.default_rng(0), min(DISTINCT, count // FILES)
    with tf.io.TFRecordWriter(str(folder / "part")) as writer:
        for _ in range(distinct):
            writer.write(random_record(rng))
    data = (folder / "part").read_bytes()
    for number in range(FILES):
        with open(folder / f"{number:02}.tfrecord", "wb") as file:
            for _ in range(count // FILES // distinct):
                file.write(data)
    return f"{folder}/*.tfrecord"


# ---------------------------------------------------------------------------- contenders


def ours(pattern: str) -> tf.data.Dataset:
    """The batches of pre-training."""
    files = RecordFiles(pattern, RECORD, keep_indexes=True)
    order = ShuffledSampler(files.block_records, batch_size=BATCH, seed=1)
    return Batches(files, order, batch_size=BATCH).dataset()


def fixed_features() -> dict[str, tf.io.FixedLenFeature]:
    """What `parse_example` is told of the records."""
    return {f.name: tf.io.FixedLenFeature([f.size], f.dtype) for f in RECORD.features}


def as_int32(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """As the original casts them."""
    return {n: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for n, v in features.items()}


def plain(pattern: str, reads: int | None = None) -> tf.data.Dataset:
    """What the documents of tf.data recommend."""
    dataset = tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(pattern)), num_parallel_reads=reads)
    dataset = dataset.shuffle(BUFFER, seed=1).repeat().batch(BATCH, drop_remainder=True)
    dataset = dataset.map(
        lambda rows: as_int32(tf.io.parse_example(rows, fixed_features())),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return dataset.prefetch(tf.data.AUTOTUNE)


def original(pattern: str) -> tf.data.Dataset:
    """As its `input_fn_builder`: files interleaved, 100 records mixed, each parsed by itself."""
    paths, experimental = sorted(tf.io.gfile.glob(pattern)), tf.data.experimental
    dataset = tf.data.Dataset.from_tensor_slices(paths).repeat().shuffle(len(paths))
    interleaved = experimental.parallel_interleave(
        tf.data.TFRecordDataset, sloppy=True, cycle_length=4
    )
    batched = experimental.map_and_batch(
        lambda row: as_int32(tf.io.parse_single_example(row, fixed_features())),
        batch_size=BATCH,
        num_parallel_batches=4,
        drop_remainder=True,
    )
    return dataset.apply(interleaved).shuffle(100).apply(batched)


CONTENDERS: dict[str, object] = {
    "ours": ours,
    "parallel reads": lambda pattern: plain(pattern, tf.data.AUTOTUNE),
    "one reader": plain,
    "original": original,
}

if __name__ == "__main__":
    main()
