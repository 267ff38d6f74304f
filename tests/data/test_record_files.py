"""Patterns -> files, each once; indexes: the same while records are written and afterwards."""

import json
import os
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data import records as record_files
from bert_tf.data.records import BlockIndex, IndexBuilder, expand_patterns
from bert_tf.data.shards import find_blocks
from bert_tf.declarations import typed
from bert_tf.errors import InputError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files, a copy of one, and a link to it."""
    for name in ("b1", "a2", "a1", "c", "copy of c"):
        (tmp_path / name).write_text("the same")
    os.symlink("c", tmp_path / "soft")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ("a*", ["a1", "a2"]),
        ("b1,{0}/a?", ["b1", "a1", "a2"]),
        (["c", "a1"], ["c", "a1"]),
        ("c,copy of c", ["c", "copy of c"]),
        ("{0}/k[0-9]/r*", ["r8", "r9"]),
        ("k[0-9]/r8,k7/*", ["r8", "r7"]),
        ("k\\[8]/r[!0]", ["r8"]),
        ("~/a1,~/b?", ["a1", "b1"]),
    ],
)
def test_files_in_order(folder, patterns, names, monkeypatch):
    """The name of a folder is no pattern where there is such a folder."""
    monkeypatch.setenv("HOME", str(folder))
    for name in ("k[0-9]/r8", "k[0-9]/r9", "k7/r7", "k\\[8]/r8"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    given = patterns.format(folder) if isinstance(patterns, str) else patterns
    assert [path.rpartition("/")[2] for path in expand_patterns(given)] == names


@pytest.mark.parametrize(
    ("patterns", "received"),
    [
        ("", "'', which matches no file"),
        ("c,", "'', which matches no file"),
        ("c,e*", "'e*', which matches no file"),
        ("c,c", "c, given twice"),
        ("c,a1,./c", "./c, given twice: c is the same file"),
        ("{0}/a1,{0}/a*", "{0}/a1, given twice"),
        ("c,soft", "soft, given twice: c is the same file"),
        ("file://{0}/c,file://{0}/c", "file://{0}/c, given twice"),
    ],
)
def test_files_that_are_missing_or_given_twice(folder, patterns, received):
    with pytest.raises(InputError) as caught:
        expand_patterns(patterns.format(folder))
    assert caught.value.received == received.format(folder)


# ---------------------------------------------------------------------------- index


def write(path, sizes) -> IndexBuilder:
    """A file of records of these sizes, and what was noted meanwhile."""
    noted = IndexBuilder()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for size in sizes:
            writer.write(b"x" * size)
            noted.add(size)
    return noted


def found_in(path) -> BlockIndex | None:
    with path.open("rb") as file:
        return find_blocks(file, path.stat().st_size)


def test_blocks_by_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "BLOCK_BYTES", 60)
    # With their frames 26, 36, | 16, 46, | 76, | 17.
    found = write(tmp_path / "a", [10, 20, 0, 30, 60, 1]).finish()
    assert (found.block_bytes, found.block_records) == ((62, 62, 76, 17), (2, 2, 1, 1))
    assert (found.num_bytes, found.num_records) == (217, 6)


@pytest.mark.parametrize(("count", "chunk"), [(0, 8), (1, 8), (400, 8), (7, 19), (400, 1000)])
def test_found_as_noted(tmp_path, monkeypatch, count, chunk):
    monkeypatch.setattr(record_files, "BLOCK_BYTES", 500)
    monkeypatch.setattr("bert_tf.files.READ_BYTES", chunk)
    sizes = np.random.default_rng(count).integers(0, 90, count).tolist()
    noted = write(tmp_path / "a", sizes).finish()
    assert found_in(tmp_path / "a") == noted
    assert typed(BlockIndex, json.loads(noted.to_json_string()), source="a") == noted


def test_damage_shows(tmp_path):
    write(tmp_path / "a", [5, 50, 500])
    data = (tmp_path / "a").read_bytes()
    for damaged in (data[:-1], data + b"\0", data[:100], b"text" * 30, b"\xff" * 16, b"x"):
        (tmp_path / "a").write_bytes(damaged)
        assert found_in(tmp_path / "a") is None


def test_an_index_of_a_million_blocks():
    """Of a file of a terabyte; it is read in a second."""
    sizes = [2**20] * 10**6
    values = {"num_bytes": sum(sizes), "block_bytes": sizes, "block_records": [7] * len(sizes)}
    begin = time.monotonic()
    assert typed(BlockIndex, values, source="a").fits(sum(sizes))
    sizes[-7] = 0
    with pytest.raises(InputError, match=r"block_bytes\[999993\] 0"):
        typed(BlockIndex, values, source="a")
    assert time.monotonic() - begin < 3  # on a busy machine
