"""Public reports on tables: headers, quotes, labels, the number of predictions."""

import json

import pytest

from bert_tf.errors import InputError
from bert_tf.heads import Labels, LabelSets, Scores, Tags
from bert_tf.options import Reading
from bert_tf.tasks.examples import NONE, OPTIONAL, REQUIRED, Example, TextColumns
from bert_tf.tasks.registry import get_task

TSV = TextColumns(text_a="text", label="label")
CSV = TextColumns(text_a="text", label="label", file_format="csv")
JSONL = TextColumns(text_a="text", label="label", file_format="jsonl")
TWO = Labels(names=("0", "1"))


def texts_of(examples) -> list[str]:
    return [example.text_a for example in examples]


def labels_of(examples) -> list:
    return [example.label for example in examples]


# ------------------------------------------------------------------------------ no label


UNLABELLED = {
    "csv": (CSV, "text,label\nw1,-1\nw2,-1\n"),
    "tsv": (TSV, "text\tlabel\nw1\t-1\nw2\t -1\n"),
    "jsonl": (JSONL, '{"text": "w1", "label": -1}\n{"text": "w2", "label": "-1"}\n'),
}


@pytest.mark.parametrize("kind", UNLABELLED)
def test_minus_one_is_no_label_in_test_data(write, kind):
    """datasets#5624, #6506: GLUE's test data, saved as a file, have the label -1."""
    layout, content = UNLABELLED[kind]
    path = write("test", content)
    examples = layout.read(path, TWO, labelled=OPTIONAL)
    assert examples == [Example("0", "w1"), Example("1", "w2")]
    with pytest.raises(InputError, match=r"line [12]: the label '?-1'?"):
        layout.read(path, TWO, labelled=REQUIRED)  # of training, every row has one


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (Labels(names=("-1", "0", "1")), "-1"),  # of sentiments
        (Scores(), -1.0),
        (Labels(), "-1"),  # training data, whose names are not known yet
    ],
)
def test_minus_one_may_be_a_label(write, labels, expected):
    path = write("a.csv", "text,label\nw1,-1\n")
    assert labels_of(CSV.read(path, labels, labelled=OPTIONAL)) == [expected]


def test_texts_and_classes_that_look_like_no_value(write):
    """csvkit#806, OasisLMF#307: the code of Namibia, NA, was read as a missing value."""
    cells = ["NA", "None", "null", "N/A", "#N/A", "TRUE", "0123", "1e5", "not nurse"]
    path = write("a.csv", "text,label\n" + "".join(f"{cell},{cell}\n" for cell in cells))
    examples = CSV.read(path, Labels())
    assert texts_of(examples) == labels_of(examples) == cells


# ------------------------------------------------------------------------------ rows


def test_the_first_row_of_a_file_without_header_is_not_lost(write):
    """bert#224, bert#1078: a prediction less than there are texts."""
    rows = [f"w{n} w{n + 1}\n" for n in range(7)]
    path = write("test.csv", "".join(rows))
    with pytest.raises(InputError, match="line 1: the columns 'w0 w1'"):
        CSV.read(path, TWO, labelled=NONE)
    by_place = TextColumns(text_a=0, file_format="csv")
    assert texts_of(by_place.read(path, TWO, labelled=NONE)) == [row.strip() for row in rows]


@pytest.mark.parametrize("end", ["\r\r\n", "\n\n", "\r\n\r\n\r\n", "\n"], ids=repr)
def test_empty_lines_between_the_rows_of_a_csv(write, end):
    """gridpath#150, pycar#59: Python's csv on Windows, without newline="", leaves them."""
    rows = ["", "text,label", "w1,0", '"w2\n\nw3",1', "w4,0"]
    examples = CSV.read(write("a.csv", end.join(rows) + end), TWO)
    assert texts_of(examples) == ["w1", "w2\n\nw3", "w4"]
    assert labels_of(examples) == ["0", "1", "0"]
    one_column = TextColumns(text_a="text", file_format="csv", skip_flawed=True)
    path = write("b.csv", f'text{end}w1{end}""{end}w2{end}')  # an empty cell is a row
    assert texts_of(one_column.read(path, TWO, labelled=NONE)) == ["w1", "", "w2"]


# ------------------------------------------------------------------------------ what a file is

