"""Strategies (one device, several, several hosts, a TPU), and how batches get to their devices.

Also the processes of a run on several hosts, and reports of what hangs.
"""

import contextlib
import faulthandler
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

# TensorFlow exports no other way to tell the processes of a run that one has failed.
from tensorflow.python.eager import context

from bert_tf import runtime, terminal
from bert_tf.data.batches import Batches
from bert_tf.errors import InputError, first_line, shortened
from bert_tf.terminal import duration

CLUSTER = "TF_CONFIG"  # environment variable, as TensorFlow defines it


def make_strategy(
    name: str,
    *,
    tpu: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
) -> tf.distribute.Strategy:
    """The `tf.distribute` strategy of that name. To be called before TensorFlow uses a device.

    Args:
      name: one of `STRATEGIES`. auto is multiworker if TF_CONFIG names several processes, mirrored
        if there are several GPUs or logical CPU devices, otherwise one.
      tpu: for the strategy tpu: the TPU's name, its grpc:// address, or local, that of this
        machine.
      tpu_zone: the zone of the TPU, if the metadata server does not know it.
      gcp_project: the project of the TPU, likewise.

    Raises:
      InputError: the devices are unavailable, TF_CONFIG is invalid, or it names several processes
        and the strategy would not make them one run.
    """
    processes = 1
    if name == "multiworker" or (name != "tpu" and os.environ.get(CLUSTER)):
        processes = num_processes()
    if processes > 1 and name in ("one", "mirrored"):
        received = f"--strategy={name}, and {CLUSTER} with {processes} processes"
        expected = "auto or multiworker: otherwise every process writes into the same --output_dir"
        remedy = f"leave out --strategy, or run one process without {CLUSTER}"
        raise InputError(received, expected, remedy)
    if name in ("auto", "multiworker"):
        name = "multiworker" if processes > 1 else "auto"
    if name == "multiworker":
        return _multi_worker_strategy(processes)
    if name == "tpu":
        return _tpu_strategy(tpu, tpu_zone, gcp_project)
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name in ("auto", "mirrored") and len(devices) > 1:
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()  # the default one: this process's first device


def num_processes() -> int:
    """The number of processes that TF_CONFIG names.

    Raises:
      InputError: it is invalid.
    """
    text = os.environ.get(CLUSTER, "")
    try:
        config = json.loads(text)
        jobs, task = config["cluster"], config["task"]
        if not set(jobs) <= {"chief", "worker"}:
            raise ValueError(f"the jobs {', '.join(jobs)}")
        addresses = jobs[task["type"]]
        if not 0 <= task["index"] < len(addresses):
            raise ValueError(f"task {task['index']} of {len(addresses)}")
        return sum(map(len, jobs.values()))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{CLUSTER}={shortened(text, 300) or '(not set)'} ({type(error).__name__}: {error})",
            '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
            '"task": {"type": "worker", "index": 0}}; the jobs are worker and, if any, chief',
            "set it like this for every process, each with its own index; for a single process "
            "unset it, and leave out --strategy=multiworker",
        ) from None


def _multi_worker_strategy(processes: int) -> tf.distribute.Strategy:
    """Joins the other processes; waits until all are there."""
    task = json.loads(os.environ[CLUSTER])["task"]
    name = f"{task['type']} {task['index']}"
    terminal.name_process(name)
    process = runtime.process = OneOfSeveral()
    # No CommunicationOptions(timeout_seconds): each collective would keep a thread for that time.
    # The constructor waits for the others to start, and no Python thread runs meanwhile: of a hang
    # there only come the stacks.
    logging.info("%s: waiting for all %d processes.", name, processes)
    with HANGS.watched("wait for the other processes to start"):
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    process.join(strategy)
    runtime.barrier()
    logging.info("All %d processes have started.", processes)
    return strategy


def _tpu_strategy(tpu: str | None, zone: str | None, project: str | None) -> Any:
    """Connects to a TPU. Operations without a device stay in this process, wherever the TPU is."""
    resolvers = tf.distribute.cluster_resolver
    try:
        if tpu == "local":
            return tf.distribute.TPUStrategy(resolvers.TPUClusterResolver.connect(tpu))
        resolver = resolvers.TPUClusterResolver(tpu, zone=zone, project=project)
        tf.config.experimental_connect_to_cluster(resolver, make_master_device_default=False)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # the resolver's errors have no common class
        raise InputError(
            f"the TPU {tpu or '(none named)'}, which does not answer: "
            f"{type(error).__name__}: {first_line(error)}",
            "its name, grpc:// address or `local`, and a TensorFlow that was built for TPUs",
            "check --tpu, --tpu_zone and --gcp_project, or leave out --tpu, --use_tpu and "
            "--strategy=tpu",
        ) from None


