"""Sentences in words as people have them: the same examples from every form of file."""

import csv
import io
import json

import pytest
from walking import eagerly, in_process, read_results, untraced, write_encoder

from bert_tf.errors import InputError
from bert_tf.heads import Tags
from bert_tf.tasks.registry import OwnFiles, get_task
from bert_tf.tasks.sources import TaskData, task_of

SENTENCES = [
    (("Anna", "met", "Bo", "Li", "."), ("B-PER", "O", "B-PER", "I-PER", "O")),
    (("Rome", ",", "not", "Paris"), ("B-LOC", "O", "O", "B-LOC")),
    (("It", "rained", "."), ("O", "O", "O")),
    (("New", "York", "Times"), ("B-ORG", "I-ORG", "I-ORG")),
    (("0", "-", "1", "for", "Ajax"), ("O", "O", "O", "O", "B-ORG")),
    (('"', "Yes", '"', ";"), ("O", "O", "O", "O")),
    (("Anna",), ("B-PER",)),
    (("a", "|", "b"), ("O", "O", "O")),
    (("Li", "left", "Rome"), ("B-PER", "O", "B-LOC")),
    (("Über", "Köln", "!"), ("O", "B-LOC", "O")),
    (("He", "'", "s", "Bo"), ("O", "O", "O", "B-PER")),
    (("Ajax", "Ajax"), ("B-ORG", "B-ORG")),
]


def conll(separator: str = " ", *, document: bool = False) -> str:
    lines = ["-DOCSTART- O", ""] if document else []
    for words, tags in SENTENCES:
        lines += [separator.join(pair) for pair in zip(words, tags, strict=True)]
        lines.append("")
    return "\n".join(lines) + "\n"


def conll_u() -> str:
    lines = []
    for words, tags in SENTENCES:
        lines.append("# text")
        for number, (word, tag) in enumerate(zip(words, tags, strict=True), 1):
            lines.append(f"{number}\t{word}\t{word}\tX\t_\t_\t0\troot\t_\tname={tag}")
        lines.append("")
    return "\n".join(lines) + "\n"


def table(delimiter: str = ",", *, column: str = "") -> str:
    """A word a row; sentences by empty lines, or by a column: each row, or the first one alone."""
    out = io.StringIO(newline="")
    write = csv.writer(out, delimiter=delimiter, lineterminator="\n").writerow
    write(["Sentence #", "Word", "Tag"] if column else ["Word", "Tag"])
    for number, (words, tags) in enumerate(SENTENCES, 1):
        for place, pair in enumerate(zip(words, tags, strict=True)):
            shown = f"Sentence: {number}" if column == "each" or place == 0 else ""
            write([shown, *pair] if column else pair)
        if not column:
            out.write("\n")
    return out.getvalue()


def json_lines(*, by_spans: bool = False) -> str:
    lines = []
    for words, tags in SENTENCES:
        values = {"text_a": list(words), "label": list(tags)}
        if by_spans:
            values = {"text_a": " ".join(words), "spans": spans(words, tags)}
        lines.append(json.dumps(values, ensure_ascii=False))
    return "\n".join(lines) + "\n"


def spans(words: tuple[str, ...], tags: tuple[str, ...]) -> list[dict]:
    found: list[dict] = []
    at = 0
    for word, tag in zip(words, tags, strict=True):
        end = at + len(word)
        if tag.startswith("B"):
            found.append({"start": at, "end": end, "label": tag[2:]})
        elif tag.startswith("I"):
            found[-1]["end"] = end
        at = end + 1
    return found


NAMED = {"text_a_column": "Word", "label_column": "Tag"}
BY_NUMBER = NAMED | {"sentence_column": "Sentence #"}
FORMS = {
    "CoNLL": (conll(), {}),
    "CoNLL with tabs": (conll("\t"), {}),
    "CoNLL with documents": (conll(document=True), {}),
    "CoNLL-U": (conll_u(), {}),
    "CoNLL-U, asked for": (conll_u(), {"label_column": "name"}),
    "csv": (table(), NAMED),
    "semicolons": (table(";"), NAMED),
    "tsv": (table("\t"), NAMED),
    "bars": (table("|"), NAMED),
    "csv, sentences by each row": (table(column="each"), BY_NUMBER),
    "csv, sentences by the first row": (table(column="first"), BY_NUMBER),
    "JSON lines": (json_lines(), {}),
    "a list in JSON": (json.dumps([json.loads(x) for x in json_lines().splitlines()]), {}),
    "spans": (json_lines(by_spans=True), {}),
}


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_sentences(tmp_path, form, name):
    content, columns = FORMS[form]
    (path := tmp_path / name).write_text(content, encoding="utf-8")
    layout = get_task("csv", label_kind="tags", **columns).layout
    examples = layout.read(str(path), Tags())
    assert [(one.words, one.label) for one in examples] == SENTENCES


