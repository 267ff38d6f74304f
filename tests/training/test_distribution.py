"""What a run is to run on: which strategy, which process of several, which TPU; how it ends."""

import functools
import json
import signal
import threading
import types

import pytest
import tensorflow as tf
from absl import flags as absl_flags

from bert_tf import cluster, files
from bert_tf.cli import flags
from bert_tf.cli import main as command
from bert_tf.errors import InputError
from bert_tf.files import whole_file
from bert_tf.training import distribution, intervals
from bert_tf.training.settings import StepConfig

TWO = {"worker": ["host0:2222", "host1:2222"]}


def tf_config(monkeypatch, cluster, task) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))


# ---------------------------------------------------------------------------- several processes


def test_processes_are_counted(monkeypatch):
    tf_config(monkeypatch, TWO, {"type": "worker", "index": 1})
    assert distribution.num_processes() == 2
    tf_config(monkeypatch, TWO | {"chief": ["host2:2222"]}, {"type": "chief", "index": 0})
    assert distribution.num_processes() == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not set"),
        ("{", "{"),
        ("[1]", "[1]"),
        ('{"cluster": {}}', "KeyError"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}', "KeyError"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}', "task 1 of 1"),
        ('{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}', "the jobs ps"),
    ],
)
def test_a_cluster_that_is_none(monkeypatch, text, said):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(InputError) as caught:
        distribution.make_strategy("multiworker")
    assert said in caught.value.received
    assert '"task": {"type": "worker", "index": 0}' in caught.value.expected


def test_a_cluster_of_one_process_is_this_one(monkeypatch):
    tf_config(monkeypatch, {"worker": ["host0:2222"]}, {"type": "worker", "index": 0})
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
    for name in ("auto", "multiworker"):
        assert distribution.make_strategy(name) is tf.distribute.get_strategy()


@pytest.mark.parametrize("name", ["one", "mirrored"])
def test_processes_that_would_not_be_one_run_are_refused(monkeypatch, name):
    """Each would take itself for the chief, and write into the same folder."""
    tf_config(monkeypatch, TWO, {"type": "worker", "index": 0})
    with pytest.raises(InputError, match=f"--strategy={name}, and TF_CONFIG with 2 processes"):
        distribution.make_strategy(name)
    assert not cluster.has_peers()
    tf_config(monkeypatch, {"worker": ["a:1"]}, {"type": "worker", "index": 0})
    assert distribution.make_strategy("one") is tf.distribute.get_strategy()


def test_a_process_alone_waits_for_nobody():
    assert cluster.is_chief()
    assert cluster.all_gather(7) == [7]
    assert [cluster.any_process(flag) for flag in (False, True)] == [False, True]
    cluster.barrier()
    cluster.leave()


def test_numbers_that_differ_are_refused(monkeypatch):
    monkeypatch.setattr(cluster, "all_gather", lambda number: [number, 7])
    cluster.check_same({"steps": 7})
    with pytest.raises(InputError, match="other records in this process than in another one"):
        cluster.check_same({"steps": 7, "records": 8})


def test_only_the_chief_leaves_files(monkeypatch, tmp_path):
    for is_chief in (False, True):
        monkeypatch.setattr(files, "writes_here", is_chief)
        with whole_file(str(tmp_path / "a.txt")) as temporary, open(temporary, "w") as file:
            file.write("whole")
        assert [path.name for path in tmp_path.iterdir()] == (["a.txt"] if is_chief else [])


@pytest.mark.parametrize("name", ["one", "multiworker", "tpu"])
def test_several_cpu_devices_are_for_mirrored(monkeypatch, name):
    if name == "multiworker":
        tf_config(monkeypatch, TWO, {"type": "worker", "index": 0})
    with pytest.raises(InputError, match=f"--num_cpu_devices=3 with the strategy {name}"):
        distribution.make_strategy(name, num_cpu_devices=3)


class Resolver:
    """In the place of the one that finds TPUs: it finds none."""

    def __init__(self, tpu, *, zone, project):
        self.given = (tpu, zone, project)

    @staticmethod
    def connect(tpu):
        assert tpu == "local"
        raise RuntimeError("no TPU\nand more")


