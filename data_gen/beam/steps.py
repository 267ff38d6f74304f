"""What each machine does in the Beam pipeline: functions of plain values, in the order of the data.

measure     a file -> how long each of its documents is
cut         the documents of all files -> where blocks begin and end
gather      a file -> its share of the text of each block
tokenize    the text of a block -> its ids, in the run's folder
instances   the ids of all blocks -> the keyed rows of one block
write       the keyed rows of a shard -> a file of records in the order of their keys

Blocks are cut as the local generator cuts them, across the ends of files, and random numbers come
from the seed and a block's number; so the records are the local generator's.
"""

import contextlib
import fcntl
import functools
import io
import itertools
import pathlib
import pickle
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data.index import IndexBuilder
from bert_tf.files import gfile
from bert_tf.locks import synced
from bert_tf.runtime import keep_freed_memory, without_notices
from data_gen.corpus import CorpusWriter, TokenizedBlock
from data_gen.documents import Block, Counts, DocumentReader, changed_text
from data_gen.pipeline import CORPUS_FOLDER, BlockWorker, Plan
from data_gen.report import Statistics
from data_gen.shuffling import in_order, sorted_runs, split


class Share(NamedTuple):
    """The documents of one file that belong to one block."""

    block: int
    first_document: int  # of the file
    end_document: int
    num_characters: int  # of these documents


class Shards(NamedTuple):
    """Document numbers of each block, and the number of shards: known once all is tokenized."""

    block_documents: list[range]  # the numbers of each block's documents in the corpus
    num_shards: int


# ------------------------------------------------------------------------- text -> blocks


def measure(path: str, input_format: str) -> np.ndarray:
    """The number of characters of each document of a file: int64 [documents]."""
    reader = DocumentReader([path], input_format=input_format)
    return np.fromiter((sum(map(len, d)) for d in reader.documents()), np.int64)


def cut(files: Iterable[tuple[int, np.ndarray]], block_characters: int) -> dict[int, list[Share]]:
    """Cuts all documents, in the order of the files, as `DocumentReader.blocks` does.

    Files with documents of 3, 4 and of 5, 2 characters, in blocks of at least 6: block 0 is the
    first file, block 1 the second; in blocks of at least 8, block 0 runs on into the second.

    Args:
      files: (number, its `measure`), in any order.
      block_characters: the least size of a block, except the last.

    Returns:
      The shares of each file.
    """
    shares: dict[int, list[Share]] = {}
    block, size = 0, 0
    for file, characters in sorted(files, key=lambda item: item[0]):
        shares[file], first = [], 0
        for document, length in enumerate(characters.tolist(), start=1):
            size += length
            is_full = size >= block_characters
            if is_full or document == len(characters):
                num_characters = int(characters[first:document].sum())
                shares[file].append(Share(block, first, document, num_characters))
                first = document
            if is_full:
                block, size = block + 1, 0
    return shares


def gather(
    path: str, input_format: str, shares: Sequence[Share], counts: Counts
) -> Iterator[tuple[int, bytes]]:
    """The text of each share, with the number of its block; adds to `counts`."""
    reader = DocumentReader([path], input_format=input_format)
    documents = reader.documents()
    for share in shares:
        some = list(itertools.islice(documents, share.end_document - share.first_document))
        if sum(map(len, itertools.chain(*some))) != share.num_characters:
            raise changed_text(path, "between the passes over it")
        yield share.block, pickle.dumps(some)
    if next(documents, None) is not None:
        raise changed_text(path, "it became longer between the passes over it")
    counts.update(reader.counts)


def put_block_together(index: int, shares: Iterable[tuple[int, bytes]]) -> Block:
    """A block of text from (number of the file, share of its text)."""
    return Block(index, [d for _, share in sorted(shares) for d in pickle.loads(share)])


# ------------------------------------------------------------------------- blocks -> ids


@functools.cache
def block_worker(plan: Plan) -> BlockWorker:
    """The one worker of this process, for all steps."""
    keep_freed_memory()
    with without_notices():
        return BlockWorker(plan)


def tokenize(plan: Plan, block: Block, run_folder: str) -> tuple[int, Statistics]:
    """Text -> ids, written to the run's folder; returns how many documents they are."""
    tokenized, statistics = block_worker(plan).tokenize(block)
    buffer = io.BytesIO()
    np.savez(buffer, **vars(tokenized))
    path = f"{run_folder}/blocks/{block.index}"
    with new_file(path) as temporary, gfile().GFile(temporary, "wb") as file:
        file.write(buffer.getvalue())
    return len(tokenized.document_lengths), statistics


def read_block(run_folder: str, index: int) -> TokenizedBlock:
    """What `tokenize` wrote."""
    with gfile().GFile(f"{run_folder}/blocks/{index}", "rb") as file:
        return TokenizedBlock(**np.load(io.BytesIO(file.read())))


@contextlib.contextmanager
def new_file(path: str) -> Iterator[str]:
    """Where to write a file that appears when it is whole.

    The name is new each time: a runner may have the same work done twice at a time.
    """
    temporary = f"{path}.{uuid.uuid4().hex}.incomplete"
    gfile().makedirs(path.rpartition("/")[0])
    yield temporary
    synced(temporary)
    gfile().rename(temporary, path, overwrite=True)


# ------------------------------------------------------------------------- ids -> records


def put_corpus_together(folder: pathlib.Path, run_folder: str, num_blocks: int) -> None:
    """Makes the files of a `DiskCorpus` of all blocks, once on each machine.

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
                corpus.append(read_block(run_folder, index))
        incomplete.rename(complete)


def keyed_rows(
    plan: Plan, index: int, shards: Shards, run_folder: str, counts: Counts
) -> Iterator[np.ndarray]:
    """The rows of a block, each with its key in the order of all.

    A corpus of a single block gets the original's records in the original's order, as it does
    locally.
    """
    worker, block = block_worker(plan), read_block(run_folder, index)
    if len(shards.block_documents) == 1:
        return iter([worker.original_rows(block, counts)])
    put_corpus_together(plan.working_folder, run_folder, len(shards.block_documents))
    first_document = shards.block_documents[index].start
    return worker.keyed_rows(index, block, first_document, worker.corpus, counts)


def in_shards(parts: Iterable[np.ndarray], num_shards: int) -> Iterator[tuple[int, bytes]]:
    """Rows -> (shard, rows as bytes), some megabytes at a time."""
    for rows in sorted_runs(parts):
        places = split(rows, num_shards).tolist()
        for shard, (begin, end) in enumerate(itertools.pairwise(places)):
            if begin < end:
                yield shard, rows[begin:end].tobytes()


def write_shard(path: str, parts: Iterable[bytes], plan: Plan) -> int:
    """Writes the records of a shard in the order of their keys; returns how many there are.

    The shard's index is written beside it, under `path`.index.
    """
    worker, index = block_worker(plan), IndexBuilder()
    rows = in_order(np.frombuffer(b"".join(parts), worker.row_type))
    with new_file(path) as temporary, tf.io.TFRecordWriter(temporary) as writer:
        for record in worker.serialized(rows):
            writer.write(record)
            index.add(len(record))
    with new_file(f"{path}.index") as temporary, gfile().GFile(temporary, "w") as file:
        file.write(index.finish().to_json_string())
    return len(rows)
