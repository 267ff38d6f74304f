"""The doors through which files and texts get answers: commands, server, library.

All doors give the answers in one form. The answer to texts is the probabilities of the labels, in
the order of `Kind.labels`, or a single score. The answer to words is the tag of each word and its
probability.
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

LENGTH = 24  # max_seq_length
RATE = 1e-2  # the learning rate
Answer = list[float] | list[tuple[str, float]]


@contextlib.contextmanager
def training() -> Iterator[None]:
    """Training without graphs, and without dropout, which differs from door to door."""
    without_dropout = unittest.mock.patch.object(Dropout, "call", lambda _, x, training=None: x)
    with eagerly(), without_dropout:
        yield


class Doors:
    """Models of all kinds, each made at its first use.

    A model begins with random weights, large enough that different texts get different answers. It
    takes one step over all rows, without dropout: a door that reads another text or label ends with
    other weights.

    Attributes:
      folder: the folder in which models are made.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.trained = functools.cache(self._trained)
        self.of_fit = functools.cache(self._of_fit)

    # ------------------------------------------------------------------------ models

    def start(self, kind: str) -> pathlib.Path:
        """The folder of a model of the kind before training."""
        folder = self.folder / f"start of {kind}"
        if folder.exists():
            return folder
        folder.mkdir()
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        sentences = [text for (text,) in texts("tags")]
        pieces += door_files.words_of([*door_files.TEXTS, *sentences])
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
        tokenizer = FullTokenizer(folder / "vocab.txt")
        config = BertConfig(
            vocab_size=len(pieces), hidden_size=12, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=17, max_position_embeddings=LENGTH, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        head = head_named(KINDS[kind].head)
        labels = KINDS[kind].labels
        random = np.random.default_rng([*kind.encode()])
        tensors = {}
        for variable in head.model(config, num_classes=len(labels)).trainable_variables:
            name = checkpoint_name(variable)
            value = random.standard_normal(variable.shape) * 0.4 + name.endswith("gamma")
            tensors[name] = value.astype(np.float32)
        write_checkpoint(str(folder / "model.ckpt"), tensors, temporary=str(folder / "new"))
        metadata = ModelMetadata(
            do_lower_case=True, architecture=head.architecture, labels=labels or None
        )
        write_model_files(str(folder), config, tokenizer, metadata)
        return folder

    def _trained(self, kind: str) -> pathlib.Path:
        """The folder of a model that was trained on a simple file of the kind."""
        form = "conll" if kind == "tags" else "json lines"
        file = File(kind, form, "plain", between=None)
        folder = self.folder / f"of {kind}"
        folder.mkdir()
        self.train(file, file.write(folder), folder / "out")
        return folder / "out"

    # ------------------------------------------------------------------------ doors for rows

    def _of_fit(self, kind: str) -> list[Answer]:
        """Answers of the library's `fit` and `predict`, which take texts and labels themselves."""
        columns = [*zip(*texts(kind), strict=True)]
        inputs = tuple(map(list, columns)) if kind == "pairs" else [*columns[0]]
        labels = door_files.labels_of(kind)
        with training():
            if kind in ("regression", "multi_label"):
                return self._fit_on_ids(kind, inputs, labels)
            if kind == "tags":
                return self._fit_on_words([text.split() for text in inputs], labels)
            model = bert_tf.classifier(str(self.start(kind)), labels=KINDS[kind].labels)
            return _fitted_probabilities(model, inputs, labels).tolist()

    def _fit_on_ids(self, kind: str, inputs: list[str], labels: list[Any]) -> list[Answer]:
        """Answers of a model whose `fit` takes ids, and labels as numbers."""
        start = str(self.start(kind))
        labels_or_none = KINDS[kind].labels or None
        model, tokenizer = bert_tf.load(start, head=KINDS[kind].head, labels=labels_or_none)
        output, loss, numbers = _loss_of(kind, labels)
        model.compile(make_optimizer(1, learning_rate=RATE), loss={output: loss})
        ids = tokenizer(inputs)
        model.fit(ids, {output: numbers}, batch_size=len(labels), epochs=1, verbose=0)
        scores = keras.ops.convert_to_numpy(model.predict(ids, verbose=0)[output])
        if kind == "multi_label":
            scores = 1 / (1 + np.exp(-scores))
        return scores.reshape(len(labels), -1).tolist()

    def _fit_on_words(self, sentences: list[list[str]], labels: list[Any]) -> list[Answer]:
        """Answers of a token classifier: the best tag of each word, and its probability."""
        tags = KINDS["tags"].labels
        model = bert_tf.token_classifier(str(self.start("tags")), labels=tags)
        probabilities = _fitted_probabilities(model, sentences, labels)  # [B, W, L]
        answers = []
        for rows, words in zip(probabilities, sentences, strict=True):
            answer = []
            for row in rows[: len(words)]:
                best = row.argmax()
                answer.append((tags[best], float(row[best])))
            answers.append(answer)
        return answers

    def of_predictor(self, kind: str) -> list[Answer]:
        """Answers of `Predictor`."""
        items = [row if len(row) > 1 else row[0] for row in texts(kind)]
        return [_of_json(answer) for answer in bert_tf.Predictor(self.trained(kind)).predict(items)]

    def of_server(self, kind: str) -> list[Answer]:
        """The server's answers to rows of JSON."""
        predictor = bert_tf.Predictor(self.trained(kind))
        rows = [dict(zip(predictor.texts, row, strict=True)) for row in texts(kind)]
        answers = []
        with serving(predictor.model) as server:
            for row in rows:  # one by one: the server pads the words of rows in one request
                answers += server.ask(body={"instances": [row]}).json["predictions"]
        return [_of_json(answer) for answer in answers]

    # ------------------------------------------------------------------------ doors for files

    def train(self, file: File, path: pathlib.Path, out: pathlib.Path, **flags: Any) -> None:
        """Runs `bert-tf classify`, which trains on a file and predicts its rows.

        Args:
          file: the file.
          path: the path of the file.
          out: the folder of the run.
          **flags: further flags.
        """
        data_flags = {"train_file": path, "test_file": path, **file.training_flags()}
        if file.kind == "tags":
            for name in ("train.txt", "test.txt"):
                path.with_name(name).write_bytes(path.read_bytes())
            data_flags = {"task_name": "ner", "data_dir": path.parent}
        with training(), in_process("classify") as classify:
            classify(
                **data_flags, **flags, output_dir=out, do_train=True, do_predict=True, xla="false",
                init_checkpoint=self.start(file.kind), max_seq_length=LENGTH, num_train_epochs=1,
                train_batch_size=len(door_files.labels_of(file.kind)), learning_rate=RATE,
            )  # fmt: skip

    def of_path(
        self, model: pathlib.Path, file: File, path: pathlib.Path, **flags: Any
    ) -> list[dict]:
        """Answers of `bert-tf predict` to the path of a file."""
        out = path.with_name("answers.jsonl")
        self.write_answers(model, file, path, out, **flags)
        return [*map(json.loads, out.read_text().splitlines())]

    def write_answers(
        self, model: pathlib.Path, file: File, path: pathlib.Path, out: pathlib.Path, **flags: Any
    ) -> None:
        """Runs `bert-tf predict`, which writes the answers into the file `out`."""
        with untraced(), in_process("predict") as predict:
            predict(model=model, input_file=path, output_file=out, **predict_flags(file), **flags)

    def of_pipe(self, model: pathlib.Path, file: File, content: bytes, **flags: Any) -> list[dict]:
        """Answers of `bert-tf predict` to a file on its standard input."""
        stdin = types.SimpleNamespace(buffer=io.BytesIO(content))
        stdout = types.SimpleNamespace(buffer=io.BytesIO())
        streams = unittest.mock.patch.multiple(sys, stdin=stdin, stdout=stdout)
        with untraced(), streams, in_process("predict") as predict:
            predict(model=model, **predict_flags(file), **flags)
        return [*map(json.loads, stdout.buffer.getvalue().splitlines())]


def _fitted_probabilities(model: Any, inputs: Any, labels: list[Any]) -> np.ndarray:
    """Fits a classifier for one step over all rows; returns the probabilities [B, L], [B, W, L]."""
    model.compile(make_optimizer(1, learning_rate=RATE), **model.compile_options())
    model.fit(inputs, labels, batch_size=len(labels), epochs=1, verbose=0)
    return keras.ops.softmax(model.predict(inputs, verbose=0)).numpy()


def of_new_process(model: pathlib.Path, file: File, path: pathlib.Path) -> list[dict]:
    """Answers of `bert-tf predict < file` in a new process."""
    line = command("predict", model=model, **predict_flags(file))
    with path.open("rb") as stream:
        ended = subprocess.run(line, stdin=stream, capture_output=True, timeout=300, check=False,
                               env={**os.environ, **COMPILE_QUICKLY})  # fmt: skip
    assert ended.returncode == 0, ended.stderr.decode()
    return [*map(json.loads, ended.stdout.splitlines())]


def predict_flags(file: File) -> dict[str, Any]:
    """The flags of `bert-tf predict`, which takes the columns of texts from training."""
    return {**({"id_column": "Nr"} if file.has_header else {}), **file.flags}


# ---------------------------------------------------------------------------- answers


def texts(kind: str) -> list[tuple[str, ...]]:
    """See `door_files.texts_of`."""
    return door_files.texts_of(kind)


def read_results(out: pathlib.Path, kind: str) -> dict[str, Answer]:
    """The answers of --do_predict, by the ids of the rows."""
    table = (out / "test_results_labeled.tsv").read_text().split("\n")
    header, *rows = csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
    answers: dict[str, Any] = {}
    if kind == "tags":
        probabilities = slice(header.index(door_files.TAGS[0]), None)
        for row in filter(None, rows):
            answer = (row[header.index("prediction")], max(map(float, row[probabilities])))
            answers.setdefault(row[0], []).append(answer)
        return answers
    columns = [header.index(name) for name in KINDS[kind].labels or ["prediction"]]
    for row in filter(None, rows):
        answers[row[0]] = [float(row[column]) for column in columns]
    return answers


def answers_of(lines: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """The answers in JSON lines."""
    return [*map(_of_json, lines)]


def _of_json(answer: Any) -> Answer:
    """An answer of `bert-tf predict`, `Predictor` or the server in the form of this module."""
    if isinstance(answer, float):  # the server leaves the name of a single output out
        return [answer]
    if "words" in answer:
        return [*zip(answer["labels"], answer["probabilities"], strict=True)]
    if "score" in answer:
        return [answer["score"]]
    names = [*answer["labels"]]
    labels = next(kind.labels for kind in KINDS.values() if {*kind.labels} == {*names})
    return [answer["probabilities"][names.index(name)] for name in labels]


def _loss_of(kind: str, labels: Sequence[Any]) -> tuple[str, keras.losses.Loss, np.ndarray]:
    """For `compile` and `fit`: the name of the output, the loss, the labels as numbers [B, L]."""
    if kind == "regression":
        numbers = np.array([[float(label)] for label in labels], np.float32)
        return "logits", keras.losses.MeanSquaredError(), numbers
    rows = []
    for label in labels:
        rows.append([name in label for name in door_files.TOPICS])
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    return "logits", loss, np.array(rows, np.float32)


def differences(answers: Sequence[Answer], expected: Sequence[Answer], most: float) -> list[int]:
    """The numbers of the rows whose answers differ by more than `most`."""
    assert len(answers) == len(expected), (len(answers), len(expected))
    different = []
    for number, answer in enumerate(answers):
        if not _same(answer, expected[number], most):
            different.append(number)
    return different


def _same(answer: Answer, expected: Answer, most: float) -> bool:
    """Whether tags are equal, and probabilities or scores nearly so."""
    if any(isinstance(value, tuple) for value in answer):
        if [tag for tag, _ in answer] != [tag for tag, _ in expected]:
            return False
        answer = [probability for _, probability in answer]
        expected = [probability for _, probability in expected]
    if len(answer) != len(expected):
        return False
    return bool(np.allclose(answer, expected, rtol=most, atol=most))
