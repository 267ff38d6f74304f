"""The lock of a folder: one process holds it, until it releases it or ends.

The lock is the kernel's, on an empty file in the folder: a process that is killed leaves the file,
and no lock.
"""

import contextlib
import errno
import fcntl
import os

from bert_tf.errors import InputError

LOCK = ".lock"  # the name of the file
# Errors of file systems that have no locks, or cannot write what they hold back.
NOT_SUPPORTED = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_held: dict[str, int] = {}  # the folders that this process has locked: descriptors of their files


def is_held(folder: str) -> bool:
    """Whether this process holds the lock of a folder, given as an absolute path."""
    return folder in _held


def acquire(folder: str, output: str) -> None:
    """Locks a folder, which is made unless it exists; its parent must exist.

    Args:
      folder: an absolute path.
      output: what this process wants to write, for messages.

    Raises:
      InputError: another process holds the lock.
      OSError: the folder or the file cannot be made.
    """
    file = f"{folder}/{LOCK}"
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:
            if os.path.islink(folder):  # it leads nowhere
                raise
            continue  # the last holder has just removed the folder
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            remedy = f"wait until it has ended (fuser {file} names it), or choose another output"
            received = f"{output}, which another process is writing"
            raise InputError(received, "one process for one output", remedy) from None
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                os.close(descriptor)
                raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(file)):
                _held[folder] = descriptor
                return
        os.close(descriptor)  # the last holder has just removed the file


def release(folder: str) -> None:
    """Ends a lock that this process holds, and removes its file."""
    descriptor = _held.pop(folder)
    with contextlib.suppress(OSError):
        if not os.fstat(descriptor).st_size:  # otherwise the file is the user's
            os.unlink(f"{folder}/{LOCK}")  # before the lock ends: then it may be another process's
    os.close(descriptor)
