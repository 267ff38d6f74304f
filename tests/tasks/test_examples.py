"""Files of all formats -> examples; whatever is wrong with one is said with file and line."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.heads import Choices, Labels, LabelSets, Scores, Tags
from bert_tf.tables import Columns, open_table
from bert_tf.tasks.examples import (
    NONE,
    OPTIONAL,
    ChoiceColumns,
    ChoiceExample,
    Example,
    TextColumns,
    WordColumns,
    WordsExample,
)

ANY, TWO = Labels(), Labels(names=("bad", "good"))
SCORES = Scores(limits=(0.0, 5.0))
NUMBERS, SETS = Scores(), LabelSets()
TAGS = Tags(names=("O", "B-LOC", "I-LOC", "B-PER", "I-PER"))
PAIR = TextColumns(text_a="first", text_b="second", label="label", id="id")
HEADER = "id\tfirst\tsecond\tlabel\n"
CSV = TextColumns(text_a="text", label="label", file_format="csv")
JSONL = TextColumns(text_a="text", label="label", file_format="jsonl")
IDS = TextColumns(text_a="t", label="l", id="i", id_required=True, file_format="jsonl")
NO_HEADER = TextColumns(text_a=2, label=0)
FLAWED = TextColumns(text_a="first", text_b="second", label="label", skip_flawed=True)
CHOICE = ChoiceColumns(text_a="context", start="start", endings=("e0", "e1"), label="l", id="")
TWO_CHOICES = Choices(names=("0", "1"))
CONLL = """\ufeff-DOCSTART- -X- -X- O

EU NNP B-NP B-PER
rejects VBZ B-VP O

-DOCSTART- -X- -X- O

