"""Patterns -> files: in order, each once; what matches nothing or twice."""

import os

import pytest

from bert_tf.data.patterns import expand_patterns
from bert_tf.errors import InputError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files, a copy of one, and two links to it."""
    for name in ("b1", "a2", "a1", "c", "copy of c"):
        (tmp_path / name).write_text("the same")
    os.symlink("c", tmp_path / "soft")
    os.link(tmp_path / "c", tmp_path / "hard")
    os.symlink("nothing", tmp_path / "dangling")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_in_order(folder):
    def names(patterns):
        return [path.rpartition("/")[2] for path in expand_patterns(patterns)]

    assert names("a*") == ["a1", "a2"]
    assert names(f"b1,{folder}/a?") == ["b1", "a1", "a2"]
    assert names(["c", f"{folder}/a1"]) == ["c", "a1"]
    assert names("c,copy of c") == ["c", "copy of c"]


@pytest.mark.parametrize("patterns", ["", "c,", "c,e*", ["d"]])
def test_no_file(folder, patterns):
    with pytest.raises(InputError, match="which matches no file"):
        expand_patterns(patterns)


@pytest.mark.parametrize(
    ("patterns", "received"),
    [
        ("c,c", "c, given twice"),
        ("c,a1,./c", "./c, given twice: c is the same file"),
        ("{0}/c,c", "c, given twice: {0}/c is the same file"),
        ("{0}/a1,{0}/a*", "{0}/a1, given twice"),
        (["c", "soft"], "soft, given twice: c is the same file"),
        ("hard,soft", "soft, given twice: hard is the same file"),
        ("file://{0}/c,file://{0}/c", "file://{0}/c, given twice"),
        ("{0}/dang*", "{0}/dangling, which cannot be read"),
    ],
)
def test_a_file_by_two_names(folder, patterns, received):
    given = patterns.format(folder) if isinstance(patterns, str) else patterns
    with pytest.raises(InputError) as caught:
        expand_patterns(given)
    assert caught.value.received.partition(" (")[0] == received.format(folder)
