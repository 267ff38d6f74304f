"""Reads texts and JSON; writes files that get their final names only when they are complete."""

import codecs
import contextlib
import errno
import fcntl
import glob
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from bert_tf import runtime
from bert_tf.errors import InputError, first_line, is_system_error, remedy_of

EVAL_RESULTS = "eval_results.txt"
BEST = "best"  # in the folder of a run, the folder of its best checkpoint
READ_BYTES = 1 << 20
LONGEST_LINE = 16 << 20  # bytes; a long novel has up to 6 MB
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can hold it, UTF-8 cannot
# What a clone without Git LFS has in the place of large files; and how files begin that are no
# text, with what they are and what to do. In a file of records the length of the first one comes
# there: a mark of two bytes might be that.
_POINTER = b"version https://git-lfs.github.com/spec/"
UTF_16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
_NO_TEXT = {
    b"\x1f\x8b\x08": ("compressed with gzip", "uncompress it with gunzip"),
    b"BZh9": ("compressed with bzip2", "uncompress it with bunzip2"),
    b"\xfd7zXZ": ("compressed with xz", "uncompress it with unxz"),
    b"PK\x03\x04": ("a zip archive, such as xlsx", "unpack it; save a spreadsheet as csv"),
    b"\x80\x02\x8a": ("a pickle, such as pytorch_model.bin", "name the file of text"),
    b"\x89HDF": ("an HDF5 file of weights", "name the file of text"),
    b"\xd0\xcf\x11\xe0": ("a document of old Office, such as xls", "save a spreadsheet as csv"),
    b"PAR1\x15": ("a Parquet file", "save its rows as jsonl"),
    b"%PDF-": ("a PDF", "save its text"),
}


_LOCAL = SimpleNamespace(GFile=open, glob=glob.glob, exists=os.path.exists, isdir=os.path.isdir)
_LOCAL.listdir = os.listdir
_LOCAL.rename = lambda before, after, **_: os.replace(before, after)


def gfile(path: str | None = None) -> Any:
    """`tf.io.gfile`; for a local path Python's own functions, which load no TensorFlow."""
    if path is None or is_remote(path):
        return runtime.load_tensorflow().io.gfile
    return _LOCAL


def is_remote(path: str) -> bool:
    """Whether a path is on a remote file system such as gs://."""
    return "://" in path


def own_path(path: str | os.PathLike) -> str:
    """A path without `~` and `~user` at its beginning, and without slashes at its end."""
    return re.sub("(?<=[^/:])/+$", "", os.path.expanduser(os.fspath(path)))


def refuse_pattern(path: str, name: str = "") -> None:
    """Refuses the path of a checkpoint or SavedModel that TensorFlow takes for a pattern.

    Args:
      path: of it.
      name: what gave it, for messages: "--output_dir=", say.

    Raises:
      InputError: it has square brackets or a backslash in it.
    """
    if re.search(r"\[.*\]|\\", path, re.DOTALL):
        expected = (
            "a path without square brackets and backslashes: TensorFlow takes it for a pattern"
        )
        raise InputError(f"{name}{path}", expected, "rename the folder, or choose another one")


def paths_in(folder: str, pattern: str) -> list[str]:
    """The paths in a folder, if it exists, in whose names a regular expression is found."""
    names = gfile(folder).listdir(folder) if gfile(folder).isdir(folder) else ()
    return sorted(os.path.join(folder, name) for name in names if re.search(pattern, name))


def is_file(path: str) -> bool:
    """Whether a file (not a folder) exists, local or remote."""
    return bool(path) and gfile(path).exists(path) and not gfile(path).isdir(path)


def output(path: str | os.PathLike, inputs: Iterable[str | os.PathLike | None]) -> str:
    """The path of a file to write, without `~`, which must not be one that is read.

    Args:
      path: of the file; a stream may be anything.
      inputs: the files that are read, no patterns; those that are None or empty are left out.

    Raises:
      InputError: it is an input, under whatever name. Remote paths are compared as texts.
    """
    (written,) = outputs([path], inputs)
    return written


