"""The classes and the task of a trained head, compared with those that the caller wants.

other_purpose               whether a head is used for another task than it was trained for
in_order_of, with_labels    weights with their classes in the order of the caller's labels
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from bert_tf.checkpoints.metadata import Weights
from bert_tf.errors import InputError
from bert_tf.heads import NAMES, OUTPUT, head_named


def other_purpose(weights: Weights, head: str, pairs: bool | None = None) -> tuple[str, str] | None:
    """The trained purpose of a head and the wanted one if they are known to differ, else None.

    Only heads with an output layer of this name are compared: their shapes do not show for what
    they were trained.

    Args:
      weights: with the head.
      head: the name of the wanted head.
      pairs: whether it is wanted for pairs of texts; None: unknown.
    """
    if head_named(head).weights != OUTPUT:
        return None
    all_heads = map(head_named, NAMES)
    compared = {other.architecture for other in all_heads if other.weights == OUTPUT}
    purpose = {"architecture": head_named(head).architecture, "task": head, "pairs": pairs}
    for name, wanted in purpose.items():
        trained = getattr(weights.metadata, name)
        if name == "architecture" and trained not in compared:
            continue  # such as a pre-trained model, which may get any head
        if None not in (trained, wanted) and trained != wanted:
            return f"{name} = {trained}", f"{name} = {wanted}"
    return None


def in_order_of(
    weights: Weights, labels: Sequence[str], names: Sequence[str] | None = None
) -> Weights | None:
    """The weights with their classes in the order of `labels`; None if they have other labels.

    Args:
      weights: the weights of a head of several classes.
      labels: the wanted order of the classes; if the weights have no names, their order and names.
      names: the names of the weights' classes, if spelled differently than in the metadata.
    """
    names = tuple(names or weights.metadata.labels or labels)
    is_each_once = len({*labels}) == len(labels) == weights.num_classes
    if not is_each_once or sorted(names) != sorted(labels):
        return None
    order = [names.index(label) for label in labels]

    def read(name: str) -> Any:
        value = weights.read(name)
        return value[order] if re.match(OUTPUT, name) else value

    metadata = dataclasses.replace(weights.metadata, labels=tuple(labels))
    return dataclasses.replace(weights, read=read, metadata=metadata)


def with_labels(
    weights: Weights, labels: Sequence[str], names: Sequence[str] | None = None
) -> Weights:
    """The weights as from `in_order_of`; raises `InputError` if they have other labels."""
    if "output_weights" not in weights.shapes:
        return weights  # `load_checkpoint` says what is missing
    ordered = in_order_of(weights, labels, names)
    if ordered is None:
        received = f"{len(labels)} labels: {', '.join(labels)}, for {weights.path}"
        expected = f"its {classes_of(weights)}, each once, in any order"
        raise InputError(received, expected, "name them all, or none where the model names them")
    return ordered


def classes_of(weights: Weights) -> str:
    """The classes of a head, for messages: their names, or their number."""
    names = weights.metadata.labels
    return f"labels {', '.join(names)}" if names else f"{weights.num_classes} classes"
