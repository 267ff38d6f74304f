"""Every reader of files from users and other programs: valid files, their damage, and checks.

    reader = make("squad", folder)          writes the valid files
    attempt(reader, random.Random(7))       damages one of them, reads       ->  "refused"

A reader either accepts a damaged file, and its values must be as declared, or refuses it by an
`InputError` that names the file. `attempt` lets any other exception through.
"""

import dataclasses
import importlib
import pathlib
import random
from collections.abc import Callable, Mapping

from damage import WAYS

from bert_tf.errors import InputError

ACCEPTED = "accepted"
REFUSED = "refused"
MOST_CHARACTERS = 6200  # of a message
# Modules with a table MAKERS: name of a reader -> function of a folder that makes it.
_GROUPS = ("readers_of_models", "readers_of_data", "readers_of_records")


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader of the files of a folder.

    Attributes:
      folder: the folder of the files, which are valid except during an attempt.
      damaged: the files to damage, by name, and how (a key of WAYS).
      read: reads the folder. Raises `InputError`, or AssertionError if a value is not as declared.
      valid: the valid content of the files to damage, by name.
    """

    folder: pathlib.Path
    damaged: Mapping[str, str]
    read: Callable[[pathlib.Path], object]

    def __post_init__(self) -> None:
        valid = {name: (self.folder / name).read_bytes() for name in self.damaged}
        object.__setattr__(self, "valid", valid)


def makers() -> dict[str, Callable[[pathlib.Path], Reader]]:
    """All readers by name, as functions that write the files into a folder."""
    makers_by_name = {}
    for name in _GROUPS:
        makers_by_name |= importlib.import_module(name).MAKERS
    return makers_by_name


def make(name: str, folder: pathlib.Path) -> Reader:
    """Makes a reader, and checks that it accepts its files before any damage."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = makers()[name](folder)
    reader.read(reader.folder)
    return reader


def attempt(reader: Reader, rng: random.Random) -> str:
    """Damages a file, reads the folder, and restores the file.

    Returns:
      ACCEPTED or REFUSED.
    """
    name = rng.choice(sorted(reader.damaged))
    path = reader.folder / name
    valid = reader.valid[name]
    path.write_bytes(WAYS[reader.damaged[name]](rng, valid))
    try:
        reader.read(reader.folder)
    except InputError as error:
        check_message(error, named=str(reader.folder))
        return REFUSED
    finally:
        path.write_bytes(valid)
    return ACCEPTED


def check_message(error: InputError, *, named: str) -> None:
    """Asserts that an error has three readable parts and names the file."""
    assert all((error.received.strip(), error.expected.strip(), error.remedy.strip()))
    text = str(error)
    assert len(text) <= MOST_CHARACTERS, f"a message of {len(text)} characters: {text[:200]}..."
    unreadable = {c for c in text if not c.isprintable() and c not in "\n\t"}
    assert not unreadable, f"a message with {unreadable!r}: {text[:300]!r}"
    assert named in text, f"a message without {named!r}: {text}"
