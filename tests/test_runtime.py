"""bert_tf/runtime.py: the command line, the memory."""

import os
import sys

import pytest

from bert_tf import runtime
from bert_tf.errors import InputError


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["run_squad.py", "--a=b c", "--d"], "python run_squad.py '--a=b c' --d"),
        (["bert-tf export", "--init_checkpoint=model"], "bert-tf export --init_checkpoint=model"),
    ],
)
def test_a_command_can_be_typed_again(monkeypatch, argv, line):
    monkeypatch.setattr(sys, "argv", argv)
    assert runtime.command_line() == line


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "5000000\n"}, 5000000),
        ("0::/a/b\n", {"memory.max": "max\n", "a/memory.max": "7000000\n"}, 7000000),
        ("0::/a\n", {"a/memory.max": "9000000\n", "memory.max": "8000000\n"}, 8000000),
        (
            "4:memory:/a\n3:cpuset:/\n0::/\n",
            {"memory/a/memory.limit_in_bytes": "6000000\n",
             "memory/memory.limit_in_bytes": "9223372036854771712\n"},
            6000000,
        ),
        ("0::/gone\n", {}, None),
    ],
)  # fmt: skip
def test_memory_is_that_of_the_control_group(tmp_path, monkeypatch, own, files, limit):
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    found = runtime._control_group_limits(f"{tmp_path}/root", f"{tmp_path}/own")
    monkeypatch.setattr(runtime, "_control_group_limits", lambda: found)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert runtime.memory_bytes() == (limit or machine)


def test_a_model_larger_than_the_memory(monkeypatch):
    monkeypatch.setattr(runtime, "memory_bytes", lambda: 4_000_000_000)
    runtime.check_model_memory(1_000_000_000)
    runtime.check_model_memory(333_333_333, moments=2)
    with pytest.raises(InputError) as caught:
        runtime.check_model_memory(1_000_000_001)
    assert caught.value.received == "a model of 1,000,000,001 parameters, which need 4.0 GB"
    assert "4.0 GB" in caught.value.expected
    with pytest.raises(InputError, match=r"12\.0 GB with the optimizer's moments"):
        runtime.check_model_memory(1_000_000_000, moments=2)
    monkeypatch.setattr(runtime, "memory_bytes", lambda: None)
    runtime.check_model_memory(10**18)
