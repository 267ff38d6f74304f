"""Makes pre-training records as an Apache Beam pipeline: the local generator's, in its order.

The text of each block is written to the run's folder, which all machines reach. Then

    tokenize          the text of a block -> its ids, in the run's folder
    make_instances    the ids of all blocks -> the keyed rows of one block
    write_shard       the keyed rows of a shard -> a file of records in the order of their keys

and this process gives the files their names. Blocks are the local generator's, and random numbers
come from the seed and a block's number. Only keys, numbers and rows go through Beam.
"""

import contextlib
import dataclasses
import fcntl
import functools
import itertools
import logging as python_logging
import pathlib
import pickle
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.data.records import DataSettings
from bert_tf.errors import InputError
from bert_tf.files import gfile, hidden_sibling, is_file, is_remote, path_errors, synced
from bert_tf.runtime import keep_freed_memory
from data_gen import outputs, pipeline
from data_gen.corpus import write_corpus
from data_gen.documents import Counts
from data_gen.outputs import CORPUS_FOLDER
from data_gen.pipeline import BlockWorker, Job, Plan
from data_gen.workers import choose_num_workers

# Beam's runner in Python for one machine. Beam's DirectRunner tries Prism first, a program that it
# downloads.
LOCAL_RUNNER = "FnApiRunner"
# About the size of a file of records; a shard is sorted in memory.
SHARD_BYTES = 64 << 20


def create(job: Job, *, beam_options: Sequence[str] = ()) -> dict[str, Any]:
    """Makes the TFRecord files and a report, which is also returned, as the local `create` does.

    Args:
      job: what to make; the files are `output_file`-00000-of-00007 and so on, their records
        together in the local generator's order. Without `num_shards` their number depends on the
        amount of text.
      beam_options: Beam's own, such as --runner=DataflowRunner. None: this machine's cores.

    Raises:
      InputError: the input cannot be used, or the output cannot be written. No file is replaced.
      RuntimeError: something failed on a machine (Beam's own error).
    """
    plan, reader = pipeline.prepare(job)
    outputs.check_paths([*reader.paths, job.vocab_file], [job.output_file])
    options = make_options(job, beam_options)
    if existing := outputs.shards_there(job.output_file):
        received = f"--output_file={job.output_file}, of which {min(existing)} is there"
        expected = "a name without files: an earlier run may have had another number of shards"
        raise InputError(received, expected, "remove them, or give another --output_file")
    with path_errors(job.output_file, "made"), run_folder(job) as (folder, machine_folder):
        setup = Setup(dataclasses.replace(plan, working_folder=machine_folder), folder)
        BlockWorker(setup.plan)  # checks the vocabulary before the work begins
        num_blocks = 0
        for index, block in enumerate(reader.blocks(job.block_characters)):
            write_value(f"{folder}/text/{index}", block)
            num_blocks = index + 1
        state = run(setup, num_blocks, options)
        if state != "DONE":
            raise RuntimeError(f"the pipeline ended as {state}, not DONE; see its runner's log")
        counts = reader.counts
        for index in range(num_blocks):
            counts.update(read_value(f"{folder}/counts/{index}"))
        pipeline.require_text(counts)
        records = name_shards(setup, counts["tokens"])
    path = outputs.report_path(job.output_file)
    return pipeline.write_report(plan, counts, path, records)


def make_options(job: Job, beam_options: Sequence[str]) -> list[str]:
    """Beam's options, with our default for one machine.

    Raises:
      InputError: a local output for Dataflow, whose machines cannot reach it.
    """
    words = list(beam_options)
    if not any(word.startswith("--runner") for word in words):
        words = [
            f"--runner={LOCAL_RUNNER}",
            "--direct_running_mode=multi_processing",
            f"--direct_num_workers={choose_num_workers(job.num_workers, most=1 << 10)}",
            "--default_sdk_harness_log_level=WARNING",
            *words,
        ]
        python_logging.getLogger("apache_beam").setLevel(python_logging.WARNING)
    is_dataflow = any("dataflow" in word.lower() for word in words if "runner" in word.lower())
    if is_dataflow and not is_remote(job.output_file):
        received = f"--output_file={job.output_file} with Dataflow, whose machines cannot write it"
        raise InputError(received, "a path that they reach", "give one such as gs://bucket/file")
    return words


