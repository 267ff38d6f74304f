"""From text files to TFRecord files: the steps in order.

    documents        text files -> documents of lines, in blocks of about a megabyte
    sentences        paragraphs -> sentences
    corpus           sentences -> ids, on disk
    instances        document -> pairs of segments, next or random -> rows
    masking          pair -> masked positions, and their replacements
    pipeline         all rows -> one random order
    serialization    rows -> records
    outputs          records -> files that appear when they are complete, and a report

    workers          processes

Memory does not grow with the corpus. The files depend on text, settings and seed alone. Documents
that form a single block get exactly the original's records.

With --num_shards a run that was killed continues: the tokenized corpus, the rows of each block and
the shards are in files that are complete or not there.

The shuffle is external. Each row gets a random 64-bit key, drawn from the seed of its block. The
shuffled order is that of the keys, for any number of workers. The rows of a block are a file: where
each bucket begins, int64, and then the rows, sorted by key. A bucket is an equal part of the range
of keys.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf import __version__
from bert_tf.data import enough_predictions
from bert_tf.data.records import DataSettings, expand_patterns
from bert_tf.decoding import replacement_warning
from bert_tf.errors import InputError
from bert_tf.files import (
    digest_of,
    is_file,
    path_errors,
    published,
    read_json,
    synced,
    write_text,
)
from bert_tf.options import PLAIN_READING, Reading, changed
from bert_tf.terminal import Progress, number_of
from bert_tf.tokenization import wordpiece
from bert_tf.tokenization.whole_pieces import kept_whole, without_kept_whole
from data_gen import outputs, sentences
from data_gen.corpus import Corpus, tokenize_block, write_corpus
from data_gen.documents import Block, Counts, DocumentReader
from data_gen.instances import InstanceMaker
from data_gen.masking import NUM_SPECIAL_TOKENS
from data_gen.options import MOST_PREDICTIONS, PretrainingData
from data_gen.outputs import CORPUS_FILE, CORPUS_FOLDER, ROWS_FOLDER
from data_gen.workers import BLOCK_CHARACTERS, Workers, choose_num_workers

KEY_BITS = 64
PLACE_BYTES = 8
# About the size of the records of one bucket: most of the memory that the shuffle needs.
BUCKET_BYTES = 16 << 20
MAX_BUCKETS = 4096


@dataclasses.dataclass(frozen=True)
class Job:
    """What to make of which files. Fields are named as the flags, where there is one."""

    input_file: str
    output_file: str
    vocab_file: str
    settings: DataSettings
    do_lower_case: bool | None = None  # None: found from the vocabulary
    strip_accents: bool | None = None  # set by `prepare` from the vocabulary's folder
    never_split: tuple[str, ...] = ()  # pieces that stay whole
    added_words: tuple[str, ...] = ()  # pieces that stay whole, found in normalized text
    input_format: str = "text"  # a key of documents.INPUT_FORMATS
    reading: Reading = PLAIN_READING
    language: str = "en"
    num_shards: int = 0  # 0: the files that output_file names
    num_workers: int = 0
    temp_dir: str | None = None
    block_characters: int = BLOCK_CHARACTERS


def job_of(options: PretrainingData) -> Job:
    """The job of a command's options.

    Raises:
      InputError: as for `settings_of`.
    """
    return Job(
        input_file=options.input_file,
        output_file=options.output_file,
        vocab_file=options.vocab_file,
        settings=settings_of(options),
        do_lower_case=options.do_lower_case,
        never_split=tuple(sorted({*options.never_split})),  # their order has no effect
        added_words=tuple(sorted({*options.added_words})),
        input_format=options.input_format,
        reading=options.reading,
        language=options.language,
        num_shards=options.num_shards,
        num_workers=options.num_workers,
        temp_dir=options.temp_dir,
    )


def settings_of(options: PretrainingData) -> DataSettings:
    """The settings of the records; computes those that depend on others.

    Raises:
      InputError: `mask_share` and `random_share` sum to more than 1.
    """
    needed = enough_predictions(options.max_seq_length, options.masked_lm_prob)
    return DataSettings(
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=options.max_predictions_per_seq or max(MOST_PREDICTIONS, needed),
        masked_lm_prob=options.masked_lm_prob,
        short_seq_prob=options.short_seq_prob,
        dupe_factor=options.dupe_factor,
        random_seed=options.random_seed,
        do_whole_word_mask=options.do_whole_word_mask,
        words_from_spaces=options.words_from_spaces,
        pack=options.pack,
        mask_share=options.mask_share,
        random_share=options.random_share,
        unchanged_share=max(0.0, round(1 - options.mask_share - options.random_share, 9)),
    )


@dataclasses.dataclass(frozen=True)
class Plan:
    """What every process needs. Plans are equal if their jobs and folders are."""

    job: Job
    pieces: Sequence[str] = dataclasses.field(compare=False)  # the vocabulary, read once
    # The part of the description that all files have in common.
    made_with: Mapping[str, Any] = dataclasses.field(compare=False)
    working_folder: pathlib.Path = pathlib.Path()


def create(job: Job) -> dict[str, Any]:
    """Makes the TFRecord files and a report, which it returns too.

    Raises:
      InputError: the input cannot be used, or the output cannot be written. No file is replaced.
    """
    plan, reader = prepare(job)
    paths = outputs.output_paths(job.output_file, job.num_shards)
    outputs.check_paths([*reader.paths, job.vocab_file], paths)
    first = job.output_file.split(",")[0]
    report_path = outputs.report_path(first)
    kept_with = CORPUS_FILE if job.num_shards else ""
    with (
        path_errors(job.output_file, "made"),
        outputs.working_folder(first, job.temp_dir, kept_with=kept_with) as folder,
    ):
        plan = dataclasses.replace(plan, working_folder=folder)
        finished: dict[str, int] = {}
        if job.num_shards:
            plan.made_with["text_digest"] = text_digest(job, reader.paths)
            finished = outputs.finished_shards(job.output_file, job.num_shards, plan.made_with)
            numbers = [finished.get(path) for path in paths]
            if report := outputs.read_report(report_path, plan.made_with, numbers):
                logging.info("all %d files are there already", job.num_shards)
                return report
        counts, written = make_files(plan, reader, paths, finished)
        return write_report(plan, counts, report_path, written)


def prepare(job: Job) -> tuple[Plan, DocumentReader]:
    """Reads the vocabulary and finds the texts: a plan without its folder, and the reader.

    Raises:
      InputError: the vocabulary cannot be read or contradicts `do_lower_case`, or a text is
        missing.
    """
    pieces = wordpiece.read_vocabulary(job.vocab_file)
    strip_accents = wordpiece.accents_beside(job.vocab_file)
    lower = wordpiece.choose_case(
        job.vocab_file,
        without_kept_whole(pieces, job),
        job.do_lower_case,
        strip_accents=strip_accents,
    )
    made_with: dict[str, Any] = {"bert_tf_version": __version__, "do_lower_case": lower}
    if strip_accents not in (None, lower):
        made_with["strip_accents"] = strip_accents
    made_with |= {name: list(whole) for name, whole in kept_whole(job).items()}
    made_with["vocab_file"] = os.path.basename(job.vocab_file)
    made_with["vocab_sha256"] = wordpiece.vocabulary_sha256(pieces)
    made_with["vocab_size"] = len(pieces)
    made_with |= dataclasses.asdict(job.settings)
    paths = expand_patterns(job.input_file)
    reader = DocumentReader(paths, input_format=job.input_format, reading=job.reading)
    job = dataclasses.replace(job, do_lower_case=lower, strip_accents=strip_accents)
    return Plan(job, pieces, made_with), reader


def write_report(
    plan: Plan, counts: Counts, path: str, written: Mapping[str, int]
) -> dict[str, Any]:
    """Writes and returns the report of a run; see `outputs.write_report`."""
    job = plan.job
    warnings = [*sentences.splitter_warnings(job.input_format, job.language, counts)]
    if warning := replacement_warning(counts):
        warnings.append(warning)
    return outputs.write_report(path, counts, plan.made_with, written, plan.pieces, warnings)


def text_digest(job: Job, input_files: Sequence[str]) -> str:
    """A hash of the text and of how it is read, on which the tokenized corpus depends."""
    version = sentences.splitter_version(job.input_format)
    # Lines of text are not split: there the language has no effect.
    language = sentences.language_code("en" if job.input_format == "text" else job.language)
    read_as = [job.input_format, language, version, str(job.block_characters)]
    parts = [*read_as, *changed(job.reading).values(), *map(digest_of, input_files)]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def make_files(
    plan: Plan, reader: DocumentReader, paths: Sequence[str], finished: Mapping[str, int]
) -> tuple[Counts, dict[str, int]]:
    """Makes all files, or the shards that are not finished.

    Returns:
      The counts of the corpus, and the number of records of each file.
    """
    job = plan.job
    num_blocks = 1 + reader.total_bytes // job.block_characters  # or fewer
    num_workers = choose_num_workers(job.num_workers, most=num_blocks)
    megabytes = reader.total_bytes / 1e6
    logging.info("%.1f MB of text, %s", megabytes, number_of(num_workers, "workers"))
    with contextlib.ExitStack() as stack:
        unfinished = []
        if not job.num_shards:  # all files get their names at the end of this context, or none
            unfinished = [stack.enter_context(published(path)) for path in paths]
        workers = stack.enter_context(Workers(num_workers, BlockWorker, plan))
        counts, block_documents = kept_corpus(plan) or tokenize_text(workers, plan, reader)
        record_bytes = expected_bytes(counts["tokens"], job.settings)
        num_buckets = number_of_buckets(record_bytes, num_parts=max(1, job.num_shards))
        write_rows(workers, plan, block_documents, num_buckets, counts)
        if job.num_shards:
            return counts, write_shards(workers, paths, num_buckets, finished)
        records = all_records(workers, num_buckets, counts["instances"])
        indexes = outputs.write_in_turn(unfinished, records)
        written = {}
        for shard, (path, index) in enumerate(zip(paths, indexes, strict=True), start=1):
            outputs.write_beside(path, index, plan.made_with, shard, len(paths))
            written[path] = index.num_records
        return counts, written


def kept_corpus(plan: Plan) -> tuple[Counts, list[range]] | None:
    """The corpus that an earlier run has tokenized: its counts, and the documents of each block.

    Without such a corpus it empties the folder and returns None.
    """
    path = str(plan.working_folder / CORPUS_FILE)
    values = read_json(path) if is_file(path) else {}
    if values.get("made_with") != corpus_made_with(plan):
        outputs.clear(plan.working_folder)
        return None
    logging.info("continuing an earlier run in %s", plan.working_folder)
    block_documents = [range(*numbers) for numbers in values["block_documents"]]
    return Counts(values["counts"]), block_documents


def corpus_made_with(plan: Plan) -> dict[str, Any]:
    """What a tokenized corpus, and the rows made of it, depend on."""
    return {**plan.made_with, "num_shards": plan.job.num_shards}


def tokenize_text(
    workers: Workers, plan: Plan, reader: DocumentReader
) -> tuple[Counts, list[range]]:
    """Writes the corpus; returns its counts, and the numbers of each block's documents."""
    counts = reader.counts
    folder = plan.working_folder
    with Progress("tokenize", reader.total_bytes / 1e6, "MB") as progress:

        def tokenized() -> Iterator[Corpus]:
            blocks = reader.blocks(plan.job.block_characters)
            for block, block_counts in workers.map(BlockWorker.tokenize, blocks):
                counts.update(block_counts)
                progress.update(reader.bytes_read / 1e6)
                yield block

        block_documents = [*write_corpus(folder / CORPUS_FOLDER, tokenized())]
    require_text(counts)
    if plan.job.num_shards:
        keep_corpus(plan, counts, block_documents)
    return counts, block_documents


