"""The flags of every command: those that version 0.1.0 had, and answers before TensorFlow loads."""

import json
import pathlib
import signal
import subprocess
import sys

import model_files
import pytest
from absl import flags as absl_flags
from walking import in_process

from bert_tf import __main__ as command_line
from bert_tf.cli import flags
from bert_tf.cli.main import Stopped

ROOT = pathlib.Path(__file__).parents[2]
BEFORE = json.loads((ROOT / "tests/fixtures/flags_0_1_0.json").read_text(encoding="utf-8"))
COMMANDS = {  # script of version 0.1.0: today's script or verb
    "run_pretraining.py": "run_pretraining.py",
    "run_classifier.py": "run_classifier.py",
    "run_squad.py": "run_squad.py",
    "create_pretraining_data.py": "create_pretraining_data.py",
    "extract_features.py": "extract_features.py",
    "convert_checkpoint.py": "convert",
    "export_model.py": "export",
    "fill_mask.py": "fill-mask",
    "plan.py": "plan",
    "plot_curves.py": "plot",
    "predict.py": "predict",
    "demo.py": "demo",
    "data_gen/build_vocab.py": "vocab",
    "data_gen/create_pretraining_data.py": "data",
    "data_gen/beam_pretraining_data.py": "beam-data",
    "bert_tf.squad_evaluate": "evaluate-squad",
    "bert_tf.playground": "playground",
}
OF_HANGS = ("hang_seconds", "end_when_hung")
OF_TEXT = {"words_from_spaces", "one_draw_per_word", "never_split"}
ADDED = {  # since then, by today's script or verb
    "create_pretraining_data.py": {"num_shards", *OF_TEXT},
    "data": {"num_shards", *OF_TEXT},
    "beam-data": OF_TEXT,
    "run_pretraining.py": {"stop_at_step", *OF_HANGS},
    "run_classifier.py": {"doc_stride", "document_context", *OF_HANGS},
    "run_squad.py": {"eval_steps", "early_stopping", *OF_HANGS},
    "plan": {"device", "price_per_hour"},
    "convert": {"max_position_embeddings", "never_split"},
}
SCRIPTS = [name for name in COMMANDS.values() if name.endswith(".py")]
# Of each kind of command, one that contradicts itself.
CONFLICTS = {
    "run_squad.py": ["--output_dir=x", "--do_eval"],
    "run_pretraining.py": ["--output_dir=x", "--input_file=x", "--bert_config_file=x"],
    "run_classifier.py": ["--output_dir=x", "--task_name=mrpc", "--do_train"],
    "create_pretraining_data.py": [
        *("--input_file=x", "--output_file=x", "--vocab_file=x", "outside")
    ],
    "data": [*("--input_file=x", "--output_file=x", "--vocab_file=x", "--words_from_spaces")],
    "playground": [],
    "plan": [],
}


def program(command: str) -> list[str]:
    """The words that start a script or a verb, listing on the error stream what is imported."""
    start = [command] if command.endswith(".py") else ["-m", "bert_tf", command]
    return [sys.executable, "-X", "importtime", *start]


def imported(errors: str) -> set[str]:
    """The modules in what `-X importtime` writes."""
    lines = [line for line in errors.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def answer(command: str, *words: str) -> tuple[subprocess.CompletedProcess, set[str]]:
    """How a command ended, and the modules that it imported."""
    ended = subprocess.run([*program(command), *words], capture_output=True, text=True, cwd=ROOT)
    found = imported(ended.stderr)
    assert "absl.flags" in found
    return ended, found


@pytest.mark.parametrize("before", COMMANDS)
def test_flags_and_defaults_are_those_of_the_first_version(before):
    expected = {name: flag for name, flag in BEFORE[before].items() if name != "usage"}
    own = set(absl_flags.FLAGS)
    with in_process(COMMANDS[before]):
        names = set(absl_flags.FLAGS) - own
        assert ADDED.get(COMMANDS[before], set()) <= names
        names -= ADDED.get(COMMANDS[before], set())
        found = {
            name: {
                "choices": sorted(getattr(flag.parser, "enum_values", None) or []) or None,
                "default": flag.default,
                "required": any("required" in str(v.message) for v in flag.validators),
                "type": flag.flag_type(),
            }
            for name, flag in ((name, absl_flags.FLAGS[name]) for name in names)
        }
    for flag in expected.values():
        flag["choices"] = flag["choices"] and sorted(flag["choices"])
    assert found == expected


@pytest.mark.parametrize("command", sorted({*COMMANDS.values()}))
def test_every_number_has_bounds(command):
    """Nor is any default or usual value outside of them."""
    own = set(absl_flags.FLAGS)
    with in_process(command):
        flags_of_it = [absl_flags.FLAGS[name] for name in set(absl_flags.FLAGS) - own]
        for flag in flags_of_it:
            kind = flag.flag_type()
            refused = {"int": ["1" + "0" * 20, "-1" + "0" * 20], "float": ["nan"]}.get(kind, [])
            if kind == "float" and flag.name != "na_prob_thresh":  # there all answers count
                refused.append("inf")
            for word in refused:
                with pytest.raises(absl_flags.IllegalFlagValueError, match=f"--{flag.name}={word}"):
                    flag.parse(word)
            if flag.default is not None and refused:
                assert flag.parser.parse(str(flag.default)) == flag.default


@pytest.mark.parametrize("command", ["run_squad.py", "run_pretraining.py", "run_classifier.py"])
@pytest.mark.parametrize(
    "words",
    [
        ["--train_batch_size=65536", "--seed=0", "--save_checkpoints_steps=1000000"],
        ["--seed=4294967295", "--keep_checkpoint_max=0", "--end_learning_rate=0", "--log_steps=1"],
    ],
)
def test_usual_and_extreme_uses_are_within_bounds(command, words):
    with in_process(command):
        for word in words:
            name, _, value = word.removeprefix("--").partition("=")
            absl_flags.FLAGS[name].parse(value)


@pytest.mark.parametrize("command", sorted({*COMMANDS.values()}))
def test_help_comes_before_tensorflow(command):
    ended, found = answer(command, "--help")
    assert "tensorflow" not in found
    assert "keras" not in found
    assert "--" in ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["run_squad.py", "run_classifier.py", "predict", "vocab"])
