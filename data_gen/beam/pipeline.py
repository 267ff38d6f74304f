"""The steps of `data_gen.beam.steps` as an Apache Beam pipeline, and its run from start to end.

Only this file imports Beam. Text and packed records go from step to step through Beam; tokenized
blocks go through the run's folder, which all machines must reach.
"""

import contextlib
import json
import logging as python_logging
import pathlib
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from bert_tf.data.index import index_path
from bert_tf.data.patterns import expand_patterns
from bert_tf.data.records import DataDescription, description_path
from bert_tf.errors import InputError
from bert_tf.files import gfile, is_remote, path_errors, write_text
from bert_tf.locks import hidden_sibling, synced
from data_gen.beam import steps
from data_gen.documents import Counts, DocumentReader
from data_gen.outputs import MARK, check_paths, not_ours, shard_path, shards_there, working_folder
from data_gen.pipeline import (
    BlockWorker,
    Job,
    Plan,
    check_vocabulary,
    describe,
    expected_bytes,
    make_plan,
    require_text,
)
from data_gen.report import Statistics, report_path, write_report
from data_gen.workers import choose_num_workers

# About the size of a file of records; a shard is sorted in memory.
SHARD_BYTES = 64 << 20
# Beam's runner in Python for one machine. Beam's DirectRunner tries Prism first, a program that it
# downloads.
LOCAL_RUNNER = "FnApiRunner"


# ------------------------------------------------------------------------- the steps


class Setup(NamedTuple):
    """What every step may need."""

    plan: Plan
    run_folder: str  # local or remote; all machines reach it


def gather(file: tuple[int, str], shares: dict, setup: Setup) -> Iterator:
    """(number of a file, its path) -> (block, (number of the file, its share)); statistics."""
    number, path = file
    counts = Counts()
    for block, text in steps.gather(path, setup.plan.job.input_format, shares[number], counts):
        yield block, (number, text)
    yield counted(Statistics(counts))


def tokenize(block: tuple[int, Iterable], setup: Setup) -> Iterator:
    """(block, its shares) -> (block, number of its documents); statistics."""
    text = steps.put_block_together(*block)
    num_documents, statistics = steps.tokenize(setup.plan, text, setup.run_folder)
    yield text.index, num_documents
    yield counted(statistics)


def make_instances(block: tuple[int, int], shards: steps.Shards, setup: Setup) -> Iterator:
    """(block, number of its documents) -> (shard, rows as bytes); statistics.

    `shards` is known once all blocks are tokenized, so that step comes first.
    """
    counts = Counts()
    rows = steps.keyed_rows(setup.plan, block[0], shards, setup.run_folder, counts)
    yield from steps.in_shards(rows, shards.num_shards)
    yield counted(Statistics(counts))


def counted(statistics: Statistics) -> beam.pvalue.TaggedOutput:
    """Statistics as an output of their own; and as Beam's counters, to watch during a run."""
    for name, number in statistics.counts.items():
        beam.metrics.Metrics.counter("create_pretraining_data", name).inc(int(number))
    return beam.pvalue.TaggedOutput("statistics", statistics)


def add_up(parts: Iterable[Statistics]) -> Statistics:
    """The statistics of several parts together."""
    total = Statistics()
    for part in parts:
        total.update(part)
    return total


