"""What a `random.Random` draws, quickly: its 32-bit words are taken many at a time.

Python's generator is a Mersenne Twister, NumPy has the same one, and how Python makes its draws of
the words is fixed for good; a test compares them.

    whole number below n    the upper n.bit_length() bits of a word; of the next word if n or more
    share in [0, 1)         the upper 27 bits of one word and 26 of the next
    shuffle                 each place from the last to the second is swapped with a number below
                            place + 1
"""

import array
import math
import operator
import random
from collections.abc import Sequence

import numpy as np

WORD_BITS = 32
SHARE_BITS, LOW_BITS = 53, 26
HIGH_SHIFT, LOW_SHIFT = 5, 6  # to the bits of a share's two words
WORDS_AT_A_TIME = 1 << 16
UPPER_BITS = {"B": 8, "I": WORD_BITS}  # that a shuffle looks at, by the type of their array
FIRST, SECOND = -1, -2  # of `Draws.choices`


class Draws:
    """The draws that a `random.Random` would give next, which itself stays as it is."""

    def __init__(self, rng: random.Random, *, longest: int = 1, threshold: float = 0.5):
        """Begins at the state of `rng`.

        Args:
          rng: a generator.
          longest: of the lists to be shuffled.
          threshold: for `choices`.
        """
        _, (*key, position), _ = rng.getstate()
        self._source = np.random.MT19937()
        state = {"key": np.array(key, np.uint32), "pos": position}
        self._first_state = self._source.state | {"state": state}
        self._source.state = self._first_state
        self._type_code = "B" if longest < 1 << UPPER_BITS["B"] else "I"
        # Of each place of a shuffle, from the last one down, what the upper bits must be below.
        bits = UPPER_BITS[self._type_code]
        self._bounds = [n << bits - n.bit_length() for n in range(longest, 1, -1)]
        self._threshold = math.ceil(threshold * 2**SHARE_BITS)
        self._words_before = self._position = 0
        self._words = array.array("I")
        self._draw_words(0)

    def _draw_words(self, least: int) -> None:
        """Forgets the words that are used up, and draws more, at least so many."""
        self._words_before += self._position
        rest = np.frombuffer(self._words[self._position :], np.uint32)
        more = self._source.random_raw(max(least, WORDS_AT_A_TIME)).astype(np.uint32)
        words = np.concatenate([rest, more])
        self._position = 0
        self._words = array.array("I", words.tobytes())
        is_narrow = self._type_code == "B"
        self._upper = (words >> 24).astype(np.uint8).tobytes() if is_narrow else words.tolist()
        # Whether a share that begins with a word is below one half, or the threshold.
        self._halves = (words < 1 << WORD_BITS - 1).tobytes()
        self._below = _are_below(words, self._threshold).tobytes()

    def put_into(self, rng: random.Random) -> None:
        """Sets `rng` to the state in which it would be after all these draws."""
        self._source.state = self._first_state
        self._source.random_raw(self._words_before + self._position, output=False)
        state = self._source.state["state"]
        rng.setstate((rng.VERSION, (*map(int, state["key"]), int(state["pos"])), None))

    def below(self, n: int) -> int:
        """A whole number below n; `randint(a, b)` is a + below(b - a + 1)."""
        shift, words, position = WORD_BITS - n.bit_length(), self._words, self._position
        try:
            while (number := words[position] >> shift) >= n:
                position += 1
        except IndexError:
            self._draw_words(0)
            return self.below(n)
        self._position = position + 1
        return number

    def share(self) -> float:
        """A number in [0, 1), as `random()`."""
        begin = self._skip_shares(1)
        high, low = self._words[begin] >> HIGH_SHIFT, self._words[begin + 1] >> LOW_SHIFT
        return ((high << LOW_BITS) + low) / 2**SHARE_BITS

    def halves(self, count: int) -> bytes:
        """Of `count` shares, whether each is below one half: 1 or 0."""
        begin = self._skip_shares(count)
        return self._halves[begin : self._position : 2]

    def is_below_half(self) -> bool:
        """Whether a share is below one half."""
        return self.halves(1) == b"\1"

    def choices(self, count: int, n: int) -> list[int]:
        """`count` choices between FIRST, SECOND, and a number below n.

        Each takes a share: FIRST if it is below the threshold; else another share: SECOND if that
        is below one half; else the number.
        """
        shift, words, position = WORD_BITS - n.bit_length(), self._words, self._position
        is_first, is_second = self._below, self._halves
        made = []
        try:
            for _ in range(count):
                if is_first[position]:
                    made.append(FIRST)
                    position += 2
                elif is_second[position + 2]:
                    made.append(SECOND)
                    position += 4
                else:
                    position += 4
                    while (number := words[position] >> shift) >= n:
                        position += 1
                    made.append(number)
                    position += 1
            if position > len(words):
                raise IndexError
        except IndexError:  # there were too few
            self._draw_words(8 * count)
            return self.choices(count, n)
        self._position = position
        return made

    def _skip_shares(self, count: int) -> int:
        """Goes on behind `count` shares; returns where the first of them begins."""
        if self._position + 2 * count > len(self._words):
            self._draw_words(2 * count)
        self._position += 2 * count
        return self._position - 2 * count

    def swaps(self, length: int) -> array.array:
        """What a shuffle of a list draws: see `shuffled` and `first_shuffled`."""
        available = self._upper[self._position : self._position + 2 * length + WORD_BITS]
        words, made = iter(available), []
        for bound in self._bounds[len(self._bounds) + 1 - length :] if length > 1 else ():
            for word in words:
                if word < bound:
                    made.append(word)
                    break
        if len(made) < length - 1:  # there were too few words
            self._draw_words(4 * len(available))
            return self.swaps(length)
        self._position += len(available) - operator.length_hint(words)
        return array.array(self._type_code, bytes(made) if self._type_code == "B" else made)