New\tYork  NP\tI-LOC
York NNP NP I-LOC
"""
SENTENCES = [
    WordsExample("0", ("EU", "rejects"), 1, ("B-PER", "O")),
    WordsExample("1", ("New", "York"), 2, ("B-LOC", "I-LOC")),
]
ANY_LABEL = {"labelled": OPTIONAL}

# ------------------------------------------------------------------------------ what is read

READ = {  # layout, labels, how labelled, name and content of a file, its examples
    "tsv": (PAIR, TWO, {}, "a.tsv", HEADER + '7\t"A\t"" x\tgood\n8\tA\u2028\x0b\x85\tB\tbad\t\t\n',
            [Example("7", '"A', '"" x', "good"), Example("8", "A\u2028\x0b\x85", "B", "bad")]),
    "scores": (PAIR, SCORES, {}, "a.tsv", HEADER + "1\tA\tB\t4.250\n2\tA\tC\t0\n",
               [Example("1", "A", "B", 4.25), Example("2", "A", "C", 0.0)]),
    "no column of labels": (PAIR, TWO, ANY_LABEL, "a.tsv", "id\tfirst\tsecond\n1\tA\tB\n",
                            [Example("1", "A", "B")]),
    "some labels": (PAIR, TWO, ANY_LABEL, "a.tsv", HEADER + "1\tA\tB\tgood\n2\tC\tD\t\n",
                    [Example("1", "A", "B", "good"), Example("2", "C", "D")]),
    "labels that are ignored": (PAIR, TWO, {"labelled": NONE}, "a.tsv", HEADER + "1\tA\tB\t-1\n",
                                [Example("1", "A", "B")]),
    "no header": (TextColumns(text_a=0, label=1), TWO, ANY_LABEL, "a.tsv", "A\nB\tgood\n",
                  [Example("0", "A"), Example("1", "B", None, "good")]),
    "rows with a value": (TextColumns(text_a="t", label="l", only=("language", "de")), ANY, {},
                          "a.tsv", "language\tt\tl\nfr\tun\tx\nde\tein\ty\nde\tzwei\tx\n",
                          [Example("0", "ein", None, "y"), Example("1", "zwei", None, "x")]),
    "empty texts": (FLAWED, TWO, {"labelled": NONE}, "a.tsv", "first\tsecond\nA\t\n\tB\n",
                    [Example("0", "A", ""), Example("1", "", "B")]),
    "csv": (CSV, TWO, {}, "a.csv", 'label,text\ngood,"a, ""b""\nc"\nbad,d\n',
            [Example("0", 'a, "b"\nc', None, "good"), Example("1", "d", None, "bad")]),
    "csv of old Macs": (CSV, ANY, {}, "a.csv", 'text,label\rA,x\r"B\r",y\r',
                        [Example("0", "A", None, "x"), Example("1", "B\r", None, "y")]),
    "jsonl": (IDS, ANY, {}, "a.jsonl",
              '{"t": "a", "l": 1, "i": 5}\n{"i": 6, "l": true, "t": "b", "more": []}',
              [Example("5", "a", None, "1"), Example("6", "b", None, "true")]),
    "several labels": (JSONL, LabelSets(), {}, "a.jsonl",
                       '{"text": "a", "label": ["y", "x"]}\n{"text": "b", "label": []}\n'
                       '{"text": "c", "label": "x|z"}',
                       [Example(str(i), "abc"[i], None, label)
                        for i, label in enumerate((("y", "x"), (), ("x", "z")))]),
    "labels that are NaN": (JSONL, ANY, ANY_LABEL, "a.jsonl",
                            "\n".join('{"text": "A", "label": ' + label + "}"
                                      for label in ("null", "NaN", '"nan"', '"x"')),
                            [Example(str(i), "A", None, "x" * (i == 3) or None) for i in range(4)]),
    "choices": (CHOICE, TWO_CHOICES, {}, "a.csv",
                ",context,start,e0,e1,l\n3,It,She,runs.,sings.,1\n4,He,,runs.,sits.,0\n",
                [ChoiceExample("3", (("It", "She runs."), ("It", "She sings.")), "1"),
                 ChoiceExample("4", (("He", "runs."), ("He", "sits.")), "0")]),
    "choices without labels": (CHOICE, TWO_CHOICES, ANY_LABEL, "a.csv",
                               ",context,start,e0,e1\n3,A,,b,c\n",
                               [ChoiceExample("3", (("A", "b"), ("A", "c")))]),
    "conll": (WordColumns(), TAGS, {}, "train.txt", CONLL, SENTENCES),
    "conll of Windows": (WordColumns(), TAGS, {}, "a.txt", CONLL.replace("\n", "\r\n"), SENTENCES),
    "conll without tags": (WordColumns(), TAGS, ANY_LABEL, "a.txt", "EU\nrejects\n\nNew\n",
                           [WordsExample("0", ("EU", "rejects")), WordsExample("1", ("New",))]),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_what_is_read(write, case):
    layout, labels, options, name, content, expected = READ[case]
    assert layout.read(write(content, name), labels, **options) == expected


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\r\n\r\n\n"])
def test_byte_order_mark_windows_line_ends_and_empty_lines_at_the_end(write, mark, end, last):
    path = write(mark + HEADER.strip() + end + f"1\tA\tB\tgood{end}2\tC\tD\tbad{last}")
    assert [(e.guid, e.text_b, e.label) for e in PAIR.read(path, TWO)] == [
        ("1", "B", "good"),
        ("2", "D", "bad"),
    ]


@pytest.mark.parametrize(
    ("content", "words", "tags"),
    [
        ("1\tA\tB-P\n2\tB\tI-P\n\n1\tC\tO\n", "A B|C", "B-P I-P|O"),
        ("# id = 7\n1 A x B-P\n2-3 BC _ _\n2 B x O\n3 C x O\n3.1 D x O\n\n# end\n\n1 E x O\n",
         "A B C|E", "B-P O O|O"),  # CoNLL-U
        ("#\thttp://x [2009]\n1\t#\tO\tO\n2\tB\tO\tB-P\n", "# B", "O B-P"),  # GermEval
        ("0 A O\n1 B B-P\n\n2 C O\n", "A B|C", "O B-P|O"),  # of the file, from 0
        ("1 O\n\n2 B-P\n", "1|2", "O|B-P"),  # numbers in sentences of a word are words
        ("# O\n1 O\n2 B-P\n\n7 O\n9 O\n", "# 1 2|7 9", "O O B-P|O O"),
    ],
)  # fmt: skip
def test_a_column_that_counts_is_no_word(write, caplog, content, words, tags):
    found = WordColumns().read(write(content, "a.txt"), Tags())
    assert "|".join(" ".join(one.words) for one in found) == words
    assert "|".join(" ".join(one.label) for one in found) == tags
    assert ("the first column counts" in caplog.text) == (not words.startswith(("1", "# 1")))


@pytest.mark.parametrize(
    ("content", "tags", "said"),
    [
        ("A 0\nB B-X\nC I-X\n", ("O", "B-X", "I-X"), "'0', of 1 of the 3 words, is read as O"),
        ("A _\nB X\nC _\n", ("O", "X", "O"), "'_', of 2 of the 3 words"),
        ("A 0\nB X\nC O\n", ("0", "X", "O"), "0 is a tag like others"),
        ("A I-X\nB B-X\nC O\n", ("B-X", "B-X", "O"), "(IOB1)"),
    ],
)
def test_what_stands_for_o_in_a_file_of_words_is_said(write, caplog, content, tags, said):
    with caplog.at_level("INFO", logger="absl"):
        (example,) = WordColumns().read(write(content, "a.txt"), Tags())
    assert example.label == tags
    assert said in caplog.text


def test_tags_of_another_scheme_are_refused(write):
    path = write("A B-X\nB E-X\n\nC W-X\n", "a.txt")
    with pytest.raises(InputError, match=r"a\.txt with the tags W-X"):
        WordColumns().read(path, Tags())
    with pytest.raises(InputError, match=r"a\.txt with the tags W-X"):
        WordColumns().read(path, TAGS)


def test_a_tag_that_only_other_data_have_is_said(write, caplog):
    found = WordColumns().read(write("A O\nB B-ORG\nC U-LOC\n\nD o\n", "a.txt"), TAGS)
    assert [one.label for one in found] == [("O", "B-ORG", "B-LOC"), ("O",)]
    assert "a.txt: tags that the model does not have, which count as missed: B-ORG" in caplog.text


def test_a_cell_of_csv_may_be_as_long_as_a_book(write):
    """Over 131,072 characters, the csv module's own limit; in one line, or in many."""
    for text in ("a" * 131_073, "Two words. " * 30_000, 'A ""line"".\n' * 25_000):
        path = write(f'text,label\nshort,x\n"{text}",y\n', "x.csv")
        assert CSV.read(path, ANY)[1] == Example("1", text.replace('""', '"'), None, "y")


