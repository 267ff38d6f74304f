"""Schemes of tags, in which published files mark the words of entities; conversion between them.

Three persons, of whom the first has two words, and a word outside of entities:

    IOB1    I-PER I-PER B-PER B-PER O      B- only where two entities of a type touch
    IOB2    B-PER I-PER B-PER B-PER O      the normal scheme
    IOE1    I-PER E-PER E-PER I-PER O      E- only where two entities of a type touch
    IOE2    I-PER E-PER E-PER E-PER O      E- at the last word
    IOBES   B-PER E-PER S-PER S-PER O      also BILOU: L-, U- for E-, S-; BMES: M- for I-
    none    PER   PER   PER   PER   O      classes: words of one class in a row are an entity
"""

import itertools
import re
from collections.abc import Collection, Iterable, Sequence

from bert_tf.errors import InputError, shortened

OUTSIDE = "O"  # the tag of a word that is in no entity
OUTSIDE_ELSEWHERE = ("o", "0", "-", "_")  # the same in files without O
# B, S and U begin an entity, E, L, S and U end one; M is I. The type may be missing.
TAG = re.compile(r"([BIMELSU])(?:[-_](.+))?", re.IGNORECASE)
# The letters of each scheme; `scheme_of` distinguishes those with the same letters.
SCHEMES = {
    "IOB2": "BI",
    "IOB1": "BI",
    "IOE2": "IE",
    "IOE1": "IE",
    "IOBES": "BIES",
    "BILOU": "BILU",
    "BMES": "BMES",
}
# Prefixes in other schemes by a normal prefix, and whether the word is the last of its entity; the
# first that a model's tags have is taken.
EQUIVALENT = {
    ("B", False): "BI",
    ("B", True): "SUBELI",
    ("I", False): "IM",
    ("I", True): "ELIM",
}
ANY_LETTER = re.compile(r"([A-Z])[-_](.+)", re.IGNORECASE)  # W-PER
LETTER_LAST = re.compile(r"(.+)[-_]([BIMELSUW])", re.IGNORECASE)  # PER-B
MOST_SHOWN = 80  # characters of tags in a message


def have_prefixes(tags: Iterable[str]) -> bool:
    """Whether tags have prefixes as B-PER, s_PER or B do; otherwise they are classes."""
    tags = set(tags) - {OUTSIDE, OUTSIDE.lower()}
    if any(re.match("[BI][-_].", tag) for tag in tags):
        return True
    # Single letters are prefixes only if B or I is one: M and S alone may be classes.
    return all(map(TAG.fullmatch, tags)) and any(len(tag) > 1 or tag in "BIbi" for tag in tags)


def scheme_of(source: str, sentences: Iterable[Sequence[str]]) -> str:
    """The name of the scheme of a file's tags; "" if they are classes.

    >>> scheme_of("a.txt", [["I-X", "I-X", "B-X", "O"]]), scheme_of("a.txt", [["X", "O"]])
    ('IOB1', '')

    Args:
      source: the file, for messages.
      sentences: the tags of each.

    Raises:
      InputError: no scheme has all of the letters, or the letter is at the end of tags.
    """
    sentences = [*sentences]
    tags = {tag for sentence in sentences for tag in sentence} - {OUTSIDE, OUTSIDE.lower()}
    if not have_letters(tags):
        return ""
    letters = {match[1].upper() for match in map(TAG.fullmatch, tags) if match}
    strange = [tag for tag in tags if ANY_LETTER.fullmatch(tag) and not TAG.fullmatch(tag)]
    candidates = [name for name, known in SCHEMES.items() if letters <= set(known)]
    if strange or not candidates or not letters:
        shown = shortened(", ".join(sorted(strange or tags)), MOST_SHOWN)
        schemes = ", ".join(f"{name} ({', '.join(known)})" for name, known in SCHEMES.items())
        expected = f"O and, as in B-PER, the letters of one scheme: {schemes}"
        raise InputError(f"{source} with the tags {shown}", expected, "convert the tags")
    scheme = candidates[0]
    if scheme == "IOB2" and _marks_only_neighbours(sentences, "B"):
        return "IOB1"
    if scheme == "IOE2":
        # From its end, IOE1 is IOB1 with E for B.
        backwards = [sentence[::-1] for sentence in sentences]
        if _marks_only_neighbours(backwards, "E"):
            return "IOE1"
    return scheme