def number_documents(block_sizes: Sequence, statistics: Statistics, setup: Setup) -> steps.Shards:
    """Numbers the documents of all blocks, and chooses how many files to write."""
    require_text(statistics.counts)
    documents, first = [], 0
    for _, size in sorted(block_sizes):
        documents.append(range(first, first + size))
        first += size
    size = expected_bytes(statistics.counts["tokens"], setup.plan.job.settings)
    return steps.Shards(documents, setup.plan.job.num_shards or 1 + size // SHARD_BYTES)


def build(pipeline: beam.Pipeline, setup: Setup, paths: Sequence[str]) -> None:
    """Adds all steps to a pipeline; its result is written to result.json in the run's folder."""
    job, folder = setup.plan.job, setup.run_folder
    files = pipeline | beam.Create(list(enumerate(paths))) | "Spread" >> beam.Reshuffle()
    measured = files | "Measure" >> beam.MapTuple(
        lambda number, path: (number, steps.measure(path, job.input_format))
    )
    shares = one(pipeline, "Cut", steps.cut, beam.pvalue.AsList(measured), job.block_characters)
    gathered = files | "Gather" >> with_statistics(
        gather, tuple[int, tuple[int, bytes]], shares, setup
    )
    blocks = gathered.main | "Blocks" >> beam.GroupByKey()
    tokenized = blocks | "Tokenize" >> with_statistics(tokenize, tuple[int, int], setup)
    of_text = total("Text", gathered.statistics, tokenized.statistics)
    sizes = beam.pvalue.AsList(tokenized.main)
    shards = one(pipeline, "Number", number_documents, sizes, of_text, setup)
    instances = (
        tokenized.main
        | "SpreadTasks" >> beam.Reshuffle()
        | "Instances" >> with_statistics(make_instances, tuple[int, bytes], shards, setup)
    )
    written = (
        instances.main
        | "Shards" >> beam.GroupByKey()
        | "Write"
        >> beam.MapTuple(
            lambda shard, parts: (
                shard,
                steps.write_shard(f"{folder}/shards/{shard}", parts, setup.plan),
            )
        )
    )
    of_all = total("All", gathered.statistics, tokenized.statistics, instances.statistics)
    one(pipeline, "Result", write_result, folder, of_all, shards, beam.pvalue.AsList(written))


def with_statistics(function, output_type: type, *arguments: Any) -> beam.PTransform:
    """A step with two outputs: the main one, and statistics."""
    step = beam.FlatMap(function, *arguments).with_output_types(output_type)
    return step.with_outputs("statistics", main="main")


def total(name: str, *parts: beam.PCollection) -> beam.pvalue.AsSingleton:
    """The statistics of several steps added up, as a side input."""
    together = parts | f"{name}Statistics" >> beam.Flatten()
    return beam.pvalue.AsSingleton(together | f"Add{name}" >> beam.CombineGlobally(add_up))


def one(pipeline: beam.Pipeline, name: str, function, *values: Any) -> beam.pvalue.AsSingleton:
    """Calls a function once on side inputs; the result is a side input."""
    call = beam.Map(lambda _, *values: function(*values), *values)
    return beam.pvalue.AsSingleton(pipeline | f"{name}Once" >> beam.Create([None]) | name >> call)


def write_result(
    folder: str, statistics: Statistics, shards: steps.Shards, written: Sequence[tuple[int, int]]
) -> None:
    """Writes what the report and the names of the files need."""
    result = {**vars(statistics), "num_shards": shards.num_shards, "records": sorted(written)}
    with (
        steps.new_file(f"{folder}/result.json") as temporary,
        gfile().GFile(temporary, "w") as file,
    ):
        file.write(json.dumps(result))


# ------------------------------------------------------------------------- the run


def create(job: Job, *, beam_options: Sequence[str] = ()) -> dict[str, Any]:
    """Makes the TFRecord files and a report, which is also returned, as the local `create` does.

    Args:
      job: what to make; the files are `output_file`-00000-of-00007 and so on, their records
        together in the local generator's order. Without `num_shards` their number depends on the
        amount of text.
      beam_options: Beam's own, such as --runner=DataflowRunner. None: this machine's cores.

    Raises:
      InputError: the input cannot be used, or the output not be written. Then no file is replaced.
    """
    job, made_with = check_vocabulary(job)
    paths = expand_patterns(job.input_file)
    check_paths(paths, [job.output_file])
    options = make_options(job, beam_options)
    check_reachable(job, options)
    if others := shards_there(job.output_file):
        raise InputError(
            f"--output_file={job.output_file}, of which {min(others)} and {len(others) - 1} more "
            "are there",
            "a name of which there are no files: an earlier run may have had another number",
            "remove them, or give another --output_file",
        )
    reader = DocumentReader(paths, input_format=job.input_format)
    with path_errors(job.output_file, "made"), run_folder(job) as (folder, machine_folder):
        plan = make_plan(job, reader, machine_folder)
        BlockWorker(plan)  # checks the vocabulary before the work begins
        run(options, Setup(plan, folder), paths)
        with gfile().GFile(f"{folder}/result.json") as file:
            result = json.loads(file.read())
        written = name_shards(plan, folder, result, describe(made_with))
    statistics = Statistics(Counts(result["counts"]), Counts(result["sampled"]))
    path = report_path(job.output_file)
    return write_report(path, statistics, made_with, written, job.vocab_file)


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
    """Refuses local paths for Dataflow, before anything is started."""
    if "dataflow" not in (options.view_as(StandardOptions).runner or "").lower():
        return
    for name in ("input_file", "output_file", "vocab_file"):
        for path in getattr(job, name).split(","):
            if not is_remote(path):
                raise InputError(
                    f"--{name}={path} with Dataflow, whose machines cannot read it",
                    "a path that they reach, such as gs://bucket/file",
                    "copy the file there (gcloud storage cp) and give its new path",
                )


@contextlib.contextmanager
def run_folder(job: Job) -> Iterator[tuple[str, pathlib.Path]]:
    """The folder of the run, which all machines reach, and one that each machine makes for itself.

    Both are beside the output. With a remote output the second one is in --temp_dir, or the
    system's folder for temporary files; on machines other than this one it is left there.
    """
    name = f"bert_tf_{uuid.uuid4().hex}"
    if not is_remote(job.output_file):
        with working_folder(job.output_file, None) as folder:
            machine_folder = pathlib.Path(job.temp_dir or folder.absolute(), name)
            try:
                yield str(folder.absolute()), machine_folder
            finally:
                shutil.rmtree(machine_folder, ignore_errors=True)
        return
    folder = hidden_sibling(job.output_file, "working")
    gfile().makedirs(folder)
    names = gfile().listdir(folder)
    if names and MARK not in names:
        raise not_ours(folder)
    write_text(f"{folder}/{MARK}", "")
    _clear_remote(folder)  # of a run that was killed
    try:
        yield folder, pathlib.Path(job.temp_dir or tempfile.gettempdir(), name)
    finally:
        _clear_remote(folder)
        gfile().rmtree(folder)


def _clear_remote(folder: str) -> None:
    """Empties a remote working folder, but for its mark."""
    for name in gfile().listdir(folder):
        path = f"{folder}/{name.rstrip('/')}"
        if gfile().isdir(path):
            gfile().rmtree(path)
        elif name != MARK:
            gfile().remove(path)


# An InputError, in the message of a runner.
MESSAGE = re.compile(r"Received: (.+)\nExpected: (.+)\nTo do: (.+?)(?: \[while running.*)?$", re.M)


def run(options: PipelineOptions, setup: Setup, paths: Sequence[str]) -> None:
    """Runs the pipeline to its end.

    Raises:
      InputError: raised by a step on some machine.
      RuntimeError: Beam's, for what else fails.
    """
    pipeline = beam.Pipeline(options=options)
    build(pipeline, setup, paths)
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:  # each runner raises its own
        # Only the message comes back from other processes, from some with its lines escaped.
        text = str(error)
        message = MESSAGE.search(text) or MESSAGE.search(text.replace("\\n", "\n"))
        if message is None:
            raise
        raise InputError(*message.groups()) from None
    if state != beam.runners.runner.PipelineState.DONE:
        raise RuntimeError(f"the pipeline ended as {state}, not DONE; see its runner's log")


def name_shards(
    plan: Plan, folder: str, result: dict[str, Any], describe: Callable[..., DataDescription]
) -> dict[str, int]:
    """Gives the files of a complete run their names; returns the number of records of each."""
    output_file, num_shards = plan.job.output_file, result["num_shards"]
    written, records = dict(result["records"]), {}
    for shard in range(num_shards):
        made = f"{folder}/shards/{shard}"
        if shard not in written:  # more files than records
            steps.write_shard(made, [], plan)
        path = shard_path(output_file, shard, num_shards)
        records[path] = written.get(shard, 0)
        data = describe(
            shard=shard + 1,
            num_shards=num_shards,
            num_records=records[path],
            num_bytes=gfile().stat(made).length,
        )
        write_text(description_path(path), data.to_json_string())
        gfile().rename(f"{made}.index", index_path(path))
        gfile().rename(made, path)
    synced(output_file.rpartition("/")[0] or ".")
    return records
