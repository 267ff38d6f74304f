"""Equal texts: on one side of --dev_share, and what the log says of them.

Texts are equal if they differ at most in white space and case; of an example all texts count.
"""

import collections
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf.errors import quoted
from bert_tf.tasks.examples import AnyExample, WordsExample

MOST_SHOWN = 3  # texts with different labels
ASIDE = "white space and case aside"


def by_text(examples: Iterable[AnyExample]) -> dict[tuple[str, ...], list[int]]:
    """The numbers of the examples of each text, in their order."""
    numbers: dict[tuple[str, ...], list[int]] = {}
    for number, example in enumerate(examples):
        numbers.setdefault(_folded(example), []).append(number)
    return numbers


def _folded(example: AnyExample) -> tuple[str, ...]:
    """What equal texts have in common."""
    is_words = isinstance(example, WordsExample)
    texts = example.words if is_words else itertools.chain(*example.pairs)
    return tuple(" ".join((text or "").split()).casefold() for text in texts)


# ---------------------------------------------------------------------------- a share for dev


def split_by_label(
    examples: Sequence[AnyExample], share: float, seed: int
) -> tuple[list[AnyExample], list[AnyExample]]:
    """Training and dev examples, in their order: of each label about `share` are for dev.

    Equal texts are on one side. Of a label with two texts or more each side has one; a label with
    one text is for training. An example without labels counts as one of a label of its own; scores
    and tags count as one label.

    Labels are filled one after the other, the rarest first (Sechidis et al., 2011, "On the
    Stratification of Multi-Label Data"), with texts in random order.

    Args:
      examples: of the training data.
      share: between 0 and 1.
      seed: of the order; the same one gives the same split.
    """
    numbers = [*by_text(examples).values()]
    texts = {number: text for text, group in enumerate(numbers) for number in group}
    members: dict[str | None, list[int]] = {}
    for number, example in enumerate(examples):
        for label in _labels_of(example):
            members.setdefault(label, []).append(number)
    wanted: dict[str | None, int] = {}
    drawn: dict[str | None, list[int]] = {}
    for label in sorted(members, key=str):
        random = np.random.default_rng([seed, sum(wanted.values())])
        order = random.permutation(members[label]).tolist()
        drawn[label] = [*dict.fromkeys(texts[number] for number in order)]
        wanted[label] = min(max(round(share * len(order)), 1), len(order) - 1)
    labels = [[label for n in group for label in _labels_of(examples[n])] for group in numbers]
    sizes = {label: len(group) for label, group in members.items()}
    dev = _DevTexts([*map(collections.Counter, labels)], sizes, wanted)
    for label in sorted(drawn, key=lambda label: sizes[label]):
        dev.fill(label, drawn[label])
    chosen = {number for text in dev.chosen for number in numbers[text]}
    kept = [example for number, example in enumerate(examples) if number not in chosen]
    return kept, [examples[number] for number in sorted(chosen)]


def _labels_of(example: AnyExample) -> Sequence[str | None]:
    """The labels of which an example counts as a row."""
    if isinstance(example.label, str):
        return (example.label,)
    return _set_of(example) or (None,)


def _set_of(example: AnyExample) -> tuple[str, ...] | None:
    """The labels of an example that may have several; of others None."""
    is_set = isinstance(example.label, tuple) and not isinstance(example, WordsExample)
    return example.label if is_set else None


