"""data_gen/draws.py: what `random.Random` draws, whatever is asked of it and in whatever order."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen import draws
from data_gen.draws import FIRST, SECOND, Draws, first_shuffled, shuffled

asked = st.one_of(
    st.tuples(st.just("below"), st.integers(1, 70000)),
    st.tuples(st.just("below"), st.integers(0, 31).map(lambda bits: 1 << bits)),
    st.tuples(st.just("share"), st.just(0)),
    st.tuples(st.just("halves"), st.integers(0, 50)),
    st.tuples(st.just("is_below_half"), st.just(0)),
    st.tuples(st.just("choices"), st.integers(0, 30)),
    st.tuples(st.just("swaps"), st.integers(0, 300)),
)
PIECES = 30522


def expected(what: str, number: int, rng: random.Random):
    if what == "below":
        return rng.randint(0, number - 1)
    if what == "share":
        return rng.random()
    if what == "halves":
        return bytes(rng.random() < 0.5 for _ in range(number))
    if what == "is_below_half":
        return rng.random() < 0.5
    if what == "choices":
        return [
            FIRST if rng.random() < 0.8
            else SECOND if rng.random() < 0.5
            else rng.randint(0, PIECES - 1)
            for _ in range(number)
        ]  # fmt: skip
    items = list(range(number))
    rng.shuffle(items)
    return items


def found(what: str, number: int, made: Draws):
    if what in ("share", "is_below_half"):
        return getattr(made, what)()
    if what == "choices":
        return made.choices(number, PIECES)
    if what == "swaps":
        return shuffled(range(number), made.swaps(number))
    return getattr(made, what)(number)


@given(
    seed=st.integers(0, 10**6),
    before=st.integers(0, 700),
    wishes=st.lists(asked, max_size=40),
    words=st.sampled_from([1, 5, 300, 1 << 16]),
    longest=st.sampled_from([255, 300]),
)
@settings(deadline=None)
def test_every_draw_is_that_of_python(seed, before, wishes, words, longest):
    rng = random.Random(seed)
    for _ in range(before):
        rng.getrandbits(32)
    start = rng.getstate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "WORDS_AT_A_TIME", words)
        made = Draws(rng, longest=longest, threshold=0.8)
        for what, number in wishes:
            number = min(number, longest) if what == "swaps" else number
            assert found(what, number, made) == expected(what, number, rng)
    other = random.Random()
    other.setstate(start)
    made.put_into(other)
    assert other.getstate() == rng.getstate()


@pytest.mark.parametrize("longest", [40, 400])
def test_many_shuffles_at_a_time(longest):
    rng = random.Random(longest)
    made = Draws(rng, longest=longest)
    lengths = [1, 2, 3, longest, 17, longest - 1, 7]
    got = first_shuffled([made.swaps(length) for length in lengths], 5)
    for row, length in zip(got, lengths, strict=True):
        items = list(range(length))
        rng.shuffle(items)
        assert row[:length].tolist() == items[:5]


def test_the_last_bit_of_a_share_decides():
    """Shares of the threshold's upper 27 bits; the lower 26 are one less, the same, one more."""
    threshold = math.ceil(0.8 * 2**53)
    high, low = divmod(threshold, 1 << 26)
    for change, is_below in ((-1, True), (0, False), (1, False)):
        words = np.array([high << 5, (low + change) << 6], np.uint32)
        assert draws._are_below(words, threshold).tolist() == [is_below]
        assert (((high << 26) + low + change) / 2**53 < 0.8) == is_below
