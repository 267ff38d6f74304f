"""How a command ends: exit codes and messages, with other processes or without."""

import contextlib
import fcntl
import functools
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import tensorflow as tf
from walking import in_process

from bert_tf import runtime
from bert_tf.cli import main as command
from bert_tf.errors import InputError
from bert_tf.options import Options, option
from bert_tf.training import distribution

ROOT = pathlib.Path(__file__).parents[2]


class Interruptible(Options):
    """Options of a command whose run may be interrupted."""

    sigterm_exit_code: int = option("The exit code after SIGTERM.", default=143, low=0)


class Ended(BaseException):
    """In the place of a process's end: its exit code and what it says."""


@pytest.fixture
def one_of_several(monkeypatch) -> list[str]:
    """As if there were other processes; gives what is done with them, in order."""
    done: list[str] = []

    def end(code, message=""):
        raise Ended(code, message)

    process = distribution.OneOfSeveral()
    process.has_peers = True
    for name in ("leave", "tell_failure"):
        monkeypatch.setattr(process, name, functools.partial(done.append, name))
    monkeypatch.setattr(runtime, "barrier", lambda: done.append("barrier"))
    monkeypatch.setattr(runtime, "process", process)
    monkeypatch.setattr(command, "end", end)
    monkeypatch.setattr(runtime, "_signals", [])
    return done


def lose(*_) -> None:
    raise tf.errors.UnavailableError(None, None, "gone")


def how_it_ends(main, options: Options = Interruptible()) -> tuple:  # noqa: B008
    try:
        try:
            command.run_to_end(main, options)
        except Exception as error:  # as the hook for what nothing has caught
            command.report(error)
    except Ended as ended:
        return ended.args
    return ("goes on",)


def test_all_have_done_their_work_before_one_leaves(one_of_several):
    assert how_it_ends(one_of_several.append) == (0, "")
    assert one_of_several == [Interruptible(), "barrier", "leave"]


def test_what_to_do_where_memory_runs_out(one_of_several):
    def main(_):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating [8,12,512,512]")

    code, said = how_it_ends(main)
    assert code == 1
    for part in ("OOM when allocating [8,12,512,512]", "--gradient_accumulation_steps=2", "plan"):
        assert part in said


def test_a_process_that_is_lost_ends_the_others_also_at_the_very_end(one_of_several, monkeypatch):
    """A supervisor starts all again."""
    code, said = how_it_ends(lose)
    assert code == 1
    lost = "another process of this run was lost, or does not answer (UnavailableError: gone)"
    assert lost in said
    monkeypatch.setattr(runtime, "barrier", lose)
    assert how_it_ends(lambda _: None)[0] == 1
    assert one_of_several == []


def test_who_fails_tells_the_others_and_they_end_as_well(one_of_several):
    """It would fail again: nobody waits for it."""

    def fail(_):
        raise InputError("a bad record", "another one", "make it again")

    def hear(_):
        told = f"aborted by: {distribution.FAILURE}\nThe error could be"
        raise tf.errors.FailedPreconditionError(None, None, told)

    code, said = how_it_ends(fail)
    assert (code, one_of_several) == (1, ["tell_failure"])
    assert "failed.\nReceived: a bad record" in said
    code, said = how_it_ends(hear)
    assert code == 1
    assert said == "failed, as another process of this run did: its log says why"


@pytest.mark.parametrize(
    ("number", "given", "code"),
    [(signal.SIGTERM, None, 143), (signal.SIGTERM, 0, 0), (signal.SIGINT, 0, 130)],
)
def test_the_exit_code_after_sigterm_may_be_another(one_of_several, number, given, code):
    def main(_):
        raise runtime.Interrupted(3, "out", number)

    chosen = Interruptible() if given is None else Interruptible(sigterm_exit_code=given)
    found, said = how_it_ends(main, chosen)
    assert (found, "checkpoint of step 3 in out" in said) == (code, True)


def test_who_was_asked_to_end_does_not_begin_again(one_of_several):
    """The loss of another process is noticed first; the SIGTERM is remembered."""

    def main(_):
        with runtime.noticing_signals():
            assert not runtime.signal_came()
            signal.raise_signal(signal.SIGTERM)
            lose()

    code, message = how_it_ends(main)
    assert code == 143
    assert "ended by SIGTERM" in message


# ---------------------------------------------------------------------------- real processes

