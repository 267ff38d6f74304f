"""Items and lines -> rows; answers without padding; what is refused."""

import io
import types

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
        (PAIR, "x" * 99, f"item 4: '{'x' * 57}...' (str)"),
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


# ---------------------------------------------------------------------------- files

WORDS = SINGLE | {"task": "token_labels", "options": {"labels": ["O", "B-LOC", "I-LOC"]}}


def read(path, metadata: dict, **options) -> list:
    """The items of a file; raises the first flaw."""
    items = []
    for question in rows.read_questions(str(path), metadata, **options).rows:
        if question.flaw:
            raise question.flaw
        items.append(question.item)
    return items


FILES = {  # content, metadata, its items, whatever the file is called
    "texts": (b"\xef\xbb\xbfa\r\n\n b\tc \nd\rd", SINGLE, ["a", "", " b\tc ", "d\rd"]),
    "pairs": (b"q\tc\n\t\n", PAIR, [{"question": "q", "context": "c"},
                                     {"question": "", "context": ""}]),
    "endings": (b"a\tb\tc\n", CHOICE, [{"context": "a", "endings": ["b", "c"]}]),
    "JSON": (b'"a"\n{"text": "b"}\n', SINGLE, ["a", {"text": "b"}]),
    "a list in JSON": (b'[{"text": "a"},\n {"text": "b", "id": 3}]\n', SINGLE,
                       [{"text": "a"}, {"text": "b", "id": 3}]),
    "csv": (b'id,text\n7,"a, ""b""\nc"\n8,\n', SINGLE,
            [{"id": "7", "text": 'a, "b"\nc'}, {"id": "8", "text": ""}]),
    "csv of a column": (b'text\n"a, b"\nc\n', SINGLE, [{"text": "a, b"}, {"text": "c"}]),
    "tsv": (b'text\tlabel\nsay "a"\tx\n"b" c\ty\n', SINGLE,
            [{"text": 'say "a"'}, {"text": '"b" c'}]),
    "tsv of pandas": (b'text\tlabel\n"say ""a"""\tx\n"b\tc"\ty\n', SINGLE,
                      [{"text": 'say "a"'}, {"text": "b\tc"}]),
    "a pair in bars": (b"context|question\nc|q\n", PAIR, [{"question": "q", "context": "c"}]),
    "semicolons of Excel": (b"sep=;\r\ntext;n\r\na,b;1\r\n;\r\n;\r\n", SINGLE,
                            [{"text": "a,b"}]),
    "sentences": (b"New B-LOC\nYork I-LOC\n\nin O\n", WORDS,
                  [{"text": "New York"}, {"text": "in"}]),
}  # fmt: skip


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tsv", "a.jsonl", "a"])
@pytest.mark.parametrize("case", FILES)
def test_the_content_shows_the_format(tmp_path, case, name):
    content, metadata, items = FILES[case]
    (tmp_path / name).write_bytes(content)
    if name in ("a.csv", "a.tsv") and case in ("pairs", "endings", "texts"):
        return  # seems to be a table without the columns: refused below
    assert read(tmp_path / name, metadata) == items


@pytest.mark.parametrize("case", ["csv", "tsv", "pairs", "texts", "JSON"])
def test_a_pipe_is_answered_line_by_line(monkeypatch, case):
    """The next line is asked for only when the one before was taken."""
    content, metadata, items = FILES[case]
    given = []

    class Pipe(io.BytesIO):
        def fileno(self):
            raise OSError

        def readline(self, size=-1):
            line = super().readline(size)
            given.append(line)
            return line

    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=Pipe(content)))
    questions = rows.read_questions(None, metadata)
    assert len(given) <= 1
    first = next(questions.rows)
    assert first.item == items[0]
    has_header = case in ("csv", "tsv")
    lines_of_first = 2 if case == "csv" else 1
    assert len(given) == has_header + lines_of_first
    assert [question.item for question in questions.rows] == items[1:]


@pytest.mark.parametrize(
    ("content", "metadata", "input_format", "received", "expected"),
    [
        (b"a\n\xff\n", SINGLE, "text", "2: bytes that are not UTF-8 (b'\\xff", "text in UTF-8"),
        (b"a\n", CHOICE, "tsv", "1: 'a' (1 column)", "with tabs between: context, endings"),
        (b'"a"\n\n', SINGLE, "jsonl", "2: ''", "a JSON object with each key once, such as {"),
        (b"[" * 200_000, SINGLE, "jsonl", "1: '[[", "a JSON object "),
        (b'{"text": "a", "text": "b"}', SINGLE, None, "1: '{\"text\": \"a\"", "a JSON object "),
    ],
)  # fmt: skip
def test_a_line_that_is_none_is_named(
    tmp_path, content, metadata, input_format, received, expected
):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(tmp_path / "a", metadata, input_format=input_format)
    assert caught.value.received.startswith(f"{tmp_path / 'a'}, line {received}")
    assert caught.value.expected.startswith(expected)


def test_texts_are_found_in_the_columns_of_training(tmp_path):
    trained = SINGLE | {"columns": ["headline"]}
    columns = rows.columns_of(trained)
    assert columns == {"text": "headline"}
    assert [*rows.columns_of(PAIR | {"columns": ["headline"]}).values()] == ["question", "context"]
    (path := tmp_path / "csv").write_bytes(b'\xef\xbb\xbfid,headline\n7,"a\nc"\n8,\n')
    found = rows.read_questions(str(path), trained)
    assert found.table.names == ["id", "headline"]
    assert [(question.place, question.item) for question in found.rows] == [
        (f"{path}, line 2", {"id": "7", "text": "a\nc"}),
        (f"{path}, line 4 (row 3)", {"id": "8", "text": ""}),
    ]
    with pytest.raises(InputError, match=r"the columns 'id | headline', expected .*'title'"):
        read(path, SINGLE, given=["title"])
    lines = '{"headline": "e", "id": 9}\n{"text": "f"}\n{"text": "f", "headline": "g"}'
    path.write_text(lines)
    # The last one as of a table with both.
    assert read(path, trained) == [{"id": 9, "text": "e"}, {"text": "f"}, {"text": "g"}]


