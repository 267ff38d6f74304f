"""Readers of data: tables, SQuAD and its answers, raw text."""

import functools
import json
import math
import pathlib

from readers import Reader

from bert_tf.heads import Choices, Labels, LabelSets, Scores, Tags
from bert_tf.squad import answer_files, data, evaluation
from bert_tf.tasks.examples import ChoiceColumns, TextColumns, WordColumns
from data_gen.documents import DocumentReader

# ---------------------------------------------------------------------------- tables

ROWS = (
    ("i0", "It rains.", "Is it dry?", "bad"),
    ("i1", 'She said "no", then left.', "A 2nd text, with commas", "good"),
    ("i2", "Ruprecht gründete 1386", "海德堡大学 😀", "bad"),
    ("i3", "x", "y", "good"),
)
COLUMNS = ("id", "first", "second", "label")
PAIR = {"text_a": "first", "text_b": "second", "label": "label", "id": "id"}


def _table(name: str, folder: pathlib.Path) -> Reader:
    """A table of `TABLES`."""
    layout, labels, text, way = TABLES[name]
    path = folder / f"train.{layout.file_format}"
    path.write_text(text, encoding="utf-8")

    def read(_: pathlib.Path) -> None:
        examples = layout.read(str(path), labels)
        assert examples
        assert len({example.guid for example in examples}) == len(examples)
        named = labels.with_names_in(example.label for example in examples)
        for example in examples:
            numbers = named.ids(example.label)
            assert all(math.isfinite(number) for number in numbers)
            for part in _texts_of(example):
                assert isinstance(part, str)

    return Reader(folder, {path.name: way}, read)


def _texts_of(example) -> list[str]:
    """The words or texts of an example."""
    if hasattr(example, "words"):
        return list(example.words)
    return [text for pair in example.pairs for text in pair if text is not None]


def _quoted(row) -> str:
    """A row of CSV with quotes around every cell."""
    escaped = [cell.replace('"', '""') for cell in row]
    return ",".join(f'"{cell}"' for cell in escaped) + "\n"


_ENDINGS = tuple(f"ending{number}" for number in range(4))
_CHOICES = ",".join(("sent1", "sent2", *_ENDINGS, "label"))
TABLES = {  # the layout, the labels, a valid table, how it is damaged (a key of WAYS)
    "tsv": (TextColumns(**PAIR), Labels(),
            "".join("\t".join(row) + "\n" for row in (COLUMNS, *ROWS)), "lines"),
    "tsv_without_header": (  # columns by position, of numbers
        TextColumns(text_a=1, text_b=2, label=3), Scores(limits=(0, 5)),
        "".join(f"{a}\t{b}\t{c}\t{n / 2}\n" for n, (a, b, c, _) in enumerate(ROWS)), "lines"),
    "csv": (  # quotes, and several labels for a row
        TextColumns(**PAIR, file_format="csv"), LabelSets(),
        "".join(map(_quoted, (COLUMNS, *ROWS))).replace("good", "x,y"), "lines"),
    "csv_of_choices": (  # SWAG's table: four endings and the number of the right one
        ChoiceColumns(text_a="sent1", start="sent2", endings=_ENDINGS, label="label"),
        Choices(names=tuple("0123")),
        f'{_CHOICES}\na,b,c,d,e,f,2\n"a, b",,c,d,"e ""x""",f,0\n', "lines"),
    "jsonl": (
        TextColumns(**PAIR, file_format="jsonl"), LabelSets(),
        "".join(json.dumps(dict(zip(COLUMNS, row, strict=True)) | {"label": ["x", "y"]}) + "\n"
                for row in ROWS), "json_lines"),
    "conll": (
        WordColumns(), Tags(),
        "-DOCSTART- -X- O\n\nRuprecht NNP B-PER\nI. NNP I-PER\nleft VBD O\n\nIn IN O\n", "lines"),
}  # fmt: skip


# ---------------------------------------------------------------------------- SQuAD


def _article(title: str, context: str, *answers: str) -> dict:
    """An article of one paragraph, with a question for each answer; "" is no answer."""
    qas = []
    for number, answer in enumerate(answers):
        gold = [{"text": answer, "answer_start": context.index(answer)}] if answer else []
        qas.append(
            {
                "id": f"{title}{number}",
                "question": f"Where is {answer or 'nothing'}?",
                "answers": gold,
                "is_impossible": not answer,
            }
        )
    return {"title": title, "paragraphs": [{"context": context, "qas": qas}]}


