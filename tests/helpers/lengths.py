"""A model for servers in tests of HTTP, where answers do not matter."""

import threading

import numpy as np
import tensorflow as tf

from bert_tf.errors import InputError

TEXT = {"text": {"dtype": "string", "shape": [None]}}


class Lengths:
    """Answers the length of each text; some texts make it fail, by the error that they name.

    Attributes:
      may_run: an event; `run` waits until it is set.
      asked: the texts of each call of `run`.
    """

    path = "models/lengths/7"
    metadata = {  # noqa: RUF012
        "task": "of_tests",
        "texts": {"text": "a text"},
        "signatures": {"serving_default": TEXT},
        "padded": [],
    }

    def __init__(self):
        self.may_run = threading.Event()
        self.may_run.set()
        self.asked = []
        self.tokenizer = self

    def iter_ids(self, texts):
        return ([1] * len(text) for text in texts)

    def run(self, arrays, signature):
        assert self.may_run.wait(30)
        texts = [text.decode() for text in arrays["text"].tolist()]
        self.asked.append(texts)
        if "not finite" in texts:
            raise InputError("a model whose length are NaN", "finite numbers", "another")
        if "no memory" in texts:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM in /home/secret/model.py")
        if "fail" in texts:
            raise RuntimeError("\x1b[31mfailed in /home/secret\r")
        if "refused" in texts:
            says = "assertion failed: [ids must be small]\n\t [[{{node x}}]] at /home/secret.py"
            raise tf.errors.InvalidArgumentError(None, None, says)
        return {"length": np.array([*map(len, texts)], np.int32)}


def rows(*texts) -> dict:
    return {"instances": [*texts]}
