"""Calls of the public functions, as a program that has imported nothing else makes them.

    python matrix_functions.py NAME MODEL IN OUT

Calls the function NAME below with the path of a model, a folder of inputs and a folder for outputs,
and prints its result as JSON. After an `InputError` it prints the message, and the exit code is 1.
"""

import json
import re
import sys
from typing import Any

import numpy as np

import bert_tf

TEXTS = ("w1 w7 w30 w12", "w2", "w3 w4 w5 w6")
# Items for `Predictor`, by the names of a model's texts.
ITEMS = {
    ("text",): [{"text": text} for text in TEXTS],
    ("text_a", "text_b"): [{"text_a": TEXTS[0], "text_b": TEXTS[1]}],
    ("context", "endings"): [{"context": TEXTS[0], "endings": [*TEXTS[1:], "w9"]}],
    ("question", "context"): [{"question": "w7 w9", "context": " ".join(TEXTS)}],
}
MASKED = [{"text": "w1 [MASK] w30"}, {"text": "[MASK] w2 [MASK]"}]


def items_for(predictor: Any) -> list[dict[str, Any]]:
    """Items that a model can answer."""
    return MASKED if predictor.task == "fill_mask" else ITEMS[tuple(predictor.texts)]


def digest(value: Any) -> list:
    """The shape of an array, and a number that depends on every value and its place."""
    value = np.asarray(value, np.float64)
    return [list(value.shape), float((value.ravel() * np.cos(np.arange(value.size))).sum())]


def of_model(model: Any, tokenizer: Any) -> list:
    """The outputs of a model for texts, its labels, and its metadata without the origin."""
    inputs = {name: np.asarray(value) for name, value in tokenizer(list(TEXTS)).items()}
    if len(next(iter(model.input.values())).shape) == 3:  # [B, C, S]
        inputs = {name: value[np.newaxis] for name, value in inputs.items()}
    outputs = model(inputs)
    named = outputs if isinstance(outputs, dict) else {"": outputs}
    digests = {name: digest(value) for name, value in named.items()}
    metadata = {name: value for name, value in model.metadata.items() if name != "origin"}
    return [digests, model.labels, metadata]


def of_weights(weights: Any) -> list:
    """Tensors, configuration and vocabulary."""
    tensors = {name: digest(weights.read(name)) for name in weights.names}
    return [tensors, weights.config.to_dict(), weights.pieces]


# ---------------------------------------------------------------------------- the calls


def load(model: str, inputs: str, out: str) -> list:
    return of_model(*bert_tf.load(model))


def add_lora(model: str, inputs: str, out: str) -> list:
    loaded, tokenizer = bert_tf.load(model)
    bert_tf.add_lora(loaded, 2)
    return of_model(loaded, tokenizer)  # unchanged outputs: the new factors begin at 0


def of_new_head(model: Any) -> list:
    """A model's weights without its new head, which are random, and the shapes of its outputs."""
    tensors = [digest(v) for v in model.weights if not re.search("classifier|squad", v.path)]
    outputs = model.output if isinstance(model.output, dict) else {"": model.output}
    shapes = [list(x.shape) for x in outputs.values()]
    return [tensors, model.labels, model.tokenizer.pieces, shapes]


def classifier(model: str, inputs: str, out: str) -> list:
    return of_new_head(bert_tf.classifier(model, labels=["w", "x", "y", "z"]))


def token_classifier(model: str, inputs: str, out: str) -> list:
    return of_new_head(bert_tf.token_classifier(model, labels=["w", "x", "y", "z"]))


def question_answerer(model: str, inputs: str, out: str) -> list:
    return of_new_head(bert_tf.question_answerer(model))


def Predictor(model: str, inputs: str, out: str) -> list:  # noqa: N802  (the public name)
    predictor = bert_tf.Predictor(model)
    return predictor.predict(items_for(predictor))


def Scorer(model: str, inputs: str, out: str) -> list:  # noqa: N802
    loaded, tokenizer = bert_tf.load(model, head="fill_mask")
    scorer = bert_tf.Scorer(loaded, tokenizer, max_seq_length=tokenizer.max_length)
    scores = [scorer.score(text) for text in TEXTS]
    return [[score.score, score.tokens] for score in scores]


def open_weights(model: str, inputs: str, out: str) -> list:
    return of_weights(bert_tf.open_weights(model))


def load_checkpoint(model: str, inputs: str, out: str) -> list:
    """Loads the weights into a new encoder, without a tokenizer."""
    config = bert_tf.BertConfig.from_json_file(f"{inputs}/bert_config.json")
    encoder = bert_tf.make_model("embeddings", config)
    report = bert_tf.load_checkpoint(encoder, model)
    return [[digest(v) for v in encoder.weights if "pooler" not in v.path], len(report.matched)]


def save_weights(model: str, inputs: str, out: str) -> list:
    saved = bert_tf.save_weights(bert_tf.open_weights(model), f"{out}/saved")
    return of_weights(bert_tf.open_weights(saved))


def FullTokenizer(model: str, inputs: str, out: str) -> list:  # noqa: N802
    return bert_tf.FullTokenizer(f"{inputs}/vocab.txt", True).tokenize(" ".join(TEXTS))


def BertConfig(model: str, inputs: str, out: str) -> dict:  # noqa: N802
    return bert_tf.BertConfig.from_json_file(f"{inputs}/bert_config.json").to_dict()


# Public names that take neither a path nor a model that was read from one.
WITHOUT_A_PATH = {"InputError", "make_model", "BertModel", "make_optimizer", "heads", "layers"}
NAMES = tuple(name for name in bert_tf.__all__ if name in globals())

if __name__ == "__main__":
    import os

    stdout = os.dup(1)
    os.dup2(2, 1)  # libraries that print to standard output print to standard error
    try:
        answer = json.dumps(globals()[sys.argv[1]](*sys.argv[2:]))
    except bert_tf.InputError as error:
        sys.exit(str(error))
    os.write(stdout, answer.encode())
