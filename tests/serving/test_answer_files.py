"""Lines and cells of answers by hand; whole files are written in walks/test_predict.py."""

import io
import json
import pathlib
import sys
import types

import pytest
import served_models

from bert_tf.errors import InputError
from bert_tf.heads import head_named
from bert_tf.serving import answer_files
from bert_tf.serving.rows import Questions, read_questions

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
    line = answer_files.csv_line(cells, separator=";", line_end="\r\n")
    assert line == b'"a;b";;"say ""x""";0.5\r\n'
    line = answer_files.csv_line(["a\nb", "é"], separator=",", line_end="\n")
    assert line == '"a\nb",é\n'.encode()
    line = answer_files.tsv_line(cells, path="o.tsv", line_end="\n")
    assert line == b'a;b\t\tsay "x"\t0.5\n'
    for wrong in ("a\tb", "a\rb", "a\nb"):
        with pytest.raises(InputError, match=r"as a cell of o\.tsv\n.* without tabs"):
            answer_files.tsv_line(["a", wrong], path="o.tsv", line_end="\n")


def questions_of(path: pathlib.Path, content: bytes) -> Questions:
    """The rows of a table for a model of single texts."""
    path.write_bytes(content)
    return read_questions(str(path), served_models.metadata_of(text=[None]))


def answers_to(questions: Questions, *answers: dict) -> list:
    """The rows, each with its answer."""
    return list(zip(questions.rows, answers, strict=True))


def model_of(task: str) -> types.SimpleNamespace:
    """What is asked of a `Predictor` here."""
    metadata = {"options": {"labels": LABELS}}
    model = types.SimpleNamespace(metadata=metadata)
    return types.SimpleNamespace(task=task, model=model, outputs=head_named(task).answer_meanings)


WRITTEN = {  # the input, the kind of the output, its content
    "semicolons": (b"label;text;label_2\r\n1;a;2\r\n3;;4\r\n", "csv",
                   "label;text;label_2;predicted_label;probability\r\n1;a;2;red;0.5\r\n3;;4;;\r\n"),
    "quotes": (b'text,n\n"a, b",1\nc,2\n', "csv",
               'text,n,label,probability\n"a, b",1,red,0.5\nc,2,,\n'),
    "tabs": (b'text\tn\n"a" b\t1\nc\t2\n', "tsv",
             'text\tn\tlabel\tprobability\n"a" b\t1\tred\t0.5\nc\t2\t\t\n'),
    "tabs and quotes": (b'text\tn\n"a\tb"\t1\nc\t2\n', "tsv",
                        'text\tn\tlabel\tprobability\n"a\tb"\t1\tred\t0.5\nc\t2\t\t\n'),
    "a mark": (b"\xef\xbb\xbftext,n\na,1\nc,2\n", "csv",
               "\ufefftext,n,label,probability\na,1,red,0.5\nc,2,,\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN)
def test_a_table_comes_back_as_it_was(tmp_path, case):
    """Its separator, quotes, line ends and columns; names that are taken."""
    content, kind, expected = WRITTEN[case]
    questions = questions_of(tmp_path / "in", content)
    answers = [{"label": "red", "probability": 0.5}, {"label": None, "probability": None}]
    file = io.BytesIO()
    count = answer_files.write_table(
        file, model_of("classification"), questions, answers_to(questions, *answers), kind=kind,
        output_file="o",
    )  # fmt: skip
    assert (count, file.getvalue().decode()) == (2, expected)


def test_what_is_no_table_is_refused(tmp_path):
    contents = (("embeddings", b"text,n\na,1\n"), ("regression", b"a\n"), ("regression", b""))
    for number, (task, content) in enumerate(contents):
        questions = questions_of(tmp_path / str(number), content)
        with pytest.raises(InputError, match=f"o.tsv for answers of {task} to "):
            answer_files.write_table(
                io.BytesIO(), model_of(task), questions, iter(()), kind="tsv", output_file="o.tsv"
            )


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


def test_how_many_rows(tmp_path):
    for content, count in ((b"a\nb\nc", 3), (b'text,n\n"a\nb",1\nc,2\n,\n', 2), (b"", 0)):
        questions = questions_of(tmp_path / "in", content)
        assert answer_files.num_rows(questions, str(tmp_path / "in")) == count
    assert answer_files.num_rows(questions, None) is None
    assert answer_files.num_rows(questions, "gs://nowhere/in") is None
