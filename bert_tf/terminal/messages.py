"""Log lines with one short prefix, tables of scores, and the line at the end."""

import logging
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence

from absl import logging as absl_logging

_process: list[str] = []  # which of several this one is


def name_process(name: str) -> None:
    """Puts the name of this process, one of several, into its log lines."""
    _process[:] = [f"[{name}] "]


class LineFormatter(logging.Formatter):
    """`11-23 08:38:12 text`, with the level before the text where it is a warning or worse.

    In a run of several processes: `11-23 08:38:12 [worker 1] text`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        prefix = time.strftime("%m-%d %H:%M:%S ", time.localtime(record.created))
        level = f"{record.levelname}: " if record.levelno >= logging.WARNING else ""
        return "".join([prefix, *_process, level]) + super().format(record)


def format_log_lines() -> None:
    """Lets all that is logged in this process, by TensorFlow too, go by `LineFormatter`."""
    absl_logging.use_absl_handler()
    handler = absl_logging.get_absl_handler().python_handler
    handler.setFormatter(LineFormatter())
    handler.stream = sys.stderr  # as it is now


def log_end(results: str, verb: str, *words: str, **flags: object) -> None:
    """Logs the last line of a command: where its results are, and the command to type next."""
    absl_logging.info("%s. Next: %s", results, command(verb, *words, **flags))


def command(verb: str, *words: str, **flags: object) -> str:
    """The words of a command, quoted for a shell; flags of None or False are left out.

    >>> command("export", init_checkpoint="my model", do_train=True, labels=None)
    "bert-tf export --init_checkpoint='my model' --do_train"
    """
    given = [(name, value) for name, value in flags.items() if value not in (None, False)]
    listed = [f"--{n}" if v is True else f"--{n}={shlex.quote(str(v))}" for n, v in given]
    return " ".join(["bert-tf", verb, *map(shlex.quote, words), *listed])


def rounded(number: float) -> str:
    """With one decimal at most."""
    return f"{round(number, 1):.10g}"


def number_of(number: float, things: str) -> str:
    """A number and what is counted, which is given in the plural.

    >>> number_of(1, "batches"), number_of(1, "workers"), number_of(2, "files")
    ('1 batch', '1 worker', '2 files')
    """
    if number == 1:
        things = re.sub("(?<=ch)es$|s$", "", things)
    return f"{rounded(number)} {things}"


def aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of the rows, their cells below each other.

    >>> aligned([["rate", "best"], ["5e-05", 0.5]])
    ['rate   best', '5e-05  0.5']
    """
    columns = [[str(cell) for cell in column] for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


def scores_table(scores: Mapping[str, float]) -> list[str]:
    """Names and values in columns, points below each other; losses and counts last.

    >>> print(*scores_table({"global_step": 343, "loss": 0.44121, "eval_loss": 0.44121,
    ...                      "eval_accuracy": 0.86764, "eval_f1": 0.9}), sep="\\n")
      eval_accuracy    0.8676
      eval_f1          0.9000
      eval_loss        0.4412
      global_step    343
    """
    if scores.get("loss") == scores.get("eval_loss"):  # the original has both names
        scores = {name: value for name, value in scores.items() if name != "loss"}
    names = sorted(scores, key=_place)
    in_percent = any(scores[name] >= 10 for name in names if not _place(name))
    parts = {}  # of each number: what stands before its point, the point, what follows
    for name in names:
        is_points = in_percent and not _place(name) and "thresh" not in name
        parts[name] = _number(scores[name], 2 if is_points else 4).partition(".")
    width = max(map(len, names), default=0)
    before = max((len(whole) for whole, *_ in parts.values()), default=0)
    return [
        f"  {name:<{width}}  {whole:>{before}}{point}{rest}"
        for name, (whole, point, rest) in parts.items()
    ]


def _place(name: str) -> int:
    """Sorts scores before losses before counts; within each they keep their order."""
    return 2 if name == "global_step" else 1 if name.endswith("loss") or "loss_" in name else 0


def _number(value: float, decimals: int) -> str:
    """A count as it is, all else with so many decimals."""
    is_count = isinstance(value, int) or (float(value).is_integer() and abs(value) >= 10)
    return f"{int(value)}" if is_count else f"{value:.{decimals}f}"
