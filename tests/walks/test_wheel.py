"""A wheel in an environment of its own, outside the clone: `bert-tf` from text to answers."""

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
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "the", "a", "sun", "rain", "cat"]


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
        (metadata,) = (name for name in files if name.endswith("/METADATA"))
        description = archive.read(metadata).decode()
    assert description.count("](https://") > 30
    assert "](" not in description.replace("](https://", "")  # a package index has no other files
    assert {name for name in names if not name.endswith(".dist-info")} == OURS
    needed = {"bert_tf/tokenization/unicode_14.npz", "bert_tf/training/report.html"}
    needed |= {f"bert_tf/http/page.{kind}" for kind in ("html", "css", "js")}
    needed |= {f"data_gen/sample_{name}" for name in ("text/nature.txt", "topics/train.csv")}
    assert needed <= files


def test_every_module_and_a_command(environment, tmp_path):
    """Outside the clone: all modules can be imported, and raw text becomes records."""
    variables = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}

    def run(program: str, *words: str) -> None:
        command = [str(environment / "bin" / program), *words]
        ended = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr

    names = [path.relative_to(ROOT).with_suffix("") for path in ROOT.glob("bert_tf/**/*.py")]
    names += [pathlib.Path(name.removesuffix(".py")) for name in OURS if name.endswith(".py")]
    modules = [".".join(name.parts).removesuffix(".__init__") for name in names]
    check = f"import importlib, bert_tf; [importlib.import_module(name) for name in {modules}]"
    run("python", "-c", f"{check}; assert {str(environment)!r} in bert_tf.__file__")
    (tmp_path / "text.txt").write_text("The sun.\nThe rain.\n\nA cat.\nA dog in the rain.\n")
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    run("bert-tf", "data", "--input_file=text.txt", "--output_file=train.tfrecord",
        "--vocab_file=vocab.txt", "--do_lower_case", "--num_workers=1")  # fmt: skip
    assert (tmp_path / "train.tfrecord").stat().st_size > 0