def keep_corpus(plan: Plan, counts: Counts, block_documents: Sequence[range]) -> None:
    """Makes the corpus permanent, and writes the file from which `kept_corpus` reads."""
    folder = plan.working_folder
    for name in Corpus.FILES:
        synced(str(folder / CORPUS_FOLDER / name))
    synced(str(folder / CORPUS_FOLDER))
    values = {
        "made_with": corpus_made_with(plan),
        "block_documents": [(numbers.start, numbers.stop) for numbers in block_documents],
        "counts": counts,
    }
    write_text(str(folder / CORPUS_FILE), json.dumps(values))


def write_rows(
    workers: Workers, plan: Plan, block_documents: list[range], num_buckets: int, counts: Counts
) -> None:
    """Makes the rows of all blocks, except those that an earlier run has made."""
    folder = plan.working_folder / ROWS_FOLDER
    folder.mkdir(exist_ok=True)
    tasks = []
    for index, numbers in enumerate(block_documents):
        path = str(folder / f"{index:06d}")
        if is_file(f"{path}.json") and is_file(f"{path}.rows"):
            counts.update(read_json(f"{path}.json"))
        else:
            tasks.append((index, numbers, len(block_documents), num_buckets, path))
    done = len(block_documents) - len(tasks)
    with Progress("make instances", len(block_documents), "blocks", done=done) as progress:
        made = workers.map(BlockWorker.rows_to_file, tasks)
        for number, block_counts in enumerate(made, start=done + 1):
            counts.update(block_counts)
            progress.update(number, note=f"; {counts['instances']} instances")


