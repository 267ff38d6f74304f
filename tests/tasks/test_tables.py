"""bert_tf.tasks.tables: rows of TSV, CSV, JSON lines and CoNLL."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import ANY, CSV, HEADER, JSONL, PAIR, TAGS, TWO

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.tasks import tables
from bert_tf.tasks.examples import (
    NONE,
    OPTIONAL,
    Example,
    TextColumns,
    WordColumns,
    WordsExample,
)
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.tables import read_rows


def test_quotes_in_tsv_are_text(write):
    path = write(HEADER + '1\t"A cat\t"" said "I\tgood\n2\tB\t"\tbad\n')
    examples = PAIR.read(path, TWO)
    assert [(e.text_a, e.text_b) for e in examples] == [('"A cat', '"" said "I'), ("B", '"')]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\r\n\r\n\n"])
def test_byte_order_mark_windows_line_ends_and_empty_lines_at_the_end(write, mark, end, last):
    path = write(mark + HEADER.strip() + end + f"1\tA\tB\tgood{end}2\tC\tD\tbad{last}")
    assert [(e.guid, e.text_b, e.label) for e in PAIR.read(path, TWO)] == [
        ("1", "B", "good"),
        ("2", "D", "bad"),
    ]


def test_line_separators_of_unicode_are_text(write):
    path = write(HEADER + "1\tA\u2028B\x0bC\x85D\tE\tgood\n")
    assert PAIR.read(path, TWO)[0].text_a == "A\u2028B\x0bC\x85D"


def test_empty_columns_beyond_the_header_do_not_matter(write):
    assert len(PAIR.read(write(HEADER + "1\tA\tB\tgood\t\t\n"), TWO)) == 1


def test_csv_with_quotes_and_lines_in_cells(write):
    layout = TextColumns(text_a="text", label="label", file_format="csv")
    path = write('label,text\ngood,"a, ""b""\nc"\nbad,d\n', "train.csv")
    assert layout.read(path, TWO) == [
        Example("0", 'a, "b"\nc', None, "good"),
        Example("1", "d", None, "bad"),
    ]


def test_csv_places_are_the_lines_where_rows_begin(write):
    path = write('a,b\n"1\n2",3\n4,5\n', "x.csv")
    places = [row.place for row in read_rows(path, "csv", {"text_a": "a"})]
    assert [place.rpartition(" ")[2] for place in places] == ["2", "4"]


TWO_NUMBERS = get_task("mrpc").labels


OWN_HEADER = "kind\ta\tb\tone\tother\n"


def test_own_data_in_the_layout_of_mrpc_are_read_by_position(write, caplog):
    """As the original does, whatever the header says."""
    layout = get_task("mrpc").layout
    path = write(OWN_HEADER + "1\t7\t7\tA cat.\tA dog.\n0\t7\t7\tA\tB\n")
    with caplog.at_level("WARNING", logger="absl"):
        found = layout.read(path, TWO_NUMBERS)
    assert found == [Example("0", "A cat.", "A dog.", "1"), Example("1", "A", "B", "0")]
    (message,) = [record.getMessage() for record in caplog.records]
    assert f"{path}, line 1: the columns 'kind | a | b | one | other', without" in message
    header = OWN_HEADER.replace("kind", "Quality")  # a name that is where it should be
    assert layout.read(write(header + "1\t7\t7\tA\tB\n"), TWO_NUMBERS) == [
        Example("0", "A", "B", "1")
    ]
    tests = layout.read(write(OWN_HEADER + "x\t7\t7\tA\tB\n"), TWO, labelled=NONE)
    assert tests == [Example("0", "A", "B")]


@pytest.mark.parametrize(
    "header",
    [
        "1\t7\t8\tA cat.\tA dog.\n",
        f"x\ty\tz\t{'word ' * 10}\tB\n",
        "kind\ta\tb\tone\n",
        "kind\tQuality\tb\tone\tother\n",
        "index\tgenre\tfile\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n",
    ],
    ids=["numbers", "a long text", "too few columns", "some names", "another task"],
)
def test_what_is_no_header_of_such_a_layout_is_not_passed_over(write, header):
    with pytest.raises(InputError, match="line 1: the columns"):
        get_task("mrpc").layout.read(write(header + "1\t7\t7\tA\tB\n"), TWO)


def test_own_data_in_the_layout_of_mnli(write):
    """Texts in the columns 8 and 9, the label in the last one, however many there are."""
    task = get_task("mnli")
    row = ["0", *"abcdefg", "A", "B", "x", "neutral"]
    path = write("\t".join(f"column_{i}" for i in range(12)) + "\n" + "\t".join(row) + "\n")
    assert task.layout.read(path, task.labels) == [Example("0", "A", "B", "neutral")]


CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-PER
rejects VBZ B-VP O

-DOCSTART- -X- -X- O

New\tYork  NP\tI-LOC
York NNP NP I-LOC
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_conll(write, end):
    path = write("\ufeff" + CONLL.replace("\n", end), "train.txt")
    assert WordColumns().read(path, TAGS) == [
        WordsExample("0", ("EU", "rejects"), 1, ("B-PER", "O")),
        WordsExample("1", ("New", "York"), 2, ("B-LOC", "I-LOC")),
    ]


def test_conll_without_tags(write):
    path = write("EU\nrejects\n\nNew\n", "test.txt")
    examples = WordColumns().read(path, TAGS, labelled=OPTIONAL)
    assert [(e.words, e.label) for e in examples] == [(("EU", "rejects"), None), (("New",), None)]


@pytest.mark.parametrize("layout", [PAIR, CSV, JSONL, WordColumns()], ids=lambda one: type(one))
def test_a_line_without_end_is_refused_before_it_is_held(write, layout, monkeypatch):
    monkeypatch.setattr(files.read_lines, "__kwdefaults__", {"limit": 5_000})
    path = write(HEADER + "1\tA\tB\tgood\n" + "x" * 5_001 + "\n")
    with pytest.raises(InputError, match=r"line (3, which is longer than 5000|1)"):
        layout.read(path, TWO)
    with pytest.raises(InputError, match="line 3, which is longer than 5000 bytes"):
        list(tables._lines(path))


def test_a_key_that_is_given_twice(write):
    path = write('{"text": "A", "label": "x", "text": "B"}\n', "a.jsonl")
    with pytest.raises(InputError, match="the key 'text' is given twice"):
        JSONL.read(path, ANY)


def test_lines_of_old_macs_are_rows_of_csv(write):
    path = write('text,label\rA,x\r"B\r",y\r', "a.csv")
    assert [(e.text_a, e.label) for e in CSV.read(path, ANY)] == [("A", "x"), ("B\r", "y")]


TEXT = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), min_size=1)


WORD_TEXT = TEXT.filter(lambda text: text.strip())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(WORD_TEXT, WORD_TEXT), min_size=1, max_size=5))
def test_any_text_survives_tsv(tmp_path_factory, pairs):
    path = tmp_path_factory.getbasetemp() / "any.tsv"
    rows = [f"{i}\t{a}\t{b}\tgood\n" for i, (a, b) in enumerate(pairs)]
    path.write_bytes(("".join([HEADER, *rows])).encode())
    assert [(e.text_a, e.text_b) for e in PAIR.read(str(path), TWO)] == pairs


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])).filter(str.strip), min_size=1))
def test_any_text_survives_csv_and_jsonl(tmp_path_factory, texts):
    folder = tmp_path_factory.getbasetemp()
    quoted = "".join('"{}",x\r\n'.format(text.replace('"', '""')) for text in texts)
    (folder / "any.csv").write_bytes(("text,label\r\n" + quoted).encode())
    lines = "\n".join(json.dumps({"text": text, "label": "x"}) for text in texts)
    (folder / "any.jsonl").write_bytes(lines.encode())
    assert [e.text_a for e in CSV.read(str(folder / "any.csv"), ANY)] == texts
    assert [e.text_a for e in JSONL.read(str(folder / "any.jsonl"), ANY)] == texts
