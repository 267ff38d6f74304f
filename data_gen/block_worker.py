"""What a process does with a block of text, and with a part of all rows. Any does the same."""

import dataclasses
import functools
import json
import os
import pathlib
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_tf.data.records import DataDescription
from bert_tf.files import write_text
from bert_tf.locks import synced
from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen.corpus import Corpus, DiskCorpus, MemoryCorpus, TokenizedBlock, tokenize_block
from data_gen.documents import BLOCK_CHARACTERS, Block, Counts, sentence_splitter
from data_gen.instances import InstanceMaker
from data_gen.outputs import RecordFile
from data_gen.report import Statistics, read_unchanged_vocabulary
from data_gen.settings import Settings
from data_gen.shuffling import KEY_BITS, find_runs, read_bucket, write_runs

# In the working folder: the tokenized text, what is known of it once it is complete, and all rows.
CORPUS_FOLDER, CORPUS_FILE, ROWS_FOLDER = "corpus", "corpus.json", "rows"


@dataclasses.dataclass(frozen=True)
class Job:
    """What to make of which files; the fields are named as the flags."""

    input_file: str
    output_file: str
    vocab_file: str
    settings: Settings
    do_lower_case: bool | None = None  # None: as the vocabulary shows
    never_split: tuple[str, ...] = ()  # pieces that are kept whole
    input_format: str = "text"  # a key of documents.INPUT_FORMATS
    language: str = "en"
    num_shards: int = 0  # 0: the files that output_file names
    num_workers: int = 0
    temp_dir: str | None = None
    block_characters: int = BLOCK_CHARACTERS


class Plan(NamedTuple):
    """What every process needs to know."""

    job: Job  # with the case that `check_vocabulary` has found
    working_folder: pathlib.Path
    sample_every: int  # see corpus.sample_sentences


def describe(made_with: Mapping[str, Any]) -> functools.partial:
    """Makes the description of a file of its number and size."""
    kept = tuple(made_with.get("never_split", ()))
    return functools.partial(DataDescription, **{**made_with, "never_split": kept})


def checked(records: Iterable[bytes], job: Job, made_with: Mapping[str, Any]) -> Iterator[bytes]:
    """The records; `InputError` after the last one if the vocabulary has changed meanwhile."""
    yield from records
    read_unchanged_vocabulary(job.vocab_file, made_with["vocab_sha256"])


class BlockWorker:
    """What a process works with. Any process makes the same of a block.

    The random numbers of a block come from the seed and the block's number, so the result depends
    neither on the number of processes nor on their speed.
    """

    def __init__(self, plan: Plan):
        job = plan.job
        self._plan, self._seed = plan, job.settings.random_seed
        kept = job.never_split
        self._tokenizer = FullTokenizer(job.vocab_file, job.do_lower_case, never_split=kept)
        self._tokenizer.require_special_tokens("[CLS]", "[SEP]", "[MASK]", "[UNK]")
        self._split_sentences = sentence_splitter(job.input_format, job.language)
        self._maker = InstanceMaker(job.settings, self._tokenizer.vocab)

    @property
    def row_type(self) -> np.dtype:
        """The type of rows."""
        return self._maker.row_type

    @functools.cached_property
    def corpus(self) -> DiskCorpus:
        """The tokenized text, once it is complete."""
        return DiskCorpus(self._plan.working_folder / CORPUS_FOLDER)

    @functools.cached_property
    def _runs(self) -> list[pathlib.Path]:
        """The files of all rows, once they are complete."""
        return find_runs(self._plan.working_folder / ROWS_FOLDER)

    def tokenize(self, block: Block) -> tuple[TokenizedBlock, Statistics]:
        """Text -> ids; see `tokenize_block`."""
        return tokenize_block(
            block,
            self._tokenizer,
            self._split_sentences,
            sample_every=self._plan.sample_every,
            words_from_spaces=self._plan.job.settings.words_from_spaces,
        )

    def write_rows(self, task: tuple[int, range, int, int, str]) -> Counts:
        """Writes the rows of a block to runs.

        Args:
          task: the number of the block, its documents in the corpus, the number of blocks, that of
            buckets, and what the names of the runs begin with.
        """
        index, documents, num_blocks, num_buckets, path = task
        counts, block = Counts(), self.corpus.read_block(documents)
        if num_blocks == 1:
            rows = iter([self.original_rows(block, counts)])
        else:
            rows = self.keyed_rows(index, block, documents.start, self.corpus, counts)
        runs = write_runs(rows, path, num_buckets)
        counts["bytes_of_rows"] = sum(map(os.path.getsize, runs))
        if self._plan.job.num_shards:
            for run in runs:
                synced(run)
            write_text(f"{path}.json", json.dumps(counts))
        return counts

    def keyed_rows(
        self, index: int, block: TokenizedBlock, first_document: int, corpus: Corpus, counts: Counts
    ) -> Iterator[np.ndarray]:
        """The rows of block `index` of a corpus, each with its key in the shuffle."""
        key_rng = random.Random(f"{self._seed}/{index}/order")
        for rows in self._maker.rows(
            MemoryCorpus(block),
            first_document=first_document,
            corpus=corpus,
            rng=random.Random(f"{self._seed}/{index}/instances"),
            counts=counts,
        ):
            rows["key"] = np.frombuffer(key_rng.randbytes(KEY_BITS // 8 * len(rows)), "<u8")
            yield rows

    def original_rows(self, block: TokenizedBlock, counts: Counts) -> np.ndarray:
        """All rows of a corpus of one block, with keys that give the original's order.

        Every random number is drawn when the original draws it: same corpus, same seed, same
        records.
        """
        rng = random.Random(self._seed)
        documents = list(range(len(block.document_lengths)))
        rng.shuffle(documents)
        corpus = MemoryCorpus(block.reordered(documents))
        parts = self._maker.rows(corpus, first_document=0, corpus=corpus, rng=rng, counts=counts)
        rows = np.concatenate([*parts])
        order = list(range(len(rows)))
        rng.shuffle(order)
        rows = rows[order]
        rows["key"] = [(number << KEY_BITS) // len(rows) for number in range(len(rows))]
        return rows

    def records(self, task: tuple[int, int]) -> list[bytes]:
        """The records of a bucket in their order; `task` is its number, and that of all buckets."""
        return [*self.bucket(*task)]

    def bucket(self, number: int, num_buckets: int) -> Iterator[bytes]:
        """The records of a bucket in their order, some at a time."""
        yield from self.serialized(read_bucket(self._runs, number, num_buckets, self.row_type))

    def serialized(self, rows: np.ndarray) -> Iterator[bytes]:
        """The records of rows."""
        return self._maker.records(rows)

    def write_shard(self, task: tuple[int, str, int, Mapping[str, Any]]) -> tuple[str, int]:
        """Writes a shard; returns its path and the number of its records.

        Args:
          task: the number of the shard, its path, the number of buckets, and what the descriptions
            of all shards have in common.
        """
        shard, path, num_buckets, made_with = task
        num_shards = self._plan.job.num_shards
        per_shard = num_buckets // num_shards
        buckets = range(shard * per_shard, (shard + 1) * per_shard)
        records = (record for bucket in buckets for record in self.bucket(bucket, num_buckets))
        description = functools.partial(describe(made_with), shard=shard + 1, num_shards=num_shards)
        with RecordFile(path) as file:
            for record in checked(records, self._plan.job, made_with):
                file.write(record)
            file.finish(description)
        return path, file.num_records
