"""Public reports on tables: headers, quotes, labels, the number of predictions."""

import pytest

from bert_tf.errors import InputError
from bert_tf.heads import Labels, Scores
from bert_tf.tasks.examples import NONE, OPTIONAL, REQUIRED, Example, TextColumns

TSV = TextColumns(text_a="text", label="label")
CSV = TextColumns(text_a="text", label="label", file_format="csv")
JSONL = TextColumns(text_a="text", label="label", file_format="jsonl")
TWO = Labels(names=("0", "1"))


def texts_of(examples) -> list[str]:
    return [example.text_a for example in examples]


def labels_of(examples) -> list:
    return [example.label for example in examples]


# ------------------------------------------------------------------------------ no label


UNLABELLED = {
    "csv": (CSV, "text,label\nw1,-1\nw2,-1\n"),
    "tsv": (TSV, "text\tlabel\nw1\t-1\nw2\t -1\n"),
    "jsonl": (JSONL, '{"text": "w1", "label": -1}\n{"text": "w2", "label": "-1"}\n'),
}


@pytest.mark.parametrize("kind", UNLABELLED)
def test_minus_one_is_no_label_in_test_data(write, kind):
    """datasets#5624, #6506: GLUE's test data, saved as a file, have the label -1."""
    layout, content = UNLABELLED[kind]
    path = write("test", content)
    examples = layout.read(path, TWO, labelled=OPTIONAL)
    assert examples == [Example("0", "w1"), Example("1", "w2")]
    with pytest.raises(InputError, match=r"line [12]: the label '?-1'?"):
        layout.read(path, TWO, labelled=REQUIRED)  # of training, every row has one


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (Labels(names=("-1", "0", "1")), "-1"),  # of sentiments
        (Scores(), -1.0),
        (Labels(), "-1"),  # training data, whose names are not known yet
    ],
)
def test_minus_one_may_be_a_label(write, labels, expected):
    path = write("a.csv", "text,label\nw1,-1\n")
    assert labels_of(CSV.read(path, labels, labelled=OPTIONAL)) == [expected]


def test_texts_and_classes_that_look_like_no_value(write):
    """csvkit#806, OasisLMF#307: the code of Namibia, NA, was read as a missing value."""
    cells = ["NA", "None", "null", "N/A", "#N/A", "TRUE", "0123", "1e5", "not nurse"]
    path = write("a.csv", "text,label\n" + "".join(f"{cell},{cell}\n" for cell in cells))
    examples = CSV.read(path, Labels())
    assert texts_of(examples) == labels_of(examples) == cells


# ------------------------------------------------------------------------------ rows


def test_the_first_row_of_a_file_without_header_is_not_lost(write):
    """bert#224, bert#1078: a prediction less than there are texts."""
    rows = [f"w{n} w{n + 1}\n" for n in range(7)]
    path = write("test.csv", "".join(rows))
    with pytest.raises(InputError, match="line 1: the columns 'w0 w1'"):
        CSV.read(path, TWO, labelled=NONE)
    by_place = TextColumns(text_a=0, file_format="csv")
    assert texts_of(by_place.read(path, TWO, labelled=NONE)) == [row.strip() for row in rows]


@pytest.mark.parametrize("end", ["\r\r\n", "\n\n", "\r\n\r\n\r\n", "\n"], ids=repr)
def test_empty_lines_between_the_rows_of_a_csv(write, end):
    """gridpath#150, pycar#59: Python's csv on Windows, without newline="", leaves them."""
    rows = ["", "text,label", "w1,0", '"w2\n\nw3",1', "w4,0"]
    examples = CSV.read(write("a.csv", end.join(rows) + end), TWO)
    assert texts_of(examples) == ["w1", "w2\n\nw3", "w4"]
    assert labels_of(examples) == ["0", "1", "0"]
    one_column = TextColumns(text_a="text", file_format="csv", skip_flawed=True)
    path = write("b.csv", f'text{end}w1{end}""{end}w2{end}')  # an empty cell is a row
    assert texts_of(one_column.read(path, TWO, labelled=NONE)) == ["w1", "", "w2"]
