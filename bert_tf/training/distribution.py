"""Devices and processes: strategies, batches on devices, runs on several hosts, reports of hangs.

make_strategy         one device, several, several hosts, a TPU
OneOfSeveral          this process as one of several
distributed_batches   batches, spread over the devices
HANGS                 reports what makes no progress
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

# There is no public function that tells the other processes of a run that this one has failed.
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
    """The `tf.distribute` strategy of a name; call it before TensorFlow uses a device.

    Args:
      name: one of `STRATEGIES`. auto is multiworker if TF_CONFIG names several processes, mirrored
        if there are several GPUs or logical CPU devices, otherwise one.
      tpu: for the strategy tpu: the TPU's name, its grpc:// address, or local for that of this
        machine.
      tpu_zone: the zone of the TPU, if the metadata server does not know it.
      gcp_project: the project of the TPU, likewise.

    Raises:
      InputError: the devices are unavailable, TF_CONFIG is invalid, or it names several processes,
        which a strategy of one process would not join.
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
        jobs = config["cluster"]
        task = config["task"]
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
    # The constructor waits for the others to start, and no Python thread runs meanwhile: if it
    # hangs, only the stacks are reported, not the message.
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
SECONDS_TO_READ = 1  # peers may still fetch this process's part of a collective when it ends
# The errors that TensorFlow raises in the other processes if one is lost.
_LOSS_ERRORS = re.compile(
    "(Unavailable|Aborted|Cancelled|DeadlineExceeded|FailedPrecondition|Internal|Unknown)Error"
)


class OneOfSeveral(runtime.Alone):
    """This process as one of several, each of which trains on its part of every batch.

    It is set as `runtime.process` before `join`: waiting for the others may fail, too.
    """

    def join(self, strategy: tf.distribute.Strategy) -> None:
        """Connects this process with the others of a strategy."""

        def on_replica(number):
            return tf.distribute.get_replica_context().all_gather(number[None], axis=0)

        self._strategy = strategy
        self._gather = tf.function(lambda number: strategy.run(on_replica, args=(number,)))
        self.has_peers = True
        self.is_chief = strategy.extended._is_chief

    def all_gather(self, number: int) -> list[int]:
        """The numbers of all processes, in their order; waits for all."""
        with HANGS.watched("wait for the other processes"):
            gathered = self._gather(tf.constant(number, tf.int64))
            return self._strategy.experimental_local_results(gathered)[0].numpy().tolist()

    def check_same(self, numbers: Mapping[str, int]) -> None:
        """Raises InputError in every process if a number differs between processes."""
        for name, number in numbers.items():
            if len(set(self.all_gather(number))) > 1:
                self.leave()
                received = f"other {name} in this process than in another one of the run"
                remedy = "give all of them the same command and the same files"
                raise InputError(received, "the same in all processes", remedy)

    def leave(self) -> None:
        """Waits until all other processes are done, then leaves the run."""
        with contextlib.suppress(tf.errors.OpError):  # the others have ended already
            self.all_gather(0)
        time.sleep(SECONDS_TO_READ)

    def tell_failure(self) -> None:
        """Makes the other processes fail, as this one has; otherwise they would wait for it."""
        if self.has_peers:
            time.sleep(SECONDS_TO_READ)
            with contextlib.suppress(tf.errors.OpError):  # the others have failed, too
                context.context().report_error_to_cluster(tf.errors.FAILED_PRECONDITION, FAILURE)
            time.sleep(SECONDS_TO_READ)

    def ending(self, error: BaseException) -> tuple[int, str] | None:
        """The exit code and message for an error that another process has caused, else None.

        Without a lost process the others cannot continue, nor can it join them again.
        """
        kind = type(error).__name__
        if not _LOSS_ERRORS.fullmatch(kind):
            return None
        if FAILURE in str(error):
            time.sleep(SECONDS_TO_READ)
            return 1, "failed, as another process of this run did: its log says why"
        reason = (str(error).strip() or kind).splitlines()[-1]
        return 1, (
            "failed: another process of this run was lost, or does not answer "
            f"({kind}: {reason}).\n"
            "Start all processes again: the same command resumes from the last checkpoint."
        )


# ---------------------------------------------------------------------------- batches to devices


