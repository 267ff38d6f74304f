"""Items and lines -> rows; answers without padding; what is refused."""

import io

import numpy as np
import pytest
from served_models import metadata_of

from bert_tf.errors import InputError
from bert_tf.serving import rows
from bert_tf.serving.rows import RowReader, answers_of

SINGLE = metadata_of(text=[None])
PAIR = metadata_of(question=[None], context=[None])
CHOICE = metadata_of(context=[None], endings=[None, None])


@pytest.mark.parametrize(
    ("metadata", "item", "row"),
    [
        (SINGLE, "é", {"text": b"\xc3\xa9"}),
        (SINGLE, b"\xff", {"text": b"\xff"}),
        (SINGLE, ["a"], {"text": b"a"}),
        (SINGLE, {"text": "a", "id": 7, "title": "b", "text_b": None, 3: 4}, {"text": b"a"}),
        (SINGLE, "\ud800", {"text": "\U0010ffff".encode()}),
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
        (SINGLE, {"text": "a", "text_b": "b"}, "item 4 with text_b, another text"),
        (PAIR, {"question": "q", "context": "c", "Text": "t", "sentence": "s"},
         "item 4 with Text and sentence, another text"),
        (SINGLE, {"text": 5.5}, "item 4, text: 5.5 (float)"),
        (PAIR, "a", "item 4: 'a' (str)"),
        (PAIR, {}, "item 4 without question and context, with no key"),
        (CHOICE, ("a", "b"), "item 4, endings: 'b' (str)"),
        (CHOICE, ("a", ["b", 3]), "item 4, endings: ['b', 3] (list)"),
        (PAIR, "x" * 99, f"item 4: '{'x' * 59} (str)"),
    ],
)  # fmt: skip
def test_what_is_no_item_is_named(metadata, item, received):
    with pytest.raises(InputError) as caught:
        RowReader(metadata).read(item, "item 4")
    assert caught.value.received == received
    assert ("pairs=True" in caught.value.remedy) == (metadata is SINGLE)
    if metadata is CHOICE:
        forms = '{"context": "...", "endings": ["...", "..."]}'
        assert caught.value.expected == forms


# ---------------------------------------------------------------------------- answers


def test_answers_are_plain_and_without_padding():
    words = {
        "words": np.array([[b"caf\xc3\xa9", b"a"], [b"b", b""]], object),
        "labels": np.array([[b"O", b"P"], [b"P", b""]], object),
        "probabilities": np.array([[0.9, 0.1], [1 / 3, 0]], np.float32),
        "starts": np.array([[0, 5], [0, -1]], np.int32),
        "ends": np.array([[4, 6], [1, -1]], np.int32),
        "num_words": np.array([2, 1], np.int32),
    }
    assert answers_of(words) == [
        {"words": ["café", "a"], "labels": ["O", "P"], "probabilities": [0.9, 0.1],
         "starts": [0, 5], "ends": [4, 6], "num_words": 2},
        {"words": ["b"], "labels": ["P"], "probabilities": [0.33333334], "starts": [0],
         "ends": [1], "num_words": 1},
    ]  # fmt: skip
    best = {
        "nbest_answers": np.array([[b"a", b"", b""], [b"", b"b", b"c"], [b""] * 3], object),
        "nbest_probabilities": np.array([[0.6, 0.4, 0], [0.5, 0.5, 0], [0] * 3], np.float32),
        "nbest_starts": np.array([[2, -1, -1], [-1, 3, 4], [-1] * 3], np.int32),
        "nbest_ends": np.array([[3, -1, -1], [-1, 4, 5], [-1] * 3], np.int32),
    }
    found = answers_of(best)
    assert [row["nbest_answers"] for row in found] == [["a", ""], ["", "b", "c"], []]
    assert [len(row["nbest_ends"]) for row in found] == [2, 3, 0]
    masks = {
        "pieces": np.array([[[b"a", b"b"], [b"", b""]]], object),
        "probabilities": np.array([[[0.5, 0.25], [0, 0]]], np.float32),
        "num_masks": np.array([1], np.int32),
    }
    wanted = {"pieces": [["a", "b"]], "probabilities": [[0.5, 0.25]], "num_masks": 1}
    assert answers_of(masks) == [wanted]


# ---------------------------------------------------------------------------- lines


def read(content: bytes, metadata: dict, input_format: str) -> list:
    lines = rows.lines_of(io.BytesIO(content), "the file")
    found = rows.read_items(lines, metadata, input_format=input_format, name="the file")
    return [item for _, item in found]


