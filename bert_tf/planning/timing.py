"""Seconds of a step: the roofline of each part, and the all-reduce of gradients."""

import dataclasses
import math
from typing import NamedTuple

from bert_tf.errors import InputError
from bert_tf.planning.work import Part, step_parts
from bert_tf.planning.workload import FLOAT32, Workload


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """A device's speed from its data sheet, and the share of it that matrix products reach.

    Raises:
      InputError: a figure is not a positive number.
    """

    flops_per_second: float  # in the precision of the layers
    bytes_per_second: float  # of its memory
    efficiency: float = 0.5  # share of flops_per_second that products reach
    link_bytes_per_second: float = 0.0  # to its neighbour in a ring; 0: a single device
    link_seconds: float = 1e-5  # latency of a message

    def __post_init__(self):
        flags = {"device_tflops": self.flops_per_second, "device_gb_per_s": self.bytes_per_second}
        for name, value in {**flags, "efficiency": self.efficiency}.items():
            if not 0 < value < math.inf:
                raise InputError(
                    f"a device with --{name}={value:g}",
                    "numbers above 0 for --device_tflops, --device_gb_per_s and --efficiency",
                    f"give --{name}, from the device's data sheet",
                )


class StepTime(NamedTuple):
    """Seconds of a step."""

    parts: list[tuple[Part, float]]
    compute: float  # the sum of the parts
    all_reduce: float

    @property
    def total(self) -> float:
        """Computation, then all-reduce: the trainer does not overlap them."""
        return self.compute + self.all_reduce

    @property
    def scaling_efficiency(self) -> float:
        """Examples/s of a device relative to a single device, which exchanges nothing."""
        return self.compute / self.total


def step_time(workload: Workload, device: Device) -> StepTime:
    """The expected time of a training step.

    Raises:
      InputError: several devices without a link between them.
    """
    parts = [(part, part_seconds(part, device)) for part in step_parts(workload)]
    exchange = 0.0
    if workload.num_replicas > 1:
        if not device.link_bytes_per_second > 0:
            raise InputError(
                f"--num_replicas={workload.num_replicas} without --link_gb_per_s",
                "how fast a device sends gradients to its neighbour",
                "add --link_gb_per_s",
            )
        size = FLOAT32 * workload.parameters()
        exchange = all_reduce_seconds(size, workload.num_replicas, device)
    return StepTime(parts, sum(seconds for _, seconds in parts), exchange)


def part_seconds(part: Part, device: Device) -> float:
    """Products by FLOPs or by bytes, whichever takes longer; everything else by bytes."""
    by_flops = part.matmul_flops / (device.flops_per_second * device.efficiency)
    by_bytes = part.matmul_bytes / device.bytes_per_second
    return max(by_flops, by_bytes) + part.moved_bytes / device.bytes_per_second


def all_reduce_bytes(size: int, devices: int) -> float:
    """Bytes that each of N devices sends in a ring: (N - 1) / N of the sums, then of results."""
    return 2 * (devices - 1) / devices * size


def all_reduce_seconds(size: int, devices: int, device: Device) -> float:
    """A ring's time for `size` bytes: every link is busy all the time, in 2 (N - 1) rounds."""
    seconds_of_bytes = all_reduce_bytes(size, devices) / device.link_bytes_per_second
    return seconds_of_bytes + 2 * (devices - 1) * device.link_seconds
