"""The formats of files that commands write, by their endings."""

import os
from collections.abc import Sequence

from bert_tf.errors import InputError


def written_format(path: str, formats: Sequence[str]) -> str:
    """The format of an output, by its ending; without one, or for .json, the first format.

    Args:
      path: the output.
      formats: the endings; the first one stands for JSON lines.

    Raises:
      InputError: the path has another ending, for which users would expect another format.
    """
    ending = os.path.splitext(path)[1][1:].lower()
    if ending in formats:
        return ending
    if ending not in ("", "json"):
        endings = " or ".join(f".{name}" for name in formats)
        expected = f"a name that ends in {endings}"
        raise InputError(f"--output_file={path}", expected, "correct --output_file")
    return formats[0]
