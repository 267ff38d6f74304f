"""Commands in a new process that has imported nothing else, with paths as people write them.

Each answers what the same call with absolute paths answers in this process, which has made the
model.
"""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import served_models
from walking import COMPILE_QUICKLY, ROOT, SECONDS, contents, in_process, squad_file

import bert_tf
from bert_tf.__main__ import VERBS

pytestmark = pytest.mark.walk
PLACE = "lr=[1e-4] ü 中"
TEXTS = ("who founded it", "Ruprecht, the café, in 1386", "by")


def lines_in(name: str) -> Callable[[pathlib.Path], Any]:
    """The lines of JSON of an output."""
    return lambda out: [*map(json.loads, (out / name).read_text().splitlines())]


def null_odds(out: pathlib.Path) -> Any:
    """Of each question."""
    return json.loads((out / "run/null_odds.json").read_text())


def exported(out: pathlib.Path) -> Any:
    """What an export answers."""
    return bert_tf.Predictor(out / "export").predict([("who?", "Ruprecht founded it in 1386.")])


class Call(NamedTuple):
    """A command line, in which PLACE is the folder of model, inputs and outputs.

    Attributes:
      kind: of the model, as of `served_models`.
      model: its path below PLACE/model: a folder, a file of Keras or of weights.
      words: after the verb.
      answer: what it has computed, of the folder of its outputs.
      prefix: how PLACE is written from the folder cwd beside it, in the home folder.
    """

    kind: str
    model: str
    words: str
    answer: Callable[[pathlib.Path], Any]
    prefix: str


CALLS = {
    "features": Call("classification", "model.keras", """--init_checkpoint=MODEL
        --layers=-1 --max_seq_length=12 --input_file=PLACE/texts.txt
        --output_file=OUT/f.jsonl""", lines_in("f.jsonl"), "../{}"),
    "score": Call("fill_mask", "model.weights.h5", """--init_checkpoint=MODEL
        --input_file=PLACE/texts.txt --output_file=OUT/s.jsonl""", lines_in("s.jsonl"), "~/{}"),
    "squad": Call("no_answer", "", """--init_checkpoint=MODEL --output_dir=OUT/run/ --do_predict
        --predict_file=PLACE/squad.json --version_2_with_negative --doc_stride=3
        --max_query_length=4 --max_seq_length=13 --noxla""",
        null_odds, "{home}/link"),
    "export": Call("question_answering", "model.keras", """--init_checkpoint=MODEL
        --export_dir=OUT/export/""", exported, "./../{}"),
}  # fmt: skip
ELSEWHERE = {  # verbs that other tests call in new processes
    **dict.fromkeys(("vocab", "data", "pretrain", "fill-mask", "plot", "classify",
                     "predict"), "examples/test_demo"),
    "convert": "faults/test_faults",
    "playground": "walks/test_predict",
    **dict.fromkeys(("evaluate-squad", "plan"), "cli/test_flags"),
    "check": "runs itself again, to be killed: cli/test_check",
    "beam-data": "as data, with an engine of its own: data_gen/test_beam",
}  # fmt: skip


def test_every_verb_is_called_in_a_new_process():
    assert CALLS.keys() | ELSEWHERE.keys() == VERBS.keys()


@pytest.fixture
def home(tmp_path) -> pathlib.Path:
    """A home folder with inputs, and a folder to call commands from."""
    home = tmp_path / "home"
    (home / "cwd").mkdir(parents=True)
    (home / PLACE).mkdir()
    (home / "link").symlink_to(PLACE)
    (home / PLACE / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (home / PLACE / "squad.json").write_text(json.dumps(squad_file(5, seed=7)))
    return home


def write_model(call: Call, place: pathlib.Path) -> None:
    """The model of a call, under the name that it is given by."""
    served_models.write_folder(call.kind, place / "model")
    if not call.model:
        return
    shutil.move(place / "model", place / "run")
    model, _ = bert_tf.load(place / "run")
    (place / "model").mkdir()
    if call.model.endswith(".keras"):
        model.save(place / "model" / call.model)
    else:
        model.save_weights(place / "model" / call.model)
        for name in ("bert_config.json", "vocab.txt", "model_facts.json"):
            shutil.copy(place / "run" / name, place / "model")
    shutil.rmtree(place / "run")


def close(one: Any, other: Any) -> bool:
    """Whether two answers are equal, numbers up to rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return one == (pytest.approx(other, abs=1e-5) if isinstance(one, float) else other)


@pytest.mark.parametrize("verb", CALLS)
def test_a_command_answers_as_in_this_process(verb, home, tmp_path):
    call, place = CALLS[verb], home / PLACE
    write_model(call, place)
    model = f"PLACE/model/{call.model}".rstrip("/")
    words = call.words.replace("MODEL", model)

    def words_at(prefix: str, out: str) -> list[str]:
        return [w.replace("OUT", out).replace("PLACE", prefix) for w in shlex.split(words)]

    (tmp_path / "here").mkdir()
    with in_process(verb) as main:
        main(*words_at(str(place), str(tmp_path / "here")))
    (place / "out").mkdir()
    before = contents(home).keys()
    prefix = call.prefix.format(PLACE, home=home)
    command = [sys.executable, "-m", "bert_tf", verb, *words_at(prefix, f"{prefix}/out")]
    environment = {**os.environ, **COMPILE_QUICKLY, "HOME": str(home)}
    environment.setdefault("PYTHONPATH", str(ROOT))
    options = {"cwd": home / "cwd", "env": environment, "capture_output": True, "text": True}
    ended = subprocess.run(command, timeout=SECONDS, **options)
    assert ended.returncode == 0, ended.stderr
    found, expected = call.answer(place / "out"), call.answer(tmp_path / "here")
    assert found
    assert close(found, expected), (found, expected)
    written = contents(home).keys() - before
    ignored = (f"{PLACE}/out/", ".keras/", ".cache/", ".config/")  # the others are of libraries
    assert not [name for name in written if not name.startswith(ignored)]
