"""From text files to TFRecord files: the steps in order.

    documents    text files -> documents of lines, in blocks of about a megabyte
    corpus       the text of a block -> ids, kept in memory or on disk
    spaced_words which ids continue a word, where spaces say so
    pairs        document -> pairs of segments, next or random
    masking      pair -> masked positions, and what stands there instead
    instances    pairs + masks -> rows, and rows -> records
    shuffling    all rows -> one random order
    outputs      records -> files that appear when they are complete
    report       counts, shares, warnings

    settings     what decides on the instances besides text and vocabulary
    draws        all that is random, as Python's generator draws it
    block_worker what one process does
    workers      processes

Memory does not grow with the corpus. The files depend on text, settings and seed alone; a corpus of
a single block gets exactly the original's records.

With --num_shards a run that was killed goes on where it was: the tokenized corpus, the rows of each
block and the shards are kept in files that are complete or not there.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf import __version__
from bert_tf.data.patterns import expand_patterns
from bert_tf.errors import InputError
from bert_tf.files import (
    digest_of,
    is_file,
    path_errors,
    read_json,
    write_text,
)
from bert_tf.locks import synced
from bert_tf.terminal.messages import number_of
from bert_tf.terminal.progress import Progress
from bert_tf.tokenization.case import choose_case
from bert_tf.tokenization.wordpiece import read_vocabulary, vocabulary_sha256
from data_gen.block_worker import (
    CORPUS_FILE,
    CORPUS_FOLDER,
    ROWS_FOLDER,
    BlockWorker,
    Job,
    Plan,
    checked,
    describe,
)
from data_gen.corpus import (
    CorpusWriter,
    DiskCorpus,
)
from data_gen.documents import Counts, DocumentReader, splitter_version
from data_gen.outputs import (
    check_paths,
    clear,
    finished_shards,
    output_paths,
    record_files,
    working_folder,
    write_in_turn,
)
from data_gen.report import (
    Statistics,
    read_report,
    report_path,
    write_report,
)
from data_gen.settings import NUM_SPECIAL_TOKENS, Settings
from data_gen.shuffling import find_runs, number_of_buckets
from data_gen.workers import Workers, choose_num_workers

# About how many sentences are sampled to estimate how many repeat another one.
SAMPLED_SENTENCES = 1 << 16
BYTES_PER_SENTENCE = 100


class Text(NamedTuple):
    """What is known of all text once it is tokenized."""

    statistics: Statistics
    block_documents: list[range]  # the numbers of each block's documents in the corpus


def create(job: Job) -> dict[str, Any]:
    """Makes the TFRecord files and a report, which is also returned.

    Raises:
      InputError: the input cannot be used, or the output not be written. Then no file is replaced.
    """
    job, made_with = check_vocabulary(job)
    input_files = expand_patterns(job.input_file)
    output_files = output_paths(job.output_file, job.num_shards)
    check_paths(input_files, output_files)
    reader = DocumentReader(input_files, input_format=job.input_format)
    first = job.output_file.split(",")[0]
    path, finished = report_path(first), {}
    with (
        path_errors(job.output_file, "made"),
        working_folder(
            first, job.temp_dir, kept_with=CORPUS_FILE if job.num_shards else ""
        ) as folder,
    ):
        if job.num_shards:
            made_with["text_digest"] = text_digest(job, input_files)
            finished = finished_shards(job.output_file, job.num_shards, describe(made_with))
            numbers = [finished.get(path) for path in output_files]
            if report := read_report(path, made_with, numbers):
                logging.info("all %d files are there already", job.num_shards)
                return report
        statistics, written = make_files(
            make_plan(job, reader, folder), reader, made_with, finished
        )
        written = {path: written[path] for path in output_files}
        return write_report(path, statistics, made_with, written, job.vocab_file)


def text_digest(job: Job, input_files: Sequence[str]) -> str:
    """A hash of the text and of how it is read: of what the tokenized corpus depends on."""
    version = splitter_version(job.input_format)
    read_as = [job.input_format, job.language, version, str(job.block_characters)]
    parts = [*read_as, *map(digest_of, input_files)]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def make_files(
    plan: Plan, reader: DocumentReader, made_with: Mapping[str, Any], finished: Mapping[str, int]
) -> tuple[Statistics, dict[str, int]]:
    """Text -> files: all of them, or the shards that are not finished.

    Returns:
      What is counted, and the number of records of each file.
    """
    job = plan.job
    most = 1 + reader.total_bytes // job.block_characters
    num_workers = choose_num_workers(job.num_workers, most=most)
    size = reader.total_bytes / 1e6
    logging.info("%.1f MB of text, %s", size, number_of(num_workers, "workers"))
    in_turn = [] if job.num_shards else output_paths(job.output_file, 0)
    with record_files(in_turn) as files, Workers(num_workers, BlockWorker, plan) as workers:
        text = read_text(plan, made_with) or write_corpus(workers, plan, reader, made_with)
        counts = text.statistics.counts
        size = expected_bytes(counts["tokens"], job.settings)
        num_buckets = number_of_buckets(size, num_parts=max(1, job.num_shards))
        write_rows(workers, plan, text.block_documents, num_buckets, counts)
        if job.num_shards:
            written = write_shards(workers, plan, num_buckets, made_with, finished)
        else:
            records = all_records(workers, num_buckets, counts["instances"])
            written = write_in_turn(files, checked(records, job, made_with), describe(made_with))
    return text.statistics, written


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
        **({"never_split": list(job.never_split)} if job.never_split else {}),
        "vocab_file": os.path.basename(job.vocab_file),
        "vocab_sha256": vocabulary_sha256(pieces),
        "vocab_size": len(pieces),
        **dataclasses.asdict(job.settings),
    }


def make_plan(job: Job, reader: DocumentReader, folder: pathlib.Path) -> Plan:
    """The plan for a corpus of the reader's size."""
    sample_every = reader.total_bytes // BYTES_PER_SENTENCE // SAMPLED_SENTENCES
    return Plan(job, folder, max(1, sample_every))