@pytest.mark.parametrize("tpu", ["local", "grpc://10.0.0.2:8470", None])
def test_a_tpu_that_does_not_answer(monkeypatch, tpu):
    def connect_to_cluster(resolver, *, make_master_device_default):
        assert resolver.given == (tpu, "a zone", "a project")
        assert not make_master_device_default  # else records would be read there
        raise RuntimeError("no TPU\nand more")

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", Resolver)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", connect_to_cluster)
    with pytest.raises(InputError) as caught:
        distribution.make_strategy("tpu", tpu=tpu, tpu_zone="a zone", gcp_project="a project")
    assert caught.value.received.startswith(f"the TPU {tpu or '(none named)'}, ")
    assert caught.value.received.endswith("RuntimeError: no TPU")
    assert "leave out --tpu" in caught.value.remedy


def test_devices_of_this_process_are_not_remote(two_replicas):
    own = tf.distribute.OneDeviceStrategy("CPU:1")
    for strategy in (distribution.make_strategy("one"), two_replicas, own):
        assert distribution.remote_hosts(strategy) == []


# ---------------------------------------------------------------------------- how a run ends


class Ended(BaseException):
    """In the place of a process's end: its exit code and what it says."""


@pytest.fixture
def one_of_several(monkeypatch) -> list[str]:
    """As if there were other processes; gives what is done with them, in order."""
    done: list[str] = []

    def end(code, message=""):
        raise Ended(code, message)

    def restart_or_exit(error, *, max_restarts):
        raise Ended("begins again", max_restarts)

    for name in ("barrier", "leave"):
        monkeypatch.setattr(cluster, name, functools.partial(done.append, name))
    for name in ("has_peers", "expects_peers"):
        monkeypatch.setattr(cluster, name, lambda: True)
    monkeypatch.setattr(cluster, "restart_or_exit", restart_or_exit)
    monkeypatch.setattr(command, "end", end)
    monkeypatch.setattr(command.flags, "FLAGS", types.SimpleNamespace(max_restarts=3))
    monkeypatch.setattr(intervals, "_sigterm", threading.Event())
    return done


def lose(*_) -> None:
    raise tf.errors.UnavailableError(None, None, "gone")


def how_it_ends(main) -> tuple:
    with pytest.raises(Ended) as caught:
        command.main_or_message(main, ["script"])
    return caught.value.args


def test_all_have_done_their_work_before_one_leaves(one_of_several):
    assert how_it_ends(lambda argv: one_of_several.append(argv[0])) == (0, "")
    assert one_of_several == ["script", "barrier", "leave"]


def test_what_to_do_where_memory_runs_out(one_of_several):
    def main(_):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating [8,12,512,512]")

    code, said = how_it_ends(main)
    assert code == 1
    for part in (
        "OOM when allocating [8,12,512,512]",
        "--gradient_accumulation_steps=2",
        "plan",
    ):
        assert part in said


def test_a_process_that_is_lost_at_the_very_end_is_waited_for(one_of_several, monkeypatch):
    """It will be started again, and do what it had to do with the others."""
    assert how_it_ends(lose) == ("begins again", 3)
    monkeypatch.setattr(cluster, "barrier", lose)
    assert how_it_ends(lambda argv: None) == ("begins again", 3)
    assert one_of_several == []


def test_who_was_asked_to_end_does_not_begin_again(one_of_several):
    """The loss of another process is noticed first; the SIGTERM is remembered."""

    def main(argv):
        with intervals.noticing_sigterm() as sigterm_came:
            assert not sigterm_came()
            signal.raise_signal(signal.SIGTERM)
            lose()

    code, message = how_it_ends(main)
    assert code == 0
    assert "ended by SIGTERM" in message


def test_who_has_ended_as_asked_may_train_again(one_of_several):
    def main(argv):
        with intervals.noticing_sigterm() as sigterm_came:
            signal.raise_signal(signal.SIGTERM)
            assert sigterm_came()
            raise intervals.Interrupted(7, "run")

    code, message = how_it_ends(main)
    assert (code, one_of_several) == (0, ["leave"])
    assert "a checkpoint of step 7 in run" in message
    assert not intervals.sigterm_came()


# ---------------------------------------------------------------------------- flags


@pytest.fixture
def given(monkeypatch):
    """Gives a function that sets flags of a script; those of other tests are not touched."""
    values = absl_flags.FlagValues()
    monkeypatch.setattr(flags.flags, "FLAGS", values)
    for name in ("DEFINE_enum", "DEFINE_bool", "DEFINE_string", "DEFINE_integer", "DEFINE_float"):
        define = functools.partial(getattr(absl_flags, name), flag_values=values)
        monkeypatch.setattr(flags.flags, name, define)
    flags.define_training()
    flags.define_devices()
    for name in ("input_file", "output_dir", "export_dir"):
        flags.flags.DEFINE_string(name, None, "a path")
    flags.flags.DEFINE_bool("bucket_by_length", True, "as of fine-tuning")

    def set_flags(*words: str) -> None:
        values.unparse_flags()
        for name in values:
            values[name].unparse()
        values(["script", *words])

    return set_flags


