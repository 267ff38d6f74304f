"""`InputError`, the one error that user input causes, in three parts; and errors of the system."""

import errno
import os
import sys

NO_MODEL = """check the path, unpack archives; a model of Hugging Face's hub is fetched \
by its name with hf: before it, as in hf:google-bert/bert-base-uncased"""
MOST_CHARACTERS = 2000  # of a part of a message; a longer one loses its middle


def _readable(text: str) -> str:
    """A part of a message, shortened, without terminal escape codes."""
    if len(text) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2 - 3
        text = f"{text[:half]} ... {text[-half:]}"
    return printable(text, besides="\n\t")


def printable(text: str, *, besides: str = "") -> str:
    """Escapes invisible characters and terminal escape codes."""
    return "".join(c if c.isprintable() or c in besides else ascii(c)[1:-1] for c in text)


def shortened(text: str, most: int) -> str:
    """A text of at most `most` characters, cut after a word.

    >>> shortened("a text or number of its own in every row", 34)
    'a text or number of its own in...'
    >>> shortened("a text", 34)
    'a text'
    """
    if len(text) <= most:
        return text
    whole_words = text[: most - 2].rpartition(" ")[0]
    return f"{whole_words or text[: most - 3]}..."


def quoted(value: object, most: int = 80) -> str:
    """The repr of a value, of about `most` characters at most, cut after a word."""
    if isinstance(value, str):
        return repr(shortened(value, most))
    return shortened(repr(value), most)


class InputError(ValueError):
    """Something the user gave cannot be used.

    The message has three lines: what was received (with file and line where there is one), what is
    expected, and what to do. The commands print it and exit with code 1.
    """

    _keras_call_info_injected = True  # Keras then leaves it as it is, within other models too

    def __init__(self, received: str, expected: str, remedy: str):
        self.received = _readable(received)
        self.expected = _readable(expected)
        self.remedy = _readable(remedy)
        super().__init__(
            f"Received: {self.received}\nExpected: {self.expected}\nTo do: {self.remedy}"
        )

    def __reduce__(self) -> tuple:
        return InputError, (self.received, self.expected, self.remedy)


# ---------------------------------------------------------------------------- of the system

_ROOM = ("room on the disk, or within its quota", "make room, and give the same command again")
_REMEDIES = {  # of system errors: what is expected, what to do
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.ENOMEM: (
        "steps that fit into the memory (see bert-tf plan), files that fit onto the disk",
        "smaller batches (in training --gradient_accumulation_steps=2 gives the same result), "
        "--recompute, --precision=bfloat16, a smaller --max_seq_length; or make room on the disk",
    ),
}
_OTHER_REMEDY = (
    "a path, local or remote, that this process may use",
    "check the path, the disk or network, permissions and limits (ulimit); gs:// needs application "
    "default credentials",
)


def remedy_of(error: BaseException) -> tuple[str, str]:
    """What is expected and what to do after an error of the system or of TensorFlow."""
    for number, remedy in _REMEDIES.items():
        # TensorFlow's errors have the system's words, and no number.
        is_in_words = os.strerror(number).lower() in str(error).lower()
        if is_in_words or getattr(error, "errno", None) == number:
            return remedy
    if isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return _REMEDIES[errno.ENOMEM]
    return _OTHER_REMEDY


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or the name of its class if it has no text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def is_system_error(error: BaseException) -> bool:
    """Whether an error comes from the system or TensorFlow, not from this program."""
    tf = sys.modules.get("tensorflow")  # without loading it, which takes seconds
    return isinstance(error, OSError) or (tf is not None and isinstance(error, tf.errors.OpError))
