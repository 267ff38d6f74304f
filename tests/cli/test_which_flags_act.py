"""Every flag of a run acts, is named or refused: by its declaration, and by what a run reads.

A cell is a command, a flag and a kind of run. What acts by its declaration is read by the run, and
what does nothing is not. New flags are in these tests by themselves.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterator

import pytest
from absl import flags as absl_flags
from walking import (
    SIZES,
    eagerly,
    in_process,
    module_of,
    results_of,
    squad_file,
    write_encoder,
    write_records,
)

from bert_tf.__main__ import VERBS
from bert_tf.cli import flags
from bert_tf.cli.flags import FLAGS, check_effects
from bert_tf.errors import InputError

ELSEWHERE = {"do_eval", "do_lower_case", "sigterm_exit_code", "tfds_name"}  # read before or behind
RECORDS = {"write_record", "all_run_settings"}  # where all flags are read at once
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
    """The names of the flags whose value is read meanwhile, but by RECORDS."""
    names, value = set(), absl_flags.Flag.value

    def read(flag):
        frame, callers = sys._getframe(1), set()
        for _ in range(4):
            callers.add(frame.f_code.co_name)
            frame = frame.f_back
        if not callers & RECORDS:
            names.add(flag.name)
        return value.fget(flag)

    absl_flags.Flag.value = value.getter(read)
    try:
        yield names
    finally:
        absl_flags.Flag.value = value


def declared(before: set[str]) -> dict[str, bool]:
    """Of each flag of the command that does not act in all runs: whether it does in this one."""
    said = {name: FLAGS[name].acts for name in {*FLAGS} - before if FLAGS[name].acts}
    return {name: all(any(map(flags._is_mode, m)) for m in modes) for name, modes in said.items()}


def another(flag: absl_flags.Flag) -> str:
    """A value that a command line may give, not the default."""
    match flag.flag_type():
        case "bool":
            return "false" if flag.default else "true"
        case "int" | "float" | "numbers":
            found = ((word, _parsed(flag, word)) for word in ("3", "0.5", "2", "1"))
            return next(word for word, value in found if value not in (None, flag.default))
        case "string enum":
            return next(v for v in flag.parser.enum_values if v != flag.default)
    return "another"


def _parsed(flag: absl_flags.Flag, word: str) -> object:
    """The value of a word; None if the flag refuses it."""
    with contextlib.suppress(ValueError):
        return flag.parser.parse(word)


@pytest.mark.parametrize(("script", "modes"), RUNS)
def test_flags_of_a_run(script, modes, given, tmp_path, monkeypatch, caplog, record_property):
    """Those that act are read; of the others the original's change no byte, ours are refused."""
    module, before, found = module_of(script), {*FLAGS}, {}

    def main(words):
        with reading() as read:
            ended(words)
        found["read"], found["acts"] = set(read), declared(before)
        found["always"] = {n for n in {*FLAGS} - before - ELSEWHERE if not FLAGS[n].acts}

    ended = module.main
    monkeypatch.setattr(module, "main", main)
    plain = given[script] | dict.fromkeys(modes.split(), True)
    plain |= FEW_STEPS[script] if "do_train" in modes else {}
    plain |= {"max_eval_steps": 2} if script == "run_pretraining.py" and "eval" in modes else {}
    with in_process(script) as call, eagerly():
        if "do_train" not in modes:  # a model with a head comes first
            model = given[script] | FEW_STEPS[script] | {"output_dir": tmp_path / "model"}
            call(**model, do_train=True)
            plain["init_checkpoint"] = tmp_path / "model"
        call(**plain)
        acts = {name for name, acting in found["acts"].items() if acting}
        idle = found["acts"].keys() - acts
        assert acts - found["read"] == set(), "declared to act, but not read"
        assert found["always"] - found["read"] == set(), "not read: say in _acts when they act"
        others = {name: another(FLAGS[name]) for name in sorted(idle)}
        for name in idle - flags.ORIGINALS:
            with pytest.raises(InputError, match=f"--(no)?{name} with(out)? --"):
                call(**plain | {name: others[name], "output_dir": tmp_path / "other"})
        named = {name: others[name] for name in idle & flags.ORIGINALS}
        call(**plain | named | {"output_dir": tmp_path / "other"})
    for name in named:
        assert re.search(f"Without effect in this run: .*--{name}[,.]", caplog.text)
    assert results_of(tmp_path / "other") == results_of(tmp_path / "out")
    record_property("cells", len(found["acts"]) + len(found["always"]))


@pytest.mark.parametrize("verb", OTHERS)
def test_flags_of_other_commands(verb, record_property):
    """Those that do nothing are refused before anything is read, or named."""
    before = {*FLAGS}
    with in_process(verb):
        FLAGS.unparse_flags()
        FLAGS([verb, *OTHERS[verb].split()])
        check_effects()
        others = {name: another(FLAGS[name]) for name, acts in declared(before).items() if not acts}
        for name, value in others.items():
            FLAGS([verb, *OTHERS[verb].split(), f"--{name}={value}"])
            if name in flags.ORIGINALS:
                check_effects()
            else:
                with pytest.raises(InputError, match=f"--(no)?{name} without --"):
                    check_effects()
            FLAGS[name].unparse()
        record_property("cells", len(others))
        assert others


@pytest.mark.parametrize("command", VERBS)
def test_declarations_name_flags_of_their_command(command):
    """A flag acts with at least one that the command has."""
    before = {*FLAGS}
    with in_process(command):
        names = {*FLAGS} - before
        for name in names:
            modes = {mode.partition("=")[0] for any_of in FLAGS[name].acts for mode in any_of}
            assert not modes or modes & names, f"{command} has no flags with which --{name} acts"
