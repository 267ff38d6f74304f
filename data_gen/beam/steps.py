"""What each machine does in the Beam pipeline: functions of plain values, in the order of the data.

tokenize    the text of a block -> its ids, in the run's folder
instances   the ids of all blocks -> the keyed rows of one block
write       the keyed rows of a shard -> a file of records in the order of their keys

Blocks are the local generator's, and random numbers come from the seed and a block's number; so the
records are the local generator's.
"""

import contextlib
import fcntl
import functools
import itertools
import pathlib
import pickle
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data.sidecars import IndexBuilder
from bert_tf.files import gfile
from bert_tf.locks import synced
from bert_tf.runtime import keep_freed_memory, without_notices
from data_gen.corpus import Corpus, CorpusWriter
from data_gen.documents import Block, Counts
from data_gen.pipeline import CORPUS_FOLDER, BlockWorker, Plan, expected_bytes
from data_gen.settings import Settings
from data_gen.shuffling import in_order, sorted_runs, split

# About the size of a file of records; a shard is sorted in memory.
SHARD_BYTES = 64 << 20


class Setup(NamedTuple):
    """What every step may need."""

    plan: Plan
    run_folder: str  # local or remote; all machines reach it


class Tokenized(NamedTuple):
    """What is known of a block once it is tokenized."""

    index: int
    num_documents: int
    num_tokens: int


@contextlib.contextmanager
def new_file(path: str) -> Iterator[str]:
    """Where to write a file that appears when it is whole.

    The name is new each time: a runner may do the same work twice at a time.
    """
    temporary = f"{path}.{uuid.uuid4().hex}.incomplete"
    gfile().makedirs(path.rpartition("/")[0])
    yield temporary
    synced(temporary)
    gfile().rename(temporary, path, overwrite=True)


def write_value(path: str, value: Any) -> None:
    """Writes a value for another machine."""
    with new_file(path) as temporary, gfile().GFile(temporary, "wb") as file:
        file.write(pickle.dumps(value))


def read_value(path: str) -> Any:
    """A value that this run wrote."""
    with gfile().GFile(path, "rb") as file:
        return pickle.loads(file.read())


@functools.cache
def block_worker(plan: Plan) -> BlockWorker:
    """The one worker of this process, for all steps."""
    keep_freed_memory()
    with without_notices():
        return BlockWorker(plan)


def write_text(blocks: Iterable[Block], run_folder: str) -> int:
    """Writes the text of all blocks to the run's folder; returns how many there are."""
    number = 0
    for block in blocks:
        write_value(f"{run_folder}/text/{block.index}", block)
        number += 1
    return number


def tokenize(index: int, setup: Setup) -> Tokenized:
    """Text -> ids; they and their statistics are left in the run's folder."""
    block = read_value(f"{setup.run_folder}/text/{index}")
    tokenized, statistics = block_worker(setup.plan).tokenize(block)
    write_value(f"{setup.run_folder}/blocks/{index}", tokenized)
    write_value(f"{setup.run_folder}/statistics/{index}", statistics)
    return Tokenized(index, tokenized.num_documents, statistics.counts["tokens"])


def put_corpus_together(folder: pathlib.Path, run_folder: str, num_blocks: int) -> None:
    """Makes the files of the corpus from all blocks, once on each machine.

    A random next segment may come from any document, and its length decides which random numbers
    are drawn next; so every block needs the whole corpus at hand, four bytes a token.
    """
    folder.mkdir(parents=True, exist_ok=True)
    complete, incomplete = folder / CORPUS_FOLDER, folder / "incomplete_corpus"
    with open(folder / "corpus_lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes of this machine wait here
        if complete.exists():
            return
        shutil.rmtree(incomplete, ignore_errors=True)
        with CorpusWriter(incomplete) as corpus:
            for index in range(num_blocks):
                corpus.append(read_value(f"{run_folder}/blocks/{index}"))
        incomplete.rename(complete)


def number_of_shards(num_tokens: int, settings: Settings) -> int:
    """How many files the records of so many tokens are, where the command does not say it."""
    return 1 + expected_bytes(num_tokens, settings) // SHARD_BYTES


def make_instances(
    block: Tokenized, setup: Setup, blocks: Sequence[Tokenized]
) -> Iterator[tuple[int, bytes]]:
    """The rows of a block, each with its key in the order of all: (shard, rows as bytes).

    Some megabytes at a time. What is counted is left in the run's folder. A corpus of a single
    block gets the original's records in the original's order, as it does locally.

    Args:
      block: the one to make instances of.
      setup: of the run.
      blocks: all of them, so this step begins when all are tokenized.
    """
    job, counts = setup.plan.job, Counts()
    num_tokens = sum(other.num_tokens for other in blocks)
    num_shards = job.num_shards or number_of_shards(num_tokens, job.settings)
    for rows in sorted_runs(keyed_rows(block, setup, sorted(blocks), counts)):
        for shard, (begin, end) in enumerate(itertools.pairwise(split(rows, num_shards))):
            if begin < end:
                yield shard, rows[begin:end].tobytes()
    write_value(f"{setup.run_folder}/counts/{block.index}", counts)


def keyed_rows(
    block: Tokenized, setup: Setup, blocks: Sequence[Tokenized], counts: Counts
) -> Iterator[np.ndarray]:
    """The rows of one of all blocks, which are in order."""
    worker = block_worker(setup.plan)
    tokenized: Corpus = read_value(f"{setup.run_folder}/blocks/{block.index}")
    if len(blocks) == 1:
        if tokenized.num_documents:
            yield worker.original_rows(tokenized, counts)
        return
    put_corpus_together(setup.plan.working_folder, setup.run_folder, len(blocks))
    first = sum(before.num_documents for before in blocks[: block.index])
    yield from worker.keyed_rows(block.index, tokenized, first, counts)


def write_shard(shard: int, parts: Iterable[bytes], setup: Setup) -> None:
    """Writes the records of a shard in the order of their keys, and their number and index."""
    path = f"{setup.run_folder}/shards/{shard}"
    maker, index = block_worker(setup.plan).maker, IndexBuilder()
    rows = in_order(np.frombuffer(b"".join(parts), maker.row_type))
    with new_file(path) as temporary, tf.io.TFRecordWriter(temporary) as writer:
        for record in maker.records(rows):
            writer.write(record)
            index.add(len(record))
    write_value(f"{path}.about", (len(rows), index.finish().to_json_string()))
