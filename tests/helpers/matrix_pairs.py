"""The pairs (call, model) of the matrix, the ways to write a path, and the outcome of a pair."""

import functools
import json
import os
import pathlib
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import hub_server
import matrix_calls
import matrix_inputs
import matrix_models
import once
import pytest
import walking
from matrix_calls import CALLS, Answering, Ended
from matrix_models import FORMATS, HEADS

from bert_tf.errors import InputError

EQUAL = "equal"
REFUSED = "refused"
PARTS = re.compile(r"Received: [\s\S]+?\nExpected: [\s\S]+?\nTo do: .+")
TOLERANCE = 1e-5
# Folders in the home folder that libraries or `Call.answer` make.
IGNORED = {".keras", ".cache", ".config", "seen"}


class Style(NamedTuple):
    """How a path is written.

    Attributes:
      folder: the folder of all files, in the home folder; the link "link" leads to it.
      prefix: the beginning of every path; the current folder is cwd in the home folder.
      ending: what follows the path of a folder.
    """

    folder: str = "place"
    prefix: str = "{home}/{folder}"
    ending: str = ""


STYLES = {
    "absolute": Style(),
    "relative": Style(prefix="../{folder}"),
    "dotted": Style(prefix="./x/../../{folder}"),
    "slash": Style(ending="/"),
    "letters": Style("ü 中 b"),
    "brackets": Style("lr=[1e-4]"),
    "link": Style(prefix="{home}/link"),
    "home": Style(prefix="~/{folder}"),
}


class Pair(NamedTuple):
    """A call and a model.

    Attributes:
      call: a name of `CALLS`.
      format: a name of `FORMATS`; None: the call takes no model.
      head: the head of the model.
      name: the path of the model in its folder.
      style: a name of `STYLES`, for all paths.
    """

    call: str
    format: str | None = None
    head: str | None = None
    name: str = ""
    style: str = "absolute"

    def __str__(self) -> str:
        return ", ".join(filter(None, self))

    @property
    def must_answer(self) -> bool:
        """Whether a refusal is wrong."""
        call = CALLS[self.call]
        return call.heads is None or (self.head in call.heads and self.format in call.formats)


def all_pairs() -> list[Pair]:
    """Every call with every format, with every head, with every name of a model, in every style."""
    pairs = []
    for number, name in enumerate(CALLS):
        pairs += pairs_of(name, number)
    return list(dict.fromkeys(pairs))


def pairs_of(name: str, number: int) -> Iterator[Pair]:
    """The pairs of a call, some of them twice.

    Args:
      name: the name of the call.
      number: the number of the call, at which the round of the heads begins.
    """
    call = CALLS[name]
    if call.heads is None:
        yield from (Pair(name, style=style) for style in STYLES)
        return
    for place, (format_name, written) in enumerate(FORMATS.items(), number):
        fitting = sorted(call.heads & written.heads) or sorted(written.heads)
        for index, path in enumerate(written.names):
            if index == 0 or name in ("predict", "bert_tf.open_weights"):
                yield Pair(name, format_name, fitting[(place + index) % len(fitting)], path)
    usual = "run" if call.writes_model else "keras"
    for head in HEADS:
        yield Pair(name, usual, head, FORMATS[usual].names[0])
    fitting = sorted(call.heads)
    for place, style in enumerate(STYLES, number):
        yield Pair(name, "run", fitting[place % len(fitting)], style=style)


def sample(seed: int, size: int) -> list[Pair]:
    """Some pairs; the samples of consecutive seeds cover all pairs."""
    pairs = _mixed()
    first = seed * size % len(pairs)
    return pairs[first : first + size]


@functools.cache
def _mixed() -> list[Pair]:
    """All pairs, in an order that is always the same."""
    pairs = all_pairs()
    random.Random(0).shuffle(pairs)
    return pairs


# ---------------------------------------------------------------------------- where files are


