"""From text files to TFRecord files: the steps in order.

    documents    text files -> documents of lines, in blocks of about a megabyte
    corpus       the text of a block -> ids, kept in memory or on disk
    pairs        document -> pairs of segments, next or random
    masking      ids -> masked ids, positions, labels
    instances    pair + masks -> a record
    shuffling    all records -> one random order
    report       counts, shares, warnings

    workers      processes; files that appear when they are complete

Memory does not grow with the corpus. The files depend on text, settings and seed alone; a corpus of
a single block gets exactly the original's records.
"""

import dataclasses
import functools
import itertools
import os
import pathlib
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from absl import logging

from bert_tf import __version__
from bert_tf.data.records import DataDescription
from bert_tf.errors import InputError
from bert_tf.files import expand_patterns, path_errors
from bert_tf.runtime import Progress
from bert_tf.tokenization.wordpiece import (
    FullTokenizer,
    choose_case,
    read_vocabulary,
    vocabulary_sha256,
)
from data_gen.corpus import CorpusWriter, DiskCorpus, MemoryCorpus, TokenizedBlock, tokenize_block
from data_gen.documents import Block, Counts, DocumentReader, sentence_splitter
from data_gen.instances import NUM_SPECIAL_TOKENS, InstanceMaker, Settings
from data_gen.pairs import Sentence
from data_gen.report import (
    Statistics,
    read_unchanged_vocabulary,
    report_path,
    write_report,
)
from data_gen.shuffling import KEY_BITS, collect, number_of_buckets, spread
from data_gen.workers import Workers, check_paths, choose_num_workers, working_folder, write_in_turn

BLOCK_CHARACTERS = 1 << 20
# About how many sentences are sampled to estimate how many repeat another one.
SAMPLED_SENTENCES = 1 << 16
BYTES_PER_SENTENCE = 100
CORPUS_FOLDER, BUCKETS_FOLDER = "corpus", "buckets"


@dataclasses.dataclass(frozen=True)
class Job:
    """What to make of which files; the fields are named as the flags."""

    input_file: str
    output_file: str
    vocab_file: str
    settings: Settings
    do_lower_case: bool | None = None  # None: as the vocabulary shows
    input_format: str = "text"  # a key of documents.INPUT_FORMATS
    language: str = "en"
    num_workers: int = 0
    temp_dir: str | None = None
    block_characters: int = BLOCK_CHARACTERS


class Plan(NamedTuple):
    """What every process needs to know."""

    job: Job  # with the case that `check_vocabulary` has found
    working_folder: pathlib.Path
    sample_every: int  # see corpus.sample_sentences


def create(job: Job) -> dict[str, Any]:
    """Makes the TFRecord files and a report, which is also returned.

    Raises:
      InputError: the input cannot be used, or the output not be written. Then no file is replaced.
    """
    job, made_with = check_vocabulary(job)
    input_files, output_files = expand_patterns(job.input_file), job.output_file.split(",")
    check_paths(input_files, output_files)
    reader, statistics = DocumentReader(input_files, input_format=job.input_format), Statistics()
    with (
        path_errors(job.output_file, "made"),
        working_folder(output_files[0], job.temp_dir) as folder,
    ):
        records = make_records(make_plan(job, reader, folder), reader, statistics)
        describe = functools.partial(DataDescription, **made_with)
        written = write_in_turn(output_files, checked(records, job, made_with), describe)
    statistics.counts.update(reader.counts)
    path = report_path(output_files[0])
    return write_report(path, statistics, made_with, written, job.vocab_file)


def checked(records: Iterable[bytes], job: Job, made_with: Mapping[str, Any]) -> Iterator[bytes]:
    """The records; `InputError` after the last one if the vocabulary has changed meanwhile."""
    yield from records
    read_unchanged_vocabulary(job.vocab_file, made_with["vocab_sha256"])


def check_vocabulary(job: Job) -> tuple[Job, dict[str, Any]]:
    """The job with its case, and what the descriptions of all its files have in common.

    Raises:
      InputError: the vocabulary cannot be read, or it and the case do not fit each other.
    """
    pieces = read_vocabulary(job.vocab_file)
    lower = choose_case(job.vocab_file, pieces, job.do_lower_case)
    return dataclasses.replace(job, do_lower_case=lower), {
        "bert_tf_version": __version__,
        "do_lower_case": lower,
        "vocab_file": os.path.basename(job.vocab_file),
        "vocab_sha256": vocabulary_sha256(pieces),
        "vocab_size": len(pieces),
        **dataclasses.asdict(job.settings),
    }


def make_plan(job: Job, reader: DocumentReader, folder: pathlib.Path) -> Plan:
    """The plan for a corpus of the reader's size."""
    sample_every = reader.total_bytes // BYTES_PER_SENTENCE // SAMPLED_SENTENCES
    return Plan(job, folder, max(1, sample_every))


def make_records(plan: Plan, reader: DocumentReader, statistics: Statistics) -> Iterator[bytes]:
    """The records in their final order: in memory for a single block of text, else on disk."""
    worker = BlockWorker(plan)  # in any case: it checks the vocabulary before the work begins
    blocks = reader.blocks(plan.job.block_characters)
    first_two = list(itertools.islice(blocks, 2))
    if len(first_two) == 2:
        yield from records_on_disk(plan, reader, itertools.chain(first_two, blocks), statistics)
        return
    documents = []
    for block in first_two:
        tokenized, block_statistics = worker.tokenize(block)
        statistics.update(block_statistics)
        documents += tokenized.documents()
    require_text(statistics.counts)
    yield from worker.shuffled_records(documents, statistics.counts)


