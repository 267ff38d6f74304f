"""What a model runs on: one device, several on this machine or on several, or a TPU."""

import json
import os

import tensorflow as tf
from absl import logging

from bert_tf import cluster
from bert_tf.errors import InputError

CLUSTER = "TF_CONFIG"  # environment variable, as TensorFlow defines it
# No step waits so long for another process: one that lives but does nothing ends the run.
LONGEST_WAIT = 3600.0  # seconds


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
        if there are several GPUs or logical CPU devices, and else one.
      tpu: of the strategy tpu, the TPU's name, its grpc:// address, or local, that of this machine.
      tpu_zone: the zone of the TPU, where the metadata server does not tell.
      gcp_project: the project of the TPU, likewise.
      num_cpu_devices: logical devices to split the CPU into, for mirrored.

    Raises:
      InputError: the devices are not to be had, TF_CONFIG is none, or it names several processes
        that this strategy would not make one run.
    """
    if name == "multiworker" or (name == "auto" and os.environ.get(CLUSTER)):
        name = "multiworker" if num_processes() > 1 else "auto"
    if name in ("one", "mirrored") and os.environ.get(CLUSTER) and num_processes() > 1:
        raise InputError(
            received=f"--strategy={name}, and {CLUSTER} with {num_processes()} processes",
            expected="auto or multiworker, so that they are one run: each alone would write into "
            "the same --output_dir",
            remedy=f"leave out --strategy, or run one process without {CLUSTER}",
        )
    if num_cpu_devices > 1:
        _refuse_cpu_devices(name, num_cpu_devices)
        _split_cpu(num_cpu_devices)
    if name == "multiworker":
        return _multi_worker_strategy()
    if name == "tpu":
        return _tpu_strategy(tpu, zone=tpu_zone, project=gcp_project)
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "mirrored" or (name == "auto" and len(devices) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()  # the default one: this process's first device


def _refuse_cpu_devices(name: str, num_devices: int) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if gpus or name not in ("auto", "mirrored"):
        where = f"{len(gpus)} GPUs" if gpus else f"the strategy {name}"
        raise InputError(
            received=f"--num_cpu_devices={num_devices} with {where}",
            expected="it with mirrored and without GPUs, which go before the CPU",
            remedy="leave out --num_cpu_devices, or use --strategy=mirrored and hide the GPUs "
            "(CUDA_VISIBLE_DEVICES=-1)",
        )


def _split_cpu(num_devices: int) -> None:
    try:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * num_devices,
        )
    except RuntimeError as error:
        raise RuntimeError(
            "make_strategy must come before the first TensorFlow operation"
        ) from error


def num_processes() -> int:
    """How many processes TF_CONFIG names.

    Raises:
      InputError: it is not as it must be.
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
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            received=f"{CLUSTER}={text or '(not set)'} ({type(error).__name__}: {error})",
            expected="the cluster and this process's task in JSON, as in "
            '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
            '"task": {"type": "worker", "index": 0}}; the jobs are worker and, if any, chief',
            remedy=f"set {CLUSTER} so for every process, each with its own index; for a process "
            "alone unset it, and leave out --strategy=multiworker",
        ) from None


def _multi_worker_strategy() -> tf.distribute.Strategy:
    """Waits until every process is there."""
    task = json.loads(os.environ[CLUSTER])["task"]
    logging.info(
        "%s %d of %d processes: waiting for all.", task["type"], task["index"], num_processes()
    )
    cluster.expect_peers()
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=LONGEST_WAIT)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    cluster.join(strategy)
    cluster.barrier()
    logging.info("All %d processes are there.", num_processes())
    return strategy


def _tpu_strategy(
    tpu: str | None, *, zone: str | None, project: str | None
) -> tf.distribute.Strategy:
    """What names no device runs in this process, also where the TPU is of another machine."""
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
            received=f"the TPU {tpu or '(none named)'}, which does not answer: "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            expected="the name or grpc:// address of a TPU, or `local` on a TPU virtual machine, "
            "with a TensorFlow that was built for TPUs",
            remedy="check --tpu, --tpu_zone and --gcp_project, or leave out --tpu, --use_tpu and "
            "--strategy=tpu to run on this machine's other devices",
        ) from None


def remote_hosts(strategy: tf.distribute.Strategy) -> list[str]:
    """The CPU beside each replica's device, if the devices are of other processes; else none."""
    try:
        devices = [tf.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]
    except RuntimeError:  # the default strategy, this process's first device, has no such list
        return []
    here = tf.DeviceSpec.from_string(tf.constant(0).device)
    if (devices[0].job, devices[0].task) == (here.job, here.task):
        return []
    return [device.replace(device_type="CPU", device_index=0).to_string() for device in devices]
