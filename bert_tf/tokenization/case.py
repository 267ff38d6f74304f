"""Whether the text of a vocabulary was lower-cased, as far as its pieces show it."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from bert_tf.errors import InputError


def is_cased(pieces: Iterable[str]) -> bool | None:
    """Whether a vocabulary has capital letters; None if it is too small to say."""
    pieces = _words(pieces)
    capital = sum(piece != piece.lower() for piece in pieces)
    small = sum(piece != piece.upper() for piece in pieces)
    if small < 1000:
        return None
    if capital == 0:
        return False
    return True if capital > small / 50 else None


def refuted_case(vocab_file: str, pieces: Iterable[str], do_lower_case: bool | None) -> str:
    """What the vocabulary shows if its text had another case, for messages; else nothing."""
    cased = is_cased(pieces)
    if cased is None or cased is not do_lower_case:
        return ""
    kind = "with capital letters" if cased else "without one capital letter"
    return f"{vocab_file}, a vocabulary {kind}"


def choose_case(vocab_file: str, pieces: Sequence[str], given: bool | None) -> bool:
    """The do_lower_case for a vocabulary: the one given, else true where no piece is lost by it.

    Args:
      vocab_file: for messages.
      pieces: of the vocabulary.
      given: what the user chose; None: nothing.

    Raises:
      InputError: the vocabulary shows that its text had another case; or nothing is given, and it
        has pieces that lower-cased text never gives, but too few to show the case.
    """
    lower = given is not False
    if reason := refuted_case(vocab_file, pieces, lower):
        raise InputError(
            f"do_lower_case {lower} with {reason}",
            "text in the case that the vocabulary was made for",
            f"use --{'no' if lower else ''}do_lower_case",
        )
    if given is None and (lost := [p for p in _words(pieces) if _lower_cased(p) != p]):
        raise InputError(
            f"{vocab_file}, which does not show whether text is to be lower-cased: {len(lost)} of "
            f"its pieces, such as {lost[0]!r}, never occur in lower-cased text",
            "--do_lower_case or --nodo_lower_case, as the model was or will be trained",
            "add one of the two",
        )
    return lower


def _words(pieces: Iterable[str]) -> list[str]:
    """Without [MASK] and the like."""
    return [piece for piece in pieces if not re.fullmatch(r"\[.*\]|<.*>", piece)]


def _lower_cased(text: str) -> str:
    """In small letters and without accents."""
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
