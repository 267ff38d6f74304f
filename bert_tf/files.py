"""Reads texts and JSON; writes files that get their final names only when they are complete."""

import collections
import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import math
import os
import pathlib
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from bert_tf import runtime
from bert_tf.errors import InputError, first_line, is_system_error, remedy_of
from bert_tf.terminal import scores_table

EVAL_RESULTS = "eval_results.txt"
BEST = "best"  # in the folder of a run, the folder of its best checkpoint
READ_BYTES = 1 << 20
LONGEST_LINE = 16 << 20  # bytes; a long novel has up to 6 MB
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can hold it, UTF-8 cannot


def gfile():
    """`tf.io.gfile`: local and remote files. TensorFlow takes seconds to load, so not before."""
    return runtime.load_tensorflow().io.gfile


# ---------------------------------------------------------------------------- in


def is_remote(path: str) -> bool:
    """Whether a path is on a remote file system such as gs://."""
    return "://" in path


def is_file(path: str) -> bool:
    """Whether a file (not a folder) exists, local or remote."""
    return bool(path) and gfile().exists(path) and not gfile().isdir(path)


def check_regular(path: str) -> None:
    """Raises `InputError` for a pipe, socket or device: reading it might never end."""
    if not is_remote(path) and is_special(path):
        received = f"{path}, which is a pipe, a socket or a device"
        raise InputError(received, "a regular file", "save what it gives to a file, and name that")


@contextlib.contextmanager
def path_errors(path: str, doing: str = "read") -> Iterator[None]:
    """Turns the system's errors while a path is read (or written) into `InputError`."""
    try:
        yield
    except Exception as error:
        if not is_system_error(error):
            raise
        received = f"{path}, which cannot be {doing} ({first_line(error)})"
        raise InputError(received, *remedy_of(error)) from None


def read_json(
    path: str,
    *,
    expected: str = "a JSON object",
    remedy: str = "check the path; if it is right, get the file again",
) -> dict[str, Any]:
    """The object in a JSON file, in UTF-8 with or without byte order mark.

    Args:
      path: local or remote.
      expected: what the file should be, for messages.
      remedy: what to do if it is not, for messages.

    Raises:
      InputError: there is no such file, it cannot be read, or is no JSON object.
    """
    with path_errors(path):
        if not is_file(path):
            raise InputError(f"{path}, which is not a file", expected, remedy)
        check_regular(path)
        with gfile().GFile(path, "rb") as file:
            raw = file.read()
    try:
        values = json.loads(
            raw, object_pairs_hook=each_key_once, parse_float=_finite, parse_constant=_finite
        )
        if not isinstance(values, dict):
            raise ValueError("the outermost value is not an object")
    except (ValueError, RecursionError) as error:  # of JSON, or of UTF-8
        says = "nested too deep" if isinstance(error, RecursionError) else error
        received = f"{path}, which is not JSON as expected ({says})"
        raise InputError(received, expected, remedy) from None
    return values


def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, for `object_pairs_hook`; raises `ValueError` if a key is given twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        (twice, _), *_ = collections.Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:80]!r} is given twice in one object")
    return values


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:80]} is not a finite number")
    return number


def read_lines(path: str, *, limit: int = LONGEST_LINE) -> Iterator[bytes]:
    """The lines of a file with their ends, one at a time; only the line feed ends a line.

    Read in blocks: `GFile.readline` leaves out every carriage return, and takes an error of the
    file system for the end of the file.

    Raises:
      InputError: it cannot be read, or a line is longer than `limit` bytes.
    """
    return lines_of(_blocks(path), path, limit=limit)


def read_text_lines(path: str) -> Iterator[str]:
    """The lines of a file in UTF-8, as `read_lines`.

    Raises:
      InputError: likewise, or a line is not UTF-8.
    """
    return (decoded(line, path, number) for number, line in enumerate(read_lines(path), 1))