class Files:
    """Inputs and models. Each is made at its first use, once for all processes of the tests."""

    def __init__(self, factory: pytest.TempPathFactory):
        self._factory = factory

    def _once(self, name: str, make: Callable[[pathlib.Path], Any]) -> Any:
        return once.make_once(self._factory, re.sub(r"\W+", "_", name), make)

    @property
    def inputs(self) -> pathlib.Path:
        """The folder of the inputs."""

        def make(folder: pathlib.Path) -> pathlib.Path:
            matrix_inputs.write(folder / "in")
            return folder / "in"

        return self._once("matrix inputs", make)

    def model(self, format_name: str, head: str) -> pathlib.Path:
        """The folder of a model."""

        def make(folder: pathlib.Path) -> pathlib.Path:
            run = folder if format_name == "run" else self.model("run", head)
            model = matrix_models.make_model(head, str(inputs / "vocab.txt"))
            (folder / "model").mkdir()
            FORMATS[format_name].write(model, run, folder / "model")
            return folder / "model"

        inputs = self.inputs
        return self._once(f"matrix model {format_name} {head}", make)

    def expected(self, pair: Pair) -> Any:
        """The call's answer or refusal in this process, for the model as the folder of a run."""
        further = pair.style != "absolute"
        usual = pair._replace(format=pair.format and "run", name="", style="absolute")

        def make(folder: pathlib.Path) -> Any:
            place = Place(folder, usual, self)
            try:
                shown = matrix_calls.run_here(pair.call, pair.head, place.path, further=further)
            except InputError as error:
                return REFUSED, place.without_paths(str(error))
            return EQUAL, place.answer(Ended(0, shown, ""))

        return self._once(f"matrix answer {pair.call} {pair.head} {further}", make)


class Place:
    """A home folder with copies of the files that a call reads, and a folder for its outputs."""

    def __init__(self, home: pathlib.Path, pair: Pair, files: Files):
        self.home = home
        self.pair = pair
        self.style = STYLES[pair.style]
        self.folder = home / self.style.folder
        (home / "cwd/x").mkdir(parents=True)
        shutil.copytree(files.inputs, self.folder / "IN")
        (self.folder / "OUT").mkdir()
        (home / "link").symlink_to(self.folder)
        if pair.format:
            shutil.copytree(files.model(pair.format, pair.head), self.folder / "MODEL")
        if pair.format == "hub":
            copy = home / f"hub/o/{matrix_models.REPOSITORY}/resolve/{hub_server.MAIN}"
            shutil.copytree(self.folder / "MODEL", copy)
            model_files = [*copy.iterdir()]
            hub_server.describe_repository(home / "hub", matrix_models.REPOSITORY, model_files)
        self.prefix = self.style.prefix.format(home=home, folder=self.style.folder)
        self.before = contents(home)

    def real(self, text: str) -> pathlib.Path:
        """The path of MODEL, IN/... or OUT/..., absolute and without links."""
        return self.folder / (f"MODEL/{self.pair.name}" if text == "MODEL" else text)

    def path(self, text: str) -> str:
        """The path of MODEL, IN/... or OUT/... as the call writes it."""
        if text == "MODEL" and self.pair.name.startswith("hf:"):
            return self.pair.name
        real = self.real(text)
        is_folder = real.is_dir() or (text.startswith("OUT") and "." not in text)
        relative = real.relative_to(self.folder)
        return f"{self.prefix}/{relative}" + self.style.ending * is_folder

    def without_paths(self, text: str) -> str:
        """A text in which every path begins with PLACE and ends without a slash."""
        for prefix in (self.prefix, str(self.folder), str(self.folder.resolve())):
            text = text.replace(prefix, "PLACE")
        return re.sub(r"(PLACE[/\w.]*)/(?=[\s,:)]|$)", r"\1", text)

    def answer(self, ended: Ended) -> Any:
        """What the call computed, as if read from JSON."""
        printed = self.without_paths(ended.printed)
        answering = Answering(printed, self.folder / "OUT", self.real("MODEL"))
        return json.loads(json.dumps(CALLS[self.pair.call].answer(answering)))

    def written(self) -> set[str]:
        """Files and folders that are new, changed or missing, without `IGNORED`."""
        after = contents(self.home)
        paths = self.before.keys() | after.keys()
        changed = {path for path in paths if self.before.get(path) != after.get(path)}
        return {path for path in changed if path.split("/")[0] not in IGNORED}


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """Bytes of every file below a folder, by its path in the folder; b"" for folders."""
    folders = [path for path in folder.rglob("*") if path.is_dir()]
    return {f"{path.relative_to(folder)}/": b"" for path in folders} | walking.contents(folder)


