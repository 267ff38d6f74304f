"""SHA256SUMS: the checksum of every file of an export, so that a damaged one is not loaded.

    cd /serving/mrpc/1 && sha256sum -c SHA256SUMS

It shows damage and files of another export, not intent: who can change a file can change the list.
"""

import re

import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError

CHECKSUMS, MODEL_CARD = "SHA256SUMS", "README.md"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def write_checksums(folder: str) -> None:
    """Writes the list of the files in a folder, in the format of sha256sum.

    Raises:
      InputError: a file cannot be read, or the list not written.
    """
    lines = [f"{_digest(folder, name)}  {name}\n" for name in sorted(_names(folder))]
    with files.path_errors(folder, "written"):
        files.write_text(tf.io.gfile.join(folder, CHECKSUMS), "".join(lines))


def check_files(folder: str) -> None:
    """Compares the files of a folder with its list; a folder without one is not checked.

    Hidden files, such as those of file managers, need not be in the list.

    Raises:
      InputError: a file is missing, changed or not in the list.
    """
    path = tf.io.gfile.join(folder, CHECKSUMS)
    with files.path_errors(folder):
        has_list = tf.io.gfile.exists(path)
    if not has_list:
        logging.info("%s has no %s, so its files are not checked for damage", folder, CHECKSUMS)
        return
    listed, found = _read(path), _names(folder)
    for name in sorted((listed.keys() | found) - {MODEL_CARD}):
        problem = ""
        if name not in found:
            problem = "which is missing"
        elif name in listed and _digest(folder, name) != listed[name]:
            problem = f"whose checksum is not the one in {CHECKSUMS}"
        elif name not in listed and "/." not in f"/{name}":
            problem = f"which {CHECKSUMS} does not list"
        if problem:
            raise InputError(
                f"{folder.rstrip('/')}/{name}, {problem}",
                "the files of an export as they were written",
                "copy the folder again, or export the model again; if you changed it on purpose, "
                f"remove {CHECKSUMS}",
            )


def _read(path: str) -> dict[str, str]:
    """The checksums by the names of the files."""
    files.check_regular(path)
    checksums = {}
    for number, line in enumerate([*files.read_text_lines(path)] or [""], 1):
        line = line.removesuffix("\n")
        if not (match := _LINE.fullmatch(line)):
            raise InputError(
                f"{path}, line {number}: {line[:80]!r}",
                "a checksum, two spaces and the name of a file, as sha256sum prints them",
                "copy the export again, or export the model again",
            )
        checksums[match[2]] = match[1]
    return checksums


def _names(folder: str) -> set[str]:
    """The files in a folder and its folders, relative to it.

    Without the list itself and the model card, which people may edit.
    """
    with files.path_errors(folder):
        return {
            tf.io.gfile.join(inside, name).removeprefix(folder).lstrip("/")
            for inside, _, found in tf.io.gfile.walk(folder)
            for name in found
        } - {CHECKSUMS, MODEL_CARD}


def _digest(folder: str, name: str) -> str:
    return files.digest_of(tf.io.gfile.join(folder, name), sha256=True)
