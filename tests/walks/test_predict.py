"""predict.py and the playground as one calls them."""

import collections
import contextlib
import io
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import types
import urllib.request

import psutil
import pytest
import served_models
from walking import command, in_process

from bert_tf import Predictor
from bert_tf.errors import InputError
from bert_tf.serving.export import export_checkpoint

pytestmark = pytest.mark.walk
PAIRS = [("who founded it", "Ruprecht"), ("", ""), ("café 中", "in 1386 " * 9), ("it", "by")]
LENGTH = served_models.LENGTH


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """An export of a model of pairs."""
    folder = tmp_path_factory.mktemp("predict")
    weights = served_models.write_folder("pairs", folder / "model")
    export_checkpoint(
        weights,
        weights.config,
        served_models.TOKENIZER,
        str(folder / "export"),
        options=served_models.options("pairs"),
    )
    return folder


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
    predict(
        model=folder / "export",
        input_file=tmp_path / "in.tsv",
        output_file=tmp_path / "tsv",
        batch_size=3,
    )
    assert same(read(tmp_path / "tsv"), wanted)
    with (tmp_path / "in.jsonl").open("w") as file:
        for number, (text_a, text_b) in enumerate(PAIRS):
            item = {"text_b": text_b, "text_a": text_a, "gold": "x", "id": f"é{number}"}
            file.write(json.dumps(item if number else PAIRS[0]) + "\n")
    # The checkpoint, and not the export, is answered of.
    predict(
        "--pairs",
        model=folder / "model",
        max_seq_length=LENGTH,
        input_file=tmp_path / "in.jsonl",
        output_file=tmp_path / "jsonl",
    )
    found = read(tmp_path / "jsonl")
    assert [one.pop("id", None) for one in found] == [None, "é1", "é2", "é3"]
    assert same(found, wanted)
    assert "gold" not in found[1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.tsv", b"a\tb\na\n", "in.tsv, line 2: b'a' (1 column)"),
        ("in.tsv", b"a\tb\n\xff\tb\n", "in.tsv, line 2: bytes that are not UTF-8 (b'\\xff\\tb"),
        ("in.jsonl", b'["a", "b"]\n{"text_a": "a"}\n', "in.jsonl, line 2 without text_b, with"),
        ("in.jsonl", b'["a", 7]\n', "in.jsonl, line 1, text_b: 7 (int)"),
        ("in.jsonl", b'["a", "b"]\n{\n', "in.jsonl, line 2: b'{'"),
    ],
)
def test_a_line_that_is_none_is_named(folder, tmp_path, predict, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message)):
        predict(model=folder / "export", input_file=tmp_path / name, output_file=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == [name]  # nothing half done is left


class Terminal(io.BytesIO):
    """Lines that are typed one by one, each after the answer to the one before."""

    def __init__(self, lines: list[str], screen: io.BytesIO):
        super().__init__("".join(f"{line}\n" for line in lines).encode())
        self._screen, self._typed = screen, 0

    def readline(self, *_):
        assert self._screen.getvalue().count(b"\n") == self._typed
        self._typed += 1
        return super().readline()


def test_what_is_typed_is_answered_at_once(folder, wanted, predict, monkeypatch):
    screen = io.BytesIO()
    keyboard = Terminal(["\t".join(pair) for pair in PAIRS], screen)
    stdin = types.SimpleNamespace(buffer=keyboard, isatty=lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(buffer=screen))
    predict(model=folder / "export")
    found = [json.loads(line) for line in screen.getvalue().splitlines()]
    assert same(found, wanted)


def test_a_large_file_takes_no_more_memory_than_a_small_one(folder, tmp_path):
    """In a process of its own, from the first answers to late ones; then nobody reads any more."""
    count = 30_000
    with (tmp_path / "in.tsv").open("w") as file:
        for number in range(count):
            file.write(f"{'it ' * (number % 50)}\t{'who founded it in 1386 ' * 8}\n")
    started = command("predict", model=folder / "export", input_file=tmp_path / "in.tsv")
    memory = []
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        watched = psutil.Process(process.pid)
        for number, _ in enumerate(process.stdout, 1):
            if number in (count // 5, count * 4 // 5):
                memory.append(watched.memory_info().rss)
            if len(memory) == 2:
                break
        process.stdout.close()
        said = process.stderr.read().decode()
    assert process.returncode == 128 + signal.SIGPIPE
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
    assert memory[1] - memory[0] < 40e6


# ---------------------------------------------------------------------------- the playground


@pytest.fixture(scope="module")
def page(folder):
    """The address of a page, and its process."""
    started = [sys.executable, "-m", "bert_tf.playground", str(folder / "export"), "--port=0"]
    # Where tests run in the background, control-C is switched off for all that they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(started, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    with process:
        said = collections.deque(maxlen=20)
        with contextlib.suppress(StopIteration):
            while "is shown at" not in (line := next(process.stderr)):
                said.append(line)
        found = re.search(r"is shown at (\S+)", line)
        assert found, list(said)
        yield found[1], process
        if process.poll() is None:
            process.kill()


def test_the_page_answers(page, wanted):
    url, _ = page
    body = json.dumps({"texts": dict(zip(("text_a", "text_b"), PAIRS[0], strict=True))}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}api/answer", body, headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        told = json.load(response)
    assert same([told["answer"]], wanted[:1])


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium here")
def test_a_browser_shows_an_answer_and_its_pieces(page, tmp_path):
    """The page runs: what it makes of the example is in the document at the end."""
    url, _ = page
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    options += ["--virtual-time-budget=20000", "--dump-dom", f"{url}#example"]
    done = subprocess.run(["chromium", *options], capture_output=True, text=True, timeout=300)
    assert '<h1 id="title">Which label fits?</h1>' in done.stdout
    bars = re.findall(r'<span class="name">([^<]*)</span>', done.stdout)
    assert sorted(bars) == sorted(served_models.LABELS)
    assert len(re.findall(r'class="piece[ "]', done.stdout)) == LENGTH  # the example is longer
    assert done.stdout.count('aria-label="head ') == served_models.CONFIG.num_attention_heads
    assert re.search(r'<p id="error" role="alert" hidden="">', done.stdout)


def test_the_page_ends_by_control_c(page):
    _, process = page
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    assert "Traceback" not in process.stderr.read()
