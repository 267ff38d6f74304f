"""Equal texts: --dev_share keeps them together, and the log warns of them.

Texts are equal if they differ at most in white space and case. Examples are equal if all their
texts are.
"""

import collections
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf.errors import quoted
from bert_tf.tasks.examples import AnyExample, WordsExample

MOST_SHOWN = 3  # texts with different labels, in a warning
ASIDE = "white space and case aside"


def by_text(examples: Iterable[AnyExample]) -> dict[tuple[str, ...], list[int]]:
    """The numbers of the examples by their texts, folded; both in order."""
    numbers: dict[tuple[str, ...], list[int]] = {}
    for number, example in enumerate(examples):
        numbers.setdefault(_folded(example), []).append(number)
    return numbers


def _folded(example: AnyExample) -> tuple[str, ...]:
    """The texts of an example in one case, with single spaces: the same for equal examples."""
    is_words = isinstance(example, WordsExample)
    texts = example.words if is_words else itertools.chain(*example.pairs)
    return tuple(" ".join((text or "").split()).casefold() for text in texts)


# ---------------------------------------------------------------------------- a share for dev


def split_by_label(
    examples: Sequence[AnyExample], share: float, seed: int
) -> tuple[list[AnyExample], list[AnyExample]]:
    """Training and dev examples, each in their order: about `share` of each label are for dev.

    Equal texts are on one side. Each side has a text of every label with two texts or more; a label
    with one text is for training. Examples with an empty set of labels count as a label of their
    own; all scores, and all tags, count as one label.

    Labels are filled one after the other, the rarest first (Sechidis et al., 2011, "On the
    Stratification of Multi-Label Data"), with texts in random order.

    Args:
      examples: the examples of the training data.
      share: between 0 and 1.
      seed: the seed of the order; the same one gives the same split.
    """
    examples_of_text = [*by_text(examples).values()]  # numbers of equal examples
    text_of: dict[int, int] = {}  # the number of each example's text
    rows_of_text: list[collections.Counter[str | None]] = []  # how many of each label
    for text, numbers in enumerate(examples_of_text):
        rows: collections.Counter[str | None] = collections.Counter()
        for number in numbers:
            text_of[number] = text
            rows.update(_labels_of(examples[number]))
        rows_of_text.append(rows)

    examples_of_label: dict[str | None, list[int]] = {}
    for number, example in enumerate(examples):
        for label in _labels_of(example):
            examples_of_label.setdefault(label, []).append(number)
    sizes = {label: len(numbers) for label, numbers in examples_of_label.items()}

    wanted: dict[str | None, int] = {}  # rows of each label in dev
    drawn: dict[str | None, list[int]] = {}  # the texts of each label, in random order
    for label in sorted(examples_of_label, key=str):
        random = np.random.default_rng([seed, sum(wanted.values())])
        order = random.permutation(examples_of_label[label]).tolist()
        drawn[label] = [*dict.fromkeys(text_of[number] for number in order)]
        wanted[label] = min(max(round(share * len(order)), 1), len(order) - 1)

    dev = _DevTexts(rows_of_text, sizes, wanted)
    for label in sorted(drawn, key=lambda label: sizes[label]):
        dev.fill(label, drawn[label])
    is_dev = [text_of[number] in dev.chosen for number in range(len(examples))]
    return (
        [example for example, for_dev in zip(examples, is_dev, strict=True) if not for_dev],
        [example for example, for_dev in zip(examples, is_dev, strict=True) if for_dev],
    )


def _labels_of(example: AnyExample) -> Sequence[str | None]:
    """The labels that an example counts for; None stands for an empty set, a score or tags."""
    if isinstance(example.label, str):
        return (example.label,)
    return _set_of(example) or (None,)


def _set_of(example: AnyExample) -> tuple[str, ...] | None:
    """The labels of an example that may have several; None for other examples."""
    is_set = isinstance(example.label, tuple) and not isinstance(example, WordsExample)
    return example.label if is_set else None