def distributed_batches(
    strategy: tf.distribute.Strategy, batches: Batches, *, start: int = 0
) -> Iterator[Any]:
    """An iterator over batches, each split evenly over the replicas.

    Args:
      strategy: the devices.
      batches: the batches of records.
      start: number of the first batch.
    """
    num_parts = strategy.num_replicas_in_sync

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        parts_here = num_parts // context.num_input_pipelines
        first_part = context.input_pipeline_id * parts_here
        dataset = batches.dataset(
            start=start, num_parts=num_parts, first_part=first_part, parts_here=parts_here
        )
        # With several hosts TensorFlow drops the static number of rows of a finite dataset, whose
        # last part may be short. Ours never is, and nothing reads beyond the last batch.
        endless = tf.data.experimental.assert_cardinality(tf.data.experimental.INFINITE_CARDINALITY)
        return dataset.apply(endless)

    hosts = remote_hosts(strategy)
    if hosts:
        parts = iter(dataset(tf.distribute.InputContext()))
        return _sent_batches(strategy, parts, hosts)
    return iter(strategy.distribute_datasets_from_function(dataset))


def _sent_batches(
    strategy: tf.distribute.Strategy, parts: Iterator, hosts: Sequence[str]
) -> Iterator[Any]:
    """Batches whose parts this process makes, and sends to the machines of the replicas."""

    def send(context: tf.distribute.experimental.ValueContext) -> Any:
        part = next(parts)
        with tf.device(hosts[context.replica_id_in_sync_group]):
            return {name: tf.identity(value) for name, value in part.items()}

    while True:
        yield strategy.experimental_distribute_values_from_function(send)


def remote_hosts(strategy: tf.distribute.Strategy) -> list[str]:
    """The CPU of each replica's machine if another process has the devices; otherwise []."""
    try:
        devices = [tf.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]
    except RuntimeError:  # the default strategy has no such list; its device is of this process
        return []
    here = tf.DeviceSpec.from_string(tf.constant(0).device)
    if (devices[0].job, devices[0].task) == (here.job, here.task):
        return []
    return [device.replace(device_type="CPU", device_index=0).to_string() for device in devices]


def on_remote_host(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager:
    """A context in which operations run on the machine of the devices, if it is not this one.

    They need their tensors there: that machine may be unable to fetch values from this one.
    """
    hosts = remote_hosts(strategy)
    return tf.device(hosts[0]) if hosts else contextlib.nullcontext()


def on_this_host(variable: tf.Variable) -> tf.Tensor:
    """The value of a variable in this host's memory; a variable on its CPU is not copied."""
    value = variable.read_value()
    with tf.device("CPU:0"):
        return tf.identity(value)


# ---------------------------------------------------------------------------- hangs

COMPILING = 3  # the limit is so many times as long for a call that compiles
SLOWER = 5  # a call is no hang until it takes so many times its usual duration
SECONDS_TO_LOG = 1.0  # between the message and the stacks
_HANG = """\
No progress for %s: %s, in process %d on %s.
Usual causes: a device, a file system or another process of the run hangs; or steps are slow.
To do: see below where it waits; of several processes the one whose log is silent, or tells of
another place, is the cause. The same command resumes from the last checkpoint. For slow steps
raise --hang_seconds."""


class Hangs:
    """Reports what makes no progress: a message, then the stacks of all threads.

    `faulthandler` writes the stacks even if C code keeps all Python threads from running.

    Attributes:
      limit: seconds without progress; 0 reports nothing.
    """

    limit = 0.0

    @contextlib.contextmanager
    def watched(self, task: str, *, usual: float = 0.0, compiles: bool = False) -> Iterator[None]:
        """Reports a hang of the code in this context; an inner context replaces an outer one.

        Args:
          task: the name of what the code does, for the message.
          usual: seconds that it usually takes; 0: unknown.
          compiles: whether it compiles something.
        """
        seconds = max(self.limit * (COMPILING if compiles else 1), SLOWER * usual)
        arguments = (_HANG, duration(seconds), task, os.getpid(), socket.gethostname())
        message = threading.Timer(seconds, logging.warning, arguments)
        message.daemon = True
        if self.limit:
            message.start()
            faulthandler.dump_traceback_later(seconds + SECONDS_TO_LOG, repeat=True, file=2)
        try:
            yield
        finally:
            message.cancel()
            faulthandler.cancel_dump_traceback_later()

    @contextlib.contextmanager
    def progress(self) -> Iterator[Callable[..., None]]:
        """Yields a function with the arguments of `watched`, to be called at each progress.

        It restarts the watch at most once a second, as this takes half a millisecond, too long for
        each batch of a prediction.
        """
        last = 0.0  # when the watch was restarted

        def doing(task: str, *, compiles: bool = False) -> None:
            nonlocal last
            if compiles or time.monotonic() > last + 1:
                stack.close()
                stack.enter_context(self.watched(task, compiles=compiles))
                last = 0.0 if compiles else time.monotonic()

        with contextlib.ExitStack() as stack:
            yield doing


HANGS = Hangs()
