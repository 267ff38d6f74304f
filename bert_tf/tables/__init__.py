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
"""

from bert_tf.tables.columns import Column, Columns
from bert_tf.tables.formats import KINDS, Format
from bert_tf.tables.rows import Row, Table, open_table, refuse_rows

__all__ = ["KINDS", "Column", "Columns", "Format", "Row", "Table", "open_table", "refuse_rows"]