class _DevTexts:
    """The numbers of the texts that are chosen for dev.

    Args:
      rows: how many rows each text has of each label.
      sizes: how many rows each label has.
      wanted: how many rows of each label dev should have.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str | None, int]],
        sizes: Mapping[str | None, int],
        wanted: Mapping[str | None, int],
    ):
        self.rows = rows
        self.sizes = sizes
        self.missing = dict(wanted)  # rows of each label; below 0 if dev has more than wanted
        self.counts = dict.fromkeys(sizes, 0)  # rows of each label in dev
        self.chosen: set[int] = set()

    def fill(self, label: str | None, texts: Sequence[int]) -> None:
        """Chooses texts of a label until dev has as many rows of it as wanted.

        First come texts that give no label more rows than wanted, in their order. Then those that
        bring all labels closer to what is wanted, the best first; and one text in any case.
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
        if text in self.chosen:
            return False
        rows = self.rows[text].items()
        return all(self.counts[label] + count < self.sizes[label] for label, count in rows)

    def _fits(self, text: int) -> bool:
        """Whether this text gives no label more rows than wanted."""
        return all(count <= self.missing[label] for label, count in self.rows[text].items())

    def _error_added(self, text: int) -> int:
        """How many rows further from what is wanted dev would be with this text."""
        added = 0
        for label, count in self.rows[text].items():
            missing = self.missing[label]
            added += abs(missing - count) - abs(missing)
        return added

    def _choose(self, text: int) -> None:
        self.chosen.add(text)
        for label, count in self.rows[text].items():
            self.missing[label] -= count
            self.counts[label] += count


# ---------------------------------------------------------------------------- warnings


def say_copies(examples: Sequence[AnyExample]) -> None:
    """Logs how many examples repeat the text of an earlier one; --dev_share keeps them together."""
    num_copies = len(examples) - len(by_text(examples))
    if num_copies:
        message = (
            "%d of the %d examples repeat the text of another (%s): equal texts are all training "
            "or all dev data."
        )
        logging.info(message, num_copies, len(examples), ASIDE)


def say_equal_texts(
    train: Sequence[AnyExample], scored: Mapping[str, Sequence[AnyExample]]
) -> None:
    """Warns of training texts with different labels, and of scored texts that are trained on.

    Args:
      train: the training data.
      scored: the data that are evaluated, by the name of the split.
    """
    texts = by_text(train)
    if pairs := _with_different_labels(train, texts.values()):
        message = "%d of the %d texts of the training data have different labels (%s):\n%s"
        lines = [_describe(first, second) for first, second in pairs[:MOST_SHOWN]]
        if len(pairs) > MOST_SHOWN:
            lines.append(f"and {len(pairs) - MOST_SHOWN} more")
        logging.warning(message, len(pairs), len(texts), ASIDE, "\n".join(lines))
    for name, examples in scored.items():
        num_trained = sum(_folded(example) in texts for example in examples)
        if num_trained:
            message = (
                "%d of the %d examples (%.1f %%) of the %s data repeat a text of the training "
                "data (%s): their scores do not say how well new texts are answered."
            )
            percent = 100 * num_trained / len(examples)
            logging.warning(message, num_trained, len(examples), percent, name, ASIDE)


def _with_different_labels(
    examples: Sequence[AnyExample], groups: Iterable[Sequence[int]]
) -> list[tuple[AnyExample, AnyExample]]:
    """The first example of each group with different labels, and the first with another label."""
    pairs = []
    for numbers in groups:
        first, *others = [examples[number] for number in numbers]
        label = _comparable_label(first)
        for example in others:
            if _comparable_label(example) != label:
                pairs.append((first, example))
                break
    return pairs


def _comparable_label(example: AnyExample) -> object:
    """The label; a set of labels without its order."""
    labels = _set_of(example)
    return example.label if labels is None else frozenset(labels)


def _describe(first: AnyExample, second: AnyExample) -> str:
    """Places and labels of two examples; of sentences in words, the first tags that differ."""
    first_label = first.label
    second_label = second.label
    shown_word = ""
    if isinstance(first, WordsExample):
        for word, tag, second_tag in zip(first.words, first.label, second.label, strict=True):
            if tag != second_tag:
                first_label = tag
                second_label = second_tag
                shown_word = f"{word!r} "
                break
    source = first.place.rpartition(", ")[0]
    second_place = second.place.removeprefix(f"{source}, ")
    return (
        f"{first.place}: {shown_word}{quoted(first_label, 60)}; "
        f"{second_place}: {shown_word}{quoted(second_label, 60)}"
    )