# ---------------------------------------------------------------------------- several processes

FAILURE = "bert_tf: a process has failed"  # the text of the error that `tell_failure` causes
SECONDS_TO_READ = 1  # before the end: peers may still be fetching its part of a collective
# What TensorFlow raises in the others when a process is gone.
_OF_LOSS = re.compile(
    "(Unavailable|Aborted|Cancelled|DeadlineExceeded|FailedPrecondition|Internal|Unknown)Error"
)


class OneOfSeveral(runtime.Alone):
    """This process as one of several, each of which trains on its part of every batch.

    Errors may come from losing another one even before this one has joined them.
    """

    def join(self, strategy: tf.distribute.Strategy) -> None:
        """Shares the strategy with the others from now on."""

        def on_replica(number):
            return tf.distribute.get_replica_context().all_gather(number[None], axis=0)

        self._strategy = strategy
        self._gather = tf.function(lambda number: strategy.run(on_replica, args=(number,)))
        self.has_peers, self.is_chief = True, strategy.extended._is_chief

    def all_gather(self, number: int) -> list[int]:
        """The numbers of all processes, in their order; waits for all."""
        with HANGS.watched("wait for the other processes"):
            gathered = self._gather(tf.constant(number, tf.int64))
            return self._strategy.experimental_local_results(gathered)[0].numpy().tolist()

    def check_same(self, numbers: Mapping[str, int]) -> None:
        """Raises InputError in every process if one of the numbers differs between processes."""
        for name, number in numbers.items():
            if len(set(self.all_gather(number))) > 1:
                self.leave()
                received = f"other {name} in this process than in another one of the run"
                remedy = "give all of them the same command and the same files"
                raise InputError(received, "the same in all processes", remedy)

    def leave(self) -> None:
        """Waits until all other processes are done, then leaves the run."""
        with contextlib.suppress(tf.errors.OpError):  # they have passed it, and ended
            self.all_gather(0)
        time.sleep(SECONDS_TO_READ)

    def tell_failure(self) -> None:
        """Ends what the processes compute together: this one has failed, and would fail again.

        The others would wait for it otherwise, as for one that was lost.
        """
        if self.has_peers:
            time.sleep(SECONDS_TO_READ)
            with contextlib.suppress(tf.errors.OpError):  # they have failed as well
                context.context().report_error_to_cluster(tf.errors.FAILED_PRECONDITION, FAILURE)
            time.sleep(SECONDS_TO_READ)

    def ending(self, error: BaseException) -> tuple[int, str] | None:
        """The exit code and message for an error that another process has caused, else None.

        The processes cannot go on without a lost one, nor take it in again while they run.
        """
        kind, again = type(error).__name__, "the same command resumes from the last checkpoint."
        if not _OF_LOSS.fullmatch(kind):
            return None
        if FAILURE in str(error):
            time.sleep(SECONDS_TO_READ)
            return 1, "failed, as another process of this run did: its log says why"
        reason = (str(error).strip() or kind).splitlines()[-1]
        lost = f"another process of this run was lost, or does not answer ({kind}: {reason})."
        return 1, f"failed: {lost}\nStart all processes again: {again}"


# ---------------------------------------------------------------------------- batches to devices


def distributed_batches(
    strategy: tf.distribute.Strategy, batches: Batches, *, start: int = 0
) -> Iterator[Any]:
    """An iterator over batches, each split evenly over the replicas.

    Args:
      strategy: the devices.
      batches: of records.
      start: number of the first batch.
    """
    replicas = strategy.num_replicas_in_sync

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        parts_here = replicas // context.num_input_pipelines
        first_part = context.input_pipeline_id * parts_here
        shares = {"num_parts": replicas, "first_part": first_part, "parts_here": parts_here}
        # For several hosts TensorFlow would drop the static number of rows, as the last part of a
        # finite dataset may be short. Ours never is, and nobody reads beyond the last.
        endless = tf.data.experimental.assert_cardinality(tf.data.experimental.INFINITE_CARDINALITY)
        return batches.dataset(start=start, **shares).apply(endless)

    hosts = remote_hosts(strategy)
    if hosts:
        return _sent(strategy, iter(dataset(tf.distribute.InputContext())), hosts)
    return iter(strategy.distribute_datasets_from_function(dataset))


