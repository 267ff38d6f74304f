"""What this machine's processor multiplies, as its flags and oneDNN's settings say.

Loads no TensorFlow: settings are made before.
"""

import os
import pathlib

_CPUS = pathlib.Path("/proc/cpuinfo")  # of Linux
# Flags of x86 processors that multiply bfloat16, and the names of these instructions.
_BFLOAT16 = {"avx512_bf16": "AVX512_BF16", "amx_bf16": "AMX_BF16"}
# What the names of instruction sets that have them contain, as ONEDNN_MAX_CPU_ISA gives them.
_WITH_BFLOAT16 = ("BF16", "FP16", "AMX", "AVX10", "ALL", "DEFAULT")
NO_BFLOAT16 = (
    "This CPU does not multiply bfloat16 (it has neither AVX512_BF16 nor AMX, or oneDNN may not "
    "use them): "
)


def flags() -> frozenset[str]:
    """The flags of the processor; none where the system does not tell."""
    text = _CPUS.read_text(encoding="utf-8", errors="replace") if _CPUS.exists() else ""
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def bfloat16() -> str:
    """The instructions by which oneDNN multiplies bfloat16 here; "": there are none.

    None either where oneDNN is switched off, or may not use them.
    """
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0":
        return ""
    names = "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"
    most = next((os.environ[name] for name in names if name in os.environ), "ALL").upper()
    if not any(part in most for part in _WITH_BFLOAT16):
        return ""
    found = flags()
    return next((name for flag, name in _BFLOAT16.items() if flag in found), "")