def decoded(line: bytes, name: str, number: int) -> str:
    """Decodes a line of a file; raises `InputError` with its place if it is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if number == 1:
            refuse_gzip(name, line)
        raise InputError(
            f"{name}, line {number}: bytes that are not UTF-8 "
            f"({line[error.start : error.start + 8]!r})",
            "text in UTF-8",
            "give another file, or convert this one: iconv -f ISO-8859-1 -t UTF-8 IN > OUT",
        ) from None


def refuse_gzip(name: str, content: bytes) -> None:
    """Raises `InputError` if a file begins with gzip's mark."""
    if content.startswith(b"\x1f\x8b"):
        raise InputError(
            f"{name}, which is compressed with gzip",
            "an uncompressed file",
            "uncompress it with gunzip, and name the result",
        )


def lines_of(blocks: Iterable[bytes], name: str, *, limit: int = LONGEST_LINE) -> Iterator[bytes]:
    """The lines in a stream of blocks, with their ends; no more than a line is held in memory.

    Raises:
      InputError: a line is longer than `limit` bytes; `name` says where.
    """
    begun: list[bytes] = []  # parts of a line whose end is yet to come
    number, begun_bytes = 1, 0
    for block in blocks:
        *complete, rest = block.split(b"\n")
        for line in complete:
            _check_length(begun_bytes + len(line), limit, name, number)
            yield b"".join([*begun, line, b"\n"])
            begun.clear()
            number, begun_bytes = number + 1, 0
        begun.append(rest)
        begun_bytes += len(rest)
        _check_length(begun_bytes, limit, name, number)
    if begun_bytes:
        yield b"".join(begun)


def _check_length(length: int, limit: int, name: str, number: int) -> None:
    if length > limit:
        raise InputError(
            f"{name}, line {number}, which is longer than {limit} bytes",
            "lines of text, each ended by a line feed",
            "split the line, or check that the file is the right one",
        )


def digest_of(path: str, *, sha256: bool = False) -> str:
    """A hash of a file's bytes, of 128 bits or SHA-256.

    Raises:
      InputError: it cannot be read.
    """
    found = hashlib.sha256() if sha256 else hashlib.blake2b(digest_size=16)
    for block in _blocks(path):
        found.update(block)
    return found.hexdigest()


def _blocks(path: str) -> Iterator[bytes]:
    """The bytes of a file, some at a time."""
    check_regular(path)
    with path_errors(path):
        if gfile().isdir(path):  # reads as an empty file
            raise OSError(errno.EISDIR, "it is a folder")
        with gfile().GFile(path, "rb") as file:
            while block := file.read(READ_BYTES):
                yield block


# ---------------------------------------------------------------------------- locks

# Locks: a hidden file beside an output, or in the folder of a run, that names its writer.
#
# The file holds a random token that is also in every temporary name made under the lock, so that
# the next holder removes what a killed process has left, and nothing else.

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
            holder += f" ({runtime.command_line()[:300]!r}, since {since})"
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


# ---------------------------------------------------------------------------- out


@contextlib.contextmanager
def locked(path: str, *, folder: bool = False, parents: bool = False) -> Iterator[Lock | None]:
    """Keeps other processes from writing an output; gives the lock.

    The lock is a hidden file beside the output, or in the folder, which is made if need be. It
    ends with its process, however that ends. The process that holds it may take it again. Remote
    outputs, devices and streams have none; of several processes of a run only the chief takes it.

    Args:
      path: what this process writes.
      folder: whether that is the folder of a run rather than a file or a folder yet to appear.
      parents: whether the folder that it is to appear in is made if need be.

    Raises:
      InputError: another process is writing it, or nothing can be written there.
    """
    if is_remote(path) or not runtime.is_chief() or is_stream(path):
        yield None
        return
    home = path if folder else os.path.dirname(path.rstrip("/")) or "."
    with contextlib.ExitStack() as at_end:
        with path_errors(path, "written"):
            if not folder:
                refuse_link(path)
            if (folder or parents) and not os.path.isdir(home):
                os.makedirs(home, exist_ok=True)
                at_end.callback(_remove_if_empty, home)
            own = hidden_sibling(path.rstrip("/"), "lock")
            name = f"{path}/{IN_FOLDER}" if folder else own
            lock = at_end.enter_context(held(os.path.abspath(name), path))
        yield lock


