"""Spreadsheets and Parquet files, which pandas reads where it is installed.

Cells become the texts that a csv of them would hold; nothing counts as a missing value but an empty
cell.
"""

import contextlib
import math
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf import files, runtime
from bert_tf.errors import InputError, first_line

ZIP, OLD_OFFICE, PARQUET = b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"PAR1"
WORKBOOK = "xl/workbook.xml"  # in a zip archive that is a spreadsheet
READERS = {ZIP: "openpyxl", OLD_OFFICE: "xlrd", PARQUET: "pyarrow"}  # what pandas needs for each


def mark_of(path: str | None) -> bytes:
    """With which of `READERS` a local file begins, or nothing; a pipe is not looked at."""
    if not path or files.is_remote(path) or files.is_stream(path) or not files.is_file(path):
        return b""
    first = next(files.read_blocks(path), b"")
    mark = next(filter(first.startswith, READERS), b"")
    return b"" if mark == ZIP and not _is_workbook(path) else mark


def _is_workbook(path: str) -> bool:
    """Whether a zip archive is a spreadsheet."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return WORKBOOK in archive.namelist()


def sheet_rows(path: str, mark: bytes) -> Iterator[tuple[str, list[str]]]:
    """Place and cells of each row of a spreadsheet's first sheet, its header too.

    Raises:
      InputError: pandas is not installed, or cannot read the file.
    """
    pandas = _pandas(path, mark)
    with _damage_errors(path, mark):
        sheet = pandas.read_excel(path, header=None, dtype=str, keep_default_na=False)
    for number, cells in enumerate(sheet.itertuples(index=False), 1):
        yield f"{path}, row {number}", ["" if cell is None else str(cell) for cell in cells]


def parquet_rows(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Place and values by name of each row of a Parquet file; a missing value is None.

    Raises:
      InputError: pandas is not installed, or cannot read the file.
    """
    pandas = _pandas(path, PARQUET)
    with _damage_errors(path, PARQUET):
        rows = pandas.read_parquet(path).to_dict("records")
    for number, row in enumerate(rows, 1):
        yield f"{path}, row {number}", {str(name): _plain(value) for name, value in row.items()}


@contextlib.contextmanager
def _damage_errors(path: str, mark: bytes) -> Iterator[None]:
    """Turns what pandas and its readers raise into `InputError`."""
    try:
        yield
    except Exception as error:  # of many libraries
        reason = f"{type(error).__name__}: {first_line(error)}"
        received = f"{path}, {_kind(mark)} that cannot be read ({reason})"
        raise InputError(received, "a whole file", "check it, or save it as csv") from None


def _plain(value: Any) -> Any:
    """A value as JSON would hold it."""
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value


def _pandas(path: str, mark: bytes) -> Any:
    needed = {
        "extra": "tables",
        "needed_by": f"{path}, {_kind(mark)}",
        "otherwise": "save it as csv",
    }
    runtime.import_extra(READERS[mark], package=READERS[mark], **needed)
    return runtime.import_extra("pandas", package="pandas", **needed)


def _kind(mark: bytes) -> str:
    return "a Parquet file" if mark == PARQUET else "a spreadsheet"
