"""Names of weights in the original's checkpoints, from the paths of Keras's variables."""

import re
from collections.abc import Iterable

import keras

from bert_tf.errors import InputError

_SCOPES = {  # of the original, by the layer of a weight
    r"(embeddings|pooler)/": "bert/",
    r"layer_\d+/": "bert/encoder/",
    r"(predictions|seq_relationship|squad)/": "cls/",
}
ENCODER_PATHS = r"(embeddings|layer_\d+)/"  # of the encoder's parts, without the pooler


def checkpoint_name(variable: keras.Variable) -> str:
    """A weight's name in the original's checkpoints: layer_0/... is bert/encoder/layer_0/..."""
    for layer, scope in _SCOPES.items():
        if re.match(layer, variable.path):
            return scope + variable.path
    return variable.path.removeprefix("classifier/")  # in the original, output_weights has no scope


def by_name(variables: Iterable[keras.Variable], model: str) -> dict[str, keras.Variable]:
    """The variables of a model by their names in checkpoints.

    Raises:
      InputError: two variables have the same name: a file would lose one of them.
    """
    named: dict[str, keras.Variable] = {}
    for variable in variables:
        name = checkpoint_name(variable)
        if name in named and named[name] is not variable:
            received = f"{model} with two weights that are both named {name}"
            remedy = "give its layers different names, or save it anew by the code that made it"
            raise InputError(received, "a name of its own for each weight", remedy)
        named[name] = variable
    return named
