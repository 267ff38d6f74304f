"""The flags of every command: those of the original, --help, answers before TensorFlow."""

import json
import pathlib
import re

import pytest
from answering import answers
from walking import in_process, module_of, write_config

from bert_tf.__main__ import VERBS
from bert_tf.cli.command_line import written
from bert_tf.cli.flags import _Parser
from bert_tf.cli.main import options_class
from bert_tf.cli.paths import written_format
from bert_tf.errors import InputError
from bert_tf.options import Option, options_of

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = (*VERBS,)
# The original's flags and their defaults, by script.
DEVICES = """use_tpu=False tpu_name=None tpu_zone=None gcp_project=None master=None num_tpu_cores=8
iterations_per_loop=1000 save_checkpoints_steps=1000"""
MODEL = """bert_config_file=None init_checkpoint=None output_dir=None do_train=False
train_batch_size=32"""
FINE_TUNING = """vocab_file=None do_lower_case=True do_predict=False predict_batch_size=8
num_train_epochs=3.0 warmup_proportion=0.1"""
ORIGINAL = {
    "run_pretraining.py": f"""{DEVICES} {MODEL} input_file=None max_seq_length=128
        max_predictions_per_seq=20 do_eval=False eval_batch_size=8 learning_rate=5e-05
        num_train_steps=100000 num_warmup_steps=10000 max_eval_steps=100""",
    "run_classifier.py": f"""{DEVICES} {MODEL} {FINE_TUNING} data_dir=None task_name=None
        max_seq_length=128 do_eval=False eval_batch_size=8 learning_rate=(5e-05,)""",
    "run_squad.py": f"""{DEVICES} {MODEL} {FINE_TUNING} train_file=None predict_file=None
        max_seq_length=384 doc_stride=128 max_query_length=64 learning_rate=5e-05 n_best_size=20
        max_answer_length=30 verbose_logging=False version_2_with_negative=False
        null_score_diff_threshold=0.0""",
    "create_pretraining_data.py": """input_file=None output_file=None vocab_file=None
        do_lower_case=True do_whole_word_mask=False max_seq_length=128 max_predictions_per_seq=20
        random_seed=12345 dupe_factor=10 masked_lm_prob=0.15 short_seq_prob=0.1""",
    "extract_features.py": """input_file=None output_file=None bert_config_file=None
        vocab_file=None init_checkpoint=None layers=None max_seq_length=128 do_lower_case=True
        batch_size=32 use_tpu=False master=None num_tpu_cores=8 use_one_hot_embeddings=False""",
}
# Of each kind of command, one that contradicts itself.
CONFLICTS = {
    "run_squad.py": ["--output_dir=x", "--do_eval"],
    "run_pretraining.py": ["--output_dir=x", "--input_file=x", "--bert_config_file=x"],
    "run_classifier.py": ["--output_dir=x", "--task_name=mrpc", "--do_train"],
    "serve": [],
    "plan": [],
}


def options_of_command(command: str) -> dict[str, Option]:
    """The options of a script or verb that are flags, by name."""
    listed = options_of(options_class(module_of(command).main))
    return {option.flag: option for option in listed if not option.says("words")}


@pytest.mark.parametrize("script", ORIGINAL)
def test_flags_and_defaults_are_the_originals(script):
    options = options_of_command(script)
    found = {f"{name}={option.shown}" for name, option in options.items()}
    assert {*ORIGINAL[script].split()} <= found
    of_original = {word.partition("=")[0] for word in ORIGINAL[script].split()}
    assert all(options[name].says("original") for name in of_original)


def test_no_other_flag_counts_as_the_originals():
    words = " ".join(ORIGINAL.values()).split()
    of_original = {word.partition("=")[0] for word in words}
    for command in COMMANDS:
        for name, option in options_of_command(command).items():
            assert bool(option.says("original")) == (name in of_original), (command, name)


