"""Checkpoints: the original's files in and out, what is refused, and what survives a kill."""

import contextlib
import functools
import os
import pathlib
import re
import shutil
import threading
from concurrent import futures

import killed
import numpy as np
import pytest
import reference
import small
import tensorflow as tf
from model_files import assert_same
from model_files import write_bundle as write

from bert_tf import BertConfig, BertModel, cluster, files, load_checkpoint, make_model
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.tf1 import (
    GLOBAL_STEP,
    RUN_SETTINGS,
    CheckpointFolder,
    CheckpointReader,
    checkpoint_name,
    find_checkpoint,
)
from bert_tf.errors import InputError
from bert_tf.files import locked

DATA = ".data-00000-of-00001"


def read(prefix) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint, by TensorFlow's own reader."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


# ---------------------------------------------------------------------------- the original's files


@pytest.fixture(params=["fixture", "golden"])
def original(request):
    """A checkpoint with both heads and Adam's moments, written by the original's graph."""
    if request.param == "fixture":
        return request.getfixturevalue("data_dir") / "fixtures/tf1-tiny-checkpoint"
    return request.getfixturevalue("goldens_dir") / "pretraining_tiny"


def test_the_originals_checkpoint_there_and_back(original, tmp_path):
    theirs = read(original / "bert_model.ckpt")
    assert_same(read(write(tmp_path / "all.ckpt", theirs)), theirs)
    config = BertConfig.from_json_file(original / "bert_config.json")
    model = make_model("pretraining", config)
    report = load_checkpoint(model, original / "bert_model.ckpt")
    names = sorted(checkpoint_name(variable) for variable in model.weights)
    assert report.matched == names == sorted(reference.variable_shapes(config))
    assert report.missing == report.unused == []
    assert set(report.slots) == theirs.keys() - set(names)
    assert set(report.slots) >= {f"{name}/adam_{m}" for name in names for m in "mv"}
    ours = reference.take_weights(model)
    assert_same(ours, {name: theirs[name] for name in names})
    assert_same(read(write(tmp_path / "again.ckpt", ours)), ours)
    report = load_checkpoint(BertModel(config), original / "bert_model.ckpt")
    assert set(report.unused) == {name for name in names if name.startswith("cls/")}
    assert "unused: 7\n    cls/predictions/output_bias\n" in str(report)


# ---------------------------------------------------------------------------- ours, elsewhere


def test_tensorflow_1_reads_what_we_write(tmp_path, tensors):
    """A v1 graph with the original's variables, restored by its Saver."""
    tensors |= {
        "bert/pooler/dense/bias/adam_m": np.float32(range(small.CONFIG.hidden_size)),
        GLOBAL_STEP: np.int64(2**40 + 1),
    }
    write(tmp_path / "model.ckpt-7", {"x": np.float32(1)})  # is replaced
    prefix = write(tmp_path / "model.ckpt-7", tensors)
    assert names(tmp_path) == files_of(7)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name, value.shape, value.dtype, use_resource=False)
            for name, value in tensors.items()
        }
        tf.compat.v1.train.Saver().restore(session, prefix)
        restored = session.run(variables)
    assert_same({name: np.asarray(value) for name, value in restored.items()}, tensors)


# ---------------------------------------------------------------------------- which checkpoint


def test_find_checkpoint(tmp_path):
    prefix = write(tmp_path / "bert_model.ckpt", {"x": np.float32(1)})
    for end in ("/bert_model.ckpt", ".index", DATA, ".meta"):
        path = f"{tmp_path}{end}" if end[0] == "/" else f"{prefix}{end}"
        assert find_checkpoint(path) == find_checkpoint(pathlib.Path(path)) == prefix
    assert find_checkpoint(tmp_path) == find_checkpoint(f"{tmp_path}/") == prefix


def test_find_checkpoint_prefers_the_best_of_a_run(tmp_path):
    """Whatever opens the folder of a run takes the model that its scores are of."""
    run = CheckpointFolder(str(tmp_path))
    run.save(30, {"w": np.zeros(2, np.float32)})
    assert find_checkpoint(str(tmp_path)) == f"{tmp_path}/model.ckpt-30"
    CheckpointFolder(str(tmp_path / "best")).save(20, {"w": np.ones(2, np.float32)})
    assert find_checkpoint(str(tmp_path)) == f"{tmp_path}/best/model.ckpt-20"
    assert run.latest() == f"{tmp_path}/model.ckpt-30"  # where training goes on


