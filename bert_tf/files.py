"""Local and remote files: paths, reading, and outputs that appear only when they are complete."""

import contextlib
import errno
import glob
import hashlib
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

from bert_tf import decoding, locks, runtime
from bert_tf.errors import InputError, first_line, is_system_error, quoted, remedy_of, shortened

EVAL_RESULTS = "eval_results.txt"
BEST = "best"  # in the folder of a run, the folder of its best checkpoint
READ_BYTES = 1 << 20
# How the small text files begin that a clone without Git LFS has in the place of large ones.
_POINTER = b"version https://git-lfs.github.com/spec/"


# ---------------------------------------------------------------------------- paths

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
      path: the path.
      name: its source, for messages, such as "--output_dir=".

    Raises:
      InputError: the path contains square brackets or a backslash.
    """
    if re.search(r"\[.*\]|\\", path, re.DOTALL):
        expected = (
            "a path without square brackets and backslashes: TensorFlow takes it for a pattern"
        )
        raise InputError(f"{name}{path}", expected, "rename the folder, or choose another one")


def paths_in(folder: str, pattern: str) -> list[str]:
    """The sorted paths in a folder whose names match a regular expression; [] without a folder.

    The expression may match anywhere in a name.
    """
    if not gfile(folder).isdir(folder):
        return []
    names = gfile(folder).listdir(folder)
    return sorted(os.path.join(folder, name) for name in names if re.search(pattern, name))


def is_file(path: str) -> bool:
    """Whether a file (not a folder) exists, local or remote."""
    return bool(path) and gfile(path).exists(path) and not gfile(path).isdir(path)


def output(path: str | os.PathLike, inputs: Iterable[str | os.PathLike | None]) -> str:
    """The path of a file to write, with `~` expanded; it must not be an input.

    Args:
      path: the file to write. A stream may be an input too.
      inputs: the files that are read, without patterns. None and "" are left out.

    Raises:
      InputError: the file is an input, also by another name, such as a link. Remote paths are
        compared as texts.
    """
    (expanded,) = outputs([path], inputs)
    return expanded


def outputs(
    paths: Iterable[str | os.PathLike], inputs: Iterable[str | os.PathLike | None]
) -> list[str]:
    """As `output`, for several files."""
    expanded = [os.path.expanduser(os.fspath(path)) for path in paths]
    sources: dict[Any, str] = {}  # the inputs, by path and by identity
    for source in map(own_path, filter(None, inputs)):
        sources[source] = source
        sources[_identity(source)] = source
    for path in expanded:
        source = sources.get(own_path(path)) or sources.get(_identity(path))
        if source and not is_stream(path):
            received = f"{path} as the output, which is the input {source}"
            raise InputError(received, "an output that is no input", "choose another output")
    return expanded


def are_same(first: str, second: str) -> bool:
    """Whether two paths lead to the same file, also by a link; remote paths must be equal."""
    return own_path(first) == own_path(second) or _identity(first) == _identity(second)


def _identity(path: str) -> tuple[int, int] | str:
    """Device and inode of a local file or folder; the path itself of anything else."""
    if is_remote(path):
        return path
    try:
        status = os.stat(path)
    except OSError:  # it does not exist
        return path
    return status.st_dev, status.st_ino


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


# ---------------------------------------------------------------------------- reading


def check_regular(path: str) -> None:
    """Refuses a path that is not a file with content.

    Raises:
      InputError: it is a pipe, a socket or a device, from which reading might never end, or a
        pointer of Git LFS.
    """
    if _is_special(path):
        received = f"{path}, which is a pipe, a socket or a device"
        raise InputError(received, "a regular file", "save what it gives to a file, and name that")
    with path_errors(path):
        if not os.path.isfile(path):  # remote, or missing
            return
        with open(path, "rb") as file:
            beginning = file.read(len(_POINTER))
    if beginning == _POINTER:
        received = f"{path}, a pointer of Git LFS without the content"
        remedy = "git lfs pull in its folder, or download the file"
        raise InputError(received, "the file itself", remedy)


def read_json(
    path: str, *, expected: str = "a JSON object", remedy: str = "check the path, or get it again"
) -> dict[str, Any]:
    """The object in a JSON file, which is decoded as by `read_text_lines`.

    Args:
      path: local or remote.
      expected: what the file should be, for messages.
      remedy: what to do otherwise, for messages.

    Raises:
      InputError: the file does not exist, cannot be read, or is not a JSON object.
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
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        received = f"{path}, which is not JSON as expected ({reason})"
        raise InputError(received, expected, remedy) from None
    return values


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{shortened(text, 80)} is not a finite number")
    return number


