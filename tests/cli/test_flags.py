"""The flags of every command: those that version 0.1.0 had, --help, answers before TensorFlow."""

import ast
import json
import pathlib
import re

import numpy as np
import pytest
from absl import flags as absl_flags
from answering import answers
from walking import in_process, write_config

from bert_tf.__main__ import VERBS
from bert_tf.cli import flags
from bert_tf.training.trainer import TrainingLog

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
OF_TEXT = {"words_from_spaces", "one_draw_per_word", "never_split", "pack", "mask_share",
           "random_share", "unchanged_share"}  # fmt: skip
ADDED = {  # since then, by today's script or verb
    "create_pretraining_data.py": {"num_shards", *OF_TEXT},
    "data": {"num_shards", *OF_TEXT},
    "beam-data": OF_TEXT,
    "run_pretraining.py": {"stop_at_step", *OF_HANGS},
    "run_classifier.py": {"doc_stride", "document_context", "report", *OF_HANGS},
    "run_squad.py": {"eval_steps", "early_stopping", *OF_HANGS},
    "plan": {
        *("device", "price_per_hour", "for", "steps", "pack"),
        *("eval_batch_size", "predict_batch_size", "largest_batch"),
    },
    "convert": {"max_position_embeddings", "never_split"},
    "predict": {"text_a_column", "text_b_column"},
}
# Of each kind of command, one that contradicts itself.
CONFLICTS = {
    "run_squad.py": ["--output_dir=x", "--do_eval"],
    "run_pretraining.py": ["--output_dir=x", "--input_file=x", "--bert_config_file=x"],
    "run_classifier.py": ["--output_dir=x", "--task_name=mrpc", "--do_train"],
    "data": ["--input_file=x", "--output_file=x", "--vocab_file=x", "--words_from_spaces"],
    "playground": [],
    "plan": [],
}


@pytest.mark.parametrize("before", COMMANDS)
def test_flags_and_defaults_are_those_of_the_first_version(before):
    expected = {name: flag for name, flag in BEFORE[before].items() if name != "usage"}
    own = set(absl_flags.FLAGS)
    with in_process(COMMANDS[before]):
        names = set(absl_flags.FLAGS) - own
        assert ADDED.get(COMMANDS[before], set()) <= names
        names -= ADDED.get(COMMANDS[before], set())
        assert all(absl_flags.FLAGS[name].help for name in names)
        found = {
            name: {
                "choices": sorted(getattr(flag.parser, "enum_values", None) or []) or None,
                "default": flag.default,
                "required": any("required" in str(v.message) for v in flag.validators),
                "type": flag.flag_type(),
            }
            for name, flag in ((name, absl_flags.FLAGS[name]) for name in names)
        }
    if "log_steps" in expected:  # now it follows the length of the run
        expected["log_steps"]["default"] = None
    for flag in expected.values():
        flag["choices"] = flag["choices"] and sorted(flag["choices"])
        if flag["choices"] == ["jsonl", "text", "tsv"]:
            flag["choices"] = ["csv", "jsonl", "text", "tsv"]  # read since then
    assert found == expected


USUAL = {"train_batch_size": "65536", "seed": "4294967295", "keep_checkpoint_max": "0",
         "save_checkpoints_steps": "1000000", "end_learning_rate": "0"}  # fmt: skip


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
            if flag.name in USUAL:
                flag.parse(USUAL[flag.name])
            if flag.default is not None and refused:
                assert flag.parser.parse(str(flag.default)) == flag.default


def words_of(command: str) -> list[str]:
    return [command] if command.endswith(".py") else ["bert-tf", command]