# A command without TensorFlow: it does what its first word says.
SCRIPT = """
import hashlib, os, sys, time
from absl import logging
from bert_tf.cli.main import run
from bert_tf.options import Options, option
from bert_tf import files, runtime
LOADS_TENSORFLOW = False

class Words(Options):
    words: tuple[str, ...] = option("What it does.", default=(), words="WHAT")

def main(options: Words):
    argv = ["", *options.words]
    if argv[1] == "log and print":
        logging.info("begun")
    if argv[1].endswith("print"):
        print("x" * 10**6)
    elif argv[1] == "read a bad sector":
        open("/proc/self/mem", "rb").read(1)
    elif argv[1] == "take memory":
        bytearray(1 << 60)
    elif argv[1] == "write a file":
        with open(argv[2], "w") as file:
            file.write("x" * 10**6)
    elif argv[1] == "load C code":
        try:
            os.kill(os.getpid(), 15)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None
    elif argv[1] == "wait for long":
        print("begun", flush=True)
        time.sleep(60)
    elif argv[1] == "go on for long":
        with files.published(argv[2]):
            print("begun", flush=True)
            time.sleep(60)

run(main)
"""


@pytest.fixture
def given(tmp_path):
    """The command line of the script, to which its words are added."""
    script = tmp_path / "command.py"
    script.write_text(SCRIPT)
    return f"PYTHONPATH={ROOT} exec {sys.executable} {script}"


def in_a_shell(line: str) -> tuple[int, str, str]:
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


ENDINGS = {  # after the command: its exit code, and what it says
    "print >/dev/full": (1, "No space left on device"),
    "'log and print' 2>/dev/full | wc -c": (0, ""),
    "'read a bad sector'": (1, "Input/output error"),
    "'take memory'": (1, "To do: smaller batches"),
    "--help >/dev/full": (1, "No space left on device"),
    "--help | head -0": (0, ""),
}


@pytest.mark.parametrize(("words", "ending"), ENDINGS.items(), ids=ENDINGS)
def test_streams_and_errors_of_the_system(given, words, ending):
    code, output, said = in_a_shell(f"{given} {words}")
    assert code == ending[0]
    assert ending[1] in said
    assert "Traceback" not in said
    if code:
        assert [line.split(":")[0] for line in said.strip().splitlines()[1:]] == [
            "Received", "Expected", "To do"]  # fmt: skip
    elif "wc" in words:
        assert output.strip() == "1000001"
    else:
        assert (output, said) == ("", "")


def test_a_reader_that_has_enough_is_no_success(given):
    code, output, said = in_a_shell(f"set -o pipefail; {given} print | head -c 3")
    assert (code, output, said) == (128 + signal.SIGPIPE, "xxx", "")


def test_a_limit_of_the_process(given, tmp_path):
    code, _, said = in_a_shell(f"ulimit -f 8; {given} 'write a file' {tmp_path}/out")
    assert code == 1
    assert "ulimit" in said.rpartition("To do:")[2]
    assert "Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_a_signal_ends_leaves_nothing(given, tmp_path, number):
    with started(f"{given} 'go on for long' {tmp_path}/out") as process:
        process.send_signal(number)
        process.send_signal(number)  # as `timeout` does
        said = process.stderr.read()
    assert process.returncode == 128 + number
    name = "Ctrl-C" if number == signal.SIGINT else number.name
    assert f"ended by {name}. " in said
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["command.py"]


@contextlib.contextmanager
def started(line: str) -> Iterator[subprocess.Popen]:
    """A command once it says that it has begun; signals have their usual effect."""

    def usual() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(["bash", "-c", line], preexec_fn=usual, **options) as process:
        assert process.stdout.readline() == "begun\n"
        yield process


def test_a_signal_that_c_code_makes_an_error_of_its_own(given):
    code, _, said = in_a_shell(f"{given} 'load C code'")
    assert code == 128 + signal.SIGTERM
    assert "ended by SIGTERM. " in said


def test_what_nohup_ignores_stays_ignored(given):
    with started(f"trap '' HUP; {given} 'wait for long'") as process:
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM


# ---------------------------------------------------------------------------- one run, one folder

RUNS = {  # what is enough to come to the lock: nothing of it is read before
    "run_pretraining.py": {"bert_config_file": "c", "input_file": "i", "do_train": True},
    "run_classifier.py": {
        "task_name": "mrpc", "data_dir": "d", "init_checkpoint": "m", "do_train": True,
    },
    "run_squad.py": {"init_checkpoint": "m", "do_predict": True, "predict_file": "p"},
    "extract_features.py": {"input_file": "i", "init_checkpoint": "m"},
    "convert": {"from": "m"},
    "predict": {"model": "m"},
}  # fmt: skip
OUTPUTS = {"extract_features.py": "output_file", "convert": "to", "predict": "output_file"}


@pytest.mark.parametrize("script", RUNS)
def test_an_output_that_another_process_writes_is_refused_at_once(tmp_path, script):
    output = tmp_path / "out"
    is_folder = script not in OUTPUTS
    home = output if is_folder else tmp_path / ".out.bert_tf-incomplete"
    home.mkdir(exist_ok=True)
    lock = home / ".lock"
    flag = {OUTPUTS.get(script, "output_dir"): output}
    with lock.open("w") as other, in_process(script) as main:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match=r"out, which another process is writing"):
            main(**RUNS[script], **flag)
    assert {*tmp_path.rglob("*")} == {lock, home}
