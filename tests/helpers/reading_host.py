"""A host of a run that only reads: its part of an epoch's batches, as training does.

    python reading_host.py --input_file=FILES --batch_size=B --starts=0,47 --output_dir=FOLDER

For each start it writes its rows of the batches from there on to FOLDER/host_<index>_from_<start>,
feature after feature, and logs how many bytes it has read for them. Then it reads
--last_input_file, if that is given.
"""

import json
import os
import pathlib
from collections.abc import Iterator

import tensorflow as tf
from absl import flags, logging
from walking import SIZES

from bert_tf import runtime
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.data import samplers
from bert_tf.data.batches import Batches
from bert_tf.data.records import pretraining_record
from bert_tf.data.shards import RecordFiles
from bert_tf.training import distribution

FLAGS = flags.FLAGS
SEED, VOCABULARY = 5, 30_000


def define_flags() -> None:
    """The flags of this script."""
    shared_flags.define_devices()
    flags.DEFINE_string("input_file", None, "Record files.")
    flags.DEFINE_string("last_input_file", None, "Others.")
    flags.DEFINE_string("output_dir", None, "A folder.")
    flags.DEFINE_integer("batch_size", None, "Rows of a batch.")
    flags.DEFINE_list("starts", None, "First batches.")


def one_epoch(input_file: str, batch_size: int) -> Batches:
    """The batches, of which the last one may be short."""
    record = pretraining_record(**SIZES, vocab_size=VOCABULARY)
    files = RecordFiles(input_file, record, keep_indexes=True)
    order = samplers.shuffled(files.block_records, batch_size=batch_size, seed=SEED)
    return Batches(files, order, batch_size=batch_size, num_examples=len(files))


def read(strategy: tf.distribute.Strategy, batches: Batches, start: int) -> Iterator[bytes]:
    """This host's rows of the batches from `start` on, one feature after the other."""
    iterator = distribution.distributed_batches(strategy, batches, start=start)
    for _ in range(start, batches.num_batches):
        with batches.record_errors():
            batch = next(iterator)
        for name in sorted(batch):
            (rows,) = strategy.experimental_local_results(batch[name])
            yield rows.numpy().tobytes()
        runtime.barrier()  # as each step


def main(_) -> None:
    """Joins the others, then reads."""
    strategy = distribution.make_strategy("auto")
    index = json.loads(os.environ[distribution.CLUSTER])["task"]["index"]
    batches = one_epoch(FLAGS.input_file, FLAGS.batch_size)
    for start in map(int, FLAGS.starts):
        before = bytes_read()
        with open(f"{FLAGS.output_dir}/host_{index}_from_{start}", "wb") as file:
            file.writelines(read(strategy, batches, start))
        logging.info("from %d: %d bytes", start, bytes_read() - before)
    if FLAGS.last_input_file:
        list(read(strategy, one_epoch(FLAGS.last_input_file, FLAGS.batch_size), 0))


def bytes_read() -> int:
    """By this process, as its kernel counts them."""
    return int(pathlib.Path("/proc/self/io").read_text().split()[1])


if __name__ == "__main__":
    cli.parse(define_flags)
    cli.run(main)