USUAL = {"train_batch_size": "65536", "seed": "4294967295", "keep_checkpoint_max": "0",
         "save_checkpoints_steps": "1000000"}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_number_has_bounds(command):
    """Nor is any default or usual value outside of them; every option has its line of help."""
    for name, option in options_of_command(command).items():
        assert option.help
        parse = _Parser(option).parse
        refused = {int: ["1" + "0" * 20, "-1" + "0" * 20, "1.5"], float: ["nan"]}
        if option.kind is float and not option.says("infinite"):
            refused[float].append("inf")
        for word in refused.get(option.kind, []):
            with pytest.raises(InputError, match=f"--{name}={word}\n"):
                parse(word)
        if name in USUAL:
            assert parse(USUAL[name]) == int(USUAL[name])
        if option.shown is not None and option.kind in (int, float):
            assert parse(written(option.shown)) == option.shown


PATHS = re.compile(r".*_(file|dir)|init_checkpoint|model|from|to|(class_)?weights|data")
TAKEN = {  # of a path that is given: the path that is used
    "~/m1": "/home/ada/m1", "~/m1/": "/home/ada/m1", "~": "/home/ada", "m//": "m", "./": ".",
    "/": "/", "//": "//", "a~/~b": "a~/~b", "gs://b/m1/": "gs://b/m1", "gs://": "gs://",
    "~/a/*.t,~/b,c": "/home/ada/a/*.t,/home/ada/b,c", "~nobody-of-this-name/x": None,
    "hf:google/x@main": None, "lr=[1e-4]": None, "": None,
}  # fmt: skip
OF_FILES = {"~/m1/": "/home/ada/m1/", "m//": None, "./": None, "a~/~b": None, "gs://b/m1/": None}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_is_taken_as_a_shell_would(command, monkeypatch):
    """Every flag that names one: a shell leaves the ~ behind an equals sign."""
    monkeypatch.setenv("HOME", "/home/ada")
    for name, option in options_of_command(command).items():
        if option.kind is not str or option.says("choices"):
            continue
        assert bool(option.says("path")) == bool(PATHS.fullmatch(name)), name
        wanted = TAKEN if option.says("path") else dict.fromkeys(TAKEN)
        wanted = TAKEN | OF_FILES if name.endswith("_file") else wanted
        parse = _Parser(option).parse
        assert {given: parse(given) for given in TAKEN} == {
            given: given if path is None else path for given, path in wanted.items()
        }, name


def words_of(command: str) -> list[str]:
    return [command] if command.endswith(".py") else ["bert-tf", command]


