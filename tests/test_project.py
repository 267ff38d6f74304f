"""What surrounds the code: Makefile, Dockerfiles, CONTRIBUTING.md, issue templates, citation."""

import ast
import json
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import types
import unittest.mock

import model_files
import pytest
import yaml

from bert_tf import BertConfig
from bert_tf.checkpoints import loading, metadata, saving
from bert_tf.errors import InputError
from bert_tf.options import Options, option, options_of
from bert_tf.tasks import registry
from bert_tf.tasks.examples import Example

ROOT = pathlib.Path(__file__).parents[1]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# ---------------------------------------------------------------------------- the Makefile


def write_python(path: pathlib.Path, version: str, *, exit_code: int = 0) -> pathlib.Path:
    """A program that answers -V, and whether it is a supported Python by its exit code."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = -V ] && echo Python {version}\nexit {exit_code}\n')
    path.chmod(0o755)
    return path


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_make_takes_the_first_python_that_is_supported_or_says_which_it_needs(tmp_path):
    """In a copy of the project's root, where no Python is but those of the test."""
    for name in ("Makefile", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "show.mk").write_text("include Makefile\nshow:\n\t@echo '$(PYTHON)'\n")
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "make", "test", "printf", "head", "echo"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    variables = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "LC_ALL": "C"}

    def make(*words: str) -> subprocess.CompletedProcess:
        options = {"cwd": tmp_path, "env": variables, "capture_output": True, "text": True}
        return subprocess.run(["make", *words], **options)

    write_python(tmp_path / "bin/old", "3.10.2", exit_code=1)
    for words in ([], ["PYTHON=old"], ["PYTHON=none"]):
        ended = make("demo", *words)
        assert ended.returncode == 2
        parts = [line.partition(":")[0] for line in ended.stderr.splitlines()[:3]]
        assert parts == ["Received", "Expected", "To do"]
        assert ("(Python 3.10.2)" in ended.stderr) == ("PYTHON=old" in words)
        assert "Python 3.11 to 3.13" in ended.stderr
    assert not (tmp_path / ".venv").exists()
    show = ("-f", "show.mk", "show")
    assert make(*show).stdout == "\n"
    other = write_python(tmp_path / ".pyenv/versions/3.12.5/bin/python", "3.12.5")
    write_python(tmp_path / ".pyenv/versions/3.10.9/bin/python", "3.10.9")
    assert make(*show).stdout == f"{other}\n"
    write_python(tmp_path / "bin/python3", "3.13.0")
    assert make(*show).stdout == "python3\n"
    write_python(tmp_path / "bin/python3.11", "", exit_code=127)  # of pyenv, where none is chosen
    write_python(tmp_path / "bin/python3.12", "3.12.1")
    assert make(*show).stdout == "python3.12\n"
    assert make(*show, "PYTHON=mine").stdout == "mine\n"


def test_make_and_setup_py_agree_on_the_versions():
    assert "\nSUPPORTED := 3.11 3.12 3.13\n" in read("Makefile")
    assert 'python_requires=">=3.11,<3.14"' in read("setup.py")


def test_the_workflow_makes_what_there_is_with_every_supported_python():
    workflow = read(".github/workflows/tests.yml")
    targets = {*re.findall(r"target: \[?(\w+)", workflow)}
    assert targets == {"test", "lint", "dist", "docs"}
    assert all(f"\n{target}:" in read("Makefile") for target in targets)
    assert re.search(r"python: \[(.*)\]", workflow)[1] == '"3.11", "3.12", "3.13"'
    assert 'run: make ${{ matrix.target }} PYTHON="$(command -v python)"' in workflow


# ---------------------------------------------------------------------------- Dockerfiles


