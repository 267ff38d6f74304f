"""The processor: its flags, and whether it multiplies bfloat16.

Loads no TensorFlow: it is asked for settings that are made first.
"""

import os
import pathlib

_CPUS = pathlib.Path("/proc/cpuinfo")  # of Linux
# Flags of x86 processors that multiply bfloat16, and the names of these instructions.
_BFLOAT16 = {"avx512_bf16": "AVX512_BF16", "amx_bf16": "AMX_BF16"}
# oneDNN multiplies bfloat16 if the name of the best set that it may use contains one of these.
_WITH_BFLOAT16 = ("BF16", "FP16", "AMX", "AVX10", "ALL", "DEFAULT")


def without_bfloat16() -> str:
    """The reason why `bfloat16` is empty, as the beginning of a sentence."""
    if not flags():
        return "Whether this CPU multiplies bfloat16 is unknown (only Linux on x86 tells): "
    return (
        "This CPU does not multiply bfloat16 (it has neither AVX512_BF16 nor AMX, or oneDNN may "
        "not use them): "
    )


def flags() -> frozenset[str]:
    """The flags of the processor; empty if the system does not list them."""
    text = _CPUS.read_text(encoding="utf-8", errors="replace") if _CPUS.exists() else ""
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def bfloat16() -> str:
    """The name of the instructions by which oneDNN multiplies bfloat16 here.

    Empty if the processor has none, the system does not tell, oneDNN is switched off, or its
    settings exclude them.
    """
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").strip().lower() in ("0", "false"):
        return ""
    allowed = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "ALL"
    if not any(part in allowed.upper() for part in _WITH_BFLOAT16):
        return ""
    available = flags()
    return next((name for flag, name in _BFLOAT16.items() if flag in available), "")
