"""Goldens: every file is the one that benchmarks/make_goldens.py wrote."""

import hashlib
import pathlib

import bert_tf

GOLDENS = pathlib.Path(__file__).parent / "goldens"
FOLDERS = [GOLDENS, pathlib.Path(bert_tf.__file__).parent / "goldens"]


def changed(folder: pathlib.Path) -> list[str]:
    """The files that SHA256SUMS does not have, or of which it has another hash."""
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    paths = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}
    names = (listed.keys() | found.keys()) - {"README.md", "SHA256SUMS"}
    return sorted(name for name in names if listed.get(name) != found.get(name))


def test_no_golden_has_changed():
    assert [changed(folder) for folder in FOLDERS] == [[], []]
    paths = [path for folder in FOLDERS for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in paths) < 2e6
