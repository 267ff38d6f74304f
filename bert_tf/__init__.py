"""BERT on TensorFlow 2 and Keras 3: google-research/bert, complete.

The folders, in the order in which a batch meets them: tokenization, data, modeling, training,
checkpoints, tasks, squad, serving. Importing the package loads no TensorFlow; the first use of one
of its names does.
"""

import importlib
from typing import Any

from bert_tf import runtime

_HOMES = {
    "BertConfig": "bert_tf.config",
    "FullTokenizer": "bert_tf.tokenization.wordpiece",
    "InputError": "bert_tf.errors",
    "Predictor": "bert_tf.serving.predictor",
    "bert_encoder": "bert_tf.modeling.models",
    "load_checkpoint": "bert_tf.checkpoints.loading",
    "open_weights": "bert_tf.checkpoints.loading",
    "pretraining_model": "bert_tf.modeling.models",
    "save_weights": "bert_tf.checkpoints.saving",
}
__all__ = [*_HOMES]

runtime.prepare_process()


def __getattr__(name: str) -> Any:
    """Loads a public name from its module at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    runtime.load_tensorflow()
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