def test_what_is_one_of_the_tasks_of_words(tmp_path):
    (tmp_path / "a").write_text(conll())
    (tmp_path / "b").write_text(json_lines())
    own = {"train_file": str(tmp_path / "a")}
    cases = (
        ({}, own, True), ({"task_name": "ner"}, {"train_file": str(tmp_path / "b")}, True),
        ({}, {"train_file": str(tmp_path / "b"), "label_kind": "tags"}, True),
        ({}, {"train_file": str(tmp_path / "b")}, False),
    )  # fmt: skip
    for options, files, is_words in cases:
        data = TaskData(own=OwnFiles(**files), **options)
        assert task_of(data, "").labels.is_per_word == is_words


BAD = {  # form, content, options, what is said
    "nothing between sentences": (
        "Word,Tag\n" + "a,O\n" * 501, NAMED, "501 words and nothing that parts sentences"),
    "another column": ("Word,Tag\na,O\n\n", NAMED | {"label_column": "Tags"}, "did you mean 'Tag'"),
    "a span in a word": ('{"text_a": "Annas", "spans": [{"start": 0, "end": 4, "label": "X"}]}', {},
                         "line 1: the span 0 to 4 (X) ends inside of the word 'Annas'"),
    "a scheme": ("a W-PER\nb B-PER\nc E-PER\nd O\n\n", {}, "W-PER"),
    "several columns": ("1 a B-X B-Y\n2 b O O\n\n1 c O B-Y\n2 c O O\n", {}, "--label_column"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named(tmp_path, case):
    content, options, says = BAD[case]
    (path := tmp_path / "a").write_text(content)
    with pytest.raises(InputError) as caught:
        get_task("csv", label_kind="tags", **options).layout.read(str(path), Tags())
    assert says in str(caught.value)


def test_bad_rows_are_named_at_once_and_skipped(tmp_path, caplog):
    lines = json_lines(by_spans=True).splitlines()
    lines[2] = '{"text_a": "It rained.", "spans": [{"start": 1, "end": 2, "label": "X"}]}'
    lines[7] = '{"text_a": ["a"], "label": ["O", "O"]}'
    (path := tmp_path / "a").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"with 2 rows that cannot be used:\nline 3: .*\nline 8: "):
        get_task("csv", label_kind="tags").layout.read(str(path), Tags())
    layout = get_task("csv", label_kind="tags", skip_bad_rows=True).layout
    assert len(layout.read(str(path), Tags())) == 10
    assert "2 rows that cannot be used are left out" in caplog.text


@pytest.mark.parametrize("form", ["CoNLL", "spans", "csv, sentences by the first row"])
def test_a_model_is_trained_scored_and_asked(tmp_path, form):
    """By the commands, from one file; its dev rows are scored again, and other files answered."""
    content, columns = FORMS[form]
    write_encoder(tmp_path, num_hidden_layers=1)
    twice = content + (content.partition("\n")[2] if "csv" in form else content)
    (tmp_path / "mine.txt").write_text(twice, encoding="utf-8")
    out = tmp_path / "out"
    given = {"output_dir": out, "max_seq_length": 17, "do_eval": True}
    training = {
        "train_file": tmp_path / "mine.txt", "dev_share": 0.25, "do_train": True, "xla": "false",
        "init_checkpoint": tmp_path, "train_batch_size": 5, "num_train_epochs": 1, **columns,
    }  # fmt: skip
    with in_process("classify") as classify, eagerly():
        classify(task_name="ner", **given, **training)
        results = read_results(out)
        assert 0 <= results["eval_entity_f1"] <= 1
        classify(dev_file=out / "dev.jsonl", label_kind="tags", id_column="id", **given)
        again = read_results(out)
        assert again["eval_loss"] == pytest.approx(results["eval_loss"], abs=1e-6)
    with in_process("predict") as predict, untraced():
        answers = []
        for name in dict.fromkeys(["CoNLL", "JSON lines", form]):
            (tmp_path / "asked").write_text(FORMS[name][0], encoding="utf-8")
            asked = {"model": out, "input_file": tmp_path / "asked"}
            given_columns = {"sentence_column": "Sentence #"} if name.startswith("csv") else {}
            if name == "JSON lines" and "text_a_column" in columns:
                given_columns = {"text_a_column": "text_a"}
            predict(**asked, **given_columns, output_file=tmp_path / "answers")
            lines = (tmp_path / "answers").read_text(encoding="utf-8").splitlines()
            answers.append([json.loads(line)["labels"] for line in lines])
        assert answers == [answers[0]] * len(answers)
        assert len(answers[0]) == len(SENTENCES)