def test_csv_places_are_the_lines_where_rows_begin(write):
    path = write('a,b\n"1\n2",3\n4,5\n', "x.csv")
    places = [row.place for row in open_table(path, Columns({"text_a": "a"})).rows]
    assert [place.partition(", ")[2] for place in places] == ["line 2", "line 4 (row 3)"]


def test_flawed_rows_of_published_files_are_left_out_where_they_are_labelled(write, caplog):
    rows = "1\tA\tB\tgood\n2\tA question that\n\tgoes on?\tbad\n3\tC\t\tbad\n"
    rows += HEADER + "4\tD\tE\tbad\n"  # of another file that was put behind this one
    assert [e.text_a for e in FLAWED.read(write(HEADER + rows), TWO)] == ["A", "D"]
    assert "3 broken rows are left out, the first: " in caplog.text
    assert "train.tsv, line 3" in caplog.text
    assert "1 rows without text or agreed label left out" in caplog.text
    assert "train.tsv, line 5" in caplog.text
    with pytest.raises(InputError, match="1 columns"):
        FLAWED.read(write("first\tsecond\nA\n"), TWO, labelled=NONE)


# ------------------------------------------------------------------------------ bad input

CHOICES = ChoiceColumns(text_a="c", start="s", endings=("e",), label="l")
ROW = "1\tA\tB\tgood\n"
BAD = {
    "too few columns": (PAIR, TWO, HEADER + ROW + "2\tA\tbad\n", 3, "3 columns: '2 | A | bad'"),
    "too few columns, no header": (NO_HEADER, TWO, "good\t\tA\nbad\tB\n", 2, "2 columns"),
    "too many columns, no header": (NO_HEADER, TWO, "good\t\tA\nbad\t\tB\tC\n", 2, "4 columns"),
    "an unknown label": (PAIR, TWO, HEADER + ROW + "2\tA\tB\tBAD\n", 3, "the label 'BAD'"),
    "a label that is missing": (PAIR, TWO, HEADER + ROW + "2\tA\tB\t\n", 3, "no label"),
    "no column of labels": (PAIR, TWO, "id\tfirst\tsecond\n1\tA\tB\n", 1, "id | first | second"),
    "an empty text": (PAIR, TWO, HEADER + "2\t \tB\tbad\n", 2, "empty text in the column 'first'"),
    "an empty second text": (PAIR, TWO, HEADER + ROW + "2\tA\t\tbad\n", 3, "the column 'second'"),
    "the header again": (PAIR, TWO, HEADER + ROW + HEADER, 3, "4 columns: 'id | first"),
    "no header where one belongs": (PAIR, TWO, ROW + ROW, 1, "the columns '1 | A | B | good'"),
    "two columns of a name": (PAIR, TWO, "id\tfirst\tfirst\tsecond\tlabel\n", 1, "first | first"),
    "another separator": (PAIR, TWO, "id,first,second,label\n1,A,B,good\n", 1, "id,first,second"),
    "not UTF-8": (PAIR, TWO, (HEADER + ROW).encode() + b"2\tcaf\xe9\tB\tbad\n", 3, "not UTF-8"),
    "duplicate ids": (PAIR, TWO, HEADER + ROW + "2\tA\tB\tbad\n" + ROW, 4, "the id '1', which"),
    "a score too high": (PAIR, SCORES, HEADER + "1\tA\tB\t5.1\n", 2, "the label '5.1'"),
    "no rows": (PAIR, TWO, HEADER, None, "no example"),
    "an empty file": (PAIR, TWO, "", 1, "empty"),
    "an open quote": (CSV, TWO, 'text,label\nA,good\n"B,bad\nC,bad\n', 3, "no row of a CSV file"),
    "CSV, too few": (CSV, TWO, 'text,label\n"A\nA",good\nB\n', 4, "1 columns"),
    "no JSON": (JSONL, TWO, '{"text": "A", "label": "good"}\n{"text": \n', 2, "JSONDecodeError"),
    "no object": (JSONL, TWO, '["A", "good"]\n', 1, "(list: "),
    "a key that is missing": (JSONL, TWO, '{"text": "A"}\n', 1, "only text"),
    "a text that is none": (JSONL, TWO, '{"text": 3, "label": "good"}\n', 1, "3 in the column "),
    "a label that is null": (JSONL, TWO, '{"text": "A", "label": null}\n', 1, "no label"),
    "an empty ending": (CHOICES, ANY, "c\ts\te\tl\nA\tB\t\t0\n", 2, "text in the column 'e'"),
    "a class that is NaN": (JSONL, ANY, '{"text": "A", "label": NaN}\n', 1, "the label nan"),
    "NaN as text": (CSV, ANY, "text,label\nA,x\nB,NaN\n", 3, "the label 'NaN'"),
    "an id that is null": (IDS, ANY, '{"t": "A", "l": "x", "i": null}\n', 1, "the id None"),
    "an id that is a list": (IDS, ANY, '{"t": "A", "l": "x", "i": [1]}\n', 1, "the id [1]"),
    "no tags": (WordColumns(), TAGS, "\n\nA\nB\n", 3, "no label"),
    "no tag": (WordColumns(), TAGS, "A O\n\nB O\nC ORG\nD O\n", 4, "the tag 'ORG'"),
    "columns of a word": (WordColumns(), TAGS, "A x O\nB O\n", 2, "2 columns: 'B O'"),
    "no sentence": (WordColumns(), TAGS, "-DOCSTART- O\n\n", None, "no example"),
    "a repeated key": (JSONL, ANY, '{"text": "A", "label": "x", "text": "B"}', 1, "is given twice"),
}  # fmt: skip


