"""What a caller gives and gets -> the arrays that a model takes and gives, and back.

    "a text"                                  {"text": "a text"}
    ("who?", "It was Ann.")                   {"question": "who?", "context": "It was Ann."}
    ("She", ["left.", "slept."])              {"context": "She", "endings": ["left.", "slept."]}

Shapes: B rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.errors import InputError
from bert_tf.serving.signatures import DEFAULT
from bert_tf.tokenization.wordpiece import utf8

Row = dict[str, bytes | list[bytes]]  # the texts of one request, in UTF-8
# task: the output with the number of its columns that count, and the outputs with such columns
_COUNTED = {
    "token_labels": ("num_words", ("words", "labels", "probabilities", "starts", "ends")),
    "fill_mask": ("num_masks", ("pieces", "probabilities")),
}
_NBEST = ("nbest_answers", "nbest_probabilities", "nbest_starts", "nbest_ends")


class RowReader:
    """Reads what callers give to one model."""

    def __init__(self, facts: Mapping[str, Any]):
        """Takes the names and shapes of its texts from `facts`, as in export.json."""
        shapes = facts["signatures"][DEFAULT]
        # The names, and whether each is one text or a list of them.
        self._is_list = {name: len(shapes[name]["shape"]) > 1 for name in facts["texts"]}

    @property
    def names(self) -> list[str]:
        """Of the texts, in order."""
        return list(self._is_list)

    def read(self, item: Any, place: str) -> Row:
        """The texts of an item.

        Args:
          item: a text for a model of single texts; else texts in the order of `names`, or a
            mapping with these names, whose further keys do not matter.
          place: what the item is called in messages.

        Raises:
          InputError: it is something else.
        """
        if isinstance(item, Mapping):
            missing = [name for name in self._is_list if name not in item]
            if missing:
                found = ", ".join(map(str, item)) or "no key"
                raise self._error(f"{place} without {' and '.join(missing)}, with {found}")
            values = [item[name] for name in self._is_list]
        elif isinstance(item, str | bytes) and len(self._is_list) == 1:
            values = [item]
        elif isinstance(item, list | tuple) and len(item) == len(self._is_list):
            values = item
        else:
            raise self._error(f"{place}: {_shown(item)}")
        pairs = zip(self._is_list, values, strict=True)
        return {name: self._value(name, value, place) for name, value in pairs}

    def _value(self, name: str, value: Any, place: str) -> bytes | list[bytes]:
        if not self._is_list[name] and isinstance(value, str | bytes):
            return utf8(value)
        if self._is_list[name] and isinstance(value, list | tuple) and value:
            wrong = [one for one in value if not isinstance(one, str | bytes)]
            if not wrong:
                return [utf8(one) for one in value]
            raise self._error(f"{place}, {name} with {_shown(wrong[0])}")
        raise self._error(f"{place}, {name}: {_shown(value)}")

    def _error(self, received: str) -> InputError:
        samples = {True: '["...", "..."]', False: '"..."'}
        listed = [f'"{name}": {samples[is_list]}' for name, is_list in self._is_list.items()]
        short = ", ".join(samples[is_list] for is_list in self._is_list.values())
        short = f"({short})" if len(listed) > 1 else short
        return InputError(
            received=received,
            expected=f"{short} or {{{', '.join(listed)}}}",
            remedy="give what this model takes: texts as strings, under these names or in this "
            "order",
        )


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text[:60]}{'...' if len(text) > 60 else ''} ({type(value).__name__})"


def size_of(row: Row) -> int:
    """The bytes of a row."""
    parts = (value if isinstance(value, list) else [value] for value in row.values())
    return sum(len(text) for part in parts for text in part)


def shape_of(row: Row) -> tuple[int, ...]:
    """What must be equal in a batch: how many texts each list has."""
    return tuple(len(value) for value in row.values() if isinstance(value, list))


def arrays_of(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Rows of one shape -> arrays of bytes [B] or [B, C] by name."""
    return {name: np.array([row[name] for row in rows], object) for name in rows[0]}


# ---------------------------------------------------------------------------- answers


def answers_of(outputs: Mapping[str, np.ndarray], task: str) -> list[dict[str, Any]]:
    """Arrays [B, ...] -> the answers to each row, plain values without padding.

    A float32 becomes the shortest number that is the same float32.
    """
    columns = {name: _plain(array) for name, array in outputs.items()}
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    for row in rows:
        _cut(row, task)
    return rows


def _plain(array: np.ndarray) -> list:
    if array.dtype == object:
        return _decoded(array.tolist())
    if array.dtype == np.float32:
        return array.astype("U").astype(np.float64).tolist()
    return array.tolist()


def _decoded(value: bytes | list) -> Any:
    return value.decode() if isinstance(value, bytes) else [_decoded(one) for one in value]


def _cut(row: dict[str, Any], task: str) -> None:
    """Takes the padding off."""
    if task in _COUNTED:
        count, names = _COUNTED[task]
        for name in names:
            row[name] = row[name][: row[count]]
    if task == "question_answering":
        # No share, or a share of 0 that an answer has: only the end of a row is padding.
        both = zip(row["nbest_answers"], row["nbest_probabilities"], strict=True)
        used = [number for number, (text, share) in enumerate(both, 1) if text or share]
        for name in _NBEST:
            row[name] = row[name][: max(used, default=0)]
