"""Checkpoints: the original's files in and out, what is refused, and what survives a kill."""

import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import threading
from concurrent import futures

import numpy as np
import pytest
import reference
import tensorflow as tf
from model_files import assert_same
from model_files import write_bundle as write

from bert_tf import BertConfig, load_checkpoint, make_model, runtime
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.tf1 import (
    GLOBAL_STEP,
    RUN_SETTINGS,
    CheckpointFolder,
    CheckpointReader,
    check_finished_run,
    find_checkpoint,
)
from bert_tf.errors import InputError
from bert_tf.files import locked
from bert_tf.modeling.names import checkpoint_name

DATA = ".data-00000-of-00001"


def read(prefix) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint, by TensorFlow's own reader."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


# ---------------------------------------------------------------------------- the original's files


def test_the_originals_checkpoint_there_and_back(tiny, tmp_path):
    """With both heads and Adam's moments, written by the original's graph."""
    original = tiny
    theirs = read(original / "bert_model.ckpt")
    assert_same(read(write(tmp_path / "all.ckpt", theirs)), theirs)
    reader = CheckpointReader(original)
    assert_same({name: reader.read(name) for name in reader.shapes}, theirs)
    config = BertConfig.from_json_file(original / "bert_config.json")
    model = make_model("pretraining", config)
    report = load_checkpoint(model, original / "bert_model.ckpt")
    names = sorted(checkpoint_name(variable) for variable in model.weights)
    assert report.matched == names == sorted(reference.variable_shapes(config))
    assert report.missing == report.unused == []
    assert set(report.slots) == theirs.keys() - set(names)
    assert set(report.slots) >= {f"{name}/adam_{m}" for name in names for m in "mv"}
    assert_same(reference.take_weights(model), {name: theirs[name] for name in names})


# ---------------------------------------------------------------------------- which checkpoint


