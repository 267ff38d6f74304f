"""Spreadsheets and Parquet files: read where pandas is, else refused by name."""

import io
import sys
import zipfile

import pytest

from bert_tf.errors import InputError
from bert_tf.heads import Labels
from bert_tf.tasks.registry import OwnFiles, get_task
from bert_tf.tasks.sources import TaskData, task_of

ROWS = [('say "a", b', "x"), ("NA", "None"), ("3", "y")]


def layout():
    return get_task("csv", text_a_column="Message", label_column="Class").layout


def workbook():
    """A zip archive that is named a spreadsheet by what is in it."""
    with zipfile.ZipFile(content := io.BytesIO(), "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "package"),
    [(workbook(), "openpyxl"), (b"\xd0\xcf\x11\xe0x", "xlrd"), (b"PAR1\x15x", "pyarrow")],
)
def test_without_pandas_the_extra_is_named(tmp_path, monkeypatch, content, package):
    monkeypatch.setitem(sys.modules, package, None)
    (path := tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=rf"{package} is not installed") as caught:
        layout().read(str(path), Labels())
    assert "bert-tf[tables]" in caught.value.remedy


@pytest.mark.parametrize("name", ["a.xlsx", "a.txt"])
def test_a_spreadsheet_is_a_table(tmp_path, name):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("pandas")
    book = openpyxl.Workbook()
    for row in [("Message", "Class"), *ROWS, (None, None)]:
        book.active.append(row)
    book.save(path := tmp_path / "a.xlsx")
    path = path.rename(tmp_path / name)
    examples = layout().read(str(path), Labels())
    assert [(one.text_a, one.label) for one in examples] == ROWS
    path.write_bytes(workbook())
    with pytest.raises(InputError, match="a spreadsheet that cannot be read"):
        layout().read(str(path), Labels())


def test_a_parquet_file_is_a_table(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(ROWS, columns=["Message", "Class"])
    frame.to_parquet(path := tmp_path / "a.parquet")
    examples = layout().read(str(path), Labels())
    assert [(one.text_a, one.label) for one in examples] == ROWS


def test_training_finds_what_a_spreadsheet_is(tmp_path):
    """The task is looked for in the file's content before its rows are read."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    pandas.DataFrame(ROWS, columns=["Message", "Class"]).to_excel(
        path := tmp_path / "a.xlsx", index=False
    )
    own = OwnFiles(train_file=str(path), text_a_column="Message", label_column="Class")
    task = task_of(TaskData(own=own), "")
    assert [one.label for one in task.read(str(tmp_path), "train")] == [label for _, label in ROWS]
