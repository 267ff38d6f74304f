"""Tags of words in the schemes of published files, and the same entities in another scheme.

Three persons, the first of two words, and a word outside:

    IOB1    I-PER I-PER B-PER B-PER O      B- only where two entities of a type touch
    IOB2    B-PER I-PER B-PER B-PER O      the normal one
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
OUTSIDE_ELSEWHERE = ("o", "0", "-", "_")  # what files without O write in its place
# B, S and U begin an entity, E, L, S and U end one; M is another I. The type may be missing.
TAG = re.compile(r"([BIMELSU])(?:[-_](.+))?", re.IGNORECASE)
# The letters of each scheme. Of those with the same letters `scheme_of` says which it is.
SCHEMES = {
    "IOB2": "BI",
    "IOB1": "BI",
    "IOE2": "IE",
    "IOE1": "IE",
    "IOBES": "BIES",
    "BILOU": "BILU",
    "BMES": "BMES",
}
ANY_LETTER = re.compile(r"([A-Z])[-_](.+)", re.IGNORECASE)  # W-PER
LETTER_LAST = re.compile(r"(.+)[-_]([BIMELSUW])", re.IGNORECASE)  # PER-B
MOST_SHOWN = 80  # characters of tags in a message


def have_prefixes(tags: Iterable[str]) -> bool:
    """Whether tags say where entities begin, as B-PER, s_PER or B do; else they are classes."""
    tags = {*tags} - {OUTSIDE, OUTSIDE.lower()}
    are_all = all(map(TAG.fullmatch, tags)) and any(len(tag) > 1 or tag in "BIbi" for tag in tags)
    return are_all or any(re.match("[BI][-_].", tag) for tag in tags)


def scheme_of(source: str, sentences: Iterable[Sequence[str]]) -> str:
    """The name of the scheme that all tags of a file are in; "" if they are classes.

    >>> scheme_of("a.txt", [["I-X", "I-X", "B-X", "O"]]), scheme_of("a.txt", [["X", "O"]])
    ('IOB1', '')

    Args:
      source: the file, for messages.
      sentences: the tags of each.

    Raises:
      InputError: the tags begin with letters that no scheme has, or that no one scheme has
        together, or the letter is at their end.
    """
    sentences = [*sentences]
    tags = {tag for sentence in sentences for tag in sentence} - {OUTSIDE, OUTSIDE.lower()}
    if not have_letters(tags):
        return ""
    letters = {match[1].upper() for match in map(TAG.fullmatch, tags) if match}
    strange = [tag for tag in tags if ANY_LETTER.fullmatch(tag) and not TAG.fullmatch(tag)]
    fitting = [name for name, known in SCHEMES.items() if letters <= {*known}]
    if strange or not fitting or not letters:
        shown = shortened(", ".join(sorted(strange or tags)), MOST_SHOWN)
        schemes = ", ".join(f"{name} ({', '.join(known)})" for name, known in SCHEMES.items())
        expected = f"O and, as in B-PER, the letters of one scheme: {schemes}"
        raise InputError(f"{source} with the tags {shown}", expected, "convert the tags")
    starts_apart = fitting[0] == "IOB2" and _is_first_form(sentences, "B")
    ends_apart = fitting[0] == "IOE2" and _is_first_form([s[::-1] for s in sentences], "E")
    return fitting[1] if starts_apart or ends_apart else fitting[0]


def have_letters(tags: Collection[str]) -> bool:
    """Whether tags are of a scheme, known or not: W-PER beside S-PER, PER-B beside PER-I."""
    if have_prefixes(tags):
        return True
    for form, letter in ((ANY_LETTER, 1), (LETTER_LAST, 2)):
        matches = [*map(form.fullmatch, tags)]
        kinds = [match[3 - letter] for match in matches if match]
        if all(matches) and len({*kinds}) < len(kinds):
            return True
    return False


def _is_first_form(sentences: Iterable[Sequence[str]], border: str) -> bool:
    """Whether `border` stands only directly behind a word of its type, and I begins an entity.

    Of IOE1, whose E is such a border, the sentences are read from their ends.
    """
    begins_with_i = False
    for sentence in sentences:
        before = None  # the type of the word before
        for tag in sentence:
            match = TAG.fullmatch(tag)
            kind = match and (match[2] or "")
            if match and match[1].upper() == border and kind != before:
                return False
            begins_with_i = begins_with_i or bool(match and kind != before)
            before = kind
    return begins_with_i


def outside_of(tags: Iterable[str], names: Collection[str] = ()) -> str:
    """What the tags of a file have for a word in no entity: O, or o, 0, - or _ if there is no O.

    >>> outside_of(["0", "PER"]), outside_of(["0", "PER", "O"]), outside_of(["PER"])
    ('0', 'O', 'O')

    Args:
      tags: of all words.
      names: a model's, which mean what they meant in training.
    """
    tags = {*tags}
    others = [tag for tag in OUTSIDE_ELSEWHERE if tag in tags and tag not in names]
    return others[0] if others and OUTSIDE not in tags else OUTSIDE


def normal_tags(tags: Iterable[str]) -> list[str]:
    """A sentence's tags with B- at the first word of each entity and I- at the others.

    >>> normal_tags(["I-X", "M-X", "E-X", "I-X", "o", "U-X", "e_Y", "B", "I"])
    ['B-X', 'I-X', 'I-X', 'B-X', 'O', 'B-X', 'B-Y', 'B', 'I']
    """
    normal, going_on = [], None  # the type of the entity that the next word may belong to
    for tag in tags:
        if (match := TAG.fullmatch(tag)) is None:
            normal.append(OUTSIDE if tag == OUTSIDE.lower() else tag)
            going_on = None
            continue
        prefix, kind = match[1].upper(), match[2] or ""
        is_first = prefix in "BSU" or kind != going_on
        normal.append(("B" if is_first else "I") + (f"-{kind}" if kind else ""))
        going_on = None if prefix in "ELSU" else kind
    return normal


def tags_in(names: Iterable[str], normal: Sequence[str]) -> tuple[str, ...]:
    """Normal tags, spelled as a model's names are; one that the model lacks is unchanged."""
    known = {(m[1].upper(), m[2]): name for name in names if (m := TAG.fullmatch(name))}
    found = []
    for tag, following in itertools.zip_longest(normal, normal[1:], fillvalue=OUTSIDE):
        is_last = not following.startswith("I")
        fitting = {"B": ("BI", "SUBELI"), "I": ("IM", "ELIM")}.get(tag[0], ("", ""))[is_last]
        kind = tag[2:] or None
        found.append(next((known[p, kind] for p in fitting if (p, kind) in known), tag))
    return tuple(found)
