"""Strategies (one device, several, several hosts, a TPU), and how batches get to their devices.

Also the processes of a run on several hosts, and reports of what hangs.
"""

import contextlib
import faulthandler
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

# TensorFlow exports no other way to tell the processes of a run that one has failed.
from tensorflow.python.eager import context

from bert_tf import runtime, terminal
from bert_tf.data.batches import Batches
from bert_tf.errors import InputError, first_line
from bert_tf.terminal import SCREEN, duration

CLUSTER = "TF_CONFIG"  # environment variable, as TensorFlow defines it


def make_strategy(
    name: str,
    *,
    tpu: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    num_cpu_devices: int = 1,
    max_restarts: int = 0,
) -> tf.distribute.Strategy:
    """The `tf.distribute` strategy of that name. To be called before TensorFlow uses a device.

    Args:
      name: one of `STRATEGIES`. auto is multiworker if TF_CONFIG names several processes, mirrored
        if there are several GPUs or logical CPU devices, otherwise one.
      tpu: for the strategy tpu: the TPU's name, its grpc:// address, or local, that of this
        machine.
      tpu_zone: the zone of the TPU, if the metadata server does not know it.
      gcp_project: the project of the TPU, likewise.
      num_cpu_devices: logical devices to split the CPU into, for mirrored.
      max_restarts: for multiworker: how often a process restarts after another one was lost.

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
    gpus = tf.config.list_physical_devices("GPU")
    if num_cpu_devices > 1 and (gpus or name not in ("auto", "mirrored")):
        where = f"{len(gpus)} GPUs" if gpus else f"the strategy {name}"
        received = f"--num_cpu_devices={num_cpu_devices} with {where}"
        expected = "--strategy=mirrored and no GPUs, which are used before the CPU"
        remedy = "leave it out, or hide the GPUs (CUDA_VISIBLE_DEVICES=-1)"
        raise InputError(received, expected, remedy)
    if num_cpu_devices > 1:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * num_cpu_devices,
        )
    if name == "multiworker":
        return _multi_worker_strategy(processes, max_restarts)
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
            f"{CLUSTER}={text[:300] or '(not set)'} ({type(error).__name__}: {error})",
            '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
            '"task": {"type": "worker", "index": 0}}; the jobs are worker and, if any, chief',
            "set it like this for every process, each with its own index; for a single process "
            "unset it, and leave out --strategy=multiworker",
        ) from None


def _multi_worker_strategy(processes: int, max_restarts: int) -> tf.distribute.Strategy:
    """Joins the other processes; waits until all are there."""
    task = json.loads(os.environ[CLUSTER])["task"]
    name = f"{task['type']} {task['index']}"
    terminal.name_process(name)
    process = runtime.process = OneOfSeveral(max_restarts)
    # No CommunicationOptions(timeout_seconds): each collective would keep a thread for that time.
    # The constructor waits for the others to start, and no Python thread runs meanwhile.
    with WATCHDOG.without_python(f"{name}: waiting for all {processes} processes"):
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

RESTARTS = "BERT_TF_RESTARTS"  # environment variable: how often this process has restarted
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

    def __init__(self, max_restarts: int):
        self._max_restarts = max_restarts

    def join(self, strategy: tf.distribute.Strategy) -> None:
        """Shares the strategy with the others from now on."""

        def on_replica(number):
            return tf.distribute.get_replica_context().all_gather(number[None], axis=0)

        self._strategy = strategy
        self._gather = tf.function(lambda number: strategy.run(on_replica, args=(number,)))
        self.has_peers, self.is_chief = True, strategy.extended._is_chief

    def all_gather(self, number: int) -> list[int]:
        """The numbers of all processes, in their order; waits for all."""
        with WATCHDOG.watched("wait for the other processes"):
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

        If another process was lost, this one restarts instead, unless it has done so too often.
        """
        kind, again = type(error).__name__, "the same command resumes from the last checkpoint."
        if not _OF_LOSS.fullmatch(kind):
            return None
        if FAILURE in str(error):
            time.sleep(SECONDS_TO_READ)
            return 1, "failed, as another process of this run did: its log says why"
        if number := runtime.signal_came():
            code, name = runtime.Interrupted(0, "", number).code, runtime.name_of_signal(number)
            return code, f"ended by {name}. Another process of this run was lost; {again}"
        reason = (str(error).strip() or kind).splitlines()[-1]
        lost = f"another process of this run was lost, or does not answer ({kind}: {reason})."
        self.restart(lost)
        return 1, f"failed: {lost}\nStart all processes again: {again}"

    def restart(self, reason: str) -> None:
        """Restarts this process after another one was lost; returns if it has done so too often.

        The processes cannot go on without the lost one, nor take it in again while they run. So
        each restarts, waits for all, and resumes from the last checkpoint.

        Args:
          reason: how the loss was noticed, for the log.
        """
        number = int(os.environ.get(RESTARTS, "0")) + 1
        if number > self._max_restarts:
            return
        logging.warning("Restart %d of at most %d: %s", number, self._max_restarts, reason)
        logging.flush()
        sys.stdout.flush()
        time.sleep(2)  # so that the others notice as well
        os.environ[RESTARTS] = str(number)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


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

    def dataset(pipeline: int = 0, num_pipelines: int = 1) -> tf.data.Dataset:
        own = replicas // num_pipelines
        shares = {"num_parts": replicas, "first_part": pipeline * own, "parts_here": own}
        # For several hosts TensorFlow would drop the static number of rows, as the last part of a
        # finite dataset may be short. Ours never is, and nobody reads beyond the last.
        endless = tf.data.experimental.assert_cardinality(tf.data.experimental.INFINITE_CARDINALITY)
        return batches.dataset(start=start, **shares).apply(endless)

    def on_host(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return dataset(context.input_pipeline_id, context.num_input_pipelines)

    if hosts := remote_hosts(strategy):
        return _sent(strategy, iter(dataset()), hosts)
    return iter(strategy.distribute_datasets_from_function(on_host))


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

# Reports a hang: something that is watched makes no progress.
#
#     with WATCHDOG.watched("evaluate") as watch:
#         for number in range(51):
#             watch.doing(f"evaluate, batch {number + 1} of 51")      this is progress
#             ...
#
# The log then says what hangs, for how long, in which process, and what to do; the stacks of all
# Python threads follow. Nothing is watched before `set_limit`.

COMPILING = 3  # times the limit, for what compiles something first
SLOWER = 5  # times the usual duration, where that is known, are no hang
LONGEST_PAUSE = 10.0  # seconds between two looks
_HANG = """\
No progress for %s: %s, in process %d on %s.
Usual causes: a device, a file system or another process of the run hangs; or steps are slow.
To do: see below where it waits; of several processes the one whose log is silent, or tells of
another place, is the cause. The same command resumes from the last checkpoint. For slow steps
raise --hang_seconds.%s
Where its threads are (the main one comes last):"""


class Watch:
    """Something that is to make progress.

    Attributes:
      what: it does now.
      seconds: for how long, counted at each look: none pass while this process is stopped.
      report_after: seconds that it may take before the next report.
    """

    def __init__(self, limit: float, what: str, **options: Any):
        self._limit = limit
        self.doing(what, **options)

    def doing(self, what: str, *, usual: float = 0.0, compiles: bool = False) -> None:
        """Call it at each progress.

        Args:
          what: is done from now on.
          usual: seconds that it takes, if known.
          compiles: whether it compiles something first.
        """
        self.report_after = max(self._limit * (COMPILING if compiles else 1), SLOWER * usual)
        self.what, self.seconds = what, 0.0


class Watchdog:
    """Watches this process; there is one, `WATCHDOG`."""

    def __init__(self):
        self._limit, self._ends = 0.0, False
        self._watches: list[Watch] = []  # the innermost last

    def set_limit(self, seconds: float, *, ends: bool = False) -> None:
        """Sets what counts as a hang, and starts the thread that looks.

        Args:
          seconds: without progress; 0 watches nothing.
          ends: whether the process ends then, with exit code 1.
        """
        begins = seconds and not self._limit
        self._limit, self._ends = seconds, ends
        if begins:
            threading.Thread(target=self._look, daemon=True).start()

    @contextlib.contextmanager
    def watched(self, what: str, **options: Any) -> Iterator[Watch]:
        """Watches what is done within this context; of nested ones only the innermost.

        Args:
          what: as for `Watch.doing`.
          **options: likewise.
        """
        watch = Watch(self._limit, what, **options)
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)
            for around in self._watches[-1:]:
                around.seconds = 0.0  # the end of `watch` is progress

    @contextlib.contextmanager
    def without_python(self, what: str) -> Iterator[None]:
        """Watches a call into C during which no Python thread runs, so `watched` would not see it.

        Logs `what` before the call; if that hangs, only the stacks can be written.

        Args:
          what: what the process is doing, for the log.
        """
        logging.info("%s.", what)
        if self._limit:
            faulthandler.dump_traceback_later(self._limit, repeat=True, file=2, exit=self._ends)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _look(self) -> None:
        while self._limit:
            time.sleep(pause := min(self._limit / 4, LONGEST_PAUSE))
            for watch in self._watches[-1:]:
                watch.seconds += pause
                if watch.seconds >= watch.report_after:
                    watch.report_after = 2 * watch.seconds
                    self._report(watch.what, duration(watch.seconds))

    def _report(self, what: str, how_long: str) -> None:
        if self._ends:  # also where the log itself is what hangs
            threading.Timer(LONGEST_PAUSE, os._exit, [1]).start()
        end = "\nThe process ends, as --end_when_hung asks." * self._ends
        logging.warning(_HANG, how_long, what, os.getpid(), socket.gethostname(), end)
        logging.flush()
        with SCREEN.line():
            faulthandler.dump_traceback(file=2)
        if self._ends:
            os._exit(1)


WATCHDOG = Watchdog()
