"""The files, besides models, that the calls of the matrix read; all words are in the vocabulary."""

import csv
import json
import pathlib

import matrix_functions
import matrix_models
import model_files
import walking

from bert_tf.training.log import TrainingLog

SIZES = {"max_seq_length": matrix_models.LENGTH, "max_predictions_per_seq": 3}
QUESTIONS = 5


def write(folder: pathlib.Path) -> None:
    """Writes all files into a new folder."""
    folder.mkdir()
    pieces = "".join(f"{piece}\n" for piece in model_files.PIECES)
    (folder / "vocab.txt").write_text(pieces)
    (folder / "bert_config.json").write_text(matrix_models.CONFIG.to_json_string())
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in matrix_functions.TEXTS))
    for texts, items in matrix_functions.ITEMS.items():
        write_lines(folder / f"{'_'.join(texts)}.jsonl", items)
    write_lines(folder / "masked.jsonl", matrix_functions.MASKED)
    write_corpus(folder / "corpus.txt")
    write_topics(folder / "topics")
    write_squad(folder)
    with walking.in_process("data") as data:
        data(
            input_file=folder / "corpus.txt", output_file=folder / "records.tfrecord",
            vocab_file=folder / "vocab.txt", dupe_factor=2, num_workers=1, **SIZES,
        )  # fmt: skip
    log = TrainingLog(str(folder / "run"), 8, 100)
    log.add({"loss": 2.0}, 1)
    log.write(1, learning_rate=0.5, timed=[0.0, 0.0])


def write_lines(path: pathlib.Path, items: list) -> None:
    """Writes JSON, an item a line."""
    path.write_text("".join(f"{json.dumps(item)}\n" for item in items))


def write_corpus(path: pathlib.Path) -> None:
    """Writes four documents of five sentences of five words."""
    lines = []
    for document in range(4):
        for sentence in range(1, 6):
            words = [f"w{(document * 7 + sentence * k) % 36}" for k in range(1, 6)]
            lines.append(" ".join(words))
        lines.append("")
    path.write_text("\n".join(lines))


def write_topics(folder: pathlib.Path) -> None:
    """Writes labelled texts in three splits, and weights of their labels."""
    folder.mkdir()
    labels = matrix_models.LABELS
    for number, split in enumerate(("train", "dev", "test"), 1):
        rows = [(f"w{n * number} w{n + number}", labels[n % 3]) for n in range(9)]
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text_a", "label"), *rows])
    weights = {label: number + 0.5 for number, label in enumerate(sorted({*labels[:3]}))}
    (folder / "weights.json").write_text(json.dumps(weights))


def write_squad(folder: pathlib.Path) -> None:
    """Writes questions, and predictions and null odds for them."""
    squad = walking.squad_file(QUESTIONS, seed=7)
    (folder / "squad.json").write_text(json.dumps(squad))
    ids = [paragraph["qas"][0]["id"] for paragraph in squad["data"][0]["paragraphs"]]
    answers = {
        "predictions": {i: f"w{n}" for n, i in enumerate(ids)},
        "null_odds": {i: n - 2.5 for n, i in enumerate(ids)},
    }
    for name, content in answers.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
