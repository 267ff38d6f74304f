"""The steps of beam_steps.py as an Apache Beam pipeline, and the run of it from start to end.

Only this file imports Beam. What goes from step to step through Beam is text and packed records;
tokenized blocks go through the run's folder, which all machines must reach.
"""

import contextlib
import dataclasses
import json
import logging as python_logging
import os
import pathlib
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import tensorflow as tf
from absl import logging
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from bert_tf.errors import InputError
from bert_tf.files import expand_patterns
from bert_tf.tokenization.wordpiece import read_vocabulary
from data_gen.beam import steps
from data_gen.blocks import BlockWorker, Plan
from data_gen.checks import check_paths, check_settings, input_errors, require_text
from data_gen.documents import Counts, DocumentReader
from data_gen.outputs import hidden_sibling, report_path, working_folder, write_json
from data_gen.pipeline import EXAMPLES_SHOWN, Job, expected_bytes, make_plan
from data_gen.report import log_examples, log_report, make_report
from data_gen.shuffling import in_buckets
from data_gen.workers import choose_num_workers

# About what a file of records is to hold; a shard is sorted in memory.
SHARD_BYTES = 64 << 20
# Beam's runner in Python for one machine. What Beam calls DirectRunner tries first another one,
# Prism, a program that it downloads.
LOCAL_RUNNER = "FnApiRunner"


# ------------------------------------------------------------------------- the steps


@dataclasses.dataclass(frozen=True)
class Setup:
    """What every step may need."""

    plan: Plan
    run_folder: str  # local or remote; all machines reach it
    block_characters: int
    num_shards: int  # 0: by the amount of text


class Gather(beam.DoFn):
    """A file -> (block, (number of the file, its share)); counts."""

    def __init__(self, setup: Setup):
        self._setup = setup

    def process(self, file: tuple[int, str], shares: dict[int, list[steps.Share]]):
        """`shares` is what `steps.cut` returns."""
        number, path = file
        counts = Counts()
        input_format = self._setup.plan.input_format
        for block, share in steps.gather(path, input_format, shares[number], counts):
            yield block, (number, share)
        yield counted(counts)


class Tokenize(beam.DoFn):
    """(block, its shares) -> (block, number of its documents); counts, sampled sentences."""

    def __init__(self, setup: Setup):
        self._setup = setup

    def process(self, block: tuple[int, Iterable[tuple[int, bytes]]]):
        """Writes the ids to the run's folder."""
        text = steps.put_block_together(*block)
        tokenized = steps.tokenize(self._setup.plan, text, self._setup.run_folder)
        yield text.index, len(tokenized.block.document_lengths)
        yield counted(tokenized.counts)
        yield beam.pvalue.TaggedOutput("sampled", tokenized.sampled)


class MakeInstances(beam.DoFn):
    """(block, number of its documents) -> (shard, packed records); counts."""

    def __init__(self, setup: Setup):
        self._setup = setup

    def process(self, block: tuple[int, int], shards: steps.Shards):
        """`shards` is known when all blocks are tokenized, which therefore comes first."""
        counts = Counts()
        records = steps.keyed_records(
            self._setup.plan, block[0], shards, self._setup.run_folder, counts
        )
        yield from in_buckets(records, shards.num_shards)
        yield counted(counts)


def counted(counts: Counts) -> beam.pvalue.TaggedOutput:
    """Counts as an output of their own, exact; and as Beam's counters, to watch during a run."""
    for name, number in counts.items():
        beam.metrics.Metrics.counter("create_pretraining_data", name).inc(int(number))
    return beam.pvalue.TaggedOutput("counts", counts)


def shards_of(block_sizes: Sequence[tuple[int, int]], counts: Counts, setup: Setup) -> steps.Shards:
    """Numbers the documents of all blocks, and chooses how many files there are to be."""
    require_text(counts)
    documents, first = [], 0
    for _, size in sorted(block_sizes):
        documents.append(range(first, first + size))
        first += size
    by_size = 1 + expected_bytes(counts["tokens"], setup.plan.settings) // SHARD_BYTES
    return steps.Shards(documents, setup.num_shards or by_size)


def add_counts(parts: Iterable[Any]) -> Any:
    """The sum of `Counts`, whose keys Beam need not know to be texts: hashes have other ones."""
    total = Counts()
    for part in parts:
        total.update(part)
    return total