PRETRAIN = (
    "run_pretraining.py --output_dir=x --bert_config_file=/etc/passwd --input_file=/nowhere/*.tf"
)
CLASSIFY = "run_classifier.py --output_dir=x --task_name=csv --data_dir=/etc --train_file=no.csv"
REFUSED = {  # what is said of a command line
    "run_squad.py --init_chekpoint=x": "To do: did you mean --init_checkpoint?",
    "bert-tf vocab --output_fle=x": "To do: did you mean --output_file?",
    "bert-tf predict --xyzzy": "Received: --xyzzy, which is unknown\nExpected: the flags",
    "run_squad.py --xla=maybe": "Expected: true or false\nTo do: correct it",
    "run_squad.py --seed=x": "Expected: an integer in the range [0, 4294967295]",
    "run_squad.py --strategy=all": "Expected: one of <auto|",
    "run_squad.py --output_dir": "Received: Missing value for flag --output_dir",
    f"{PRETRAIN} --do_train": "Received: --input_file=/nowhere/*.tf, where there is nothing",
    f"{CLASSIFY} --do_train": "Received: --train_file=no.csv, where there is nothing",
    f"{CLASSIFY} --num_train_epochs=0": "Received: --num_train_epochs=0",
    "bert-tf convert --to=x --from=/no/model.ckpt": "hf:google-bert/bert-base-uncased",
    "bert-tf convert --to=/etc --from=x": "Received: /etc, which already exists",
    "bert-tf playground /no/model": "Received: /no/model, where there is nothing",
}
ANSWERED = {  # what: the command line, the exit code, what is said
    **{f"{c} --help": ([*words_of(c), "--help"], 0, "--") for c in {*COMMANDS.values(), *VERBS}},
    **{f"{c} conflict": ([*words_of(c), *w], 1, "To do: ") for c, w in CONFLICTS.items()},
    "required": (["bert-tf", "data", "--input_file=x"], 1, " --output_file=VALUE"),
    "empty": (["bert-tf", "data", "--output_file="], 1, " --output_file=VALUE"),
    "version": (["bert-tf", "--version"], 0, "bert-tf 0."),
    "help": (["bert-tf", "help", "classify"], 0, "--task_name="),
    "-h": (["bert-tf", "classify", "-h"], 0, "--task_name="),
    **{line: (line.split(), 1, said) for line, said in REFUSED.items()},
    "verbs": (["bert-tf", "--help"], 0, "evaluate-squad"),
    "no verb": (["bert-tf"], 0, "usage: bert-tf VERB"),
    "a misspelt verb": (["bert-tf", "exprot"], 1, "did you mean bert-tf export?"),
    "an unknown verb": (["bert-tf", "xyzzy"], 1, "bert-tf --help lists them"),
    "a word": (
        [
            "create_pretraining_data.py", "--input_file=x", "--output_file=x", "--vocab_file=x",
            "outside",
        ],
        1,
        "'outside' outside any flag",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def answered() -> dict[str, str]:
    """What the command lines of `ANSWERED` say."""
    found = answers(*(words for words, *_ in ANSWERED.values()))
    for (what, (_, code, says)), answer in zip(ANSWERED.items(), found, strict=True):
        assert says in answer.text, (what, answer)
        assert "Traceback" not in answer.text, (what, answer)
        assert answer.code == code, (what, answer)
    return {what: answer.text for what, answer in zip(ANSWERED, found, strict=True)}


def test_work_without_tensorflow(tmp_path):
    """Verbs that compute nothing with it, on local files."""
    log = TrainingLog(str(tmp_path), 1, 100)
    log.add({"loss": 2.0}, 1)
    log.write(1, learning_rate=0.5, timed=np.zeros(2))
    (tmp_path / "answers.json").write_text('{"q": "Ada"}')
    question = {"id": "q", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    paragraphs = [{"context": "Ada wrote it.", "qas": [question]}]
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    files = [tmp_path / "squad.json", tmp_path / "answers.json"]
    config = write_config(tmp_path / "bert_config.json")
    work = {
        "evaluate-squad": (*files, f"--report_file={tmp_path}/report.html", '"exact_match": 100.0'),
        "plot": (f"--output_dir={tmp_path}", f"--picture={tmp_path}/curves.svg", "Wrote "),
        "plan": (f"--bert_config_file={config}", "--max_seq_length=17", "Parameters: "),
    }
    commands = [["bert-tf", verb, *map(str, words)] for verb, (*words, _) in work.items()]
    for (verb, (*_, says)), answer in zip(work.items(), answers(*commands), strict=True):
        assert (answer.code, says in answer.text) == (0, True), (verb, answer.text)


def groups(text: str) -> dict[str, list[str]]:
    """The names of the flags under each title of a page."""
    found, title = {}, None
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][^.]*:", line):
            title = line[:-1]
        elif name := re.match(r"  --(?:\[no\])?(\w+)", line):
            found.setdefault(title, []).append(name[1])
    return found


def test_the_pages_of_help(answered):
    """Answered before TensorFlow loads: what is used most first, nothing twice, every default."""
    pages = {what.split()[0]: text for what, text in answered.items() if what.endswith("--help")}
    assert {next(iter(groups(page))) for page in pages.values()} == {"Most used", "Of this command"}
    found = groups(pages["run_classifier.py"])
    titles = [*found]
    assert titles[:2] == ["Most used", "Of this command"]
    assert found["Most used"][:4] == ["task_name", "data_dir", "init_checkpoint", "output_dir"]
    assert {"Model", "Training", "Fine-tuning", "Devices"} <= {*titles}
    listed = [name for names in found.values() for name in names]
    assert len(listed) == len(set(listed)) > 60
    assert "verbosity" not in listed  # absl's
    lines = pages["export"].splitlines()
    (line,) = (line for line in lines if line.startswith("  --format="))
    assert line.split()[:5] == ["--format=saved_model", "saved_model", "|", "litert", "|"]
    assert any(line.startswith("  --top_k=5 ") for line in lines)


@pytest.mark.parametrize("columns", [40, 80, 300])
def test_lines_fit_a_terminal(columns):
    (answer,) = answers(["bert-tf", "export", "--help"], columns=columns)
    flags = answer.text[answer.text.index("Most used") : answer.text.rindex("Further flags")]
    assert max(map(len, flags.splitlines())) <= min(100, max(60, columns))


def test_a_number_may_be_minus_infinity_but_not_nan():
    """--null_score_diff_threshold=-inf answers no question."""
    parser = flags._FloatParser()
    assert parser.parse("-inf") == float("-inf")
    for word in ("nan", "inf"):
        with pytest.raises(ValueError, match="not a finite number"):
            parser.parse(word)
    with pytest.raises(ValueError, match="not"):
        flags._FloatParser(lower_bound=0.0).parse("-inf")


@pytest.mark.parametrize("script", ["run_pretraining", "run_classifier", "run_squad"])
def test_flags_are_checked_by_what_stands_above_the_check(script):
    """As the main program; a module that is imported has all its names by then."""
    nodes = ast.parse((ROOT / f"{script}.py").read_text(encoding="utf-8")).body
    check = next(at for at, node in enumerate(nodes) if isinstance(node, ast.If))
    named = [alias for node in nodes[check:] for alias in getattr(node, "names", [node])]
    late = {getattr(one, "asname", None) or getattr(one, "name", None) for one in named}
    functions = [node for node in nodes[:check] if isinstance(node, ast.FunctionDef)]
    used = {name.id for one in functions for name in ast.walk(one) if isinstance(name, ast.Name)}
    assert {"main", "locked"} <= late
    assert not used & late