def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict, for `object_pairs_hook`; raises `ValueError` for a repeated key."""
    keys = [key for key, _ in pairs]
    if len({*keys}) < len(keys):
        repeated = max(keys, key=keys.count)
        raise ValueError(f"the key {quoted(repeated)} is given twice in one object")
    return dict(pairs)


def read_text_lines(
    path: str,
    *,
    limit: int = decoding.LONGEST_LINE,
    encoding: str | None = None,
    encoding_errors: str = "strict",
) -> Iterator[str]:
    """Yields the lines of a text file; arguments as for `decoding.text_lines_of`.

    The file is read in blocks: `GFile.readline` drops carriage returns, and takes an error of the
    file system for the end of the file.

    Raises:
      InputError: the file cannot be read, or as for `text_lines_of`.
    """
    blocks = read_blocks(path)
    return decoding.text_lines_of(
        blocks, path, limit=limit, encoding=encoding, encoding_errors=encoding_errors
    )


def is_marked(path: str) -> bool:
    """Whether a text file begins with a byte order mark."""
    return decoding.has_mark(read_blocks(path))


def digest_of(path: str) -> str:
    """The SHA-256 of a file's bytes in hexadecimal; raises `InputError` if it cannot be read."""
    digest = hashlib.sha256()
    for block in read_blocks(path):
        digest.update(block)
    return digest.hexdigest()


def read_blocks(path: str) -> Iterator[bytes]:
    """Yields the bytes of a file, up to `READ_BYTES` at a time.

    Raises:
      InputError: it cannot be read, or as for `check_regular`.
    """
    check_regular(path)
    with path_errors(path):
        if gfile(path).isdir(path):  # reads as an empty file
            raise OSError(errno.EISDIR, "it is a folder")
        with gfile(path).GFile(path, "rb") as file:
            while block := file.read(READ_BYTES):
                yield block


# ---------------------------------------------------------------------------- one writer

# A process locks the folder of a run, or for any other output the hidden folder beside it in which
# the output is made. The next process that locks it removes what a killed one has left there.

INCOMPLETE = "bert_tf-incomplete"  # the end of the name of a hidden folder


@contextlib.contextmanager
def locked(path: str, *, folder: bool = False, parents: bool = False) -> Iterator[None]:
    """Keeps other processes from writing an output. The process that has locked it may do so again.

    Remote outputs, devices and streams are not locked, nor is anything on a file system without
    locks, or in processes of a run other than the chief.

    Args:
      path: what this process writes.
      folder: whether that is the folder of a run. It is made unless it exists, with its parents.
      parents: whether to make the folder that the output will be in.

    Raises:
      InputError: another process is writing it, or nothing can be written there.
    """
    home = os.path.abspath(path if folder else hidden_sibling(path.rstrip("/"), INCOMPLETE))
    if is_remote(path) or not runtime.is_chief() or is_stream(path) or locks.is_held(home):
        yield
        return
    above = pathlib.Path(home).parents if folder or parents else ()
    missing = [parent for parent in above if not parent.is_dir()]  # the innermost first
    is_new = not (folder and os.path.isdir(home))
    was_killed = folder and os.path.exists(f"{home}/{locks.LOCK}")
    try:
        with path_errors(path, "written"):
            if missing:
                missing[0].mkdir(parents=True, exist_ok=True)
            if not folder and (os.path.islink(home) or os.path.isfile(home)):
                os.unlink(home)  # only a folder of that name is ours
            locks.acquire(home, path)
            if not folder:
                _empty(home)
            elif was_killed:
                _remove_leftovers(home)
        yield
    finally:
        if locks.is_held(home):
            try:
                if not folder:
                    with contextlib.suppress(OSError):
                        _empty(home)
            finally:
                locks.release(home)
        made = [pathlib.Path(home), *missing] if is_new else []
        with contextlib.suppress(OSError):  # a folder with files stays
            for new_folder in made:
                new_folder.rmdir()


def _empty(home: str) -> None:
    """Removes everything in a folder but the file of its lock."""
    for path in pathlib.Path(home).iterdir():
        if path.name != locks.LOCK:
            remove(path)


def _remove_leftovers(folder: str) -> None:
    """Removes what killed processes have left in the folder of a run; what others write stays."""
    for leftover in [*pathlib.Path(folder).rglob(f".*.{INCOMPLETE}")]:
        name = leftover.name[1:].removesuffix(f".{INCOMPLETE}")
        with contextlib.suppress(InputError), locked(str(leftover.with_name(name))):
            pass


