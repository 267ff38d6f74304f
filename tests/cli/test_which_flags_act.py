"""Every option of a run acts, is named or refused: by its declaration, and by what a run reads.

A cell is a command, an option and a kind of run. What acts by its declaration is read by the run,
and what does nothing is not. New options are in these tests by themselves.
"""

import contextlib
import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from walking import (
    SIZES,
    eagerly,
    in_process,
    module_of,
    parsed,
    results_of,
    squad_file,
    write_encoder,
    write_records,
)

from bert_tf import options
from bert_tf.__main__ import VERBS
from bert_tf.cli.command_line import written
from bert_tf.cli.flags import taken
from bert_tf.cli.main import options_class
from bert_tf.errors import InputError
from bert_tf.options import Option, Options, is_set, option, options_of, values_of

ELSEWHERE = {"do_eval", "sigterm_exit_code"}  # read before `main`, or when it was interrupted
AT_ONCE = {options.__file__, dataclasses.__file__}  # what reads all options at once
CSV = "\n".join(["text_a,label", *(f"w{n} w{n + 3},{'ab'[n % 2]}" for n in range(1, 13))])
SHORT = {"max_seq_length": 17, "strategy": "one"}
WINDOWS = {"max_query_length": 4, "doc_stride": 4}
EPOCH = {"train_batch_size": 4, "num_train_epochs": 1}
FEW_STEPS = {
    "run_pretraining.py": {"train_batch_size": 4, "num_train_steps": 2},
    "run_classifier.py": EPOCH,
    "run_squad.py": EPOCH,
}
RUNS = [
    ("run_pretraining.py", "do_train"),
    ("run_pretraining.py", "do_eval"),
    ("run_pretraining.py", "do_train do_eval"),
    ("run_classifier.py", "do_train"),
    ("run_classifier.py", "do_eval"),
    ("run_classifier.py", "do_predict"),
    ("run_classifier.py", "do_train do_eval do_predict"),
    ("run_squad.py", "do_train"),
    ("run_squad.py", "do_predict"),
    ("run_squad.py", "do_train do_predict"),
]
OTHERS = {  # other commands, of which some flags act in some calls alone
    "data": "--input_file=a --output_file=b --vocab_file=c",
    "evaluate-squad": "a b",
    "convert": "inspect --from=a",
    "features": "--input_file=a --output_file=b --init_checkpoint=c",
    "predict": "--model=a --output_file=b.jsonl",
    "plan": "--bert_config_file=a --task=classification",
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A fresh encoder, and data of every script."""
    folder = tmp_path_factory.mktemp("effects")
    write_encoder(folder, num_hidden_layers=1)
    write_records(folder / "records", 8, seed=1)
    (folder / "rows.csv").write_text(CSV)
    (folder / "squad.json").write_text(json.dumps(squad_file(5, seed=2)))
    return folder


@pytest.fixture
def given(inputs, tmp_path) -> dict[str, dict]:
    """The flags of a run of each script."""
    model = {"init_checkpoint": inputs, "output_dir": tmp_path / "out"}
    rows, questions = inputs / "rows.csv", inputs / "squad.json"
    pretraining = {
        "input_file": inputs / "records",
        "bert_config_file": inputs / "bert_config.json",
    }
    files = {"train_file": rows, "dev_file": rows, "test_file": rows}
    asked = {"train_file": questions, "predict_file": questions}
    return {
        "run_pretraining.py": SIZES | model | pretraining,
        "run_classifier.py": SHORT | model | files | {"labels": "a,b"},
        "run_squad.py": SHORT | model | asked | {"version_2_with_negative": True} | WINDOWS,
    }


@contextlib.contextmanager
def reading() -> Iterator[set[str]]:
    """The names of the options that are read meanwhile, each by itself."""
    names: set[str] = set()

    def read(self: Options, name: str) -> Any:
        if sys._getframe(1).f_code.co_filename not in AT_ONCE:
            names.update({name} & {one.name for one in options_of(type(self))})
        return object.__getattribute__(self, name)

    Options.__getattribute__ = read
    try:
        yield names
    finally:
        del Options.__getattribute__


def declared(given: Options) -> dict[str, bool]:
    """Of each option that does not act in all runs: whether it does in this one."""
    values = values_of(given)
    return {
        one.name: all(is_set(modes, values) for modes in one.acts)
        for one in options_of(type(given))
        if one.acts
    }


def another(one: Option) -> str:
    """A value that a command line may give, not the default."""
    if one.kind is bool:
        return "false" if one.shown else "true"
    if choices := one.says("choices"):
        return next(choice for choice in choices if choice != one.default)
    words = ("3", "0.5", "2", "1") if one.kind not in (str, tuple[str, ...]) else ("another",)
    return next(word for word in words if fits(one, word))


def fits(one: Option, word: str) -> bool:
    """Whether a word is a value of the option, and not its default."""
    value = taken(word, one.kind)
    with contextlib.suppress(InputError):
        options.check(one.name, value, one.kind, **one.metadata)
        return value not in (None, one.default, one.shown)
    return False


class Windows(Options):
    """Two options, of which one is read."""

    length: int = option("Tokens.", default=7, low=1)
    stride: int = option("Tokens.", default=3, low=1, acts="length=7")


def test_the_spy_tells_an_option_that_is_read_from_one_that_is_handed_on():
    given = Windows()
    with reading() as names:
        dataclasses.replace(given)
        options.recorded(given)
        Windows.of(given)
        assert names == set()
        assert given.length == 7
    assert names == {"length"}
    assert "__getattribute__" not in vars(Options)
    assert declared(given) == {"stride": True}
    assert declared(Windows(length=5)) == {"stride": False}


@pytest.mark.parametrize(("script", "modes"), RUNS)
def test_options_of_a_run(script, modes, given, tmp_path, monkeypatch, caplog, record_property):
    """Those that act are read; of the others the original's change no byte, ours are refused."""
    module, found = module_of(script), {}
    ended = module.main

    def main(options):
        with reading() as read:
            ended(options)
        found["read"], found["acts"] = set(read), declared(options)

    plain = given[script] | dict.fromkeys(modes.split(), True)
    plain |= FEW_STEPS[script] if "do_train" in modes else {}
    plain |= {"max_eval_steps": 2} if script == "run_pretraining.py" and "eval" in modes else {}
    known = {one.name: one for one in options_of(options_class(ended))}
    with in_process(script) as call, eagerly():
        monkeypatch.setattr(module, "main", main)
        if "do_train" not in modes:  # a model with a head comes first
            model = given[script] | FEW_STEPS[script] | {"output_dir": tmp_path / "model"}
            call(**model, do_train=True)
            plain["init_checkpoint"] = tmp_path / "model"
        call(**plain)
        acts = {name for name, acting in found["acts"].items() if acting}
        idle = found["acts"].keys() - acts
        always = known.keys() - found["acts"].keys() - ELSEWHERE
        assert acts - found["read"] == set(), "declared to act, but not read"
        assert always - found["read"] == set(), "not read: say with `acts` when they act"
        others = {name: another(known[name]) for name in sorted(idle)}
        for name in (name for name in idle if not known[name].says("original")):
            with pytest.raises(InputError, match=f"--(no)?{name} with(out)? --"):
                call(**plain | {name: others[name], "output_dir": tmp_path / "other"})
        named = {name: others[name] for name in idle if known[name].says("original")}
        call(**plain | named | {"output_dir": tmp_path / "other"})
    for name in named:
        assert re.search(f"Without effect in this run: .*--{name}[,.]", caplog.text)
    assert results_of(tmp_path / "other") == results_of(tmp_path / "out")
    record_property("cells", len(found["acts"]) + len(always))


@pytest.mark.parametrize("verb", OTHERS)
def test_options_of_other_commands(verb, record_property, caplog):
    """Those that do nothing are refused before anything is read, or named."""
    words = OTHERS[verb].split()
    known = {one.name: one for one in options_of(options_class(module_of(verb).main))}
    idle = [name for name, acts in declared(parsed(verb, *words)).items() if not acts]
    for name in idle:
        flag = f"--{known[name].flag}={another(known[name])}"
        if known[name].says("original"):
            parsed(verb, *words, flag)
            assert f"--{known[name].flag}" in caplog.text
        else:
            with pytest.raises(InputError, match=f"--(no)?{name} without --"):
                parsed(verb, *words, flag)
    record_property("cells", len(idle))
    assert idle


@pytest.mark.parametrize("command", VERBS)
def test_declarations_name_options_of_their_command(command):
    """An option acts with at least one that the command has; defaults are what is declared."""
    listed = options_of(options_class(module_of(command).main))
    names = {one.name for one in listed}
    for one in listed:
        for modes in one.acts:
            known = {mode.partition("=")[0] for mode in modes}
            assert known & {*names, options.NEVER}, f"{command} has none with which {one.name} acts"
        if one.shown is not None and not one.says("words"):
            assert taken(written(one.shown), one.kind) == one.shown or one.kind is bool
