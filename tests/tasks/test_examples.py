"""Files of all formats -> examples; whatever is wrong with one is said with file and line."""

import json
import logging
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import ANY, CSV, HEADER, JSONL, PAIR, TAGS, TWO

from bert_tf.errors import InputError
from bert_tf.heads.labels import Labels
from bert_tf.tasks.examples import (
    NONE,
    OPTIONAL,
    ChoiceColumns,
    ChoiceExample,
    Example,
    TextColumns,
    WordColumns,
)

SCORES = Labels(head="regression", limits=(0.0, 5.0))
NUMBERS, SETS = Labels(head="regression"), Labels(head="multi_label")
IDS = TextColumns(text_a="t", label="l", id="i", id_required=True, file_format="jsonl")
NO_HEADER = TextColumns(text_a=2, label=0)


# ------------------------------------------------------------------------------ what is read


def test_tsv(write):
    path = write(HEADER + "7\tA cat.\tA dog.\tgood\n8\tA\tB\tbad\n")
    assert PAIR.read(path, TWO) == [
        Example("7", "A cat.", "A dog.", "good"),
        Example("8", "A", "B", "bad"),
    ]


def test_jsonl_with_labels_of_all_kinds(write):
    rows = [{"text": "a", "label": 1, "id": 5}, {"id": 6, "label": "x", "text": "b", "more": []}]
    rows.append({"text": "c", "label": True, "id": 9})
    path = write("\n".join(map(json.dumps, rows)), "train.jsonl")
    layout = TextColumns(text_a="text", label="label", id="id", file_format="jsonl")
    assert [(e.guid, e.label) for e in layout.read(path, ANY)] == [
        ("5", "1"),
        ("6", "x"),
        ("9", "true"),
    ]


def test_jsonl_with_several_labels(write):
    path = write(
        '{"t": "a", "l": ["y", "x"]}\n{"t": "b", "l": []}\n{"t": "c", "l": "x|z"}', "a.jsonl"
    )
    layout = TextColumns(text_a="t", label="l", file_format="jsonl")
    examples = layout.read(path, Labels(head="multi_label", separator="|"))
    assert [e.label for e in examples] == [("y", "x"), (), ("x", "z")]


def test_scores(write):
    path = write(HEADER + "1\tA\tB\t4.250\n2\tA\tC\t0\n")
    assert [e.label for e in PAIR.read(path, SCORES)] == [4.25, 0.0]


def test_labels_of_test_data(write):
    without = write("id\tfirst\tsecond\n1\tA\tB\n")
    assert PAIR.read(without, TWO, labelled=NONE) == [Example("1", "A", "B")]
    assert PAIR.read(without, TWO, labelled=OPTIONAL) == [Example("1", "A", "B")]
    given_ = write(HEADER + "1\tA\tB\tgood\n2\tC\tD\t\n")
    assert [e.label for e in PAIR.read(given_, TWO, labelled=OPTIONAL)] == ["good", None]
    placeholders = write(HEADER + "1\tA\tB\t-1\n")
    assert PAIR.read(placeholders, TWO, labelled=NONE)[0].label is None


def test_optional_labels_in_a_file_without_header(write):
    layout = TextColumns(text_a=0, label=1)
    assert layout.read(write("A\nB\n"), TWO, labelled=OPTIONAL)[1] == Example("1", "B")
    assert layout.read(write("A\tgood\n"), TWO, labelled=OPTIONAL)[0].label == "good"


def test_only_the_rows_with_a_value(write):
    layout = TextColumns(text_a="t", label="l", only=("language", "de"))
    path = write("language\tt\tl\nfr\tun\tx\nde\tein\ty\nde\tzwei\tx\n")
    assert [e.text_a for e in layout.read(path, ANY)] == ["ein", "zwei"]


def test_flawed_rows_of_published_files_are_left_out_where_they_are_labelled(write, caplog):
    layout = TextColumns(text_a="first", text_b="second", label="label", skip_flawed=True)
    path = write(
        HEADER + "1\tA\tB\tgood\n2\tA question that\n\tgoes on?\tbad\n3\tC\t\tbad\n4\tD\tE\tbad\n"
    )
    with caplog.at_level(logging.WARNING):
        assert [e.text_a for e in layout.read(path, TWO)] == ["A", "D"]
    assert "2 broken rows are left out, the first: " in caplog.text
    assert "train.tsv, line 3" in caplog.text
    assert "1 rows with an empty text are left out" in caplog.text
    assert "train.tsv, line 5" in caplog.text


def test_no_row_of_test_data_is_left_out(write):
    layout = TextColumns(text_a="first", text_b="second", label="label", skip_flawed=True)
    path = write("first\tsecond\nA\t\n\tB\n")
    assert layout.read(path, TWO, labelled=NONE) == [Example("0", "A", ""), Example("1", "", "B")]
    with pytest.raises(InputError, match="1 columns"):
        layout.read(write("first\tsecond\nA\n"), TWO, labelled=NONE)


