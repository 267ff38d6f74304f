"""The arguments of a model's call -> all of its inputs by name, checked.

    model(ids)                                        the ids alone
    model({"input_ids": ids, "attention_mask": mask}) by the original's or Hugging Face's names
    model(ids, attention_mask=mask), model(**batch)   by keyword
    model([ids, mask, segments])                      in the order of the model's inputs

All are the same call. Types and shapes are checked in every call, also while a graph is traced.
Values are checked only in eager calls: in a graph a check would cost time in each step.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.errors import InputError

TOKEN_INPUTS = ("input_ids", "input_mask", "segment_ids")
SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}  # Hugging Face's names
# Defaults of inputs that are left out, from int32 ids [..., S]: id 0 is padding, all tokens are of
# the first text, and predictions are made for every position.
DEFAULTS = {
    "input_mask": lambda ids: ops.cast(ops.not_equal(ids, 0), "int32"),
    "segment_ids": ops.zeros_like,
    "masked_lm_positions": lambda ids: ops.cumsum(ops.ones_like(ids), axis=-1) - 1,
    "word_positions": lambda ids: ops.cumsum(ops.ones_like(ids), axis=-1) - 1,
}
# Inputs of whole numbers. A user's model may have others, which Keras checks.
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
    """All inputs in the structure of `model.input`, with defaults for those that were left out.

    Args:
      model: a `BertModel`.
      inputs: the positional argument of the call: a dict, ids, a list in the order of the model's
        inputs, or None.
      by_keyword: inputs by name, beside that argument or instead of it.
      mask: Keras's mask of the ids, used if no input_mask is given.

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
    """An input of whole numbers as int32; a fraction in a mask becomes 1, not 0."""
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
    """The arguments of a call by the names of the model's inputs, without those that are None.

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
    values = {}
    is_twice = False
    for name, value in (*inputs.items(), *by_keyword.items()):
        if value is not None:
            name = SYNONYMS.get(name, name)
            is_twice = is_twice or name in values
            values[name] = value
    is_unknown = not values.keys() <= expected.keys()
    is_missing = not expected.keys() <= values.keys() | DEFAULTS.keys()
    if is_unknown or is_missing or is_twice:
        names = [str(name) for name in (*inputs, *by_keyword) if name != "input_ids"]
        if "input_ids" in values:
            names.insert(0, "input_ids")
        spellings = {ours: f"{ours} or {theirs}" for theirs, ours in SYNONYMS.items()}
        wanted = ", ".join(spellings.get(name, name) for name in expected)
        raise InputError(
            f"inputs of a model: {', '.join(names) or 'none'}",
            f"input_ids, and at most one each of {wanted}",
            "rename or leave out the others",
        )
    return values


# ---------------------------------------------------------------------------- checks


def check_inputs(
    model: Any, inputs: Any, by_keyword: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Checks the arguments of a call; returns the inputs by name. Arguments as `complete_inputs`.

    Raises:
      InputError: an input does not hold whole numbers, its shape does not fit the model or the
        other inputs, or a known value is out of range.
    """
    expected = inputs_of(model)
    values = named_inputs(expected, inputs, by_keyword or {})
    arrays = {}
    for name in expected:
        if name in values and name in WHOLE:
            arrays[name] = _array_if_known(values[name])
            _check_kind(name, values[name], arrays[name])
    _check_shapes(expected, {name: tuple(array.shape) for name, array in arrays.items()})
    if model.config is not None:
        _check_values(model, arrays)
    return values


def _check_kind(name: str, value: Any, array: Any) -> None:
    """Refuses an input that does not hold whole numbers; a mask may hold any numbers.

    Args:
      name: the name of the input.
      value: as it was passed.
      array: the same as `_array_if_known`.
    """
    # The type as passed: an array of bfloat16 is float32, but its ids have lost digits.
    dtype = getattr(value, "dtype", getattr(array, "dtype", type(array)))
    kind = str(getattr(dtype, "name", dtype))
    is_float = "float" in kind
    is_whole = "int" in kind or "bool" in kind or (is_float and name == "input_mask")
    if is_float and not is_whole:
        if isinstance(array, np.ndarray) and "16" not in kind:
            is_whole = bool(np.all(np.floor(array) == array))
        else:  # unknown values: Keras builds loaded models with floats
            is_whole = kind in ("float32", "float64")
    if is_whole:
        return
    # The array of a TensorFlow string tensor has the type object.
    is_text = "bytes" in kind or "str" in f"{kind} {getattr(value, 'dtype', None)}"
    received = f"texts as {name}" if is_text else f"{name} of type {kind}"
    if isinstance(array, list | tuple):
        received = f"a list as {name} that is no array, such as one of unequal rows"
    raise InputError(received, "ids of word pieces: rows of whole numbers", REMEDY)


def _check_shapes(expected: Mapping[str, Any], shapes: Mapping[str, tuple]) -> None:
    """Refuses shapes that do not fit the model or each other."""
    ids = shapes["input_ids"]  # [B, S] or [B, C, S]
    for name, shape in shapes.items():
        wanted_shape = ids
        if name not in TOKEN_INPUTS:
            wanted_shape = ids[:1] + shapes.get("masked_lm_positions", shape)[1:]  # [B, P]
        if not (_may_be_equal(shape, expected[name].shape) and _may_be_equal(shape, wanted_shape)):
            beside = f", with input_ids of {list(ids)}" if name != "input_ids" else ""
            received = f"{name} of shape {list(shape)}{beside}"
            wanted = "[B, S] or [B, C, S], masks and segments alike, and positions [B, P]"
            raise InputError(received, wanted, f"correct the shape of {name}")


def _check_values(model: Any, arrays: Mapping[str, Any]) -> None:
    """Refuses longer sequences than the model has positions, and values outside of its tables."""
    config = model.config
    length = arrays["input_ids"].shape[-1]
    longest = config.max_position_embeddings * model.num_sequences  # positions restart in each
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
        array = arrays.get(name)
        if isinstance(array, np.ndarray) and array.size:
            wrong = array[(array < 0) | (array >= bound)]
            if wrong.size:
                raise InputError(f"{name} with {wrong[0]}", f"0 to {bound - 1}", REMEDY)


def _array_if_known(x: Any) -> Any:
    """The input as an array; as it is if its values are known only when a graph runs."""
    try:
        return x if isinstance(x, np.ndarray) else ops.convert_to_numpy(x)
    except (NotImplementedError, TypeError, ValueError, RuntimeError):
        return x


def _may_be_equal(shape: tuple, expected: tuple) -> bool:
    """Whether two shapes may be equal; None is a size that is not known yet."""
    if len(shape) != len(expected):
        return False
    for size, wanted in zip(shape, expected, strict=True):
        if size is not None and wanted is not None and size != wanted:
            return False
    return True
