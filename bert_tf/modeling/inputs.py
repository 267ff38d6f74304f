"""What a model is called with -> its inputs by name: named, completed, checked.

    model(ids)                                        the ids alone
    model({"input_ids": ids, "attention_mask": mask}) by the original's or Hugging Face's names
    model(ids, attention_mask=mask), model(**batch)   by keyword
    model([ids, mask, segments])                      in the order of the model's inputs

All are the same call. Types and shapes are checked whenever a model is called, also while a graph
is traced. Values are checked where they are known, in eager calls; inside a graph they are not, and
a check would cost time in each step.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.errors import InputError

TOKEN_INPUTS = ("input_ids", "input_mask", "segment_ids")
SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}  # Hugging Face's names
# Inputs that may be left out, from int32 ids [..., S]: all ids but 0 are words, of the first text;
# predictions are made for every position.
DEFAULTS = {
    "input_mask": lambda ids: ops.cast(ops.not_equal(ids, 0), "int32"),
    "segment_ids": ops.zeros_like,
    "masked_lm_positions": lambda ids: ops.cumsum(ops.ones_like(ids), axis=-1) - 1,
    "word_positions": lambda ids: ops.cumsum(ops.ones_like(ids), axis=-1) - 1,
}
# Inputs of whole numbers; others are inputs of a user's own, and Keras checks them.
WHOLE = (*TOKEN_INPUTS, "masked_lm_positions", "masked_lm_ids", "word_positions")
REMEDY = 'give what the tokenizer returns, model(tokenizer(["a text"])), or cast numbers to int32'


def inputs_of(model: keras.Model) -> dict[str, Any]:
    """The inputs of a functional model by name, in their order."""
    inputs = model.input
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return {tensor.name: tensor for tensor in keras.tree.flatten(inputs)}


def complete_inputs(
    model: Any, inputs: Any, by_keyword: Mapping[str, Any], mask: Any = None
) -> Any:
    """The inputs as the model has them, with defaults for those that were left out.

    Args:
      model: a `BertModel`.
      inputs: the argument of the call: a dict, ids, a list in the order of the model's inputs, or
        None.
      by_keyword: inputs by name, beside the argument or instead of it.
      mask: Keras's mask of the ids; it counts where no input_mask is given.

    Raises:
      InputError: there are no input_ids, an input is given twice or is unknown, or as
        `check_inputs`.
    """
    expected = inputs_of(model)
    if "input_ids" not in expected:  # a model of other inputs, such as texts
        return inputs if inputs is not None else dict(by_keyword)
    values = check_inputs(model, inputs, by_keyword)
    mask = mask.get("input_ids") if isinstance(mask, Mapping) else mask
    if "input_mask" in expected and "input_mask" not in values and _is_tensor(mask):
        values["input_mask"] = mask
    complete = {name: _whole(name, value) for name, value in values.items()}
    for name in expected:
        if name not in complete:
            complete[name] = DEFAULTS[name](complete["input_ids"])
    if isinstance(model.input, Mapping):
        return complete
    return keras.tree.pack_sequence_as(model.input, [complete[name] for name in expected])


def _is_tensor(mask: Any) -> bool:
    return mask is not None and not isinstance(mask, list | tuple)


def _whole(name: str, value: Any) -> Any:
    """An input of whole numbers as int32; fractions of a mask are rounded up, so they stay."""
    if name not in WHOLE:
        return value
    value = ops.convert_to_tensor(value)
    if name == "input_mask" and "float" in keras.backend.standardize_dtype(value.dtype):
        value = ops.ceil(ops.abs(value))
    return ops.cast(value, "int32")


# ---------------------------------------------------------------------------- names


def named_inputs(
    expected: Mapping[str, Any], inputs: Any, by_keyword: Mapping[str, Any]
) -> dict[str, Any]:
    """The given inputs by the model's own names; those that are None are left out.

    Raises:
      InputError: as `complete_inputs`.
    """
    if isinstance(inputs, list | tuple) and all(hasattr(x, "shape") for x in inputs):
        if len(inputs) != len(expected):
            every = f"{len(expected)}: {', '.join(expected)}"
            raise InputError(f"a list of {len(inputs)} inputs", every, "give a dict of some")
        inputs = dict(zip(expected, inputs, strict=True))
    if not isinstance(inputs, Mapping):
        inputs = {"input_ids": inputs}
    given = [*inputs.items(), *by_keyword.items()]
    given = [(SYNONYMS.get(name, name), value) for name, value in given if value is not None]
    values = dict(given)
    is_unknown = not values.keys() <= expected.keys()
    is_missing = not expected.keys() <= values.keys() | DEFAULTS.keys()
    is_given_twice = len(values) < len(given)
    if is_unknown or is_missing or is_given_twice:
        both = {ours: f"{ours} or {theirs}" for theirs, ours in SYNONYMS.items()}
        names = [str(name) for name in (*inputs, *by_keyword) if name != "input_ids"]
        names = ["input_ids"] * ("input_ids" in values) + names
        received = f"inputs of a model: {', '.join(names) or 'none'}"
        one_each = f"at most one each of {', '.join(both.get(n, n) for n in expected)}"
        raise InputError(received, f"input_ids, and {one_each}", "rename or leave out the others")
    return values


# ---------------------------------------------------------------------------- checks


def check_inputs(
    model: Any, inputs: Any, by_keyword: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Checks the given inputs, and names them as the model does; arguments as `complete_inputs`.

    Raises:
      InputError: an input does not hold whole numbers, its shape does not fit the model or the
        other inputs, or a known value is out of range.
    """
    expected = inputs_of(model)
    values = named_inputs(expected, inputs, by_keyword or {})
    known = {
        name: _array_if_known(values[name]) for name in expected if name in values and name in WHOLE
    }
    for name, value in known.items():
        _check_kind(name, value, values[name])
    _check_shapes(expected, {name: tuple(value.shape) for name, value in known.items()})
    if model.config is not None:
        _check_values(model, known)
    return values