def test_a_misspelt_flag_is_answered_before_tensorflow(command):
    ended, found = answer(command, "--init_chekpoint=x", "--do_lowercase")
    assert ended.returncode == 1
    assert "tensorflow" not in found
    assert "Unknown command line flag" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("words", [[], ["--output_file="]])
def test_a_required_flag_that_is_absent_or_empty_is_answered_before_tensorflow(words):
    given = ["--input_file=x", "--vocab_file=y", *words]
    ended, found = answer("create_pretraining_data.py", *given)
    assert ended.returncode == 1
    assert "tensorflow" not in found
    assert "write --output_file=VALUE" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", CONFLICTS)
def test_a_conflict_is_answered_before_tensorflow(command):
    ended, found = answer(command, *CONFLICTS[command])
    assert ended.returncode == 1
    assert "tensorflow" not in found
    assert "Received: " in ended.stderr
    assert "To do: " in ended.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--help"], "evaluate-squad"),
        ([], "usage: bert-tf VERB"),
        (["exprot"], "did you mean bert-tf export?"),
        (["xyzzy"], "bert-tf --help lists them"),
    ],
)
def test_the_verbs_are_listed(words, says):
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bert_tf", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert says in ended.stdout + ended.stderr
    assert ended.returncode == (0 if "unknown" not in ended.stderr else 1)
    assert "tensorflow" not in imported(ended.stderr)


def test_signals_before_a_verb_has_prepared_itself_and_after(monkeypatch, capsys):
    errors = iter([KeyboardInterrupt(), Stopped(signal.SIGTERM)])

    def stop(*_) -> None:
        raise next(errors)

    monkeypatch.setattr(command_line, "run_module", stop)
    monkeypatch.setattr(sys, "argv", ["bert-tf", "plan"])
    assert command_line.main() == 130
    assert capsys.readouterr().err == "\nbert-tf: ended by Ctrl-C.\n"
    with pytest.raises(Stopped):  # the exception hook has its message and exit code
        command_line.main()


def test_verbosity_is_that_of_the_command(tmp_path):
    """At -1 only warnings are logged, which the first line of a training is not."""
    (tmp_path / "texts.txt").write_text("A boat.\n")
    model = model_files.write_tf1(tmp_path / "model", model_files.tensors_of())
    words = [f"--init_checkpoint={model}", f"--input_file={tmp_path}/texts.txt"]
    words += [f"--output_file={tmp_path}/vectors.jsonl", "--layers=-1", "--max_seq_length=9"]
    logged = {
        level: answer("extract_features.py", *words, f"--verbosity={level}")[0].stderr
        for level in (-1, 0)
    }
    assert "Wrote the vectors" in logged[0]
    assert "Wrote the vectors" not in logged[-1]


def test_a_number_may_be_minus_infinity_but_not_nan():
    """--null_score_diff_threshold=-inf answers no question."""
    parser = flags._Number()
    assert parser.parse("-inf") == float("-inf")
    for word in ("nan", "inf"):
        with pytest.raises(ValueError, match="not a finite number"):
            parser.parse(word)
    with pytest.raises(ValueError, match="not"):
        flags._Number(lower_bound=0.0).parse("-inf")