@pytest.mark.parametrize("tpu", ["node-1", "grpc://10.0.0.2:8470"])
def test_a_tpu_elsewhere_reads_no_local_path(given, tpu):
    """Before anything is connected."""
    given("--input_file=gs://b/1,/data/2.tfrecord", "--output_dir=gs://b/run")
    with pytest.raises(InputError) as caught:
        flags.check_tpu_paths(tpu)
    assert caught.value.received == f"--input_file=/data/2.tfrecord with the TPU {tpu}"
    assert "gs://" in caught.value.expected
    assert "--input_file=gs://" in caught.value.remedy
    assert "--tpu=local" in caught.value.remedy
    flags.check_tpu_paths("local")  # the TPU's own machine
    for name in ("output_dir", "export_dir"):
        given("--input_file=gs://b/1", f"--{name}=s3://b/run")
        with pytest.raises(InputError, match=f"--{name}=s3://b/run"):
            flags.check_tpu_paths(tpu)
    given("--input_file=gs://b/1,gs://b/2", "--output_dir=gs://b/run")
    flags.check_tpu_paths(tpu)


@pytest.fixture
def made(monkeypatch) -> list[tuple]:
    """The strategies that flags ask for, with their TPUs; none is made."""
    asked: list[tuple] = []

    def make_strategy(name, *, tpu, tpu_zone, gcp_project, num_cpu_devices):
        assert (tpu_zone, gcp_project, num_cpu_devices) == ("a-zone", "a-project", 1)
        asked.append((name, tpu))

    monkeypatch.setattr(distribution, "make_strategy", make_strategy)
    return asked


WHERE = ("--tpu_zone=a-zone", "--gcp_project=a-project")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--use_tpu", "--tpu_name=local"], ("tpu", "local")),
        (["--use_tpu", "--tpu_name=a", "--output_dir=gs://b/run"], ("tpu", "a")),
        (["--use_tpu"], ("tpu", None)),  # whichever TensorFlow finds
        (["--tpu=local", "--output_dir=run"], ("tpu", "local")),
        (["--tpu=grpc://10.0.0.2:8470"], ("tpu", "grpc://10.0.0.2:8470")),
        (["--tpu=local", "--strategy=tpu"], ("tpu", "local")),
        (["--strategy=tpu", "--tpu_name=local"], ("tpu", "local")),
        (["--tpu_name=a"], ("auto", "a")),  # as in the original, not without --use_tpu
        (["--nouse_tpu", "--strategy=one"], ("one", None)),
        ([], ("auto", None)),
    ],
)
def test_strategies_of_flags(given, made, words, expected):
    """On a TPU batches are of one length."""
    given(*words, *WHERE)
    flags.make_strategy()
    assert made == [expected]
    assert flags.flags.FLAGS.bucket_by_length == (expected[0] != "tpu")


@pytest.mark.parametrize(
    ("words", "received"),
    [
        (["--use_tpu", "--tpu_name=a", "--output_dir=run"], "--output_dir=run with the TPU a"),
        (["--tpu=b", "--output_dir=run"], "--output_dir=run with the TPU b"),
        (["--strategy=tpu", "--export_dir=e"], r"--export_dir=e with the TPU \(none named\)"),
        (["--tpu=local", "--strategy=one"], "--strategy=one with --tpu"),
        (["--tpu=local", "--strategy=mirrored"], "--strategy=mirrored with --tpu"),
        (["--use_tpu", "--strategy=multiworker"], "--strategy=multiworker with --use_tpu"),
    ],
)
def test_flags_that_do_not_go_together(given, made, words, received):
    given(*words, *WHERE)
    with pytest.raises(InputError, match=received):
        flags.make_strategy()
    assert made == []


def test_how_a_step_is_computed(given):
    given()
    assert flags.make_step_config() == StepConfig()
    given("--precision=float16", "--gradient_accumulation_steps=3", "--recompute", "--noxla")
    assert flags.make_step_config() == StepConfig(
        precision="float16", gradient_accumulation_steps=3, recompute=True, xla=False
    )