TWO_TEXTS = [("w1, w2", "a"), ("w3; w4", "b"), ("w5", "a")]
FORMS = {  # the report, what happened there: content of a file; here always the same rows
    "10kGNAD#7, asreview#302, ai-inspector#15: semicolons, with the texts in quotes, were cut":
        'text;label\n"w1, w2";a\n"w3; w4";b\nw5;a\n',
    "FARM#666: a comma where tabs were expected; the columns were not found":
        'text,label\n"w1, w2",a\nw3; w4,b\nw5,a\n',
    "datasets#11 of tugraz: bars in the read-me, commas in the file":
        "text|label\nw1, w2|a\nw3; w4|b\nw5|a\n",
    "pytext#747: quotes were text, and cells were cut at the commas in them":
        '"text","label"\n"w1, w2","a"\n"w3; w4","b"\n"w5","a"\n',
    "nlvr#1: an object a line was no JSON":
        '{"text": "w1, w2", "label": "a"}\n{"text": "w3; w4", "label": "b"}\n'
        '{"text": "w5", "label": "a"}\n',
    "LexiLaw#44: a list of objects where a line each was expected":
        '[{"text": "w1, w2", "label": "a"}, {"text": "w3; w4", "label": "b"},'
        ' {"text": "w5", "label": "a"}]',
    "LexiLaw#44: the same over several lines":
        '[\n  {"text": "w1, w2", "label": "a"},\n  {"text": "w3; w4", "label": "b"},\n'
        '  {"text": "w5", "label": "a"}\n]\n',
}  # fmt: skip


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.txt"])
@pytest.mark.parametrize("report", FORMS)
def test_the_form_of_a_file_is_what_it_shows(write, report, name):
    layout = get_task("csv", text_a_column="text").layout
    examples = layout.read(write(name, FORMS[report]), Labels())
    assert [(one.text_a, one.label) for one in examples] == TWO_TEXTS


QUOTES = {  # the report, what happened there: texts of a tsv whose quotes are text
    "pytorch/text#612, #349: rows were merged or their columns shifted":
        ["First", '"Second', 'Third "sentence"', "Fourth", '" w1 w2'],
    "pandas#25228, #39857: rows were missing": ['say "hi', "w1", '"w2', "w3", 'w4"'],
    "datatable#2680: too few fields": ['"Great Performances" Cats (1998)', "w1"],
    "cocoscore#15: quoting had to be switched off": ['5" of rain', '"a" and "b"', '""'],
}  # fmt: skip


@pytest.mark.parametrize("report", QUOTES)
def test_no_row_of_a_tsv_with_stray_quotes_is_lost(write, report):
    texts = QUOTES[report]
    rows = "".join(f"{text}\t{number}\n" for number, text in enumerate(texts))
    layout = get_task("tsv", text_a_column="text").layout
    assert texts_of(layout.read(write("a.tsv", f"text\tlabel\n{rows}"), Labels())) == texts


R_TABLES = {  # as write.table, write.csv and write.table(sep="\t") write the same rows
    "quotes with a backslash": '"text" "label"\n"He said \\"no\\"" "a"\n"w1" "b"\n'.replace(
        '" "', '"\t"'
    ),
    "names of rows": '"text"\t"label"\n"1"\t"He said \\"no\\""\t"a"\n"2"\t"w1"\t"b"\n',
    "a csv": '"","text","label"\n"1","He said ""no""","a"\n"2","w1","b"\n',
}


@pytest.mark.parametrize("form", R_TABLES)
def test_tables_of_r(write, form):
    layout = get_task("csv", text_a_column="text").layout
    examples = layout.read(write("a.txt", R_TABLES[form]), Labels())
    assert [(one.text_a, one.label) for one in examples] == [('He said "no"', "a"), ("w1", "b")]


@pytest.mark.parametrize("between", ["\t", ","])
def test_empty_lines_are_no_rows_whatever_quotes_are(write, between):
    rows = f'\ntext{between}label\nw1{between}a\n\nit "w2{between}b\nw3{between}a\n'
    layout = get_task("csv", text_a_column="text").layout
    assert texts_of(layout.read(write("a.txt", rows), Labels())) == ["w1", 'it "w2', "w3"]


