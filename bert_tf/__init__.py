"""BERT on TensorFlow 2 and Keras 3: google-research/bert, complete.

The folders, in the order in which a batch meets them: tokenization, data, modeling, training,
checkpoints, tasks, squad, library, serving. Importing the package loads no TensorFlow and sets
nothing; the first use of a name loads what it needs.
"""

import importlib
from typing import Any

__version__ = "0.1.0"
_HOMES = {
    "BertConfig": "bert_tf.config",
    "BertModel": "bert_tf.modeling.models",
    "FullTokenizer": "bert_tf.tokenization.wordpiece",
    "InputError": "bert_tf.errors",
    "Predictor": "bert_tf.serving.predictor",
    "Scorer": "bert_tf.serving.scoring",
    "add_lora": "bert_tf.modeling.lora",
    "bert_encoder": "bert_tf.modeling.models",
    "choice_model": "bert_tf.modeling.models",
    "classifier": "bert_tf.library.models",
    "classifier_model": "bert_tf.modeling.models",
    "load": "bert_tf.library.models",
    "load_checkpoint": "bert_tf.checkpoints.loading",
    "make_dataset": "bert_tf.library.datasets",
    "make_optimizer": "bert_tf.training.optimization",
    "open_weights": "bert_tf.checkpoints.loading",
    "pretraining_model": "bert_tf.modeling.models",
    "save_weights": "bert_tf.checkpoints.saving",
    "span_model": "bert_tf.modeling.models",
    "token_model": "bert_tf.modeling.models",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Loads a public name from its module at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
