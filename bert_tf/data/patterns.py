"""Names of input files: paths and globs -> the files, each of them once."""

import os
from collections.abc import Iterable, Sequence

from bert_tf.errors import InputError
from bert_tf.files import gfile, is_file, is_remote, path_errors


def expand_patterns(patterns: str | Sequence[str]) -> list[str]:
    """Paths and globs, comma-separated or a list -> the files.

    Raises:
      InputError: one matches nothing, or a file is given twice.
    """
    if isinstance(patterns, str):  # a name may have a comma in it, or a bracket
        patterns = [patterns] if is_file(patterns) else patterns.split(",")
    paths = []
    for pattern in patterns:
        if is_file(pattern):
            matches = [pattern]
        else:
            matches = sorted(gfile().glob(pattern)) if pattern else []
        if not matches:
            raise InputError(
                f"{pattern!r}, which matches no file",
                "paths or globs of existing files, separated by commas",
                "check the path, and that the step that makes the file has been run",
            )
        paths.extend(matches)
    _refuse_repeated(paths)
    return paths


def _refuse_repeated(paths: Iterable[str]) -> None:
    """Local files are compared by device and inode, remote ones by their paths."""
    found: dict[str | tuple[int, int], str] = {}
    for path in paths:
        file: str | tuple[int, int] = path
        if not is_remote(path):
            with path_errors(path):
                status = os.stat(path)
            file = status.st_dev, status.st_ino
        if file in found:
            same = f": {found[file]} is the same file" if found[file] != path else ""
            raise InputError(
                f"{path}, given twice{same}",
                "each file once",
                "leave out one of the paths or patterns; to read a file more than once, copy it",
            )
        found[file] = path
