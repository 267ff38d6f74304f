"""benchmarks/fuzz_readers.py notices what it looks for, and names the input."""

import pathlib
import re
import subprocess
import sys

import faulty_readers
import pytest

ROOT = pathlib.Path(__file__).parents[2]
FAULTS = {
    "raising": "KeyError: 'key'",
    "nameless": "AssertionError: a message without",
    "slow": "hang: more than 1.5 s",
    "deaf": "hang: the process ended with -9",
    "dying": "death: the process ended with -6",
    "greedy": "memory: ",
    "boundless": "MemoryError",
}


def fuzz(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "benchmarks/fuzz_readers.py", *words]
    limits = ["--seconds=1.5", "--megabytes=60", "--group=faulty_readers"]
    return subprocess.run([*command, *limits], capture_output=True, text=True)


@pytest.fixture(scope="module")
def faulty() -> subprocess.CompletedProcess:
    return fuzz(f"--inputs={3 * len(FAULTS)}", f"--readers={','.join(FAULTS)}", "--seed=5")


def test_every_faulty_reader_is_tried():
    assert {*FAULTS, "sound"} == faulty_readers.MAKERS.keys()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed(name, faulty):
    assert faulty.returncode == 1, faulty.stderr
    command = f"python benchmarks/fuzz_readers.py --readers={name} --seed=5 --number="
    (before, *_) = faulty.stdout.partition(command)
    assert command in faulty.stdout
    assert FAULTS[name] in before.rpartition("python benchmarks")[2]


def test_one_input_again(faulty):
    number = re.search(r"--readers=raising --seed=5 --number=(\d+)", faulty.stdout)[1]
    again = fuzz("--readers=raising", "--seed=5", f"--number={number}")
    assert again.returncode == 1
    assert "KeyError: 'key'" in again.stdout


def test_a_sound_reader():
    ended = fuzz("--readers=sound", "--inputs=900")
    assert ended.returncode == 0, ended.stdout
    assert "no failure" in ended.stdout
    _, inputs, accepted, refused, *faults = ended.stdout.splitlines()[1].split()[:8]
    assert int(inputs) == 900 == int(accepted) + int(refused)
    assert set(faults) == {"0"}
