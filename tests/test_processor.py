"""What a processor multiplies: by its flags, and as oneDNN is allowed."""

import os
import subprocess
import sys

import pytest
from walking import parsed

from bert_tf import processor, runtime

VARIABLES = ("TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "TF_XLA_FLAGS")
GENOA = "fpu avx2 avx512f avx512_bf16 avx512_vnni"
SAPPHIRE = "fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A processor of these flags, as Linux tells of it, and an environment."""

    def make(flags: str, **environment: str) -> None:
        path = tmp_path / "cpuinfo"
        path.write_text(f"model name\t: a CPU\nflags\t\t: {flags}\n\nflags\t\t: {flags}\n")
        monkeypatch.setattr(processor, "_CPUS", path)
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return make


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        (GENOA, {}, "AVX512_BF16"),
        (SAPPHIRE, {}, "AVX512_BF16"),
        ("fpu amx_bf16", {}, "AMX_BF16"),
        ("fpu avx2 avx512f avx512_vnni", {}, ""),
        ("fpu my_avx512_bf16_", {}, ""),
        (GENOA, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, ""),
        (GENOA, {"ONEDNN_MAX_CPU_ISA": "avx2"}, ""),
        (GENOA, {"DNNL_MAX_CPU_ISA": "AVX512_CORE_VNNI"}, ""),
        (GENOA, {"ONEDNN_MAX_CPU_ISA": "avx512_core_bf16"}, "AVX512_BF16"),
        (GENOA, {"ONEDNN_MAX_CPU_ISA": "AVX10_1_512_AMX"}, "AVX512_BF16"),
        (GENOA, {"ONEDNN_MAX_CPU_ISA": "ALL"}, "AVX512_BF16"),
        (GENOA, {"ONEDNN_MAX_CPU_ISA": ""}, "AVX512_BF16"),
        (GENOA, {"TF_ENABLE_ONEDNN_OPTS": "0"}, ""),
        (GENOA, {"TF_ENABLE_ONEDNN_OPTS": "False"}, ""),
        (GENOA, {"TF_ENABLE_ONEDNN_OPTS": "1"}, "AVX512_BF16"),
    ],
)
def test_what_bfloat16_is_multiplied_by(machine, flags, environment, expected):
    machine(flags, **environment)
    assert processor.bfloat16() == expected


def test_a_system_that_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(processor, "_CPUS", tmp_path / "none")
    assert processor.flags() == frozenset()
    assert processor.bfloat16() == ""
    assert processor.without_bfloat16().startswith(
        "Whether this CPU multiplies bfloat16 is unknown"
    )


@pytest.mark.parametrize(
    ("flags", "environment", "gpus", "expected"),
    [
        (GENOA, {}, [], True),
        (GENOA, {}, ["NVIDIA H200"], False),
        ("fpu avx512f", {}, [], False),
        (GENOA, {"TF_XLA_FLAGS": "--tf_xla_min_cluster_size=9"}, [], False),
        (GENOA, {"TF_XLA_FLAGS": "--tf_xla_cpu_global_jit"}, [], False),
    ],
)
def test_where_graphs_are_clustered(machine, monkeypatch, flags, environment, gpus, expected):
    """Never against the user's own flags, and nowhere where it gains nothing."""
    machine(flags, **environment)
    monkeypatch.setattr(runtime, "gpus", lambda: gpus)
    monkeypatch.setenv("TF_XLA_FLAGS", "")  # so that it is undone
    monkeypatch.delenv("TF_XLA_FLAGS")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    runtime.cluster_graphs()
    assert runtime.clusters_graphs() == expected
    if "TF_XLA_FLAGS" in environment:
        assert os.environ["TF_XLA_FLAGS"] == environment["TF_XLA_FLAGS"]


def test_tensorflow_knows_the_flags():
    """It ends a process at one that it does not know: so this reads them in one of its own."""
    script = (
        "import os; from bert_tf import processor, runtime; processor.bfloat16 = lambda: 'yes'\n"
        "runtime.gpus = lambda: []; os.environ.pop('TF_XLA_FLAGS', None)\n"
        "runtime.cluster_graphs(); import tensorflow as tf\n"
        "print(tf.function(lambda x: tf.exp(x) * 2.0 + x)(tf.zeros([3])).numpy().tolist())\n"
        "print(runtime.clusters_graphs(), os.environ['TF_XLA_FLAGS'])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    numbers, flags = ended.stdout.splitlines()
    assert numbers == "[2.0, 2.0, 2.0]"
    assert flags.startswith("True --tf_xla")
    assert "tf_xla" not in ended.stderr


@pytest.mark.parametrize("variable", ["", "-1"])
def test_gpus_that_are_hidden_are_none(monkeypatch, variable):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert runtime.gpus() == []


@pytest.mark.parametrize(
    ("flags", "is_called"),
    [
        ({"precision": "bfloat16"}, True),
        ({}, False),
        ({"precision": "bfloat16", "xla": "false"}, False),
        ({"precision": "bfloat16", "tpu": "local"}, False),
        ({"precision": "bfloat16", "strategy": "tpu"}, False),
    ],
)
def test_the_training_that_asks_for_it(monkeypatch, flags, is_called):
    called = []
    monkeypatch.setattr(runtime, "cluster_graphs", lambda: called.append(True))
    required = {"input_file": "f", "bert_config_file": "c", "output_dir": "o", "do_train": True}
    parsed("run_pretraining.py", **required | flags).prepare()
    assert bool(called) == is_called
