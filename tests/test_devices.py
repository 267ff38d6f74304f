"""What a run is to run on: which strategy, which process of several, which TPU and what it sees."""

import functools
import json

import pytest
import tensorflow as tf
from absl import flags as absl_flags

from bert_tf import distribution, flags, hosts
from bert_tf.errors import InputError
from bert_tf.files import whole_file
from bert_tf.step import Computation

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


def test_one_device_asks_for_no_others(monkeypatch):
    tf_config(monkeypatch, TWO, {"type": "worker", "index": 0})
    assert distribution.make_strategy("one") is tf.distribute.get_strategy()
    assert not hosts.are_several()


def test_a_process_alone_waits_for_nobody():
    assert hosts.is_chief()
    assert hosts.gather(7) == [7]
    assert [hosts.any_of(flag) for flag in (False, True)] == [False, True]
    hosts.wait_for_all()
    hosts.leave()


def test_only_the_chief_leaves_files(monkeypatch, tmp_path):
    for is_chief in (False, True):
        monkeypatch.setattr(hosts, "is_chief", lambda is_chief=is_chief: is_chief)
        with whole_file(str(tmp_path / "a.txt")) as temporary, open(temporary, "w") as file:
            file.write("whole")
        assert [path.name for path in tmp_path.iterdir()] == (["a.txt"] if is_chief else [])


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
    for name in ("input_file", "output_dir"):
        flags.flags.DEFINE_string(name, None, "a path")

    def set_flags(*words: str) -> None:
        values.unparse_flags()
        for name in values:
            values[name].unparse()
        values(["script", *words])

    return set_flags


def test_a_tpu_elsewhere_reads_no_local_path(given):
    given("--input_file=gs://b/1,/data/2.tfrecord", "--output_dir=gs://b/run")
    with pytest.raises(InputError) as caught:
        flags.check_tpu_paths("node-1")
    assert "--input_file=/data/2.tfrecord" in caught.value.received
    assert "node-1" in caught.value.received
    assert "gs://" in caught.value.expected
    assert "--tpu=local" in caught.value.remedy
    flags.check_tpu_paths("local")  # the TPU's own machine
    given("--input_file=gs://b/1", "--output_dir=run")
    with pytest.raises(InputError, match="--output_dir=run"):
        flags.check_tpu_paths("grpc://10.0.0.2:8470")
    given("--input_file=gs://b/1,gs://b/2", "--output_dir=gs://b/run")
    flags.check_tpu_paths("node-1")


@pytest.mark.parametrize(
    ("words", "looked_at"),
    [
        (["--use_tpu", "--tpu_name=a"], ["a"]),
        (["--tpu=b"], ["b"]),
        (["--strategy=tpu"], [None]),
        (["--tpu=b", "--strategy=one"], []),
        ([], []),
    ],
)
def test_paths_are_looked_at_before_the_tpu(given, monkeypatch, words, looked_at):
    found = []
    monkeypatch.setattr(flags, "check_tpu_paths", found.append)
    monkeypatch.setattr(distribution, "make_strategy", lambda name, **_: name)
    given(*words)
    flags.make_strategy()
    assert found == looked_at


def test_how_a_step_is_computed(given):
    given()
    assert flags.make_computation() == Computation()
    given("--precision=float16", "--gradient_accumulation_steps=3", "--recompute", "--noxla")
    assert flags.make_computation() == Computation(
        precision="float16", gradient_accumulation_steps=3, recompute=True, xla=False
    )