class _DevTexts:
    """The texts that are chosen for dev, by their numbers.

    Args:
      rows: of each text, how many rows it has of each label.
      sizes: how many rows each label has.
      wanted: how many of them dev is to have.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str | None, int]],
        sizes: Mapping[str | None, int],
        wanted: Mapping[str | None, int],
    ):
        self.rows = rows
        self.sizes = sizes
        self.missing = dict(wanted)  # below 0: dev has more than is wanted
        self.counts = dict.fromkeys(sizes, 0)
        self.chosen: set[int] = set()

    def fill(self, label: str | None, texts: Sequence[int]) -> None:
        """Chooses of the texts of a label until no row of it is missing.

        First those of which all rows are missing, in their order. Then those that bring all labels
        nearest to what is wanted, and one in any case.
        """
        for text in texts:
            if self.missing[label] > 0 and self._may_choose(text) and self._fits(text):
                self._choose(text)
        if self.missing[label] > 0:
            for text in sorted(filter(self._may_choose, texts), key=self._error_added):
                is_needed = self._error_added(text) < 0 or not self.counts[label]
                if self.missing[label] > 0 and is_needed and self._may_choose(text):
                    self._choose(text)

    def _may_choose(self, text: int) -> bool:
        """Whether training still has another text of each of its labels."""
        rows = self.rows[text].items()
        keeps = all(self.counts[label] + count < self.sizes[label] for label, count in rows)
        return keeps and text not in self.chosen

    def _fits(self, text: int) -> bool:
        return all(count <= self.missing[label] for label, count in self.rows[text].items())

    def _error_added(self, text: int) -> int:
        """By how many rows dev would be farther from what is wanted with this text."""
        rows = self.rows[text].items()
        return sum(
            abs(self.missing[label] - count) - abs(self.missing[label]) for label, count in rows
        )

    def _choose(self, text: int) -> None:
        self.chosen.add(text)
        for label, count in self.rows[text].items():
            self.missing[label] -= count
            self.counts[label] += count


# ---------------------------------------------------------------------------- what is said


def say_copies(examples: Sequence[AnyExample]) -> None:
    """Logs how many examples have the text of an earlier one, which --dev_share keeps together."""
    if copies := len(examples) - len(by_text(examples)):
        says = "%d of the %d examples repeat the text of another (%s): equal texts are all training"
        logging.info(f"{says} or all dev data.", copies, len(examples), ASIDE)


def say_equal_texts(
    train: Sequence[AnyExample], others: Mapping[str, Sequence[AnyExample]]
) -> None:
    """Warns of texts of the training data with different labels, and of those in other data, too.

    Args:
      train: the training data.
      others: what is evaluated, by the name of the split.
    """
    texts = by_text(train)
    if apart := _with_different_labels(train, texts.values()):
        says = "%d of the %d texts of the training data have different labels (%s):\n%s"
        shown = [_shown(*pair) for pair in apart[:MOST_SHOWN]]
        shown += [f"and {len(apart) - MOST_SHOWN} more"] if len(apart) > MOST_SHOWN else []
        logging.warning(says, len(apart), len(texts), ASIDE, "\n".join(shown))
    for name, examples in others.items():
        if count := sum(_folded(example) in texts for example in examples):
            says = "%d of the %d examples (%.1f %%) of the %s data repeat a text of the training "
            says += "data (%s): their scores do not say how well new texts are answered."
            share = 100 * count / len(examples)
            logging.warning(says, count, len(examples), share, name, ASIDE)


def _with_different_labels(
    examples: Sequence[AnyExample], groups: Iterable[Sequence[int]]
) -> list[tuple[AnyExample, AnyExample]]:
    """Of each group whose labels differ the first example, and the first with another label."""
    apart = []
    for first, *others in groups:
        meant = _meant(examples[first])
        different = (examples[number] for number in others if _meant(examples[number]) != meant)
        apart += [(examples[first], other) for other in itertools.islice(different, 1)]
    return apart


def _meant(example: AnyExample) -> object:
    """The label; of a set of labels whatever their order."""
    labels = _set_of(example)
    return example.label if labels is None else frozenset(labels)


def _shown(first: AnyExample, other: AnyExample) -> str:
    """Places and labels of two examples; of words the first tags that differ."""
    labels, word = (first.label, other.label), ""
    if isinstance(first, WordsExample):
        tags = zip(first.words, first.label, other.label, strict=True)
        word, *labels = next(row for row in tags if row[1] != row[2])
        word = f"{word!r} "
    source = first.place.rpartition(", ")[0]
    places = first.place, other.place.removeprefix(f"{source}, ")
    pairs = zip(places, labels, strict=True)
    return "; ".join(f"{place}: {word}{quoted(label, 60)}" for place, label in pairs)