def outputs(
    paths: Iterable[str | os.PathLike], inputs: Iterable[str | os.PathLike | None]
) -> list[str]:
    """As `output`, for several files, however many inputs there are."""
    written = [os.path.expanduser(os.fspath(path)) for path in paths]
    sources: dict[Any, str] = {}  # each by its path and, if it exists, by its file
    for source in map(own_path, filter(None, inputs)):
        sources[source] = sources[_identity(source)] = source
    for path in written:
        source = sources.get(own_path(path)) or sources.get(_identity(path))
        if source and not is_stream(path):
            received = f"{path} as the output, which is the input {source}"
            raise InputError(received, "an output that is no input", "choose another output")
    return written


def are_same(path: str, other: str) -> bool:
    """Whether two paths are of one file, under whatever names; remote paths must be equal."""
    return own_path(path) == own_path(other) or _identity(path) == _identity(other)


def _identity(path: str) -> tuple[int, int] | str:
    """What all names of a local file or folder have in common; of others the path."""
    if is_remote(path):
        return path
    try:
        found = os.stat(path)
    except OSError:  # it does not exist
        return path
    return found.st_dev, found.st_ino


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


# ---------------------------------------------------------------------------- in


def new_path(path: str | os.PathLike) -> str:
    """The `own_path` of a folder to make; raises `InputError` if there is something already."""
    path = own_path(path)
    with path_errors(path):
        if gfile(path).exists(path):
            remedy = "choose another path, or remove it"
            raise InputError(f"{path}, which already exists", "a new folder", remedy)
    return path


def check_regular(path: str) -> None:
    """Refuses what stands for a file.

    Raises:
      InputError: it is a pipe, socket or device, whose reading might never end, or a pointer of Git
        LFS.
    """
    if _is_special(path):
        received = f"{path}, which is a pipe, a socket or a device"
        raise InputError(received, "a regular file", "save what it gives to a file, and name that")
    with path_errors(path):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                if file.read(len(_POINTER)) == _POINTER:
                    received = f"{path}, a pointer of Git LFS without the content"
                    remedy = "git lfs pull in its folder, or download the file"
                    raise InputError(received, "the file itself", remedy)


def read_json(
    path: str, *, expected: str = "a JSON object", remedy: str = "check the path, or get it again"
) -> dict[str, Any]:
    """The object in a JSON file, a text as for `read_lines`.

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
    text = "".join(read_text_lines(path, limit=sys.maxsize))
    try:
        values = json.loads(
            text, object_pairs_hook=each_key_once, parse_float=_finite, parse_constant=_finite
        )
        if not isinstance(values, dict):
            raise ValueError("the outermost value is not an object")
    except (ValueError, RecursionError) as error:
        says = "nested too deep" if isinstance(error, RecursionError) else error
        received = f"{path}, which is not JSON as expected ({says})"
        raise InputError(received, expected, remedy) from None
    return values


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:80]} is not a finite number")
    return number


def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, for `object_pairs_hook`; raises `ValueError` if a key is given twice."""
    keys = [key for key, _ in pairs]
    if len({*keys}) < len(keys):
        raise ValueError(f"the key {max(keys, key=keys.count)[:80]!r} is given twice in one object")
    return dict(pairs)


def read_lines(path: str, *, limit: int = LONGEST_LINE, encoding: str = "") -> Iterator[bytes]:
    """The lines of a file with their ends, one at a time; only the line feed ends a line.

    In UTF-8, without byte order mark, as of `lines_of`. Read in blocks: `GFile.readline` leaves out
    every carriage return, and takes an error of the file system for the end of the file.

    Raises:
      InputError: it cannot be read, or a line is longer than `limit` bytes.
    """
    return lines_of(read_blocks(path), path, limit=limit, encoding=encoding)


def read_text_lines(path: str, **options: Any) -> Iterator[str]:
    """The lines of a text file, as `read_lines` with its `limit` and `encoding`.

    Raises:
      InputError: likewise, or a line is not UTF-8.
    """
    lines = enumerate(read_lines(path, **options), 1)
    return (decoded(line, path, number) for number, line in lines)


