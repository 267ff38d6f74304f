"""Accelerators by name: their published figures, and how to reach their compilers."""

import dataclasses
import pathlib

GIB = 1 << 30
STEPS = ("train", "evaluate", "predict")  # programs that a training script runs on a device
# The share of a GPU's memory up to which XLA takes a program as it is: 95 % of 80 %. Beyond it XLA
# recomputes parts of the program by itself; and libraries need memory too.
GPU_SHARE = 0.95 * 0.8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerator:
    """What a TensorFlow replica runs on: a chip, of a TPU v4 one of the two cores of a chip.

    Rates are those of the maker's data sheet, in bfloat16 with dense operands.
    """

    name: str  # as the maker calls it
    kind: str  # tpu or gpu
    memory_bytes: int  # that a program may use without parts that its compiler computes again
    flops_per_second: float
    bytes_per_second: float  # of its memory
    link_bytes_per_second: float  # to its neighbour, one way
    topology: str = ""  # of the smallest slice of TPUs, as libtpu calls it
    slice_type: str = ""  # of that slice, as the cloud calls it

    @property
    def description(self) -> str:
        """Of a GPU: what XLA asks its driver for, as text of XLA's GpuTargetConfigProto."""
        name = self.name.split()[1].lower()
        return (pathlib.Path(__file__).parent / f"gpus/{name}.txtpb").read_text(encoding="utf-8")


# Memory of TPUs is what their compiler says it has: the rest is kept for the system.
DEVICES = {
    "v4": Accelerator(
        name="TPU v4 core",
        kind="tpu",
        memory_bytes=int(15.25 * GIB),
        flops_per_second=137.5e12,
        bytes_per_second=614e9,
        link_bytes_per_second=50e9,
        topology="v4:2x2x1",
        slice_type="v4-8",
    ),
    "v5e": Accelerator(
        name="TPU v5e",
        kind="tpu",
        memory_bytes=int(15.75 * GIB),
        flops_per_second=197e12,
        bytes_per_second=819e9,
        link_bytes_per_second=50e9,
        topology="v5e:2x2",
        slice_type="v5litepod-4",
    ),
    "v6e": Accelerator(
        name="TPU v6e",
        kind="tpu",
        memory_bytes=int(31.25 * GIB),
        flops_per_second=918e12,
        bytes_per_second=1640e9,
        link_bytes_per_second=112e9,
        topology="v6e:2x2",
        slice_type="v6e-4",
    ),
    "a100": Accelerator(
        name="NVIDIA A100 80GB SXM",
        kind="gpu",
        memory_bytes=int(GPU_SHARE * 80 * GIB),
        flops_per_second=312e12,
        bytes_per_second=2039e9,
        link_bytes_per_second=300e9,
    ),
    "h100": Accelerator(
        name="NVIDIA H100 80GB SXM",
        kind="gpu",
        memory_bytes=int(GPU_SHARE * 84942979072),
        flops_per_second=989e12,
        bytes_per_second=3350e9,
        link_bytes_per_second=450e9,
    ),
}
