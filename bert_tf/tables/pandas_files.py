"""Reads spreadsheets and Parquet files by pandas, an optional package.

Cells of a spreadsheet become the texts that they would be in a csv file. Only empty cells are
missing values.
"""

import contextlib
import math
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf import files, runtime
from bert_tf.errors import InputError, first_line

# The first bytes of such files.
ZIP = b"PK\x03\x04"
OLD_OFFICE = b"\xd0\xcf\x11\xe0"
PARQUET = b"PAR1"
WORKBOOK = "xl/workbook.xml"  # a member of zip archives that are spreadsheets
READERS = {ZIP: "openpyxl", OLD_OFFICE: "xlrd", PARQUET: "pyarrow"}  # what pandas needs for each


def mark_of(path: str | None) -> bytes:
    """The key of `READERS` with which a local file begins; b"" for other files and for pipes."""
    if not path or files.is_remote(path) or files.is_stream(path) or not files.is_file(path):
        return b""
    first_block = next(files.read_blocks(path), b"")
    mark = next(filter(first_block.startswith, READERS), b"")
    return b"" if mark == ZIP and not _is_workbook(path) else mark


def _is_workbook(path: str) -> bool:
    """Whether a zip archive is a spreadsheet."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return WORKBOOK in archive.namelist()


def sheet_rows(path: str, mark: bytes) -> Iterator[tuple[str, list[str]]]:
    """Place and cells of each row of a spreadsheet's first sheet, including the header.

    Raises:
      InputError: pandas is not installed, or cannot read the file.
    """
    pandas = _pandas(path, mark)
    with _damage_errors(path, mark):
        sheet = pandas.read_excel(path, header=None, dtype=str, keep_default_na=False)
    for number, cells in enumerate(sheet.itertuples(index=False), 1):
        yield f"{path}, row {number}", ["" if cell is None else str(cell) for cell in cells]


def parquet_rows(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Place and values (by column) of each row of a Parquet file; a missing value is None.

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
    """Raises an `InputError` for any error of pandas and its readers."""
    try:
        yield
    except Exception as error:  # the libraries have no error class in common
        reason = f"{type(error).__name__}: {first_line(error)}"
        received = f"{path}, {_kind(mark)} that cannot be read ({reason})"
        raise InputError(received, "a whole file", "check it, or save it as csv") from None


def _plain(value: Any) -> Any:
    """A value as it would be in JSON."""
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        value = value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value


def _pandas(path: str, mark: bytes) -> Any:
    """pandas; raises `InputError` if it, or the package that it needs for the file, is missing."""
    for_message = {
        "extra": "tables",
        "needed_by": f"{path}, {_kind(mark)}",
        "otherwise": "save it as csv",
    }
    runtime.import_extra(READERS[mark], package=READERS[mark], **for_message)
    return runtime.import_extra("pandas", package="pandas", **for_message)


def _kind(mark: bytes) -> str:
    """The kind of a file, for messages."""
    return "a Parquet file" if mark == PARQUET else "a spreadsheet"
