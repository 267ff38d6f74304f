"""data_gen/workers.py: results in order, few tasks at a time; complete files or none."""

import concurrent.futures
import functools
import os
import signal

import pytest
import tensorflow as tf
from generation import SETTINGS, names

from bert_tf.data.records import DataDescription
from bert_tf.data.shards import read_description
from bert_tf.errors import InputError
from data_gen.workers import (
    TASKS_PER_WORKER,
    Workers,
    choose_num_workers,
    working_folder,
    write_in_turn,
)

# ------------------------------------------------------------------------- processes


def prepare(base: int) -> tuple[int, int]:
    return base, os.getpid()


def add(state: tuple[int, int], task: int) -> tuple[int, int]:
    base, process = state
    assert process == os.getpid()  # prepared here
    return base + task, process


def kill_itself(state: tuple[int, int], task: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(state: tuple[int, int], task: int) -> None:
    raise OSError(28, "No space left on device", "a file")


def cannot_prepare() -> None:
    raise InputError("a vocabulary that has vanished", "a file", "restore it")


@pytest.mark.parametrize("num_workers", [1, 2])
def test_why_a_process_cannot_begin(num_workers, capfd):
    with (
        pytest.raises(InputError, match="a vocabulary that has vanished"),
        Workers(num_workers, cannot_prepare) as workers,
    ):
        list(workers.map(add, [1, 2, 3]))
    assert "Traceback" not in capfd.readouterr().err


def test_several_processes_give_results_in_order_and_take_tasks_as_they_go():
    taken = []

    def tasks():
        for number in range(40):
            taken.append(number)
            yield number

    with Workers(2, prepare, 1000) as workers:
        processes = set()
        for done, (result, process) in enumerate(workers.map(add, tasks()), start=1):
            assert result == 1000 + done - 1
            assert len(taken) - done < 2 * TASKS_PER_WORKER
            processes.add(process)
        assert os.getpid() not in processes
        # The same processes do the next kind of work; errors come through.
        with pytest.raises(OSError, match="No space left"):
            list(workers.map(fail, range(9)))
        with pytest.raises(InputError, match="one of 2 worker processes"):
            list(workers.map(kill_itself, range(2)))


def test_one_worker_is_this_process():
    with Workers(1, prepare, 7) as workers:
        assert list(workers.map(add, range(3))) == [(7 + n, os.getpid()) for n in range(3)]


def test_number_of_workers():
    assert choose_num_workers(3, most=9) == 3
    assert choose_num_workers(3, most=2) == 2
    assert 1 <= choose_num_workers(0, most=1000) <= (os.cpu_count() or 1)


# ------------------------------------------------------------------------- files


describe = functools.partial(
    DataDescription,
    bert_tf_version="7",
    do_lower_case=False,
    vocab_file="v",
    vocab_sha256="0",
    vocab_size=9,
    **vars(SETTINGS),
)


def records(path) -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


def test_records_go_to_the_files_in_turn_and_appear_at_the_end(tmp_path):
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]

    def numbers():
        for number in range(7):
            yield b"%d" % number
            assert not any(tf.io.gfile.exists(path) for path in paths)

    assert write_in_turn(paths, numbers(), describe) == dict(zip(paths, (3, 2, 2), strict=True))
    assert [records(path) for path in paths] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]
    assert names(tmp_path) == ["a", "b", "c", *(f"info_{name}.json" for name in "abc")]
    for shard, path in enumerate(paths, start=1):
        data = read_description(path)
        numbers_of_file = (data.shard, data.num_shards, data.num_records, data.num_bytes)
        size = os.path.getsize(path)
        assert numbers_of_file == (shard, 3, len(records(path)), size)


def test_a_failure_leaves_nothing_and_keeps_what_was_there(tmp_path):
    def broken():
        yield b"new"
        raise KeyboardInterrupt

    old = tmp_path / "a"
    old.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        write_in_turn([str(old), str(tmp_path / "b")], broken(), describe)
    assert names(tmp_path) == ["a"]
    assert old.read_bytes() == b"old"


def test_no_file_gets_its_name_before_all_are_complete(tmp_path, monkeypatch):
    """The disk may be full when the last records are written, which is when a file is closed."""

    class FullDisk(tf.io.TFRecordWriter):
        def close(self):
            super().close()
            raise OSError(28, "No space left on device")

    writers = iter([tf.io.TFRecordWriter, FullDisk, tf.io.TFRecordWriter])
    monkeypatch.setattr(tf.io, "TFRecordWriter", lambda path: next(writers)(path))
    monkeypatch.setattr(FullDisk, "__exit__", lambda self, *_: self.close())
    with pytest.raises(OSError, match="No space"):
        write_in_turn([str(tmp_path / name) for name in "abc"], [b"1", b"2"], describe)
    assert names(tmp_path) == []


def test_a_file_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")

    def never():
        raise AssertionError("a record was asked for")
        yield

    for bad, message in (("folder", "it is a folder"), ("file/x", "cannot be written")):
        with pytest.raises(InputError, match=message):
            write_in_turn([str(tmp_path / "good"), str(tmp_path / bad)], never(), describe)
        assert names(tmp_path) == ["file", "folder"]


def test_working_folder_is_emptied_before_and_removed_after(tmp_path):
    output = str(tmp_path / "out.tfrecord")
    left_over = tmp_path / ".out.tfrecord.working" / "corpus"
    left_over.mkdir(parents=True)
    (left_over / "tokens").write_text("of a run that was killed")
    with working_folder(output, None) as folder:
        assert folder == left_over.parent
        assert names(folder) == [".lock"]
        with (
            concurrent.futures.ThreadPoolExecutor(1) as another_run,
            pytest.raises(InputError, match=r"out\.tfrecord, which process \d+ .+ is writing"),
        ):
            another_run.submit(working_folder(output, None).__enter__).result()
        assert folder.exists()
    assert names(tmp_path) == []


def test_working_folder_elsewhere(tmp_path):
    with working_folder("gs://bucket/out", str(tmp_path / "t")) as folder:
        assert folder.parent == tmp_path / "t"
    assert names(tmp_path / "t") == []
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"file/out\.working, which cannot be written"),
        working_folder("out", str(tmp_path / "file")),
    ):
        pass
