"""bert_tf.errors: the three parts of every message."""

import pytest

from bert_tf.errors import MOST_CHARACTERS, InputError


def test_a_message_has_three_lines_and_is_a_wrong_value():
    error = InputError(remedy="correct --top_k", expected="1 or more", received="--top_k=0")
    assert str(error) == "Received: --top_k=0\nExpected: 1 or more\nTo do: correct --top_k"
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("parts", [(), ("a",), ("a", "b")])
def test_no_part_may_be_left_out(parts):
    with pytest.raises(TypeError):
        InputError(*parts)


def test_what_was_received_may_hold_anything():
    """Escape codes, what is not visible, half characters; line feeds and other scripts stay."""
    error = InputError("a\x1b[31m\0\u202e\ud800é 海\n\tb", "c", "d")
    assert error.received == "a\\x1b[31m\\x00\\u202e\\ud800é 海\n\tb"
    str(error).encode()
    long = InputError("begin" + "x" * 10**6 + "end", "b", "c").received
    assert len(long) <= MOST_CHARACTERS
    assert long.startswith("beginx")
    assert long.endswith("xend")