def result(
    counts: Counts, sampled: Counts, shards: steps.Shards, written: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """What the report is made of, as JSON has it."""
    return {
        "counts": counts,
        "sampled": sampled,
        "num_shards": shards.num_shards,
        "records": sorted(written),
    }


def build(pipeline: beam.Pipeline, setup: Setup, paths: Sequence[str]) -> None:
    """Adds all steps to a pipeline; its result is written to result.json in the run's folder."""
    plan, folder = setup.plan, setup.run_folder
    single = beam.pvalue.AsSingleton
    files = pipeline | beam.Create(list(enumerate(paths))) | "Spread" >> beam.Reshuffle()
    measured = files | "Measure" >> beam.MapTuple(
        lambda number, path: (number, steps.measure(path, plan.input_format))
    )
    shares = one(pipeline, "Cut", steps.cut, beam.pvalue.AsList(measured), setup.block_characters)
    gathered = files | "Gather" >> with_counts(Gather(setup), tuple[int, tuple[int, bytes]], shares)
    blocks = gathered.main | "Blocks" >> beam.GroupByKey()
    tokenized = blocks | "Tokenize" >> with_counts(Tokenize(setup), tuple[int, int])
    text_counts = (gathered.counts, tokenized.counts) | "TextCounts" >> beam.Flatten()
    text_counts |= "AddTextCounts" >> beam.CombineGlobally(add_counts)
    sizes = beam.pvalue.AsList(tokenized.main)
    shards = one(pipeline, "Number", shards_of, sizes, single(text_counts), setup)
    tasks = tokenized.main | "SpreadTasks" >> beam.Reshuffle()
    instances = tasks | "Instances" >> with_counts(MakeInstances(setup), tuple[int, bytes], shards)
    written = (
        instances.main
        | "Shards" >> beam.GroupByKey()
        | "Write"
        >> beam.MapTuple(
            lambda shard, packed: (shard, steps.write_shard(f"{folder}/shards/{shard}", packed))
        )
    )
    counts = (text_counts, instances.counts) | "AllCounts" >> beam.Flatten()
    counts |= "AddAllCounts" >> beam.CombineGlobally(add_counts)
    sampled = tokenized.sampled | "AddSampled" >> beam.CombineGlobally(add_counts)
    everything = (single(counts), single(sampled), shards, beam.pvalue.AsList(written))
    _ = (
        pipeline
        | "End" >> beam.Create([f"{folder}/result.json"])
        | "Result" >> beam.Map(lambda path, *values: write_result(path, *values), *everything)
    )


def with_counts(step: beam.DoFn, output_type: type, *side_inputs: Any) -> beam.PTransform:
    """A step with its outputs counts and sampled, beside the main one."""
    step = beam.ParDo(step, *side_inputs).with_output_types(output_type)
    return step.with_outputs("counts", "sampled", main="main")


def one(pipeline: beam.Pipeline, name: str, function, *values: Any) -> beam.pvalue.AsSingleton:
    """The one result of a function of side inputs, itself to be a side input."""
    call = beam.Map(lambda _, *values: function(*values), *values)
    return beam.pvalue.AsSingleton(pipeline | f"{name}Once" >> beam.Create([None]) | name >> call)


def write_result(path: str, *values: Any) -> None:
    """Writes `result` of the values as JSON."""
    with steps.new_file(path) as temporary, tf.io.gfile.GFile(temporary, "w") as file:
        file.write(json.dumps(result(*values)))


# ------------------------------------------------------------------------- the run


def create(job: Job, *, num_shards: int = 0, beam_options: Sequence[str] = ()) -> dict[str, Any]:
    """Makes the TFRecord files and a report, which is returned too, as `jobs.create` does.

    Args:
      job: what is to be made of what; the files are `output_file`-00000-of-00007 and so on, their
        records together in the local generator's order.
      num_shards: how many files; 0: by the amount of text.
      beam_options: Beam's own, such as --runner=DataflowRunner. None: this machine's cores.

    Raises:
      InputError: something that was given cannot be used. No output file is touched then.
    """
    check_settings(job.settings, num_workers=job.num_workers)
    paths = expand_patterns(job.input_file)
    check_paths(paths, [job.output_file])
    options = make_options(job, beam_options)
    check_reachable(job, options)
    check_no_other_shards(job.output_file)
    reader = DocumentReader(paths, input_format=job.input_format)
    with input_errors(), run_folder(job) as (folder, machine_folder):
        plan = make_plan(job, reader, machine_folder)
        BlockWorker(plan)  # what is wrong with the vocabulary is told once, and at the start
        setup = Setup(plan, folder, job.block_characters, num_shards)
        run(options, setup, paths)
        with tf.io.gfile.GFile(f"{folder}/result.json") as file:
            made = json.loads(file.read())
        records = name_shards(job.output_file, folder, made)
    report = make_report(
        Counts(made["counts"]),
        sampled=Counts(made["sampled"]),
        settings=job.settings,
        output_files=records,
    )
    write_json(report_path(job.output_file), report)
    log_examples(first_records(records), read_vocabulary(job.vocab_file))
    log_report(report)
    logging.info("wrote %d files %s-*", len(records), job.output_file)
    return report


def make_options(job: Job, beam_options: Sequence[str]) -> PipelineOptions:
    """Beam's options, with our default for one machine."""
    words = list(beam_options)
    if not any(word.startswith("--runner") for word in words):
        workers = choose_num_workers(job.num_workers, most=1 << 10)
        words = [
            f"--runner={LOCAL_RUNNER}",
            "--direct_running_mode=multi_processing",
            f"--direct_num_workers={workers}",
            "--default_sdk_harness_log_level=WARNING",
            *words,
        ]
        python_logging.getLogger("apache_beam").setLevel(python_logging.WARNING)
    return PipelineOptions(words)


def check_reachable(job: Job, options: PipelineOptions) -> None:
    """Refuses local paths for machines that cannot see them, before anything is started."""
    if "dataflow" not in (options.view_as(StandardOptions).runner or "").lower():
        return
    for name in ("input_file", "output_file", "vocab_file"):
        for path in getattr(job, name).split(","):
            if "://" not in path:
                raise InputError(
                    received=f"--{name}={path} with Dataflow, whose machines cannot read it",
                    expected="a path that they reach, such as gs://bucket/file",
                    remedy="copy the file there (gcloud storage cp) and give its new path",
                )


def check_no_other_shards(output_file: str) -> None:
    """Refuses to mix with files of an earlier run, which may have had another number of them."""
    if others := tf.io.gfile.glob(f"{output_file}-*-of-*"):
        raise InputError(
            received=f"--output_file={output_file}, of which {others[0]} and "
            f"{len(others) - 1} more are there",
            expected="a name of which there are no files yet",
            remedy="remove them, or give another --output_file",
        )


@contextlib.contextmanager
def run_folder(job: Job) -> Iterator[tuple[str, pathlib.Path]]:
    """The folder of the run, which all machines reach, and the name of one that each machine has.

    Beside the output both. A remote output has the second one in --temp_dir, or where the system
    keeps temporary files; there it stays with machines other than this one.
    """
    name = f"bert_tf_{uuid.uuid4().hex}"
    if "://" not in job.output_file:
        with working_folder(job.output_file, None) as folder:
            folder = folder.absolute()
            machine_folder = pathlib.Path(job.temp_dir or folder, name)
            try:
                yield str(folder), machine_folder
            finally:
                shutil.rmtree(machine_folder, ignore_errors=True)
        return
    folder = hidden_sibling(job.output_file, "working")
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)  # of a run that was killed
    tf.io.gfile.makedirs(folder)
    try:
        yield folder, pathlib.Path(job.temp_dir or tempfile.gettempdir(), name)
    finally:
        tf.io.gfile.rmtree(folder)


