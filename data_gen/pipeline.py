"""From text files to TFRecord files: the steps of the whole, in order."""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from absl import logging

from bert_tf.files import expand_patterns
from bert_tf.runtime import Progress
from bert_tf.tokenization.wordpiece import read_vocabulary
from data_gen.blocks import BUCKETS_FOLDER, CORPUS_FOLDER, BlockWorker, InstanceTask, Plan
from data_gen.checks import check_paths, check_settings, input_errors, require_text
from data_gen.corpus import CorpusWriter
from data_gen.documents import Block, Counts, DocumentReader
from data_gen.instances import NUM_SPECIAL_TOKENS, Settings
from data_gen.outputs import OutputFiles, report_path, working_folder, write_json
from data_gen.report import log_examples, log_report, make_report
from data_gen.shuffling import collect, number_of_buckets
from data_gen.workers import Workers, choose_num_workers

BLOCK_CHARACTERS = 1 << 20
# About how many sentences are looked at to estimate how many repeat another one.
SAMPLED_SENTENCES = 1 << 16
BYTES_PER_SENTENCE = 100
EXAMPLES_SHOWN = 3


@dataclasses.dataclass(frozen=True)
class Job:
    """What is to be made of what; the fields are named as the flags."""

    input_file: str
    output_file: str
    vocab_file: str
    settings: Settings
    do_lower_case: bool = True
    input_format: str = "text"
    language: str = "en"
    num_workers: int = 0
    temp_dir: str | None = None
    block_characters: int = BLOCK_CHARACTERS


def create(job: Job) -> dict[str, Any]:
    """Makes the TFRecord files and a report, which is returned too.

    Raises:
      InputError: something that was given cannot be used. No output file is touched then.
    """
    check_settings(job.settings, num_workers=job.num_workers)
    input_files, output_files = expand_patterns(job.input_file), job.output_file.split(",")
    check_paths(input_files, output_files)
    reader = DocumentReader(input_files, input_format=job.input_format)
    counts, sampled = Counts(), Counts()
    examples: list[bytes] = []
    with (
        input_errors(),
        working_folder(output_files[0], job.temp_dir) as folder,
        OutputFiles(output_files) as outputs,
    ):
        plan = make_plan(job, reader, folder)
        for record in records(job, plan, reader, counts, sampled):
            outputs.write(record)
            if len(examples) < EXAMPLES_SHOWN:
                examples.append(record)
        outputs.complete()
    report = make_report(
        counts + reader.counts, sampled=sampled, settings=job.settings, output_files=outputs.records
    )
    write_json(report_path(output_files[0]), report)
    log_examples(examples, read_vocabulary(job.vocab_file))
    log_report(report)
    logging.info("wrote %s and %s", ", ".join(output_files), report_path(output_files[0]))
    return report


def make_plan(job: Job, reader: DocumentReader, folder: pathlib.Path) -> Plan:
    """What each process needs to know."""
    sentences = reader.total_bytes // BYTES_PER_SENTENCE
    return Plan(
        settings=job.settings,
        vocab_file=job.vocab_file,
        do_lower_case=job.do_lower_case,
        input_format=job.input_format,
        language=job.language,
        working_folder=folder,
        sample_every=max(1, sentences // SAMPLED_SENTENCES),
    )


def records(
    job: Job, plan: Plan, reader: DocumentReader, counts: Counts, sampled: Counts
) -> Iterator[bytes]:
    """The records in their final order; a corpus of one block in memory, a larger one on disk."""
    # Made here in any case: what is wrong with the vocabulary is told once, and at the start.
    worker = BlockWorker(plan)
    blocks = reader.blocks(job.block_characters)
    first_two = list(itertools.islice(blocks, 2))
    if len(first_two) < 2:
        yield from records_in_memory(worker, first_two, counts, sampled)
    else:
        blocks = itertools.chain(first_two, blocks)
        yield from records_on_disk(job, plan, reader, blocks, counts, sampled)


def records_in_memory(
    worker: BlockWorker, blocks: Iterable[Block], counts: Counts, sampled: Counts
) -> list[bytes]:
    """The records of a small corpus."""
    documents = []
    for block in blocks:
        tokenized = worker.tokenize(block)
        counts.update(tokenized.counts)
        sampled.update(tokenized.sampled)
        documents += tokenized.block.documents()
    require_text(counts)
    return worker.shuffled_records(documents, counts)


def records_on_disk(
    job: Job,
    plan: Plan,
    reader: DocumentReader,
    blocks: Iterable[Block],
    counts: Counts,
    sampled: Counts,
) -> Iterator[bytes]:
    """The records of a corpus of any size."""
    num_workers = choose_num_workers(
        job.num_workers, most=1 + reader.total_bytes // job.block_characters
    )
    logging.info("%.1f MB of text, %d workers", reader.total_bytes / 1e6, num_workers)
    with Workers(num_workers, BlockWorker, plan) as workers:
        block_documents = write_corpus(workers, plan, reader, blocks, counts, sampled)
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
    counts: Counts,
    sampled: Counts,
) -> list[range]:
    """Tokenizes all text; returns which documents of the corpus each block has."""
    progress = Progress("tokenize", reader.total_bytes / 1e6, "MB")
    block_documents = []
    with CorpusWriter(plan.working_folder / CORPUS_FOLDER) as corpus:
        for tokenized in workers.map(BlockWorker.tokenize, blocks):
            counts.update(tokenized.counts)
            sampled.update(tokenized.sampled)
            block_documents.append(corpus.append(tokenized.block))
            progress.update(tokenized.bytes_read / 1e6)
    progress.finish(reader.total_bytes / 1e6)
    return block_documents


def write_instances(
    workers: Workers, block_documents: list[range], num_buckets: int, counts: Counts
) -> None:
    """Makes the instances of all blocks and spreads them over the buckets of the shuffle."""
    progress = Progress("make instances", len(block_documents), "blocks")
    tasks = (
        InstanceTask(index, documents, num_buckets)
        for index, documents in enumerate(block_documents)
    )
    for done, block_counts in enumerate(workers.map(BlockWorker.write_instances, tasks), start=1):
        counts.update(block_counts)
        progress.update(done, note=f"; {counts['instances']} instances")
    progress.finish(len(block_documents))


def expected_bytes(num_tokens: int, settings: Settings) -> int:
    """Of all records, about: three features of S varints, of which the ids take two bytes each."""
    tokens_per_instance = settings.max_seq_length - NUM_SPECIAL_TOKENS
    # Half of the pairs leave a part of their chunk for the next one.
    num_instances = 1.5 * settings.dupe_factor * num_tokens / tokens_per_instance
    return int(num_instances * (5 * settings.max_seq_length + 200))