@pytest.mark.parametrize(
    ("content", "metadata", "input_format", "items"),
    [
        (b"\xef\xbb\xbfa\r\n\n b\tc \nd\rd", SINGLE, "text", ["a", "", " b\tc ", "d\rd"]),
        (b"q\tc\n\t\n", PAIR, "tsv", [{"question": "q", "context": "c"},
                                     {"question": "", "context": ""}]),
        (b"a\tb\tc\n", CHOICE, "tsv", [{"context": "a", "endings": ["b", "c"]}]),
        (b'"a"\n{"text": "b"}\n', SINGLE, "jsonl", ["a", {"text": "b"}]),
    ],
)  # fmt: skip
def test_every_line_is_an_item(content, metadata, input_format, items):
    assert read(content, metadata, input_format) == items


@pytest.mark.parametrize(
    ("content", "metadata", "input_format", "received", "expected"),
    [
        (b"a\n\xff\n", SINGLE, "text", "2: bytes that are not UTF-8 (b'\\xff", "text in UTF-8"),
        (b"a\tb\n", SINGLE, "tsv", "1: 'a\\tb' (2 columns)", "with tabs between: text"),
        (b"a\n", CHOICE, "tsv", "1: 'a' (1 column)",
         "with tabs between: context, endings"),
        (b'"a"\n\n', SINGLE, "jsonl", "2: ''", 'JSON with each key once, such as {"text": "'),
        (b"[" * 200_000, SINGLE, "jsonl", "1: '[[", "JSON "),
        (b'{"text": "a", "text": "b"}', SINGLE, "jsonl", "1: '{\"text\": \"a\"", "JSON "),
    ],
)  # fmt: skip
def test_a_line_that_is_none_is_named(content, metadata, input_format, received, expected):
    with pytest.raises(InputError) as caught:
        read(content, metadata, input_format)
    assert caught.value.received.startswith(f"the file, line {received}")
    assert caught.value.expected.startswith(expected)


def test_the_format_is_known_by_the_ending():
    names = ("a.tsv", "a.csv", "a.jsonl", "a.json", "a.txt", None)
    for metadata, others in ((SINGLE, "text"), (PAIR, "tsv"), (CHOICE, "tsv")):
        found = [rows.format_of(name, metadata) for name in names]
        assert found == ["tsv", "csv", "jsonl", "jsonl", others, others]


def test_texts_are_found_in_the_columns_of_training(tmp_path):
    trained = SINGLE | {"columns": ["headline"]}
    columns = rows.columns_of(trained)
    assert columns == {"text": "headline"}
    assert [*rows.columns_of(PAIR | {"columns": ["headline"]}).values()] == ["question", "context"]
    (tmp_path / "csv").write_bytes(b'\xef\xbb\xbfid,headline\n7,"a, ""b""\nc"\n8,\n')
    (tmp_path / "tsv").write_bytes(b"\xef\xbb\xbfheadline\nd\n")
    assert list(rows.read_table(path := str(tmp_path / "csv"), columns, "csv")) == [
        (f"{path}, line 2", {"id": "7", "text": 'a, "b"\nc'}),
        (f"{path}, line 4 (row 3)", {"id": "8", "text": ""}),
    ]
    assert rows.is_table(str(tmp_path / "tsv"), columns)
    assert not rows.is_table(str(tmp_path / "tsv"), rows.columns_of(SINGLE))
    with pytest.raises(InputError, match=r"the columns 'id | headline', expected .*'title'"):
        list(rows.read_table(str(tmp_path / "csv"), rows.columns_of(SINGLE, ["title"]), "csv"))
    lines = ['{"headline": "e", "id": 9}\n', '{"text": "f"}\n', '{"text": "f", "headline": "g"}']
    told = {"input_format": "jsonl", "name": "x", "columns": columns}
    assert list(rows.read_items(lines, trained, **told)) == [
        ("x, line 1", {"id": 9, "text": "e"}), ("x, line 2", {"text": "f"}),
        ("x, line 3", {"text": "g"}),  # as of a table with both
    ]  # fmt: skip


def test_files_without_a_header_are_read_by_position_as_in_training(tmp_path):
    one, two = SINGLE | {"columns": [2]}, PAIR | {"columns": [3, 0]}
    content = 'good\t7\tA "b".\tC\nbad\t8\tD\tE\n'
    (path := tmp_path / "a.tsv").write_text(content)
    for metadata, texts in (
        (one, [{"text": 'A "b".'}, {"text": "D"}]),
        (two, [{"question": "C", "context": "good"}, {"question": "E", "context": "bad"}]),
    ):
        columns = rows.columns_of(metadata, (None, None))
        assert rows.is_table(str(path), columns)
        table = list(rows.read_table(str(path), columns, "tsv"))
        assert table == [(f"{path}, line {n}", text) for n, text in enumerate(texts, 1)]
    (tmp_path / "a.csv").write_text('x,"a, b",y\nz,c,\n')
    columns = rows.columns_of(one, ("1", None))
    found = rows.read_table(str(tmp_path / "a.csv"), columns, "csv")
    assert [item for _, item in found] == [{"text": "a, b"}, {"text": "c"}]
    assert rows.columns_of(one, ("body",)) == {"text": "body"}  # of a file with a header
    path.write_text("A text.\nB\n")  # the texts alone
    assert not rows.is_table(str(path), rows.columns_of(one))
    path.write_text("label\tn\ttext\tmore\n" + content)
    with pytest.raises(InputError, match=r"line 1: 'text', a header"):
        list(rows.read_table(str(path), rows.columns_of(one), "tsv"))


