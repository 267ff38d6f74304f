"""The classes of a trained head, and what it was trained for: compared with what is asked for.

other_purpose             whether a head is used for another task than its own
in_order_of, with_labels  weights, their classes in the order of the given labels
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from bert_tf.checkpoints.metadata import Weights
from bert_tf.errors import InputError
from bert_tf.heads import NAMES, OUTPUT, head_named


def other_purpose(weights: Weights, head: str, pairs: bool | None = None) -> tuple[str, str] | None:
    """The trained purpose of a head and the wanted one, if they are known to differ, else None.

    Only heads with the same weights are compared: no shape shows what those were trained for.
    """
    if head_named(head).weights != OUTPUT:
        return None
    alike = {other.architecture for other in map(head_named, NAMES) if other.weights == OUTPUT}
    wanted = {"architecture": head_named(head).architecture, "task": head, "pairs": pairs}
    for name, asked in wanted.items():
        known = getattr(weights.metadata, name)
        # Weights of another architecture, a pre-trained model say, may get any head.
        is_of_head = name != "architecture" or known in alike
        if is_of_head and None not in (known, asked) and known != asked:
            return f"{name} = {known}", f"{name} = {asked}"
    return None


def in_order_of(
    weights: Weights, labels: Sequence[str], own: Sequence[str] | None = None
) -> Weights | None:
    """The weights, their classes in the order of `labels`; None if their labels are others.

    Args:
      weights: of a head of several classes.
      labels: the names of the classes; if the weights have no names, in the order of the classes.
      own: the names of the weights' classes, if spelled differently than in the metadata.
    """
    own = tuple(own or weights.metadata.labels or labels)
    is_each_once = len({*labels}) == len(labels) == weights.num_classes
    if not is_each_once or sorted(own) != sorted(labels):
        return None
    order = [own.index(label) for label in labels]

    def read(name: str) -> Any:
        value = weights.read(name)
        return value[order] if re.match(OUTPUT, name) else value

    metadata = dataclasses.replace(weights.metadata, labels=tuple(labels))
    return dataclasses.replace(weights, read=read, metadata=metadata)


def with_labels(
    weights: Weights, labels: Sequence[str], own: Sequence[str] | None = None
) -> Weights:
    """As `in_order_of`, but raises `InputError` if the labels are others."""
    if "output_weights" not in weights.shapes:
        return weights  # `load_checkpoint` says what is missing
    found = in_order_of(weights, labels, own)
    if found is None:
        received = f"{len(labels)} labels: {', '.join(labels)}, for {weights.path}"
        expected = f"its {classes_of(weights)}, each once, in any order"
        raise InputError(received, expected, "name them all, or none where the model names them")
    return found


def classes_of(weights: Weights) -> str:
    """The classes of a head, for messages: their names, or their number."""
    names = weights.metadata.labels
    return f"labels {', '.join(names)}" if names else f"{weights.num_classes} classes"
