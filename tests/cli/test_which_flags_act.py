"""Every option of a run acts, is named or refused: by its declaration, and by what a run reads.

A cell is a command, an option and a kind of run. What acts by its declaration is read by the run,
and what does nothing is not. New options are in these tests by themselves.
"""

import contextlib
import dataclasses
import io
import json
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import model_files
import pytest
import small
from walking import (
    ROOT,
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

# Read before `main`, when it was interrupted, or of words in tests/tasks/test_word_files.py.
ELSEWHERE = {"do_eval", "sigterm_exit_code", "sentence_column"}
AT_ONCE = {options.__file__, dataclasses.__file__}  # what reads all options at once
MAKERS = {"of": "group", "replace": "obj"}  # functions, and what of theirs is copied
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
    ("run_classifier.py", "do_train do_eval eval_steps"),
    ("run_squad.py", "do_train"),
    ("run_squad.py", "do_predict"),
    ("run_squad.py", "do_train do_predict do_eval eval_steps"),
]
VALUES = {"eval_steps": 1}  # of modes that are no switches
OF_TPUS = {"tpu_zone", "gcp_project"}  # which no run here has
READ: dict[str, set[str]] = {}  # by the runs of a script so far
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
    for name in ("rows.csv", "dev.csv"):
        (folder / name).write_text(CSV)
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
    files = {"train_file": rows, "dev_file": inputs / "dev.csv", "test_file": rows}
    asked = {"train_file": questions, "predict_file": questions}
    return {
        "run_pretraining.py": SIZES | model | pretraining,
        "run_classifier.py": SHORT | model | files | {"labels": "a,b"},
        "run_squad.py": SHORT | model | asked | {"version_2_with_negative": True} | WINDOWS,
    }


@contextlib.contextmanager
def reading(given: Options) -> Iterator[set[str]]:
    """The names of the options of a command that are read meanwhile, each by itself.

    Read from what it was given, its groups, and what is made of these by `Options.of` or
    `dataclasses.replace`; not from groups that somebody else has made of defaults.
    """
    names: set[str] = set()
    ours = {id(group): group for group in with_groups(given)}
    check = Options.__post_init__

    def read(self: Options, name: str) -> Any:
        if id(self) in ours and sys._getframe(1).f_code.co_filename not in AT_ONCE:
            names.update({name} & {one.name for one in options_of(type(self))})
        return object.__getattribute__(self, name)

    def note(self: Options) -> None:
        frame = sys._getframe(1)
        for _ in range(4):  # within __init__ of what is made; its maker
            source = frame.f_locals.get(MAKERS.get(frame.f_code.co_name, ""))
            if id(source) in ours:
                ours[id(self)] = self
            frame = frame.f_back
        check(self)

    Options.__getattribute__ = read
    Options.__post_init__ = note
    try:
        yield names
    finally:
        del Options.__getattribute__
        Options.__post_init__ = check


def with_groups(given: Options) -> Iterator[Options]:
    """Options, and all their groups."""
    yield given
    for value in vars(given).values():
        if isinstance(value, Options):
            yield from with_groups(value)


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


class Sizes(Windows):
    """What takes them."""

    more: int = 3


class Reader(Options):
    """A command with a group."""

    windows: Windows = Windows()


def test_the_spy_tells_an_option_that_is_read_from_one_that_is_handed_on():
    given = Windows()
    command = Reader(windows=given)
    with reading(command) as names:
        copy = dataclasses.replace(given)
        options.recorded(command)
        sizes = Sizes.of(copy)
        assert Windows().stride == sizes.more == 3  # of another
        assert names == set()
        assert given.length == 7
        assert names == {"length"}
        assert sizes.stride == 3
    assert names == {"length", "stride"}
    assert "__getattribute__" not in vars(Options)
    assert declared(given) == {"stride": True}
    assert declared(Windows(length=5)) == {"stride": False}


@pytest.mark.parametrize(("script", "modes"), RUNS)
def test_options_of_a_run(script, modes, given, tmp_path, monkeypatch, caplog, record_property):
    """Those that act are read; of the others the original's change no byte, ours are refused."""
    module, found = module_of(script), {}
    ended = module.main

    def main(options):
        with reading(options) as read:
            ended(options)
        found["read"], found["acts"] = set(read), declared(options)
        READ.setdefault(script, set()).update(read)

    plain = given[script] | {mode: VALUES.get(mode, True) for mode in modes.split()}
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


@pytest.mark.parametrize("script", FEW_STEPS)
def test_every_option_of_a_script_is_read_in_some_run(script):
    """Also those that act with another option alone."""
    assert script in READ, "this comes behind the runs"
    listed = options_of(options_class(module_of(script).main))
    known = {one.name for one in listed if (options.NEVER,) not in one.acts}
    assert known - READ[script] - ELSEWHERE - OF_TPUS == set()


