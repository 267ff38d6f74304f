"""How commands declare their flags, and checks for contradictions.

A group of flags is a class: an attribute is a flag with its default, and the docstring describes
it. Groups that several commands have are in `cli/model_flags.py` and `cli/data_flags.py`. None of
these loads TensorFlow: what the flags stand for is made by `cli/from_flags.py`. Only scripts and
`cli/` read flags.
"""

import dataclasses
import fnmatch
import inspect
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from absl import flags, logging

from bert_tf.errors import InputError
from bert_tf.files import own_path

FLAGS = flags.FLAGS
MOST_USED: list[str] = []  # flags of the command that --help shows first

# ---------------------------------------------------------------------------- kinds of flags

MOST = 10**9  # of what flags count: far beyond any use, and an int32
LONGEST = 10**6  # tokens of a sequence
ABOVE_0, BELOW_1 = math.nextafter(0.0, 1.0), math.nextafter(1.0, 0.0)


class Count(NamedTuple):
    """An integer from `least` to `most`."""

    default: int | None
    least: int = 1
    most: int = MOST


class Number(NamedTuple):
    """A float from `least` to `most`, which are infinite if None."""

    default: float | None
    least: float | None = None
    most: float | None = None


class Numbers(NamedTuple):
    """Floats from `least` up, with commas between, each once."""

    default: tuple[float, ...]
    least: float | None = None


class Choice(NamedTuple):
    """One of some words."""

    default: str | None
    choices: Sequence[str]


class Path(NamedTuple):
    """A path, or several or patterns with commas between, as a shell would give them."""

    default: str | None = None
    required: bool = False


# The flags of google-research/bert: its commands are taken whole, whatever acts in a run.
_ORIGINALS = """
batch_size bert_config_file data_dir do_eval do_lower_case do_predict do_train do_whole_word_mask
doc_stride dupe_factor eval_batch_size gcp_project init_checkpoint input_file iterations_per_loop
layers learning_rate master masked_lm_prob max_answer_length max_eval_steps
max_predictions_per_seq max_query_length max_seq_length n_best_size null_score_diff_threshold
num_tpu_cores num_train_epochs num_train_steps num_warmup_steps output_dir output_file
predict_batch_size predict_file random_seed save_checkpoints_steps short_seq_prob task_name
tpu_name tpu_zone train_batch_size train_file use_one_hot_embeddings use_tpu verbose_logging
version_2_with_negative vocab_file warmup_proportion
"""
ORIGINALS = {*_ORIGINALS.split()}
YES_OR_NO = object()  # a switch without a default
OTHER_FORMATS = ("csv", "npy", "npz", "parquet", "tfrecord", "tsv", "xlsx")  # than JSON lines
SEED = Count(12345, 0, 2**32 - 1)


class _FloatParser(flags.FloatParser):
    """A float, not NaN; -infinity where no bound excludes it, infinity where it is the bound."""

    def convert(self, argument: Any) -> float:
        value = super().convert(argument)
        if not (value < math.inf or value == self.upper_bound):
            raise ValueError(f"{value} is not a finite number")
        return value


class _FloatsParser(flags.ArgumentParser):
    """The value of `Numbers`."""

    def __init__(self, least: float | None):
        self._one = _FloatParser(least, None)

    def flag_type(self) -> str:
        return "numbers"

    def parse(self, argument: str | list[float]) -> list[float]:
        words = argument.split(",") if isinstance(argument, str) else argument
        return [*dict.fromkeys(map(self._one.parse, words))]


class PathParser(flags.ArgumentParser):
    """The value of a `Path`. A slash behind the name of a file stays: there it is a mistake."""

    def __init__(self, *, of_file: bool):
        self._as_meant = os.path.expanduser if of_file else own_path

    def parse(self, argument: str) -> str:
        return ",".join(map(self._as_meant, argument.split(",")))


def define(group: type) -> None:
    """Defines the flags of a class.

    An attribute is a flag (`for_` is --for): of a kind above, or its plain default, which is a
    bool, an int for a count from 1, a float, a tuple for a list of words, or a string or None; of
    a dataclass, its default, and the choices, or path=True, that it is `declared` with. The section
    Attributes of the docstring has the help. Attributes that are no flags:

      _title: under which --help shows the flags.
      _most_used: names of flags, of this class or others, that --help shows first.
      _acts: in which runs flags act, for `check_effects`: a line "do_eval report: best_metric"
        says that --best_metric acts where --do_eval or --report is given; a flag in several lines
        needs one of each. "*" is all flags of the class, whose title says it; output_file=*.csv a
        value, by a pattern.
      _recorded: names of flags that affect the result of a run, which checkpoints record. A resumed
        run is compared with them, and a finished one is not taken for one with others; which of
        them may change when a run is made longer is listed in training/fine_tuning.py.
    """
    doc = inspect.getdoc(group) or ""  # none with python -OO
    texts = dict(re.findall(r"^  (\w+): (.*(?:\n    .*)*)", doc, re.MULTILINE))
    fields = getattr(group, "__dataclass_fields__", {})
    MOST_USED.extend(getattr(group, "_most_used", "").split())
    for name, kind in vars(group).items():
        if not name.startswith("_"):
            metadata = fields[name].metadata if name in fields else {}
            if "choices" in metadata:
                kind = Choice(kind, metadata["choices"])
            elif "path" in metadata:
                kind = Path(kind)
            flag = _defined(name.rstrip("_"), kind, re.sub(r"\s+", " ", texts.get(name, "")))
            flag.group = getattr(group, "_title", "Of this command")
            lines = [line.split(":") for line in getattr(group, "_acts", "").split("\n") if line]
            acts = [(modes.split(), names.split()) for modes, names in lines]
            flag.acts = [modes for modes, names in acts if {flag.name, "*"} & {*names}]
            flag.acts_told = [modes for modes, names in acts if flag.name in names]  # by --help
            flag.is_recorded = name in getattr(group, "_recorded", "").split()


