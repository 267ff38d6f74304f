"""Trees of files: read, written, compared, damaged, mounted; and what messages look like."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

Tree = dict[str, bytes]  # contents by path; folders end with a slash
PARTS = ("Received: ", "Expected: ", "To do: ")
EVENTS = "events.out.tfevents"  # TensorBoard's: their names tell the time
RANDOM = ("fingerprint.pb", "SHA256SUMS")  # TensorFlow draws a number; and its checksum


def has_parts(said: str) -> bool:
    """Whether there is a message in three parts."""
    places = [said.rfind(f"\n{part}") for part in PARTS]
    return -1 < places[0] < places[1] < places[2]


def is_temporary(path: str) -> bool:
    """Whether a name says that the file is not whole."""
    return any(part.startswith(".") or "incomplete" in part for part in path.split("/"))


def wrong_state(folder: pathlib.Path, name: str) -> list[str]:
    """What is wrong with a file that changes while a command runs."""
    text = (folder / name).read_text(errors="replace")
    if name.endswith(".json"):
        with contextlib.suppress(ValueError):
            json.loads(text)
            return []
        return [f"{name} is no JSON"]
    found = []
    for line in text.splitlines():
        prefix = line.partition(": ")[2].strip('"')
        if not prefix or not (folder / f"{prefix}.index").exists():
            found.append(f"{name} names {prefix!r}, which is not there")
    return found if text else [f"{name} is empty"]


def differences(found: Tree, wanted: Tree) -> list[str]:
    """How files differ from what they should be; TensorBoard's are only counted as there."""
    names = {path for path in found.keys() | wanted.keys() if EVENTS not in path}
    texts = []
    for path in sorted(names):
        if path not in found:
            texts.append(f"{path} is missing")
        elif path not in wanted:
            texts.append(f"{path} is left")
        elif found[path] != wanted[path] and not path.endswith(RANDOM):
            texts.append(f"{path} differs")
    return texts


def tree(folder: pathlib.Path) -> Tree:
    """All files and folders below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[f"{name}/"] = b""
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def write_tree(folder: pathlib.Path, files: Tree) -> None:
    """Writes what `tree` has read."""
    for name, content in files.items():
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def empty(folder: pathlib.Path) -> None:
    """Removes what is in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def damage(path: pathlib.Path, spec: Mapping[str, Any]) -> None:
    """Flips a bit of a file, cuts it off, empties it, removes it, or puts a folder there."""
    content = bytearray(path.read_bytes())
    place = int(spec["share"] * len(content))
    match spec["how"]:
        case "flip":
            if content:
                content[place] ^= 1 << spec["bit"]
            path.write_bytes(content)
        case "cut":
            path.write_bytes(content[:place])
        case "gone":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()


def mount(folder: pathlib.Path, options: str) -> None:
    """Mounts a file system in memory over a folder, or changes its options.

    Raises:
      PermissionError: only root may.
    """
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise PermissionError(ended.stderr)


def unmount(folder: pathlib.Path) -> None:
    """Takes all such file systems away."""
    while os.path.ismount(folder):
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
