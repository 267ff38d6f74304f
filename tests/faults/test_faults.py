"""Some faults in the lightest commands; benchmarks/faults.py makes the rest."""

import dataclasses

import pytest

pytest.importorskip("psutil", reason="installed with the extra dev")
import faults
from faults import COMMANDS

pytestmark = pytest.mark.walk
CASES = (
    ("data", "error of a call", 1),
    ("data", "signal at a call", 2),
    ("vocab", "input damaged", 3),
    ("vocab", "signal at any time", 4),
)


@pytest.fixture(scope="module")
def slot(tmp_path_factory):
    try:
        slot = faults.Slot(tmp_path_factory.mktemp("faults") / "slot")
    except FileNotFoundError:
        pytest.skip("there is no C compiler cc, which compiles benchmarks/faults.c")
    yield slot
    slot.close()


@pytest.mark.parametrize(("name", "kind", "seed"), CASES)
def test_a_fault_is_survived(name, kind, seed, slot):
    """No traceback, nothing half-made; and the command given again ends as if undisturbed."""
    outcome = slot.run(name, kind, seed)
    assert not outcome.failures, f"{outcome}\n{outcome.said}"
    assert outcome.fired or kind == "signal at any time", outcome


def test_a_run_may_be_killed_at_any_call(slot):
    """No checkpoint but whole ones, and never one less: also while the next steps are made."""
    undisturbed = slot.made("pretrain")
    inputs = slot.inputs("pretrain")
    line = COMMANDS["pretrain"].line.replace("checkpoint_max=0", "checkpoint_max=1")
    command = dataclasses.replace(COMMANDS["pretrain"], line=line)
    left, latest = [], [""]
    for files in slot.moments(command, inputs):
        for path in files:
            if path.startswith("model.ckpt-"):
                assert files[path] == undisturbed[path], path
        named = files.get("checkpoint", b"").decode().split('"')
        latest.append(named[1] if len(named) > 1 else "")
        assert latest[-1] >= latest[-2], files.keys()
        assert not latest[-1] or f"{latest[-1]}.index" in files, files.keys()
        left.append(files)
    assert sorted({*latest}) == ["", "model.ckpt-2", "model.ckpt-4", "model.ckpt-6"]
    half = [files for files, name in zip(left, latest[1:], strict=True)
            if name == "model.ckpt-2" and "-incomplete/" in " ".join(files)]  # fmt: skip
    assert len(half) > 10
    ended, found = slot.go_on(command, inputs, half[len(half) // 2])
    assert ended.code == 0, ended.stderr
    assert faults.differences(found, left[-1]) == []


def test_data_generation_may_be_killed_at_any_time(slot):
    """No shard but whole ones, each with its own index and description; and the rest is made.

    What is written between two changes of names is in files with temporary ones.
    """
    command = COMMANDS["data_shards"]
    inputs = slot.inputs("data_shards")
    undisturbed = slot.made("data_shards")
    stages = {}
    for files in slot.moments(command, inputs, faults.OF_NAMES):
        named = {path: files[path] for path in files if not faults.is_temporary(path)}
        assert named.items() <= undisturbed.items()
        for shard in (path for path in named if path.startswith("x-")):
            assert {f"index_{shard}.json", f"info_{shard}.json"} <= named.keys()
        notes = [path for path in files if path.endswith((".json", "/")) and "-incom" not in path]
        stages[tuple(notes)] = files  # the last moment of each stage
    assert len(stages) > 15
    ended, found = slot.go_on(command, inputs, list(stages.values())[len(stages) // 2])
    assert ended.code == 0, ended.stderr
    assert faults.differences(found, undisturbed) == []


@pytest.mark.parametrize("name", ["convert", "export"])
def test_a_model_has_its_name_once_it_is_proved(slot, name):
    """Killed before, whenever that is, nothing has it; and the same command makes it."""
    command = COMMANDS[name]
    inputs = slot.inputs(name)
    whole = f"{command.whole}/"
    moments = list(slot.moments(command, inputs, faults.OF_NAMES))
    made = moments[-1]
    assert len(moments) > 10
    assert whole in made
    for files in moments:
        named = {path for path in files if path.startswith(whole)}
        assert not named or named == {path for path in made if path.startswith(whole)}
    begun = [files for files in moments if whole not in files and files]
    ended, found = slot.go_on(command, inputs, begun[-1])
    assert ended.code == 0, ended.stderr
    assert faults.differences(found, made) == []
