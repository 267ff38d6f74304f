"""The formats of files that commands read and write, by their endings."""

import os
from collections.abc import Sequence

from bert_tf.errors import InputError

OTHER_FORMATS = ("csv", "npy", "npz", "parquet", "tfrecord", "tsv", "xlsx")  # than JSON lines


def format_of(path: str, formats: Sequence[str]) -> str:
    """The format of a file: by its ending, else the first."""
    ending = os.path.splitext(path)[1][1:].lower()
    return ending if ending in formats else formats[0]


def written_format(path: str, formats: Sequence[str]) -> str:
    """The format of an output; refuses an ending of another one."""
    ending = os.path.splitext(path)[1][1:].lower()
    if ending in OTHER_FORMATS and ending not in formats:
        expected = f"a name that ends in {' or '.join(f'.{name}' for name in formats)}"
        raise InputError(f"--output_file={path}", expected, "correct --output_file")
    return format_of(path, formats)
