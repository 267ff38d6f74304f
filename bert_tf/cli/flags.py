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
    """The options of a command line, each checked by itself and all together.

    Args:
      cls: the class of the command's options.
      line: the program and its words, as `sys.argv`.

    Raises:
      InputError: a flag is unknown, a value is wrong, an option is missing or has no effect, or
        options contradict each other.
    """
    values = define(cls)
    try:
        words = values(without_true(line, cls))[1:]
    except (flags.Error, LookupError, ValueError) as error:
        raise flag_error(error, values, line[0]) from None
    flags.FLAGS.mark_as_parsed()  # absl's own, which absl reads there
    values_by_name = _words_of(cls, words)
    for option in options_of(cls):
        if not option.says("words") and values[option.flag].value is not None:
            values_by_name[option.name] = values[option.flag].value
    _refuse_missing(options_of(cls), values_by_name)
    options = made(cls, values_by_name)
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
    """The words without a True after a switch, which some published commands have.

    The original ignores it, and False as well: that is refused here.
    """
    switches = {f"--{option.flag}" for option in options_of(cls) if option.kind is bool}
    words = []
    before = ""
    for word in line:
        if before not in switches or word.lower() != "true":
            words.append(word)
        before = word
    return words


# ---------------------------------------------------------------------------- values


class _Parser(flags.ArgumentParser):
    """The parser of an option's flag."""

    def __init__(self, option: Option):
        self.option = option

    def flag_type(self) -> str:
        """The type that absl's help would show."""
        return "text"

    def parse(self, word: str) -> Any:
        """The value of a word.

        Raises:
          InputError: the option has no such value.
        """
        flag = f"--{self.option.flag}"
        kind = self.option.kind
        metadata = self.option.metadata
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
    """A word as a value of a type; a word that is no such value is returned, to be refused."""
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
    """The words of a list, in which quotes keep a comma; the whole word if quotes are wrong."""
    try:
        cells = next(csv.reader([word], strict=True), [])
    except csv.Error:
        return word
    return tuple(text.strip() for text in cells)


def path_of(word: str, *, of_file: bool) -> str:
    """A path, or several with commas between, with ~ expanded, and without slashes at the end.

    A slash after the name of a file stays: there it is a mistake.
    """
    expanded = os.path.expanduser if of_file else own_path
    return ",".join(map(expanded, word.split(",")))


# ---------------------------------------------------------------------------- errors


def _words_of(cls: type[Options], words: Sequence[str]) -> dict[str, Any]:
    """The words outside any flag, for the option that takes them.

    Raises:
      InputError: no option takes words, or the option takes one and there are none or several.
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
        name = option.says("words")
        received = f"{', '.join(map(repr, words))} as {name}" if words else f"no {name}"
        remedy = f"write {name} behind the verb"
        raise InputError(received, f"one {name}: {option.help}", remedy)
    return {option.name: words[0]}


def _refuse_missing(options: Sequence[Option], values: dict[str, Any]) -> None:
    """Refuses a command without a required option, or with an empty one (--output_dir=$UNSET)."""
    missing = [option for option in options if option.is_required and not values.get(option.name)]
    if missing:
        names = [option.flag for option in missing]
        expected = "\n".join(f"--{option.flag}: {option.help}" for option in missing)
        words = " ".join(f"--{name}=VALUE" for name in names)
        raise InputError(f"no --{' and no --'.join(names)}", expected, f"write {words}")


def check_effects(options: Options) -> None:
    """Refuses options without effect in this run; logs those that the original has.

    Published commands for the original set flags that have no effect; with a flag of ours that is a
    mistake.
    """
    values = values_of(options)
    ignored = []
    for option, modes in idle(options):
        if option.says("original"):
            ignored.append(f"--{option.flag}")
            continue
        needed = " or ".join(f"--{mode}" for mode in modes)
        flag = f"--no{option.flag}" if values[option.name] is False else f"--{option.flag}"
        expected = f"{needed}: without it {flag} does nothing"
        remedy = f"add {needed}, or leave out {flag}"
        raise InputError(f"{flag} without {needed}", expected, remedy)
    if ignored:
        logging.warning("Without effect in this run: %s.", ", ".join(ignored))
