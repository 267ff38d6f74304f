"""Words with tags in forms that people have: found by training and by predict alike, or told."""

import pytest
from absl import logging
from served_models import metadata_of

from bert_tf.errors import InputError
from bert_tf.heads import Labels
from bert_tf.serving.rows import read_questions
from bert_tf.tasks import sources
from bert_tf.tasks.registry import OwnFiles, get_task
from bert_tf.tasks.sources import TaskData, task_of
from bert_tf.tasks.word_files import are_words

SENTENCE = [("Ada", "B-PER"), ("wrote", "O"), ("to", "O"), ("Ann", "B-PER")]
OTHER = [("It", "O"), ("rains", "O")]


def conll(form: str) -> str:
    """Two sentences; `form` makes a line of a number, a word and a tag."""
    blocks = (
        "".join(form.format(n=n, w=word, t=tag) + "\n" for n, (word, tag) in enumerate(words, 1))
        for words in (SENTENCE, OTHER)
    )
    return "\n".join(blocks)


FORMS = {
    "O": conll("{w} {t}"),
    "0 outside": conll("{w}\t{t}").replace("\tO", "\t0"),
    "- outside": conll("{w} {t}").replace(" O", " -"),
    "BMES": conll("{w} {t}").replace("B-PER", "S-PER"),
    "BILOU": conll("{w} {t}").replace("B-PER", "U-PER"),
    "GermEval": conll("{n}\t{w}\t{t}\tO"),
    "CoNLL-U": conll("{n}\t{w}\t_\t_\t_\t_\t_\t_\t_\tname={t}"),
    "tags of another model": conll("{w} {t}").replace("PER", "DRUG"),
}
METADATA = metadata_of(text=[None]) | {
    "task": "token_labels",
    "options": {"labels": ["O", "B-PER", "I-PER"]},
}


def asked(path):
    return [question.item for question in read_questions(str(path), METADATA).rows]


@pytest.mark.parametrize("form", FORMS)
def test_words_are_found_without_being_told(tmp_path, form):
    (path := tmp_path / "a.txt").write_text(FORMS[form])
    task = task_of(TaskData(own=OwnFiles(train_file=str(path))), "")
    assert task.labels.is_per_word
    if form != "CoNLL-U" and form != "GermEval":  # whose columns are asked for
        first, _ = task.read(str(tmp_path), "train")
        assert first.words == tuple(word for word, _ in SENTENCE)
    texts = [" ".join(word for word, _ in words) for words in (SENTENCE, OTHER)]
    assert [item["text"] for item in asked(path)] == texts


def test_texts_are_no_words():
    assert not are_words(["It rains again.", "Ada wrote it."], ["O", "B-PER"])
    assert not are_words(["It rains again O", "Ada wrote it."])


@pytest.mark.parametrize("sentence", [None, "Nr"])
def test_a_word_a_row_on_a_pipe_is_read_as_in_a_file(tmp_path, monkeypatch, sentence):
    """By path 40 answers, on a pipe 160."""
    rows = [*[("1", *row) for row in SENTENCE], *[("2", *row) for row in OTHER]]
    empty = "" if sentence else ",,\n"
    lines = [",".join(row) + "\n" for row in rows]
    content = "Nr,text,Tag\n" + "".join([*lines[: len(SENTENCE)], empty, *lines[len(SENTENCE) :]])
    (path := tmp_path / "a.csv").write_text(content)
    given = {"sentence_column": sentence}
    items = [question.item for question in read_questions(str(path), METADATA, **given).rows]
    assert items == [{"text": "Ada wrote to Ann"}, {"text": "It rains"}]
    with path.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        on_pipe = [question.item for question in read_questions(None, METADATA, **given).rows]
    assert on_pipe == items


