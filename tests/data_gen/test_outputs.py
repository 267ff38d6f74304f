"""data_gen/outputs.py: complete files or none, an index beside each; what an earlier run left."""

import concurrent.futures
import doctest
import functools
import os
import shutil

import killed
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
from data_gen.outputs import (
    MARK,
    check_paths,
    finished_shards,
    output_paths,
    record_files,
    working_folder,
    write_in_turn,
)

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


def write(paths: list[str], serialized) -> dict[str, int]:
    with record_files(paths) as files:
        return write_in_turn(files, serialized, describe)


def test_records_go_to_the_files_in_turn_and_appear_at_the_end(tmp_path):
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]

    def numbers():
        for number in range(7):
            yield b"%d" % number
            assert not any(tf.io.gfile.exists(path) for path in paths)

    assert write(paths, numbers()) == dict(zip(paths, (3, 2, 2), strict=True))
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
        write([str(old), str(tmp_path / "b")], broken())
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
        write([str(tmp_path / name) for name in "abc"], [b"1", b"2"])
    assert names(tmp_path) == []


def test_a_file_that_cannot_be_written_is_refused_when_it_is_opened(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for bad, message in (("folder", "it is a folder"), ("file/x", "cannot be written")):
        opened = record_files([str(tmp_path / "good"), str(tmp_path / bad)])
        with pytest.raises(InputError, match=message):
            opened.__enter__()
        assert names(tmp_path) == ["file", "folder"]


@pytest.mark.parametrize("bad", ["info_a.json", "index_a.json"])
def test_nothing_is_left_where_a_file_beside_the_records_cannot_be_made(tmp_path, bad):
    (tmp_path / bad).mkdir()
    with pytest.raises(InputError, match="it is a folder") as caught:
        outputs.RecordFile(str(tmp_path / "a"))
    assert names(tmp_path) == [bad], caught.tb  # which keeps what was made


def test_nothing_is_left_where_records_cannot_be_opened(tmp_path, monkeypatch):
    def fail(_: str) -> None:
        raise tf.errors.UnknownError(None, None, "Input/output error")

    monkeypatch.setattr(tf.io, "TFRecordWriter", fail)
    with pytest.raises(tf.errors.UnknownError) as caught:
        outputs.RecordFile(str(tmp_path / "a"))
    assert names(tmp_path) == [], caught.tb


def test_folders_of_outputs_are_made_and_names_are_checked(tmp_path):
    paths = output_paths(f"{tmp_path}/new/x", 3)
    check_paths([str(tmp_path / "text")], paths)
    assert names(tmp_path) == ["new"]
    same = f"{tmp_path}/new/../new/x-00001-of-00003"
    for texts, files in (([], [*paths, same]), ([same], paths)):
        with pytest.raises(InputError, match=r"/x-00001-of-00003'\n.*none of them an input"):
            check_paths(texts, files)


def test_working_folder_is_emptied_before_and_removed_after(tmp_path):
    output = str(tmp_path / "out.tfrecord")
    left_over = tmp_path / ".out.tfrecord.working" / "corpus"
    left_over.mkdir(parents=True)
    (left_over / "tokens").write_text("of a run that was killed")
    killed.leave_lock(left_over.parent / ".lock")
    (left_over.parent / MARK).write_text("")
    with working_folder(output, None) as folder:
        assert folder == left_over.parent
        assert names(folder) == [".lock", MARK]
        with (
            concurrent.futures.ThreadPoolExecutor(1) as another_run,
            pytest.raises(InputError, match=r"out\.tfrecord, which process \d+ .+ is writing"),
        ):
            another_run.submit(working_folder(output, None).__enter__).result()
        assert folder.exists()
    assert names(tmp_path) == []


@pytest.mark.parametrize("temp_dir", [False, True])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_folder_with_the_name_of_a_working_folder_stays(tmp_path, temp_dir, is_link):
    output, mine = str(tmp_path / "out"), tmp_path / ".out.working"
    if temp_dir:
        mine = tmp_path / "t" / (output.replace("/", "_") + ".working")
        mine.parent.mkdir()
    folder = tmp_path / "mine" if is_link else mine
    folder.mkdir()
    (folder / "thesis").write_text("years of work")
    if is_link:
        mine.symlink_to(folder)
    with (
        pytest.raises(InputError, match=r"a link to|a folder that no run has made"),
        working_folder(output, str(mine.parent) if temp_dir else None),
    ):
        pytest.fail("it was used")
    assert names(folder) == ["thesis"]


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

    def interrupted(*made: str):
        with working_folder(output, None, kept_with="corpus.json") as folder:
            for name in made:
                (folder / name).write_text("half of them")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted("rows")
    assert names(tmp_path) == []
    with pytest.raises(KeyboardInterrupt):
        interrupted("rows", "corpus.json")
    with working_folder(output, None, kept_with="corpus.json") as folder:
        assert names(folder) == [".lock", "corpus.json", MARK, "rows"]
    assert names(tmp_path) == []


@pytest.mark.parametrize("kept_with", ["", "corpus.json"])
def test_a_folder_that_is_half_removed_is_not_kept(tmp_path, monkeypatch, kept_with):
    """What says that the rows are complete goes before any of them."""

    def killed(*_, **__):
        raise KeyboardInterrupt

    output = str(tmp_path / "out")
    with monkeypatch.context() as patch:
        opened = working_folder(output, None, kept_with="corpus.json")
        folder = opened.__enter__()
        (folder / "rows").mkdir()
        (folder / "corpus.json").write_text("complete")
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            opened.__exit__(None, None, None)
    assert names(folder) == [MARK, "rows"]
    with working_folder(output, None, kept_with=kept_with) as folder:
        assert names(folder) == [".lock", MARK]


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
    dead = tmp_path / ".x-00002-of-00004.lock"  # of a run that was killed when the shard was whole
    killed.leave_lock(dead)
    assert finished_shards(prefix, 4, describe) == {paths[0]: 10, paths[2]: 12}
    assert not dead.exists()


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
    with pytest.raises(InputError, match=r"--num_shards=4, where x-00000-of-00003 is there"):
        finished_shards(prefix, 4, describe)
    (tmp_path / "x").write_text("a single file")
    with pytest.raises(InputError, match=r"--num_shards=3, where x is there"):
        finished_shards(prefix, 3, describe)
    os.unlink(prefix)
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(InputError, match="a shard with the num_bytes"):
        finished_shards(prefix, 3, describe)
    os.unlink(description_path(path))
    with pytest.raises(InputError, match=r"info_x-00000-of-00003\.json, which is not a file"):
        finished_shards(prefix, 3, describe)
    os.unlink(path)
    os.mkdir(path)
    with pytest.raises(InputError, match=r"info_x-00000-of-00003\.json, which is not a file"):
        finished_shards(prefix, 3, describe)


@pytest.mark.parametrize("folder", ["a[1]/b", "a[1]//b", "a[1]/../a[1]/b"])
def test_other_shards_are_seen_however_their_folder_is_written(tmp_path, folder):
    os.makedirs(tmp_path / folder)
    prefix = f"{tmp_path}/{folder}/x*"
    write_shards(prefix, 1, of=3)
    write_shards(f"{prefix}-of-others", 0, of=2)  # with a name of their own
    assert finished_shards(prefix, 3, describe).keys() == {f"{prefix}-00001-of-00003"}
    with pytest.raises(InputError, match=r"--num_shards=2, where x\*-00001-of-00003 is there"):
        finished_shards(prefix, 2, describe)
