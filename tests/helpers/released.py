"""A stand-in for released weights and the paper's data: their names and layouts, small contents."""

import csv
import itertools
import json
import pathlib
from collections.abc import Iterable, Sequence

from model_files import tensors_of, write_tf1

from bert_tf import BertConfig

ROOT = pathlib.Path(__file__).parents[2]
ROWS = {"train": 45, "dev": 19, "test": 11}
SIZES = {
    "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 20,
    "max_position_embeddings": 512, "type_vocab_size": 2,
}  # fmt: skip
PAIR = ("index", "sentence1", "sentence2", "label")
QUESTION = "Which word comes after the first one?"


def write_weights(folder: pathlib.Path, *models: str) -> pathlib.Path:
    """Random weights in folders of these names, with vocabularies of texts of this project."""
    for model in models:
        case = "uncased" if "uncased" in model else "cased"
        text = (ROOT / f"tests/goldens/vocab/{case}.txt").read_text(encoding="utf-8")
        pieces = text.split("\n")[:-1]
        config = BertConfig(vocab_size=len(pieces), **SIZES)
        write_tf1(folder / model, tensors_of("pretraining", config), config=config, pieces=pieces)
    return folder


def sentences() -> list[str]:
    """Sentences of the sample texts."""
    texts = sorted((ROOT / "data_gen/sample_text").glob("[cn]*.txt"))
    lines = "".join(path.read_text(encoding="utf-8") for path in texts).splitlines()
    return [line for line in lines if line]


def write_data(folder: pathlib.Path) -> pathlib.Path:
    """Every task that `bert-tf reproduce` runs, as published: CoLA/train.tsv and so on."""
    texts = itertools.cycle(sentences())
    for split, count in ROWS.items():
        pairs = [(number, next(texts), next(texts)) for number in range(count)]
        _write_glue(folder, split, pairs)
        _write_squad(folder / "squad", split, pairs)
        _write_swag(folder / "swag", split, pairs)
        _write_ner(folder / "conll2003", split, pairs)
    return folder


def _write_glue(folder: pathlib.Path, split: str, pairs: Sequence) -> None:
    def table(name: str, header: Sequence[str], rows: Iterable[Sequence]) -> None:
        path = folder / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [*([header] if header else []), *rows]
        path.write_text("".join("\t".join(map(str, one)) + "\n" for one in lines), encoding="utf-8")

    is_test = split == "test"
    if is_test:
        table("CoLA/test", ("index", "sentence"), ((i, a) for i, a, _ in pairs))
        table("SST-2/test", ("index", "sentence"), ((i, a) for i, a, _ in pairs))
    else:
        table(f"CoLA/{split}", (), (("x", i % 2, "", a) for i, a, _ in pairs))
        table(f"SST-2/{split}", ("sentence", "label"), ((a, i % 2) for i, a, _ in pairs))
    first = ("index" if is_test else "Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    mrpc = ((i if is_test else int(i % 3 > 0), i, i, a, b) for i, a, b in pairs)
    table(f"MRPC/{split}", first, mrpc)
    labels = {
        "RTE": ("entailment", "not_entailment"), "QNLI": ("entailment", "not_entailment"),
        "QQP": ("0", "1"), "STS-B": ("0.500", "2.250", "4.000"),
    }  # fmt: skip
    headers = {
        "RTE": PAIR, "QNLI": ("index", "question", "sentence", "label"),
        "QQP": ("id", "question1", "question2", "is_duplicate"),
        "STS-B": (*PAIR[:3], "score"),
    }  # fmt: skip
    for name, header in headers.items():
        rows = ((i, a, b, labels[name][i % len(labels[name])]) for i, a, b in pairs)
        cut = slice(0, 3 if is_test else 4)
        table(f"{name}/{split}", header[cut], (row[cut] for row in rows))
    names = ("contradiction", "entailment", "neutral")
    cut = slice(0, 10 if is_test else 11)
    header = ("index", *"1234567", "sentence1", "sentence2", "gold_label")[cut]
    rows = [(i, *"-------", a, b, names[i % 3])[cut] for i, a, b in pairs]
    if split == "train":
        table("MNLI/train", header, rows)
    else:
        table(f"MNLI/{split}_matched", header, rows)
        table(f"MNLI/{split}_mismatched", header, rows[::-2])


def _write_squad(folder: pathlib.Path, split: str, pairs: Sequence) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for version in ("1.1", "2.0") if split != "test" else ():
        paragraphs = []
        for number, a, _ in pairs:
            word = max(a.rstrip(".").split(), key=len)
            answer = {"text": word, "answer_start": a.index(word)}
            asked = {"id": f"{split}{number}", "question": QUESTION, "answers": [answer]}
            if version == "2.0":
                asked["is_impossible"] = number % 3 == 0
                asked["answers"] = [] if asked["is_impossible"] else [answer]
            paragraphs.append({"context": a, "qas": [asked]})
        content = {"version": version, "data": [{"title": "t", "paragraphs": paragraphs}]}
        (folder / f"{split}-v{version}.json").write_text(json.dumps(content), encoding="utf-8")


def _write_swag(folder: pathlib.Path, split: str, pairs: Sequence) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    endings = [f"ending{n}" for n in range(4)]
    names = ["video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source", *endings]
    name = {"dev": "val"}.get(split, split)
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["", *names, *["label"] * (split != "test")])
        for number, a, b in pairs:
            start, *rest = b.split()
            row = [number, "v", number, f"{a} {start}", a, start, "gold", " ".join(rest)]
            row += [" ".join(words) for words in (rest[1:], rest[:2], rest[::-1])]
            writer.writerow([*row, *[0] * (split != "test")])


def _write_ner(folder: pathlib.Path, split: str, pairs: Sequence) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}[split]
    lines = []
    for number, a, _ in pairs:
        lines += ["-DOCSTART- -X- O O", ""] if number % 4 == 0 else []
        lines += [f"{word} NN I-NP {'B-LOC' if word[0].isupper() else 'O'}" for word in a.split()]
        lines.append("")
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
