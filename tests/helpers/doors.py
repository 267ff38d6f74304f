"""The doors through which files and texts get answers: commands, server, library.

Each gives the answers of all rows in one form: of texts the probabilities of the labels in the
order of their names, or the score alone; of words the tag and the probability of each.
"""

import contextlib
import csv
import functools
import io
import json
import os
import pathlib
import subprocess
import sys
import types
import unittest.mock
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import door_files
import keras
import numpy as np
from door_files import KINDS, File
from serving import serving
from walking import COMPILE_QUICKLY, command, eagerly, in_process, untraced

import bert_tf
from bert_tf import BertConfig, FullTokenizer
from bert_tf.checkpoints.metadata import ModelMetadata, write_model_files
from bert_tf.checkpoints.tf1 import write_checkpoint
from bert_tf.heads import head_named
from bert_tf.modeling.memory import Dropout
from bert_tf.modeling.names import checkpoint_name
from bert_tf.training.optimization import make_optimizer

LENGTH, RATE = 24, 1e-2
Answer = list[float] | list[tuple[str, float]]


@contextlib.contextmanager
def training() -> Iterator[None]:
    """Training without graphs and without dropout, which no two doors draw alike."""
    still = unittest.mock.patch.object(Dropout, "call", lambda _, x, training=None: x)
    with eagerly(), still:
        yield


