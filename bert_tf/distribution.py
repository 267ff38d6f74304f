"""What a model runs on: one device, several on this machine, or a TPU."""

import tensorflow as tf

from bert_tf.errors import InputError

STRATEGIES = ("auto", "one", "mirrored", "tpu")


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
      name: one of `STRATEGIES`. auto is tpu if `tpu` is given, mirrored if there are several GPUs
        or logical CPU devices, and else one.
      tpu: the TPU's name, its grpc:// address, or local.
      tpu_zone: the zone of the TPU, where the metadata server does not tell.
      gcp_project: the project of the TPU, likewise.
      num_cpu_devices: logical devices to split the CPU into.

    Raises:
      InputError: the devices are not to be had.
    """
    if num_cpu_devices > 1:
        _split_cpu(num_cpu_devices)
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "auto":
        name = "tpu" if tpu else "mirrored" if len(devices) > 1 else "one"
    if name == "tpu":
        return _tpu_strategy(tpu, zone=tpu_zone, project=gcp_project)
    if name == "mirrored":
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()  # the default one: this process's first device


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


def _tpu_strategy(
    tpu: str | None, *, zone: str | None, project: str | None
) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(
            tpu, zone=zone, project=project
        )
        return tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # the resolver's errors have no common class
        raise InputError(
            received=f"the TPU {tpu or '(none named)'}, which does not answer: "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            expected="the name or grpc:// address of a TPU, or `local` on a TPU virtual machine",
            remedy="check --tpu (and --tpu_zone, --gcp_project), or leave them out to run on this "
            "machine's own devices",
        ) from None
