"""What the methods of Keras are given -> arrays: texts, words, names of labels, weights.

model.fit(["A fine film."], ["good"])    ids by the model's tokenizer, numbers by its labels
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.errors import InputError
from bert_tf.modeling.models import BertModel, check_inputs


def prepare(model: BertModel, method: str, given: dict[str, Any]) -> None:
    """Changes the arguments of a method of Keras to arrays, and checks them as a call does.

    Raises:
      InputError: some are wrong, or the model cannot be trained as it is.
    """
    names = ("x", "y", "sample_weight")
    given |= zip(names, _triple(model, *map(given.get, names)), strict=True)
    if isinstance(weights := given.get("class_weight"), Mapping):
        given["class_weight"] = {int(_numbers(model, [k])[0]): w for k, w in weights.items()}
    if isinstance(validation := given.get("validation_data"), tuple | list):
        triple = _triple(model, *validation, *[None] * (3 - len(validation)))
        given["validation_data"] = triple[: 3 if triple[2] is not None else len(validation)]
    if method == "fit":
        _prepare_fit(model, given)


def _triple(model: BertModel, x: Any, y: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Inputs, labels and weights as arrays."""
    if model.reads:
        x, y, weights = model.reads(x, y, weights)
    numbers = (None if one is None else _numbers(model, one) for one in (y, weights))
    return _prepared(model, x), *numbers


def _prepared(model: BertModel, x: Any) -> Any:
    """Texts as ids; arrays are checked."""

    def whole(x: Any) -> Any:  # floats as integers: in a graph their values are unknown
        return x.astype(np.int32) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x

    is_pair = isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], str | bytes)
    columns = [texts_of(one) for one in (x if is_pair else (x,))]
    if None not in columns:
        x = model.tokenizer(*columns)  # the first texts, and the second ones if there are any
    if all(hasattr(a, "shape") for a in keras.tree.flatten(x)):
        check_inputs(x, model)
        x = keras.tree.map_structure(whole, x)
    return x


def _numbers(model: BertModel, y: Any) -> Any:
    """Labels by name as their numbers, and lists of numbers as arrays."""
    if isinstance(y, Mapping):
        return {name: _numbers(model, value) for name, value in y.items()}
    shape = np.shape(y) if isinstance(y, np.ndarray) else (-1,)
    names = texts_of(np.ravel(y) if isinstance(y, np.ndarray) else y)
    if names is None:
        is_column = isinstance(y, Sequence) and not isinstance(y, tuple)  # which is of outputs
        is_numbers = is_column and np.asarray(y).dtype.kind in "biuf"
        return np.asarray(y) if is_numbers else y
    numbers = {name: number for number, name in enumerate(model.labels or ())}
    if unknown := [name for name in names if name not in numbers]:
        wanted = f"one of {', '.join(numbers)}" if numbers else "numbers of the logits"
        remedy = "correct it" if numbers else "give numbers, or use bert_tf.classifier"
        raise InputError(f"the label {str(unknown[0])!r}", wanted, remedy)
    return np.reshape([numbers[name] for name in names], shape)


def texts_of(x: Any) -> Any:
    """A column of texts as a list; None if it is none.

    Raises:
      InputError: some of them are texts, and some are not.
    """
    if isinstance(x, str | bytes):
        return [x]
    if "string" in str(getattr(x, "dtype", "")) and hasattr(x, "numpy"):
        x = x.numpy()
    is_array = getattr(x, "ndim", 0) == 1 and getattr(x.dtype, "kind", "O") not in "biufc"
    if not (isinstance(x, Sequence) or is_array):  # also a column of a Hugging Face dataset
        return None
    values = list(x)
    others = [one for one in values if not isinstance(one, str | bytes)]
    if len(others) == len(values):
        return None
    if others:
        raise InputError(f"{others[0]!r:.80} among texts", "texts alone", "remove or replace it")
    return values


def _prepare_fit(model: BertModel, given: Mapping[str, Any]) -> None:
    """Compiles a model that compiles itself.

    Raises:
      InputError: its number of steps is not known; or the schedule of the optimizer is over.
    """
    if model.compile_for and (not model.compiled or model._compiles_itself):
        model.compile_for(_num_steps(given))
        model._compiles_itself = True
    schedule = getattr(getattr(model, "optimizer", None), "schedule", None)
    steps = int(model.optimizer.iterations) if schedule else 0
    if schedule and not (schedule.end_learning_rate or steps < schedule.num_train_steps):
        received = f"an optimizer whose schedule of {schedule.num_train_steps} steps is over"
        remedy = "compile with a new one: bert_tf.make_optimizer(num_train_steps)"
        raise InputError(received, "a learning rate above 0", remedy)
    if model.train_function is None and given.get("verbose", 1):
        print("The first step compiles, which may take a minute.", flush=True)


def _num_steps(given: Mapping[str, Any]) -> int:
    """The steps of a call of `fit`."""
    x, steps = given["x"], given.get("steps_per_epoch")
    arrays = keras.tree.flatten(x)
    if steps is None and all(hasattr(array, "shape") for array in arrays):
        rows = len(arrays[0]) * (1 - given.get("validation_split", 0))
        steps = math.ceil(rows / (given.get("batch_size") or 32))
    try:
        return int(len(x) if steps is None else steps) * given.get("epochs", 1)
    except TypeError:
        received, remedy = "data of unknown length", "give steps_per_epoch, or compile the model"
        raise InputError(received, "the number of steps, for the schedule", remedy) from None