@pytest.mark.parametrize("script", FEW_STEPS)
def test_what_acts_in_training_says_whether_it_changes_the_result(script):
    """Checkpoints record what does: a resumed run is compared with that."""
    for one in options_of(options_class(module_of(script).main)):
        acts = {mode for modes in one.acts for mode in modes}
        if "do_train" in acts:
            assert one.says("recorded") is not None, f"say recorded=True or False of {one.name}"


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Models with heads, and what they are asked."""
    folder = tmp_path_factory.mktemp("asked")
    for kind, head in (("pretraining", "pretraining"), ("classifier", "classification")):
        tensors = model_files.tensors_of(kind, small.CONFIG)
        model_files.write_tf1(
            folder / kind, tensors, config=small.CONFIG, pieces=model_files.PIECES
        )
        known = {"do_lower_case": True, "max_seq_length": 7}
        known |= {"task": head, "labels": ["a", "b", "c"]} if kind == "classifier" else {}
        (folder / kind / "model_facts.json").write_text(json.dumps(known))
    (folder / "rows.csv").write_text("text\nw1 w2\nw3\n")
    (folder / "texts.txt").write_text("w1 w2\nw3\n")
    questions = squad_file(5, seed=2)
    (folder / "squad.json").write_text(json.dumps(questions))
    answers = {f"q{number}": "" for number in range(5)}
    (folder / "answers.json").write_text(json.dumps(answers))
    (folder / "odds.json").write_text(json.dumps(dict.fromkeys(answers, 0.5)))
    return folder


ASKED = {  # commands, and their words and flags in which all options act
    "features": "--init_checkpoint=IN/pretraining --input_file=IN/texts.txt --max_seq_length=7 "
                "--output_file=OUT/v.npz",
    "score": "--init_checkpoint=IN/pretraining --input_file=IN/texts.txt",
    "fill-mask": "--init_checkpoint=IN/pretraining",  # of standard input
    "convert": "--from=IN/pretraining --to=OUT/new --extra_tokens=x1",
    "predict": "--model=IN/classifier --input_file=IN/rows.csv --output_file=OUT/answers.csv",
    "evaluate-squad": "IN/squad.json IN/answers.json --na_prob_file=IN/odds.json",
    "plan": "--bert_config_file=IN/pretraining/bert_config.json --max_seq_length=7",
}  # fmt: skip
# Whose options go to a class or to many heads: each is looked for in the code that takes them.
TAKERS = {
    "export": "bert_tf/serving/*.py bert_tf/cli/export.py bert_tf/checkpoints/loading.py",
    "serve": "bert_tf/serving/*.py bert_tf/http/*.py bert_tf/cli/serve.py",
    "plot": "bert_tf/cli/plot.py",
    "data": "data_gen/*.py create_pretraining_data.py",
    "vocab": "data_gen/*.py bert_tf/cli/vocab.py",
    "beam-data": "data_gen/*.py bert_tf/cli/beam_data.py",
}


def test_every_command_has_its_options_read_somewhere_here():
    scripts = {"pretrain", "classify", "squad"}
    assert scripts | ASKED.keys() | TAKERS.keys() == VERBS.keys() - {"check"}  # which has none


@pytest.mark.parametrize("verb", ASKED)
def test_options_of_a_command_that_asks(verb, asked, tmp_path, monkeypatch):
    module, read = module_of(verb), set()
    ended = module.main

    def main(options):
        with reading(options) as names:
            ended(options)
        read.update(names)

    words = ASKED[verb].replace("IN/", f"{asked}/").replace("OUT/", f"{tmp_path}/").split()
    known = {one.name for one in options_of(options_class(ended))
             if (options.NEVER,) not in one.acts}  # fmt: skip
    with in_process(verb) as call, eagerly():
        monkeypatch.setattr(module, "main", main)
        monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(b"w1[MASK]\n")))
        call(*words)
    assert known - read == set(), "not read"


@pytest.mark.parametrize("verb", TAKERS)
def test_options_that_are_handed_on_by_name(verb):
    paths = [path for pattern in TAKERS[verb].split() for path in ROOT.glob(pattern)]
    code = "".join(path.read_text() for path in paths if path.name != "options.py")
    for one in options_of(options_class(module_of(verb).main)):
        taker = r"\b(options|given|chosen|group|limits|self|job)\.(\w+\.)?"
        parameter = rf"^    {one.name}: .* = None,$"
        taken_there = re.search(rf"{taker}{one.name}\b|\"{one.name}\"|{parameter}", code, re.M)
        assert taken_there, f"nothing takes {one.name}"


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
