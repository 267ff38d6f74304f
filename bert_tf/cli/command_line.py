"""Answers to a command line before TensorFlow loads: help, and errors of flags."""

import re
import shutil
import sys
import textwrap
from typing import Any

from absl import flags

from bert_tf.errors import InputError
from bert_tf.options import Option, Options, options_of

NAME_WIDTH = 32
OWN = "Of this command"
_SAYS_DEFAULT = re.compile("Default:|If not given:")  # a text that explains it


# ---------------------------------------------------------------------------- help


def page(about: str, cls: type[Options]) -> str:
    """The text of --help: what a command does, and its options in groups, the most used first.

    Args:
      about: what the command does.
      cls: the class of its options.
    """
    width = min(100, max(60, shutil.get_terminal_size((100, 24)).columns))
    if sys.argv[0].startswith("bert-tf "):  # without a script
        about = re.sub(r"^( *)python \w+\.py", rf"\1{sys.argv[0]}", about, flags=re.M)
    parts = [about.strip()]
    for title, options in groups_of(cls).items():
        entries = [entry(option, cls, width) for option in options]
        parts.append("\n".join([f"{title}:", *entries]))
    parts.append("Further flags, for logging and debugging: --helpfull lists them.")
    return "\n\n".join(parts)


def groups_of(cls: type[Options]) -> dict[str, list[Option]]:
    """The options that are flags, by the titles under which help shows them."""
    options = {option.name: option for option in options_of(cls) if not option.says("words")}
    groups = {"Most used": [options[name] for name in cls.most_used], OWN: []}
    for option in options.values():
        if option.name not in cls.most_used:
            groups.setdefault(option.title, []).append(option)
    return {title: listed for title, listed in groups.items() if listed}


def entry(option: Option, cls: type[Options], width: int) -> str:
    """The lines of an option: its flag and default beside its text; further lines below them."""
    first, *further = text_of(option, cls).splitlines()
    flag = f"--{option.flag}={default_of(option)}"
    if option.kind is bool:
        flag = f"--[no]{option.flag}"
    margin = " " * (NAME_WIDTH + 4)
    lines = textwrap.fill(first, width, initial_indent=margin, subsequent_indent=margin)
    if len(flag) <= NAME_WIDTH:
        lines = f"  {flag:<{NAME_WIDTH}}  {lines.lstrip()}"
    else:
        lines = f"  {flag}\n{lines}"
    return "\n      ".join([lines, *further])


def text_of(option: Option, cls: type[Options]) -> str:
    """What an option does, its choices, and the options that it needs."""
    text = option.help
    if option.kind is bool and option.shown and not _SAYS_DEFAULT.search(text):
        text += " (default: yes)"
    known = {declared.name for declared in options_of(cls)}
    for modes in option.shown_acts:
        names = [f"--{mode}" for mode in modes if mode.partition("=")[0] in known]
        if names:
            text += f" With {' or '.join(names)}."
    if choices := option.says("choices"):
        text = f"{' | '.join(choices)}. {text}"
    return text


def default_of(option: Option) -> str:
    """The default as a flag would give it; empty if the text says it."""
    if option.shown is None or _SAYS_DEFAULT.search(option.help):
        return ""
    return written(option.shown)


def written(value: Any) -> str:
    """A value as a flag would give it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def further_flags() -> str:
    """The further text of --helpfull: absl's own flags."""
    return flags.FLAGS.get_help()


# ---------------------------------------------------------------------------- errors


def flag_error(
    error: flags.Error | LookupError | ValueError, values: flags.FlagValues, program: str
) -> InputError:
    """The first error of a command line.

    Args:
      error: an error of absl, or of the parser of a flag.
      values: the flags of the command.
      program: the command.
    """
    if isinstance(error.__context__, InputError):  # a wrong value
        wrong = error.__context__
        remedy = f"{wrong.remedy}; {program} --help explains the flags"
        return InputError(wrong.received, wrong.expected, remedy)
    if isinstance(error, flags.CantOpenFlagFileError | UnicodeError):
        received = f"a --flagfile that cannot be read ({str(error).rpartition('flagfile: ')[2]})"
        return InputError(received, "a text file in UTF-8, a flag a line", "check the path")
    word, _, reason = str(error).splitlines()[0].removeprefix("flag ").partition(": ")
    if isinstance(error, flags.UnrecognizedFlagError):
        similar = re.findall(r"\w+", reason)  # absl's own guesses
        remedy = f"did you mean --{similar[0]}?" if similar else "correct it, or leave it out"
        expected = f"the flags that {program} --help lists"
        return InputError(f"--{error.flagname}, which is unknown", expected, remedy)
    name = word.removeprefix("--").partition("=")[0]
    expected = reason.removeprefix("value should be ")
    if name in values and values[name].boolean:
        expected = "true or false"
    elif name in values:
        expected = values[name].parser.syntactic_help or expected
    remedy = f"correct it; {program} --help explains the flags"
    return InputError(word, expected or "--flag=VALUE", remedy)