def test_line_ends_in_cells_of_a_tsv_are_text(write):
    """wit#3: rows of a tsv with quotes and line ends in its cells were cut."""
    path = write("a.tsv", 'text\tlabel\n"w1\n\nw2"\ta\nw3\tb\n')
    layout = get_task("tsv", text_a_column="text").layout
    assert texts_of(layout.read(path, Labels())) == ["w1\n\nw2", "w3"]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("gb18030", "这部电影很好看，我们都很喜欢它的音乐和演员"),  # TextClassify_with_BERT#8
        ("cp1252", "It’s a café – “naïve” – £5"),  # FastText-sentiment#2, training-charRNN#5
        ("cp1252", "déjà vu à la télévision française"),  # fast-bert#238, bert#1405
    ],
)
def test_an_encoding_is_named_and_not_guessed(write, encoding, text):
    """There a traceback; some answers were to read another encoding, or to delete letters."""
    path = write("a.csv", f"text,label\n{text},a\n".encode(encoding))
    with pytest.raises(InputError, match=r"a\.csv, line 2: ") as caught:
        get_task("csv", text_a_column="text").layout.read(path, Labels())
    assert f"--encoding={encoding} ('{text}" in caught.value.remedy
    layout = get_task("csv", text_a_column="text", reading=Reading(encoding=encoding)).layout
    assert texts_of(layout.read(path, Labels())) == [text]


def test_excels_unicode_text_is_read(write):
    """Bert-Chinese-Text-Classification-Pytorch#129: byte 0xff, saved by a spreadsheet as text."""
    path = write("a.txt", "text\tlabel\r\n好\ta\r\n".encode("utf-16"))
    layout = get_task("csv", text_a_column="text").layout
    assert texts_of(layout.read(path, Labels())) == ["好"]


# ------------------------------------------------------------------------------ words and labels


def test_words_in_columns_of_ones_own(write):
    """glample/tagger#71, flair#1131: two columns; NeuroNLP#1: a column that counts; FARM#78."""
    words = [("EU", "B-ORG"), ("rejects", "O"), ("German", "B-MISC"), ("call", "O")]
    two = "".join(f"{word} {tag}\n" for word, tag in words) + "\n"
    counted = "".join(f"{n} {w} NNP I-NP {t}\n" for n, (w, t) in enumerate(words, 1)) + "\n"
    layout = get_task("csv", label_kind="tags").layout
    for content in (two, counted, two.replace("\n", "\r\n"), "\n\n" + two.strip()):
        (sentence,) = layout.read(write("a.txt", content), Tags())
        assert list(zip(sentence.words, sentence.label, strict=True)) == words


def test_a_line_with_more_words_than_one_is_named(write):
    """glample/tagger#71, emnlp2017-bilstm-cnn-crf#47: list index out of range."""
    with pytest.raises(InputError, match="line 2: 3 columns: 'New York I-LOC'"):
        get_task("csv", label_kind="tags").layout.read(
            write("a.txt", "in O\nNew York I-LOC\n\n"), Tags()
        )


def test_spans_that_words_do_not_have_are_named(write):
    """spaCy#5272, #6071, #7974, doccano#386: such spans were dropped, in part without a word."""
    text = "jvc/3/21/2008 Dr. John V. Smithn."
    rows = [
        {"text_a": text, "spans": [[4, 13, "DATE"], [18, 32, "PERSON"]]},
        {"text_a": "Return to play after", "spans": [[0, 13, "X"]]},
    ]
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
    layout = get_task("csv", label_kind="tags").layout
    with pytest.raises(InputError, match=r"line 2: the span 0 to 13 .* ends inside of .* 'play'"):
        layout.read(path, Tags())
    skipping = get_task("csv", label_kind="tags", skip_bad_rows=True).layout
    (sentence,) = skipping.read(path, Tags())
    tags = dict(zip(sentence.words, sentence.label, strict=True))
    assert (tags["3"], tags["2008"], tags["John"], tags["Smithn"]) == (
        "B-DATE", "I-DATE", "B-PERSON", "I-PERSON",
    )  # fmt: skip


def test_labels_with_commas_and_spaces(write):
    """fastai#216: a space was what parts labels, and had to be taken out of their names."""
    cells = ["Arts, culture & media;Sport", "Sport", "", "Arts, culture & media"]
    rows = "".join(f'w{number}|"{cell}"\n' for number, cell in enumerate(cells))
    layout = get_task("csv", text_a_column="text", label_kind="multi_label").layout
    examples = layout.read(write("a.csv", f"text|label\n{rows}"), LabelSets())
    assert labels_of(examples) == [
        ("Arts, culture & media", "Sport"), ("Sport",), (), ("Arts, culture & media",)
    ]  # fmt: skip