def _check_kind(name: str, value: Any, given: Any) -> None:
    """Refuses what are no whole numbers; a mask may have any."""
    # Of what is given: as an array, bfloat16 is float32, and has lost digits of the ids.
    dtype = getattr(given, "dtype", getattr(value, "dtype", type(value)))
    kind = str(getattr(dtype, "name", dtype))
    is_whole = "int" in kind or "bool" in kind or (name == "input_mask" and "float" in kind)
    if not is_whole and "float" in kind:
        if isinstance(value, np.ndarray) and "16" not in kind:
            is_whole = bool(np.all(np.floor(value) == value))
        else:  # accepted and cast: Keras builds a loaded model with floats
            is_whole = kind in ("float32", "float64")
    if is_whole:
        return
    # TensorFlow's strings are objects as an array.
    is_text = "bytes" in kind or "str" in f"{kind} {getattr(given, 'dtype', None)}"
    received = f"texts as {name}" if is_text else f"{name} of type {kind}"
    if isinstance(value, list | tuple):
        received = f"a list as {name} that is no array, such as one of unequal rows"
    raise InputError(received, "ids of word pieces: rows of whole numbers", REMEDY)


def _check_shapes(expected: Mapping[str, Any], shapes: Mapping[str, tuple]) -> None:
    """Refuses shapes that do not fit the model or each other."""
    ids = shapes["input_ids"]
    for name, shape in shapes.items():
        like = (
            ids if name in TOKEN_INPUTS else ids[:1] + shapes.get("masked_lm_positions", shape)[1:]
        )
        if not (_fit(shape, expected[name].shape) and _fit(shape, like)):
            beside = f", with input_ids of {list(ids)}" if name != "input_ids" else ""
            received = f"{name} of shape {list(shape)}{beside}"
            wanted = "[B, S] or [B, C, S], masks and segments alike, and positions [B, P]"
            raise InputError(received, wanted, f"correct the shape of {name}")


def _check_values(model: Any, known: Mapping[str, Any]) -> None:
    """Refuses longer sequences than the model has positions, and values outside of its tables."""
    config = model.config
    length = known["input_ids"].shape[-1]
    longest = config.max_position_embeddings * model.num_sequences  # each begins at the first
    if length is not None and not 0 < length <= longest:
        wanted = f"1 to {longest}, the positions of the model"
        remedy = "cut the texts: the tokenizer takes max_length"
        raise InputError(f"sequences of {length} word pieces", wanted, remedy)
    bounds = {
        "input_ids": config.vocab_size,
        "segment_ids": config.type_vocab_size,
        "masked_lm_positions": length,
        "masked_lm_ids": config.vocab_size,
        "word_positions": length,
    }
    if model.num_sequences > 1:
        bounds["input_mask"] = model.num_sequences + 1
    for name, bound in bounds.items():
        values = known.get(name)
        if isinstance(values, np.ndarray) and values.size:
            wrong = values[(values < 0) | (values >= bound)]
            if wrong.size:
                raise InputError(f"{name} with {wrong[0]}", f"0 to {bound - 1}", REMEDY)


def _array_if_known(x: Any) -> Any:
    """The input as an array; the input itself if its values are known only when a graph runs."""
    try:
        return x if isinstance(x, np.ndarray) else ops.convert_to_numpy(x)
    except (NotImplementedError, TypeError, ValueError, RuntimeError):
        return x


def _fit(shape: tuple, other: tuple) -> bool:
    """Whether two shapes may be equal; None is a size that is not known yet."""
    pairs = zip(shape, other, strict=False)
    return len(shape) == len(other) and all(a == b or None in (a, b) for a, b in pairs)
