"""bert_tf.errors: the three parts of every message."""

import doctest
import errno

import pytest
import tensorflow as tf

from bert_tf import errors
from bert_tf.errors import MOST_CHARACTERS, InputError, remedy_of, shortened


def test_a_message_has_three_lines_and_is_a_wrong_value():
    error = InputError(remedy="correct --top_k", expected="1 or more", received="--top_k=0")
    assert str(error) == "Received: --top_k=0\nExpected: 1 or more\nTo do: correct --top_k"
    assert isinstance(error, ValueError)


def test_a_text_is_cut_behind_a_word():
    assert doctest.testmod(errors).failed == 0
    text = "a text or number of its own in every row"
    for most in range(5, len(text)):
        cut = shortened(text, most)
        assert len(cut) <= most
        assert text.startswith(cut.removesuffix("..."))
        assert text[len(cut) - 3] == " "
    assert shortened("x" * 20, 9) == "xxxxxx..."


def test_what_was_received_may_hold_anything():
    """Escape codes, what is not visible, half characters; line feeds and other scripts stay."""
    error = InputError("a\x1b[31m\0\u202e\ud800é 海\n\tb", "c", "d")
    assert error.received == "a\\x1b[31m\\x00\\u202e\\ud800é 海\n\tb"
    str(error).encode()
    long = InputError("begin" + "x" * 10**6 + "end", "b", "c").received
    assert len(long) <= MOST_CHARACTERS
    assert long.startswith("beginx")
    assert long.endswith("xend")


OF_THE_SYSTEM = [
    (tf.errors.ResourceExhaustedError(None, None, "a; No space left on device"), "room on"),
    (OSError(errno.EDQUOT, "Disk quota exceeded"), "room on"),
    (OSError(errno.ENOMEM, "none"), "steps that fit into the memory"),
    (MemoryError(), "steps that fit into the memory"),
    (tf.errors.ResourceExhaustedError(None, None, "OOM"), "steps that fit into the memory"),
    (PermissionError(errno.EACCES, "not yours"), "that this process may use"),
]


@pytest.mark.parametrize(("error", "expected"), OF_THE_SYSTEM)
def test_each_error_of_the_system_has_its_remedy(error, expected):
    assert expected in remedy_of(error)[0]