def hidden_sibling(path: str, ending: str) -> str:
    """A name in the same folder that no pattern for the file itself matches.

    >>> hidden_sibling("data/train.tfrecord", "incomplete")
    'data/.train.tfrecord.incomplete'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{ending}")


# ---------------------------------------------------------------------------- writing


def new_path(path: str | os.PathLike) -> str:
    """The `own_path` of a folder to make; raises `InputError` if the path exists."""
    path = own_path(path)
    with path_errors(path):
        if gfile(path).exists(path):
            remedy = "choose another path, or remove it"
            raise InputError(f"{path}, which already exists", "a new folder", remedy)
    return path


def make_folder(path: str) -> None:
    """Makes the folder of a run, or one in it; raises `InputError` if it cannot be made."""
    with path_errors(path, "written"):
        gfile().makedirs(path)


@contextlib.contextmanager
def temporary(path: str, *, folder: bool = False) -> Iterator[str]:
    """Gives the path of a new file or folder to write an output in; removes it at the end.

    A local one is in a hidden folder beside the output; a remote one is itself hidden. What a
    killed process has left there is replaced.

    Raises:
      InputError: another process is writing the output, or nothing can be written there.
    """
    name = hidden_sibling(path.rstrip("/"), INCOMPLETE)
    with locked(path):
        if not is_remote(path):
            name = os.path.join(name, os.path.basename(path.rstrip("/")))
        remove(name)
        try:
            if is_remote(path) and folder:
                gfile().makedirs(name)
            elif is_remote(path):
                with gfile().GFile(name, "w") as file:
                    file.write("")  # only a write makes a remote file
            elif folder:
                os.mkdir(name)
            else:  # who may not read the file that it replaces may not read it either
                mode = 0o600 if os.path.exists(path) else 0o666
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
            yield name
        finally:
            with contextlib.suppress(Exception):  # it would hide an earlier error
                remove(name)


def remove(path: str | os.PathLike) -> None:
    """Removes a file, a link, or a folder with everything in it, if it exists."""
    if is_remote(str(path)):
        if gfile().exists(path):
            gfile().rmtree(path) if gfile().isdir(path) else gfile().remove(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        pathlib.Path(path).unlink(missing_ok=True)


def synced(path: str) -> None:
    """Returns when a local file, or the list of names of a local folder, is on the disk."""
    if is_remote(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in locks.NOT_SUPPORTED:
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def published(
    path: str,
    prove: Callable[[str], Any] | None = None,
    *,
    folder: bool = False,
    last: str = "",
) -> Iterator[str]:
    """Gives a temporary path to write a file or a folder at; renames it at the end.

    Before it gets its name it is synced to the disk and proved. An error leaves nothing. A file
    gets the permissions of the file that it replaces. Of several processes only the chief
    publishes. Devices, pipes and open streams are written directly, without a proof.

    Args:
      path: the file, or a new folder, whose parents are made.
      prove: called with the temporary path when everything is written; what it raises is raised.
      folder: whether to make a folder. The temporary folder exists when its path is given.
      last: in a remote folder, which is copied file by file, the name of the file that
        marks it as complete.

    Raises:
      InputError: nothing can be made there, the folder exists, or another process is making it.
        This is checked at the beginning, before hours of work.
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
    """Returns when a local file, or a folder with everything in it, is on the disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            synced(os.path.join(folder, name))
        synced(folder)
    if not os.path.isdir(path):
        synced(path)


def _copy_folder(source: str, target: str, *, last: str) -> None:
    """Copies all files of a remote folder or none: remote systems cannot rename it in one step.

    The file `last` is copied after all others.
    """
    names = []  # relative to the source
    for folder, _, files in gfile().walk(source):
        paths = [gfile().join(folder, name) for name in files]
        names += [path.removeprefix(source).lstrip("/") for path in paths]
    try:
        for name in sorted(names, key=lambda name: (name == last, name)):
            path = gfile().join(target, name)
            gfile().makedirs(path.rpartition("/")[0])
            gfile().copy(gfile().join(source, name), path)
    except BaseException:
        remove(target)
        raise


def write_text(path: str, text: str) -> None:
    """Writes a text file in UTF-8 that appears whole or not at all.

    Raises:
      InputError: it cannot be written.
    """
    with path_errors(path, "written"), published(path) as new, gfile(new).GFile(new, "wb") as file:
        file.write(text.encode())
