"""Locks: hidden files that name the process that is writing an output.

Every local temporary name contains the token of a lock. A killed process leaves its lock file with
the token, so the next holder removes the temporary files of that process and no others.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from bert_tf.errors import InputError
from bert_tf.runtime import command_line
from bert_tf.terminal.progress import duration

NOT_SUPPORTED = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # by a file system
INCOMPLETE = ".incomplete"  # the end of a temporary name
IN_FOLDER = ".lock"  # the name of a folder's lock, in it; that of a file stands beside it
_KEYS = {"command", "process", "host", "since"}  # of a lock file, besides its token


class Lock:
    """A lock that this process holds.

    Attributes:
      thread: the one that took it.
      token: random; in the names of all temporary files and folders that are made under it.
      made: those of them that still exist.
    """

    def __init__(self, opened: int, name: str, output: str):
        """Takes over an open and locked file; `output` is named in messages."""
        self._opened, self._name, self._output = opened, name, output
        self.thread, self.token = threading.get_ident(), secrets.token_hex(8)
        self.made: set[str] = set()

    def check(self) -> None:
        """Raises `InputError` if the lock file, or its folder, was removed or replaced."""
        if not _is_same_file(self._opened, self._name):
            raise InputError(
                f"{self._output}, which was removed or replaced while this process was writing it: "
                f"{self._name} is no longer its lock",
                "an output that nothing else moves or removes before it is complete",
                "give the command again, with an output that stays in place",
            )

    def release(self) -> None:
        """Removes what is left under the lock, then the lock file, and ends the lock."""
        with contextlib.suppress(OSError):  # what cannot be removed, the next holder removes
            for path in sorted(self.made):
                remove(path)
            if _is_same_file(self._opened, self._name):
                os.unlink(self._name)  # before the lock ends, so that it is nobody else's
        os.close(self._opened)


_held: dict[str, Lock] = {}  # the locks of this process, by their files


@contextlib.contextmanager
def held(name: str, output: str) -> Iterator[Lock | None]:
    """Holds the lock `name` as `take_lock` does; the thread that holds it may take it again."""
    lock = _held.get(name)
    if lock and lock.thread == threading.get_ident():
        yield lock
    elif lock := take_lock(name, output):
        _held[name] = lock
        try:
            yield lock
        finally:
            del _held[name]
            lock.release()
    else:
        yield None


def is_held(name: str) -> bool:
    """Whether this process holds the lock file `name`."""
    return name in _held


def lock_around(path: str) -> Lock | None:
    """The lock that this process holds on a folder around a path, the innermost one."""
    is_local = _held and "://" not in path
    folders = pathlib.Path(os.path.abspath(path)).parents if is_local else ()
    names = (str(folder / IN_FOLDER) for folder in folders)
    return next((_held[name] for name in names if name in _held), None)


def check_lock(path: str) -> None:
    """Raises `InputError` if a folder around a path is no longer the one that was locked."""
    if lock := lock_around(path):
        lock.check()


def take_lock(name: str, output: str) -> Lock | None:
    """Locks the file `name` while this process lives, on behalf of an output.

    Returns:
      The lock; None where there are no locks.

    Raises:
      InputError: another process, which is named, holds the lock; or the file is no lock of ours.
      OSError: the file cannot be made.
    """
    while True:
        if os.path.islink(name) or is_special(name):
            raise _refused(name, "a link, a pipe, a socket or a device")
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with contextlib.ExitStack() as on_error:
            on_error.callback(os.close, opened)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _taken(output, os.pread(opened, 1 << 16, 0)) from None
            except OSError as error:
                if error.errno not in NOT_SUPPORTED:
                    raise
                if not os.fstat(opened).st_size:
                    os.unlink(name)
                return None
            if not _is_same_file(opened, name):
                continue  # its last holder has removed it meanwhile
            content = os.pread(opened, 1 << 16, 0)
            holder = _holder(content)
            if not holder and not _is_begun(content):
                raise _refused(name, "a file that this program did not write")
            _remove_left_over(name, holder.get("token"))
            on_error.callback(os.unlink, name)
            lock = Lock(opened, name, output)
            _write(opened, lock.token)
            on_error.pop_all()
            return lock


def _write(opened: int, token: str) -> None:
    holder = {"command": command_line()[:300], "process": os.getpid()}
    holder |= {"host": socket.gethostname(), "since": time.time(), "token": token}
    text = json.dumps(holder).encode()
    os.ftruncate(opened, 0)
    written = 0
    while written < len(text):
        written += os.pwrite(opened, text[written:], written)


def _is_same_file(opened: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(opened), os.lstat(name))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remove_left_over(name: str, token: Any) -> None:
    """Removes what the last holder of the lock `name` made under its token."""
    if not re.fullmatch("[0-9a-f]{16}", str(token)):
        return
    home, own_name = os.path.split(name)
    for folder, folders, names in os.walk(home):
        for found in (*folders, *names):
            path = os.path.join(folder, found)
            if f".{token}-" in found and found.endswith(INCOMPLETE) and not os.path.islink(path):
                remove(path)
        if own_name != IN_FOLDER:  # the lock of a file: everything is beside it
            break


def remove(path: str | os.PathLike) -> None:
    """Removes a file or a link, or a folder with all that is in it."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _is_begun(content: bytes) -> bool:
    """Whether a lock file is one that a kill or a power cut left before it was whole."""
    return not content.strip(b"\0") or content.startswith(b'{"command": ')


