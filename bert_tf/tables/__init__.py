"""Tables of any form -> rows: one reader for training, evaluation and questions to a model.

    from bert_tf.tables import Columns, open_table

    table = open_table("tickets.csv", Columns({"text_a": "Message", "label": "Class"}))
    table.format   # csv, tsv, JSON lines ...: what the content shows, whatever the file is called
    table.names    # of all its columns
    table.rows     # an iterator of Row: its place, and its cells by field

formats.py    what the first lines of a file show
rows.py       the rows of a file in a format
columns.py    which columns are read, and where they are in a header
conll.py      sentences in words
lines.py      the lines of a file or a stream, of which the first can be looked at
pandas_files.py  spreadsheets and Parquet files, which pandas reads
"""

from bert_tf.tables.columns import TEXT_NAME, Column, Columns
from bert_tf.tables.formats import (
    CONLL,
    CSV,
    JSON,
    JSONL,
    KINDS,
    NO_TEXTS,
    PUBLISHED_TSV,
    TEXT,
    TSV,
    Format,
    Texts,
)
from bert_tf.tables.lines import STDIN
from bert_tf.tables.rows import (
    Row,
    Table,
    find_format,
    first_cells,
    open_table,
    pick,
    refuse_header,
    refuse_rows,
    table_of,
)

__all__ = [
    "CONLL",
    "CSV",
    "JSON",
    "JSONL",
    "KINDS",
    "NO_TEXTS",
    "PUBLISHED_TSV",
    "STDIN",
    "TEXT",
    "TEXT_NAME",
    "TSV",
    "Column",
    "Columns",
    "Format",
    "Row",
    "Table",
    "Texts",
    "find_format",
    "first_cells",
    "open_table",
    "pick",
    "refuse_header",
    "refuse_rows",
    "table_of",
]
