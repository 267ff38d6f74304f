"""From text files to TFRecord files: the steps in order.

    documents    text files -> documents of lines, in blocks of about a megabyte
    corpus       the text of a block -> ids, kept in memory or on disk
    pairs        document -> pairs of segments, next or random
    masking      pair -> masked positions, and their replacements
    instances    pairs + masks -> rows, and rows -> records
    shuffling    all rows -> one random order
    outputs      records -> files that appear when they are complete
    report       counts, shares, warnings

    settings     what to make
    workers      processes

Memory does not grow with the corpus. The files depend on text, settings and seed alone; a corpus of
a single block gets exactly the original's records.

With --num_shards a run that was killed continues: the tokenized corpus, the rows of each block and
the shards are kept in files that are complete or not there.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf import __version__
from bert_tf.data.sidecars import expand_patterns
from bert_tf.errors import InputError
from bert_tf.files import digest_of, is_file, path_errors, read_json, write_text
from bert_tf.locks import synced
from bert_tf.terminal.messages import number_of
from bert_tf.terminal.progress import Progress
from bert_tf.tokenization.case import choose_case
from bert_tf.tokenization.wordpiece import FullTokenizer, read_vocabulary, vocabulary_sha256
from data_gen import outputs, shuffling
from data_gen.corpus import Corpus, CorpusWriter, changed_files, tokenize_block
from data_gen.documents import Block, Counts, DocumentReader, Splitter, Statistics
from data_gen.instances import InstanceMaker
from data_gen.report import read_report, report_path, write_report
from data_gen.settings import NUM_SPECIAL_TOKENS, Job, Settings
from data_gen.workers import Workers, choose_num_workers

# In the working folder: the tokenized text, what is known of it once it is complete, and all rows.
CORPUS_FOLDER, CORPUS_FILE, ROWS_FOLDER = "corpus", "corpus.json", "rows"
# About how many sentences are sampled to estimate how many repeat another one.
SAMPLED_SENTENCES = 1 << 16
BYTES_PER_SENTENCE = 100


@dataclasses.dataclass(frozen=True)
class Plan:
    """What every process needs to know; plans with the same folder are the same."""

    job: Job
    pieces: Sequence[str] = dataclasses.field(compare=False)  # the vocabulary, read once
    # What the descriptions of all files have in common.
    made_with: Mapping[str, Any] = dataclasses.field(compare=False)
    sample_every: int  # see corpus.sample_sentences
    working_folder: pathlib.Path = pathlib.Path()


def create(job: Job) -> dict[str, Any]:
    """Makes the TFRecord files and a report, which is also returned.

    Raises:
      InputError: the input cannot be used, or the output not be written. Then no file is replaced.
    """
    plan, reader = prepare(job)
    output_files = outputs.output_paths(job.output_file, job.num_shards)
    outputs.check_paths(reader.paths, output_files)
    first = job.output_file.split(",")[0]
    kept_with = CORPUS_FILE if job.num_shards else ""
    with (
        path_errors(job.output_file, "made"),
        outputs.working_folder(first, job.temp_dir, kept_with=kept_with) as folder,
    ):
        plan, finished = dataclasses.replace(plan, working_folder=folder), {}
        if job.num_shards:
            plan.made_with["text_digest"] = text_digest(job, reader.paths)
            finished = outputs.finished_shards(job.output_file, job.num_shards, plan.made_with)
            numbers = [finished.get(path) for path in output_files]
            if report := read_report(report_path(first), plan.made_with, numbers):
                logging.info("all %d files are there already", job.num_shards)
                return report
        statistics, written = make_files(plan, reader, finished)
        written = {path: written[path] for path in output_files}
        return write_report(report_path(first), statistics, plan.made_with, written, plan.pieces)


def prepare(job: Job) -> tuple[Plan, DocumentReader]:
    """Reads the vocabulary and finds the texts; gives a plan without its folder, and the reader.

    Raises:
      InputError: the vocabulary cannot be read, or it and the case do not fit each other; or a
        text is not there.
    """
    pieces = read_vocabulary(job.vocab_file)
    lower = choose_case(job.vocab_file, pieces, job.do_lower_case)
    made_with = {
        "bert_tf_version": __version__,
        "do_lower_case": lower,
        **({"never_split": list(job.never_split)} if job.never_split else {}),
        "vocab_file": os.path.basename(job.vocab_file),
        "vocab_sha256": vocabulary_sha256(pieces),
        "vocab_size": len(pieces),
        **dataclasses.asdict(job.settings),
    }
    reader = DocumentReader(expand_patterns(job.input_file), input_format=job.input_format)
    sample_every = max(1, reader.total_bytes // BYTES_PER_SENTENCE // SAMPLED_SENTENCES)
    job = dataclasses.replace(job, do_lower_case=lower)
    return Plan(job, pieces, made_with, sample_every), reader


def text_digest(job: Job, input_files: Sequence[str]) -> str:
    """A hash of the text and of how it is read: of what the tokenized corpus depends on."""
    version = Splitter(job.input_format, job.language).version
    read_as = [job.input_format, job.language, version, str(job.block_characters)]
    parts = [*read_as, *map(digest_of, input_files)]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def make_files(
    plan: Plan, reader: DocumentReader, finished: Mapping[str, int]
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
    in_turn = [] if job.num_shards else outputs.output_paths(job.output_file, 0)
    with contextlib.ExitStack() as stack:  # files get their names when all are finished, or none
        files = [stack.enter_context(outputs.RecordFile(path)) for path in in_turn]
        workers = stack.enter_context(Workers(num_workers, BlockWorker, plan))
        statistics, block_documents = read_text(plan) or write_corpus(workers, plan, reader)
        counts = statistics.counts
        size = expected_bytes(counts["tokens"], job.settings)
        num_buckets = shuffling.number_of_buckets(size, num_parts=max(1, job.num_shards))
        write_rows(workers, plan, block_documents, num_buckets, counts)
        if job.num_shards:
            written = write_shards(workers, plan, num_buckets, finished)
        else:
            records = all_records(workers, num_buckets, counts["instances"])
            written = outputs.write_in_turn(files, records, plan.made_with)
    return statistics, written


def text_settings(plan: Plan) -> dict[str, Any]:
    """What the files in the working folder depend on."""
    return {**plan.made_with, "num_shards": plan.job.num_shards}


def read_text(plan: Plan) -> tuple[Statistics, list[range]] | None:
    """The text that an earlier run has tokenized: its statistics, and the documents of each block.

    None, and an empty folder, if there is none.
    """
    path = str(plan.working_folder / CORPUS_FILE)
    kept = read_json(path) if is_file(path) else {}
    if kept.get("made_with") != text_settings(plan):
        outputs.clear(plan.working_folder)
        return None
    logging.info("continuing an earlier run in %s", plan.working_folder)
    statistics = Statistics(Counts(kept["counts"]), Counts(kept["sampled"]))
    return statistics, [range(*documents) for documents in kept["block_documents"]]


def write_corpus(
    workers: Workers, plan: Plan, reader: DocumentReader
) -> tuple[Statistics, list[range]]:
    """Tokenizes all text; returns what `read_text` does."""
    statistics, block_documents, folder = Statistics(), [], plan.working_folder
    blocks = reader.blocks(plan.job.block_characters)
    with (
        CorpusWriter(folder / CORPUS_FOLDER) as corpus,
        Progress("tokenize", reader.total_bytes / 1e6, "MB") as progress,
    ):
        for tokenized, block_statistics in workers.map(BlockWorker.tokenize, blocks):
            statistics.update(block_statistics)
            block_documents.append(corpus.append(tokenized))
            progress.update(reader.bytes_read / 1e6)
    statistics.counts.update(reader.counts)
    require_text(statistics.counts)
    if plan.job.num_shards:
        for name in (*Corpus.FILES, ""):  # the folder itself is last
            synced(str(folder / CORPUS_FOLDER / name))
        documents = [(numbers.start, numbers.stop) for numbers in block_documents]
        kept = {"made_with": text_settings(plan), "block_documents": documents}
        write_text(str(folder / CORPUS_FILE), json.dumps(kept | vars(statistics)))
    return statistics, block_documents


def write_rows(
    workers: Workers, plan: Plan, block_documents: list[range], num_buckets: int, counts: Counts
) -> None:
    """Makes the rows of all blocks, except those that an earlier run has made.

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
    if sum(path.stat().st_size for path in shuffling.find_runs(folder)) != counts["bytes_of_rows"]:
        raise changed_files(folder)


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
    workers: Workers, plan: Plan, num_buckets: int, finished: Mapping[str, int]
) -> dict[str, int]:
    """Writes the shards that are missing; returns the number of records of each shard."""
    paths = outputs.output_paths(plan.job.output_file, plan.job.num_shards)
    written = dict(finished)
    missing = [(shard, path) for shard, path in enumerate(paths) if path not in finished]
    tasks = ((shard, path, num_buckets) for shard, path in missing)
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


