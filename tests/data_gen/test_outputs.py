"""data_gen/outputs.py: complete files or none."""

import doctest
import json
import pathlib

import pytest
import tensorflow as tf

from bert_tf.errors import InputError
from data_gen import outputs
from data_gen.outputs import OutputFiles, working_folder, write_json


def records(path) -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_drawn_examples():
    assert doctest.testmod(outputs).failed == 0


def test_records_go_to_the_files_in_turn(tmp_path):
    paths = [str(tmp_path / "new" / name) for name in ("a", "b", "c")]
    with OutputFiles(paths) as files:
        for number in range(7):
            files.write(b"%d" % number)
        assert not any(tf.io.gfile.exists(path) for path in paths)
        files.complete()
    assert [records(path) for path in paths] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]
    assert files.records == dict(zip(paths, (3, 2, 2), strict=True))
    assert names(tmp_path / "new") == ["a", "b", "c"]


def test_what_is_not_completed_leaves_nothing_and_keeps_what_was_there(tmp_path):
    old = tmp_path / "a"
    old.write_bytes(b"old")
    with OutputFiles([str(old), str(tmp_path / "b")]) as files:
        files.write(b"new")
    assert names(tmp_path) == ["a"]
    assert old.read_bytes() == b"old"


def test_a_file_that_cannot_be_written_is_refused_and_the_others_are_not_begun(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for bad, message in (("folder", "is a folder"), ("file/x", "cannot be written")):
        paths = [str(tmp_path / "good"), str(tmp_path / bad)]
        with pytest.raises(InputError, match=message), OutputFiles(paths):
            pass
        assert names(tmp_path) == ["file", "folder"]


def test_a_json_file_is_complete_or_as_before(tmp_path):
    path = tmp_path / "x" / "report.json"
    write_json(str(path), {"b": 1, "a": [2]})
    assert json.loads(path.read_text()) == {"b": 1, "a": [2]}
    with pytest.raises(TypeError):  # which json finds on its way
        write_json(str(path), {"b": 2, "a": object()})
    assert json.loads(path.read_text()) == {"b": 1, "a": [2]}
    assert names(path.parent) == ["report.json"]


def test_working_folder_is_emptied_before_and_removed_after(tmp_path):
    output = str(tmp_path / "out.tfrecord")
    left_over = tmp_path / ".out.tfrecord.working" / "corpus"
    left_over.mkdir(parents=True)
    (left_over / "tokens").write_text("of a run that was killed")
    with working_folder(output, None) as folder:
        assert folder == left_over.parent
        assert names(folder) == ["lock"]
        with (
            pytest.raises(InputError, match="another run is making"),
            working_folder(output, None),
        ):
            pass
        assert folder.exists()
    assert names(tmp_path) == []


def test_working_folder_elsewhere(tmp_path):
    with working_folder("gs://bucket/out", str(tmp_path / "t")) as folder:
        assert folder.parent == tmp_path / "t"
    assert names(tmp_path / "t") == []
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match="a folder that cannot be made"),
        working_folder("out", str(tmp_path / "file")),
    ):
        pass
