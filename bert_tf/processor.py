"""What this machine's processor multiplies, as its flags and oneDNN's settings say.

Loads no TensorFlow: settings are made before.
"""

import os
import pathlib

_CPUS = pathlib.Path("/proc/cpuinfo")  # of Linux
# Flags of x86 processors that multiply bfloat16, and the names of these instructions.
_BFLOAT16 = {"avx512_bf16": "AVX512_BF16", "amx_bf16": "AMX_BF16"}
# oneDNN multiplies bfloat16 if the name of the best set that it may use contains one of these.
_WITH_BFLOAT16 = ("BF16", "FP16", "AMX", "AVX10", "ALL", "DEFAULT")


def without_bfloat16() -> str:
    """The beginning of what is said where `bfloat16` finds nothing."""
    if not flags():
        return "Whether this CPU multiplies bfloat16 is unknown (only Linux on x86 tells): "
    return (
        "This CPU does not multiply bfloat16 (it has neither AVX512_BF16 nor AMX, or oneDNN may "
        "not use them): "
    )


def flags() -> frozenset[str]:
    """The flags of the processor; none where the system does not tell."""
    text = _CPUS.read_text(encoding="utf-8", errors="replace") if _CPUS.exists() else ""
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def bfloat16() -> str:
    """The instructions by which oneDNN multiplies bfloat16 here.

    Empty where there are none or the system does not tell, and where oneDNN is switched off or may
    not use them.
    """
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").strip().lower() in ("0", "false"):
        return ""
    names = "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"
    most = next((value for name in names if (value := os.environ.get(name))), "ALL").upper()
    if not any(part in most for part in _WITH_BFLOAT16):
        return ""
    found = flags()
    return next((name for flag, name in _BFLOAT16.items() if flag in found), "")
