"""bert_tf.errors: the three parts of every message."""

import pytest

from bert_tf.errors import MOST_CHARACTERS, InputError


def test_a_message_has_three_lines():
    error = InputError("--top_k=0", "1 or more", "correct --top_k")
    assert str(error) == "Received: --top_k=0\nExpected: 1 or more\nTo do: correct --top_k"


def test_the_parts_can_be_read():
    error = InputError(remedy="c", expected="b", received="a")
    assert (error.received, error.expected, error.remedy) == ("a", "b", "c")


def test_libraries_may_catch_it_as_a_wrong_value():
    with pytest.raises(ValueError, match="Received: a"):
        raise InputError("a", "b", "c")


@pytest.mark.parametrize("parts", [(), ("a",), ("a", "b")])
def test_no_part_may_be_left_out(parts):
    with pytest.raises(TypeError):
        InputError(*parts)


def test_what_was_received_may_hold_anything():
    """Escape codes, what is not visible, half characters; line feeds and other scripts stay."""
    error = InputError("a\x1b[31m\0\u202e\ud800é 海\n\tb", "c", "d")
    assert error.received == "a\\x1b[31m\\x00\\u202e\\ud800é 海\n\tb"
    assert str(InputError(error.received, "c", "d")) == str(error)
    str(error).encode()


def test_a_long_part_is_cut_in_its_middle():
    error = InputError("begin" + "x" * 10**6 + "end", "b", "c")
    assert len(error.received) <= MOST_CHARACTERS
    assert error.received.startswith("beginx")
    assert error.received.endswith("xend")
    assert " ... " in error.received
