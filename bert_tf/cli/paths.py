"""The formats of files that commands read and write, by their endings."""

import os
from collections.abc import Sequence

from bert_tf.errors import InputError


def format_of(path: str, formats: Sequence[str]) -> str:
    """The format of a file: by its ending, else the first."""
    ending = _ending_of(path)
    return ending if ending in formats else formats[0]


def written_format(path: str, formats: Sequence[str]) -> str:
    """The format of an output: by its ending; without one, or as .json, the first: JSON lines.

    Raises:
      InputError: it has another ending, of which users would expect another format.
    """
    if _ending_of(path) not in ("", "json", *formats):
        endings = " or ".join(f".{name}" for name in formats)
        expected = f"a name that ends in {endings}"
        raise InputError(f"--output_file={path}", expected, "correct --output_file")
    return format_of(path, formats)


def _ending_of(path: str) -> str:
    return os.path.splitext(path)[1][1:].lower()
