"""bert_tf/runtime.py: tensorflow-text, a process alone."""

import pathlib
import re

import pytest
import tensorflow as tf

from bert_tf import runtime
from bert_tf.errors import InputError

ROOT = pathlib.Path(__file__).parents[1]


# ---------------------------------------------------------------------------- tensorflow-text


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (tf.errors.NotFoundError(None, None, "icudt77_dat\nand more"), InputError),
        (ImportError("_x.so: cannot open shared object file: Too many open files"), ImportError),
        (OSError(5, "Input/output error"), OSError),
    ],
)
def test_only_another_version_of_tensorflow_text_is_refused(monkeypatch, error, raised):
    def fail(name):
        if name == "tensorflow_text":
            raise error
        return tf

    monkeypatch.setattr(runtime.importlib, "import_module", fail)
    with pytest.raises(raised) as caught:
        runtime.import_tensorflow_text()
    if raised is InputError:
        minor = tf.__version__.rpartition(".")[0]
        assert caught.value.received.startswith(f"TensorFlow {tf.__version__}, and a tensorflow-t")
        assert caught.value.received.endswith("(icudt77_dat)")
        assert caught.value.remedy.endswith(f"--no-deps 'tensorflow-text=={minor}.*'")


def test_the_versions_that_are_declared_fit():
    def read(name):
        return (ROOT / name).read_text(encoding="utf-8")

    pinned = dict(
        re.findall(r"^(tensorflow|tensorflow-text)==(\S+)$", read("constraints.txt"), re.M)
    )
    minor = pinned["tensorflow"].rpartition(".")[0]
    assert pinned["tensorflow-text"].startswith(f"{minor}.")
    commands = read("requirements-tpu.txt")
    on_tpu = re.search(r"^tensorflow-tpu==(\d+\.\d+)\.", commands, re.M)[1]
    assert f"tensorflow-text=={on_tpu}." in commands
    assert '"tensorflow-text>=2.20.1,!=2.21.0,<2.22"' in read("setup.py")
    assert "tensorflow-text)==.*/\\1==2.20.1/" in read("Makefile")


# ---------------------------------------------------------------------------- processes of a run


def test_a_process_alone_waits_for_nobody():
    assert runtime.is_chief()
    assert not runtime.has_peers()
    assert runtime.process.all_gather(7) == [7]
    assert [runtime.any_process(flag) for flag in (False, True)] == [False, True]
    runtime.check_same({"steps": 7})
    runtime.process.leave()
    assert runtime.process.ending(tf.errors.UnavailableError(None, None, "gone")) is None