def decoded(line: bytes, name: str, number: int) -> str:
    """Decodes a line of a file; raises `InputError` with its place if it is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = line[error.start : error.start + 8]
        received = f"{name}, line {number}: bytes that are not UTF-8 ({wrong!r})"
        remedy = "convert it from its encoding, which may be WINDOWS-1252 (Western Europe) or GBK "
        remedy += "(China), and look at the result: iconv -f ENCODING -t UTF-8 IN > OUT; for your "
        remedy += "own tables there is --encoding"
        raise InputError(received, "text in UTF-8, or in UTF-16 with its mark", remedy) from None


def refuse_no_text(name: str, content: bytes) -> None:
    """Raises `InputError` if a file begins as one of another kind does: an archive, a document."""
    for mark, (what, remedy) in _NO_TEXT.items():
        if content.startswith(mark):
            received = f"{name}, a file of another kind ({what})"
            raise InputError(received, "an uncompressed, plain file", remedy)


def lines_of(
    blocks: Iterable[bytes], name: str, *, limit: int = LONGEST_LINE, encoding: str = ""
) -> Iterator[bytes]:
    """The lines in a stream of blocks, with their ends; no more than a line is held in memory.

    A byte order mark is taken off; text in UTF-16 with its mark, or in the `encoding` if there is
    one, becomes UTF-8.

    Raises:
      InputError: it is no text, or a line is longer than `limit` bytes; `name` says where.
    """
    begun: list[bytes] = []  # parts of a line whose end is yet to come
    number = 1
    for block in _in_utf8(blocks, name, encoding):
        *ended, rest = block.split(b"\n")
        for place, part in enumerate((*ended, rest)):
            begun.append(part)
            if sum(map(len, begun)) > limit:
                received = f"{name}, line {number}, which is longer than {limit} bytes"
                raise InputError(received, "lines of text", "split the line, or correct the path")
            if place < len(ended):
                yield b"".join([*begun, b"\n"])
                begun.clear()
                number += 1
    if any(begun):
        yield b"".join(begun)


def is_marked(path: str) -> bool:
    """Whether a text file begins with a byte order mark."""
    return next(read_blocks(path), b"").startswith((codecs.BOM_UTF8, *UTF_16))


def _in_utf8(blocks: Iterable[bytes], name: str, encoding: str) -> Iterator[bytes]:
    """The blocks of a text without byte order mark, in UTF-8."""
    blocks = iter(blocks)
    first = next(blocks, b"")
    refuse_no_text(name, first)
    blocks = itertools.chain([first.removeprefix(codecs.BOM_UTF8)], blocks)
    is_utf16 = first.startswith(UTF_16)
    kind = "utf-16" if is_utf16 else "" if first.startswith(codecs.BOM_UTF8) else encoding
    try:
        texts = _without_controls(codecs.iterdecode(blocks, kind), name, kind) if kind else ()
        yield from codecs.iterencode(texts, "utf-8") if kind else blocks
    except InputError:  # of what reads the blocks
        raise
    except LookupError as error:  # or a codec that is not for text
        expected = "the name of an encoding of text, such as cp1252"
        raise InputError(f"--encoding={kind} ({error})", expected, "correct it") from None
    except (ValueError, TypeError) as error:
        begins = "begins as" if is_utf16 else "is said to be"
        received = f"{name}, which {begins} {kind.upper()} and is not ({error})"
        raise InputError(received, "text in its encoding", "save the file as UTF-8") from None


def _without_controls(texts: Iterable[str], name: str, kind: str) -> Iterator[str]:
    """The parts of a text; control characters of 0x80 to 0x9f are letters of another encoding."""
    is_unicode = kind.lower().startswith("utf")
    for text in texts:
        if not is_unicode and (found := re.search("[\x80-\x9f]", text)):
            received = (
                f"{name}, which is said to be {kind.upper()}, with the character {found[0]!r}"
            )
            raise InputError(received, "text in its encoding", "give another one: cp1252, say")
        yield text


def digest_of(path: str) -> str:
    """The SHA-256 of a file's bytes; raises `InputError` if it cannot be read."""
    found = hashlib.sha256()
    for block in read_blocks(path):
        found.update(block)
    return found.hexdigest()


def read_blocks(path: str) -> Iterator[bytes]:
    """The bytes of a file, some at a time."""
    check_regular(path)
    with path_errors(path):
        if gfile(path).isdir(path):  # reads as an empty file
            raise OSError(errno.EISDIR, "it is a folder")
        with gfile(path).GFile(path, "rb") as file:
            while block := file.read(READ_BYTES):
                yield block


# ---------------------------------------------------------------------------- locks

# A process locks the folder of a run, or the hidden folder beside any other output in which that is
# made. The lock is that of an empty file there, which the kernel ends with the process. What a
# killed process has left in such a folder is removed by the next one that locks it.