def text_settings(plan: Plan, made_with: Mapping[str, Any]) -> dict[str, Any]:
    """What the files in the working folder depend on."""
    return {**made_with, "num_shards": plan.job.num_shards}


def read_text(plan: Plan, made_with: Mapping[str, Any]) -> Text | None:
    """The text that an earlier run has tokenized; None, and an empty folder, if there is none."""
    folder, path = plan.working_folder, str(plan.working_folder / CORPUS_FILE)
    kept = read_json(path) if is_file(path) else {}
    if kept.get("made_with") != text_settings(plan, made_with):
        clear(folder)
        return None
    logging.info("going on with the work of an earlier run in %s", folder)
    statistics = Statistics(Counts(kept["counts"]), Counts(kept["sampled"]))
    return Text(statistics, [range(*documents) for documents in kept["block_documents"]])


def write_corpus(
    workers: Workers, plan: Plan, reader: DocumentReader, made_with: Mapping[str, Any]
) -> Text:
    """Tokenizes all text."""
    text, folder = Text(Statistics(), []), plan.working_folder
    blocks = reader.blocks(plan.job.block_characters)
    with (
        CorpusWriter(folder / CORPUS_FOLDER) as corpus,
        Progress("tokenize", reader.total_bytes / 1e6, "MB") as progress,
    ):
        for tokenized, block_statistics in workers.map(BlockWorker.tokenize, blocks):
            text.statistics.update(block_statistics)
            text.block_documents.append(corpus.append(tokenized))
            progress.update(reader.bytes_read / 1e6)
    text.statistics.counts.update(reader.counts)
    require_text(text.statistics.counts)
    if plan.job.num_shards:
        for name in (*DiskCorpus.FILES, ""):  # the folder itself is last
            synced(str(folder / CORPUS_FOLDER / name))
        documents = [(numbers.start, numbers.stop) for numbers in text.block_documents]
        kept = {"made_with": text_settings(plan, made_with), "block_documents": documents}
        write_text(str(folder / CORPUS_FILE), json.dumps(kept | vars(text.statistics)))
    return text


def write_rows(
    workers: Workers, plan: Plan, block_documents: list[range], num_buckets: int, counts: Counts
) -> None:
    """Makes the rows of all blocks, but for those that an earlier run has made.

    Raises:
      InputError: the files of rows are not as they were written.
    """
    folder = plan.working_folder / ROWS_FOLDER
    folder.mkdir(exist_ok=True)
    tasks = []
    for index, documents in enumerate(block_documents):
        path = str(folder / f"{index:06d}")
        if is_file(f"{path}.json"):
            counts.update(read_json(f"{path}.json"))
        else:
            tasks.append((index, documents, len(block_documents), num_buckets, path))
    done = len(block_documents) - len(tasks)
    with Progress("make instances", len(block_documents), "blocks", done=done) as progress:
        for block_counts in workers.map(BlockWorker.write_rows, tasks):
            done += 1
            counts.update(block_counts)
            progress.update(done, note=f"; {counts['instances']} instances")
    if sum(path.stat().st_size for path in find_runs(folder)) != counts["bytes_of_rows"]:
        raise InputError(
            f"{folder}, in which files are missing or have changed",
            "temporary files that only this command writes and removes",
            f"remove {plan.working_folder}, then give the same command again",
        )


def all_records(workers: Workers, num_buckets: int, num_records: int) -> Iterator[bytes]:
    """All records in their final order."""
    tasks = ((bucket, num_buckets) for bucket in range(num_buckets))
    done = 0
    with Progress("write the files", num_records, "instances") as progress:
        for records in workers.map(BlockWorker.records, tasks):
            yield from records
            done += len(records)
            progress.update(done)


def write_shards(
    workers: Workers,
    plan: Plan,
    num_buckets: int,
    made_with: Mapping[str, Any],
    finished: Mapping[str, int],
) -> dict[str, int]:
    """Writes the shards that are missing; returns the number of records of each shard."""
    paths = output_paths(plan.job.output_file, plan.job.num_shards)
    written = dict(finished)
    missing = [(shard, path) for shard, path in enumerate(paths) if path not in finished]
    tasks = ((shard, path, num_buckets, made_with) for shard, path in missing)
    with Progress("write the files", len(paths), "files", done=len(written)) as progress:
        for path, num_records in workers.map(BlockWorker.write_shard, tasks):
            written[path] = num_records
            progress.update(len(written))
    return written


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
