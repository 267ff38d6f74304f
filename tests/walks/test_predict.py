"""predict and serve as one calls them."""

import concurrent.futures
import contextlib
import csv
import io
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import types
import urllib.request

import pytest
import served_models
from walking import in_process, untraced

from bert_tf import Predictor
from bert_tf.cli import serve
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
    found = Predictor(folder / "export").predict(PAIRS)
    return [found[0], dict.fromkeys(found[1]), *found[2:]]  # none of texts without a word


@pytest.fixture
def predict():
    with in_process("predict") as main, untraced():
        yield main


def read(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def same(found: list[dict], wanted: list[dict]) -> bool:
    """Whether answers are equal, but for what another batch changes."""
    return len(found) == len(wanted) and all(
        one["label"] == other["label"]
        and (one["probabilities"] or ()) == pytest.approx(other["probabilities"] or (), abs=1e-5)
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


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_table_keeps_its_columns(folder, wanted, tmp_path, predict, ending):
    """With what is answered behind them; a csv also its separator."""
    rows = [["Nr", "text_a", "label", "text_b"]]
    rows += [[f"é{n}", a, "gold; x", f'"{b}"' if b else b] for n, (a, b) in enumerate(PAIRS)]
    (tmp_path / "in.csv").write_text(
        "\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-16"
    )
    out = tmp_path / f"out.{ending}"
    given = {"model": folder / "export", "input_file": tmp_path / "in.csv", "output_file": out}
    predict(**given, id_column="Nr", probabilities=True, min_probability=0.5)
    quoting = csv.QUOTE_MINIMAL if ending == "csv" else csv.QUOTE_NONE
    with out.open(newline="", encoding="utf-8-sig") as file:
        header, *found = csv.reader(file, delimiter="\t", quoting=quoting)
    names = wanted[0]["labels"]
    shares = [f"probability_{name}" for name in names]
    assert header == [*rows[0], "predicted_label", "probability", *shares]
    for row, cells, (a, b), answer in zip(rows[1:], found, PAIRS, wanted, strict=True):
        assert cells[:4] == [row[0], a, "gold; x", b]
        label, *numbers = cells[4:]
        if not a:
            assert (label, {*numbers}) == ("", {""})
            continue
        is_sure = answer["probability"] >= 0.5
        assert label == (answer["label"] if is_sure else "unsure")
        assert [*map(float, numbers)] == pytest.approx(
            [answer["probability"], *answer["probabilities"]], abs=1e-5
        )
    (tmp_path / "lines.txt").write_text("a\tb\n")
    given["input_file"] = tmp_path / "lines.txt"
    with pytest.raises(InputError, match=r"out\.[ct]sv for answers of classification"):
        predict(**given | {"input_format": None})
    (tmp_path / "lines.txt").write_text('{"text_a": "a", "text_b": "b", "id": 1}\n')
    with pytest.raises(InputError, match="line 1 without 'Nr'"):
        predict(model=folder / "export", input_file=tmp_path / "lines.txt", input_format="jsonl",
                output_file=tmp_path / "o", id_column="Nr")  # fmt: skip
    with pytest.raises(InputError, match=r"'Number' \(there is no such column"):
        predict(**given | {"input_file": tmp_path / "in.csv"}, id_column="Number")


def test_scores_and_sets_of_labels_in_a_table(tmp_path, predict):
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("text,text_a,text_b\nwho,it,by\n,,\nit,by,it\n,,\n")
    for kind in ("regression", "multi_label"):
        served_models.write_folder(kind, tmp_path / kind, max_seq_length=LENGTH, task=kind)
        predict(model=tmp_path / kind, input_file=source, output_file=out)
        header, first, second, _ = out.read_text().splitlines()  # without the empty tail
        name = {"regression": "score", "multi_label": "labels"}[kind]
        assert header == f"text,text_a,text_b,{name}"
        assert second == ",,,"
        if kind == "regression":
            float(first.rpartition(",")[2])
        with pytest.raises(InputError, match=f"--min_probability=0.5 for a model of {kind}"):
            predict(model=tmp_path / kind, input_file=source, min_probability=0.5)


def test_texts_without_a_mask_are_counted(tmp_path, predict, caplog):
    served_models.write_folder("fill_mask", tmp_path / "m", max_seq_length=LENGTH, task="fill_mask")
    (tmp_path / "in.txt").write_text("who [MASK] it\nwho it\n")
    predict(model=tmp_path / "m", input_file=tmp_path / "in.txt", output_file=tmp_path / "o.jsonl")
    assert "1 text without [MASK]: no answer" in caplog.text


def test_columns_of_any_table(folder, tmp_path, predict):
    """Two of one name, names that are taken, short rows, quotes in a tsv, no rows."""
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    head = "text_a,note,note,label,predicted_label,text_b"
    source.write_text(f'{head}\nit,"1,5",2,x,y,"a ""b"""\n')
    given = {"model": folder / "export", "input_file": source}
    predict(**given, output_file=out)
    header, row = csv.reader(out.read_text().splitlines())
    assert header == [*head.split(","), "predicted_label_2", "probability"]
    assert row[:6] == ["it", "1,5", "2", "x", "y", 'a "b"']
    predict(**given, output_file=tmp_path / "out.tsv")
    assert (
        (tmp_path / "out.tsv").read_text().splitlines()[1].startswith('it\t1,5\t2\tx\ty\ta "b"\t')
    )
    source.write_text(f'{head}\n"i\tt",1,2,x,y,b\n')
    with pytest.raises(InputError, match="without tabs and line ends"):
        predict(**given, output_file=tmp_path / "other.tsv")
    source.write_text(f"{head}\n")
    with pytest.raises(InputError, match="with columns and rows"):
        predict(**given, output_file=tmp_path / "other.csv")
    assert not (tmp_path / "other.tsv").exists()
    known = {"columns": (0, 1), "pairs": True}
    served_models.write_folder("pairs", tmp_path / "m", max_seq_length=LENGTH, **known,
                               task="classification")  # fmt: skip
    source.write_text("it,by\nwho,it,\n")
    predict(model=tmp_path / "m", input_file=source, output_file=out)
    header, first, second = csv.reader(out.read_text().splitlines())
    assert header == ["0", "1", "label", "probability"]
    assert (first[:2], second[:2], len(second)) == (["it", "by"], ["who", "it"], 4)
    # As a German Excel writes and reads it.
    source.write_bytes("Größe;text_a;text_b\r\n1,5;it;by\r\n".encode("cp1252"))
    predict(model=folder / "export", input_file=source, output_file=out, encoding="cp1252")
    content = out.read_bytes().decode()
    assert content.startswith("\ufeffGröße;text_a;text_b;label;probability\r\n1,5;it;by;")


def test_a_file_without_a_header_is_read_as_in_training(tmp_path, predict):
    """By the positions that are kept with the model; scores come as those of training."""
    scores, source, known = [], tmp_path / "in.tsv", {"columns": (3, 1), "pairs": True}
    lines = "".join(f"{n}\t{b}\t0.5\t{a}\n" for n, (a, b) in enumerate(PAIRS))
    source.write_text(lines)
    for name, scale in (("plain", {}), ("scaled", {"score_mean": 5e5, "score_deviation": 2e4})):
        folder = tmp_path / name
        served_models.write_folder("regression", folder, max_seq_length=LENGTH, **known, **scale)
        predict(model=folder, input_file=source, output_file=tmp_path / "out")
        found = [answer["score"] for answer in read(tmp_path / "out")]
        assert found.pop(1) is None  # of texts without a word
        scores.append(found)
    alone = Predictor(tmp_path / "plain").predict([PAIRS[0], *PAIRS[2:]])
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
        form = "conll" if name == "a.conll" else None  # which nothing in it shows
        given = {"model": tmp_path / "m", "input_file": tmp_path / name, "input_format": form}
        predict(**given, output_file=tmp_path / "out")
        assert [answer["words"] for answer in read(tmp_path / "out")] == expected


def test_a_line_that_is_none_is_named(folder, tmp_path, predict):
    (tmp_path / "in.tsv").write_bytes(b"a\tb\na\n")
    with pytest.raises(InputError, match=r"in.tsv, line 2: 'a' \(1 column\)"):
        predict(model=folder / "export", input_file=tmp_path / "in.tsv", output_file=tmp_path / "o")
    assert [path.name for path in tmp_path.iterdir()] == ["in.tsv"]  # nothing half done is left


def test_standard_input(folder, wanted, predict, monkeypatch):
    given, found = io.BytesIO("\n".join(map("\t".join, PAIRS)).encode()), io.BytesIO()
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=given))
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(buffer=found))
    predict(model=folder / "export")
    assert same([json.loads(line) for line in found.getvalue().splitlines()], wanted)