INCOMPLETE = "bert_tf-incomplete"  # the end of the name of a hidden folder
LOCK = ".lock"  # the name of the file
_NOT_SUPPORTED = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # by a file system
_held: dict[str, int] = {}  # the folders that this process has locked, and descriptors of the files


@contextlib.contextmanager
def locked(path: str, *, folder: bool = False, parents: bool = False) -> Iterator[None]:
    """Keeps other processes from writing an output; the process that has it may take it again.

    There is no lock for remote outputs, devices and streams, on file systems without locks, and in
    processes of a run other than the chief.

    Args:
      path: what this process writes.
      folder: whether that is the folder of a run, which is made if need be.
      parents: whether the folder that it is to appear in is made if need be.

    Raises:
      InputError: another process is writing it, or nothing can be written there.
    """
    home = os.path.abspath(path if folder else hidden_sibling(path.rstrip("/"), INCOMPLETE))
    if is_remote(path) or not runtime.is_chief() or is_stream(path) or home in _held:
        yield
        return
    above = pathlib.Path(home).parents if folder or parents else ()
    new = [name for name in above if not name.is_dir()]  # the innermost first
    if not (folder and os.path.isdir(home)):
        new.insert(0, pathlib.Path(home))
    was_killed = folder and os.path.exists(f"{home}/{LOCK}")
    try:
        with path_errors(path, "written"):
            if new[1:]:
                new[1].mkdir(parents=True, exist_ok=True)
            if not folder and (os.path.islink(home) or os.path.isfile(home)):
                os.unlink(home)  # only a folder of that name is ours
            _held[home] = _lock(home, path)
            if not folder:
                _empty(home)
            elif was_killed:
                _remove_leftovers(home)
        yield
    finally:
        if home in _held:
            _unlock(home, empty=not folder)
        with contextlib.suppress(OSError):  # where something was written
            for name in new:
                name.rmdir()


def _lock(home: str, output: str) -> int:
    """Locks a folder, which is made in an existing one; returns the descriptor of its file."""
    name = f"{home}/{LOCK}"
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(home)
        try:
            opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:
            if os.path.islink(home):  # it leads nowhere
                raise
            continue  # its last holder has removed the folder meanwhile
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(opened)
            remedy = f"wait until it has ended (fuser {name} names it), or choose another output"
            received = f"{output}, which another process is writing"
            raise InputError(received, "one process for one output", remedy) from None
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                os.close(opened)
                raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(opened), os.stat(name)):
                return opened
        os.close(opened)  # its last holder has removed the file meanwhile


def _unlock(home: str, *, empty: bool) -> None:
    """Ends a lock; the file goes first, while it is nobody else's."""
    opened = _held.pop(home)
    with contextlib.suppress(OSError):
        if empty:
            _empty(home)
        if not os.fstat(opened).st_size:  # else it is a file of the user's
            os.unlink(f"{home}/{LOCK}")
    os.close(opened)


def _empty(home: str) -> None:
    """Removes all but the lock."""
    for path in pathlib.Path(home).iterdir():
        if path.name != LOCK:
            remove(path)


def _remove_leftovers(folder: str) -> None:
    """Removes what killed processes have left in the folder of a run; what others write stays."""
    for left in [*pathlib.Path(folder).rglob(f".*.{INCOMPLETE}")]:
        output = left.with_name(left.name[1:].removesuffix(f".{INCOMPLETE}"))
        with contextlib.suppress(InputError), locked(str(output)):
            pass


# ---------------------------------------------------------------------------- out


