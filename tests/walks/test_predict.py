"""predict.py and the playground as one calls them."""

import io
import json
import pathlib
import re
import signal
import subprocess
import sys
import types
import urllib.request

import pytest
import served_models
from walking import in_process

from bert_tf import Predictor
from bert_tf.errors import InputError

pytestmark = pytest.mark.walk
PAIRS = [("who founded it", "Ruprecht"), ("", ""), ("café 中", "in 1386 " * 9), ("it", "by")]
LENGTH = served_models.LENGTH


@pytest.fixture(scope="module")
def folder(exported) -> pathlib.Path:
    """An export of a model of pairs."""
    return exported("pairs")


@pytest.fixture(scope="module")
def wanted(folder) -> list[dict]:
    return Predictor(folder / "export").predict(PAIRS)


@pytest.fixture
def predict():
    with in_process("predict") as main:
        yield main


def read(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def same(found: list[dict], wanted: list[dict]) -> bool:
    """Whether answers are equal, but for what another batch changes."""
    return len(found) == len(wanted) and all(
        one["label"] == other["label"]
        and one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
        for one, other in zip(found, wanted, strict=True)
    )


def test_files_are_answered_line_by_line(folder, wanted, tmp_path, predict):
    (tmp_path / "in.tsv").write_text("".join("\t".join(pair) + "\n" for pair in PAIRS))
    given = {"input_file": tmp_path / "in.tsv", "output_file": tmp_path / "tsv"}
    predict(model=folder / "export", batch_size=3, **given)
    assert same(read(tmp_path / "tsv"), wanted)
    with (tmp_path / "in.jsonl").open("w") as file:
        for number, (text_a, text_b) in enumerate(PAIRS):
            item = {"text_b": text_b, "text_a": text_a, "gold": "x", "id": f"é{number}"}
            file.write(json.dumps(item if number else PAIRS[0]) + "\n")
    # The checkpoint, and not the export, is answered of.
    given = {"input_file": tmp_path / "in.jsonl", "output_file": tmp_path / "jsonl"}
    predict("--pairs", model=folder / "model", max_seq_length=LENGTH, **given)
    found = read(tmp_path / "jsonl")
    assert [one.pop("id", None) for one in found] == [None, "é1", "é2", "é3"]
    assert same(found, wanted)
    assert "gold" not in found[1]


def test_a_file_without_a_header_is_read_as_in_training(tmp_path, predict):
    """By the positions that are kept with the model; scores come as those of training."""
    scores, source, known = [], tmp_path / "in.tsv", {"columns": (3, 1), "pairs": True}
    lines = "".join(f"{n}\t{b}\t0.5\t{a}\n" for n, (a, b) in enumerate(PAIRS))
    source.write_text(lines)
    for name, scale in (("plain", {}), ("scaled", {"score_mean": 5e5, "score_deviation": 2e4})):
        folder = tmp_path / name
        served_models.write_folder("regression", folder, max_seq_length=LENGTH, **known, **scale)
        predict(model=folder, input_file=source, output_file=tmp_path / "out")
        scores.append([answer["score"] for answer in read(tmp_path / "out")])
    alone = Predictor(tmp_path / "plain").predict(PAIRS)
    assert scores[0] == pytest.approx([answer["score"] for answer in alone], abs=1e-5)
    assert scores[1] == pytest.approx([5e5 + 2e4 * score for score in scores[0]], rel=1e-6)
    source.write_text(f"id\tsentence2\tscore\tsentence1\n{lines}")
    with pytest.raises(InputError, match=r"line 1: .* a header"):
        predict(model=folder, input_file=source)


def test_words_with_tags_are_read_as_in_training(tmp_path, predict):
    """A sentence an answer, whatever the tags; other files of such a model are lines of text."""
    served_models.write_folder("token_labels", tmp_path / "m", max_seq_length=LENGTH)
    words = "-DOCSTART- -X- O\n\nRuprecht NN B-P\nfounded VB O\n\nit PR O\n"
    for name, content, expected in (
        ("test.txt", words, [["Ruprecht", "founded"], ["it"]]),
        ("a.conll", "who\nfounded\n\nit\n", [["who", "founded"], ["it"]]),
        ("lines.txt", "who founded it\nRuprecht\n", [["who", "founded", "it"], ["Ruprecht"]]),
    ):
        (tmp_path / name).write_text(content)
        predict(model=tmp_path / "m", input_file=tmp_path / name, output_file=tmp_path / "out")
        assert [answer["words"] for answer in read(tmp_path / "out")] == expected


def test_a_line_that_is_none_is_named(folder, tmp_path, predict):
    (tmp_path / "in.tsv").write_bytes(b"a\tb\na\n")
    with pytest.raises(InputError, match=r"in.tsv, line 2: b'a' \(1 column\)"):
        predict(model=folder / "export", input_file=tmp_path / "in.tsv", output_file=tmp_path / "o")
    assert [path.name for path in tmp_path.iterdir()] == ["in.tsv"]  # nothing half done is left


def test_standard_input(folder, wanted, predict, monkeypatch):
    given, found = io.BytesIO("\n".join(map("\t".join, PAIRS)).encode()), io.BytesIO()
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=given))
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(buffer=found))
    predict(model=folder / "export")
    assert same([json.loads(line) for line in found.getvalue().splitlines()], wanted)


# ---------------------------------------------------------------------------- the playground


def test_the_page_answers_and_ends_by_control_c(folder, wanted, tmp_path):
    started = [sys.executable, "-m", "bert_tf", "playground", str(folder / "export"), "--port=0"]
    # Where tests run in the background, control-C is switched off for all that they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(started, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    with process:
        lines = iter(process.stderr.readline, "")
        url = re.search(r"is shown at (\S+)", next(x for x in lines if "is shown at" in x))[1]
        texts = dict(zip(("text_a", "text_b"), PAIRS[0], strict=True))
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"texts": texts}).encode()
        request = urllib.request.Request(f"{url}api/answer", body, headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            assert same([json.load(response)["answer"]], wanted[:1])
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert "Traceback" not in process.stderr.read()