@pytest.mark.parametrize(
    ("metadata", "first"),
    [
        (SINGLE, "Sentence"), (SINGLE, "\ufeffcomment\r"), (PAIR, "sentence1\tsentence2"),
        (PAIR, "premise\tsomething else"), (SINGLE | {"columns": ["body"]}, "text"),
        (SINGLE, "index\tsentence\tlabel"),
    ],
)  # fmt: skip
def test_a_header_with_other_names_is_no_row(tmp_path, metadata, first):
    (path := tmp_path / "a.tsv").write_text(f"{first}\nA\tB\n")
    with pytest.raises(InputError, match=r"line 1: .* a header") as caught:
        rows.is_table(str(path), rows.columns_of(metadata))
    assert "--text_a_column" in caught.value.remedy


def test_a_column_is_of_the_text_for_which_it_is_given():
    assert rows.columns_of(PAIR, ("q", None)) == {"question": "q", "context": "context"}
    assert rows.columns_of(PAIR, (None, "c")) == {"question": "question", "context": "c"}
    trained = PAIR | {"columns": ["a", "b"]}
    assert rows.columns_of(trained, ("", "c")) == {"question": "a", "context": "c"}
    refused = ((SINGLE, (None, "b")), (SINGLE, ("a", "b")), (trained, ("b", None)))
    for metadata, given in (*refused, (CHOICE, ("a", None)), (CHOICE, (None, "b"))):
        with pytest.raises(InputError, match="correct --text_a_column and --text_b_column"):
            rows.columns_of(metadata, given)


def test_a_line_of_json_without_the_column_that_is_given():
    columns = rows.columns_of(SINGLE, ("body", None))
    told = {"input_format": "jsonl", "name": "x", "columns": columns, "has_columns": True}
    for line in ('{"text": "b"}', '"b"', '["b"]', "{}", '{"Body": "b", "text": "c"}'):
        items = rows.read_items(['{"body": "a", "id": 3}\n', line], SINGLE, **told)
        assert next(items) == ("x, line 1", {"id": 3, "text": "a"})
        with pytest.raises(InputError, match=r"x, line 2: .*without body.*\n.*\{\"body\": "):
            next(items)


WORDS = SINGLE | {"task": "token_labels", "options": {"labels": ["O", "B-LOC", "I-LOC"]}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("EU NNP B-LOC\nsays VBZ O\n", "conll"),
        ("-DOCSTART- -X- -X- O\n\nNew\tS-LOC\n\nin\tO\n", "conll"),  # in any scheme
        ("\n\nYork E-LOC\r\nin O\r\n", "conll"),
        ("York b-LOC\nis o\n", "conll"),
        ("New B_LOC\nYork I_LOC\n", "conll"),
        ("I live in York.\nHe does not\n", "text"),
        ("Vitamin B-12\nMy blood type is O\n", "text"),
        ("My blood type is O", "text"),
        ("Rome\nO\n", "text"),
        ("", "text"),
    ],
)
def test_words_with_tags_are_no_lines_of_text(tmp_path, content, expected):
    (tmp_path / "test.txt").write_text(content)
    (tmp_path / "a.conll").write_text(content)
    assert rows.format_of(str(tmp_path / "test.txt"), WORDS) == expected
    assert rows.format_of(str(tmp_path / "test.txt"), SINGLE) == "text"
    assert rows.format_of(str(tmp_path / "a.conll"), WORDS) == "conll"
    if expected == "conll":
        found = rows.read_table(str(tmp_path / "test.txt"), rows.columns_of(WORDS), "conll")
        words = [line.split()[0] for line in content.split("\n") if line.strip()]
        joined = " ".join(item["text"] for _, item in found)
        assert joined == " ".join(word for word in words if word != "-DOCSTART-")


def test_lines_are_those_of_the_file_and_counted(tmp_path):
    (tmp_path / "in").write_bytes(content := b"a\n\nb\r\nc\rd")
    lines = ["a\n", "\n", "b\r\n", "c\rd"]
    assert list(rows.lines_of(io.BytesIO(content), "in")) == lines
    assert rows.num_lines(str(tmp_path / "in")) == 4
    assert rows.num_lines("gs://nowhere/in") is None
