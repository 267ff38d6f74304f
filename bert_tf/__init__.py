"""BERT on TensorFlow 2 and Keras 3: google-research/bert, complete.

The folders, in the order in which a batch meets them: tokenization, data, modeling, training,
checkpoints, tasks, squad, library, serving. Importing the package loads no TensorFlow; the first
use of one of its names does.
"""

import importlib.abc
import importlib.machinery
import sys
from typing import Any

from bert_tf import runtime

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
    "make_optimizer": "bert_tf.library.optimizers",
    "open_weights": "bert_tf.checkpoints.loading",
    "pretraining_model": "bert_tf.modeling.models",
    "save_weights": "bert_tf.checkpoints.saving",
    "span_model": "bert_tf.modeling.models",
    "token_model": "bert_tf.modeling.models",
}
__all__ = [*_HOMES]


def _register() -> None:
    importlib.import_module("bert_tf.library.optimizers")
    if "bert_tf.modeling" not in sys.modules:  # else it is what loads Keras
        importlib.import_module("bert_tf.modeling.models")


class _RegisterLayers(importlib.abc.MetaPathFinder):
    """Registers what .keras files name when Keras loads, for `keras.models.load_model`."""

    def find_spec(self, fullname: str, *_: Any) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(fullname) if fullname == "keras" else None
        if spec is None:
            return None
        load = spec.loader.exec_module

        def load_and_register(module: Any) -> None:
            sys.meta_path.remove(self)
            runtime.load_tensorflow()
            load(module)
            _register()

        spec.loader.exec_module = load_and_register
        return spec


if "keras" in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _RegisterLayers())
runtime.prepare_process()


def __getattr__(name: str) -> Any:
    """Loads a public name from its module at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    runtime.load_tensorflow()
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
