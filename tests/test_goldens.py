"""Goldens: every file is the one that benchmarks/make_goldens.py wrote."""

import hashlib
import pathlib
import shutil

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


def test_a_flipped_bit_is_found(tmp_path):
    folder = shutil.copytree(GOLDENS, tmp_path / "goldens")
    names = [line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()]
    assert len(names) > 30
    for number, name in enumerate(names):
        content = (folder / name).read_bytes()
        flipped = bytearray(content)
        flipped[number * 97 % len(content)] ^= 1 << number % 8
        (folder / name).write_bytes(flipped)
        assert changed(folder) == [name]
        (folder / name).write_bytes(content)
    (folder / name).unlink()
    (folder / "another").touch()
    assert changed(folder) == ["another", name]