CLASSIFY = "run_classifier.py --output_dir=x --task_name=csv --data_dir=/etc --train_file=no.csv"
REFUSED = {  # what is said of a command line
    "run_squad.py --init_chekpoint=x": "To do: did you mean --init_checkpoint?",
    "bert-tf vocab --output_fle=x": "To do: did you mean --output_file?",
    "bert-tf predict --xyzzy": "Received: --xyzzy, which is unknown\nExpected: the flags",
    "run_squad.py --nolegacy_shuffle": "Received: --nolegacy_shuffle, which is unknown",
    "run_squad.py --xla=maybe": "Expected: true or false\nTo do: correct it",
    "run_squad.py --seed=x": "Expected: a whole number, at least 0, at most 4294967295",
    "run_squad.py --strategy=all": "Expected: one of auto, one,",
    "run_squad.py --output_dir": "Received: Missing value for flag --output_dir",
    f"{CLASSIFY} --num_train_epochs=0": "Received: --num_train_epochs=0",
    "run_classifier.py --output_dir=x --task_name=mrpc --data_dir=/etc --do_eval --dev_file=my.tsv "
    "--init_checkpoint=x": "Received: --dev_file=my.tsv with --task_name=mrpc, which does not",
    "run_classifier.py --output_dir=x --task_name=csv --tfds_name=imdb --do_eval --dev_file=my.csv "
    "--init_checkpoint=x": "Received: --dev_file=my.csv with --tfds_name=imdb, which does not",
    "run_classifier.py --output_dir=x --task_name=rte --tfds_name=glue/rte --do_eval --data_dir=d "
    "--init_checkpoint=x": "Received: --data_dir=d with --tfds_name=glue/rte, which does not",
    "bert-tf score --init_checkpoint=x --input_file=x w": "Received: --input_file with the text",
    "bert-tf convert --to=/etc --from=x": "Received: /etc, which already exists",
    "bert-tf data --flagfile=/no/flags": "Received: a --flagfile that cannot be read ([Errno 2]",
    "bert-tf plan --flagfile=/bin/sh": "Expected: a text file in UTF-8, a flag a line",
}
ANSWERED = {  # what: the command line, the exit code, what is said
    **{f"{c} --help": ([*words_of(c), "--help"], 0, "--") for c in (*ORIGINAL, *COMMANDS)},
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
    "False behind a switch": (
        ["run_squad.py", "--output_dir=x", "--do_train", "False"],
        1,
        "'False' outside any flag",
    ),
    "True behind a switch": (
        ["run_squad.py", "--output_dir=x", "--do_train", "True"],
        1,
        "--do_train without --train_file",
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
    (tmp_path / "answers.json").write_text('{"q": "Ada"}')
    question = {"id": "q", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    paragraphs = [{"context": "Ada wrote it.", "qas": [question]}]
    (tmp_path / "squad.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    files = [tmp_path / "squad.json", tmp_path / "answers.json"]
    config = write_config(tmp_path / "bert_config.json")
    work = {
        "evaluate-squad": (*files, '"exact_match": 100.0'),
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
    assert not groups(pages.pop("check"))  # it has no flags
    assert {next(iter(groups(page))) for page in pages.values()} == {"Most used", "Of this command"}
    found = groups(pages["run_classifier.py"])
    titles = [*found]
    assert titles[:2] == ["Most used", "Of this command"]
    assert found["Most used"][:3] == ["task_name", "data_dir", "train_file"]
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
    parse = _Parser(options_of_command("squad")["null_score_diff_threshold"]).parse
    assert parse("-inf") == float("-inf")
    for word in ("nan", "inf", "x"):
        with pytest.raises(InputError, match="a number, below inf"):
            parse(word)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("features", ["x.npy", "x.CSV", "x.parquet", "x.h5", "x.pt", "x.jsonl.gz", "x.txt"]),
        ("predict", ["x.npz", "x.NPY", "gs://b/x.xlsx", "x.txt", "x.jsonl.bak"]),
        ("score", ["x.csv", "x.npz"]),
    ],
)
def test_an_output_whose_ending_is_of_another_format_is_refused(command, names, tmp_path):
    """Before a model is looked for."""
    given = {"model" if command == "predict" else "init_checkpoint": "no/such"}
    with in_process(command) as main:
        for name in names:
            path = name if "://" in name else tmp_path / name
            with pytest.raises(InputError, match=r"--output_file=.*\n.* ends in \.jsonl"):
                main(**given, input_file="no/such", output_file=path)
    assert not [*tmp_path.iterdir()]


def test_the_format_of_a_file_is_that_of_its_ending():
    for path in ("/dev/stdout", "x", "x.json", "a.b/x.JSONL"):
        assert written_format(path, ("jsonl", "npz")) == "jsonl"
    for path in ("x.npz", "a/x.NPZ"):
        assert written_format(path, ("jsonl", "npz")) == "npz"


def test_several_numbers():
    parse = _Parser(options_of_command("classify")["learning_rate"]).parse
    assert parse("5e-5,3e-5,5e-5") == (5e-5, 3e-5)
    for word in ("0", "1,nan", "x", ""):
        with pytest.raises(InputError, match=rf"--learning_rate={word}.*\n.*number, above 0"):
            parse(word)
