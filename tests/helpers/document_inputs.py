"""The files that the commands and snippets of the documents read, with a tiny model."""

import csv
import json
import pathlib
import re
import shutil
import string

import reference
from documents import blocks, read
from model_files import SPECIAL, tensors_of, weights_of, write_bundle, write_tf1

import bert_tf
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.heads import head_named

WORDS = (*string.ascii_lowercase, "the", "una", "snow", "team", ".", ",", "?")
ENDS = (*string.ascii_lowercase, "ffa", "ble")
PIECES = (*SPECIAL, *WORDS, *(f"##{end}" for end in ENDS))
SIZES = {
    "vocab_size": len(PIECES), "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 12, "max_position_embeddings": 512, "type_vocab_size": 2,
}  # fmt: skip
CONFIG = bert_tf.BertConfig(**SIZES)
LABELS = ("bad", "fair", "good")
TEXT = "The team lost.\nSnow, snow.\n\nThe cat is on the hill.\nIt left.\n"
ARTICLE = """<doc id="1" url="https://a.example" title="Snow">
Snow

The team lost, and the cat is on the hill in the snow. It left the hill at ten in the morning.

</doc>
"""
ENTITIES = "-DOCSTART- O\n\nAnn B-PER\nleft O\n. O\n\nThe O\nhill B-LOC\n\n"
ANSWERED = {"question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
QUESTIONS = {
    "v1.1": [ANSWERED | {"id": number} for number in "12"],
    "v2.0": [
        ANSWERED | {"id": "1", "is_impossible": False},
        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
    ],
}


def write_inputs(folder: pathlib.Path) -> None:
    """Writes all files, under the names that the documents use."""
    write_models(folder)
    write_texts(folder)
    write_tables(folder)


def write_models(folder: pathlib.Path) -> None:
    """Writes released models, three checkpoints of one model, and finished runs."""
    tensors = reference.random_weights(CONFIG, seed=3)
    for name, pieces, cased, file_format in (
        ("all-MiniLM-L6-v2", PIECES, False, "hugging_face"),
        ("uncased_L-12_H-768_A-12", PIECES, False, "tf1"),
        ("cased_L-12_H-768_A-12", (*PIECES[:-1], "Ann"), True, "tf1"),
    ):
        metadata = ModelMetadata(do_lower_case=not cased)
        weights = weights_of(tensors, config=CONFIG, pieces=pieces, metadata=metadata)
        bert_tf.save_weights(weights, folder / name, format=file_format)
    # vocab.txt, bert_config.json, bert_model.ckpt
    shutil.copytree(folder / "uncased_L-12_H-768_A-12", folder, dirs_exist_ok=True)
    for name in ("a.ckpt", "b.ckpt", "c.ckpt"):
        write_bundle(folder / name, tensors)
    write_tf1(folder / "model", tensors, config=CONFIG, pieces=None, name="model.ckpt-1000")
    for name, kind, head, facts in (
        ("models/mrpc", "classifier", "classification", {"pairs": True, "labels": LABELS}),
        ("models/sst2", "classifier", "classification", {"labels": LABELS}),
        ("models/squad", "span", "question_answering", {"version_2_with_negative": True}),
        ("demo/topics", "classifier", "classification", {"labels": LABELS}),
    ):
        metadata = ModelMetadata(
            do_lower_case=True, architecture=head_named(head).architecture, **facts
        )
        tensors = tensors_of(kind, CONFIG)
        weights = weights_of(tensors, config=CONFIG, pieces=PIECES, metadata=metadata)
        bert_tf.save_weights(weights, folder / name, format="bert_tf")


def write_texts(folder: pathlib.Path) -> None:
    """Writes a corpus, articles of Wikipedia, and lines for `features` and `predict`."""
    (question,) = re.findall(r"of `questions.jsonl` is `(.*?)`", read("docs/squad.md"))
    for name, text in {
        "corpus/a.txt": TEXT,
        "held_out.txt": TEXT,
        "extracted/AA/wiki_00": ARTICLE * 2,
        "texts.txt": "The team lost.\nIt left.\n",
        "questions.jsonl": f"{question}\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def write_tables(folder: pathlib.Path) -> None:
    """Writes data of the tasks, with the examples of the documents where they have some."""
    tables = {
        "mine": {
            "{}.csv": blocks(read("docs/get_started.md"), "csv")[0],
            "{}.jsonl": blocks(read("docs/fine_tune.md"), "json")[0],
        },
        "conll": {"{}.txt": ENTITIES},
    }
    for name, files in tables.items():
        (folder / name).mkdir()
        for file, text in files.items():
            for part in ("train", "dev", "new"):
                (folder / name / file.format(part)).write_text(text)
    pairs = [["1", "1", "2", "It left.", "The cat left."], ["0", "3", "4", "Snow.", "The hill."]]
    header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    for part in ("train", "dev", "test"):
        write_rows(folder / f"glue/MRPC/{part}.tsv", header, pairs, delimiter="\t")
    header = ["", "sent1", "sent2", *(f"ending{i}" for i in range(4)), "label"]
    row = ["It snows.", "The cat", "left", "lost", "is on", "the team", "1"]
    rows = [[number, *row] for number in "12"]
    for part in ("train", "val"):
        write_rows(folder / f"swag/{part}.csv", header, rows)
    for version, questions in QUESTIONS.items():
        paragraph = {"context": "Ann left in May.", "qas": questions}
        content = {"version": version, "data": [{"title": "t", "paragraphs": [paragraph]}]}
        for part in ("train", "dev"):
            (folder / f"{part}-{version}.json").write_text(json.dumps(content))
    (folder / "predictions.json").write_text(json.dumps({"1": "Ann", "2": "May"}))


def write_rows(
    path: pathlib.Path, header: list[str], rows: list[list[str]], delimiter: str = ","
) -> None:
    """Writes a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
