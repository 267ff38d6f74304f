"""The processes of a run: who writes, and what must be the same in all."""

import pytest

from bert_tf import cluster, files
from bert_tf.errors import InputError
from bert_tf.files import whole_file


def test_a_process_alone_waits_for_nobody():
    assert cluster.is_chief()
    assert cluster.all_gather(7) == [7]
    assert [cluster.any_process(flag) for flag in (False, True)] == [False, True]
    cluster.barrier()
    cluster.leave()


def test_numbers_that_differ_are_refused(monkeypatch):
    monkeypatch.setattr(cluster, "all_gather", lambda number: [number, 7])
    cluster.check_same({"steps": 7})
    with pytest.raises(InputError, match="other records in this process than in another one"):
        cluster.check_same({"steps": 7, "records": 8})


def test_only_the_chief_leaves_files(monkeypatch, tmp_path):
    for is_chief in (False, True):
        monkeypatch.setattr(files, "writes_here", is_chief)
        with whole_file(str(tmp_path / "a.txt")) as temporary, open(temporary, "w") as file:
            file.write("whole")
        assert [path.name for path in tmp_path.iterdir()] == (["a.txt"] if is_chief else [])
