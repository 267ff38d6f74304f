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
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from types import SimpleNamespace
from typing import Any

from absl import logging

from bert_tf import runtime
from bert_tf.errors import InputError, first_line, is_system_error, quoted, remedy_of, shortened
from bert_tf.terminal import number_of

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
_MARKS = {  # and what is in the encoding; that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# The encodings that an error may name: the most used of those that browsers know (WHATWG, Encoding
# Standard). Of several in which a text reads alike it is the first.
_LIKELY = [
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258",
    "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp874", "koi8_r", "koi8_u", "cp866",
    "iso8859_2", "iso8859_15", "mac_roman", "mac_cyrillic",
]  # fmt: skip
MOST_CANDIDATES = 3
SAMPLE_BYTES = 1 << 14  # of a text, to find them
MOST_OF_LINE = 60  # characters of how a line would read
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
        raise ValueError(f"{shortened(text, 80)} is not a finite number")
    return number


def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, for `object_pairs_hook`; raises `ValueError` if a key is given twice."""
    keys = [key for key, _ in pairs]
    if len({*keys}) < len(keys):
        raise ValueError(
            f"the key {quoted(max(keys, key=keys.count))} is given twice in one object"
        )
    return dict(pairs)


def read_text_lines(
    path: str,
    *,
    limit: int = LONGEST_LINE,
    encoding: str | None = None,
    encoding_errors: str = "strict",
) -> Iterator[str]:
    """The lines of a text file, as `text_lines_of` gives them.

    Read in blocks: `GFile.readline` leaves out every carriage return, and takes an error of the
    file system for the end of the file.

    Raises:
      InputError: it cannot be read, or as for `text_lines_of`.
    """
    blocks = read_blocks(path)
    return text_lines_of(
        blocks, path, limit=limit, encoding=encoding, encoding_errors=encoding_errors
    )


def text_lines_of(
    blocks: Iterable[bytes],
    name: str,
    *,
    limit: int = LONGEST_LINE,
    encoding: str | None = None,
    encoding_errors: str = "strict",
    counts: MutableMapping[str, int] | None = None,
) -> Iterator[str]:
    """The lines of a text with their ends, each as soon as it arrives; only a line feed ends one.

    The text is decoded by its byte order mark, which is taken off; else by `encoding`; else as
    UTF-8. Of the text no more than a line and a block are held in memory.

    Args:
      blocks: the text's bytes.
      name: of the text, for messages.
      limit: most bytes of a line.
      encoding: as of `Reading`, and of a text in none NULs are refused, for it may be in UTF-16;
        None where the user has no such option.
      encoding_errors: as of `Reading`.
      counts: `replaced_characters` and `lines_with_replaced_characters` are counted there; without
        it a warning gives them behind the last line.

    Raises:
      InputError: it is a file of another kind, an encoding is unknown, or a line is longer than
        `limit`, is not in the encoding, or has a character that shows that it is in another one.
    """
    blocks = iter(blocks)
    first = _beginning(blocks)
    refuse_no_text(name, first)
    decoder = _Decoder(name, first, encoding, encoding_errors, {} if counts is None else counts)
    blocks = itertools.chain([first.removeprefix(decoder.mark)], blocks)
    begun: list[bytes] = []  # parts of a line whose end is yet to come
    number = 1
    for block in decoder.in_bytes_of_lines(blocks):
        *ended, rest = block.split(b"\n")
        for place, part in enumerate((*ended, rest)):
            begun.append(part)
            if sum(map(len, begun)) > limit:
                received = f"{name}, line {number}, which is longer than {limit} bytes"
                raise InputError(received, "lines of text", "split the line, or correct the path")
            if place < len(ended):
                line = b"".join([*begun, b"\n"])
                following = itertools.islice(ended, place + 1, None)
                yield decoder.text_of(line, number, following)
                begun.clear()
                number += 1
    if any(begun):
        yield decoder.text_of(b"".join(begun), number, is_last=True)
    if counts is None:
        decoder.warn()


def _beginning(blocks: Iterator[bytes]) -> bytes:
    """The first blocks, until they tell whether a text has a byte order mark."""
    first = b""
    while any(mark.startswith(first) and mark != first for mark in _MARKS):
        block = next(blocks, b"")
        if not block:
            break
        first += block
    return first


def _mark_of(first: bytes) -> bytes:
    """The byte order mark with which a text begins, or nothing."""
    return next(filter(first.startswith, _MARKS), b"")


def is_marked(path: str) -> bool:
    """Whether a text file begins with a byte order mark."""
    return bool(_mark_of(_beginning(read_blocks(path))))


def refuse_no_text(name: str, content: bytes) -> None:
    """Raises `InputError` if a file begins as one of another kind does: an archive, a document."""
    for mark, (what, remedy) in _NO_TEXT.items():
        if content.startswith(mark):
            received = f"{name}, a file of another kind ({what})"
            raise InputError(received, "an uncompressed, plain file", remedy)


# What bytes that are not in an encoding become on the way: a byte that is not UTF-8 either.
_NO_CHARACTER = "\udcff"
codecs.register_error("bert_tf.no_character", lambda error: (_NO_CHARACTER, error.end))


class _Decoder:
    """Decodes the lines of a text, and refuses or replaces what cannot be decoded.

    Attributes:
      mark: the byte order mark with which the text begins, or nothing.
    """

    def __init__(
        self,
        name: str,
        first: bytes,
        encoding: str | None,
        errors: str,
        counts: MutableMapping[str, int],
    ):
        self._name, self._errors, self._counts = name, errors, counts
        self._has_options = encoding is not None
        self.mark = _mark_of(first)
        self._kind = _MARKS.get(self.mark) or encoding or "utf-8"
        self._is_guess = not self.mark and not encoding
        # A vocabulary may have NULs in its pieces; a user's texts are then in UTF-16.
        self._refuses_nuls = self._is_guess and self._has_options
        try:
            is_by_bytes = b"\n".decode(self._kind, "replace") == "\n"
        except (LookupError, ValueError) as error:  # or a codec that is not for text
            expected = "the name of an encoding of text, such as cp1252"
            raise InputError(f"--encoding={encoding} ({error})", expected, "correct it") from None
        self._codec = codecs.lookup(self._kind).name
        self._is_unicode = self._codec.startswith(("utf", "gb18030"))
        # In UTF-16 and the like a byte 0x0A may be part of any character.
        self._wide = "" if is_by_bytes else self._kind
        self._decoder = codecs.getincrementaldecoder(self._kind if is_by_bytes else "utf-8")()

    def in_bytes_of_lines(self, blocks: Iterable[bytes]) -> Iterable[bytes]:
        """The text in an encoding in which the byte 0x0A is always a line feed."""
        if not self._wide:
            return blocks
        return self._transcoded(blocks)

    def _transcoded(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        texts = codecs.iterdecode(blocks, self._wide, "bert_tf.no_character")
        try:
            yield from codecs.iterencode(texts, "utf-8", "surrogateescape")
        except UnicodeError as error:  # a mark is missing: nothing tells the order of bytes
            kind = self._wide.upper()
            expected = f"text in {kind}, as --encoding says"
            remedy = f"give {kind}-LE or {kind}-BE, or another encoding"
            raise InputError(f"{self._name}: {error}", expected, remedy) from None

    def text_of(
        self, line: bytes, number: int, following: Iterable[bytes] = (), *, is_last: bool = False
    ) -> str:
        """Decodes a line.

        Args:
          line: its bytes, with its end.
          number: of the line, from 1.
          following: lines that are in memory already; an error looks at them.
          is_last: whether it ends the text.

        Raises:
          InputError: as for `text_lines_of`.
        """
        if self._refuses_nuls and b"\0" in line:
            at = line.index(b"\0")
            raise self._refusal(f"NUL bytes ({line[at:][:8]!r})", line, number, following)
        self._decoder.errors = "strict"
        try:
            text = self._decoder.decode(line, is_last)
        except UnicodeError as error:
            start = getattr(error, "start", 0)
            wrong = "" if self._wide else f" ({line[start:][:8]!r})"
            if self._errors != "replace":
                received = f"bytes that are not {self._kind.upper()}{wrong}"
                raise self._refusal(received, line, number, following) from None
            text = self._replaced(line, is_last)
        if not self._is_unicode and (control := re.search("[\x80-\x9f]", text)):
            # A letter of another encoding.
            received = f"the control character {control[0]!r} in {self._kind.upper()}"
            raise self._refusal(received, line, number, following)
        return text

    def _replaced(self, line: bytes, is_last: bool) -> str:
        self._decoder.reset()
        self._decoder.errors = "bert_tf.no_character"
        text = self._decoder.decode(line, is_last)
        characters = text.count(_NO_CHARACTER)
        self._counts["replaced_characters"] = (
            self._counts.get("replaced_characters", 0) + characters
        )
        lines = "lines_with_replaced_characters"
        self._counts[lines] = self._counts.get(lines, 0) + 1
        return text.replace(_NO_CHARACTER, "\ufffd")

    def warn(self) -> None:
        """Logs how much was replaced."""
        if self._counts:
            logging.warning("%s: %s", self._name, replaced_of(self._counts))

    def _refusal(
        self, received: str, line: bytes, number: int, following: Iterable[bytes]
    ) -> InputError:
        """The error of a line, with the encodings that the text may be in."""
        expected = "text in UTF-8, or in UTF-16 with its mark"
        if not self._is_guess:
            says = "its byte order mark" if self.mark else "--encoding"
            expected = f"text in {self._kind.upper()}, as {says} says"
        candidates: Sequence[tuple[str, str]] = ()
        if not self._wide:
            candidates = _candidates(line, following, is_first=number == 1)
        if self._codec == "iso8859-1":  # what is called so mostly is this one (WHATWG)
            candidates = [("cp1252", _shown(line, "cp1252"))]
        flag = "--encoding=" if self._has_options else ""
        readings = " or ".join(f"{flag}{name} ({text!r})" for name, text in candidates)
        whole = "convert the file to UTF-8"
        remedy = f"{whole} from its encoding"
        if readings and self._has_options:
            remedy = f"give the encoding in which this line reads well: {readings}"
        elif readings:
            remedy = f"{whole} from the encoding in which this line reads well: {readings}"
        if self._refuses_nuls and b"\0" in line:
            remedy += "; or --encoding=utf-8, if these bytes belong to the text"
        elif self._has_options and self._errors != "replace":
            remedy += "; or --encoding_errors=replace, which makes U+FFFD of such bytes"
        return InputError(f"{self._name}, line {number}: {received}", expected, remedy)


def replaced_of(counts: Mapping[str, int]) -> str:
    """A sentence on the counts of `text_lines_of`; "" where nothing was replaced.

    >>> replaced_of({"replaced_characters": 3, "lines_with_replaced_characters": 1})
    'U+FFFD stands in 3 places of 1 line, for bytes that are not in the encoding.'
    """
    if not counts.get("replaced_characters"):
        return ""
    places = number_of(counts["replaced_characters"], "places")
    lines = number_of(counts["lines_with_replaced_characters"], "lines")
    return f"U+FFFD stands in {places} of {lines}, for bytes that are not in the encoding."


def _candidates(
    line: bytes, following: Iterable[bytes], *, is_first: bool
) -> list[tuple[str, str]]:
    """The encodings that a text may be in, likeliest first, and how a line would read in each.

    Args:
      line: which is not in the encoding that was expected.
      following: lines after it.
      is_first: whether it is the first one of the text; only of this one it is known where the
        characters of UTF-16 begin.
    """
    sample = line + b"\n".join(_within(following, SAMPLE_BYTES))
    names: list[str]
    if b"\0" in sample:
        evens, odds = sample[0::2].count(0), sample[1::2].count(0)
        names = ["utf-16-le", "utf-16-be"] if odds >= evens else ["utf-16-be", "utf-16-le"]
        names = names if is_first else []
    elif not _is_other(sample, "utf-8"):
        names = ["utf-8"]
    else:
        from charset_normalizer import from_bytes  # not at the top: errors alone need it

        of_another = [part for part in sample.splitlines() if _is_other(part, "utf-8")]
        matches = from_bytes(b"\n".join(of_another), cp_isolation=_LIKELY)
        alike = [match.could_be_from_charset for match in matches]
        names = [min(codes, key=_LIKELY.index) for codes in alike[:MOST_CANDIDATES]]
    return [(name, _shown(sample if "16" in name else line, name)) for name in names]


def _shown(content: bytes, encoding: str) -> str:
    """The first line of bytes in an encoding, for messages."""
    text, _, _ = content.decode(encoding, "replace").partition("\n")
    return shortened(text.strip(), MOST_OF_LINE)


def _within(lines: Iterable[bytes], most: int) -> Iterator[bytes]:
    """The lines until they have so many bytes together."""
    for line in lines:
        yield line
        most -= len(line)
        if most < 0:
            return


def _is_other(content: bytes, encoding: str) -> bool:
    """Whether bytes cannot be decoded by an encoding."""
    try:
        content.decode(encoding)
    except UnicodeError:
        return True
    return False


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
