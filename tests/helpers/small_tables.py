"""Columns of texts and labels that the tests of tables and examples read."""

from bert_tf.heads.labels import Labels
from bert_tf.tasks.examples import (
    TextColumns,
)

TWO = Labels(names=("bad", "good"))

ANY = Labels()
PAIR = TextColumns(text_a="first", text_b="second", label="label", id="id")
HEADER = "id\tfirst\tsecond\tlabel\n"
TAGS = Labels(head="token_labels", names=("O", "B-LOC", "I-LOC", "B-PER", "I-PER"))
CSV = TextColumns(text_a="text", label="label", file_format="csv")
JSONL = TextColumns(text_a="text", label="label", file_format="jsonl")
