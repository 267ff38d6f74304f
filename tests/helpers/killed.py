"""The folder that a process leaves behind when it is killed while it writes an output."""

import pathlib

from bert_tf.files import INCOMPLETE
from bert_tf.locks import LOCK


def left_name(output: str) -> str:
    """The name of the hidden folder, beside an output, in which the output is made."""
    return f".{output}.{INCOMPLETE}"


def leave(output: pathlib.Path, text: str | None = "begun") -> pathlib.Path:
    """Makes that folder, with its lock and the output; returns it.

    Args:
      output: the path of the finished output.
      text: the text of the unfinished output; None: the output is a folder.
    """
    folder = output.with_name(left_name(output.name))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOCK).touch()
    if text is None:
        (folder / output.name).mkdir(exist_ok=True)
    else:
        (folder / output.name).write_text(text)
    return folder
