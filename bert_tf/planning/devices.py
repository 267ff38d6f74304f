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
    memory_bytes: int  # that a program may use without parts that its compiler computes again
    flops_per_second: float
    bytes_per_second: float  # of its memory
    link_bytes_per_second: float  # to its neighbour, one way
    topology: str = ""  # of the smallest slice of TPUs, as libtpu calls it
    slice_type: str = ""  # of that slice, as the cloud calls it

    @property
    def kind(self) -> str:
        """tpu or gpu."""
        return "tpu" if self.topology else "gpu"

    @property
    def description(self) -> str:
        """Of a GPU: what XLA asks its driver for, as text of XLA's GpuTargetConfigProto."""
        name = self.name.split()[1].lower()
        return (pathlib.Path(__file__).parent / f"gpus/{name}.txtpb").read_text(encoding="utf-8")


# Memory of TPUs is what their compiler says it has: the rest is kept for the system.
_FIGURES = {  # name, bytes of memory, 10^12 FLOP/s, 10^9 bytes/s of memory, of a link
    "v4": ("TPU v4 core", 15.25 * GIB, 137.5, 614, 50),
    "v5e": ("TPU v5e", 15.75 * GIB, 197, 819, 50),
    "v6e": ("TPU v6e", 31.25 * GIB, 918, 1640, 112),
    "a100": ("NVIDIA A100 80GB SXM", GPU_SHARE * 80 * GIB, 312, 2039, 300),
    "h100": ("NVIDIA H100 80GB SXM", GPU_SHARE * 84942979072, 989, 3350, 450),
}
_SLICES = {  # topology, slice_type
    "v4": ("v4:2x2x1", "v4-8"),
    "v5e": ("v5e:2x2", "v5litepod-4"),
    "v6e": ("v6e:2x2", "v6e-4"),
}


def _accelerator(key: str) -> Accelerator:
    name, memory, tflops, gb_per_s, link_gb_per_s = _FIGURES[key]
    topology, slice_type = _SLICES.get(key, ("", ""))
    return Accelerator(
        name=name,
        memory_bytes=int(memory),
        flops_per_second=tflops * 1e12,
        bytes_per_second=gb_per_s * 1e9,
        link_bytes_per_second=link_gb_per_s * 1e9,
        topology=topology,
        slice_type=slice_type,
    )


DEVICES = {key: _accelerator(key) for key in _FIGURES}