class Doors:
    """Models of all kinds, each made when it is first asked for.

    A model begins with random weights that tell texts apart and takes one step over all rows,
    without dropout: what reads another text or label ends with other weights.
    """

    def __init__(self, folder: pathlib.Path):
        """Takes the folder in which models are made."""
        self.folder = folder
        self.trained = functools.cache(self._trained)
        self.of_fit = functools.cache(self._of_fit)

    # ------------------------------------------------------------------------ models

    def start(self, kind: str) -> pathlib.Path:
        """The folder of a model that has not been trained on rows of the kind."""
        folder = self.folder / f"start of {kind}"
        if folder.exists():
            return folder
        folder.mkdir()
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        pieces += door_files.words_of([*door_files.TEXTS, *(t for (t,) in texts("tags"))])
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
        tokenizer = FullTokenizer(folder / "vocab.txt")
        config = BertConfig(
            vocab_size=len(pieces), hidden_size=12, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=17, max_position_embeddings=LENGTH, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        head, labels = head_named(KINDS[kind].head), KINDS[kind].labels
        random = np.random.default_rng([*kind.encode()])
        tensors = {}
        for variable in head.model(config, num_classes=len(labels)).trainable_variables:
            name = checkpoint_name(variable)
            value = random.standard_normal(variable.shape) * 0.4 + name.endswith("gamma")
            tensors[name] = value.astype(np.float32)
        write_checkpoint(str(folder / "model.ckpt"), tensors, temporary=str(folder / "new"))
        known = {"do_lower_case": True, "architecture": head.architecture, "labels": labels or None}
        write_model_files(str(folder), config, tokenizer, ModelMetadata(**known))
        return folder

    def _trained(self, kind: str) -> pathlib.Path:
        """The folder of a model that was trained on the plainest file of the kind."""
        form = "conll" if kind == "tags" else "json lines"
        file = File(kind, form, "plain", between=None)
        folder = self.folder / f"of {kind}"
        folder.mkdir()
        self.train(file, file.write(folder), folder / "out")
        return folder / "out"

    # ------------------------------------------------------------------------ of rows

    def _of_fit(self, kind: str) -> list[Answer]:
        """`fit` and `predict` of the library, on the texts and labels themselves."""
        start, known = str(self.start(kind)), KINDS[kind]
        inputs = [*zip(*texts(kind), strict=True)]
        inputs = tuple(map(list, inputs)) if kind == "pairs" else [*inputs[0]]
        labels = door_files.labels_of(kind)
        rows = {"batch_size": len(labels), "epochs": 1, "verbose": 0}
        optimizer = make_optimizer(1, learning_rate=RATE)
        with training():
            if kind in ("regression", "multi_label"):
                model, tokenizer = bert_tf.load(start, head=known.head, labels=known.labels or None)
                output, loss, numbers = _loss_of(kind, labels)
                model.compile(optimizer, loss={output: loss})
                ids = tokenizer(inputs)
                model.fit(ids, {output: numbers}, **rows)
                found = keras.ops.convert_to_numpy(model.predict(ids, verbose=0)[output])
                found = 1 / (1 + np.exp(-found)) if kind == "multi_label" else found
                return found.reshape(len(labels), -1).tolist()
            make = bert_tf.token_classifier if kind == "tags" else bert_tf.classifier
            model = make(start, labels=known.labels)
            model.compile(optimizer, **model.compile_options())
            if kind == "tags":
                inputs = [text.split() for text in inputs]
            model.fit(inputs, labels, **rows)
            shares = keras.ops.softmax(model.predict(inputs, verbose=0)).numpy()
        if kind != "tags":
            return shares.tolist()
        return [
            [(known.labels[n], float(row[n])) for row in rows[: len(words)] for n in [row.argmax()]]
            for rows, words in zip(shares, inputs, strict=True)
        ]

    def of_predictor(self, kind: str) -> list[Answer]:
        """`Predictor`."""
        items = [row if len(row) > 1 else row[0] for row in texts(kind)]
        return [_of_json(answer) for answer in bert_tf.Predictor(self.trained(kind)).predict(items)]

    def of_server(self, kind: str) -> list[Answer]:
        """The server's answers to rows of JSON."""
        predictor = bert_tf.Predictor(self.trained(kind))
        rows = [dict(zip(predictor.texts, row, strict=True)) for row in texts(kind)]
        answers = []
        with serving(predictor.model) as server:
            for row in rows:  # the words of several would be padded
                answers += server.ask(body={"instances": [row]}).json["predictions"]
        return [_of_json(answer) for answer in answers]

    # ------------------------------------------------------------------------ of files

    def train(self, file: File, path: pathlib.Path, out: pathlib.Path, **flags: Any) -> None:
        """`bert-tf classify` trains on a file, and predicts its rows; further flags."""
        given = {"train_file": path, "test_file": path, **file.training_flags()}
        if file.kind == "tags":
            for name in ("train.txt", "test.txt"):
                path.with_name(name).write_bytes(path.read_bytes())
            given = {"task_name": "ner", "data_dir": path.parent}
        with training(), in_process("classify") as classify:
            classify(
                **given, **flags, output_dir=out, do_train=True, do_predict=True, xla="false",
                init_checkpoint=self.start(file.kind), max_seq_length=LENGTH, num_train_epochs=1,
                train_batch_size=len(door_files.labels_of(file.kind)), learning_rate=RATE,
            )  # fmt: skip

    def of_path(
        self, model: pathlib.Path, file: File, path: pathlib.Path, **flags: Any
    ) -> list[dict]:
        """`bert-tf predict` with the path of a file."""
        out = path.with_name("answers.jsonl")
        self.write_answers(model, file, path, out, **flags)
        return [*map(json.loads, out.read_text().splitlines())]

    def write_answers(
        self, model: pathlib.Path, file: File, path: pathlib.Path, out: pathlib.Path, **flags: Any
    ) -> None:
        """`bert-tf predict` with a file to be written."""
        with untraced(), in_process("predict") as predict:
            predict(model=model, input_file=path, output_file=out, **predict_flags(file), **flags)

    def of_pipe(self, model: pathlib.Path, file: File, content: bytes, **flags: Any) -> list[dict]:
        """`bert-tf predict` with a file on its standard input."""
        given = types.SimpleNamespace(buffer=io.BytesIO(content))
        found = types.SimpleNamespace(buffer=io.BytesIO())
        streams = unittest.mock.patch.multiple(sys, stdin=given, stdout=found)
        with untraced(), streams, in_process("predict") as predict:
            predict(model=model, **predict_flags(file), **flags)
        return [*map(json.loads, found.buffer.getvalue().splitlines())]


def of_new_process(model: pathlib.Path, file: File, path: pathlib.Path) -> list[dict]:
    """`bert-tf predict < file` as one calls it."""
    line = command("predict", model=model, **predict_flags(file))
    with path.open("rb") as stream:
        ended = subprocess.run(line, stdin=stream, capture_output=True, timeout=300, check=False,
                               env={**os.environ, **COMPILE_QUICKLY})  # fmt: skip
    assert ended.returncode == 0, ended.stderr.decode()
    return [*map(json.loads, ended.stdout.splitlines())]


def predict_flags(file: File) -> dict[str, Any]:
    """Of `bert-tf predict`, which knows columns from training."""
    return {**({"id_column": "Nr"} if file.has_header else {}), **file.flags}


# ---------------------------------------------------------------------------- answers


def texts(kind: str) -> list[tuple[str, ...]]:
    """As of `door_files.texts_of`."""
    return door_files.texts_of(kind)


def read_results(out: pathlib.Path, kind: str) -> dict[str, Answer]:
    """The answers of --do_predict, by the ids of the rows."""
    table = (out / "test_results_labeled.tsv").read_text().split("\n")
    header, *rows = csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
    if kind == "tags":
        found: dict[str, Any] = {}
        shares = slice(header.index(door_files.TAGS[0]), None)
        for row in filter(None, rows):
            answer = (row[header.index("prediction")], max(map(float, row[shares])))
            found.setdefault(row[0], []).append(answer)
        return found
    places = [header.index(name) for name in KINDS[kind].labels or ["prediction"]]
    return {row[0]: [float(row[at]) for at in places] for row in rows if row}


def answers_of(found: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """The answers in JSON lines."""
    return [*map(_of_json, found)]


def _of_json(answer: Any) -> Answer:
    if isinstance(answer, float):  # of the server, where an answer has one value
        return [answer]
    if "words" in answer:
        return [*zip(answer["labels"], answer["probabilities"], strict=True)]
    if "score" in answer:
        return [answer["score"]]
    names = [*answer["labels"]]
    known = next(kind.labels for kind in KINDS.values() if {*kind.labels} == {*names})
    return [answer["probabilities"][names.index(name)] for name in known]


def _loss_of(kind: str, labels: Sequence[Any]) -> tuple[str, keras.losses.Loss, np.ndarray]:
    """For `compile` and `fit`: the name of the output, the loss, the labels as numbers."""
    if kind == "regression":
        numbers = np.array([[float(label)] for label in labels], np.float32)
        return "logits", keras.losses.MeanSquaredError(), numbers
    names = door_files.TOPICS
    rows = [[name in label for name in names] for label in labels]
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    return "logits", loss, np.array(rows, np.float32)


def differences(found: Sequence[Answer], wanted: Sequence[Answer], most: float) -> list[int]:
    """The numbers of the rows whose answers differ by more."""
    assert len(found) == len(wanted), (len(found), len(wanted))
    return [n for n, pair in enumerate(zip(found, wanted, strict=True)) if not _same(*pair, most)]


def _same(one: Answer, other: Answer, most: float) -> bool:
    if any(isinstance(x, tuple) for x in one):
        if [tag for tag, _ in one] != [tag for tag, _ in other]:
            return False
        one, other = ([share for _, share in answer] for answer in (one, other))
    return len(one) == len(other) and bool(np.allclose(one, other, rtol=most, atol=most))