def hidden_sibling(path: str, ending: str) -> str:
    """A name in the same folder that no pattern for the file itself matches.

    >>> hidden_sibling("data/train.tfrecord", "incomplete")
    'data/.train.tfrecord.incomplete'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{ending}")


def _is_special(path: str) -> bool:
    """Whether a path is a pipe, a socket or a device."""
    try:
        mode = os.stat(path).st_mode  # once: another process may replace it meanwhile
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def is_stream(path: str) -> bool:
    """Whether a path is written directly: an open stream, a pipe, a socket or a device."""
    return path.startswith(("/dev/std", "/dev/fd/", "/proc/")) or _is_special(path)


def make_folder(path: str) -> None:
    """Makes the folder of a run, or one in it; raises `InputError` if it cannot be made."""
    with path_errors(path, "written"):
        gfile().makedirs(path)


@contextlib.contextmanager
def temporary(path: str, *, folder: bool = False) -> Iterator[str]:
    """Gives a new file or folder in a hidden folder beside an output; removes both at the end.

    They are replaced where a killed process has left them. Remote, it is hidden itself.

    Raises:
      InputError: another process is writing the output, or nothing can be written there.
    """
    name = hidden_sibling(path.rstrip("/"), INCOMPLETE)
    with locked(path):
        if not is_remote(path):
            name = os.path.join(name, os.path.basename(path.rstrip("/")))
        remove(name)
        try:
            if folder:
                (gfile().makedirs if is_remote(path) else os.mkdir)(name)
            elif is_remote(path):
                with gfile().GFile(name, "w") as file:
                    file.write("")  # only this makes a remote file
            else:  # nobody may read it who may not read the file that it replaces
                mode = 0o600 if os.path.exists(path) else 0o666
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
            yield name
        finally:
            with contextlib.suppress(Exception):  # what failed before counts
                remove(name)


def remove(path: str | os.PathLike) -> None:
    """Removes a file or a link, or a folder with all that is in it, if it exists."""
    if is_remote(str(path)):
        if gfile().exists(path):
            gfile().rmtree(path) if gfile().isdir(path) else gfile().remove(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        pathlib.Path(path).unlink(missing_ok=True)


def synced(path: str) -> None:
    """Returns when a local file, or the names in a local folder, are on the disk."""
    if not is_remote(path):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        finally:
            os.close(opened)


@contextlib.contextmanager
def published(
    path: str,
    prove: Callable[[str], Any] | None = None,
    *,
    folder: bool = False,
    last: str = "",
) -> Iterator[str]:
    """Gives a temporary name to write a file or a folder under; at the end it gets its own.

    Then it is on the disk and proved; after any error nothing is left. A file has the permissions
    of the one that it replaces. Of several processes only the chief's is kept. Devices, pipes and
    open streams are written as they are, without a proof.

    Args:
      path: of the file, or of a new folder in one that is made if need be.
      prove: is called with the temporary name once all is written; what it raises is raised.
      folder: whether it is a folder, which exists already where its name is given.
      last: remote, a folder is copied file by file: the file, of those in it, that makes it whole.

    Raises:
      InputError: nothing can be made there, the folder exists, or another process is making it;
        seen at once, not after hours of work.
    """
    if not runtime.is_chief() and folder:
        with tempfile.TemporaryDirectory() as name:
            yield name
        return
    if not runtime.is_chief() or (is_stream(path) and not folder):
        yield path if runtime.is_chief() else os.devnull
        return
    with contextlib.ExitStack() as stack:
        with path_errors(path, "written"):
            if folder:
                stack.enter_context(locked(path, parents=True))
                new_path(path)
            elif gfile(path).isdir(path):
                raise OSError(errno.EISDIR, "it is a folder")
            name = stack.enter_context(temporary(path, folder=folder))
        yield name
        with path_errors(path, "written"):
            _sync_all(name)
        if prove is not None:
            prove(name)
        with path_errors(path, "written"):
            if folder and is_remote(path):
                _copy_folder(name, path, last=last)
                return
            if os.path.exists(path):
                shutil.copymode(path, name)
            gfile(path).rename(name, path, overwrite=True)
            synced(os.path.dirname(path) or ".")


def _sync_all(path: str) -> None:
    """Returns when a local file or folder, with all that is in it, is on the disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            synced(os.path.join(folder, name))
        synced(folder)
    if not os.path.isdir(path):
        synced(path)


def _copy_folder(source: str, target: str, *, last: str) -> None:
    """Copies all files of a remote folder or none; remote systems rename it file by file."""
    join = gfile().join
    paths = [join(folder, name) for folder, _, found in gfile().walk(source) for name in found]
    names = [path.removeprefix(source).lstrip("/") for path in paths]
    try:
        for name in sorted(names, key=lambda name: (name == last, name)):
            path = join(target, name)
            gfile().makedirs(path.rpartition("/")[0])
            gfile().copy(join(source, name), path)
    except BaseException:
        remove(target)
        raise


def write_text(path: str, text: str) -> None:
    """Writes a text file that appears whole or not at all.

    Raises:
      InputError: it cannot be written.
    """
    with path_errors(path, "written"), published(path) as new, gfile(new).GFile(new, "wb") as file:
        file.write(text.encode())
