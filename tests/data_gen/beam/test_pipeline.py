"""data_gen/beam/pipeline.py and its command, in processes of Beam's local runner."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf
from generation import SAMPLE_TEXT, make_job, names, write_chinese

from bert_tf.data.index import index_path
from bert_tf.data.shards import read_description
from bert_tf.errors import InputError
from bert_tf.files import read_json
from data_gen.pipeline import create

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def beam_pipeline():
    """The module under test, where Beam is installed."""
    pytest.importorskip(
        "apache_beam", reason="apache-beam is not installed (pip install 'bert-tf[beam]')"
    )
    from data_gen.beam import pipeline as beam_pipeline

    return beam_pipeline


def records(*paths) -> list[bytes]:
    return [item.numpy() for item in tf.data.TFRecordDataset([str(path) for path in paths])]


def run_command(job, *words: str) -> subprocess.CompletedProcess:
    settings = dataclasses.asdict(job.settings)
    named = {**settings, **{n: getattr(job, n) for n in ("input_file", "output_file")}}
    command = ["-m", "bert_tf", "beam-data", f"--vocab_file={job.vocab_file}"]
    command += [f"--{name}={value}" for name, value in named.items()]
    return subprocess.run(
        [sys.executable, *command, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_the_records_are_the_local_ones(beam_pipeline, tmp_path, vocab_file):
    """All of them, in the same order, whatever the number of files; and the same report."""
    local = make_job(tmp_path, vocab_file, block_characters=9000)
    report = create(local)
    job = dataclasses.replace(
        local, output_file=str(tmp_path / "beam"), num_workers=2, num_shards=3
    )
    found = beam_pipeline.create(job)
    paths = [tmp_path / f"beam-{i:05d}-of-00003" for i in range(3)]
    assert records(*paths) == records(tmp_path / "out.tfrecord")
    assert found["output_files"] == {str(path): len(records(path)) for path in paths}
    assert json.loads((tmp_path / "report_beam.json").read_text()) == found
    assert {**found, "output_files": 0} == {**report, "output_files": 0}
    made = [path.name for path in paths]
    described = [f"{kind}_{name}.json" for kind in ("index", "info")
                 for name in ("out.tfrecord", *made)]  # fmt: skip
    expected = {"out.tfrecord", "report_out.tfrecord.json", *made, *described, "report_beam.json"}
    assert set(names(tmp_path)) == expected
    data = read_description(str(paths[1]))
    assert (data.shard, data.num_shards, data.num_records) == (2, 3, len(records(paths[1])))
    index = read_json(index_path(str(paths[1])))
    assert (index["num_bytes"], sum(index["block_records"])) == (data.num_bytes, data.num_records)
    assert (data.num_bytes, data.do_lower_case) == (paths[1].stat().st_size, True)
    with pytest.raises(InputError, match="2 more are there"):
        beam_pipeline.create(job)


def test_the_command_with_a_single_block(beam_pipeline, tmp_path, vocab_file):
    local = make_job(tmp_path, vocab_file)
    create(local)
    job = dataclasses.replace(local, output_file=str(tmp_path / "beam"))
    ended = run_command(job, "--", "--runner=FnApiRunner", "--direct_running_mode=in_memory")
    assert ended.returncode == 0, ended.stderr
    assert records(tmp_path / "beam-00000-of-00001") == records(tmp_path / "out.tfrecord")


def test_words_between_spaces_are_the_local_ones(beam_pipeline, tmp_path):
    """Through the command, with both flags."""
    given = write_chinese(tmp_path)
    local = make_job(tmp_path, given["vocab_file"], input_file=given["input_file"],
                     do_whole_word_mask=True, words_from_spaces=True,
                     one_draw_per_word=True)  # fmt: skip
    report = create(local)
    job = dataclasses.replace(local, output_file=str(tmp_path / "beam"))
    ended = run_command(job, "--", "--runner=FnApiRunner", "--direct_running_mode=in_memory")
    assert ended.returncode == 0, ended.stderr
    assert records(tmp_path / "beam-00000-of-00001") == records(tmp_path / "out.tfrecord")
    assert read_json(str(tmp_path / "report_beam.json")) == report | {
        "output_files": {str(tmp_path / "beam-00000-of-00001"): report["instances"]}
    }


def test_what_is_wrong_on_a_worker_is_told(beam_pipeline, tmp_path, vocab_file):
    (tmp_path / "text").write_bytes(b"one two\n" * 3 + b"caf\xe9\n")
    out = tmp_path / "out"
    out.mkdir()
    job = make_job(out, vocab_file, input_file=str(tmp_path / "text"), num_workers=2)
    with pytest.raises(InputError) as error:
        beam_pipeline.create(job)
    assert "line 4" in error.value.received
    assert error.value.expected == "text in UTF-8"
    assert "[while" not in error.value.remedy
    assert names(out) == []


def test_dataflow_needs_paths_that_it_can_reach(beam_pipeline, tmp_path, vocab_file):
    job = make_job(tmp_path, vocab_file, output_file="gs://bucket/out")
    with pytest.raises(InputError, match=r"^Received: --input_file=.* with Dataflow"):
        beam_pipeline.create(job, beam_options=["--runner=DataflowRunner"])


def test_without_beam_the_command_says_so(tmp_path, vocab_file):
    try:
        import apache_beam  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("apache-beam is installed")
    ended = run_command(make_job(tmp_path, vocab_file, input_file=SAMPLE_TEXT))
    assert ended.returncode == 1
    assert "pip install 'bert-tf[beam]'" in ended.stderr
    assert "Traceback" not in ended.stderr