def _sent(strategy: tf.distribute.Strategy, parts: Iterator, hosts: Sequence[str]) -> Iterator[Any]:
    """Batches whose parts are made in this process, each sent to the machine of its replica."""

    def send(context: tf.distribute.experimental.ValueContext) -> Any:
        part = next(parts)
        with tf.device(hosts[context.replica_id_in_sync_group]):
            return {name: tf.identity(value) for name, value in part.items()}

    while True:
        yield strategy.experimental_distribute_values_from_function(send)


def remote_hosts(strategy: tf.distribute.Strategy) -> list[str]:
    """The CPU beside each replica's device if the devices are of other processes, else nothing."""
    try:
        devices = [tf.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]
    except RuntimeError:  # the default strategy, this process's first device, has no such list
        return []
    own = tf.DeviceSpec.from_string(tf.constant(0).device)
    if (devices[0].job, devices[0].task) == (own.job, own.task):
        return []
    return [device.replace(device_type="CPU", device_index=0).to_string() for device in devices]


def on_remote_host(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager:
    """A context in which operations run on the machine of the devices, if that is another one.

    Their tensors must be there: that machine answers this one, but may not be able to ask it for a
    value.
    """
    hosts = remote_hosts(strategy)
    return tf.device(hosts[0]) if hosts else contextlib.nullcontext()


def on_this_host(variable: tf.Variable) -> tf.Tensor:
    """The value of a variable in this host's memory; that of a CPU's is not copied."""
    value = variable.read_value()
    with tf.device("CPU:0"):
        return tf.identity(value)


# ---------------------------------------------------------------------------- hangs

COMPILING = 3  # times the limit, for what compiles something first
SLOWER = 5  # times the usual duration, where that is known, are no hang
SECONDS_TO_LOG = 1.0  # from the message to the stacks
_HANG = """\
No progress for %s: %s, in process %d on %s.
Usual causes: a device, a file system or another process of the run hangs; or steps are slow.
To do: see below where it waits; of several processes the one whose log is silent, or tells of
another place, is the cause. The same command resumes from the last checkpoint. For slow steps
raise --hang_seconds."""


class Hangs:
    """Reports what makes no progress: a message, then the stacks of all threads.

    The stacks come by `faulthandler`, also where C code lets no Python thread run.

    Attributes:
      limit: seconds without progress; 0 reports nothing.
    """

    limit = 0.0

    @contextlib.contextmanager
    def watched(self, what: str, *, usual: float = 0.0, compiles: bool = False) -> Iterator[None]:
        """Watches what is done within this context; within another one it takes its place.

        Args:
          what: is done.
          usual: seconds that it takes, if known.
          compiles: whether it compiles something first.
        """
        seconds = max(self.limit * (COMPILING if compiles else 1), SLOWER * usual)
        said = (_HANG, duration(seconds), what, os.getpid(), socket.gethostname())
        message = threading.Timer(seconds, logging.warning, said)
        message.daemon = True
        if self.limit:
            message.start()
            seconds += SECONDS_TO_LOG
            faulthandler.dump_traceback_later(seconds, repeat=True, file=2)
        try:
            yield
        finally:
            message.cancel()
            faulthandler.cancel_dump_traceback_later()

    @contextlib.contextmanager
    def progress(self) -> Iterator[Callable[..., None]]:
        """Gives a function to be called at each progress, as `watched`, however often.

        To watch each batch of a prediction anew takes half a millisecond: it is done each second.
        """
        since = 0.0

        def doing(what: str, *, compiles: bool = False) -> None:
            nonlocal since
            if compiles or time.monotonic() > since + 1:
                stack.close()
                stack.enter_context(self.watched(what, compiles=compiles))
                since = 0.0 if compiles else time.monotonic()

        with contextlib.ExitStack() as stack:
            yield doing


HANGS = Hangs()
