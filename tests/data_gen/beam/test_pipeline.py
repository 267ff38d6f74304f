"""data_gen/beam/pipeline.py and its command, in processes of Beam's local runner."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest
from generation import SAMPLE_TEXT, make_job, names, serialized, write_chinese

from bert_tf.data.shards import read_description
from bert_tf.data.sidecars import index_path
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
    assert serialized(*paths) == serialized(tmp_path / "out.tfrecord")
    assert found["output_files"] == {str(path): len(serialized(path)) for path in paths}
    assert json.loads((tmp_path / "report_beam.json").read_text()) == found
    assert {**found, "output_files": 0} == {**report, "output_files": 0}
    made = [path.name for path in paths]
    described = [f"{kind}_{name}.json" for kind in ("index", "info")
                 for name in ("out.tfrecord", *made)]  # fmt: skip
    expected = {"out.tfrecord", "report_out.tfrecord.json", *made, *described, "report_beam.json"}
    assert set(names(tmp_path)) == expected
    data = read_description(str(paths[1]))
    assert (data.shard, data.num_shards, data.num_records) == (2, 3, len(serialized(paths[1])))
    index = read_json(index_path(str(paths[1])))
    assert (index["num_bytes"], sum(index["block_records"])) == (data.num_bytes, data.num_records)
    assert (data.num_bytes, data.do_lower_case) == (paths[1].stat().st_size, True)
    with pytest.raises(InputError, match="2 more are there"):
        beam_pipeline.create(job)


def test_the_command_with_a_single_block_of_words_between_spaces(beam_pipeline, tmp_path):
    given = write_chinese(tmp_path)
    local = make_job(tmp_path, given["vocab_file"], input_file=given["input_file"],
                     do_whole_word_mask=True, words_from_spaces=True,
                     one_draw_per_word=True)  # fmt: skip
    report = create(local)
    job = dataclasses.replace(local, output_file=str(tmp_path / "beam"))
    ended = run_command(job, "--", "--runner=FnApiRunner", "--direct_running_mode=in_memory")
    assert ended.returncode == 0, ended.stderr
    assert serialized(tmp_path / "beam-00000-of-00001") == serialized(tmp_path / "out.tfrecord")
    assert read_json(str(tmp_path / "report_beam.json")) == report | {
        "output_files": {str(tmp_path / "beam-00000-of-00001"): report["instances"]}
    }


@pytest.mark.parametrize(
    ("content", "received"), [(b"one two\ncaf\xe9\n", "line 2"), (b"\x01\n", "without a sentence")]
)
def test_bad_input_is_told_and_leaves_nothing(
    beam_pipeline, tmp_path, vocab_file, content, received
):
    (tmp_path / "text").write_bytes(content)
    out = tmp_path / "out"
    out.mkdir()
    job = make_job(out, vocab_file, input_file=str(tmp_path / "text"), num_workers=2)
    with pytest.raises(InputError, match=received):
        beam_pipeline.create(job)
    assert names(out) == []


def test_the_error_of_another_machine_keeps_its_three_parts(beam_pipeline):
    class Pipeline:
        def run(self):
            raise RuntimeError("x Received: a\\nExpected: b\\nTo do: c [while running 'Write']")

    with pytest.raises(InputError) as error:
        beam_pipeline.run(Pipeline())
    assert (error.value.received, error.value.expected, error.value.remedy) == ("a", "b", "c")


def test_dataflow_needs_an_output_that_it_can_reach(beam_pipeline, tmp_path, vocab_file):
    job = make_job(tmp_path, vocab_file)
    with pytest.raises(InputError, match=r"^Received: --output_file=.* with Dataflow"):
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
