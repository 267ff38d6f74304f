"""BERT on TensorFlow 2 and Keras 3: google-research/bert, complete.

    model, tokenizer = bert_tf.load("all-MiniLM-L6-v2")      # any format -> a Keras model
    outputs = model(tokenizer(["a text", "another"]))
    outputs["sequence_output"], outputs["pooled_output"]     # [B, S, D], [B, D]

    bert_tf.classifier(PATH, labels=["bad", "good"]).fit(texts, names_of_labels)
    bert_tf.Predictor("models/topics").predict(["a text"])   # answers of a trained folder

load, make_model, BertModel, BertConfig, add_lora                models
classifier, token_classifier, question_answerer                  models that `fit` compiles
FullTokenizer, make_optimizer                                    what `fit` needs
Predictor, Scorer                                                answers
open_weights, load_checkpoint, save_weights                      weights of any format
layers, heads                                                    parts of models; layers.Tokenizer
InputError                                                       what is raised for wrong input

help(bert_tf.load) has the arguments of one name; on the command line: bert-tf --help.
Pre-training and SQuAD have commands: bert-tf pretrain, bert-tf squad. Their loops in Python are
in bert_tf.training.trainer and bert_tf.squad.run; tasks from files in bert_tf.tasks.

The folders, in the order in which a batch meets them: tokenization, data, modeling, heads,
training, checkpoints, tasks, squad, library, serving. Importing the package loads no TensorFlow
and sets nothing; the first use of a name loads what it needs. keras.models.load_model reads files
of ours once a model, a layer or an optimizer of ours was used.
"""

import importlib as _importlib

__version__ = "0.1.0"
# The public names and their modules; __init__.pyi has the same for editors and type checkers.
_HOMES = {
    "heads": "bert_tf.heads",
    "layers": "bert_tf.layers",
    "open_weights": "bert_tf.checkpoints.loading",
    "load_checkpoint": "bert_tf.checkpoints.matching",
    "save_weights": "bert_tf.checkpoints.saving",
    "BertConfig": "bert_tf.config",
    "InputError": "bert_tf.errors",
    "make_model": "bert_tf.heads",
    "classifier": "bert_tf.library.fit_models",
    "question_answerer": "bert_tf.library.fit_models",
    "token_classifier": "bert_tf.library.fit_models",
    "load": "bert_tf.library.models",
    "add_lora": "bert_tf.modeling.lora",
    "BertModel": "bert_tf.modeling.models",
    "Predictor": "bert_tf.serving.predictor",
    "Scorer": "bert_tf.serving.pretrained",
    "FullTokenizer": "bert_tf.tokenization.wordpiece",
    "make_optimizer": "bert_tf.training.optimization",
}
__all__ = [*_HOMES]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> object:
    """Loads a public name from its module at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _importlib.import_module(_HOMES[name])
    is_module = module.__name__ == f"{__name__}.{name}"
    globals()[name] = module if is_module else getattr(module, name)
    return globals()[name]