def _remove_if_empty(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def make_folder(path: str) -> None:
    """Makes the folder of a run, or one in it.

    Raises:
      InputError: it cannot be made or written, or is a link in the folder of a run.
    """
    with path_errors(path, "written"):
        refuse_inner_link(path)
        gfile().makedirs(path)
        trial = gfile().join(path, "trial")
        with temporary(trial) if is_remote(path) else tempfile.TemporaryFile(dir=path):
            pass  # the local one has no name


@contextlib.contextmanager
def temporary(path: str, *, folder: bool = False) -> Iterator[str]:
    """Gives a new file or folder beside an output, hidden and empty; removes it at the end.

    If this process is killed, the next holder of the lock removes it. The lock is that of a folder
    around the output, or the output's own.

    Raises:
      InputError: another process is writing the output, or its folder has been replaced.
    """
    around = lock_around(path)
    with contextlib.nullcontext(around) if around else locked(path) as lock:
        check_lock(path)
        refuse_link(path)
        # Without a lock one name, so that what a killed process left is replaced.
        own = f"{lock.token}-{secrets.token_hex(4)}" if lock else "without-lock"
        name = hidden_sibling(path, f"{own}{INCOMPLETE}")
        if not lock:
            _remove(name)
        try:
            if is_remote(path) and not folder:
                with gfile().GFile(name, "w") as file:
                    file.write("")  # only this makes the file
            elif folder:
                gfile().makedirs(name) if is_remote(path) else os.mkdir(name)
            else:  # nobody may read it who may not read the file that it replaces
                mode = 0o600 if os.path.exists(path) else 0o666
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
            yield name
        finally:
            try:
                _remove(name)
            except Exception:  # what failed before counts; the next holder removes the rest
                if lock:
                    lock.is_clean = False


def _remove(path: str) -> None:
    if not is_remote(path):
        remove(path)
    elif gfile().exists(path):
        gfile().rmtree(path) if gfile().isdir(path) else gfile().remove(path)


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[str]:
    """Gives a temporary name to write a file under; at the end it gets its own, or is removed.

    It is on the disk before it has its name, and has the permissions of the file that it replaces.
    Of several processes only the chief's file is kept. Devices, pipes and open streams are written
    as they are.

    Raises:
      InputError: no file can be made there, or another process is making it; seen at once, not
        after hours of work.
    """
    if not runtime.is_chief():
        with tempfile.TemporaryDirectory() as folder:
            yield os.path.join(folder, os.path.basename(path))
        return
    if is_stream(path):
        yield path
        return
    with contextlib.ExitStack() as stack:
        with path_errors(path, "written"):
            if gfile().isdir(path):
                raise OSError(errno.EISDIR, "it is a folder")
            name = stack.enter_context(temporary(path))
        yield name
        with path_errors(path, "written"):
            if not is_remote(path) and os.path.exists(path):
                os.chmod(name, os.stat(path).st_mode & 0o777)
            synced(name)
            check_lock(path)
            gfile().rename(name, path, overwrite=True)
            synced(os.path.dirname(path) or ".")


def write_text(path: str, text: str) -> None:
    """Writes a text file that appears whole or not at all.

    Raises:
      InputError: it cannot be written.
    """
    with (
        path_errors(path, "written"),
        whole_file(path) as temporary,
        gfile().GFile(temporary, "w") as file,
    ):
        file.write(text)


def write_eval_results(
    output_dir: str, results: Mapping[str, float], *, name: str = EVAL_RESULTS
) -> None:
    """eval_results.txt, lines `key = value` as the original writes it; a table of it is logged."""
    path = gfile().join(output_dir, name)
    logging.info("%s:\n%s", path, "\n".join(scores_table(results)))
    write_text(path, "".join(f"{key} = {results[key]}\n" for key in sorted(results)))