@contextlib.contextmanager
def run_folder(job: Job) -> Iterator[tuple[str, pathlib.Path]]:
    """The folder of the run, which all machines reach, and a folder that each machine makes.

    Both are beside the output. With a remote output the second one is in --temp_dir, or the
    system's folder for temporary files; machines other than this one do not remove it.
    """
    name = f"bert_tf_{uuid.uuid4().hex}"
    if not is_remote(job.output_file):
        with outputs.working_folder(job.output_file, None) as folder:
            folder = folder.absolute()
            machine = pathlib.Path(job.temp_dir, name) if job.temp_dir else folder / "machine"
            try:
                yield str(folder), machine
            finally:
                shutil.rmtree(machine, ignore_errors=True)
        return
    folder = hidden_sibling(job.output_file, "working")
    if gfile().isdir(folder):  # of a run that was killed
        gfile().rmtree(folder)
    gfile().makedirs(folder)
    try:
        yield folder, pathlib.Path(job.temp_dir or tempfile.gettempdir(), name)
    finally:
        gfile().rmtree(folder)


def name_shards(setup: "Setup", num_tokens: int) -> dict[str, int]:
    """Gives the files of a complete run their names; returns the number of records of each."""
    job = setup.plan.job
    records = {}
    num_shards = job.num_shards or number_of_shards(num_tokens, job.settings)
    for shard in range(num_shards):
        made = f"{setup.run_folder}/shards/{shard}"
        if not is_file(f"{made}.index"):  # there are more files than records
            write_shard(shard, [], setup)
        index = read_value(f"{made}.index")
        path = outputs.shard_path(job.output_file, shard, num_shards)
        records[path] = index.num_records
        outputs.write_beside(path, index, setup.plan.made_with, shard + 1, num_shards)
        gfile().rename(made, path)
    synced(job.output_file.rpartition("/")[0] or ".")
    return records


# ------------------------------------------------------------------------- on each machine


class Setup(NamedTuple):
    """The arguments of all steps."""

    plan: Plan
    run_folder: str  # local or remote; all machines reach it


class Tokenized(NamedTuple):
    """The number and the counts of a tokenized block."""

    index: int
    counts: Counts


def run(setup: Setup, num_blocks: int, options: Sequence[str]) -> str:
    """Runs all steps, which write to the run's folder; returns how the pipeline ended."""
    import apache_beam as beam  # not above: the steps need no Beam
    from apache_beam.options.pipeline_options import PipelineOptions

    steps = beam.Pipeline(options=PipelineOptions(options))
    blocks = steps | beam.Create(range(num_blocks)) | "SpreadText" >> beam.Reshuffle()
    tokenized = blocks | "Tokenize" >> beam.Map(tokenize, setup)
    instances = beam.FlatMap(make_instances, setup, beam.pvalue.AsList(tokenized))
    _ = (
        tokenized
        | "SpreadBlocks" >> beam.Reshuffle()
        | "Instances" >> instances.with_output_types(tuple[int, bytes])
        | "Shards" >> beam.GroupByKey()
        | "Write" >> beam.MapTuple(lambda shard, parts: write_shard(shard, parts, setup))
    )
    return steps.run().wait_until_finish()


@contextlib.contextmanager
def new_file(path: str) -> Iterator[str]:
    """Gives a temporary path; the file gets its name when it is complete.

    The path is new each time: a runner may do the same work twice at the same time.
    """
    temporary = f"{path}.{uuid.uuid4().hex}.incomplete"
    gfile().makedirs(path.rpartition("/")[0])
    yield temporary
    synced(temporary)
    gfile().rename(temporary, path, overwrite=True)


