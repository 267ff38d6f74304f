"""Options as fields: groups, defaults, what acts, what is recorded and compared."""

import dataclasses

import pytest

from bert_tf.checkpoints.tf1 import changed_settings
from bert_tf.errors import InputError
from bert_tf.options import (
    NEVER,
    Options,
    Settings,
    changed,
    idle,
    made,
    option,
    options_of,
    recorded,
    replaced,
    resolved,
    values_of,
)


class Steps(Options, title="Training"):
    """A group."""

    seed: int = option("Of all that is random.", default=5, low=0, recorded=True)
    every: int = option("Steps.", default=7, low=1, acts="do_eval", recorded=True, may_change=True)
    kept: bool = False  # no option


class FewSteps(Steps):
    """A command's own default, in which all else stays."""

    every: int = option("Few steps.", default=2, low=1)


class Command(Options, most_used="path seed"):
    """A command."""

    path: str = option("A file.", path=True)
    do_eval: bool = option("Evaluate.", default=False, original=True)
    length: int | None = option("Tokens.", default=None, shown=11, low=1, recorded=True)
    rates: tuple[float, ...] = option("Rates.", default=(0.5,), above=0.0)
    ignored: int = option("No effect.", default=8, low=0, acts=NEVER, original=True)
    steps: Steps = Steps()


class Brief(Command):
    """The same with another group."""

    steps: FewSteps = FewSteps()


class Late(Options):
    """A command whose group has other defaults."""

    steps: Steps = Steps(seed=9)


class OfTraining(Options, acts="do_train"):
    """All act together."""

    rate: float = option("Rate.", default=0.5, above=0.0)


class OfFineTuning(OfTraining):
    """With another default."""

    rate: float = option("Rate.", default=0.25, above=0.0)


class Counted(Steps):
    """What takes a group, and more."""

    total: int


def test_the_options_of_a_command_are_its_own_and_those_of_its_groups():
    listed = {one.name: one for one in options_of(Command)}
    assert [*listed] == ["path", "do_eval", "length", "rates", "ignored", "seed", "every"]
    assert {one.title for one in listed.values()} == {"Of this command", "Training"}
    assert [one.name for one in listed.values() if one.is_required] == ["path"]
    assert listed["length"].kind is int
    assert listed["length"].shown == 11
    assert listed["every"].acts == (("do_eval",),)
    few = {one.name: one for one in options_of(Brief)}
    assert (few["every"].default, few["every"].title) == (2, "Of this command")
    assert (few["seed"].default, few["seed"].title) == (5, "Training")


def test_the_defaults_of_a_group_are_those_of_the_command_that_has_it():
    listed = {one.name: one.default for one in options_of(Late)}
    assert listed == {"seed": 9, "every": 7}
    assert made(Late, {}) == Late()
    assert made(Late, {"every": 3}).steps == Steps(seed=9, every=3)
    assert changed(Late()) == {}
    assert recorded(Late()).defaults == {"seed": 9, "every": 7}


def test_what_a_class_says_of_all_its_options_holds_where_one_is_declared_again():
    (rate,) = options_of(OfFineTuning)
    assert (rate.default, rate.acts, rate.shown_acts) == (0.25, (("do_train",),), ())


def test_two_options_of_one_name_are_a_mistake_of_the_command():
    class Twice(Options):
        """With a seed of its own."""

        seed: int = option("Another one.", default=1, low=0)
        steps: Steps = Steps()

    with pytest.raises(TypeError, match="two options seed"):
        options_of(Twice)


def test_values_go_where_they_belong():
    given = made(Command, {"path": "a", "seed": 6, "rates": (1.5, 2.5)})
    assert given == Command(path="a", rates=(1.5, 2.5), steps=Steps(seed=6))
    assert values_of(given)["seed"] == 6
    assert changed(given) == {"path": "a", "seed": 6, "rates": (1.5, 2.5)}
    other = replaced(given, every=3, do_eval=True)
    assert (other.steps, other.do_eval, other.path) == (Steps(seed=6, every=3), True, "a")
    assert Counted.of(other.steps, total=9) == Counted(seed=6, every=3, total=9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        other.steps.seed = 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"seed": -1}, "at least 0"),
        ({"seed": 10**9 + 1}, "at most 1000000000"),
        ({"seed": "5"}, "a whole number"),
        ({"rates": (0.5, 0.0)}, "above 0.0"),
        ({"path": 3}, "a text"),
    ],
)
def test_values_are_checked_wherever_they_come_from(value, expected):
    with pytest.raises(InputError, match=expected):
        made(Command, {"path": "a"} | value)


def test_what_is_left_empty_is_found_or_the_default():
    given = Command(path="a")
    assert resolved(given, length=None).length == 11
    assert resolved(given, length=13).length == 13
    assert resolved(Command(path="a", length=12), length=13).length == 12


def test_what_does_nothing_is_named_with_what_it_needs():
    def named(**given) -> list:
        return [(one.name, modes) for one, modes in idle(made(Command, {"path": "a"} | given))]

    assert named() == []
    assert named(every=3, seed=2) == [("every", ("do_eval",))]
    assert named(every=3, do_eval=True) == []
    assert named(ignored=9, do_eval=True) == [("ignored", (NEVER,))]


def test_what_is_recorded():
    settings = recorded(replaced(Command(path="a"), seed=6))
    assert settings == {"length": 11, "seed": 6, "every": 7}
    assert settings.defaults == {"length": 11, "seed": 5, "every": 7}
    assert settings.may_change == {"every"}
    more = settings.with_values(seed=8, data="x")
    assert (more, more.defaults) == ({**settings, "seed": 8, "data": "x"}, settings.defaults)


def test_an_option_that_a_checkpoint_lacks_counts_as_its_default():
    """Checkpoints of a version without it were made so."""
    asked = recorded(Command(path="a", steps=Steps(seed=6)))
    assert changed_settings({"length": 11, "every": 7}, asked) == ["seed"]
    assert changed_settings({"length": 11, "seed": 6}, asked) == []
    assert changed_settings({"length": 12, "seed": 6}, asked) == ["length"]
    assert changed_settings({"length": 12, "seed": 5}, asked, besides=["length"]) == ["seed"]
    assert changed_settings({}, asked) == []  # of no run
    computed = Settings({"class_weights": [1.0]})
    assert changed_settings({"length": 11}, computed) == []  # no option: nothing is known
