"""data_gen/beam.py: the steps without Beam, and where it is installed its local runner."""

import collections
import dataclasses
import json
import pathlib

import pytest
from generation import SETTINGS, make_job, names, serialized, write_chinese

from bert_tf.data.records import index_path
from bert_tf.data.shards import read_description
from bert_tf.errors import InputError
from bert_tf.files import read_json
from data_gen import beam
from data_gen.documents import Counts
from data_gen.pipeline import Job, create, prepare

# ------------------------------------------------------------------------- step by step


def made_by_steps(job: Job, tmp_path: pathlib.Path, *, num_shards: int) -> tuple[list, Counts]:
    """The records in the order of the shards, and all counts; every step in the least handy order.

    Also does each block twice, as a runner may.
    """
    job = dataclasses.replace(job, num_shards=num_shards)
    plan, reader = prepare(job)
    plan = dataclasses.replace(plan, working_folder=tmp_path / "machine")
    setup = beam.Setup(plan, str(tmp_path / "run"))
    texts = [*reader.blocks(job.block_characters)]
    for number, text in enumerate(texts):
        beam.write_value(f"{setup.run_folder}/text/{number}", text)
    numbers = range(len(texts))
    blocks = [beam.tokenize(number, setup) for number in (*reversed(numbers), *numbers)]
    rows = collections.defaultdict(list)
    for _ in range(2):
        rows.clear()
        for block in blocks[: len(numbers)]:
            for shard, part in beam.make_instances(block, setup, blocks[len(numbers) :][::-1]):
                rows[shard].insert(0, part)
    written, counts = [], reader.counts
    for shard in range(num_shards):
        beam.write_shard(shard, rows[shard], setup)
        path = f"{setup.run_folder}/shards/{shard}"
        assert len(serialized(path)) == beam.read_value(f"{path}.index").num_records
        written += serialized(path)
    for index in numbers:
        counts.update(beam.read_value(f"{setup.run_folder}/counts/{index}"))
    assert not list(tmp_path.rglob("*.incomplete"))
    return written, counts


@pytest.mark.parametrize("kind", ["many blocks", "one block", "words between spaces"])
def test_the_steps_make_the_local_records(tmp_path, vocab_file, kind):
    """A single block has another way."""
    changes = {"block_characters": 1 << 30 if kind == "one block" else 9000}
    if kind == "words between spaces":
        changes |= {**write_chinese(tmp_path), "do_whole_word_mask": True, "block_characters": 700,
                    "words_from_spaces": True,
                    "mask_share": 0.0, "random_share": 0.8, "unchanged_share": 0.2}  # fmt: skip
    job = make_job(tmp_path, **{"vocab": vocab_file, **changes})
    report = create(dataclasses.replace(job, output_file=str(tmp_path / "local")))
    found, counts = made_by_steps(job, tmp_path, num_shards=3)
    assert found == serialized(tmp_path / "local")
    assert len(set(found)) > 100
    for name in ("files", "documents", "sentences", "tokens", "instances"):
        assert counts[name] == report[name], name
    assert {name: counts[name] for name in report["dropped"]} == report["dropped"]


def test_the_number_of_shards(tmp_path, vocab_file):
    """More than there are records; by default files of about 64 MB, here of some 2 GB."""
    path = tmp_path / "text"
    path.write_text("one two\nthree\n")
    job = make_job(tmp_path, vocab_file, input_file=str(path), dupe_factor=1)
    found, counts = made_by_steps(job, tmp_path, num_shards=9)
    assert 0 < len(found) == counts["instances"] < 9
    assert beam.number_of_shards(0, SETTINGS) == 1
    assert 10 < beam.number_of_shards(40_000_000, SETTINGS) < 100


def test_text_without_a_token_gives_no_rows(tmp_path, vocab_file):
    """In one block and in several; `create` refuses it when all steps have ended."""
    path = tmp_path / "text"
    path.write_text("\x01\n\n\x01\n", encoding="utf-8")
    for number, block_characters in enumerate((1, 1 << 20)):
        job = make_job(
            tmp_path, vocab_file, input_file=str(path), block_characters=block_characters
        )
        found, counts = made_by_steps(job, tmp_path / str(number), num_shards=1)
        assert (found, counts["documents"], counts["instances"]) == ([], 0, 0)


def test_dataflow_needs_an_output_that_it_can_reach(tmp_path, vocab_file):
    job = make_job(tmp_path, vocab_file)
    with pytest.raises(InputError, match=r"^Received: --output_file=.* with Dataflow"):
        beam.create(job, beam_options=["--runner=DataflowRunner"])


# ------------------------------------------------------------------------- with Beam


@pytest.fixture(scope="module")
def installed():
    """For tests that need Beam."""
    pytest.importorskip("apache_beam", reason="needs pip install 'bert-tf[beam]'")


@pytest.mark.usefixtures("installed")
def test_the_records_are_the_local_ones(tmp_path, vocab_file):
    """All of them, in the same order, whatever the number of files; and the same report."""
    local = make_job(tmp_path, vocab_file, block_characters=9000)
    report = create(local)
    job = dataclasses.replace(
        local, output_file=str(tmp_path / "beam"), num_workers=2, num_shards=3
    )
    found = beam.create(job)
    paths = [tmp_path / f"beam-{i:05d}-of-00003" for i in range(3)]
    assert serialized(*paths) == serialized(tmp_path / "out.tfrecord")
    assert found["output_files"] == {str(path): len(serialized(path)) for path in paths}
    assert json.loads((tmp_path / "report_beam.json").read_text()) == found
    assert {**found, "output_files": 0} == {**report, "output_files": 0}
    made = ["out.tfrecord", *(path.name for path in paths)]
    described = [f"{kind}_{name}.json" for kind in ("index", "info") for name in made]
    reports = ["report_out.tfrecord.json", "report_beam.json"]
    assert names(tmp_path) == sorted([*made, *described, *reports])
    data, index = read_description(str(paths[1])), read_json(index_path(str(paths[1])))
    assert (data.shard, data.num_shards, data.num_records) == (2, 3, len(serialized(paths[1])))
    assert (index["num_bytes"], sum(index["block_records"])) == (data.num_bytes, data.num_records)
    assert (data.num_bytes, data.do_lower_case) == (paths[1].stat().st_size, True)
    with pytest.raises(InputError, match="-of-00003 is there"):
        beam.create(job)