@pytest.mark.parametrize(
    "names", [("LABEL_0", "LABEL_1", "LABEL_2"), ("DET", "NOUN"), ("O-", "B", "I")]
)
def test_tags_of_which_the_model_has_none_are_refused(write, names):
    """As a warning it would be a score of 0."""
    labels = Tags(names=names)
    with pytest.raises(InputError, match=r"with the tags B-X, I-X, O\n.*one of the") as caught:
        WordColumns().read(write("A B-X\nB I-X\n\nC O\n"), labels)
    assert caught.value.expected == f"one of the {len(names)} labels {', '.join(names)}"


@pytest.mark.parametrize(
    ("options", "content"),
    [
        ({"file_format": "jsonl"}, '{"c":"say \\"A\\"","s":"B","e0":"x","e1":"y","l":1}\n'),
        ({"file_format": "tsv"}, 'c\ts\te0\te1\tl\nsay "A"\tB\tx\ty\t1\n'),
        ({}, 'c,s,e0,e1,l\n"say ""A""",B,x,y,1\n'),
        ({"endings": ("e1", "e2")}, 'c,s,e1,e2,l\n"say ""A""",B,x,y,1\n'),
        ({"endings": ("e(0", "e(1")}, 'c,s,e(0,e(1,l\n"say ""A""",B,x,y,1\n'),
        ({"endings": ("yes", "no")}, 'c,s,yes,no,l\n"say ""A""",B,x,y,1\n'),
        (
            {"text_a": 0, "start": 1, "endings": (2, 3), "label": 4},
            '"say ""A""",B,x,y,1\n',
        ),
    ],
)
def test_endings_in_any_format_and_columns(write, options, content):
    layout = ChoiceColumns(
        **{"text_a": "c", "start": "s", "endings": ("e0", "e1"), "label": "l"} | options
    )
    (example,) = layout.read(write(content), Choices(names=("0", "1")))
    assert example.pairs == (('say "A"', "B x"), ('say "A"', "B y"))
    assert (example.label, layout.fitted(write(content)).endings) == ("1", layout.endings)


