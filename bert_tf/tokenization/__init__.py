"""Text -> words -> word pieces -> ids, as the original has them, as TensorFlow operations."""

from collections.abc import Iterable
from typing import Any

SPECIAL_PIECES = 3  # of a pair of texts: [CLS], [SEP] and [SEP]

# How pieces are kept whole: options of a tokenizer, and fields of what describes one.
KEPT_WHOLE = ("never_split", "added_words")


def kept_whole(of: Any) -> dict[str, Any]:
    """The pieces that a tokenizer, or what describes one, keeps whole: tuples by KEPT_WHOLE.

    Lists without a piece are left out.
    """
    lists = {name: tuple(getattr(of, name, None) or ()) for name in KEPT_WHOLE}
    return {name: pieces for name, pieces in lists.items() if pieces}


def without_kept_whole(pieces: Iterable[str], of: Any) -> list[str]:
    """The pieces of a vocabulary that `of` does not keep whole: those that show its case."""
    whole = {piece for pieces_of_list in kept_whole(of).values() for piece in pieces_of_list}
    return [piece for piece in pieces if piece not in whole]