SQUAD = {
    "version": "v2.0",
    "data": [
        _article("Heidelberg", "Ruprecht I founded it in 1386 (see below).", "Ruprecht I", "1386"),
        _article("大学", "海德堡大学 was\tfounded \u202fin 1386. 😀", "海德堡", "", "1386"),
    ],
}
IDS = [qa["id"] for article in SQUAD["data"] for qa in article["paragraphs"][0]["qas"]]
ANSWERS = {
    "predictions.json": dict.fromkeys(IDS, "Ruprecht"),
    "null_odds.json": {qas_id: number - 2.5 for number, qas_id in enumerate(IDS)},
}


def squad(folder: pathlib.Path) -> Reader:
    """A file of SQuAD v2.0, read for training."""
    path = folder / "train-v2.0.json"
    path.write_text(json.dumps(SQUAD), encoding="utf-8")

    def read(_: pathlib.Path) -> None:
        file = data.read_squad(str(path))
        for training in data.training_examples(file, version_2_with_negative=True):
            span = training.words
            assert (training.answer is None) == (span is None)
            if span:
                words = data.split_context(training.example.context).words
                assert 0 <= span.start_position <= span.end_position < len(words)

    return Reader(folder, {path.name: "json"}, read)


def squad_answers(folder: pathlib.Path) -> Reader:
    """Gold answers, predictions and null odds, as evaluate-squad reads them."""
    for name, content in {"dev.json": SQUAD, **ANSWERS}.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    gold, predicted, odds = (str(folder / name) for name in ("dev.json", *ANSWERS))

    def read(_: pathlib.Path) -> None:
        file = data.read_squad(gold)
        answers = answer_files.read_predictions(predicted)
        na_probs = answer_files.read_na_probs(odds)
        scores = evaluation.official_scores(
            file, answers, na_probs=na_probs if file.version_2 else None
        )
        for name, score in scores.items():
            is_percentage = not name.endswith(("thresh", "total"))
            assert not is_percentage or 0 <= score <= 100, scores

    return Reader(folder, dict.fromkeys(("dev.json", *ANSWERS), "json"), read)


# ---------------------------------------------------------------------------- text


TEXT = "\ufeffA sentence.\nRuprecht gründete 1386.\r\n\n海德堡大学 😀\u2028 and more\n \nEnd\n"
ARTICLE = """<doc id="12" url="https://x/?curid=12" title="A &amp; B">
A &amp; B

Ruprecht founded the university in 1386, as <ref>the</ref> third one of the empire.
short
</doc>
"""


def _text(folder: pathlib.Path, input_format: str, text: str) -> Reader:
    """A file of text for pre-training."""
    path = folder / "text.txt"
    path.write_text(text, encoding="utf-8")

    def read(_: pathlib.Path) -> None:
        reader = DocumentReader([str(path)], input_format=input_format)
        blocks = list(reader.blocks(100))
        lines = [line for block in blocks for document in block for line in document]
        assert all(lines)
        assert not any("\n" in line for line in lines)
        assert all(block and all(block) for block in blocks)
        assert reader.counts["lines"] == len(lines)

    return Reader(folder, {"text.txt": "lines"}, read)


def text(folder: pathlib.Path) -> Reader:
    """Text for pre-training, a sentence a line."""
    return _text(folder, "text", TEXT)


def wikiextractor(folder: pathlib.Path) -> Reader:
    """Text for pre-training as WikiExtractor writes it."""
    return _text(folder, "wikiextractor", ARTICLE * 2)


def jsonl(folder: pathlib.Path) -> Reader:
    """Text for pre-training, a document a line of JSON."""
    return _text(folder, "jsonl", '{"text": "One.\\nTwo 海."}\n\n{"text": "", "id": 3}\n' * 2)


MAKERS = {
    **{name: functools.partial(_table, name) for name in TABLES},
    "squad": squad,
    "squad_answers": squad_answers,
    "text": text,
    "wikiextractor": wikiextractor,
    "jsonl": jsonl,
}