def write_value(path: str, value: Any) -> None:
    """Writes a value for another machine."""
    with new_file(path) as temporary, gfile().GFile(temporary, "wb") as file:
        file.write(pickle.dumps(value))


def read_value(path: str) -> Any:
    """A value that this run wrote."""
    with gfile().GFile(path, "rb") as file:
        return pickle.loads(file.read())


@functools.cache
def block_worker(plan: Plan) -> BlockWorker:
    """The worker of this process, the same for all steps."""
    keep_freed_memory()
    return BlockWorker(plan)


def tokenize(index: int, setup: Setup) -> Tokenized:
    """Writes the ids of a block to the run's folder; returns its counts."""
    block = read_value(f"{setup.run_folder}/text/{index}")
    tokenized, counts = block_worker(setup.plan).tokenize(block)
    write_value(f"{setup.run_folder}/blocks/{index}", tokenized)
    return Tokenized(index, counts)


def put_corpus_together(folder: pathlib.Path, run_folder: str, num_blocks: int) -> None:
    """Makes the files of the corpus from all blocks, once on each machine.

    A random next segment may come from any document, and its length decides which random numbers
    are drawn next. So every block needs the whole corpus, four bytes a token.
    """
    folder.mkdir(parents=True, exist_ok=True)
    complete = folder / CORPUS_FOLDER
    incomplete = folder / "incomplete_corpus"
    with open(folder / "corpus_lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes of this machine wait here
        if complete.exists():
            return
        shutil.rmtree(incomplete, ignore_errors=True)
        blocks = (read_value(f"{run_folder}/blocks/{index}") for index in range(num_blocks))
        for _ in write_corpus(incomplete, blocks):
            pass
        incomplete.rename(complete)


def number_of_shards(num_tokens: int, settings: DataSettings) -> int:
    """The number of files for the records of so many tokens, without --num_shards."""
    return 1 + pipeline.expected_bytes(num_tokens, settings) // SHARD_BYTES


def make_instances(
    block: Tokenized, setup: Setup, blocks: Sequence[Tokenized]
) -> Iterator[tuple[int, bytes]]:
    """Yields the rows of a block by shard: (shard, bytes of the rows, each with its key).

    Writes the counts of the block to the run's folder.

    Args:
      block: the block to make instances of.
      setup: the plan and the folder of the run.
      blocks: all blocks: this step begins when all are tokenized.
    """
    plan = setup.plan
    counts = Counts(block.counts)
    num_tokens = sum(each.counts["tokens"] for each in blocks)
    num_shards = plan.job.num_shards or number_of_shards(num_tokens, plan.job.settings)
    if num_tokens:  # otherwise there is no corpus to read; `create` reports it
        put_corpus_together(plan.working_folder, setup.run_folder, len(blocks))
        earlier = [each for each in blocks if each.index < block.index]
        first = sum(each.counts["documents"] for each in earlier)
        numbers = range(first, first + counts["documents"])
        rows = block_worker(plan).sorted_rows(block.index, numbers, len(blocks), counts)
        bounds = pipeline.split(rows, num_shards)
        for shard, (begin, end) in enumerate(itertools.pairwise(bounds)):
            if begin < end:
                yield shard, rows[begin:end].tobytes()
    write_value(f"{setup.run_folder}/counts/{block.index}", counts)


def write_shard(shard: int, parts: Iterable[bytes], setup: Setup) -> None:
    """Writes the records of a shard in the order of their keys, and their index."""
    path = f"{setup.run_folder}/shards/{shard}"
    maker = block_worker(setup.plan).maker
    rows = pipeline.in_order(np.frombuffer(b"".join(parts), maker.row_type))
    with new_file(path) as temporary:
        (index,) = outputs.write_in_turn([temporary], maker.records(rows))
    write_value(f"{path}.index", index)
