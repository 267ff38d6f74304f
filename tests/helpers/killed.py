"""What a process leaves that is killed while it writes an output."""

from bert_tf.files import INCOMPLETE


def left_name(output: str) -> str:
    """The temporary name for an output; the empty file of its lock stays, too."""
    return f".{output}.{INCOMPLETE}"
