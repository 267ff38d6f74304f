"""Forks of a process: TensorFlow's threads are not in them, and what waits for these hangs."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
SECONDS = 60  # more than it takes by far; a fork that hangs takes for ever

PROGRAM = """
import functools, json, os, pickle

import numpy as np
import tensorflow as tf

import keras

from bert_tf import BertConfig, FullTokenizer, InputError, Predictor, layers, make_model, runtime
from bert_tf.library.text_models import TextModel

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(str, range(30_000))]
TEXTS = ["3 4 x " * 200] * 300


def in_a_fork(function, *arguments):
    read, write = os.pipe()
    if not os.fork():
        try:
            answer = function(*arguments)
        except InputError as error:
            answer = error.received
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with open(read) as stream:
        return json.loads(stream.read())


def of_a_fork_before_tensorflow_runs():
    tokenizer = FullTokenizer("v", pieces=PIECES)
    return [runtime.is_forked(), tokenizer(TEXTS)["input_ids"].shape, in_a_fork(runtime.is_forked)]


early = in_a_fork(of_a_fork_before_tensorflow_runs)
tokenizer = FullTokenizer("v", pieces=PIECES)
layer = layers.Tokenizer(tokenizer)
config = BertConfig(vocab_size=len(PIECES), hidden_size=4, num_hidden_layers=1,
                    num_attention_heads=2, intermediate_size=6)
whole = make_model("classification", config, num_classes=2)
model = TextModel(whole.input, whole.output["logits"], name="model", labels=["no", "yes"])
model.tokenizer = FullTokenizer("v", pieces=PIECES)
copy = pickle.dumps(model)
ids = model.tokenizer(["3 4", "x"])
labels = np.array([0, 1])
model(ids)
answers = {
    "early": early,
    "own": [runtime.is_forked(), tokenizer(TEXTS)["input_ids"].shape],
    "late": in_a_fork(runtime.is_forked),
    "tokenizer": in_a_fork(tokenizer, TEXTS),
    "tokenize": in_a_fork(tokenizer.tokenize, TEXTS),
    "layer": in_a_fork(layer, TEXTS),
    "copy": in_a_fork(lambda kept: pickle.loads(kept)(TEXTS), pickle.dumps(tokenizer)),
    "new": in_a_fork(lambda: FullTokenizer("v", pieces=PIECES)(TEXTS)),
    "predictor": in_a_fork(Predictor, "nowhere"),
    "texts": in_a_fork(model.predict, TEXTS),
    "fit of texts": in_a_fork(model.fit, TEXTS, [0] * 300),
    "call": in_a_fork(model, ids),
    "predict": in_a_fork(model.predict, ids),
    "fit": in_a_fork(functools.partial(model.fit, verbose=0), ids, labels),
    "evaluate": in_a_fork(functools.partial(model.evaluate, verbose=0), ids, labels),
    "copied model": in_a_fork(lambda: pickle.loads(copy)(ids)),
}
print(json.dumps(answers))
"""


def test_a_fork_of_a_process_that_ran_tensorflow_is_refused_at_once():
    """One that is forked earlier works: it starts threads of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            answers = json.loads(process.communicate(timeout=SECONDS)[0])
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # forks that hang too
    refused = "{} in a process that was forked after TensorFlow had run"
    assert answers == {
        "early": [False, [300, 602], True],
        "own": [False, [300, 602]],
        "late": True,
        **dict.fromkeys(
            ("tokenizer", "tokenize", "layer", "copy", "new"), refused.format("a tokenizer")
        ),
        "predictor": refused.format("a Predictor"),
        **dict.fromkeys(("texts", "fit of texts"), refused.format("a tokenizer")),
        "call": refused.format("the model model"),
        "copied model": refused.format("a loaded model"),
        **{
            name: refused.format(f"{name} of the model model")
            for name in ("fit", "evaluate", "predict")
        },
    }