# ---------------------------------------------------------------------------- outcomes


def outcome(pair: Pair, files: Files) -> str:
    """Runs a pair; returns EQUAL, REFUSED, or a sentence that says what is wrong."""
    expected = files.expected(pair)
    with tempfile.TemporaryDirectory() as folder:
        place = Place(pathlib.Path(folder), pair, files)
        environment = {
            **os.environ, **walking.COMPILE_QUICKLY, "HOME": folder,
            "PYTHONPATH": os.environ.get("PYTHONPATH", str(walking.ROOT)),
        }  # fmt: skip
        with hub_server.serving(place.home / "hub") as url:
            ended = matrix_calls.run_apart(
                pair.call, pair.head, place.path, further=pair.style != "absolute",
                cwd=place.home / "cwd", env=environment | {"HF_ENDPOINT": url},
            )  # fmt: skip
        return judged(pair, place, ended, expected)


def judged(pair: Pair, place: Place, ended: Ended, expected: tuple[str, Any]) -> str:
    """Compares how a call ended with what `Files.expected` says; returns as `outcome`."""
    call = CALLS[pair.call]
    is_refused = expected[0] == REFUSED
    if is_refused and pair.must_answer and (not call.refused or call.refused not in expected[1]):
        return f"refused in every process: {expected[1]}"
    if ended.code:
        return judged_refusal(pair, place, ended, expected)
    if is_refused:
        return f"answered what every other process refuses: {expected[1]}"
    inside = f"{place.style.folder}/{'MODEL' if call.writes_model else 'OUT'}/"
    if outside := {path for path in place.written() if not path.startswith(inside)}:
        return f"written elsewhere: {sorted(outside)}\n{last_lines(ended)}"
    try:
        answer = place.answer(ended)
    except FileNotFoundError as error:
        return f"an output is missing: {error}"
    return EQUAL if close(answer, expected[1]) else f"answers {answer}\nin place of {expected[1]}"


def judged_refusal(pair: Pair, place: Place, ended: Ended, expected: tuple[str, Any]) -> str:
    """`judged`, for a call that ended with an error."""
    if "Traceback" in ended.said or not (parts := PARTS.search(ended.said)):
        return f"exit code {ended.code} without a message in three parts:\n{last_lines(ended)}"
    if written := place.written():
        return f"refused, but files were written: {sorted(written)}\n{last_lines(ended)}"
    message = place.without_paths(parts[0])
    # TensorFlow takes brackets in the path of a checkpoint or a SavedModel for a pattern.
    if pair.style == "brackets" and "a path without square brackets" in message:
        return REFUSED
    if CALLS[pair.call].refused:
        is_right = expected[0] == REFUSED and message.split() == expected[1].split()
    else:
        is_right = not pair.must_answer
    return REFUSED if is_right else f"refused: {message}\nExpected: {expected}"


def last_lines(ended: Ended) -> str:
    """The end of a call's standard error, for messages."""
    return "\n".join(ended.said.splitlines()[-12:])


def close(answer: Any, expected: Any) -> bool:
    """Whether two answers are equal, numbers up to rounding."""
    if isinstance(answer, dict) and isinstance(expected, dict):
        if answer.keys() != expected.keys():
            return False
        return all(close(answer[key], expected[key]) for key in answer)
    if isinstance(answer, list) and isinstance(expected, list):
        return len(answer) == len(expected) and all(map(close, answer, expected))
    if isinstance(answer, float) and isinstance(expected, int | float):
        return answer == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
    return answer == expected