def test_find_checkpoint_in_a_folder_of_several(tmp_path):
    for step in (9, 10):
        write(tmp_path / f"model.ckpt-{step}", {"x": np.float32(step)})
    with pytest.raises(InputError, match="a folder with 2 checkpoints"):
        find_checkpoint(tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    assert find_checkpoint(tmp_path) == f"{tmp_path}/model.ckpt-9"
    assert find_checkpoint(tmp_path / "model.ckpt-10") == f"{tmp_path}/model.ckpt-10"


def test_find_no_checkpoint(tmp_path):
    (tmp_path / "bert_config.json").touch()
    beside = (tmp_path / name for name in ("bert_config.json", "bert_model.ckpt"))
    for path in (tmp_path, *beside, "bert-base-uncased"):
        with pytest.raises(InputError, match="where there is no checkpoint") as caught:
            find_checkpoint(path)
        assert "models are not downloaded by name" in caught.value.remedy


BROKEN = ["", "model_checkpoint_path: \n", "all_model_checkpoint_paths: 'a'\n", "{...", "a\0b"]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_checkpoint_file(tmp_path, text):
    """Neither a new start, which would overwrite the run, nor a guess."""
    write(tmp_path / "model.ckpt-9", {"x": np.float32(9)})
    (tmp_path / "checkpoint").write_text(text)
    for find in (CheckpointFolder(tmp_path).latest, lambda: find_checkpoint(tmp_path)):
        with pytest.raises(InputError) as caught:
            find()
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


@pytest.mark.parametrize(("keep_max", "kept"), [(1, [9]), (3, [20, 3, 9]), (0, [7, 20, 3, 9])])
def test_the_oldest_are_removed(tmp_path, keep_max, kept):
    (tmp_path / "model.ckpt-1.index").touch()  # another's: not in the list, not touched
    (tmp_path / "notes.txt").touch()
    folder = CheckpointFolder(tmp_path, keep_max=keep_max)
    for step in (7, 20, 3, 9, 9):  # by age, not by number; and a step again
        save(folder, step)
    expected = files_of(*kept) | {"checkpoint", "notes.txt", "model.ckpt-1.index"}
    assert names(tmp_path) == expected


@pytest.mark.parametrize("completed", range(4))
@pytest.mark.parametrize(
    ("module", "operation"),
    [(tf.io.gfile, "rename"), (tf.io.gfile, "remove"), (tf.io.gfile, "rmtree"), (tf1, "synced")],
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


def test_leftovers_of_a_killed_save(tmp_path):
    folder = CheckpointFolder(tmp_path)
    latest = save(folder, 5)
    killed.leave_lock(tmp_path / ".lock")
    half = tmp_path / killed.left_name("model.ckpt-9")
    half.mkdir()
    (half / f"checkpoint{DATA}").write_bytes(b"half")
    (tmp_path / f"model.ckpt-9{DATA}").write_bytes(b"renamed, but its index not yet")
    (tmp_path / killed.left_name("checkpoint")).write_text("model_ch")
    with locked(str(tmp_path), folder=True):
        folder = CheckpointFolder(tmp_path)
        assert folder.latest() == latest
        save(folder, 9)
        assert folder.latest() == f"{tmp_path}/model.ckpt-9"
    assert read(folder.latest())["x"] == 9
    assert names(tmp_path) == files_of(5, 9) | {"checkpoint"}


def test_folders_of_the_user_stay(tmp_path):
    """Whatever they are called."""
    mine = ("incomplete_checkpoint", ".trial", ".model.ckpt-1.incomplete")
    for name in mine:
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis").write_text("years of work")
    with locked(str(tmp_path), folder=True):
        save(CheckpointFolder(tmp_path), 1)
    assert names(tmp_path) == files_of(1) | {"checkpoint", *mine}
    assert all(names(tmp_path / name) == {"thesis"} for name in mine)


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
    before = names(tmp_path / "original")
    folder = CheckpointFolder(copy, keep_max=1)
    assert folder.latest() == find_checkpoint(copy) == f"{tmp_path}/original/model.ckpt-2"
    save(folder, 3)
    assert names(tmp_path / "original") == before
    assert folder.latest() == f"{copy}/model.ckpt-3"


def test_nothing_is_written_where_the_folder_was_replaced(tmp_path):
    """Neither by the thread that writes checkpoints nor where the steps stop."""
    run = tmp_path / "run"
    run.mkdir()
    with locked(str(run), folder=True):
        folder = CheckpointFolder(run)
        save(folder, 1)
        run.rename(tmp_path / "moved")
        run.mkdir()
        for use in (folder.raise_error, lambda: save(folder, 2)):
            with pytest.raises(InputError, match=r"run, which was removed or replaced"):
                use()
            folder._saving = None
    assert names(run) == set()
    assert names(tmp_path / "moved") == files_of(1) | {"checkpoint", ".lock"}


def test_a_folder_that_is_moved_stays_whole(tmp_path):
    save(CheckpointFolder(tmp_path / "a"), 5)
    (tmp_path / "a").rename(tmp_path / "b")
    folder = CheckpointFolder(tmp_path / "b")
    assert folder.latest() == f"{tmp_path}/b/model.ckpt-5"
    (tmp_path / "b/model.ckpt-5.index").unlink()
    with pytest.raises(InputError, match=r"names the missing .*model\.ckpt-5"):
        folder.latest()
    (tmp_path / "run").touch()
    with pytest.raises(InputError, match="which cannot be written"):
        CheckpointFolder(tmp_path / "run")


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


def test_run_settings(tmp_path):
    prefix = write(tmp_path / "a", {RUN_SETTINGS: '{"seed": 3}', GLOBAL_STEP: np.int64(4)})
    reader = CheckpointReader(prefix)
    assert reader.shapes == {RUN_SETTINGS: (), GLOBAL_STEP: ()}
    assert reader.run_settings() == {"seed": 3}
    assert reader.read(GLOBAL_STEP) == 4
    without = write(tmp_path / "b", {GLOBAL_STEP: np.int64(4)})
    assert CheckpointReader(without).run_settings() == {}
    with pytest.raises(InputError, match="nowhere"):
        reader.read("nowhere")
    pathlib.Path(prefix + DATA).write_bytes(b"")
    with pytest.raises(InputError, match="which cannot be read"):
        CheckpointReader(prefix).run_settings()


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    synced, rename = tf1.synced, tf.io.gfile.rename

    def traced(name, function):
        def call(path, *target, **more):
            calls.append(f"{name} {os.path.relpath([path, *target][-1], tmp_path)}")
            return function(path, *target, **more)

        return call

    monkeypatch.setattr(tf1, "synced", traced("sync", synced))
    monkeypatch.setattr(tf.io.gfile, "rename", traced("rename", rename))
    folder = CheckpointFolder(tmp_path)
    folder.save(3, {"a": np.zeros(5, np.float32)})
    suffixes = (".data-00000-of-00001", ".index")
    of_files = [(f"sync TEMPORARY/checkpoint{suffix}", f"rename model.ckpt-3{suffix}")
                for suffix in suffixes]  # fmt: skip
    calls = [re.sub(r"\.model\S+\.incomplete", "TEMPORARY", call) for call in calls]
    assert calls == [*of_files[0], *of_files[1], "sync .", "rename checkpoint"]


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


def test_the_same_bytes_in_the_background(tmp_path):
    tensors = {"a": np.arange(12, dtype=np.float32), "b": np.array("text"), "c": np.int64(7)}
    in_turn, background = (CheckpointFolder(tmp_path / n, keep_max=2) for n in ("one", "other"))
    for step in (3, 5, 8):
        in_turn.save(step, tensors)
        background.start_saving(step, {name: tf.constant(value) for name, value in tensors.items()})
    background.wait()
    files = [{p.name: p.read_bytes() for p in pathlib.Path(f.path).iterdir()}
             for f in (in_turn, background)]  # fmt: skip
    assert files[0] == files[1]
    assert files[0].keys() == files_of(5, 8) | {"checkpoint"}


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


def end_while_saving(folder: CheckpointFolder, error: BaseException) -> None:
    """What a run does that an error ends while the thread writes the checkpoint of step 5."""
    with folder.whole_at_end():
        folder.start_saving(5, {"x": np.float32(5)})
        raise error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_beside_the_thread_leaves_a_whole_checkpoint(tmp_path, held, kind):
    folder = CheckpointFolder(tmp_path)
    held.let_go(after=LATE)
    with pytest.raises(kind):
        end_while_saving(folder, kind())
    assert names(tmp_path) == files_of(5) | {"checkpoint"}
    assert folder.latest() == f"{tmp_path}/model.ckpt-5"


def full(*args, **kwargs):
    raise tf.errors.ResourceExhaustedError(None, None, "no space left")


@pytest.mark.parametrize("call", ["SaveV2", "rename"])
@pytest.mark.parametrize("asks", ["raise_error", "wait", "latest", "start_saving"])
def test_an_error_in_the_thread_comes_once(tmp_path, monkeypatch, asks, call):
    """A disk that is full, say; what was there before is whole, and saving can go on."""
    folder = CheckpointFolder(tmp_path)
    latest = save(folder, 5)
    with monkeypatch.context() as patch:
        patch.setattr(tf.raw_ops if call == "SaveV2" else tf.io.gfile, call, full)
        folder.start_saving(6, {"x": np.float32(6)})
        if asks == "raise_error":
            futures.wait([folder._saving])
        ask = functools.partial(folder.start_saving, 7, {}) if asks[0] == "s" else None
        with pytest.raises(InputError, match=r"step 6 cannot be written \(no space left") as caught:
            (ask or getattr(folder, asks))()
    assert latest in caught.value.remedy
    folder.raise_error()
    assert folder.latest() == latest
    assert names(tmp_path) == files_of(5) | {"checkpoint"}
    assert save(folder, 6) == folder.latest()


def test_a_bug_in_the_thread_is_no_error_of_the_user(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.start_saving(6, {"x": object()})
    with pytest.raises(ValueError, match="object") as caught:
        folder.wait()
    assert not isinstance(caught.value, InputError)
    assert not list(tmp_path.iterdir())


def test_another_error_hides_none_of_the_thread(tmp_path, monkeypatch, caplog):
    """The process ends by the first; the log has both."""
    monkeypatch.setattr(tf.raw_ops, "SaveV2", full)
    folder = CheckpointFolder(tmp_path)
    with caplog.at_level("WARNING", logger="absl"), pytest.raises(ZeroDivisionError):
        end_while_saving(folder, ZeroDivisionError())
    assert "the checkpoint of step 5 cannot be written (no space left" in caplog.text
    assert folder.latest() is None


class Peers:
    """Stands in for a cluster: counts how often this process has waited for the others."""

    def __init__(self, monkeypatch, *, is_chief: bool):
        self.barriers = 0
        monkeypatch.setattr(files, "writes_here", is_chief)
        monkeypatch.setattr(cluster, "barrier", self._barrier)

    def _barrier(self) -> None:
        self.barriers += 1


@pytest.mark.parametrize("is_chief", [True, False])
def test_processes_wait_for_each_other_once_a_checkpoint(tmp_path, monkeypatch, is_chief):
    """At the same calls in all of them, or one would wait for ever; only the chief writes."""
    peers = Peers(monkeypatch, is_chief=is_chief)
    folder, found = CheckpointFolder(tmp_path), []

    def note(call) -> None:
        call()
        found.append(peers.barriers)

    note(lambda: folder.start_saving(5, {"x": np.float32(5)}))
    note(folder.raise_error)
    note(folder.latest)
    note(folder.wait)
    note(lambda: folder.start_saving(6, {"x": np.float32(6)}))
    with contextlib.suppress(KeyboardInterrupt):
        end_while_saving(folder, KeyboardInterrupt())
    found.append(peers.barriers)
    note(lambda: folder.save(8, {"x": np.float32(8)}))
    with folder.whole_at_end():
        folder.start_saving(9, {"x": np.float32(9)})
    found.append(peers.barriers)
    assert found == [0, 0, 1, 1, 1, 2, 3, 4]
    whole = files_of(5, 6, 8, 9) | {"checkpoint"}
    assert names(tmp_path) == (whole if is_chief else set())
    if is_chief:  # no process passes where it could not write
        monkeypatch.setattr(tf.raw_ops, "SaveV2", full)
        folder.start_saving(10, {"x": np.float32(10)})
        with pytest.raises(InputError, match="step 10 cannot be written"):
            folder.wait()
        assert peers.barriers == 4
