"""The steps of `data_gen.beam.steps` as an Apache Beam pipeline, and its run from start to end.

Only this file imports Beam. This machine reads the text once and cuts it into blocks. Text and
tokenized blocks go through the run's folder, which all machines must reach; rows go from step to
step through Beam.
"""

import contextlib
import dataclasses
import logging as python_logging
import pathlib
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from bert_tf.data.sidecars import description_path, index_path
from bert_tf.errors import InputError
from bert_tf.files import gfile, is_file, is_remote, path_errors, write_text
from bert_tf.locks import hidden_sibling, synced
from data_gen import outputs
from data_gen.beam import steps
from data_gen.beam.steps import Setup
from data_gen.documents import Statistics
from data_gen.pipeline import BlockWorker, prepare, require_text
from data_gen.report import report_path, write_report
from data_gen.settings import Job
from data_gen.workers import choose_num_workers

# Beam's runner in Python for one machine. Beam's DirectRunner tries Prism first, a program that it
# downloads.
LOCAL_RUNNER = "FnApiRunner"


def build(pipeline: beam.Pipeline, setup: Setup, num_blocks: int) -> None:
    """Adds all steps to a pipeline, which writes its results to the run's folder."""
    tokenized = (
        pipeline
        | beam.Create(range(num_blocks))
        | "SpreadText" >> beam.Reshuffle()
        | "Tokenize" >> beam.Map(steps.tokenize, setup)
    )
    instances = beam.FlatMap(steps.make_instances, setup, beam.pvalue.AsList(tokenized))
    _ = (
        tokenized
        | "SpreadBlocks" >> beam.Reshuffle()
        | "Instances" >> instances.with_output_types(tuple[int, bytes])
        | "Shards" >> beam.GroupByKey()
        | "Write" >> beam.MapTuple(lambda shard, parts: steps.write_shard(shard, parts, setup))
    )


def create(job: Job, *, beam_options: Sequence[str] = ()) -> dict[str, Any]:
    """Makes the TFRecord files and a report, which is also returned, as the local `create` does.

    Args:
      job: what to make; the files are `output_file`-00000-of-00007 and so on, their records
        together in the local generator's order. Without `num_shards` their number depends on the
        amount of text.
      beam_options: Beam's own, such as --runner=DataflowRunner. None: this machine's cores.

    Raises:
      InputError: the input cannot be used, or the output not be written. Then no file is replaced.
      RuntimeError: Beam's, for what fails on a machine.
    """
    plan, reader = prepare(job)
    outputs.check_paths(reader.paths, [job.output_file])
    options = make_options(job, beam_options)
    if others := outputs.shards_there(job.output_file):
        raise InputError(
            f"--output_file={job.output_file}, of which {min(others)} and {len(others) - 1} more "
            "are there",
            "a name without files: an earlier run may have had another number of shards",
            "remove them, or give another --output_file",
        )
    with path_errors(job.output_file, "made"), run_folder(job) as (folder, machine_folder):
        setup = Setup(dataclasses.replace(plan, working_folder=machine_folder), folder)
        BlockWorker(setup.plan)  # checks the vocabulary before the work begins
        num_blocks = steps.write_text(reader.blocks(job.block_characters), folder)
        pipeline = beam.Pipeline(options=options)
        build(pipeline, setup, num_blocks)
        run(pipeline)
        statistics = Statistics(reader.counts)
        for index in range(num_blocks):
            statistics.update(steps.read_value(f"{folder}/statistics/{index}"))
            statistics.counts.update(steps.read_value(f"{folder}/counts/{index}"))
        require_text(statistics.counts)
        records = name_shards(setup, statistics.counts["tokens"])
    path = report_path(job.output_file)
    return write_report(path, statistics, plan.made_with, records, plan.pieces)


# An InputError, in the message of a runner; from some with its lines escaped.
MESSAGE = re.compile(r"Received: (.+)\nExpected: (.+)\nTo do: (.+?)(?: \[while running.*)?$", re.M)


def run(pipeline: beam.Pipeline) -> None:
    """Runs the pipeline to its end.

    Raises:
      InputError: raised by a step on some machine.
      RuntimeError: Beam's, for what else fails.
    """
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:  # each runner raises its own
        if message := MESSAGE.search(str(error).replace("\\n", "\n")):
            raise InputError(*message.groups()) from None
        raise
    if state != beam.runners.runner.PipelineState.DONE:
        raise RuntimeError(f"the pipeline ended as {state}, not DONE; see its runner's log")


def make_options(job: Job, beam_options: Sequence[str]) -> PipelineOptions:
    """Beam's options, with our default for one machine.

    Raises:
      InputError: a local output for Dataflow, whose machines cannot reach it.
    """
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
    options = PipelineOptions(words)
    runner = (options.view_as(StandardOptions).runner or "").lower()
    if "dataflow" in runner and not is_remote(job.output_file):
        raise InputError(
            f"--output_file={job.output_file} with Dataflow, whose machines cannot write it",
            "a path that they reach, such as gs://bucket/file",
            "give such a path",
        )
    return options


@contextlib.contextmanager
def run_folder(job: Job) -> Iterator[tuple[str, pathlib.Path]]:
    """The folder of the run, which all machines reach, and one that each machine makes for itself.

    Both are beside the output. With a remote output the second one is in --temp_dir, or the
    system's folder for temporary files; on machines other than this one it is left there.
    """
    name = f"bert_tf_{uuid.uuid4().hex}"
    if not is_remote(job.output_file):
        with outputs.working_folder(job.output_file, None) as folder:
            machine_folder = pathlib.Path(job.temp_dir or folder.absolute(), name)
            try:
                yield str(folder.absolute()), machine_folder
            finally:
                shutil.rmtree(machine_folder, ignore_errors=True)
        return
    folder = hidden_sibling(job.output_file, "working")
    if gfile().isdir(folder):  # of a run that was killed
        outputs.check_mark(folder, gfile().listdir(folder))
        gfile().rmtree(folder)
    gfile().makedirs(folder)
    write_text(f"{folder}/{outputs.MARK}", "")
    try:
        yield folder, pathlib.Path(job.temp_dir or tempfile.gettempdir(), name)
    finally:
        gfile().rmtree(folder)


def name_shards(setup: Setup, num_tokens: int) -> dict[str, int]:
    """Gives the files of a complete run their names; returns the number of records of each."""
    job, records = setup.plan.job, {}
    num_shards = job.num_shards or steps.number_of_shards(num_tokens, job.settings)
    for shard in range(num_shards):
        made = f"{setup.run_folder}/shards/{shard}"
        if not is_file(f"{made}.about"):  # there are more files than records
            steps.write_shard(shard, [], setup)
        number, index = steps.read_value(f"{made}.about")
        path = outputs.shard_path(job.output_file, shard, num_shards)
        records[path] = number
        numbers = {"num_records": number, "num_bytes": gfile().stat(made).length}
        data = outputs.describe(
            setup.plan.made_with, shard=shard + 1, num_shards=num_shards, **numbers
        )
        write_text(description_path(path), data.to_json_string())
        write_text(index_path(path), index)
        gfile().rename(made, path)
    synced(job.output_file.rpartition("/")[0] or ".")
    return records
