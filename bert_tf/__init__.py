"""BERT on TensorFlow 2 and Keras 3: google-research/bert, complete.

The folders, in the order in which a batch meets them: tokenization, data, modeling, heads,
training, checkpoints, tasks, squad, library, serving. Importing the package loads no TensorFlow
and sets nothing; the first use of a name loads what it needs.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
_MODULES = {"heads": "bert_tf.heads", "layers": "bert_tf.modeling.layers"}
_HOMES = {
    "BertConfig": "bert_tf.config",
    "BertModel": "bert_tf.modeling.models",
    "FullTokenizer": "bert_tf.tokenization.wordpiece",
    "InputError": "bert_tf.errors",
    "Predictor": "bert_tf.serving.predictor",
    "Scorer": "bert_tf.serving.pretrained",
    "add_lora": "bert_tf.modeling.lora",
    "classifier": "bert_tf.library.models",
    "load": "bert_tf.library.models",
    "load_checkpoint": "bert_tf.checkpoints.loading",
    "make_dataset": "bert_tf.library.datasets",
    "make_model": "bert_tf.heads",
    "make_optimizer": "bert_tf.training.optimization",
    "open_weights": "bert_tf.checkpoints.loading",
    "save_weights": "bert_tf.checkpoints.saving",
}
__all__ = [*_HOMES, *_MODULES]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Loads a public name from its module at its first use."""
        if name in _MODULES:
            value = importlib.import_module(_MODULES[name])
        elif name in _HOMES:
            value = getattr(importlib.import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

else:  # for editors and type checkers
    # ruff: noqa: F401
    from bert_tf import heads
    from bert_tf.checkpoints.loading import load_checkpoint, open_weights
    from bert_tf.checkpoints.saving import save_weights
    from bert_tf.config import BertConfig
    from bert_tf.errors import InputError
    from bert_tf.heads import make_model
    from bert_tf.library.datasets import make_dataset
    from bert_tf.library.models import classifier, load
    from bert_tf.modeling import layers
    from bert_tf.modeling.lora import add_lora
    from bert_tf.modeling.models import BertModel
    from bert_tf.serving.predictor import Predictor
    from bert_tf.serving.pretrained import Scorer
    from bert_tf.tokenization.wordpiece import FullTokenizer
    from bert_tf.training.optimization import make_optimizer