def records_on_disk(
    plan: Plan, reader: DocumentReader, blocks: Iterable[Block], statistics: Statistics
) -> Iterator[bytes]:
    """The records of a corpus of any size."""
    counts, job = statistics.counts, plan.job
    most = 1 + reader.total_bytes // job.block_characters
    num_workers = choose_num_workers(job.num_workers, most=most)
    logging.info("%.1f MB of text, %d workers", reader.total_bytes / 1e6, num_workers)
    with Workers(num_workers, BlockWorker, plan) as workers:
        block_documents = write_corpus(workers, plan, reader, blocks, statistics)
        require_text(counts)
        num_buckets = number_of_buckets(expected_bytes(counts["tokens"], job.settings))
        write_instances(workers, block_documents, num_buckets, counts)
    progress = Progress("write the files", counts["instances"], "instances")
    collected = collect(plan.working_folder / BUCKETS_FOLDER, num_buckets=num_buckets)
    for number, record in enumerate(collected):
        progress.update(number)
        yield record
    progress.finish(counts["instances"])


def write_corpus(
    workers: Workers,
    plan: Plan,
    reader: DocumentReader,
    blocks: Iterable[Block],
    statistics: Statistics,
) -> list[range]:
    """Tokenizes all text; returns which documents of the corpus each block has."""
    progress = Progress("tokenize", reader.total_bytes / 1e6, "MB")
    block_documents = []
    with CorpusWriter(plan.working_folder / CORPUS_FOLDER) as corpus:
        for tokenized, block_statistics in workers.map(BlockWorker.tokenize, blocks):
            statistics.update(block_statistics)
            block_documents.append(corpus.append(tokenized))
            progress.update(reader.bytes_read / 1e6)
    progress.finish(reader.total_bytes / 1e6)
    return block_documents


def write_instances(
    workers: Workers, block_documents: list[range], num_buckets: int, counts: Counts
) -> None:
    """Makes the instances of all blocks and spreads them over the buckets of the shuffle."""
    progress = Progress("make instances", len(block_documents), "blocks")
    tasks = ((index, documents, num_buckets) for index, documents in enumerate(block_documents))
    for done, block_counts in enumerate(workers.map(BlockWorker.write_instances, tasks), start=1):
        counts.update(block_counts)
        progress.update(done, note=f"; {counts['instances']} instances")
    progress.finish(len(block_documents))


def expected_bytes(num_tokens: int, settings: Settings) -> int:
    """About the size of all records: three features of S varints; those of ids take two bytes."""
    tokens_per_instance = settings.max_seq_length - NUM_SPECIAL_TOKENS
    # Half of the pairs leave a part of their chunk for the next one.
    num_instances = 1.5 * settings.dupe_factor * num_tokens / tokens_per_instance
    return int(num_instances * (5 * settings.max_seq_length + 200))


def require_text(counts: Counts) -> None:
    """Raises `InputError` if there is nothing to make instances of."""
    if not counts["documents"]:
        raise InputError(
            "--input_file: files without a sentence that has a token",
            "text: a sentence a line, a blank line between documents",
            "check the files and --input_format",
        )


class BlockWorker:
    """What a process works with. Any process makes the same of a block.

    The random numbers of a block come from the seed and the block's number, so the result depends
    neither on the number of processes nor on their speed.
    """

    def __init__(self, plan: Plan):
        job = plan.job
        self._plan, self._seed = plan, job.settings.random_seed
        self._tokenizer = FullTokenizer(job.vocab_file, job.do_lower_case)
        self._tokenizer.require_special_tokens("[CLS]", "[SEP]", "[MASK]", "[UNK]")
        self._split_sentences = sentence_splitter(job.input_format, job.language)
        self._maker = InstanceMaker(job.settings, self._tokenizer.vocab)

    @functools.cached_property
    def _corpus(self) -> DiskCorpus:
        return DiskCorpus(self._plan.working_folder / CORPUS_FOLDER)

    def tokenize(self, block: Block) -> tuple[TokenizedBlock, Statistics]:
        """Text -> ids; see `tokenize_block`."""
        return tokenize_block(
            block, self._tokenizer, self._split_sentences, sample_every=self._plan.sample_every
        )

    def write_instances(self, task: tuple[int, range, int]) -> Counts:
        """Makes the records of a block and spreads them over the buckets of the shuffle.

        Args:
          task: the number of the block, its documents in the corpus, the number of buckets.
        """
        index, documents, num_buckets = task
        counts = Counts()
        folder = self._plan.working_folder / BUCKETS_FOLDER
        spread(self.keyed_records(index, documents, counts), folder, num_buckets=num_buckets)
        return counts

    def keyed_records(
        self, index: int, documents: range, counts: Counts
    ) -> Iterator[tuple[int, bytes]]:
        """The records of block `index` of the corpus on disk, each with its key in the shuffle."""
        rng = random.Random(f"{self._seed}/{index}/instances")
        key_rng = random.Random(f"{self._seed}/{index}/order")
        for record in self._maker.records(
            self._corpus.read_documents(documents),
            first_document=documents.start,
            corpus=self._corpus,
            rng=rng,
            counts=counts,
        ):
            yield key_rng.getrandbits(KEY_BITS), record

    def shuffled_records(self, documents: list[list[Sentence]], counts: Counts) -> list[bytes]:
        """All records of a corpus in memory, in their final order.

        Every random number is drawn when the original draws it: same corpus, same seed, same
        records.
        """
        rng = random.Random(self._seed)
        rng.shuffle(documents)
        corpus = MemoryCorpus(documents)
        made = self._maker.records(
            documents, first_document=0, corpus=corpus, rng=rng, counts=counts
        )
        records = list(made)
        rng.shuffle(records)
        return records
