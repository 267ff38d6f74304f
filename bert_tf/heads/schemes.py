"""Tags of words in the schemes of published files, and the same entities in another scheme.

Three persons, the first of two words, and a word outside:

    IOB1    I-PER I-PER B-PER B-PER O      B- only where two entities of a type touch
    IOB2    B-PER I-PER B-PER B-PER O      the normal one
    IOE2    I-PER E-PER E-PER E-PER O      E- at the last word
    IOBES   B-PER E-PER S-PER S-PER O      also BILOU: L-, U- for E-, S-; BMES: M- for I-
    none    PER   PER   PER   PER   O      classes: words of one class in a row are an entity
"""

import itertools
import re
from collections.abc import Iterable, Sequence

OUTSIDE = "O"  # the tag of a word that is in no entity
# B, S and U begin an entity, E, L, S and U end one; M is another I. The type may be missing.
TAG = re.compile(r"([BIMELSU])(?:[-_](.+))?", re.IGNORECASE)


def have_prefixes(tags: Iterable[str]) -> bool:
    """Whether tags say where entities begin, as B-PER, s_PER or B do; else they are classes."""
    tags = {*tags} - {OUTSIDE, OUTSIDE.lower()}
    are_all = all(map(TAG.fullmatch, tags)) and any(len(tag) > 1 or tag in "BIbi" for tag in tags)
    return are_all or any(re.match("[BI][-_].", tag) for tag in tags)


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