def shuffled(items: Sequence, swaps: array.array) -> list:
    """The items as `random.shuffle` leaves them in their list."""
    found, upper_bits = list(items), UPPER_BITS[swaps.typecode]
    for place, word in zip(range(len(found) - 1, 0, -1), swaps, strict=True):
        other = word >> upper_bits - (place + 1).bit_length()
        found[place], found[other] = found[other], found[place]
    return found


def first_shuffled(swaps: Sequence[array.array], first: int) -> np.ndarray:
    """Shuffles many lists, each of the numbers from 0 on, at a time.

    Args:
      swaps: of each list, by one `Draws`.
      first: how many numbers are wanted.

    Returns:
      int64 [B, first]: the first numbers of each shuffled list; of a shorter list all, then others.
    """
    batch, code = len(swaps), swaps[0].typecode
    lengths = np.array([len(words) + 1 for words in swaps])  # [B]
    most = max(int(lengths.max()), first)
    # Each list's words end in the last column, with that of place 1: those of one place are a row.
    size = (most - 1) * swaps[0].itemsize
    joined = b"".join(words.tobytes().rjust(size) for words in swaps)
    words = np.frombuffer(joined, code).reshape(batch, -1).T[::-1]  # [most - 1, B]
    places = np.arange(1, most)[:, np.newaxis]
    shifts = UPPER_BITS[code] - np.frexp(places + 1)[1]  # by which the bits of place + 1 remain
    others = np.where(places < lengths, words >> shifts, places)  # [most - 1, B]
    numbers = np.repeat(np.arange(most), batch)  # [most * B]
    others = others * batch + np.arange(batch)
    for place in range(most - 1, 0, -1):
        own = slice(place * batch, (place + 1) * batch)
        moved = numbers[others[place - 1]]
        numbers[others[place - 1]] = numbers[own]
        numbers[own] = moved
    return numbers.reshape(most, batch)[:first].T


def _are_below(words: np.ndarray, threshold: int) -> np.ndarray:
    """Of each word but the last, whether a share that begins with it is below threshold / 2^53.

    The second word matters only where the first has the threshold's upper bits, once in 2^27 times.
    """
    high, low = divmod(threshold, 1 << LOW_BITS)
    first = words[:-1] >> np.uint32(HIGH_SHIFT)
    below = first < high
    for place in np.flatnonzero(first == high):
        below[place] = words[place + 1] >> LOW_SHIFT < low
    return below
