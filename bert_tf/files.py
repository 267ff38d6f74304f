"""Texts and JSON in; files out that have their names only when they are whole. Local or remote."""

import collections
import contextlib
import errno
import glob
import hashlib
import itertools
import json
import math
import os
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from bert_tf.errors import InputError, first_line, is_system_error, remedy_of
from bert_tf.runtime import NOT_SUPPORTED, load_tensorflow, take_lock
from bert_tf.terminal.messages import scores_table

EVAL_RESULTS = "eval_results.txt"
BEST = "best"  # in the folder of a run, the folder of its best checkpoint
READ_BYTES = 1 << 20
LONGEST_LINE = 16 << 20  # bytes; a long novel has up to 6 MB
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON has it, UTF-8 has not
writes_here = True  # whether this process writes files; of several only the chief (`cluster.join`)


def gfile():
    """`tf.io.gfile`: local and remote files. TensorFlow takes seconds to load, so not before."""
    load_tensorflow()
    return sys.modules["tensorflow"].io.gfile


# ---------------------------------------------------------------------------- in


def is_remote(path: str) -> bool:
    """Whether a path is on a remote file system such as gs://."""
    return "://" in path


def is_file(path: str) -> bool:
    """Whether there is such a file (not a folder), local or remote."""
    return bool(path) and gfile().exists(path) and not gfile().isdir(path)


def check_regular(path: str) -> None:
    """Raises `InputError` for a pipe, socket or device: reading it might never end."""
    if not is_remote(path) and _is_special(path):
        received = f"{path}, which is a pipe, a socket or a device"
        raise InputError(received, "a regular file", "save what it gives to a file, and name that")


def _is_special(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


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
      remedy: what to do where it is something else.

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
        raise InputError(
            received=f"{path}, which is not JSON as expected ({says})",
            expected=expected,
            remedy=remedy,
        ) from None
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
    """A line of a file in UTF-8 as text; raises `InputError` with its place if it is none."""
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
    """Raises `InputError` if a file begins as gzip's do."""
    if content.startswith(b"\x1f\x8b"):
        raise InputError(
            f"{name}, which is compressed with gzip",
            "an uncompressed file",
            "uncompress it with gunzip, and name what that makes",
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
    check_regular(path)
    found = hashlib.sha256() if sha256 else hashlib.blake2b(digest_size=16)
    for block in _blocks(path):
        found.update(block)
    return found.hexdigest()


def _blocks(path: str) -> Iterator[bytes]:
    """The bytes of a file, some at a time."""
    with path_errors(path):
        if gfile().isdir(path):  # reads as an empty file
            raise OSError(errno.EISDIR, "it is a folder")
        with gfile().GFile(path, "rb") as file:
            while block := file.read(READ_BYTES):
                yield block


# ---------------------------------------------------------------------------- out


def hidden_sibling(path: str, ending: str) -> str:
    """A name in the same folder that no pattern for the file itself matches.

    >>> hidden_sibling("data/train.tfrecord", "incomplete")
    'data/.train.tfrecord.incomplete'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{ending}")


@contextlib.contextmanager
def locked(path: str, *, folder: bool = False, parents: bool = False) -> Iterator[bool]:
    """Keeps other processes from writing an output; gives whether there is a lock.

    The lock is a hidden file beside the output, or in the folder, which is made if need be. It
    ends with its process, however that ends. The thread that holds it may take it again. Remote
    outputs, devices and streams have none; of several processes of a run only the chief takes it.

    Args:
      path: what this process writes.
      folder: whether that is the folder of a run rather than a file or a folder yet to appear.
      parents: whether the folder that it is to appear in is made if need be.

    Raises:
      InputError: another process is writing it, or nothing can be written there.
    """
    if is_remote(path) or not writes_here or _is_stream(path):
        yield False
        return
    home = path if folder else os.path.dirname(path.rstrip("/")) or "."
    with contextlib.ExitStack() as at_end:
        with path_errors(path, "written"):
            if (folder or parents) and not os.path.isdir(home):
                os.makedirs(home, exist_ok=True)
                at_end.callback(_remove_if_empty, home)
            name = f"{path}/.lock" if folder else hidden_sibling(path.rstrip("/"), "lock")
            name, thread = os.path.abspath(name), threading.get_ident()
            is_ours = _locked.get(name) == thread
            lock = None if is_ours else take_lock(name, path)
        if lock is not None:
            _locked[name] = thread
        try:
            yield is_ours or lock is not None
        finally:
            if lock is not None:
                del _locked[name]
                with contextlib.suppress(OSError):  # the folder may be gone
                    os.unlink(name)  # before the lock ends, so that it is nobody else's
                os.close(lock)


def _remove_if_empty(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(folder)


_locked: dict[str, int] = {}  # the lock files of this process, and the threads that took them


def synced(path: str) -> None:
    """Returns when a local file, or the names in a local folder, are on the disk."""
    if is_remote(path):
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
    finally:
        os.close(opened)


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[str]:
    """Gives a temporary name to write a file under; at the end it gets its own, or is removed.

    It is on the disk before it has its name. Of several processes only the chief's file is kept.
    Devices, pipes and open streams are written as they are.

    Raises:
      InputError: no file can be made there, or another process is making it; seen at once, not
        after hours of work.
    """
    if not writes_here:
        with tempfile.TemporaryDirectory() as folder:
            yield os.path.join(folder, os.path.basename(path))
        return
    if _is_stream(path):
        yield path
        return
    with locked(path) as is_locked:
        ending = f"incomplete-{socket.gethostname()[:32]}-{os.getpid()}-{next(_file_numbers)}"
        temporary = hidden_sibling(path, ending)
        with path_errors(path, "written"):
            if gfile().isdir(path):
                raise OSError(errno.EISDIR, "it is a folder")
            pattern = f"{glob.escape(hidden_sibling(path, 'incomplete'))}*"
            for left in {*glob.glob(pattern)} - _written if is_locked else ():
                os.unlink(left)  # by a process that was killed
        _written.add(temporary)
        try:
            with path_errors(path, "written"), gfile().GFile(temporary, "w") as file:
                file.write("")  # only this makes the file
            yield temporary
            with path_errors(path, "written"):
                synced(temporary)
                gfile().rename(temporary, path, overwrite=True)
                synced(os.path.dirname(path) or ".")
        except BaseException:
            _remove_quietly(temporary)
            raise
        finally:
            _written.remove(temporary)


_file_numbers = itertools.count()
_written: set[str] = set()  # the temporary files that this process is writing


def _is_stream(path: str) -> bool:
    names = ("/dev/std", "/dev/fd/", "/proc/")
    return path.startswith(names) or _is_special(path)


def _remove_quietly(path: str) -> None:
    try:
        if gfile().exists(path):
            gfile().remove(path)
    except Exception as error:  # what failed before counts
        if not is_system_error(error):
            raise


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
    lines = [f"{key} = {results[key]}" for key in sorted(results)]
    logging.info("%s:\n%s", path, "\n".join(scores_table(results)))
    write_text(path, "".join(f"{line}\n" for line in lines))
