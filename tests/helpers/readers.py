"""Every reader of what users and other programs give: a valid input, damage for it, what must hold.

    reader = make("squad", folder)          writes the valid files
    attempt(reader, random.Random(7))       damages one of them, reads       ->  "refused"

An input is accepted, and then its values are as declared, or refused by an `InputError` that names
the file. Anything else is raised.
"""

import dataclasses
import importlib
import pathlib
import random
from collections.abc import Callable, Mapping

from damage import WAYS

from bert_tf.errors import InputError

ACCEPTED, REFUSED = "accepted", "refused"
MOST_CHARACTERS = 6200  # of a message
# Modules with a table MAKERS: name of a reader -> function of a folder that makes it.
_GROUPS = ("readers_of_models", "readers_of_data", "readers_of_records")


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader of the files of a folder.

    Attributes:
      folder: where they are; valid, but for the moment of an attempt.
      damaged: by name the files that are damaged, and the way (a key of WAYS).
      read: reads the folder; raises `InputError`, or AssertionError if it accepts what it must not.
    """

    folder: pathlib.Path
    damaged: Mapping[str, str]
    read: Callable[[pathlib.Path], object]

    def __post_init__(self) -> None:
        valid = {name: (self.folder / name).read_bytes() for name in self.damaged}
        object.__setattr__(self, "valid", valid)


def makers() -> dict[str, Callable[[pathlib.Path], Reader]]:
    """All readers by name: functions that make their files in a folder."""
    groups = (importlib.import_module(name).MAKERS for name in _GROUPS)
    return {name: maker for group in groups for name, maker in group.items()}


def make(name: str, folder: pathlib.Path) -> Reader:
    """Makes a reader, and reads its files as they are, which must be accepted."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = makers()[name](folder)
    reader.read(reader.folder)
    return reader


def attempt(reader: Reader, rng: random.Random) -> str:
    """Damages a file, reads the folder, and makes the file whole again.

    Returns:
      ACCEPTED or REFUSED.
    """
    name = rng.choice(sorted(reader.damaged))
    path, valid = reader.folder / name, reader.valid[name]
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
    """Three parts that a person can read, and that name the file."""
    assert all((error.received.strip(), error.expected.strip(), error.remedy.strip()))
    text = str(error)
    assert len(text) <= MOST_CHARACTERS, f"a message of {len(text)} characters: {text[:200]}..."
    unreadable = {c for c in text if not c.isprintable() and c not in "\n\t"}
    assert not unreadable, f"a message with {unreadable!r}: {text[:300]!r}"
    assert named in text, f"a message without {named!r}: {text}"
