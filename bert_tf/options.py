"""Options of commands: fields of frozen dataclasses, each declared once.

    class Intervals(Options, title="Training"):
        \"\"\"Steps between logging, saving and evaluation.\"\"\"

        eval_steps: int = option(
            "Evaluate every so many steps; 0: no.",
            default=0, low=0, acts="do_train and do_eval", recorded=True, may_change=True,
        )

    class Classify(Options):
        \"\"\"The options of a command, its own and those of groups.\"\"\"

        task_name: str | None = option("One of the tasks.", default=None, original=True)
        intervals: Intervals = Intervals()

Flags, `--help`, the documentation, and the settings that checkpoints record and resumed runs are
compared with are made from these fields (`bert_tf.cli.flags`, `recorded`). A class is declared
beside the code that takes it. A command whose default, help or bounds differ declares the field
again in a subclass. A field without `option` has no flag.

Loads no TensorFlow: a command parses its flags first.
"""

import dataclasses
import fnmatch
import functools
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import (
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    dataclass_transform,
    overload,
)

from bert_tf.declarations import check

Value = TypeVar("Value")
Group = TypeVar("Group", bound="Options")
_hints: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)
LONGEST = 10**6  # tokens of a sequence
LARGEST_SEED = 2**32 - 1
_MOST = 10**9  # the largest value of an option that counts: beyond any use, and an int32
NEVER = "never"  # as `acts`: the option is accepted and ignored
_HELP = "help"  # the key of an option's text in the metadata of its field


# ---------------------------------------------------------------------------- a declaration


class Metadata(TypedDict, total=False):
    """The optional metadata of an option.

    Attributes:
      shown: the default that help shows instead of None; `recorded` takes it too.
      low, high, above, below, choices, distinct, filled: as for `declarations.typed`: bounds of
        every number in the value, its only values, whether they must differ, or may not be empty.
        A whole number with `low` is at most 10**9 unless `high` says otherwise.
      infinite: whether a float may be infinite.
      path: whether the value is a path, or several with commas between; ~ is the home folder.
      words: the name of the words outside flags, if this option takes them: a tuple takes all, a
        text takes one.
      acts: when the option has an effect: if one of these options is set, such as "do_eval or
        report", "task_name=ner" or "output_file=*.csv"; with "and" between, one of each part; or
        NEVER. Default: always.
      recorded: whether the option affects the result of a training. Checkpoints record it, and a
        resumed or finished run is compared with it.
      may_change: whether a recorded option may differ when a finished run is trained further.
      original: whether google-research/bert has the option. A warning says if it has no effect; an
        option of ours without effect is refused.
      of_tpu: whether the value is a path that a TPU of another machine must reach.
    """

    shown: Any
    low: float
    high: float
    above: float
    below: float
    choices: Sequence[str]
    distinct: bool
    filled: bool
    infinite: bool
    path: bool
    words: str
    acts: str
    recorded: bool
    may_change: bool
    original: bool
    of_tpu: bool


@overload
def option(text: str, *, default: Value, **metadata: Unpack[Metadata]) -> Value: ...


@overload
def option(text: str, **metadata: Unpack[Metadata]) -> Any: ...