def test_files_without_a_header_are_read_by_position_as_in_training(tmp_path):
    one, two = SINGLE | {"columns": [2]}, PAIR | {"columns": [3, 0]}
    content = 'good\t7\tA "b".\tC\nbad\t8\tD\tE\n'
    (path := tmp_path / "a.tsv").write_text(content)
    for metadata, texts in (
        (one, [{"text": 'A "b".'}, {"text": "D"}]),
        (two, [{"question": "C", "context": "good"}, {"question": "E", "context": "bad"}]),
    ):
        assert read(path, metadata, given=(None, None)) == texts
    (tmp_path / "a.csv").write_text('x,"a, b",y\nz,c,\n')
    found = read(tmp_path / "a.csv", one, given=("1", None))
    assert found == [{"text": "a, b"}, {"text": "c"}]
    assert rows.columns_of(one, ("body",)) == {"text": "body"}  # of a file with a header
    path.write_text("A text.\nB\n")  # the texts alone
    assert read(path, one) == ["A text.", "B"]
    path.write_text("label\tn\ttext\tmore\n" + content)
    with pytest.raises(InputError, match=r"line 1: 'text', a header"):
        read(path, one)


@pytest.mark.parametrize(
    ("metadata", "first"),
    [
        (SINGLE, "Sentence"), (SINGLE, "\ufeffcomment\r"), (PAIR, "sentence1\tsentence2"),
        (PAIR, "premise\tsomething else"), (SINGLE | {"columns": ["body"]}, "text"),
        (SINGLE, "index\tsentence\tlabel"), (SINGLE, "nr;Text"), (SINGLE, "Text"),
        (SINGLE, "nr,texts"),
    ],
)  # fmt: skip
def test_a_header_with_other_names_is_no_row(tmp_path, metadata, first):
    (path := tmp_path / "a").write_text(f"{first}\nA\tB\n")
    with pytest.raises(InputError, match=r"line 1: .*a header") as caught:
        read(path, metadata)
    assert "--text_a_column" in caught.value.remedy
    if "ext" in first and metadata is SINGLE:
        assert "did you mean" in caught.value.expected


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_table_of_unknown_columns_is_no_text(tmp_path, separator):
    """Answered line by line, every answer would be wrong."""
    lines = [f"name{n}{separator}{n}\n" for n in range(12)]
    (path := tmp_path / "a.txt").write_text("".join(lines))
    with pytest.raises(InputError, match="a header or a row of a table") as caught:
        read(path, SINGLE)
    assert "--input_format=text" in caught.value.remedy
    assert len(read(path, SINGLE, input_format="text")) == 12
    path.write_text("".join(lines[:3]))  # too few to tell
    assert len(read(path, SINGLE)) == 3
    path.rename(tmp_path / "a.csv")
    with pytest.raises(InputError, match="a header or a row of a table"):
        read(tmp_path / "a.csv", SINGLE)


def test_a_column_is_of_the_text_for_which_it_is_given():
    assert rows.columns_of(PAIR, ("q", None)) == {"question": "q", "context": "context"}
    assert rows.columns_of(PAIR, (None, "c")) == {"question": "question", "context": "c"}
    trained = PAIR | {"columns": ["a", "b"]}
    assert rows.columns_of(trained, ("", "c")) == {"question": "a", "context": "c"}
    refused = ((SINGLE, (None, "b")), (SINGLE, ("a", "b")), (trained, ("b", None)))
    for metadata, given in (*refused, (CHOICE, ("a", None)), (CHOICE, (None, "b"))):
        with pytest.raises(InputError, match="correct --text_a_column and --text_b_column"):
            rows.columns_of(metadata, given)


def test_a_line_of_json_without_the_column_that_is_given(tmp_path):
    path = tmp_path / "a"
    for line in ('{"text": "b"}', '"b"', '["b"]', "{}", '{"Body": "b", "text": "c"}'):
        path.write_text('{"body": "a", "id": 3}\n' + line)
        first, second = rows.read_questions(str(path), SINGLE, given=("body", None)).rows
        assert first.item == {"id": 3, "text": "a"}
        assert f"{path}, line 2: " in second.flaw.received


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
    (path := tmp_path / "test.txt").write_text(content)
    assert rows.read_questions(str(path), WORDS).table.format.kind == expected
    assert rows.read_questions(str(path), SINGLE).table.format.kind == "text"
    if expected == "conll":
        words = [line.split()[0] for line in content.split("\n") if line.strip()]
        joined = " ".join(item["text"] for item in read(path, WORDS))
        assert joined == " ".join(word for word in words if word != "-DOCSTART-")


def test_a_row_that_is_too_wide_keeps_its_cells(tmp_path):
    """It comes back as it was where bad rows are skipped."""
    (path := tmp_path / "a.csv").write_text("text,id\nw1,1\nw1 w2,x,KEEP\n")
    questions = rows.read_questions(str(path), SINGLE | {"task": "classification"})
    good, bad = questions.rows
    assert (good.cells, bad.cells) == (["w1", "1"], ["w1 w2", "x", "KEEP"])
    assert bad.flaw is not None
