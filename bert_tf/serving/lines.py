"""Lines of a file or a pipe -> what a model is asked, one at a time.

    text     a line is a text
    tsv      a line is texts with tabs between; of a list of texts, all that are left
    jsonl    a line is a JSON string, list or object, as `bert_tf.Predictor` takes them

Every line is an item, an empty one too, so that answers and lines correspond.
"""

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from bert_tf.errors import InputError
from bert_tf.serving.signatures import DEFAULT


def format_of(path: str | None, facts: Mapping[str, Any]) -> str:
    """What the lines of a file most likely are: by its ending, else by what a model takes.

    Raises:
      InputError: it is a .csv, whose rows may be of several lines.
    """
    if path and path.endswith(".csv"):
        raise InputError(
            received=f"{path} without --input_format",
            expected="tsv, jsonl, or a text a line",
            remedy="make it one of these, or say with --input_format=text that its lines are texts",
        )
    for ending, name in ((".tsv", "tsv"), (".jsonl", "jsonl"), (".json", "jsonl")):
        if path and path.endswith(ending):
            return name
    return "text" if len(facts["texts"]) == 1 else "tsv"


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream, each as soon as it is there."""
    return iter(stream.readline, b"")


def read_items(
    lines: Iterable[bytes], facts: Mapping[str, Any], *, input_format: str, name: str
) -> Iterator[Any]:
    """The item of each line.

    Args:
      lines: with their ends.
      facts: of the model, as in export.json.
      input_format: one of INPUT_FORMATS.
      name: of the file, for messages.

    Raises:
      InputError: a line is no such thing; it is named.
    """
    parse = {"text": lambda text: text, "tsv": _tsv(facts), "jsonl": json.loads}[input_format]
    for number, raw in enumerate(lines, 1):
        if number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield parse(raw.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(
                received=f"{place(name, number)}: {_shown(raw)} ({error})",
                expected=_expected(input_format, facts),
                remedy="correct the line, or give another --input_format",
            ) from None


def place(name: str, number: int) -> str:
    """What a line is called in messages."""
    return f"{name}, line {number}"


def _tsv(facts: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    names, rest = _columns(facts)

    def parse(text: str) -> dict[str, Any]:
        values = text.split("\t")
        if len(values) < len(names) + bool(rest) or (not rest and len(values) > len(names)):
            raise ValueError(f"{len(values)} columns")
        item = dict(zip(names, values, strict=False))
        return item | ({rest: values[len(names) :]} if rest else {})

    return parse


def _columns(facts: Mapping[str, Any]) -> tuple[list[str], str | None]:
    """The names of single texts, and that of a list of texts, which comes last."""
    shapes = facts["signatures"][DEFAULT]
    lists = [name for name in facts["texts"] if len(shapes[name]["shape"]) > 1]
    return [name for name in facts["texts"] if name not in lists], lists[0] if lists else None


def _expected(input_format: str, facts: Mapping[str, Any]) -> str:
    names, rest = _columns(facts)
    if input_format == "jsonl":
        listed = [f'"{name}": "..."' for name in names] + ([f'"{rest}": [...]'] if rest else [])
        return f"JSON in UTF-8, such as {{{', '.join(listed)}}}"
    if input_format == "tsv":
        more = f", then each of the {rest}" if rest else ""
        return f"{' and '.join(names)}{more} in UTF-8, with tabs between"
    return "text in UTF-8"


def _shown(raw: bytes) -> str:
    return f"{raw[:60]!r}{'...' if len(raw) > 60 else ''}"