def test_choices(write):
    layout = ChoiceColumns(text_a="context", start="start", endings=("e0", "e1"), label="l", id="")
    path = write(
        ",context,start,e0,e1,l\n3,It rains.,She,runs.,sings.,1\n4,He,,runs.,sits.,0\n", "a.csv"
    )
    labels = Labels(head="multiple_choice", names=("0", "1"))
    assert layout.read(path, labels) == [
        ChoiceExample("3", (("It rains.", "She runs."), ("It rains.", "She sings.")), "1"),
        ChoiceExample("4", (("He", "runs."), ("He", "sits.")), "0"),
    ]
    unlabelled = write(",context,start,e0,e1\n3,It rains.,She,runs.,sings.\n", "b.csv")
    assert layout.read(unlabelled, labels, labelled=OPTIONAL)[0].label is None


def test_a_label_that_is_nan_is_none_in_test_data(write):
    labels = (None, math.nan, "nan", "x")
    rows = [json.dumps({"text": "A", "label": label}) for label in labels]
    found = JSONL.read(write("\n".join(rows), "test.jsonl"), ANY, labelled=OPTIONAL)
    assert [example.label for example in found] == [None, None, None, "x"]


# ------------------------------------------------------------------------------ bad input

CHOICES = ChoiceColumns(text_a="c", start="s", endings=("e",), label="l")
ROW = "1\tA\tB\tgood\n"
BAD = {
    "too few columns": (PAIR, TWO, HEADER + ROW + "2\tA\tbad\n", 3, "3 columns: '2 | A | bad'"),
    "too many columns": (PAIR, TWO, HEADER + "2\tA\tB\tC\tbad\n", 2, "5 columns"),
    "too few columns, no header": (NO_HEADER, TWO, "good\t\tA\nbad\tB\n", 2, "2 columns"),
    "an empty line": (PAIR, TWO, HEADER + ROW + "\n2\tA\tB\tbad\n", 3, "an empty line"),
    "an unknown label": (PAIR, TWO, HEADER + ROW + "2\tA\tB\tBAD\n", 3, "the label 'BAD'"),
    "a label that is missing": (PAIR, TWO, HEADER + ROW + "2\tA\tB\t\n", 3, "no label"),
    "no column of labels": (PAIR, TWO, "id\tfirst\tsecond\n1\tA\tB\n", 1, "id | first | second"),
    "an empty text": (PAIR, TWO, HEADER + "2\t \tB\tbad\n", 2, "an empty text (text_a)"),
    "an empty second text": (PAIR, TWO, HEADER + ROW + "2\tA\t\tbad\n", 3, "empty text (text_b)"),
    "a header where none belongs": (NO_HEADER, TWO, "label\t\ttext\ngood\t\tA\n", 1, "a header"),
    "a header, any labels": (NO_HEADER, ANY, "Label\t\tsentence\ngood\t\tA\n", 1, "a header"),
    "the header again": (PAIR, TWO, HEADER + ROW + HEADER, 3, "the header again"),
    "a header of another kind": (NO_HEADER, ANY, "sentiment\t\treview\ngood\t\tA\n", 1, "a header"),
    "no header where one belongs": (PAIR, TWO, ROW + ROW, 1, "the columns '1 | A | B | good'"),
    "two columns of a name": (PAIR, TWO, "id\tfirst\tfirst\tsecond\tlabel\n", 1, "first | first"),
    "another separator": (PAIR, TWO, "id,first,second,label\n1,A,B,good\n", 1, "id,first,second"),
    "not UTF-8": (PAIR, TWO, (HEADER + ROW).encode() + b"2\tcaf\xe9\tB\tbad\n", 3, "not UTF-8"),
    "UTF-16": (PAIR, TWO, (HEADER + ROW).encode("utf-16"), 1, "not UTF-8"),
    "duplicate ids": (PAIR, TWO, HEADER + ROW + "2\tA\tB\tbad\n" + ROW, 4, "the id '1', which"),
    "NaN": (PAIR, SCORES, HEADER + "1\tA\tB\t3.2\n2\tA\tB\tNaN\n", 3, "the label 'NaN'"),
    "an endless score": (PAIR, SCORES, HEADER + "1\tA\tB\tinf\n", 2, "the label 'inf'"),
    "a score too high": (PAIR, SCORES, HEADER + "1\tA\tB\t5.1\n", 2, "the label '5.1'"),
    "no number": (PAIR, SCORES, HEADER + "1\tA\tB\tfour\n", 2, "the label 'four'"),
    "no rows": (PAIR, TWO, HEADER, 1, "no example"),
    "an empty file": (PAIR, TWO, "", 1, "the columns ''"),
    "an open quote": (CSV, TWO, 'text,label\nA,good\n"B,bad\nC,bad\n', 3, "no row of a CSV file"),
    "CSV, too few": (CSV, TWO, 'text,label\n"A\nA",good\nB\n', 4, "1 columns"),
    "no JSON": (JSONL, TWO, '{"text": "A", "label": "good"}\n{"text": \n', 2, "JSONDecodeError"),
    "no object": (JSONL, TWO, '["A", "good"]\n', 1, "(list)"),
    "a key that is missing": (JSONL, TWO, '{"text": "A"}\n', 1, "only the keys text"),
    "a text that is none": (JSONL, TWO, '{"text": 3, "label": "good"}\n', 1, "3 for text_a"),
    "a label that is null": (JSONL, TWO, '{"text": "A", "label": null}\n', 1, "no label"),
    "an empty ending": (CHOICES, ANY, "c\ts\te\tl\nA\tB\t\t0\n", 2, "an empty text (ending0)"),
    "a class that is a list": (JSONL, ANY, '{"text": "A", "label": ["x"]}\n', 1, "label ['x']"),
    "a class that is NaN": (JSONL, ANY, '{"text": "A", "label": NaN}\n', 1, "the label nan"),
    "NaN as text": (CSV, ANY, "text,label\nA,x\nB,NaN\n", 3, "the label 'NaN'"),
    "an id that is null": (IDS, ANY, '{"t": "A", "l": "x", "i": null}\n', 1, "None for the id"),
    "an id that is a list": (IDS, ANY, '{"t": "A", "l": "x", "i": [1]}\n', 1, "[1] for the id"),
    "an id in no Unicode": (IDS, ANY, '{"t": "A", "l": "x", "i": "\\ud800"}\n', 1, "for the id"),
    "a class in no Unicode": (IDS, ANY, '{"t": "A", "l": "\\ud800", "i": 1}\n', 1, "the label"),
    "a printed list": (CSV, SETS, "text,label\nA,\"['x', 'z']\"\n", 2, "['x', 'z']"),
    "a vector": (JSONL, SETS, '{"text": "A", "label": [0, 1, 0]}\n', 1, "the label [0, 1, 0]"),
    "a dict": (JSONL, SETS, '{"text": "A", "label": {"x": 1}}\n', 1, "the label {'x': 1}"),
    "twice": (JSONL, SETS, '{"text": "A", "label": ["x", "x"]}\n', 1, "the label ['x', 'x']"),
    "NaN among labels": (JSONL, SETS, '{"text": "A", "label": ["x", NaN]}\n', 1, "['x', nan]"),
    "digits with _": (PAIR, NUMBERS, HEADER + "1\tA\tB\t1_0\n", 2, "the label '1_0'"),
    "wide digits": (PAIR, NUMBERS, HEADER + "1\tA\tB\t１\n", 2, "the label '１'"),
    "no tags": (WordColumns(), TAGS, "\n\nA\nB\n", 3, "no label"),
    "an unknown tag": (WordColumns(), TAGS, "A O\n\nB O\nC B-ORG\nD O\n", 4, "the tag 'B-ORG'"),
    "no tag at all": (WordColumns(), Labels(head="token_labels"), "A NNP\n", 1, "NNP"),
    "columns of a word": (WordColumns(), TAGS, "A x O\nB O\n", 2, "2 columns: 'B O'"),
    "no sentence": (WordColumns(), TAGS, "-DOCSTART- O\n\n", 1, "no example"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(write, case):
    layout, labels, content, line, received = BAD[case]
    if isinstance(layout, ChoiceColumns):
        content = content.replace("\t", ",")
    path = write(content)
    with pytest.raises(InputError) as info:
        layout.read(path, labels)
    assert info.value.received.startswith(f"{path}, line {line}")
    assert received in info.value.received
    assert info.value.expected
    assert info.value.remedy


def test_expected_labels_are_named(write):
    with pytest.raises(InputError) as info:
        PAIR.read(write(HEADER + "2\tA\tB\tBAD\n"), TWO)
    assert info.value.expected == "one of the 2 labels bad, good"


def test_values_that_are_there_are_named(write):
    layout = TextColumns(text_a="t", label="l", only=("language", "zh"))
    with pytest.raises(InputError, match=r"no example with language 'zh'; there are 'de', 'fr'"):
        layout.read(write("language\tt\tl\nfr\tun\tx\nde\tein\ty\n"), ANY)


# ------------------------------------------------------------------------------ any text


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes.tsv"
    path.write_bytes(content)
    for layout in (NO_HEADER, PAIR, CSV, JSONL, WordColumns()):
        labels = TAGS if isinstance(layout, WordColumns) else ANY
        error = _refusal(layout, str(path), labels)
        places = (f"{path}, line ", f"{path}, which is compressed with gzip")
        assert error is None or error.received.startswith(places)


def _refusal(layout, path: str, labels: Labels) -> InputError | None:
    try:
        layout.read(path, labels)
    except InputError as error:
        return error
    return None
