"""heads/schemes.py: tags of all schemes, against seqeval and against spans."""

import doctest
import itertools
import random

import pytest
import seqeval.scheme
from seqeval.metrics.sequence_labeling import get_entities

from bert_tf.errors import InputError
from bert_tf.heads import schemes
from bert_tf.heads.schemes import have_prefixes, normal_tags, outside_of, scheme_of, tags_in

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


def touching(spans, scheme: str) -> list[str]:
    """IOB1, whose B is an entity's first word, or IOE1, whose E is its last, where two touch."""
    found = ["O"] * 16
    for kind, start, last in spans:
        found[start : last + 1] = [f"I-{kind}"] * (last + 1 - start)
    for (kind, _, last), (following, start, _) in itertools.pairwise(spans):
        if kind == following and start == last + 1:
            border = (start, "B") if scheme == "IOB1" else (last, "E")
            found[border[0]] = f"{border[1]}-{kind}"
    return found


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU", "BMES"])
def test_the_scheme_of_a_file_and_its_entities_are_those_of_seqeval(scheme):
    rng = random.Random(scheme)
    drawn = [draw_spans(rng) for _ in range(200)]
    encode = encoded if scheme in SCHEMES else touching
    sentences = [encode(spans, scheme) for spans in drawn]
    assert scheme_of("a.txt", sentences) == scheme
    for spans, tags in zip(drawn, sentences, strict=True):
        assert get_entities(normal_tags(tags)) == spans
    if scheme in (
        "IOB1",
        "IOB2",
        "IOE2",
        "IOBES",
        "BILOU",
    ):  # its IOE1 is unfinished, says its code
        strict = seqeval.scheme.Entities(sentences, getattr(seqeval.scheme, scheme)).entities
        assert [[(e.tag, e.start, e.end - 1) for e in entities] for entities in strict] == drawn


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("O", ""), ("O PER LOC", ""), ("I-X O", "IOB1"), ("B-X O", "IOB2"), ("E-X", "IOE2"),
        ("S-X O", "IOBES"), ("U-X O", "BILOU"), ("B I O B I", "IOB2"), ("i_X b_X o", "IOB1"),
        ("B-X O I-X", "IOB2"), ("B-X E-X", "IOBES"), ("M-X E-X B-X", "BMES"),
        ("NOUN VERB X", ""), ("e-mail phone", ""), ("B-X LOC", "IOB2"),
    ],
)  # fmt: skip
def test_the_scheme_of_few_tags(tags, scheme):
    assert scheme_of("a.txt", [tags.split()]) == scheme


@pytest.mark.parametrize(
    ("tags", "named"),
    [
        ("B-X M-X E-X W-X O", "W-X"), ("W-X W-Y S-X O", "W-X, W-Y"), ("B-X I-X E-X L-X", "B-X,"),
        ("B-X S-X U-X O", "S-X, U-X"), ("X-B X-I O", "X-B, X-I"), ("X_S X_B X_M X_E", "X_B, X_E"),
    ],
)  # fmt: skip
def test_other_schemes_are_refused_by_name(tags, named):
    with pytest.raises(InputError) as refused:
        scheme_of("a.txt", [["O"], tags.split()])
    assert "a.txt with the tags" in refused.value.received
    assert named in refused.value.received
    assert all(scheme in refused.value.expected for scheme in schemes.SCHEMES)


@pytest.mark.parametrize(
    ("tags", "names", "outside"),
    [
        ("O B-X", (), "O"), ("o B-X", (), "o"), ("0 B-X", (), "0"), ("- X", (), "-"),
        ("_ X", (), "_"), ("0 O X", (), "O"), ("_ - 0 X", (), "0"), ("X", (), "O"),
        ("0 1", ("0", "1"), "O"), ("0 X", ("O", "X"), "0"),
    ],
)  # fmt: skip
def test_the_tag_of_words_outside_of_entities(tags, names, outside):
    assert outside_of(tags.split(), names) == outside


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
