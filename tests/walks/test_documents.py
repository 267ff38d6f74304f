"""The commands and snippets of the documents, run as they stand on small data."""

import io
import os
import pathlib
import shutil
import subprocess
import sys
import types

import pytest
from document_inputs import SIZES, write_inputs
from documents import DOCUMENTS, call_of, command_of, read, shell_commands, snippets
from walking import eagerly, in_process, untraced

pytestmark = pytest.mark.walk
# Documents that run one after the other in one folder, and files which are there in the end.
MADE = {
    ("README.md", "docs/get_started.md"): (
        "models/topics/eval_results.txt",
        "models/squad/predictions.json",
        "serving/topics/1/saved_model.pb",
        "minilm/bert_model.ckpt.index",
        "topics_for_transformers/model.safetensors",
    ),
    ("docs/accelerators.md",): (),
    (
        "docs/api.md",
        "docs/api_answers.md",
        "docs/api_layers.md",
        "docs/api_training.md",
        "docs/api_weights.md",
    ): (),
    ("examples/serving/README.md",): ("serving/mrpc/1/SHA256SUMS",),
    ("docs/checkpoints.md",): (
        "bert-base/model.safetensors",
        "more/model.safetensors",
        "small/bert_model.ckpt.index",
        "mean/bert_model.ckpt.index",
    ),
    ("docs/fine_tune.md",): tuple(
        f"models/{name}/eval_results.txt"
        for name in ("mrpc", "topics", "long", "labels", "ner", "swag")
    ),
    ("docs/library.md",): ("opinions.keras", "adapted/model.safetensors"),
    ("docs/moving.md",): (),
    ("docs/pretrain.md",): (
        "model/model.ckpt-3.index",
        "small/model.ckpt-3.index",
        "data_512/part.tfrecord-00001-of-00002",
        "curves.png",
    ),
    ("docs/scale.md",): (),
    ("docs/serve.md",): (
        "serving/mrpc/1/saved_model.pb",
        "phone/mrpc/1/model.tflite",
        "browser/mrpc/1/model.onnx",
        "answers.jsonl",
    ),
    ("docs/squad.md",): ("models/squad/report.html", "models/squad_v1/best", "answers.jsonl"),
    ("docs/vectors.md",): ("features.jsonl", "vectors.npz"),
}
# Words of commands that do not run here: why not, and where they are tested.
ELSEWHERE = {
    "python benchmarks/": "takes minutes to hours; parts are in faults/, benchmarks/, docs/",
    "bert-tf serve": "serves until it is stopped: walks/test_predict, http/",
    "python examples/client.py": "needs a server: examples/test_client",
    "curl http://localhost": "the same; the client sends such requests",
    "curl -d": "the same",
    "--strategy=multiworker": "needs several hosts: walks/test_multiworker",
    "--tfds_name=": "downloads: tasks/test_task_datasets and squad/test_data, prepared",
    "docker ": "needs Docker, which no test has; the models it serves: serving/test_export",
    "jupyter lab": "runs until it is stopped: examples/test_notebooks",
    "make demo": "makes an environment: examples/test_demo",
    "make test": "runs this test",
    "git ": "needs a network",
    "--init_checkpoint=hf:": "needs a network: checkpoints/test_hub, with a server of its own",
    "--from=hf:": "the same",
    "wikiextractor ": "needs a network and 20 GB",
    "pip install": "needs a network: walks/test_wheel, without one",
    "python3 -m venv": "the same",
    ".venv": "the same",
}
# Values of flags that the documents give, where they are too large for a test.
SMALLER = {
    "stop_at_step": 2, "eval_steps": 1, "max_eval_steps": 1, "num_shards": 2,
    "vocab_size": SIZES["vocab_size"], "layers": "-1",
}  # fmt: skip
TRAIN = ("--train_batch_size=2", "--noxla", "--strategy=one")  # the tests have two devices
QUICKLY = {
    "data": ("--dupe_factor=1", "--num_workers=1"),
    "pretrain": ("--num_train_steps=3", "--num_warmup_steps=1", *TRAIN),
    "classify": ("--num_train_epochs=1", *TRAIN),
    "squad": ("--num_train_epochs=1", *TRAIN),
}
SCRIPTS = {"create_pretraining_data.py": "data"}
# Its head would be known to all tests of this process: walks/test_new_head runs one.
DOCUMENTS = [name for name in DOCUMENTS if name != "docs/own_head.md"]
LINES = {name: shell_commands(read(name)) for name in DOCUMENTS}


def elsewhere(document: str, words: list[str]) -> list[str]:
    """The keys of `ELSEWHERE` for a command."""
    line = f" {document}: {' '.join(words)}"
    return [key for key in ELSEWHERE if f" {key}" in line]


def run_command(words: list[str], folder: pathlib.Path, monkeypatch) -> None:
    """Runs a command in a folder: Python and bert-tf in this process, others in a shell."""
    call = call_of(words)
    if not call:
        line = " ".join(words).replace(" /", f" {folder}/")
        subprocess.run(line, shell=True, check=True, cwd=folder)
        return
    text = words[1] if words[0] == "echo" else "Sun and wind"
    line = types.SimpleNamespace(buffer=io.BytesIO(f"{text}\n".encode()), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", line)
    verb, rest = command_of(call)
    answering = eagerly() if verb == "export" else untraced()  # an export is made of graphs
    with in_process(verb) as run, answering:
        run(*map(smaller, rest), *QUICKLY.get(SCRIPTS.get(verb, verb), ()))


def smaller(word: str) -> str:
    """A flag with its value of `SMALLER`; a path from the root becomes one from the folder."""
    name, equals, value = word.partition("=")
    return f"{name}{equals}{SMALLER.get(name.removeprefix('--'), value.removeprefix('/'))}"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("documents")
    write_inputs(folder)
    return folder


@pytest.mark.parametrize("documents", MADE, ids="+".join)
def test_commands_and_snippets_run(inputs, documents, tmp_path, monkeypatch):
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    lines = [words for name in documents for words in LINES[name] if not elsewhere(name, words)]
    with eagerly():
        for words in dict.fromkeys(map(tuple, lines)):
            run_command(list(words), tmp_path, monkeypatch)
        for name in documents:
            exec(compile(snippets(read(name)), name, "exec"), {"__name__": "snippets"})
    assert not [name for name in MADE[documents] if not os.path.exists(name)]


def test_nothing_is_left_out_silently():
    """A document with a command or snippet that can run is in `MADE`; and no others are."""
    lines = [(name, words) for name in DOCUMENTS for words in LINES[name]]
    run = {name for name, words in lines if not elsewhere(name, words)}
    run |= {name for name in DOCUMENTS if snippets(read(name))}
    assert run == {name for names in MADE for name in names}
    assert {key for name, words in lines for key in elsewhere(name, words)} == ELSEWHERE.keys()
