"""Items and lines -> rows; answers without padding; what is refused."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from served_models import metadata_of

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.serving import rows
from bert_tf.serving.rows import RowReader, answers_of

SINGLE = metadata_of(text=[None])
PAIR = metadata_of(question=[None], context=[None])
CHOICE = metadata_of(context=[None], endings=[None, None])


# ---------------------------------------------------------------------------- items


@pytest.mark.parametrize(
    ("metadata", "item", "row"),
    [
        (SINGLE, "é", {"text": b"\xc3\xa9"}),
        (SINGLE, b"\xff", {"text": b"\xff"}),
        (SINGLE, ["a"], {"text": b"a"}),
        (SINGLE, {"text": "a", "id": 7, "title": "b", "text_b": None, 3: 4}, {"text": b"a"}),
        (SINGLE, "\ud800", {"text": "\U0010ffff".encode()}),
        (PAIR, ("a", ""), {"question": b"a", "context": b""}),
        (PAIR, {"context": "c", "question": "q"}, {"question": b"q", "context": b"c"}),
        (CHOICE, ("a", ["b", "c"]), {"context": b"a", "endings": [b"b", b"c"]}),
    ],
)
def test_items_are_read(metadata, item, row):
    assert RowReader(metadata).read(item, "item 1") == row


@pytest.mark.parametrize(
    ("metadata", "item", "received"),
    [
        (SINGLE, 5, "item 4: 5 (int)"),
        (SINGLE, None, "item 4: None (NoneType)"),
        (SINGLE, ["a", "b"], "item 4: ['a', 'b'] (list)"),
        (SINGLE, {"txt": "a"}, "item 4 without text, with txt"),
        (SINGLE, {"text": "a", "text_b": "b"}, "item 4 with text_b, another text"),
        (PAIR, {"question": "q", "context": "c", "Text": "t", "sentence": "s"},
         "item 4 with Text and sentence, another text"),
        (SINGLE, {"text": 5.5}, "item 4, text: 5.5 (float)"),
        (PAIR, "a", "item 4: 'a' (str)"),
        (PAIR, {}, "item 4 without question and context, with no key"),
        (PAIR, {"question": "q"}, "item 4 without context, with question"),
        (PAIR, ("a", ["b"]), "item 4, context: ['b'] (list)"),
        (CHOICE, ("a", "b"), "item 4, endings: 'b' (str)"),
        (CHOICE, ("a", []), "item 4, endings: [] (list)"),
        (CHOICE, ("a", ["b", 3]), "item 4, endings with 3 (int)"),
        (PAIR, "x" * 99, f"item 4: '{'x' * 59}... (str)"),
    ],
)  # fmt: skip
def test_what_is_no_item_is_named(metadata, item, received):
    with pytest.raises(InputError) as caught:
        RowReader(metadata).read(item, "item 4")
    assert caught.value.received == received


def test_the_error_says_what_is_expected():
    with pytest.raises(InputError) as caught:
        RowReader(CHOICE).read(1, "item 1")
    forms = '("...", ["...", "..."]) or {"context": "...", "endings": ["...", "..."]}'
    assert caught.value.expected == forms


@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_any_text_keeps_its_code_points(text):
    row = RowReader(SINGLE).read(text, "item 1")
    assert len(row["text"].decode()) == len(text)


# ---------------------------------------------------------------------------- answers


def test_answers_are_plain_and_without_padding():
    outputs = {
        "words": np.array([[b"caf\xc3\xa9", b"a"], [b"b", b""]], object),
        "labels": np.array([[b"O", b"P"], [b"P", b""]], object),
        "probabilities": np.array([[0.9, 0.1], [1 / 3, 0]], np.float32),
        "starts": np.array([[0, 5], [0, -1]], np.int32),
        "ends": np.array([[4, 6], [1, -1]], np.int32),
        "num_words": np.array([2, 1], np.int32),
    }
    first, second = answers_of(outputs, "token_labels")
    assert first == {
        "words": ["café", "a"],
        "labels": ["O", "P"],
        "probabilities": [0.9, 0.1],
        "starts": [0, 5],
        "ends": [4, 6],
        "num_words": 2,
    }
    assert second["words"] == ["b"]
    assert second["probabilities"] == [0.33333334]
    assert np.float32(second["probabilities"][0]) == np.float32(1 / 3)
    assert second["ends"] == [1]


def test_what_is_not_among_the_best_is_left_out():
    outputs = {
        "nbest_answers": np.array([[b"a", b"", b""], [b"", b"b", b"c"], [b""] * 3], object),
        "nbest_probabilities": np.array([[0.6, 0.4, 0], [0.5, 0.5, 0], [0] * 3], np.float32),
        "nbest_starts": np.array([[2, -1, -1], [-1, 3, 4], [-1] * 3], np.int32),
        "nbest_ends": np.array([[3, -1, -1], [-1, 4, 5], [-1] * 3], np.int32),
    }
    found = answers_of(outputs, "question_answering")
    assert [row["nbest_answers"] for row in found] == [["a", ""], ["", "b", "c"], []]
    assert [len(row["nbest_ends"]) for row in found] == [2, 3, 0]


def test_masks_without_padding():
    outputs = {
        "pieces": np.array([[[b"a", b"b"], [b"", b""]]], object),
        "probabilities": np.array([[[0.5, 0.25], [0, 0]]], np.float32),
        "num_masks": np.array([1], np.int32),
    }
    (found,) = answers_of(outputs, "fill_mask")
    assert found == {"pieces": [["a", "b"]], "probabilities": [[0.5, 0.25]], "num_masks": 1}


# ---------------------------------------------------------------------------- lines


def read(content: bytes, metadata: dict, input_format: str) -> list:
    stream = content.splitlines(keepends=True)
    return list(rows.read_items(stream, metadata, input_format=input_format, name="the file"))


def test_every_line_is_an_item():
    assert read(b"\xef\xbb\xbfa\r\n\n b\tc \nd", SINGLE, "text") == ["a", "", " b\tc ", "d"]
    assert read(b"q\tc\n\t\n", PAIR, "tsv") == [
        {"question": "q", "context": "c"},
        {"question": "", "context": ""},
    ]
    assert read(b"a\tb\tc\n", CHOICE, "tsv") == [{"context": "a", "endings": ["b", "c"]}]
    assert read(b'"a"\n{"text": "b"}\n', SINGLE, "jsonl") == ["a", {"text": "b"}]


@pytest.mark.parametrize(
    ("content", "metadata", "input_format", "received", "expected"),
    [
        (b"a\n\xff\n", SINGLE, "text", "2: bytes that are not UTF-8 (b'\\xff", "text in UTF-8"),
        (b"a\tb\n", SINGLE, "tsv", "1: b'a\\tb' (2 columns)",
         "1 column, as this model takes one text (text)"),
        (b"a\n", PAIR, "tsv", "1: b'a' (1 column)", "question and context, with tabs between"),
        (b"a\tb\na\tb\tc\n", PAIR, "tsv", "2: b'a\\tb\\tc' (3 columns)", "question and context, "),
        (b"a\n", CHOICE, "tsv", "1: b'a' (1 column)",
         "context, then each of the endings, with tabs between"),
        (b'"a"\n\n', SINGLE, "jsonl", "2: b''", 'JSON with each key once, such as {"text": "'),
        (b"[" * 200_000, SINGLE, "jsonl", "1: b'[[", "JSON "),
        (b'{"text": "a", "text": "b"}', SINGLE, "jsonl", "1: b'{\"text\": \"a\"", "JSON "),
    ],
)  # fmt: skip
def test_a_line_that_is_none_is_named(content, metadata, input_format, received, expected):
    with pytest.raises(InputError) as caught:
        read(content, metadata, input_format)
    assert caught.value.received.startswith(f"the file, line {received}")
    assert caught.value.expected.startswith(expected)


def test_the_format_is_known_by_the_ending():
    assert rows.format_of("a.tsv", SINGLE) == "tsv"
    assert rows.format_of("a.jsonl", PAIR) == rows.format_of("a.json", SINGLE) == "jsonl"
    assert rows.format_of("a.txt", SINGLE) == rows.format_of(None, SINGLE) == "text"
    assert rows.format_of(None, PAIR) == rows.format_of("a.txt", CHOICE) == "tsv"
    with pytest.raises(InputError, match=r"a\.csv without --input_format"):
        rows.format_of("a.csv", SINGLE)


@pytest.mark.parametrize("read_bytes", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"a", b"a\n\nb", b"one\rtwo\r\n\r\nthree\r", b"x" * 23 + b"\n\n" + b"y" * 9],
)
def test_lines_of_a_file_are_those_of_a_stream(tmp_path, monkeypatch, content, read_bytes):
    monkeypatch.setattr(files, "READ_BYTES", read_bytes)
    (tmp_path / "in").write_bytes(content)
    found = list(files.read_lines(str(tmp_path / "in")))
    assert found == list(rows.lines_of(io.BytesIO(content), "in"))


def test_a_carriage_return_inside_a_line_is_text(tmp_path):
    (tmp_path / "in").write_bytes(b"one\rtwo\r\n\r\nthree")
    found = files.read_lines(str(tmp_path / "in"))
    items = rows.read_items(found, SINGLE, input_format="text", name="in")
    assert list(items) == ["one\rtwo", "", "three"]


def test_a_line_that_is_too_long_is_refused_before_it_is_read():
    class Endless:
        """A stream without a line end, which counts what is read of it."""

        taken = 0

        def readline(self, size):
            self.taken += size
            return b"x" * size

    stream = Endless()
    with pytest.raises(InputError, match=rf"it, line 1, .* longer than {files.LONGEST_LINE} bytes"):
        list(rows.lines_of(stream, "it"))
    assert stream.taken <= files.LONGEST_LINE + files.READ_BYTES