def test_single_words_with_tags_are_told(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    task = get_task("csv")
    (tmp_path / "train.csv").write_text(
        "text_a,label\n" + "".join(f"{w},{t}\n" for w, t in SENTENCE)
    )
    rows = task.read(str(tmp_path), "train")
    sources.with_labels(task, rows, source=None)
    assert "--label_kind=tags reads sentences" in caplog.text
    caplog.clear()
    assert isinstance(task.labels, Labels)
    rows[0] = type(rows[0])("0", "Ada wrote", label="O")
    sources.with_labels(task, rows, source=None)
    assert "--label_kind=tags" not in caplog.text


@pytest.mark.parametrize(
    "rows", [[("w1", "a"), ("w2", "b"), ("w3", "c")], [("w1", "a"), ("w1", "a")]]
)
def test_a_share_of_nothing_is_refused_by_name(tmp_path, rows):
    """A label a row, or one text: there was "eval.tf_record, an empty file … make it again"."""
    lines = [f"{text},{label}\n" for text, label in [("text_a", "label"), *rows]]
    (path := tmp_path / "train.csv").write_text("".join(lines))
    data = TaskData(own=OwnFiles(train_file=str(path), dev_share=0.1))
    task = task_of(data, "")
    with pytest.raises(InputError, match="none of which can be dev data"):
        sources.read_examples(data, task, task.split("dev"), seed=5)


def test_quotes_that_are_words(tmp_path):
    """They are no quotes around cells: all rows between two of them were one word."""
    words = ["He", "said", '"', "Yes", '"']
    lines = ["word\ttag", *(f"{word}\tO" for word in words), "", "Anna\tB-PER", "left\tO", ""]
    (path := tmp_path / "a.tsv").write_text("\n".join(lines))
    given = {"text_a_column": "word", "label_column": "tag", "label_kind": "tags"}
    task = task_of(TaskData(own=OwnFiles(train_file=str(path), **given)), "")
    first, second = task.read(str(tmp_path), "train")
    assert (first.words, second.words) == (tuple(words), ("Anna", "left"))


def test_sentences_are_numbered_in_a_table_without_a_header(tmp_path):
    rows = [("1", "EU", "B-ORG"), ("1", "is", "O"), ("2", "It", "O"), ("2", "rains", "O")]
    given = {"text_a_column": "1", "label_column": "2", "label_kind": "tags", "has_header": False}
    for between in ("\t", ","):
        content = "".join(between.join(row) + "\n" for row in rows)
        (path := tmp_path / "a.txt").write_text(content)
        own = OwnFiles(train_file=str(path), sentence_column="0", **given)
        first, second = task_of(TaskData(own=own), "").read(str(tmp_path), "train")
        assert (first.words, second.words) == (("EU", "is"), ("It", "rains"))


@pytest.mark.parametrize("given", [{}, {"text_a_column": "0", "sentence_column": "sent"}])
def test_words_without_a_header_are_in_columns_by_number(tmp_path, given):
    (path := tmp_path / "a.csv").write_text("EU,B-ORG\n")
    own = OwnFiles(train_file=str(path), label_kind="tags", has_header=False, **given)
    with pytest.raises(InputError, match="correct the column flags"):
        task_of(TaskData(own=own), "")


@pytest.mark.parametrize(
    ("content", "metadata", "says"),
    [
        ("It rains.\nIt snows.\n", METADATA, "the columns"),
        (FORMS["O"], METADATA, "with a word a row, and a model of tags"),
        ('{"text": "It rains."}\n', METADATA, "with a word a row, and a model of tags"),
        ("Nr,text\n1,It\n", METADATA | {"task": "classification"}, "and a model of tags"),
        ("1,It\n1,rains\n", METADATA | {"columns": [1]}, "a position from 0"),
    ],
)
def test_a_column_of_sentences_is_not_ignored(tmp_path, content, metadata, says):
    """Where nothing reads it, predict says so, as training does."""
    (path := tmp_path / "a.txt").write_text(content)
    with pytest.raises(InputError) as caught:
        list(read_questions(str(path), metadata, sentence_column="Nr").rows)
    assert says in str(caught.value)
