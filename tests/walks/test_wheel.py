"""A wheel in an environment of its own, outside the clone: `bert-tf` from text to answers."""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.walk
OURS = {"bert_tf", "data_gen", "create_pretraining_data.py", "extract_features.py",
        "run_classifier.py", "run_pretraining.py", "run_squad.py"}  # fmt: skip
TEXT = "The sun is warm.\nThe rain is cold.\n\nA cat sleeps in the sun.\nA dog runs in the rain.\n"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "the", "a", "sun", "rain", "is",
          "warm", "cold", "in", "cat", "dog", "sleeps", "runs"]  # fmt: skip
CONFIG = {
    "vocab_size": len(PIECES),
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    """The wheel, built from a copy of what it is made of."""
    folder = tmp_path_factory.mktemp("wheel")
    names = ["setup.py", "pyproject.toml", "README.md", "bert_tf", "data_gen"]
    names += [path.name for path in ROOT.glob("*.py")]
    (folder / "source").mkdir()
    for name in {*names}:
        subprocess.run(["cp", "-r", str(ROOT / name), str(folder / "source")], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", f"--wheel-dir={folder}"]
    subprocess.run([*pip, "wheel", *options, str(folder / "source")], check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> pathlib.Path:
    """An environment with the wheel; what it depends on is that of this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    install = ["--python", str(folder / "bin/python"), "install", "--no-deps", str(wheel)]
    subprocess.run([*pip, *install], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_only_our_names_are_installed(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
        files = set(archive.namelist())
    assert {name for name in names if not name.endswith(".dist-info")} == OURS
    needed = {"bert_tf/tokenization/unicode_14.npz", "bert_tf/squad/report.html"}
    needed |= {f"bert_tf/playground/page.{kind}" for kind in ("html", "css", "js")}
    assert needed <= files
    assert any(name.startswith("data_gen/sample_text/") for name in files)


def test_from_text_to_answers(environment, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG))
    variables = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}

    def bert_tf(*words: str) -> str:
        ended = subprocess.run(
            [str(environment / "bin/bert-tf"), *words],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    sizes = ("--max_seq_length=24", "--max_predictions_per_seq=4")
    bert_tf("data", "--input_file=text.txt", "--output_file=train.tfrecord",
            "--vocab_file=vocab.txt", "--num_workers=1", "--dupe_factor=2", *sizes)  # fmt: skip
    bert_tf("pretrain", "--input_file=train.tfrecord", "--output_dir=model", "--do_train",
            "--bert_config_file=bert_config.json", "--vocab_file=vocab.txt", "--train_batch_size=3",
            "--num_train_steps=2", "--num_warmup_steps=1", "--do_lower_case", *sizes)  # fmt: skip
    guesses = bert_tf("fill-mask", "--init_checkpoint=model", "The [MASK] is warm.")
    assert guesses.startswith("The [MASK] is warm.\n  [MASK] 1: ")
    bert_tf("export", "--init_checkpoint=model", "--export_dir=serving")
    (tmp_path / "questions.txt").write_text("A [MASK] sleeps.\n")
    bert_tf("predict", "--model=serving", "--input_file=questions.txt", "--output_file=a.jsonl")
    (answer,) = (tmp_path / "a.jsonl").read_text().splitlines()
    best, percent = guesses.splitlines()[1].split(": ")[1].split("  ")[0].rsplit(" ", 1)
    assert best in PIECES
    assert percent.endswith("%")
    assert {piece for row in json.loads(answer)["pieces"] for piece in row} <= {*PIECES}
