"""What a run is to run on: which strategy, which process of several, which TPU."""

import json

import pytest
import tensorflow as tf

from bert_tf import runtime
from bert_tf.errors import InputError
from bert_tf.training import distribution

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
        ('{"cluster": "worker", "task": {"type": 9, "index": 0}}', "Error"),
        ('{"cluster": {"chief": ["a:1"]}, "task": "type"}', "TypeError"),
        ("[" * 100_000, "RecursionError"),
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
    assert not runtime.has_peers()
    tf_config(monkeypatch, {"worker": ["a:1"]}, {"type": "worker", "index": 0})
    assert distribution.make_strategy("one") is tf.distribute.get_strategy()


def test_numbers_that_differ_are_refused(monkeypatch):
    process = distribution.OneOfSeveral()
    monkeypatch.setattr(process, "all_gather", lambda number: [number, 7])
    monkeypatch.setattr(process, "leave", lambda: left.append(True))
    left = []
    process.check_same({"steps": 7})
    with pytest.raises(InputError, match="other records in this process than in another one"):
        process.check_same({"steps": 7, "records": 8})
    assert left == [True]


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
