"""A command line -> the options of a command; each option of its class is a flag.

The flags of a command are in an `absl.flags.FlagValues` of their own, beside absl's for logging and
debugging. They are read once: what follows takes the options.
"""

import csv
import os
from collections.abc import Sequence
from typing import Any, TypeVar

from absl import flags, logging

from bert_tf import declarations
from bert_tf.cli.command_line import flag_error
from bert_tf.errors import InputError
from bert_tf.files import own_path
from bert_tf.options import Option, Options, idle, made, options_of, values_of

Command = TypeVar("Command", bound=Options)


def parse(cls: type[Command], line: Sequence[str]) -> Command:
    """The options that a command line gives, checked each by itself and together.

    Args:
      cls: of the command.
      line: the program and its words, as `sys.argv`.

    Raises:
      InputError: a flag is unknown, a value is wrong, something is missing, or options contradict
        each other or do nothing.
    """
    values = define(cls)
    try:
        words = values(without_true(line, cls))[1:]
    except (flags.Error, LookupError, ValueError) as error:
        raise flag_error(error, values, line[0]) from None
    flags.FLAGS.mark_as_parsed()  # absl's own, which absl reads there
    declared = options_of(cls)
    given = {o.name: values[o.flag].value for o in declared if not o.says("words")}
    given = {name: value for name, value in given.items() if value is not None}
    given |= _words_of(cls, words)
    _refuse_missing(declared, given)
    options = made(cls, given)
    options.check()
    check_effects(options)
    return options


def define(cls: type[Options]) -> flags.FlagValues:
    """The flags of a command, without values, and absl's own."""
    values = flags.FlagValues()
    for option in options_of(cls):
        if option.says("words"):
            continue
        if option.kind is bool:
            flags.DEFINE_bool(option.flag, None, option.help, flag_values=values)
        else:
            flags.DEFINE(_Parser(option), option.flag, None, option.help, flag_values=values)
    for name in ("help", "helpfull"):  # answered before; here for "did you mean"
        flags.DEFINE_bool(name, None, "", flag_values=values)
    for flag in {flags.FLAGS[name] for name in flags.FLAGS}:  # each under its long name
        if flag.name not in values:
            values[flag.name] = flag
    return values


def without_true(line: Sequence[str], cls: type[Options]) -> list[str]:
    """The words without each True behind a switch, which published commands have for some.

    The original ignores it, as it does False: that is refused here.
    """
    switches = {f"--{option.flag}" for option in options_of(cls) if option.kind is bool}
    pairs = zip(["", *line], line, strict=False)
    return [word for before, word in pairs if not (before in switches and word.lower() == "true")]


# ---------------------------------------------------------------------------- values


class _Parser(flags.ArgumentParser):
    """Takes the words of one option."""

    def __init__(self, option: Option):
        self.option = option

    def flag_type(self) -> str:
        return "text"

    def parse(self, word: str) -> Any:
        """The value of a word.

        Raises:
          InputError: the option has no such value.
        """
        flag, kind, metadata = f"--{self.option.flag}", self.option.kind, self.option.metadata
        value = taken(word, kind)
        if metadata.get("path"):
            value = path_of(word, of_file=self.option.name.endswith("_file"))
        try:
            declarations.check(flag, value, kind, **metadata)
        except InputError as error:
            is_one_of_several = isinstance(value, tuple) and len(value) > 1
            which = f", with {error.received}" if is_one_of_several else ""
            raise InputError(f"{flag}={word}{which}", error.expected, "correct it") from None
        return value


def taken(word: str, kind: Any) -> Any:
    """A word as a value of that type; one that is none as it is, to be refused."""
    if kind == tuple[str, ...]:
        return _words_between_commas(word)
    if kind == tuple[float, ...]:
        numbers = [taken(text, float) for text in word.split(",")]
        return tuple(dict.fromkeys(numbers))  # each once
    try:
        return _INTEGERS.convert(word) if kind is int else kind(word)
    except ValueError:
        return word


_INTEGERS = flags.IntegerParser()  # takes 0x10, too


def _words_between_commas(word: str) -> Any:
    """The words; quotes keep a comma within one. A word of which that is not true as it is."""
    try:
        cells = next(csv.reader([word], strict=True), [])
    except csv.Error:
        return word
    return tuple(text.strip() for text in cells)


def path_of(word: str, *, of_file: bool) -> str:
    """A path, or several with commas between, as a shell would give them.

    A slash behind the name of a file stays: there it is a mistake.
    """
    as_meant = os.path.expanduser if of_file else own_path
    return ",".join(map(as_meant, word.split(",")))


# ---------------------------------------------------------------------------- what is refused


def _words_of(cls: type[Options], words: Sequence[str]) -> dict[str, Any]:
    """The words outside any flag, for the option that takes them.

    Raises:
      InputError: none does, or it takes one.
    """
    option = next((option for option in options_of(cls) if option.says("words")), None)
    if option is None:
        if words:
            received = f"{words[0]!r} outside any flag"
            expected = "flags only, as in --input_file=..."
            remedy = "write --flag=value without a space, and put quotes around patterns of files"
            raise InputError(received, expected, remedy)
        return {}
    if option.kind is not str:
        return {option.name: tuple(words)}
    if len(words) != 1 or not words[0]:
        called = option.says("words")
        received = f"{', '.join(map(repr, words))} as {called}" if words else f"no {called}"
        remedy = f"write {called} behind the verb"
        raise InputError(received, f"one {called}: {option.help}", remedy)
    return {option.name: words[0]}


def _refuse_missing(declared: Sequence[Option], given: dict[str, Any]) -> None:
    """Refuses a command without a required option, or an empty one as in --output_dir=$UNSET."""
    missing = [option for option in declared if option.is_required and not given.get(option.name)]
    if missing:
        listed = [option.flag for option in missing]
        expected = "\n".join(f"--{option.flag}: {option.help}" for option in missing)
        words = " ".join(f"--{name}=VALUE" for name in listed)
        raise InputError(f"no --{' and no --'.join(listed)}", expected, f"write {words}")


def check_effects(options: Options) -> None:
    """Refuses options that were given and do nothing in this run; logs those that the original has.

    Commands of the original come with all its flags, whatever they do; a flag of ours that does
    nothing is a mistake.
    """
    values = values_of(options)
    ignored = []
    for option, modes in idle(options):
        if option.says("original"):
            ignored.append(f"--{option.flag}")
            continue
        needed = " or ".join(f"--{mode}" for mode in modes)
        is_off = values[option.name] is False
        written = f"--{'no' * is_off}{option.flag}"
        expected = f"{needed}: without it {written} does nothing"
        remedy = f"add {needed}, or leave out {written}"
        raise InputError(f"{written} without {needed}", expected, remedy)
    if ignored:
        logging.warning("Without effect in this run: %s.", ", ".join(ignored))
