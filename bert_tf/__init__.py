"""BERT on TensorFlow 2 and Keras 3, as google-research/bert has it and beyond.

The modules, in the order in which a batch meets them: config, tokenization, records, layers,
models, losses, optimization, training, checkpoints, weights, serving, predictor.
"""

import importlib

from bert_tf import runtime  # noqa: F401  (first: it sets what TensorFlow reads when it loads)
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.modeling.models import bert_encoder, pretraining_model
from bert_tf.tokenization.wordpiece import FullTokenizer
from bert_tf.checkpoints.loading import load_checkpoint, open_weights
from bert_tf.checkpoints.saving import save_weights

__all__ = [
    "BertConfig",
    "FullTokenizer",
    "InputError",
    "Predictor",
    "bert_encoder",
    "load_checkpoint",
    "open_weights",
    "pretraining_model",
    "save_weights",
]


def __getattr__(name: str):
    """Loads the predictor when it is first asked for: training needs nothing of it."""
    if name == "Predictor":
        return importlib.import_module("bert_tf.predictor").Predictor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
