"""SHA256SUMS: what an export lists, and what is refused when it is loaded."""

import pathlib
import re
import shutil
import subprocess

import pytest

from bert_tf import Predictor
from bert_tf.errors import InputError
from bert_tf.serving.checksums import CHECKSUMS, check_files, write_checksums

VARIABLES = "variables/variables.data-00000-of-00001"


@pytest.fixture
def export(exports, tmp_path) -> pathlib.Path:
    """A copy of an export, to be damaged."""
    return pathlib.Path(shutil.copytree(exports["classification"], tmp_path / "1"))


def files_in(folder: pathlib.Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_sha256sum_checks_every_file(export):
    lines = (export / CHECKSUMS).read_text().splitlines()
    listed = {line.split("  ")[1] for line in lines}
    assert listed == files_in(export) - {CHECKSUMS, "README.md"}
    assert {"saved_model.pb", VARIABLES, "assets/vocab.txt", "export.json"} <= listed
    if not shutil.which("sha256sum"):
        pytest.skip("no sha256sum here")
    check = ["sha256sum", "--strict", "--check", CHECKSUMS]
    assert subprocess.run(check, cwd=export, stdout=subprocess.DEVNULL).returncode == 0


def flip(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


WRONG = "whose checksum is not the one in"
MORE = "which SHA256SUMS does not list"


@pytest.mark.parametrize(
    ("change", "name", "says"),
    [
        (flip, "saved_model.pb", WRONG),
        (flip, VARIABLES, WRONG),
        (flip, "assets/vocab.txt", WRONG),
        (flip, "export.json", WRONG),
        (pathlib.Path.unlink, "variables/variables.index", "which is missing"),
        (shutil.rmtree, "assets", "vocab.txt, which is missing"),
        (pathlib.Path.touch, "assets.extra/saved_model.cpb", MORE),
    ],
)
def test_a_changed_file_is_named(export, change, name, says):
    change(export / name)
    with pytest.raises(InputError, match=rf"{re.escape(name)}.*{says}"):
        Predictor(export.parent)


@pytest.mark.parametrize("name", ["/etc/passwd", "../model/x", "variables//fingerprint.pb"])
def test_a_name_elsewhere_is_a_missing_file(export, name):
    with (export / CHECKSUMS).open("a") as file:
        file.write(f"{'0' * 64}  {name}\n")
    with pytest.raises(InputError, match=f"^Received: {export}/{name}, which is missing"):
        Predictor(export)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "line 1: ''"),
        ("0" * 64 + "  saved_model.pb\nhello\n", "line 2: 'hello'"),
        ("0" * 63 + "  saved_model.pb\n", "line 1: '000"),
        ("0" * 64 + "  saved_model.pb\n", f"assets.extra/tf_serving_warmup_requests, {MORE}"),
    ],
)
def test_a_damaged_list_is_refused(export, content, says):
    (export / CHECKSUMS).write_text(content)
    with pytest.raises(InputError, match=re.escape(says)):
        Predictor(export)


def test_an_export_without_a_list_is_loaded_and_this_is_logged(export, caplog):
    (export / CHECKSUMS).unlink()
    with caplog.at_level("INFO", logger="absl"):
        assert Predictor(export).predict(["it"])
    logged = [one.getMessage() for one in caplog.records if CHECKSUMS in one.getMessage()]
    assert logged == [f"{export} has no {CHECKSUMS}, so its files are not checked for damage"]


def test_hidden_files_and_the_model_card_are_not_checked(export):
    (export / ".DS_Store").write_text("x")
    (export / "README.md").write_text("Our model of 2026.")
    with open(export / CHECKSUMS, "a") as listed:  # as `sha256sum *` would
        listed.write("0" * 64 + "  README.md\n")
    (export / "assets/.nfs1").write_text("x")
    assert Predictor(export).predict(["it"])


def test_names_are_relative_to_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a/b").mkdir(parents=True)
    for name, text in (("a/b/c d", "1"), ("a/é", "22"), ("a/b/a", "")):
        (tmp_path / name).write_text(text)
    for folder in ("a", "./a", str(tmp_path / "a"), "."):
        write_checksums(folder)
        check_files(folder)
    lines = (tmp_path / "a" / CHECKSUMS).read_text().splitlines()
    assert [line[64:] for line in lines] == ["  b/a", "  b/c d", "  é"]
