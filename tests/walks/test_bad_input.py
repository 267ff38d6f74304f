"""Bad input of the two pre-training scripts: three parts, exit code 1, no half-made file.

What is wrong within a file is for the tests of its reader, what is wrong with a job for those of
its pipeline; here is what the scripts compare.
"""

import pathlib
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from walking import (
    SIZES,
    SPECIAL_PIECES,
    describe,
    in_process,
    run,
    write_config,
    write_records,
    write_vocabulary,
)

from bert_tf.errors import InputError

pytestmark = pytest.mark.walk
PRETRAIN, CREATE = "run_pretraining.py", "create_pretraining_data.py"


class Case(NamedTuple):
    """What must be said, flags that differ from those of a good run, and how to make the input."""

    says: str
    flags: dict[str, Any]  # {} in a value stands for the folder
    prepare: Callable[[pathlib.Path], Any] = lambda folder: None


def text(name: str, *lines: str) -> Callable[[pathlib.Path], Any]:
    """Writes a file."""
    return lambda folder: (folder / name).write_bytes("\n".join(lines).encode("latin-1"))


def small_table(**changes: int) -> Callable[[pathlib.Path], Any]:
    """The configuration of a model that is too small for the data; they may be described."""
    return lambda folder: (described()(folder), write_config(folder / "small.json", **changes))


def described(name: str = "good.tfrecord", **changes: Any) -> Callable[[pathlib.Path], Any]:
    """Writes the description of the good records, or of a copy."""

    def write(folder: pathlib.Path) -> None:
        if name != "good.tfrecord":
            shutil.copy(folder / "good.tfrecord", folder / name)
            describe(folder / "good.tfrecord", folder / "vocab.txt")
        describe(folder / name, folder / "vocab.txt", **changes)

    return write


SMALL = {"bert_config_file": "{}/small.json"}
WORDS = [f"{letter}{n}" for letter, count in (("w", 1100), ("W", 50)) for n in range(count)]
CASES = {
    PRETRAIN: {
        "no such file": Case("matches no file", {"input_file": "{}/nothing*"}),
        "beyond positions": Case("max_position_embeddings", {"max_seq_length": 25}),
        "vocabulary of data beyond the table": Case("vocab_size", SMALL, small_table(vocab_size=9)),
        "loss not finite": Case("finite", {"learning_rate": 1e30, "num_train_steps": 30}),
        "checkpoint missing": Case("no checkpoint", {"init_checkpoint": "{}/nowhere"}),
        "case of other data": Case("False in info_*.json", {"do_lower_case": True}, described()),
        "data of two cases": Case(
            "do_lower_case", {"input_file": "{}/good.tfrecord", "eval_input_file": "{}/x",
                              "do_eval": True}, described("x", do_lower_case=True),
        ),
        "some data described": Case(
            "x, without", {"input_file": "{}/*.tfrecord,{}/x", "vocab_file": "{}/vocab.txt"},
            lambda folder: (described("x")(folder), (folder / "info_x.json").unlink()),
        ),
        "vocabulary of other data": Case(
            "another vocabulary: vocab.txt with 101", {"vocab_file": "{}/fewer.txt"},
            lambda folder: (write_vocabulary(folder / "fewer.txt", 99), described()(folder)),
        ),
    },
    CREATE: {
        "cased vocabulary": Case(
            "use --nodo_lower_case", {"vocab_file": "{}/cased.txt", "do_lower_case": True},
            text("cased.txt", *SPECIAL_PIECES, *WORDS),
        ),
    },
}  # fmt: skip
GOOD_FLAGS = {
    CREATE: {
        "input_file": "{}/text.txt", "output_file": "{}/made.tfrecord",
        "vocab_file": "{}/vocab.txt", "num_workers": 1,
    },
    PRETRAIN: {
        "input_file": "{}/good.tfrecord", "bert_config_file": "{}/bert_config.json",
        "output_dir": "{}/run", "do_train": True, "strategy": "one", "train_batch_size": 4,
        "num_train_steps": 2, "num_warmup_steps": 0, **SIZES,
    },
}  # fmt: skip


def prepared(script: str, case: Case, folder: pathlib.Path) -> dict[str, Any]:
    """Good input and the bad one; the flags."""
    write_config(folder / "bert_config.json")
    write_vocabulary(folder / "vocab.txt")
    write_records(folder / "good.tfrecord", 8, seed=9)
    (folder / "text.txt").write_text("w1 w2 w3.\nw4 w5.\n\nw6 w7.\nw8 w9 w1.\n")
    case.prepare(folder)
    return {
        name: value.replace("{}", str(folder)) if isinstance(value, str) else value
        for name, value in (GOOD_FLAGS[script] | case.flags).items()
    }


def check_what_is_left(folder: pathlib.Path, before: set[pathlib.Path]) -> None:
    """A run that began may leave its configuration and summaries: no checkpoint, no results."""
    left = (p.relative_to(folder) for p in folder.rglob("*") if p not in before and p.is_file())
    allowed = ("run/bert_config.json", "run/model_facts.json", "run/events.out", "run/eval/events")
    assert [name for name in map(str, left) if not name.startswith((*allowed, "index_"))] == []


@pytest.mark.parametrize(
    ("script", "name"), [(script, name) for script, cases in CASES.items() for name in cases]
)
def test_bad_input(script, name, tmp_path):
    flags = prepared(script, CASES[script][name], tmp_path)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(InputError) as caught, in_process(script) as main:
        main(**flags)
    parts = (caught.value.received, caught.value.expected, caught.value.remedy)
    assert all(parts)
    assert CASES[script][name].says in "\n".join(parts)
    check_what_is_left(tmp_path, before)


def test_bad_input_through_the_script(tmp_path):
    """What a process adds: the exit code, no traceback, and no waiting at the end.

    Here the error comes out of the pipeline of the data while it trains.
    """
    case = Case("", SMALL, lambda folder: write_config(folder / "small.json", vocab_size=23))
    flags = prepared(PRETRAIN, case, tmp_path)
    before = set(tmp_path.rglob("*"))
    ended = run(PRETRAIN, code=1, **flags)
    assert "Traceback" not in ended.stderr
    parts = [ended.stderr.find(f"\n{part}: ") for part in ("Received", "Expected", "To do")]
    assert -1 < parts[0] < parts[1] < parts[2], ended.stderr
    assert "good.tfrecord, record" in ended.stderr[parts[0] :]
    check_what_is_left(tmp_path, before)
