"""Lines and cells of answers by hand; whole files are written in walks/test_predict.py."""

import io
import json
import sys
import types

import pytest

from bert_tf.errors import InputError
from bert_tf.heads import head_named
from bert_tf.serving import answer_files
from bert_tf.serving.rows import Item

LABELS = ("red", "dry; old", "new")
CELLS = {  # of an answer: its cells, and with the probability of each label
    "one label": (
        {"label": "new", "probability": 0.5, "probabilities": [0.2, 0.3, 0.5], "labels": LABELS},
        {"label": "new", "probability": 0.5},
        [0.2, 0.3, 0.5],
    ),
    "none": (
        {"label": None, "probability": None, "probabilities": None, "labels": None},
        {"label": None, "probability": None},
        [None, None, None],
    ),
    "several labels": (
        {"applies": [True, False, True], "probabilities": [0.75, 0.25, 0.625]},
        {"labels": "red;new"},
        [0.75, 0.25, 0.625],
    ),
    "no labels": (
        {"applies": None, "probabilities": None},
        {"labels": ""},
        [None, None, None],
    ),
}


@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind):
    answer, cells, shares = CELLS[kind]
    assert answer_files.cells_of(answer, LABELS) == cells
    names = ("probability_red", "probability_dry; old", "probability_new")
    both = cells | dict(zip(names, shares, strict=True))
    assert answer_files.cells_of(answer, LABELS, probabilities=True) == both


def test_a_score_is_a_cell():
    assert answer_files.cells_of({"score": 2.5}, ()) == {"score": 2.5}
    assert answer_files.cells_of({"score": 2.5}, (), probabilities=True) == {"score": 2.5}


def test_lines_of_tables():
    cells = ["a;b", None, 'say "x"', 0.5]
    assert answer_files.csv_line(cells, separator=";") == b'"a;b";;"say ""x""";0.5\r\n'
    assert answer_files.csv_line(["a\nb", "é"], separator=",") == '"a\nb",é\r\n'.encode()
    assert answer_files.tsv_line(cells, path="o.tsv") == b'a;b\t\tsay "x"\t0.5\n'
    for wrong in ("a\tb", "a\rb", "a\nb"):
        with pytest.raises(InputError, match=r"as a cell of o\.tsv\n.* without tabs"):
            answer_files.tsv_line(["a", wrong], path="o.tsv")


def table(*rows: tuple[str, ...]) -> list[tuple[str, Item]]:
    """Rows of a table with the columns label, text and label_2."""
    items = []
    for number, cells in enumerate(rows, 2):
        item = Item(text=cells[1])
        item.names, item.cells, item.separator = ("label", "text", "label_2"), cells, ";"
        items.append((f"in.csv, line {number}", item))
    return items


def model_of(task: str) -> types.SimpleNamespace:
    """What is asked of a `Predictor` here."""
    metadata = {"options": {"labels": LABELS}}
    model = types.SimpleNamespace(metadata=metadata)
    return types.SimpleNamespace(task=task, model=model, outputs=head_named(task).answer_meanings)


@pytest.mark.parametrize("encoding", ["", "cp1252"])
def test_a_table(tmp_path, encoding):
    """Names that are taken; the mark only where the input was not plain UTF-8."""
    (tmp_path / "in.csv").write_text("label;text;label_2\n")
    answers = [{"label": "red", "probability": 0.5}, {"label": None, "probability": None}]
    paths = {"input_file": str(tmp_path / "in.csv"), "output_file": "o"}
    file = io.BytesIO()
    count = answer_files.write_table(
        file, model_of("classification"), table(("1", "a", "2"), ("3", "", "4")), answers,
        kind="csv", encoding=encoding, **paths,
    )  # fmt: skip
    assert count == 2
    mark = "\ufeff" if encoding else ""
    lines = ["label;text;label_2;predicted_label;probability", "1;a;2;red;0.5", "3;;4;;", ""]
    assert file.getvalue().decode() == mark + "\r\n".join(lines)


def test_what_is_no_table_is_refused():
    answer = {"score": 2.5}
    cases = (("embeddings", table(("1", "a", "2"))), ("regression", []), ("regression", iter([])))
    for task, items in cases:
        with pytest.raises(InputError, match=f"o.tsv for answers of {task} to None"):
            answer_files.write_table(
                io.BytesIO(), model_of(task), items, [answer], kind="tsv", input_file=None,
                output_file="o.tsv",
            )  # fmt: skip


def test_lines_of_json(monkeypatch):
    """Half a character, which UTF-8 cannot hold; standard output has each line at once."""
    flushed = []

    class Pipe(io.BytesIO):
        def flush(self):
            flushed.append(self.getvalue())

    pipe, other = Pipe(), Pipe()
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(buffer=pipe))
    answers = [{"label": "é", "id": "\ud800"}, {"label": None}]
    for file in (pipe, other):
        assert answer_files.write_lines(file, iter(answers)) == 2
        lines = file.getvalue().splitlines()
        assert lines == ['{"label": "é", "id": "\\ud800"}'.encode(), b'{"label": null}']
        assert [json.loads(line) for line in lines] == answers
    assert flushed == [lines[0] + b"\n", lines[0] + b"\n" + lines[1] + b"\n"]
    assert answer_files.write_lines(other, []) == 0


def test_how_many_items(tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("a\nb\nc")
    assert answer_files.num_items(table(("1", "a", "2")), str(tmp_path / "in.txt")) == 1
    assert answer_files.num_items(iter("ab"), str(tmp_path / "in.txt")) == 3
    assert answer_files.num_items(iter("ab"), None) is None