def _defined(name: str, kind: Any, text: str) -> flags.Flag:
    """Defines the flag of an attribute."""
    match kind:
        case bool():
            flags.DEFINE_bool(name, kind, text)
        case int():
            _defined(name, Count(kind), text)
        case float():
            _defined(name, Number(kind), text)
        case Count(default, least, most):
            flags.DEFINE_integer(name, default, text, lower_bound=least, upper_bound=most)
        case Number(default, least, most):
            parser = _FloatParser(least, most)
            flags.DEFINE(parser, name, default, text, serializer=flags.ArgumentSerializer())
        case Numbers(default, least):
            flags.DEFINE(_FloatsParser(least), name, [*default], text)
        case Choice(default, choices):
            flags.DEFINE_enum(name, default, list(choices), text)
        case Path(default, required):
            parser, writer = PathParser(of_file=name.endswith("_file")), flags.ArgumentSerializer()
            flags.DEFINE(parser, name, default, text, flags.FLAGS, writer)
            if required:
                mark_required(name)
        case tuple():
            flags.DEFINE_list(name, list(kind), text)
        case _ if kind is YES_OR_NO:
            flags.DEFINE_bool(name, None, text)
        case _:
            flags.DEFINE_string(name, kind, text)
    return FLAGS[name]


def mark_required(name: str) -> None:
    """Refuses a command without the flag, or with an empty one as in --output_dir=$UNSET."""
    flags.register_validator(name, bool, message=f"it is required: write --{name}=VALUE")


def verb(*groups: Any, check: Callable | None = None, needs_tensorflow: bool = True) -> Callable:
    """Makes a function the `main` of a verb; its docstring is what --help says.

    Args:
      groups: classes for `define`, or functions that define flags.
      check: the verb's check of flags and of the words outside them; default: no words.
      needs_tensorflow: whether the verb computes with it.
    """

    def mark(main: Callable) -> Callable:
        main.main, main.needs_tensorflow = main, needs_tensorflow
        main.check_flags = check or refuse_words
        main.define_flags = lambda: [define(g) if isinstance(g, type) else g() for g in groups]
        return main

    return mark


# ---------------------------------------------------------------------------- values


def of_flags(kind: type, **values: Any) -> Any:
    """A dataclass whose fields are named as flags; one without a flag keeps its default."""
    names = {field.name for field in dataclasses.fields(kind)} - values.keys()
    return kind(**values, **{name: FLAGS[name].value for name in names if name in FLAGS})


def given_case() -> bool | None:
    """--do_lower_case, or None where the command does not say it."""
    return FLAGS.do_lower_case if FLAGS["do_lower_case"].present else None


def format_of(path: str, formats: Sequence[str]) -> str:
    """The format of a file: by its ending, else the first."""
    ending = os.path.splitext(path)[1][1:].lower()
    return ending if ending in formats else formats[0]


# ---------------------------------------------------------------------------- checks


def refuse_words(words: Sequence[str]) -> None:
    """Refuses words outside any flag."""
    if words:
        received, expected = f"{words[0]!r} outside any flag", "flags only, as in --input_file=..."
        remedy = "write --flag=value without a space, and put quotes around patterns of files"
        raise InputError(received, expected, remedy)


def check_effects() -> None:
    """Refuses flags that were given and do nothing in this run; logs those that the original has.

    Commands of the original come with all its flags, whatever they do; a flag of ours that does
    nothing is a mistake.
    """
    idle = {}
    for name in FLAGS:
        flag = FLAGS[name]
        lacking = [modes for modes in getattr(flag, "acts", []) if not any(map(_is_mode, modes))]
        if lacking and flag.value != flag.default:
            idle[name] = " or ".join(f"--{mode}" for mode in lacking[0])
    for name in (name for name in idle if name not in ORIGINALS):
        written = f"--{'no' * (FLAGS[name].value is False)}{name}"
        expected = f"{idle[name]}: without it {written} does nothing"
        remedy = f"add {idle[name]}, or leave out {written}"
        raise InputError(f"{written} without {idle[name]}", expected, remedy)
    if idle:
        logging.warning("Without effect in this run: --%s.", ", --".join(idle))


def _is_mode(mode: str) -> bool:
    """Whether a flag is given, or has a value of a pattern."""
    name, _, pattern = mode.partition("=")
    value = FLAGS[name].value if name in FLAGS else None
    return fnmatch.fnmatch(f"{value}".lower(), pattern) if pattern else bool(value)


def written_format(path: str, formats: Sequence[str]) -> str:
    """The format of an output; refuses an ending of another one."""
    ending = os.path.splitext(path)[1][1:].lower()
    if ending in OTHER_FORMATS and ending not in formats:
        expected = f"a name that ends in {' or '.join(f'.{name}' for name in formats)}"
        raise InputError(f"--output_file={path}", expected, "correct --output_file")
    return format_of(path, formats)


def require(name: str, *needed: str, remedy: str = "") -> None:
    """Refuses --name without all of the flags that it needs."""
    if FLAGS[name].value and not all(FLAGS[other].value for other in needed):
        listed = " and ".join(f"--{other}" for other in needed)
        expected = f"{listed}: --{name} has no effect alone"
        remedy = remedy or f"add {listed}, or leave out --{name}"
        raise InputError(f"--{name} without {listed}", expected, remedy)