def _holder(content: bytes) -> dict[str, Any]:
    """The holder that a lock file names; empty if it is no lock of ours."""
    with contextlib.suppress(ValueError, RecursionError):
        holder = json.loads(content)
        if isinstance(holder, dict) and holder.keys() >= _KEYS:
            return holder
    return {}


def _refused(name: str, what: str) -> InputError:
    return InputError(
        f"{name}, {what}, where this program keeps its lock",
        "no file there, or the lock of an earlier run",
        "move it away, or choose another output",
    )


def _taken(output: str, content: bytes) -> InputError:
    """The error that names the holder of a lock, from the content of the lock file."""
    try:
        holder = _holder(content)
        since = float(holder["since"])
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
        ago = duration(max(0, time.time() - since))
        process = f"process {holder['process']} on {holder['host']}"
        who = f"{process} ({str(holder['command'])!r}, since {began}, {ago} ago)"
    except (ValueError, TypeError, KeyError, OverflowError, OSError):  # not yet written
        who = process = "another process"
    return InputError(
        f"{output}, which {who} is writing",
        "one process for one output",
        f"wait until {process} has ended, or end it; or choose another output",
    )


# ---------------------------------------------------------------------------- names of outputs


def hidden_sibling(path: str, ending: str) -> str:
    """A name in the same folder that no pattern for the file itself matches.

    >>> hidden_sibling("data/train.tfrecord", "incomplete")
    'data/.train.tfrecord.incomplete'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{ending}")


def is_special(path: str) -> bool:
    """Whether a path is a pipe, a socket or a device."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def is_stream(path: str) -> bool:
    """Whether a path is written directly: an open stream, a pipe, a socket or a device."""
    names = ("/dev/std", "/dev/fd/", "/proc/")
    return path.startswith(names) or is_special(path)


def refuse_link(path: str) -> None:
    """Raises `InputError` for a link: writing would change its target, or replace the link."""
    if os.path.islink(path := path.rstrip("/")) and not is_special(path):
        raise InputError(
            f"{path}, a link to {os.readlink(path)}",
            "an output that is not a link",
            "remove the link, or choose another output",
        )


def refuse_inner_link(path: str) -> None:
    """Raises `InputError` for a link within a folder that this process has locked."""
    if lock_around(path):
        refuse_link(path)


def synced(path: str) -> None:
    """Returns when a local file, or the names in a local folder, are on the disk."""
    if "://" in path:
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
    finally:
        os.close(opened)
