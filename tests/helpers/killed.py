"""What a process leaves that is killed while it writes an output."""

import json
import pathlib

TOKEN = "0123456789abcdef"


def leave_lock(path: pathlib.Path) -> None:
    """The lock file of such a process."""
    holder = {"command": "x", "process": 1, "host": "y", "since": 1e9, "token": TOKEN}
    path.write_text(json.dumps(holder))


def left_name(output: str, *, token: str = TOKEN) -> str:
    """A temporary name of such a process for an output."""
    return f".{output}.{token}-89abcdef.incomplete"