def have_letters(tags: Collection[str]) -> bool:
    """Whether tags are of a scheme, known or not: W-PER beside S-PER, PER-B beside PER-I."""
    if have_prefixes(tags):
        return True
    for pattern, kind_group in ((ANY_LETTER, 2), (LETTER_LAST, 1)):
        matches = [*map(pattern.fullmatch, tags)]
        kinds = [match[kind_group] for match in matches if match]
        if all(matches) and len(set(kinds)) < len(kinds):
            return True
    return False


def _marks_only_neighbours(sentences: Iterable[Sequence[str]], border: str) -> bool:
    """Whether `border` begins an entity only behind another of its type, and I all other entities.

    Args:
      sentences: the tags of each.
      border: B; for tags in reverse order E.
    """
    begins_with_i = False
    for sentence in sentences:
        kind_before = None  # the type of the word before
        for tag in sentence:
            match = TAG.fullmatch(tag)
            kind = match and (match[2] or "")
            if match and match[1].upper() == border and kind != kind_before:
                return False
            begins_with_i = begins_with_i or bool(match and kind != kind_before)
            kind_before = kind
    return begins_with_i


def outside_of(tags: Iterable[str], names: Collection[str] = ()) -> str:
    """The tag of a word in no entity, in a file's tags: O, or o, 0, - or _ if there is no O.

    >>> outside_of(["0", "PER"]), outside_of(["0", "PER", "O"]), outside_of(["PER"])
    ('0', 'O', 'O')

    Args:
      tags: the tags of all words.
      names: the tags of a model, which keep their meaning.
    """
    tags = set(tags)
    if OUTSIDE in tags:
        return OUTSIDE
    for tag in OUTSIDE_ELSEWHERE:
        if tag in tags and tag not in names:
            return tag
    return OUTSIDE


def normal_tags(tags: Iterable[str]) -> list[str]:
    """A sentence's tags with B- at the first word of each entity and I- at the others.

    >>> normal_tags(["I-X", "M-X", "E-X", "I-X", "o", "U-X", "e_Y", "B", "I"])
    ['B-X', 'I-X', 'I-X', 'B-X', 'O', 'B-X', 'B-Y', 'B', 'I']
    """
    normal = []
    open_kind = None  # the type of an entity that the next word may continue
    for tag in tags:
        match = TAG.fullmatch(tag)
        if match is None:
            normal.append(OUTSIDE if tag == OUTSIDE.lower() else tag)
            open_kind = None
            continue
        prefix = match[1].upper()
        kind = match[2] or ""
        is_first = prefix in "BSU" or kind != open_kind
        normal_prefix = "B" if is_first else "I"
        normal.append(f"{normal_prefix}-{kind}" if kind else normal_prefix)
        open_kind = None if prefix in "ELSU" else kind
    return normal


def tags_in(names: Iterable[str], normal: Sequence[str]) -> tuple[str, ...]:
    """Normal tags in the scheme of a model's tags; one that the model lacks is unchanged."""
    known = {}  # names by prefix and type
    for name in names:
        match = TAG.fullmatch(name)
        if match:
            known[match[1].upper(), match[2]] = name
    tags = []
    for tag, following in itertools.zip_longest(normal, normal[1:], fillvalue=OUTSIDE):
        is_last = not following.startswith("I")
        kind = tag[2:] or None
        prefixes = EQUIVALENT.get((tag[0], is_last), "")
        tags.append(next((known[p, kind] for p in prefixes if (p, kind) in known), tag))
    return tuple(tags)
