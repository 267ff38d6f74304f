"""The inputs of a model: their names, their defaults, and which values are refused.

Types and shapes are checked whenever a model is called, also while a graph is traced. Values are
checked where they are known: in eager calls, and in arrays given to Keras's `fit`, `predict` and so
on. Inside a graph values are not known, and a check would cost time in each step.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.errors import InputError

TOKEN_INPUTS = ("input_ids", "input_mask", "segment_ids")
SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}  # Hugging Face's names
# Inputs that may be left out, from int32 ids [..., S]: all ids but 0 are words, of the first text;
# predictions are made for every position.
DEFAULTS = {
    "input_mask": lambda ids: ops.cast(ops.not_equal(ids, 0), "int32"),
    "segment_ids": ops.zeros_like,
    "masked_lm_positions": lambda ids: ops.cumsum(ops.ones_like(ids), axis=-1) - 1,
}


def complete_inputs(
    inputs: Any, expected: Mapping[str, Any], config: BertConfig | None
) -> dict[str, Any]:
    """The inputs by the model's own names, with defaults for those that were left out.

    Args:
      inputs: by the original's names or Hugging Face's, ids alone, or a list in the order of the
        model's inputs.
      expected: the model's inputs by name.
      config: of the model; None: its sizes are unknown, and values are not checked.

    Raises:
      InputError: there are no input_ids, an input is given twice or is unknown, or as
        `check_inputs`.
    """
    values = check_inputs(inputs, expected, config)
    if missing := expected.keys() - values.keys():  # arrays become tensors: Keras takes no mixture
        values = {name: ops.cast(x, "int32") for name, x in values.items()}
        values |= {name: DEFAULTS[name](values["input_ids"]) for name in missing}
    return values


def check_inputs(
    inputs: Any, expected: Mapping[str, Any], config: BertConfig | None
) -> dict[str, Any]:
    """Checks the given inputs, and names them as the model does; arguments as `complete_inputs`.

    Raises:
      InputError: an input does not hold whole numbers, its shape does not fit the model or the
        other inputs, or a known value is out of range.
    """
    values = _named(inputs, expected)
    known = {name: _known(values[name]) for name in expected if name in values}
    for name, x in known.items():
        kind = str(
            getattr(getattr(x, "dtype", None), "name", getattr(x, "dtype", type(x).__name__))
        )
        is_known, is_mask = isinstance(x, np.ndarray), name == "input_mask"
        if not (
            any(whole in kind for whole in ("int", "bool"))
            or ("float" in kind and (np.all(np.floor(x) == x) if is_known else is_mask))
        ):
            raise InputError(
                f"{name} of type {kind}",
                "whole numbers, in rows of the same length",
                "give what the tokenizer of the model returns, or cast it to int32",
            )
    shapes = {name: tuple(x.shape) for name, x in known.items()}
    ids = shapes["input_ids"]
    for name, shape in shapes.items():
        like = ids if name in TOKEN_INPUTS else ids[:1] + shapes.get("masked_lm_positions", ids)[1:]
        if not (_fit(shape, expected[name].shape) and _fit(shape, like)):
            raise InputError(
                f"{name} of shape {list(shape)}, input_ids of {list(ids)}",
                "input_ids [B, S], or [B, C, S] of C choices, masks and segments of the same shape,"
                " positions [B, P]",
                f"correct the shape of {name}",
            )
    if config is None:
        return values
    if ids[-1] is not None and not 0 < ids[-1] <= config.max_position_embeddings:
        raise InputError(
            f"sequences of {ids[-1]} word pieces",
            f"1 to {config.max_position_embeddings}, the positions of the model",
            "cut the texts: the tokenizer takes max_length",
        )
    bounds = {
        "input_ids": config.vocab_size,
        "input_mask": 2,
        "segment_ids": config.type_vocab_size,
        "masked_lm_positions": ids[-1],
        "masked_lm_ids": config.vocab_size,
    }
    for name, x in known.items():
        if isinstance(x, np.ndarray) and x.size and not 0 <= x.min() <= x.max() < bounds[name]:
            wrong = x[(x < 0) | (x >= bounds[name])]
            raise InputError(
                f"{name} with {wrong[0]}",
                f"0 to {bounds[name] - 1}",
                "give what the tokenizer of the model returns",
            )
    return values


def _named(inputs: Any, expected: Mapping[str, Any]) -> dict[str, Any]:
    """The given inputs by the model's own names."""
    if isinstance(inputs, list | tuple) and all(hasattr(x, "shape") for x in inputs):
        if len(inputs) != len(expected):
            raise InputError(
                f"a list of {len(inputs)} inputs",
                f"{len(expected)}: {', '.join(expected)}",
                "give all of them, or a dict of those that you have",
            )
        inputs = dict(zip(expected, inputs, strict=True))
    if not isinstance(inputs, Mapping):
        inputs = {"input_ids": inputs}
    given = [(SYNONYMS.get(name, name), x) for name, x in inputs.items() if x is not None]
    values = dict(given)
    if (
        len(values) < len(given)
        or not values.keys() <= expected.keys()
        or not expected.keys() - values.keys() <= DEFAULTS.keys()
    ):
        names = {ours: f"{ours} or {theirs}" for theirs, ours in SYNONYMS.items()}
        raise InputError(
            f"inputs of a model: {', '.join(map(str, inputs)) or 'none'}",
            f"input_ids, and at most one each of {', '.join(names.get(n, n) for n in expected)}",
            "rename or leave out the others",
        )
    return values


def _known(x: Any) -> Any:
    """The input as an array; the input itself if its values are known only when a graph runs."""
    try:
        return x if isinstance(x, np.ndarray) else keras.ops.convert_to_numpy(x)
    except (NotImplementedError, TypeError, ValueError, RuntimeError):
        return x


def _fit(shape: tuple, other: tuple) -> bool:
    """Whether two shapes may be equal; None is a size that is not known yet."""
    pairs = zip(shape, other, strict=False)
    return len(shape) == len(other) and all(a == b or None in (a, b) for a, b in pairs)
