"""data_gen/beam/steps.py, step by step without Beam: the local generator's records."""

import collections
import dataclasses
import pathlib

import pytest
from generation import SETTINGS, make_job, serialized, write_chinese

from data_gen import shuffling
from data_gen.beam import steps
from data_gen.documents import Counts
from data_gen.pipeline import create, prepare
from data_gen.settings import Job


def made_by_steps(job: Job, tmp_path: pathlib.Path, *, num_shards: int) -> tuple[list, Counts]:
    """The records in the order of the shards, and all counts; every step in the least handy order.

    Also does each block twice, as a runner may.
    """
    job = dataclasses.replace(job, num_shards=num_shards)
    plan, reader = prepare(job)
    plan = dataclasses.replace(plan, working_folder=tmp_path / "machine")
    setup = steps.Setup(plan, str(tmp_path / "run"))
    num_blocks = steps.write_text(reader.blocks(job.block_characters), setup.run_folder)
    blocks = [steps.tokenize(n, setup) for n in (*reversed(range(num_blocks)), *range(num_blocks))]
    rows = collections.defaultdict(list)
    for _ in range(2):
        rows.clear()
        for block in blocks[:num_blocks]:
            for shard, part in steps.make_instances(block, setup, blocks[num_blocks:][::-1]):
                rows[shard].insert(0, part)
    written, counts = [], reader.counts
    for shard in range(num_shards):
        steps.write_shard(shard, rows[shard], setup)
        path = f"{setup.run_folder}/shards/{shard}"
        number, _ = steps.read_value(f"{path}.about")
        assert len(serialized(path)) == number
        written += serialized(path)
    for index in range(num_blocks):
        counts.update(steps.read_value(f"{setup.run_folder}/statistics/{index}").counts)
        counts.update(steps.read_value(f"{setup.run_folder}/counts/{index}"))
    assert not list(tmp_path.rglob("*.incomplete"))
    return written, counts


@pytest.mark.parametrize("kind", ["many blocks", "one block", "words between spaces"])
def test_the_steps_make_the_local_records(tmp_path, vocab_file, kind, monkeypatch):
    """A single block has another way."""
    monkeypatch.setattr(shuffling, "RUN_BYTES", 20_000)
    changes = {"block_characters": 1 << 30 if kind == "one block" else 9000}
    if kind == "words between spaces":
        given = write_chinese(tmp_path)
        vocab_file, changes["input_file"] = given["vocab_file"], given["input_file"]
        changes |= {"do_whole_word_mask": True, "words_from_spaces": True,
                    "one_draw_per_word": True, "block_characters": 700}  # fmt: skip
    job = make_job(tmp_path, vocab_file, **changes)
    report = create(dataclasses.replace(job, output_file=str(tmp_path / "local")))
    found, counts = made_by_steps(job, tmp_path, num_shards=3)
    assert found == serialized(tmp_path / "local")
    assert len(set(found)) > 100
    for name in ("files", "documents", "sentences", "tokens", "instances"):
        assert counts[name] == report[name], name
    assert {name: counts[name] for name in report["dropped"]} == report["dropped"]
    if kind == "words between spaces":
        assert counts["tokens"] / counts["words"] == report["tokens_per_word"] > 1


def test_more_shards_than_records(tmp_path, vocab_file):
    path = tmp_path / "text"
    path.write_text("one two\nthree\n")
    job = make_job(tmp_path, vocab_file, input_file=str(path), dupe_factor=1)
    found, counts = made_by_steps(job, tmp_path, num_shards=9)
    assert 0 < len(found) == counts["instances"] < 9


def test_the_size_of_shards():
    """With settings and tokens of some 2 GB of records: files of about 64 MB."""
    assert steps.number_of_shards(0, SETTINGS) == 1
    assert 10 < steps.number_of_shards(40_000_000, SETTINGS) < 100