def option(text: str, *, default: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """The field of an option.

    Args:
      text: what the option does, in a sentence or two, for --help.
      default: its default; without one the option is required. None: the default depends on other
        options, and the text says "Default: ..." unless `shown` does.
      **metadata: see `Metadata`.
    """
    if isinstance(metadata.get("low"), int):
        metadata.setdefault("high", _MOST)
    return dataclasses.field(default=default, metadata={_HELP: text, **metadata})


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(option, dataclasses.field)
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """A base of groups of options: subclasses are frozen dataclasses with checked values.

    Attributes:
      title: the title under which --help shows the options that this class declares, without those
        of its bases.
      most_used: names of options, also of other groups, that --help shows first.
      acts: as in `Metadata`, for all options of the class and its subclasses. The title should say
        it.

    Raises:
      InputError: a value is not as declared.
    """

    title: ClassVar[str]
    most_used: ClassVar[tuple[str, ...]]
    acts: ClassVar[str]

    def __init_subclass__(cls, *, title: str = "", most_used: str = "", acts: str = ""):
        cls.title = title or "Of this command"
        cls.most_used = tuple(most_used.split())
        cls.acts = acts or getattr(cls, "acts", "")
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def prepare(self) -> None:
        """Makes settings of the process, before TensorFlow loads."""

    def __post_init__(self):
        kinds = _hints(type(self))
        for field in dataclasses.fields(self):
            if field.metadata:
                check(field.name, getattr(self, field.name), kinds[field.name], **field.metadata)

    @classmethod
    def of(cls, group: "Options", **others: Any) -> Self:
        """An instance with the values of a group that the class extends, and of other fields."""
        return cls(**vars(group), **others)

    def check(self) -> None:
        """Raises `InputError` if options of a command contradict each other."""


def replaced(options: Group, **values: Any) -> Group:
    """A copy of options with other values, also of the options in its groups."""
    groups = {}
    for field in dataclasses.fields(options):
        group = getattr(options, field.name)
        if isinstance(group, Options):
            names = {name for name, _ in _flat(group)} & values.keys()
            if names:
                of_group = {name: values.pop(name) for name in names}
                groups[field.name] = replaced(group, **of_group)
    return dataclasses.replace(options, **groups, **values)


# ---------------------------------------------------------------------------- reading declarations


class Option(NamedTuple):
    """An option of a command, as its field declares it."""

    name: str  # of the field
    kind: Any  # its type, without None
    default: Any  # MISSING if it is required
    metadata: Mapping[str, Any]
    title: str  # of its class
    acts: tuple[tuple[str, ...], ...]  # one of each tuple must be set
    shown_acts: tuple[tuple[str, ...], ...]  # without those of its class, for help

    @property
    def flag(self) -> str:
        """The name of its flag: `from_` is --from."""
        return self.name.rstrip("_")

    @property
    def help(self) -> str:
        """What it does."""
        return self.metadata[_HELP]

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is dataclasses.MISSING

    @property
    def shown(self) -> Any:
        """The default as help shows it."""
        return self.metadata.get("shown", None if self.is_required else self.default)

    def says(self, role: str) -> Any:
        """A value of `Metadata`, such as `original`, `recorded` or `path`; None without it."""
        return self.metadata.get(role)


def options_of(cls: type[Options]) -> tuple[Option, ...]:
    """The options of a command or group, with those of its groups.

    Raises:
      TypeError: two options have the same name.
    """
    hashable: Any = cls  # type checkers doubt it: instances of the class can be compared
    return _listed(hashable)


@functools.cache
def _listed(cls: Any) -> tuple[Option, ...]:
    listed: list[Option] = []
    kinds = _hints(cls)
    for field in dataclasses.fields(cls):
        kind = kinds[field.name]
        if is_group(kind):
            values = {} if field.default is dataclasses.MISSING else values_of(field.default)
            for option in options_of(kind):
                listed.append(option._replace(default=values.get(option.name, option.default)))
        elif _HELP in field.metadata:
            listed.append(_option_of(cls, field, kind))
    names = [option.flag for option in listed]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise TypeError(f"{cls.__name__} has two options {', '.join(sorted(repeated))}")
    return tuple(listed)


def is_group(kind: Any) -> bool:
    """Whether a type is a class of options."""
    return isinstance(kind, type) and issubclass(kind, Options)


def _option_of(cls: type[Options], field: dataclasses.Field, kind: Any) -> Option:
    """The option of a field."""
    bases = [base for base in cls.__mro__ if issubclass(base, Options)]
    home = next(base for base in bases if field.name in vars(base).get("__annotations__", ()))
    shown_acts = _modes(field.metadata.get("acts", ""))
    return Option(
        name=field.name,
        kind=_without_none(kind),
        default=field.default,
        metadata=field.metadata,
        title=home.title,
        acts=_modes(home.acts) + shown_acts,
        shown_acts=shown_acts,
    )


def _modes(acts: str) -> tuple[tuple[str, ...], ...]:
    """The parts of `acts`: "a and b or c" -> (("a",), ("b", "c"))."""
    if not acts:
        return ()
    return tuple(tuple(part.split(" or ")) for part in acts.split(" and "))


def _without_none(kind: Any) -> Any:
    """The type of an option that may be None."""
    if isinstance(kind, types.UnionType):
        (kind,) = set(typing.get_args(kind)) - {types.NoneType}
    return kind


# ---------------------------------------------------------------------------- values


def made(cls: type[Group], values: Mapping[str, Any]) -> Group:
    """Options with some values by name, and the defaults of the others.

    Raises:
      InputError: a value is not as declared.
      TypeError: a required option has no value.
    """
    arguments = {}
    for field in dataclasses.fields(cls):
        kind = _hints(cls)[field.name]
        if is_group(kind):
            names = {option.name for option in options_of(kind)}
            of_group = {name: value for name, value in values.items() if name in names}
            if field.default is dataclasses.MISSING:
                arguments[field.name] = made(kind, of_group)
            else:
                arguments[field.name] = replaced(field.default, **of_group)
        elif field.name in values:
            arguments[field.name] = values[field.name]
    return cls(**arguments)


def values_of(options: Options) -> dict[str, Any]:
    """The value of each option by name, with those of groups."""
    return dict(_flat(options))


def _flat(options: Options) -> Iterator[tuple[str, Any]]:
    names = {option.name for option in options_of(type(options))}
    for name, value in vars(options).items():
        if isinstance(value, Options):
            yield from _flat(value)
        elif name in names:
            yield name, value


def resolved(options: Group, **defaults: Any) -> Group:
    """Options with defaults for those that are None.

    Args:
      options: the options of a command.
      **defaults: the default of an option by its name, from other options or data; None: the
        default that help shows.
    """
    values = values_of(options)
    shown = {option.name: option.shown for option in options_of(type(options))}
    chosen = {}
    for name, default in defaults.items():
        if values[name] is None:
            chosen[name] = shown[name] if default is None else default
    return replaced(options, **chosen)


def changed(options: Options) -> dict[str, Any]:
    """The values that differ from the defaults, by name."""
    values = values_of(options)
    different = {}
    for option in options_of(type(options)):
        if values[option.name] != option.default:
            different[option.name] = values[option.name]
    return different


def idle(options: Options) -> Iterator[tuple[Option, tuple[str, ...]]]:
    """Yields the options that were changed and have no effect, as their `acts` says.

    Each comes with a tuple of options of which one would have to be set.
    """
    values = values_of(options)
    for option in options_of(type(options)):
        if values[option.name] != option.default:
            missing = [modes for modes in option.acts if not is_set(modes, values)]
            if missing:
                yield option, missing[0]


def is_set(modes: tuple[str, ...], values: Mapping[str, Any]) -> bool:
    """Whether one of some modes holds: "do_eval" is set, or the value in "task=n*" matches."""
    return any(_is_mode(mode, values) for mode in modes)


def _is_mode(mode: str, values: Mapping[str, Any]) -> bool:
    name, _, pattern = mode.partition("=")
    value = values.get(name)
    if pattern:
        return fnmatch.fnmatch(f"{value}".lower(), pattern)
    return bool(value)


# ---------------------------------------------------------------------------- what is recorded


class Settings(dict[str, Any]):
    """The settings that affect the result of a training, by name. Checkpoints record them.

    Attributes:
      defaults: the defaults of those that are options. A checkpoint that lacks an option was made
        with its default.
      may_change: names of the settings that may differ when a finished run is trained further.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        defaults: Mapping[str, Any] = types.MappingProxyType({}),
        may_change: frozenset[str] = frozenset(),
    ):
        super().__init__(values)
        self.defaults = defaults
        self.may_change = may_change

    def with_values(self, **values: Any) -> Self:
        """A copy with further settings, or other values."""
        return type(self)({**self, **values}, defaults=self.defaults, may_change=self.may_change)


def recorded(options: Options) -> Settings:
    """The options that affect the result of a training."""
    values = values_of(options)
    settings = {}
    defaults = {}
    may_change = set()
    for option in options_of(type(options)):
        if not option.says("recorded"):
            continue
        value = values[option.name]
        settings[option.name] = option.shown if value is None else value
        defaults[option.name] = option.shown
        if option.says("may_change"):
            may_change.add(option.name)
    return Settings(settings, defaults=defaults, may_change=frozenset(may_change))


# ---------------------------------------------------------------------------- texts


class Reading(Options, title="Texts"):
    """How the bytes of a user's texts are decoded: arguments of `decoding.text_lines_of`."""

    encoding: str = option(
        "Of the texts, such as cp1252. Default: UTF-8, or UTF-16 with its mark.", default=""
    )
    encoding_errors: str = option(
        "Of bytes that are not in the encoding: strict refuses the text; replace makes U+FFFD of "
        "them, and says how often.",
        default="strict",
        choices=("strict", "replace"),
    )


PLAIN_READING = Reading()