@pytest.mark.parametrize("case", BAD)
def test_bad_input(write, case):
    layout, labels, content, line, received = BAD[case]
    if isinstance(layout, ChoiceColumns):
        content = content.replace("\t", ",")
    path = write(content)
    with pytest.raises(InputError) as info:
        layout.read(path, labels)
    assert info.value.received.startswith(f"{path}, line {line}" if line else f"{path}: ")
    assert received in info.value.received
    assert info.value.expected
    assert info.value.remedy


def test_what_would_be_right_is_named(write):
    with pytest.raises(InputError) as info:
        PAIR.read(write(HEADER + "2\tA\tB\tBAD\n"), TWO)
    assert info.value.expected == "one of the 2 labels bad, good (did you mean 'bad'?)"
    layout = TextColumns(text_a="t", label="l", only=("language", "zh"))
    with pytest.raises(InputError, match=r"no example with language 'zh'; there are de, fr"):
        layout.read(write("language\tt\tl\nfr\tun\tx\nde\tein\ty\n"), ANY)


@pytest.mark.parametrize("layout", [PAIR, CSV, JSONL, WordColumns()], ids=lambda one: type(one))
def test_a_line_without_end_is_refused_before_it_is_held(write, layout, monkeypatch):
    small = files.read_text_lines.__kwdefaults__ | {"limit": 5_000}
    monkeypatch.setattr(files.read_text_lines, "__kwdefaults__", small)
    path = write(HEADER + "1\tA\tB\tgood\n" + "x" * 5_001 + "\n")
    with pytest.raises(InputError, match="line 3, which is longer than 5000 bytes"):
        layout.read(path, TWO)


TEXT = st.text(st.characters(exclude_characters="\0\t\n\r", exclude_categories=["Cs"]), min_size=1)


WORD_TEXT = TEXT.filter(lambda text: text.strip())


@settings(deadline=None, max_examples=50)
@example([('"', '" a'), ('"b', '""'), ("c", 'd"')])
@given(st.lists(st.tuples(WORD_TEXT, WORD_TEXT), min_size=1, max_size=5))
def test_any_text_survives_tsv(tmp_path_factory, pairs):
    path = tmp_path_factory.getbasetemp() / "any.tsv"
    rows = [f"{i}\t{a}\t{b}\tgood\n" for i, (a, b) in enumerate(pairs)]
    path.write_bytes(("".join([HEADER, *rows])).encode())
    assert [(e.text_a, e.text_b) for e in PAIR.read(str(path), TWO)] == pairs


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(
            str.strip
        ),
        min_size=1,
    )
)
def test_any_text_survives_csv_and_jsonl(tmp_path_factory, texts):
    folder = tmp_path_factory.getbasetemp()
    quoted = "".join('"{}",x\r\n'.format(text.replace('"', '""')) for text in texts)
    (folder / "any.csv").write_bytes(("text,label\r\n" + quoted).encode())
    lines = "\n".join(json.dumps({"text": text, "label": "x"}) for text in texts)
    (folder / "any.jsonl").write_bytes(lines.encode())
    assert [e.text_a for e in CSV.read(str(folder / "any.csv"), ANY)] == texts
    assert [e.text_a for e in JSONL.read(str(folder / "any.jsonl"), ANY)] == texts
