"""Strategies (one device, several, several hosts, a TPU), and how batches get to their devices."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf import runtime, terminal
from bert_tf.data.batches import Batches
from bert_tf.errors import InputError, first_line
from bert_tf.terminal import WATCHDOG

CLUSTER = "TF_CONFIG"  # environment variable, as TensorFlow defines it


def make_strategy(
    name: str,
    *,
    tpu: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    num_cpu_devices: int = 1,
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

    Raises:
      InputError: the devices are unavailable, TF_CONFIG is invalid, or it names several processes
        and the strategy would not make them one run.
    """
    processes = 1
    if name == "multiworker" or (name != "tpu" and os.environ.get(CLUSTER)):
        processes = num_processes()
    if processes > 1 and name in ("one", "mirrored"):
        raise InputError(
            f"--strategy={name}, and {CLUSTER} with {processes} processes",
            "auto or multiworker: otherwise every process writes into the same --output_dir",
            f"leave out --strategy, or run one process without {CLUSTER}",
        )
    if name in ("auto", "multiworker"):
        name = "multiworker" if processes > 1 else "auto"
    gpus = tf.config.list_physical_devices("GPU")
    if num_cpu_devices > 1 and (gpus or name not in ("auto", "mirrored")):
        where = f"{len(gpus)} GPUs" if gpus else f"the strategy {name}"
        raise InputError(
            f"--num_cpu_devices={num_cpu_devices} with {where}",
            "--strategy=mirrored and no GPUs, which are used before the CPU",
            "leave it out, or hide the GPUs (CUDA_VISIBLE_DEVICES=-1)",
        )
    if num_cpu_devices > 1:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * num_cpu_devices,
        )
    if name == "multiworker":
        return _multi_worker_strategy(processes)
    if name == "tpu":
        return _tpu_strategy(tpu, tpu_zone, gcp_project)
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "mirrored" or (name == "auto" and len(devices) > 1):
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


def _multi_worker_strategy(processes: int) -> tf.distribute.Strategy:
    """Joins the other processes; waits until all are there."""
    task = json.loads(os.environ[CLUSTER])["task"]
    name = f"{task['type']} {task['index']}"
    terminal.name_process(name)
    runtime.expect_peers()
    # No CommunicationOptions(timeout_seconds): each collective would keep a thread for that time.
    # The constructor waits for the others to start, and no Python thread runs meanwhile.
    with WATCHDOG.without_python(f"{name}: waiting for all {processes} processes"):
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    runtime.join(strategy)
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
        here = replicas // num_pipelines
        part = {"num_parts": replicas, "first_part": pipeline * here, "parts_here": here}
        # For several hosts TensorFlow would drop the static number of rows, as the last part of a
        # finite dataset may be short. Ours never is, and nobody reads beyond the last.
        endless = tf.data.experimental.assert_cardinality(tf.data.experimental.INFINITE_CARDINALITY)
        return batches.dataset(start=start, **part).apply(endless)

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
    here = tf.DeviceSpec.from_string(tf.constant(0).device)
    if (devices[0].job, devices[0].task) == (here.job, here.task):
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
