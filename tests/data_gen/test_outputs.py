"""data_gen/outputs.py: complete files or none, an index beside each; what an earlier run left."""

import concurrent.futures
import doctest
import functools
import os

import pytest
import tensorflow as tf
from generation import SETTINGS, names

from bert_tf.config import typed
from bert_tf.data.index import BlockIndex, index_path
from bert_tf.data.records import DataDescription, description_path
from bert_tf.data.shards import read_description
from bert_tf.errors import InputError
from bert_tf.files import read_json
from data_gen import outputs
from data_gen.outputs import finished_shards, output_paths, working_folder, write_in_turn

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
    beside = [f"{kind}_{name}.json" for kind in ("index", "info") for name in "abc"]
    assert names(tmp_path) == ["a", "b", "c", *beside]
    for shard, path in enumerate(paths, start=1):
        data = read_description(path)
        numbers_of_file = (data.shard, data.num_shards, data.num_records, data.num_bytes)
        size = os.path.getsize(path)
        assert numbers_of_file == (shard, 3, len(records(path)), size)
        index = typed(BlockIndex, read_json(index_path(path)), source=path)
        assert (index.num_bytes, index.num_records) == (size, len(records(path)))
        assert index.block_bytes == (size,)


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


def test_what_a_failed_run_leaves_may_be_kept(tmp_path):
    output = str(tmp_path / "out")

    def interrupted():
        with working_folder(output, None, keep=True) as folder:
            (folder / "rows").write_text("half of them")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with working_folder(output, None, keep=True) as folder:
        assert names(folder) == [".lock", "rows"]
    assert names(tmp_path) == []


# ------------------------------------------------------------------------- shards


def test_names_of_shards():
    assert doctest.testmod(outputs).failed == 0
    assert output_paths("a,b", 0) == ["a", "b"]
    assert output_paths("a", 3) == [f"a-0000{shard}-of-00003" for shard in range(3)]
    for name in ("a,b", "", "folder/"):
        with pytest.raises(
            InputError, match=rf"^Received: --output_file={name} with --num_shards=3"
        ):
            output_paths(name, 3)


def write_shards(prefix: str, *shards: int, of: int, **changes) -> list[str]:
    paths = output_paths(prefix, of)
    for shard in shards:
        numbers = {"shard": shard + 1, "num_shards": of} | changes
        with outputs.RecordFile(paths[shard]) as file:
            for number in range(10 + shard):
                file.write(b"%d" % number)
            file.finish(functools.partial(describe, **numbers))
    return paths


def test_finished_shards_are_found(tmp_path):
    prefix = str(tmp_path / "x")
    assert finished_shards(prefix, 4, describe) == {}
    paths = write_shards(prefix, 0, 2, of=4)
    assert finished_shards(prefix, 4, describe) == {paths[0]: 10, paths[2]: 12}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_sha256": "1"}, r"x-00001-of-00003, a shard with the vocab_sha256 1$"),
        ({"text_digest": "f"}, "with the text_digest f$"),
        ({"random_seed": 8}, "with the random_seed 8$"),
    ],
)
def test_shards_of_another_run_are_refused(tmp_path, change, message):
    prefix = str(tmp_path / "x")
    write_shards(prefix, 0, of=3)
    write_shards(prefix, 1, of=3, **change)
    with pytest.raises(InputError) as error:
        finished_shards(prefix, 3, describe)
    assert error.match(message.replace("$", "\n"))


def test_other_files_in_the_place_of_shards_are_refused(tmp_path):
    prefix = str(tmp_path / "x")
    (path, *_) = write_shards(prefix, 0, of=3)
    with pytest.raises(InputError, match=r"--num_shards=4, where .*x-00000-of-00003 is there"):
        finished_shards(prefix, 4, describe)
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(InputError, match="a shard with the num_bytes"):
        finished_shards(prefix, 3, describe)
    os.unlink(description_path(path))
    with pytest.raises(InputError, match=r"info_x-00000-of-00003\.json, which is not a file"):
        finished_shards(prefix, 3, describe)
