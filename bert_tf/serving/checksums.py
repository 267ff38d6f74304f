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
    lines = [f"{digest}  {name}\n" for name, digest in sorted(_digests(folder).items())]
    files.write_text(tf.io.gfile.join(folder, CHECKSUMS), "".join(lines))


def check_files(folder: str) -> None:
    """Compares the files of a folder with its list; a folder without one is not checked.

    Hidden files, such as those of file managers, need not be in the list.

    Raises:
      InputError: a file is missing, changed or not in the list.
    """
    path = tf.io.gfile.join(folder, CHECKSUMS)
    with files.path_errors(folder):
        if not tf.io.gfile.exists(path):
            logging.info("%s has no %s, so its files are not checked for damage", folder, CHECKSUMS)
            return
    listed, found = _listed(path), _digests(folder)
    for name in sorted((listed.keys() | found.keys()) - {MODEL_CARD}):
        is_hidden = "/." in f"/{name}"
        if listed.get(name) == found.get(name) or (is_hidden and name not in listed):
            continue
        problem = f"whose checksum is not the one in {CHECKSUMS}"
        if name not in found:
            problem = "which is missing"
        elif name not in listed:
            problem = f"which {CHECKSUMS} does not list"
        raise InputError(
            f"{folder.rstrip('/')}/{name}, {problem}",
            "the files of an export as they were written",
            "copy the folder again, or export the model again; if you changed it on purpose, "
            f"remove {CHECKSUMS}",
        )


def _listed(path: str) -> dict[str, str]:
    """The checksums in a list by the names of the files."""
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


def _digests(folder: str) -> dict[str, str]:
    """The checksums of the files in a folder and its folders by their names in it.

    Without the list itself and the model card, which people may edit.
    """
    with files.path_errors(folder):
        paths = [
            tf.io.gfile.join(inside, name)
            for inside, _, found in tf.io.gfile.walk(folder)
            for name in found
        ]
    named = {path.removeprefix(folder).lstrip("/"): path for path in paths}
    return {
        name: files.digest_of(path)
        for name, path in named.items()
        if name not in (CHECKSUMS, MODEL_CARD)
    }
