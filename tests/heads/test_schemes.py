"""heads/schemes.py: tags of all schemes, against seqeval and against spans."""

import doctest
import random

import pytest
from seqeval.metrics.sequence_labeling import get_entities

from bert_tf.heads import schemes
from bert_tf.heads.schemes import have_prefixes, normal_tags, tags_in

KINDS = ("PER", "LOC", "a-b")
SCHEMES = {  # prefixes of an entity of one word, and of the first, the inner, the last word
    "IOB2": "BBII",
    "IOE2": "EIIE",
    "IOBES": "SBIE",
    "BILOU": "UBIL",
    "BMES": "SBME",
}


def draw_spans(rng: random.Random) -> list[tuple[str, int, int]]:
    """Entities of a sentence as seqeval gives them: type, first and last word; some touch."""
    spans, at = [], rng.randrange(2)
    while at < 12:
        last = at + rng.choice((0, 0, 1, 2))
        spans.append((rng.choice(KINDS), at, last))
        at = last + rng.choice((1, 1, 2, 3))
    return spans


def encoded(spans, scheme: str, separator: str = "-") -> list[str]:
    single, first, inner, end = SCHEMES[scheme]
    found = ["O"] * 16
    for kind, start, last in spans:
        for word in range(start, last + 1):
            place = first if word == start else end if word == last else inner
            found[word] = f"{single if start == last else place}{separator}{kind}"
    return found


def test_the_drawn_examples():
    assert doctest.testmod(schemes).failed == 0


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("lower", "separator"), [(False, "-"), (False, "_"), (True, "-")])
def test_entities_of_every_scheme(scheme, lower, separator):
    rng = random.Random(scheme)
    for _ in range(200):
        spans = draw_spans(rng)
        given = encoded(spans, scheme, separator)
        if lower:
            given = [tag[0].lower() + tag[1:] for tag in given]
        normal = normal_tags(given)
        assert get_entities(normal) == spans
        assert normal == encoded(spans, "IOB2")
        names = {prefix.lower() + f"-{kind}" if lower else f"{prefix}{separator}{kind}"
                 for prefix in SCHEMES[scheme] for kind in KINDS}  # fmt: skip
        own = ["O" if tag == "o" else tag for tag in given]
        assert [*tags_in(["O", *names], normal)] == own


@pytest.mark.parametrize("prefixes", ["BI", "I", "IE", "BIES", "BIE", "S"])
def test_any_sequence_is_read_as_seqeval_reads_it(prefixes):
    """Also those that no scheme allows, as a model predicts them."""
    rng = random.Random(prefixes)
    known = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in KINDS)]
    for _ in range(500):
        given = rng.choices(known, k=rng.randrange(1, 15))
        assert get_entities(normal_tags(given)) == get_entities(given)


def test_a_model_with_inner_tags_only():
    assert tags_in(["O", "I-X"], ["B-X", "I-X", "B-X", "O", "B-Y"]) == (
        "I-X", "I-X", "I-X", "O", "B-Y",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("O B-PER I-PER", True), ("O I-PER", True), ("o b-per i-per", True), ("B_X I_X O", True),
        ("S-X B-X M-X E-X", True), ("O U-X L-X", True), ("B I O", True), ("B M E S", True),
        ("B-X LOC O", True), ("O", False), ("O PER LOC", False), ("O e-mail phone", False),
        ("NOUN VERB X PUNCT", False), ("n v a d m b s l e i u", False), ("S M L XL", False),
        ("IN NN -LRB- $", False), ("O S M L", False),
    ],
)  # fmt: skip
def test_prefixes_are_recognised(names, expected):
    assert have_prefixes(names.split()) is expected