def instructions(name: str) -> list[tuple[str, str]]:
    """A Dockerfile's instructions: word and arguments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", read(name), flags=re.M).replace("\\\n", "")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line]


def test_the_image_for_training_gets_what_setup_py_needs():
    words = dict(instructions("Dockerfile"))
    assert words["COPY"] == ". ."
    kept = {path for line in read(".dockerignore").splitlines() if line[0] == "!"
            for path in ROOT.glob(line[1:])}  # fmt: skip
    modules = ast.literal_eval(re.search(r"py_modules=(\[.*?\])", read("setup.py"), re.S)[1])
    needed = {f"{name}.py" for name in modules} | {"bert_tf", "data_gen", "README.md"}
    needed |= {"setup.py", "pyproject.toml", "constraints.txt", "LICENSE", "requirements.txt"}
    assert {path.name for path in kept} == needed
    default = next(rest for word, rest in instructions("Dockerfile") if rest.startswith("EXTRAS="))
    asked = default.removeprefix("EXTRAS=").split(",")
    assert set(asked) <= set(re.findall(r'"([\w-]+)"(?:\]|:)', read("setup.py")))
    assert words["ENTRYPOINT"] == '["bert-tf"]'


def test_the_image_for_bert_tf_serve_installs_what_is_locked():
    """As nobody, from hashes alone, with a check that the command has."""
    name = "examples/serving/bert_tf.Dockerfile"
    words = dict(instructions(name))
    assert words["USER"].split(":")[0] not in ("0", "root")
    assert words["ENTRYPOINT"] == '["bert-tf", "serve", "--host=0.0.0.0"]'
    assert "http://127.0.0.1:8501/readyz" in words["HEALTHCHECK"]
    compile(json.loads(words["HEALTHCHECK"].partition("CMD ")[2])[2], name, "exec")
    runs = [rest for word, rest in instructions(name) if word == "RUN"]
    assert "--require-hashes" in runs[0]
    assert "--no-deps" in runs[1]
    lock = re.sub(r" \\\n\s*", " ", read("examples/serving/requirements.txt"))
    lines = lock.splitlines()
    assert all("--hash=sha256:" in line for line in lines)
    locked = {re.sub("[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    pinned = dict(line.lower().split("==") for line in read("constraints.txt").splitlines())
    for line in lines:
        package, version = line.split()[0].split("==")
        names = {package, package.replace("-", "_")}
        assert {pinned[n] for n in names if n in pinned} <= {version}, package
    extras = runpy_extras()
    wanted = extras["serve"] + extras["install_requires"]
    assert {re.split("[><=!]", need)[0].lower() for need in wanted} <= locked


def runpy_extras() -> dict[str, list[str]]:
    """What setup.py asks for."""
    given = {}
    with unittest.mock.patch("setuptools.setup", lambda **words: given.update(words)):
        runpy.run_path(str(ROOT / "setup.py"))
    return given["extras_require"] | {"install_requires": given["install_requires"]}


def test_the_image_for_serving_holds_a_whole_export(exported, tmp_path):
    served = tmp_path / "models/my-model"
    shutil.copytree(exported("regression") / "export", served)
    words = dict(instructions("examples/serving/tensorflow_serving.Dockerfile"))
    assert words["COPY"] == ". /models/${MODEL_NAME}"
    shell = ["sh", "-c", words["RUN"].replace("/models/", f"{tmp_path}/models/")]

    def build() -> int:
        return subprocess.run(shell, env={"MODEL_NAME": "my-model"}, capture_output=True).returncode

    assert build() == 0
    (file,) = served.glob("*/saved_model.pb")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert build() == 1
    file.write_bytes(whole)
    (served / "3").mkdir()  # not an export
    assert build() == 1


# ---------------------------------------------------------------------------- CONTRIBUTING.md


GUIDE = read("CONTRIBUTING.md")
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.M | re.S)  # a task, an option, a format


def test_the_files_and_names_of_the_guide_exist():
    spans = {*re.findall(r"`([^`\n]+)`", GUIDE)}
    path = re.compile(r"([\w/]+/(\w+\.py)?|\w+\.py)(:[\w.]+)?")  # of a file, a folder or a function
    paths = {found[1] for span in spans if (found := path.fullmatch(span))}
    assert {"bert_tf/tasks/registry.py", "tests/walks/"} <= paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    code = "\n".join(read(path) for path in sorted(paths) if path.endswith(".py"))
    names = {span for span in spans if re.fullmatch(r"[A-Z]\w+|_?[a-zA-Z]+_\w+|_[A-Z]+", span)}
    names -= {"BERT_TF_DATA", "BERT_TF_GOLDENS"}
    assert {"_TASKS", "LabelHead", "make_batches", "METRICS"} <= names
    missing = [n for n in sorted(names) if not re.search(rf"(def|class) {n}\b|^{n}\b", code, re.M)]
    assert missing == []
    for link in re.findall(r"\]\(([^)]+)\)", GUIDE):
        assert (ROOT / link.partition("#")[0]).exists(), link


def test_the_task_of_the_guide_reads_its_data(tmp_path):
    task = eval(BLOCKS[0], vars(registry))
    rows = ["gold_label\tsentence1\tsentence2", "neutral\tIt rains.\tIt is May.", "-\ta\tb"]
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
    (example,) = task.read(str(tmp_path), "train")
    assert isinstance(example, Example)
    assert (example.text_a, example.text_b, example.label) == ("It rains.", "It is May.", "neutral")
    in_docstring = re.sub(r"^    ", "", registry.__doc__, flags=re.M)
    assert BLOCKS[0] in in_docstring


def test_the_option_of_the_guide_is_one():
    body = "".join(f"    {line}\n" for line in BLOCKS[1].splitlines())
    names = {"Options": Options, "option": option}
    exec(f"class OfGuide(Options):\n{body}", names)
    (found,) = options_of(names["OfGuide"])
    assert (found.flag, found.kind, found.default) == ("clip_norm", float, 1.0)
    with pytest.raises(InputError, match="at least 0"):
        names["OfGuide"](clip_norm=-1.0)


def test_the_format_of_the_guide_keeps_every_bit(tmp_path, monkeypatch):
    module = types.ModuleType("npz_of_the_guide")
    exec(BLOCKS[2], vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    (entry,) = re.findall(r"^(\"npz\": Format\(.*\)),$", GUIDE, re.M)
    entry = entry.replace("bert_tf.checkpoints.npz", module.__name__)
    added = eval(f"{{{entry}}}", {"Format": metadata.Format})
    monkeypatch.setattr(loading, "FORMATS", added | metadata.FORMATS)
    monkeypatch.setattr(saving, "FORMATS", added | metadata.FORMATS)
    monkeypatch.setattr(saving, "WRITTEN", ("npz",))
    tensors = model_files.tensors_of("classifier")
    folder = str(tmp_path / "archive")
    saving.save_weights(model_files.weights_of(tensors), folder, format="npz")
    found = loading.open_weights(folder)
    model_files.assert_same(model_files.all_tensors(found), tensors)
    assert isinstance(found.config, BertConfig)
    assert loading.open_weights(f"{folder}/weights.npz").path == found.path
    assert found.pieces == model_files.PIECES
    (tmp_path / "archive" / module.NAME).write_bytes(b"PK\3\4 and no more")
    with pytest.raises(InputError, match="whole archive of NumPy"):
        loading.open_weights(folder)


# ---------------------------------------------------------------------------- the version


def test_the_version_is_in_one_place():
    paths = [*ROOT.glob("*.py"), *ROOT.glob("bert_tf/**/*.py"), ROOT / "pyproject.toml"]
    assigned = [p.name for p in paths if re.search(r'^(__)?version(__)? = "', p.read_text(), re.M)]
    assert assigned == ["__init__.py"]
    assert "version" not in yaml.safe_load(read("CITATION.cff"))
