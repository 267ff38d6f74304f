"""What a process leaves that is killed while it writes an output."""

import pathlib

TOKEN = "0123456789abcdef"


def leave_lock(path: pathlib.Path) -> None:
    """The lock file of such a process."""
    path.write_text(f"bert_tf {TOKEN} process 1 on y ('x', since 2026-01-01 00:00:00)\n")


def left_name(output: str, *, token: str = TOKEN) -> str:
    """A temporary name of such a process for an output."""
    return f".{output}.{token}-89abcdef.incomplete"