# Of an InputError, in what a runner tells of it.
MESSAGE = re.compile(r"Received: (.+)\nExpected: (.+)\nTo do: (.+?)(?: \[while running.*)?$", re.M)


def run(options: PipelineOptions, setup: Setup, paths: Sequence[str]) -> None:
    """Runs the pipeline to its end.

    Raises:
      InputError: raised by a step on some machine.
      RuntimeError: Beam's, for what else goes wrong.
    """
    pipeline = beam.Pipeline(options=options)
    build(pipeline, setup, paths)
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:  # what a runner raises is its own
        # The message is all that comes back from other processes.
        message = MESSAGE.search(str(error).replace("\\n", "\n"))
        if message is None:
            raise
        received, expected, remedy = message.groups()
        raise InputError(received=received, expected=expected, remedy=remedy) from None
    if state != beam.runners.runner.PipelineState.DONE:
        raise RuntimeError(f"the pipeline ended as {state}, not DONE; its runner's log tells why")


def name_shards(output_file: str, folder: str, made: dict[str, Any]) -> dict[str, int]:
    """Gives the files of a complete run their names; returns the number of records of each."""
    total, written = made["num_shards"], dict(made["records"])
    records = {}
    tf.io.gfile.makedirs(os.path.dirname(output_file) or ".")
    for shard in range(total):
        if shard not in written:  # more files than records
            steps.write_shard(f"{folder}/shards/{shard}", [])
        path = f"{output_file}-{shard:05d}-of-{total:05d}"
        tf.io.gfile.rename(f"{folder}/shards/{shard}", path)
        records[path] = written.get(shard, 0)
    return records


def first_records(paths: Iterable[str]) -> list[bytes]:
    """Some records to show."""
    dataset = tf.data.TFRecordDataset(list(paths)).take(EXAMPLES_SHOWN)
    return [record.numpy() for record in dataset]