def all_records(workers: Workers, num_buckets: int, num_instances: int) -> Iterator[bytes]:
    """Yields all records in their final order."""
    tasks = ((bucket, num_buckets) for bucket in range(num_buckets))
    with Progress("write the files", num_instances, "instances") as progress:
        for done, records in enumerate(workers.map(BlockWorker.records, tasks), start=1):
            yield from records
            progress.update(num_instances * done // num_buckets)


def write_shards(
    workers: Workers, paths: Sequence[str], num_buckets: int, finished: Mapping[str, int]
) -> dict[str, int]:
    """Writes the missing shards; returns the number of records of each shard, in order."""
    written = dict(finished)
    shards = enumerate(paths)
    tasks = [(shard, path, num_buckets) for shard, path in shards if path not in finished]
    with Progress("write the files", len(paths), "files", done=len(written)) as progress:
        for path, num_records in workers.map(BlockWorker.shard_to_file, tasks):
            written[path] = num_records
            progress.update(len(written))
    return {path: written[path] for path in paths}


def expected_bytes(num_tokens: int, settings: DataSettings) -> int:
    """About the size of all records: three features of S varints; an id takes two bytes."""
    tokens_per_instance = settings.max_seq_length - NUM_SPECIAL_TOKENS
    # Half of the pairs leave a part of their chunk for the next one.
    num_instances = 1.5 * settings.dupe_factor * num_tokens / tokens_per_instance
    return int(num_instances * (5 * settings.max_seq_length + 200))


def require_text(counts: Counts) -> None:
    """Raises `InputError` if the corpus has no document."""
    if not counts["documents"]:
        received = "--input_file: files without a sentence that has a token"
        expected = "text: a sentence a line, a blank line between documents"
        raise InputError(received, expected, "check the files and --input_format")


# ------------------------------------------------------------------------- the shuffle


def number_of_buckets(expected_bytes: int, *, num_parts: int = 1) -> int:
    """The number of buckets for so many bytes: a multiple of `num_parts`, such as the shards.

    The order of the rows does not depend on it.
    """
    enough = min(MAX_BUCKETS, 1 + expected_bytes // BUCKET_BYTES)
    return num_parts * max(1, enough // num_parts)


def in_order(rows: np.ndarray) -> np.ndarray:
    """Rows sorted by key, those with equal keys by content: their order before has no effect."""
    order = np.argsort(rows["key"])
    keys = rows["key"][order]
    if (keys[1:] == keys[:-1]).any():
        order = sorted(range(len(rows)), key=lambda row: (rows["key"][row], rows[row].tobytes()))
    return rows[order]


def split(rows: np.ndarray, num_buckets: int) -> np.ndarray:
    """Where each bucket begins in sorted rows, and where the last one ends: [num_buckets + 1].

    The bucket of a key is key * num_buckets >> KEY_BITS.
    """
    smallest = [-(-(bucket << KEY_BITS) // num_buckets) for bucket in range(1, num_buckets)]
    inner = np.searchsorted(rows["key"], np.array(smallest, np.uint64))
    return np.array([0, *inner, len(rows)], np.int64)


def read_bucket(
    paths: Iterable[pathlib.Path], bucket: int, num_buckets: int, row_type: np.dtype
) -> np.ndarray:
    """The rows of a bucket in the order of their keys, from all files."""
    parts = [np.empty(0, row_type)]
    for path in paths:
        begin, end = np.fromfile(path, np.int64, 2, offset=bucket * PLACE_BYTES).tolist()
        offset = (num_buckets + 1) * PLACE_BYTES + begin * row_type.itemsize
        parts.append(np.fromfile(path, row_type, end - begin, offset=offset))
    return in_order(np.concatenate(parts))


# ------------------------------------------------------------------------- in one process


class BlockWorker:
    """The work of one process.

    The random numbers of a block come from the seed and the block's number, so the result depends
    neither on the number of processes nor on their speed.
    """

    def __init__(self, plan: Plan):
        job = plan.job
        self._plan = plan
        self._seed = job.settings.random_seed
        self._tokenizer = wordpiece.FullTokenizer(
            job.vocab_file,
            job.do_lower_case,
            pieces=plan.pieces,
            strip_accents=job.strip_accents,
            **kept_whole(job),
        )
        self._tokenizer.require_special_tokens("[CLS]", "[SEP]", "[MASK]", "[UNK]")
        self._split_sentences = sentences.sentence_splitter(job.input_format, job.language)
        self.maker = InstanceMaker(job.settings, self._tokenizer.vocab)

    @functools.cached_property
    def corpus(self) -> Corpus:
        """The tokenized text, once it is complete."""
        return Corpus.open(self._plan.working_folder / CORPUS_FOLDER)

    @functools.cached_property
    def _rows(self) -> list[pathlib.Path]:
        """The files of all rows, once they are complete."""
        return sorted((self._plan.working_folder / ROWS_FOLDER).glob("[0-9]*.rows"))

    def tokenize(self, block: Block) -> tuple[Corpus, Counts]:
        """The ids of a block, and its counts; see `tokenize_block`."""
        job = self._plan.job
        corpus, counts = tokenize_block(
            block, self._tokenizer, self._split_sentences, job.settings.words_from_spaces
        )
        if job.input_format != "text":
            counts["unsplit_paragraphs"] = sentences.count_unsplit(block, self._split_sentences)
        return corpus, counts

    def rows_to_file(self, task: tuple[int, range, int, int, str]) -> Counts:
        """Writes the rows of a block to a file; returns their counts.

        Args:
          task: the number of the block, the numbers of its documents, the number of blocks, the
            number of buckets, and the path of the file without its ending.
        """
        index, numbers, num_blocks, num_buckets, path = task
        counts = Counts()
        rows = self.sorted_rows(index, numbers, num_blocks, counts)
        with open(f"{path}.rows", "wb") as file:
            file.write(split(rows, num_buckets).tobytes())
            rows.tofile(file)
        if self._plan.job.num_shards:
            synced(f"{path}.rows")
            write_text(f"{path}.json", json.dumps(counts))
        return counts

    def sorted_rows(
        self, index: int, numbers: range, num_blocks: int, counts: Counts
    ) -> np.ndarray:
        """The rows of block `index` in the order of their keys in the shuffle.

        Args:
          index: the number of the block.
          numbers: the numbers of its documents in the corpus.
          num_blocks: the number of blocks of the corpus.
          counts: the numbers that the report needs are added to it.
        """
        if num_blocks == 1:
            return self.original_rows(counts)
        rng = random.Random(f"{self._seed}/{index}/instances")
        rows = self.maker.rows(self.corpus, numbers, rng, counts)
        key_rng = random.Random(f"{self._seed}/{index}/order")
        rows["key"] = [key_rng.getrandbits(KEY_BITS) for _ in range(len(rows))]
        return in_order(rows)

    def original_rows(self, counts: Counts) -> np.ndarray:
        """All rows of a corpus of one block, with keys that give the original's order.

        Random numbers are drawn in the original's order: same corpus, same seed, same records.
        """
        rng = random.Random(self._seed)
        documents = self.corpus.lists()
        rng.shuffle(documents)
        rows = self.maker.rows(Corpus.of(documents), range(len(documents)), rng, counts)
        order = list(range(len(rows)))
        rng.shuffle(order)
        rows = rows[order]
        rows["key"] = [(number << KEY_BITS) // len(rows) for number in range(len(rows))]
        return rows

    def records(self, task: tuple[int, int]) -> list[bytes]:
        """The records of a bucket in their order.

        Args:
          task: the number of the bucket, and the number of buckets.
        """
        bucket, num_buckets = task
        rows = read_bucket(self._rows, bucket, num_buckets, self.maker.row_type)
        return [*self.maker.records(rows)]

    def shard_to_file(self, task: tuple[int, str, int]) -> tuple[str, int]:
        """Writes a shard; returns its path and the number of its records.

        Args:
          task: the number of the shard, its path, and the number of buckets of all shards.
        """
        shard, path, num_buckets = task
        num_shards = self._plan.job.num_shards
        per_shard = num_buckets // num_shards
        tasks = [(shard * per_shard + bucket, num_buckets) for bucket in range(per_shard)]
        records = itertools.chain.from_iterable(map(self.records, tasks))
        with published(path) as unfinished:
            (index,) = outputs.write_in_turn([unfinished], records)
            outputs.write_beside(path, index, self._plan.made_with, shard + 1, num_shards)
        return path, index.num_records