def test_find_checkpoint(tmp_path):
    """By any of its names; in a folder the only one, the one that is named, the best of a run."""
    for path in (tmp_path, tmp_path / "bert_model.ckpt", "bert-base-uncased"):
        with pytest.raises(InputError, match="where there is no checkpoint") as caught:
            find_checkpoint(path)
        assert "hf:google-bert/bert-base-uncased" in caught.value.remedy
    prefix = write(tmp_path / "bert_model.ckpt", {"x": np.float32(1)})
    for end in ("", ".index", DATA, ".meta"):
        path = f"{prefix}{end}"
        assert find_checkpoint(path) == find_checkpoint(pathlib.Path(path)) == prefix
    assert find_checkpoint(tmp_path) == find_checkpoint(f"{tmp_path}/") == prefix
    write(tmp_path / "model.ckpt-9", {"x": np.float32(9)})
    with pytest.raises(InputError, match="a folder with 2 checkpoints"):
        find_checkpoint(tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    assert find_checkpoint(tmp_path) == f"{tmp_path}/model.ckpt-9"
    save(CheckpointFolder(tmp_path / "best"), 4)
    assert find_checkpoint(tmp_path) == f"{tmp_path}/best/model.ckpt-4"
    assert CheckpointFolder(tmp_path).latest() == f"{tmp_path}/model.ckpt-9"  # training goes on


@pytest.mark.parametrize(
    "text",
    ["", "model_checkpoint_path: \n", "all_model_checkpoint_paths: 'a'\n", "{...", "a\0b",
     'model_checkpoint_path: "model.ckpt-8"\n'],
)  # fmt: skip
def test_a_broken_checkpoint_file(tmp_path, text):
    """Neither a new start, which would overwrite the run, nor a guess."""
    write(tmp_path / "model.ckpt-9", {"x": np.float32(9)})
    (tmp_path / "checkpoint").write_text(text)
    with pytest.raises(InputError) as caught:
        CheckpointFolder(tmp_path).latest()
    assert f"{tmp_path}/checkpoint" in caught.value.received


# ---------------------------------------------------------------------------- a run's folder


def names(folder) -> set[str]:
    return {path.name for path in pathlib.Path(folder).iterdir()}


def files_of(*steps: int) -> set[str]:
    return {f"model.ckpt-{step}{suffix}" for step in steps for suffix in (".index", DATA)}


def save(folder: CheckpointFolder, step: int) -> str:
    return folder.save(step, {"x": np.float32(step)})


def test_save_and_latest(tmp_path):
    folder = CheckpointFolder(tmp_path / "new" / "run")
    assert folder.latest() is None
    for step in (5, 10):
        assert save(folder, step) == folder.latest() == f"{tmp_path}/new/run/model.ckpt-{step}"
        assert read(folder.latest())["x"] == step
    assert names(folder.path) == files_of(5, 10) | {"checkpoint"}
    assert (tmp_path / "new/run/checkpoint").read_text() == (
        'model_checkpoint_path: "model.ckpt-10"\n'
        'all_model_checkpoint_paths: "model.ckpt-5"\n'
        'all_model_checkpoint_paths: "model.ckpt-10"\n'
    )
    assert tf.train.latest_checkpoint(folder.path) == folder.latest()
    assert CheckpointFolder(folder.path).latest() == folder.latest()
    assert find_checkpoint(folder.path) == folder.latest()


@pytest.mark.parametrize("name", ["lr=[1e-4]", "a\\b", "[!a]*?", "\\[x\\]"])
def test_a_name_that_tensorflow_takes_for_a_pattern_is_refused(tmp_path, name):
    """Before anything is made or read."""
    write(tmp_path / "a/model.ckpt", {"x": np.float32(3)})
    (tmp_path / "a").rename(tmp_path / name)
    for call in (CheckpointReader, tf1.open_tf1, CheckpointFolder):
        with pytest.raises(InputError, match=r"Expected: a path without square brackets and backs"):
            call(tmp_path / name)
    with pytest.raises(InputError, match=r"Received: .*/new\n"):
        CheckpointFolder(tmp_path / name / "new")
    assert names(tmp_path / name) == {"model.ckpt.index", f"model.ckpt{DATA}"}


@pytest.mark.parametrize("name", ["~", "x y", "ä#%", "a]b", "a[b", "{b,c}", "b*?"])
def test_no_other_name_of_a_folder_is_taken_for_a_pattern(tmp_path, monkeypatch, name):
    """Nor is ~ in the middle of a path anything but a name."""
    (tmp_path / "bcd").mkdir()  # which the last would match
    folder = CheckpointFolder(tmp_path / name)
    for step in (5, 10):
        save(folder, step)
    (tmp_path / name / "checkpoint").unlink()
    with pytest.raises(InputError, match="a folder with 2 checkpoints"):
        find_checkpoint(folder.path)
    write(tmp_path / "one" / name / f"{name}.ckpt", {"y": np.arange(7.0), "x": np.float32(3)})
    for path, wanted in {
        folder.path + "/model.ckpt-10": {"x": 10.0},
        folder.path + "/model.ckpt-5.index": {"x": 5.0},
        tmp_path / "one" / name: {"x": 3.0, "y": np.arange(7.0)},
    }.items():
        reader = CheckpointReader(path)
        found = {key: reader.read(key) for key in reader.shapes if key in wanted}
        np.testing.assert_equal(found, wanted)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_checkpoint(f"~/one/{name}/") == f"{tmp_path}/one/{name}/{name}.ckpt"


@pytest.mark.parametrize(("keep_max", "kept"), [(1, [9]), (3, [20, 3, 9]), (0, [7, 20, 3, 9])])
def test_the_oldest_are_removed(tmp_path, keep_max, kept):
    (tmp_path / "model.ckpt-1.index").touch()  # another's: not in the list, not touched
    (tmp_path / "notes.txt").touch()
    folder = CheckpointFolder(tmp_path, keep_max=keep_max)
    for step in (7, 20, 3, 9, 9):  # by age, not by number; and a step again
        save(folder, step)
    expected = files_of(*kept) | {"checkpoint", "notes.txt", "model.ckpt-1.index"}
    assert names(tmp_path) == expected


@pytest.mark.parametrize("completed", range(6))
@pytest.mark.parametrize(
    ("module", "operation"),
    [
        (tf.io.gfile, "rename"),
        (os, "replace"),
        (tf.io.gfile, "remove"),
        (tf.io.gfile, "rmtree"),
        (tf1.files, "synced"),
    ],
)
def test_killed_in_the_middle_of_a_save(tmp_path, monkeypatch, module, operation, completed):
    """After any number of its steps: the latest checkpoint is a whole one, and saving goes on."""
    folder = CheckpointFolder(tmp_path, keep_max=2)
    save(folder, 1)
    save(folder, 2)
    calls, real = [], getattr(module, operation)

    def killed(*args, **kwargs):
        calls.append(args)
        if len(calls) > completed:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(module, operation, killed)
        try:
            save(folder, 3)
        except KeyboardInterrupt:
            pass
        else:
            assert len(calls) <= completed
    resumed = CheckpointFolder(tmp_path, keep_max=2)
    latest = resumed.latest()
    assert latest in (f"{tmp_path}/model.ckpt-2", f"{tmp_path}/model.ckpt-3")
    assert read(latest)["x"] == int(latest[-1])
    for index in tmp_path.glob("*.index"):  # whatever has an index is whole
        assert read(index.with_suffix(""))["x"] == int(index.stem[-1])
    save(resumed, 3)
    save(resumed, 4)
    assert names(tmp_path) == files_of(3, 4) | {"checkpoint"}
    assert [read(f"{tmp_path}/model.ckpt-{step}")["x"] for step in (3, 4)] == [3, 4]


def copied(tmp_path, named: str) -> pathlib.Path:
    """The copy of a run's folder whose `checkpoint` file names checkpoints by other paths."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    folder = CheckpointFolder(original)
    for step in (1, 2):
        save(folder, step)
    write(original / "bert_model.ckpt", {"x": np.float32(0)})
    names = ("bert_model.ckpt", "model.ckpt-1", "model.ckpt-2")
    lines = [f'all_model_checkpoint_paths: "{named.format(original)}/{name}"' for name in names]
    latest = f'model_checkpoint_path: "{named.format(original)}/{names[-1]}"'
    (original / "checkpoint").write_text("\n".join([latest, *lines]))
    shutil.copytree(original, copy)
    return copy


@pytest.mark.parametrize("named", ["{}", "../original", "."])
@pytest.mark.parametrize("use", ["save", "clear"])
def test_a_copied_folder_leaves_the_original_alone(tmp_path, named, use):
    """Whatever path the `checkpoint` file gives; and checkpoints that no run has written stay."""
    copy = copied(tmp_path, named)
    before = {path: path.read_bytes() for path in (tmp_path / "original").iterdir()}
    folder = CheckpointFolder(copy, keep_max=1)
    assert folder.latest() == find_checkpoint(copy) == f"{copy}/model.ckpt-2"
    save(folder, 3) if use == "save" else folder.clear()
    assert {path: path.read_bytes() for path in (tmp_path / "original").iterdir()} == before
    own = files_of(3) | {"checkpoint"} if use == "save" else set()
    assert names(copy) == own | {f"bert_model.ckpt{end}" for end in (".index", DATA)}
    if use == "save":
        assert "original" not in (copy / "checkpoint").read_text()


def test_a_checkpoint_elsewhere_is_read_and_never_removed(tmp_path):
    """As TensorFlow reads it, where the folder has none of that name."""
    copy = copied(tmp_path, "{}")
    for path in copy.glob("model.ckpt-*"):
        path.unlink()
    before, folder = names(tmp_path / "original"), CheckpointFolder(copy, keep_max=1)
    assert folder.latest() == f"{tmp_path}/original/model.ckpt-2"
    save(folder, 3)
    assert names(tmp_path / "original") == before


def test_a_folder_that_is_removed_meanwhile_is_not_made_again(tmp_path):
    run = tmp_path / "run"
    with locked(str(run), folder=True):
        folder = CheckpointFolder(run)
        save(folder, 1)
        run.rename(tmp_path / "moved")
        with pytest.raises(InputError, match=rf"{run}/model\.ckpt-2, which cannot be written"):
            save(folder, 2)
    assert names(tmp_path) == {"moved"}
    assert names(tmp_path / "moved") == files_of(1) | {"checkpoint", ".lock"}


# ---------------------------------------------------------------------------- run settings


@pytest.mark.parametrize(
    "settings",
    [b"", b"{", b"3", b"[]", b"[1]", b"null", b"\xff", b"[" * 100_000, np.int64(3),
     b'{"num_train_steps": "90"}', b'{"num_train_steps": 1.5}'],
)  # fmt: skip
def test_run_settings_that_are_none(tmp_path, settings):
    reader = CheckpointReader(write(tmp_path / "a", {RUN_SETTINGS: settings}))
    with pytest.raises(InputError, match="which cannot be read"):
        reader.run_settings()
    with pytest.raises(InputError, match="nowhere"):
        reader.read("nowhere")
    without = write(tmp_path / "b", {GLOBAL_STEP: np.int64(4)})
    assert CheckpointReader(without).run_settings() == {}


def test_the_end_of_another_run_is_not_taken_for_this_one(tmp_path, monkeypatch):
    folder = CheckpointFolder(tmp_path)
    notes = {"seed": 3, "freeze": [], "init_checkpoint": "a", "dev_data": "d", "num_replicas": 1}
    prefix = folder.save(6, {RUN_SETTINGS: np.array(json.dumps(notes))})
    same = notes | {"freeze": (), "dev_data": None, "num_replicas": 2, "precision": "float32"}
    for path in ("a", os.path.abspath("a"), "./b/../a", None, prefix):
        check_finished_run(prefix, same | {"init_checkpoint": path})
    check_finished_run(prefix, same | {"seed": 4}, besides=["seed"])
    others = {"seed": 4, "init_checkpoint": f"{tmp_path}_other/x", "dev_data": "e", "freeze": "x"}
    for name, other in others.items():
        says = rf"a finished run, with other settings: {name} {other} \(it had "
        with pytest.raises(InputError, match=says):
            check_finished_run(prefix, same | {name: other})
    monkeypatch.setattr(runtime, "any_process", lambda flag: True)
    with pytest.raises(InputError, match="other settings: of another process"):
        check_finished_run(prefix, same)


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    synced, rename = tf1.files.synced, tf.io.gfile.rename

    def traced(name, function):
        def call(path, *target, **more):
            calls.append(f"{name} {os.path.relpath([path, *target][-1], tmp_path)}")
            return function(path, *target, **more)

        return call

    monkeypatch.setattr(tf1.files, "synced", traced("sync", synced))
    monkeypatch.setattr(tf.io.gfile, "rename", traced("rename", rename))
    monkeypatch.setattr(os, "replace", traced("rename", os.replace))
    folder = CheckpointFolder(tmp_path)
    folder.save(3, {"a": np.zeros(5, np.float32)})
    suffixes = (".data-00000-of-00001", ".index")
    of_files = [(f"sync TEMPORARY/checkpoint{suffix}", f"rename model.ckpt-3{suffix}")
                for suffix in suffixes]  # fmt: skip
    of_names = ["sync TEMPORARY", "rename checkpoint", "sync ."]
    hidden = r"\.(model\.ckpt-3|checkpoint)\.\S+-incomplete/\1"
    calls = [re.sub(hidden, "TEMPORARY", call) for call in calls]
    assert calls == [*of_files[0], *of_files[1], "sync .", *of_names]


# ---------------------------------------------------------------------------- in the background


class Held:
    """A thread that writes stops where a file gets its name, until it is let go."""

    def __init__(self, monkeypatch):
        self._rename = tf.io.gfile.rename
        self._goes_on, self.is_there = threading.Event(), threading.Event()
        monkeypatch.setattr(tf.io.gfile, "rename", self)

    def __call__(self, *args, **kwargs) -> None:
        self.is_there.set()
        assert self._goes_on.wait(60)
        self._rename(*args, **kwargs)

    def let_go(self, *, after: float = 0.0) -> None:
        """Now, or after so many seconds while the caller waits for something."""
        threading.Timer(after, self._goes_on.set).start()


@pytest.fixture
def held(monkeypatch):
    held = Held(monkeypatch)
    yield held
    held.let_go()


LATE = 0.2  # seconds; whoever does not wait for the thread is there long before


@pytest.mark.parametrize("reads", ["latest", "wait", "start_saving", "clear", "whole_at_end"])
def test_what_reads_the_folder_waits(tmp_path, held, reads):
    folder = CheckpointFolder(tmp_path)
    folder.start_saving(5, {"x": np.float32(5)})
    assert held.is_there.wait(60)
    folder.raise_error()  # there is none yet, and it does not wait
    assert all(name.startswith(".model.ckpt-5.") for name in names(tmp_path))
    held.let_go(after=LATE)
    match reads:
        case "start_saving":
            folder.start_saving(6, {"x": np.float32(6)})
        case "whole_at_end":
            with folder.whole_at_end():
                pass
        case _:
            getattr(folder, reads)()
    is_there = (tmp_path / "model.ckpt-5.index").exists()
    assert is_there == (reads != "clear")  # which has removed it
    folder.wait()
    left = {"latest": (5,), "wait": (5,), "start_saving": (5, 6), "whole_at_end": (5,), "clear": ()}
    assert names(tmp_path) == files_of(*left[reads]) | ({"checkpoint"} if left[reads] else set())


def end_while_saving(folder: CheckpointFolder, error: BaseException, *, step: int = 5) -> None:
    """What a run does that an error ends while the thread writes the checkpoint of step 5."""
    with folder.whole_at_end():
        folder.start_saving(step, {"x": np.float32(step)})
        raise error


def full(*args, **kwargs):
    raise tf.errors.ResourceExhaustedError(None, None, "no space left")


@pytest.mark.parametrize("call", ["SaveV2", "rename"])
@pytest.mark.parametrize("asks", ["raise_error", "latest", "start_saving", "whole_at_end"])
def test_an_error_in_the_thread_comes_once(tmp_path, monkeypatch, caplog, asks, call):
    """A disk that is full, say; what was there before is whole, and saving can go on."""
    folder, says = CheckpointFolder(tmp_path), "step 6 cannot be written (no space left"
    latest = save(folder, 5)
    with monkeypatch.context() as patch:
        patch.setattr(tf.raw_ops if call == "SaveV2" else tf.io.gfile, call, full)
        if asks == "whole_at_end":  # the process ends by the first error; the log has both
            with pytest.raises(ZeroDivisionError):
                end_while_saving(folder, ZeroDivisionError(), step=6)
            assert says in caplog.text
        else:
            folder.start_saving(6, {"x": np.float32(6)})
            futures.wait([folder._saving])
            ask = functools.partial(folder.start_saving, 7, {}) if asks[0] == "s" else None
            with pytest.raises(InputError, match=re.escape(says)) as caught:
                (ask or getattr(folder, asks))()
            assert latest in caught.value.remedy
    folder.raise_error()
    assert folder.latest() == latest
    assert names(tmp_path) == files_of(5) | {"checkpoint"}
    folder.start_saving(6, {"x": object()})
    with pytest.raises(ValueError, match="object") as caught:  # a bug, not the user's error
        folder.wait()
    assert not isinstance(caught.value, InputError)
    assert save(folder, 6) == folder.latest()


@pytest.mark.parametrize("is_chief", [True, False])
def test_processes_wait_for_each_other_once_a_checkpoint(tmp_path, monkeypatch, is_chief):
    """At the same calls in all of them, or one would wait for ever; only the chief writes."""
    barriers, found = [], []
    monkeypatch.setattr(runtime, "is_chief", lambda: is_chief)
    monkeypatch.setattr(runtime, "barrier", lambda: barriers.append(True))
    folder = CheckpointFolder(tmp_path)

    def note(call) -> None:
        call()
        found.append(len(barriers))

    note(lambda: folder.start_saving(5, {"x": np.float32(5)}))
    note(folder.raise_error)
    note(folder.latest)
    note(folder.wait)
    note(lambda: folder.start_saving(6, {"x": np.float32(6)}))
    with contextlib.suppress(KeyboardInterrupt):
        end_while_saving(folder, KeyboardInterrupt())
    found.append(len(barriers))
    note(lambda: folder.save(8, {"x": np.float32(8)}))
    with folder.whole_at_end():
        folder.start_saving(9, {"x": np.float32(9)})
    found.append(len(barriers))
    assert found == [0, 0, 1, 1, 1, 2, 3, 4]
    whole = files_of(5, 6, 8, 9) | {"checkpoint"}
    assert names(tmp_path) == (whole if is_chief else set())
    if is_chief:  # no process passes where it could not write
        monkeypatch.setattr(tf.raw_ops, "SaveV2", full)
        folder.start_saving(10, {"x": np.float32(10)})
        with pytest.raises(InputError, match="step 10 cannot be written"):
            folder.wait()
        assert len(barriers) == 4
