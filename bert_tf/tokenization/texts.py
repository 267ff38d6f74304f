"""Converts what a caller gives as texts or pairs to lists of texts; refuses everything else.

    ["a", b"b"]                    two texts
    [("a", "b"), ("c", "")]        two pairs, each a tuple: the same as ["a", "c"] with ["b", ""]

A list, a column of a table, an array or a tensor holds texts, in one dimension.
"""

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.errors import InputError

MOST_SHOWN = 80  # characters of a value in a message
EXPECTED = "a list of texts, each a str or bytes"
_KINDS = (str, bytes)
_SHORT = reprlib.Repr()  # a list's first items, never all
_SHORT.maxstring = MOST_SHOWN
_SHORT.maxother = MOST_SHOWN


def shown(value: Any) -> str:
    """A value for messages, shortened."""
    return _SHORT.repr(value)[:MOST_SHOWN]


def texts_of(texts: Any, name: str = "texts") -> list[str | bytes]:
    """Texts as a list.

    Args:
      texts: str or bytes [N]: any iterable with an order, such as a list, a column of pandas or
        `datasets`, an array of NumPy or a string tensor; not a single text.
      name: the name of the argument, for messages.

    Raises:
      InputError: it is something else, or holds something else; the message names the first.
    """
    return list(each_text(texts, name))


def each_text(texts: Any, name: str = "texts") -> Iterator[str | bytes]:
    """As `texts_of`, one text at a time."""
    for place, text in enumerate(items_of(texts, name)):
        if not isinstance(text, _KINDS):
            raise not_a_text(text, f"{name}[{place}]")
        yield text


def as_columns(
    texts: Any, text_pairs: Any = None
) -> tuple[list[str | bytes], list[str | bytes] | None]:
    """The first texts and the second ones.

    Args:
      texts: as for `texts_of`, or a single text; or pairs, each a tuple of two texts.
      text_pairs: the second text of each; None: there are none, or `texts` has them.

    Returns:
      Two lists of the same length; None in place of the second if there are no pairs.

    Raises:
      InputError: as `texts_of`; there are more or fewer second texts; or some items are pairs and
        others are not.
    """
    if text_pairs is not None:
        firsts = texts_of(_listed(texts))
        seconds = texts_of(_listed(text_pairs), "text_pairs")
        if len(firsts) != len(seconds):
            received = f"{len(firsts)} texts and {len(seconds)} second texts"
            raise InputError(received, "as many, some of them empty", "correct one of the lists")
        return firsts, seconds
    items = [*items_of(_listed(texts), "texts")]
    if not any(isinstance(item, tuple) for item in items):
        return texts_of(items), None
    for place, item in enumerate(items):
        _check_pair(item, items[0], f"texts[{place}]")
    return [first for first, _ in items], [second for _, second in items]


def _check_pair(item: Any, first: Any, place: str) -> None:
    """Raises `InputError` unless an item is a text or pair, as the `first` of the list is."""
    if not isinstance(item, tuple | str | bytes):
        raise not_a_text(item, place)
    if isinstance(item, tuple) is not isinstance(first, tuple):
        received = f"{place}, of type {type(item).__name__}: {shown(item)}"
        received += f", where texts[0] is of type {type(first).__name__}"
        remedy = 'write ("a text", "") for a text without a second one'
        raise InputError(received, "only texts, or only pairs", remedy)
    if isinstance(item, tuple) and len(item) != 2:
        received = f"{place}, a tuple of {len(item)}: {shown(item)}"
        raise InputError(received, "a pair, a tuple of two texts", "give the texts as a list")
    for side, text in enumerate(item if isinstance(item, tuple) else ()):
        if not isinstance(text, str | bytes):
            raise not_a_text(text, f"{place}[{side}]")


def _listed(texts: Any) -> Any:
    return [texts] if isinstance(texts, str | bytes) else texts


def items_of(texts: Any, name: str = "texts") -> Iterable[Any]:
    """An iterable of the items of `texts`; the items themselves are not checked.

    Raises:
      InputError: it is a single text, a table, a set, or has no items or several dimensions.
    """
    if isinstance(texts, str | bytes):
        raise InputError(f"a single text, {shown(texts)}", "a list", "put brackets around it")
    if isinstance(texts, Mapping | set | frozenset):
        raise not_a_text(texts, name)
    if tf.is_tensor(texts) and not hasattr(texts, "numpy"):
        received = f"{name}, a tensor without a value yet, of type {texts.dtype.name}"
        remedy = "in graphs use bert_tf.layers.Tokenizer or `tokenize_ids`"
        raise InputError(received, f"{EXPECTED}, or a string tensor [N]", remedy)
    shape = getattr(texts, "shape", None)
    if isinstance(shape, tuple | tf.TensorShape) and len(shape) != 1:
        received = f"{name}, of type {type(texts).__name__} and shape {(*shape,)}"
        remedy = "give one column; of pairs the first texts and the second ones"
        raise InputError(received, f"{EXPECTED}, or an array of one dimension", remedy)
    if tf.is_tensor(texts):
        return texts.numpy()
    if not hasattr(texts, "__iter__"):
        raise not_a_text(texts, name)
    return texts


def not_a_text(value: Any, place: str) -> InputError:
    """The error for a value that is no text; `place` names it."""
    received = f"{place}, of type {type(value).__name__}: {shown(value)}"
    return InputError(received, EXPECTED, _remedy(value))


def _remedy(value: Any) -> str:
    """What to do with a value in place of a text."""
    is_nan = isinstance(value, float) and value != value
    if value is None or is_nan or type(value).__name__ in ("NAType", "NaTType"):
        return 'leave such rows out, or write "" for a missing text'
    if isinstance(value, Mapping):
        keys = ", ".join(map(shown, [*value][:9]))
        return f"give the texts alone, those of one key (here: {keys[: 2 * MOST_SHOWN]})"
    if isinstance(value, list | tuple):
        return "for pairs give tuples, or two lists, either of them alone; join the words of a text"
    return "convert it to a list of str"