# ---------------------------------------------------------------------------- serve


def started(*words: str) -> tuple[subprocess.Popen, str]:
    """`bert-tf serve`, once it answers; and the root of its address."""
    # Where tests run in the background, control-C is switched off for all that they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "bert_tf", "serve", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    for line in process.stderr:
        if " is served at " in line:
            return process, re.search(r"http://[^/]+/", line)[0]
    raise AssertionError(process.wait())


def asked(url: str, content: dict):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(content).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def test_the_page_answers_and_ends_by_control_c(folder, wanted):
    process, url = started(str(folder / "export"), "--port=0")
    with process:
        texts = dict(zip(("text_a", "text_b"), PAIRS[0], strict=True))
        assert same([asked(f"{url}api/answer", {"texts": texts})["answer"]], wanted[:1])
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert "Traceback" not in process.stderr.read()


def test_the_server_opens_when_it_can_answer_and_ends_when_all_is_answered(folder):
    """By SIGTERM."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    is_loaded = threading.Event()
    early = []

    def knock():
        while not is_loaded.is_set():
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                early.append(is_loaded.wait(1))  # not long before it says so

    knocking = threading.Thread(target=knock)
    knocking.start()
    process, url = started(str(folder / "export"), f"--port={port}", "--name=m")
    is_loaded.set()
    knocking.join()
    assert all(early)
    with process:
        request = {"instances": [{"text_a": "who " * 400, "text_b": "founded it"}] * 3000}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(asked, f"{url}v1/models/m:predict", request) for _ in range(4)]
            while number_waiting(url) < 4:
                assert not any(answer.done() for answer in answers)
            process.send_signal(signal.SIGTERM)
            assert [len(answer.result()["predictions"]) for answer in answers] == [3000] * 4
        assert process.wait(timeout=60) == 0
        assert "Traceback" not in process.stderr.read()


def number_waiting(url: str) -> int:
    """The requests that wait or are computed, by the server's metrics."""
    with urllib.request.urlopen(f"{url}metrics", timeout=60) as response:
        return int(float(re.search(rb"\nbert_tf_waiting_requests (\S+)", response.read())[1]))


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InputError, match=r"pip install 'bert-tf\[serve\]'"):
        serve.require_packages()