# ------------------------------------------------------------------------- in one process


class BlockWorker:
    """The work of one process. Any process makes the same of a block.

    The random numbers of a block come from the seed and the block's number, so the result depends
    neither on the number of processes nor on their speed.
    """

    def __init__(self, plan: Plan):
        job = plan.job
        self._plan, self._seed = plan, job.settings.random_seed
        self._tokenizer = FullTokenizer(
            job.vocab_file, job.do_lower_case, pieces=plan.pieces, never_split=job.never_split
        )
        self._tokenizer.require_special_tokens("[CLS]", "[SEP]", "[MASK]", "[UNK]")
        self._split_sentences = Splitter(job.input_format, job.language)
        self.maker = InstanceMaker(job.settings, self._tokenizer.vocab)

    @functools.cached_property
    def corpus(self) -> Corpus:
        """The tokenized text, once it is complete."""
        return Corpus.open(self._plan.working_folder / CORPUS_FOLDER)

    @functools.cached_property
    def _runs(self) -> list[pathlib.Path]:
        """The files of all rows, once they are complete."""
        return shuffling.find_runs(self._plan.working_folder / ROWS_FOLDER)

    def tokenize(self, block: Block) -> tuple[Corpus, Statistics]:
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
        counts, block = Counts(), self.corpus.part(documents)
        if num_blocks == 1:
            rows = iter([self.original_rows(block, counts)])
        else:
            rows = self.keyed_rows(index, block, documents.start, counts)
        runs = shuffling.write_runs(rows, path, num_buckets)
        counts["bytes_of_rows"] = sum(map(os.path.getsize, runs))
        if self._plan.job.num_shards:
            for run in runs:
                synced(run)
            write_text(f"{path}.json", json.dumps(counts))
        return counts

    def keyed_rows(
        self, index: int, block: Corpus, first_document: int, counts: Counts
    ) -> Iterator[np.ndarray]:
        """The rows of block `index` of the corpus, each with its key in the shuffle."""
        key_rng = random.Random(f"{self._seed}/{index}/order")
        rng = random.Random(f"{self._seed}/{index}/instances")
        for rows in self.maker.rows(
            block, first_document=first_document, corpus=self.corpus, rng=rng, counts=counts
        ):
            rows["key"] = np.frombuffer(
                key_rng.randbytes(shuffling.KEY_BITS // 8 * len(rows)), "<u8"
            )
            yield rows

    def original_rows(self, block: Corpus, counts: Counts) -> np.ndarray:
        """All rows of a corpus of one block, with keys that give the original's order.

        Every random number is drawn when the original draws it: same corpus, same seed, same
        records.
        """
        rng, documents = random.Random(self._seed), block.lists()
        rng.shuffle(documents)
        corpus = Corpus.of(documents)
        parts = self.maker.rows(corpus, first_document=0, corpus=corpus, rng=rng, counts=counts)
        rows = np.concatenate([*parts])
        order = list(range(len(rows)))
        rng.shuffle(order)
        rows = rows[order]
        rows["key"] = [(number << shuffling.KEY_BITS) // len(rows) for number in range(len(rows))]
        return rows

    def records(self, task: tuple[int, int]) -> list[bytes]:
        """The records of a bucket in their order; `task` is its number, and that of all buckets."""
        rows = shuffling.read_bucket(self._runs, *task, self.maker.row_type)
        return [*self.maker.records(rows)]

    def write_shard(self, task: tuple[int, str, int]) -> tuple[str, int]:
        """Writes a shard; returns its path and the number of its records.

        Args:
          task: the number of the shard, its path, and the number of buckets of all shards.
        """
        shard, path, num_buckets = task
        num_shards = self._plan.job.num_shards
        per_shard = num_buckets // num_shards
        with outputs.RecordFile(path) as file:
            for bucket in range(shard * per_shard, (shard + 1) * per_shard):
                for record in self.records((bucket, num_buckets)):
                    file.write(record)
            file.finish(self._plan.made_with, shard + 1, num_shards)
        return path, file.num_records
