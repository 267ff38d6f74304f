"""Locks: a hidden file beside an output, or in the folder of a run, that names its writer.

The file holds a random token that is also in every temporary name made under the lock. So the next
holder removes what a killed process has left, and nothing else.
"""

import contextlib
import dataclasses
import errno
import fcntl
import os
import pathlib
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator

from bert_tf.errors import InputError
from bert_tf.runtime import command_line

NOT_SUPPORTED = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # by a file system
INCOMPLETE = ".incomplete"  # the end of a temporary name
IN_FOLDER = ".lock"  # the name of a folder's lock, in it; that of a file stands beside it
_MARK = "bert_tf "  # with which our lock files begin
_CONTENT = re.compile(f"{_MARK}([0-9a-f]{{16}}) (.*)\n")  # token, holder


@dataclasses.dataclass
class Lock:
    """A lock that this process holds.

    Attributes:
      name: the lock file, an absolute path.
      output: what it protects, for messages.
      opened: the descriptor of the lock file.
      token: random; in the names of all temporary files and folders that are made under it.
      is_clean: whether all of those were removed again.
    """

    name: str
    output: str
    opened: int
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    is_clean: bool = True

    def check(self) -> None:
        """Raises `InputError` if the lock file, or its folder, was removed or replaced."""
        if not _is_same_file(self.opened, self.name):
            raise InputError(
                f"{self.output}, which was removed or replaced while this process was writing it: "
                f"{self.name} is no longer its lock",
                "an output that nothing else moves or removes before it is complete",
                "give the command again, with an output that stays in place",
            )

    def release(self) -> None:
        """Removes the lock file, unless the next holder has to clean up; ends the lock."""
        if self.is_clean and _is_same_file(self.opened, self.name):
            with contextlib.suppress(OSError):
                os.unlink(self.name)  # before the lock ends, so that it is nobody else's
        os.close(self.opened)


_held: dict[str, Lock] = {}  # the locks of this process, by their files


@contextlib.contextmanager
def held(name: str, output: str) -> Iterator[Lock | None]:
    """Holds the lock `name` as `take_lock` does; the process that holds it may take it again."""
    lock = _held.get(name) or take_lock(name, output)
    if lock is None or name in _held:
        yield lock
        return
    _held[name] = lock
    try:
        yield lock
    finally:
        del _held[name]
        lock.release()


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
      The lock; None where the file system has no locks.

    Raises:
      InputError: another process, which is named, holds the lock; or the file is no lock of ours.
      OSError: the file cannot be made, or is a link.
    """
    while True:
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with contextlib.ExitStack() as on_error:
            on_error.callback(os.close, opened)
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise _refused(name)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _taken(output, _read(opened)) from None
            except OSError as error:
                if error.errno not in NOT_SUPPORTED:
                    raise
                if not _read(opened):
                    os.unlink(name)
                return None
            if not _is_same_file(opened, name):
                continue  # its last holder has removed it meanwhile
            content = _read(opened)
            if not _MARK.startswith(content.strip("\0")[: len(_MARK)]):  # a kill may cut it off
                raise _refused(name)
            if before := _CONTENT.fullmatch(content):
                _remove_left_over(name, before[1])
            on_error.callback(os.unlink, name)
            lock = Lock(name, output, opened)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            holder += f" ({command_line()[:300]!r}, since {since})"
            os.ftruncate(opened, 0)
            os.pwrite(opened, f"{_MARK}{lock.token} {holder}\n".encode(), 0)
            on_error.pop_all()
            return lock


def _read(opened: int) -> str:
    return os.pread(opened, 1 << 12, 0).decode(errors="replace")


def _is_same_file(opened: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(opened), os.lstat(name))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remove_left_over(name: str, token: str) -> None:
    """Removes what the last holder of the lock `name` made under its token."""
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


def _refused(name: str) -> InputError:
    return InputError(
        f"{name}, which this program did not write, where it keeps its lock",
        "no file there, or the lock of an earlier run",
        "move it away, or choose another output",
    )


def _taken(output: str, content: str) -> InputError:
    """The error that names the holder of a lock, from the content of the lock file."""
    holder = _CONTENT.fullmatch(content)
    return InputError(
        f"{output}, which {holder[2] if holder else 'another process'} is writing",
        "one process for one output",
        "wait until that process has ended, or end it; or choose another output",
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
    return path.startswith(("/dev/std", "/dev/fd/", "/proc/")) or is_special(path)


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
