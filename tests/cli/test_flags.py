"""The flags of every command: those of the original, --help, answers before TensorFlow."""

import json
import pathlib
import re

import pytest
from absl import flags as absl_flags
from answering import answers
from walking import in_process, write_config

from bert_tf.__main__ import VERBS
from bert_tf.cli import flags
from bert_tf.errors import InputError

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
        max_seq_length=128 do_eval=False eval_batch_size=8 learning_rate=[5e-05]""",
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


@pytest.mark.parametrize("script", ORIGINAL)
def test_flags_and_defaults_are_the_originals(script):
    own = set(absl_flags.FLAGS)
    with in_process(script):
        found = [absl_flags.FLAGS[name] for name in set(absl_flags.FLAGS) - own]
        assert {*ORIGINAL[script].split()} <= {f"{flag.name}={flag.default}" for flag in found}


def test_all_flags_of_the_original_are_known_as_its_own():
    words = " ".join(ORIGINAL.values()).split()
    assert {word.partition("=")[0] for word in words} == flags.ORIGINALS


USUAL = {"train_batch_size": "65536", "seed": "4294967295", "keep_checkpoint_max": "0",
         "save_checkpoints_steps": "1000000"}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_number_has_bounds(command):
    """Nor is any default or usual value outside of them; every flag has its line of help."""
    own = set(absl_flags.FLAGS)
    with in_process(command):
        flags_of_it = [absl_flags.FLAGS[name] for name in set(absl_flags.FLAGS) - own]
        for flag in flags_of_it:
            assert flag.help
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
    own = set(absl_flags.FLAGS)
    with in_process(command):
        names = set(absl_flags.FLAGS) - own
        is_path = {name: absl_flags.FLAGS[name].flag_type() == "string"
                   and bool(PATHS.fullmatch(name)) for name in names}  # fmt: skip
        for name in names:
            if absl_flags.FLAGS[name].flag_type() == "string":
                parse = absl_flags.FLAGS[name].parser.parse
                wanted = TAKEN if is_path[name] else dict.fromkeys(TAKEN)
                wanted = TAKEN | OF_FILES if name.endswith("_file") else wanted
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
    "run_classifier.py --legacy_shuffle": "To do: leave it out: fine-tuning shuffles all",
    "run_squad.py --max_restarts=3": "To do: leave it out: let a supervisor start all",
    "run_pretraining.py --clip_per_replica": "To do: leave it out: the gradients of all",
    "run_squad.py --nolegacy_shuffle": "Received: --nolegacy_shuffle, which is unknown",
    "bert-tf plan --device_tflops=15.7": "To do: leave it out: bert-tf plan tells memory alone",
    "run_squad.py --xla=maybe": "Expected: true or false\nTo do: correct it",
    "run_squad.py --seed=x": "Expected: an integer in the range [0, 4294967295]",
    "run_squad.py --strategy=all": "Expected: one of <auto|",
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
DEMO = "in a clone of the repository: make demo, or examples/demo.sh [FOLDER [STEPS]]\n"
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
    "a verb that has moved": (["bert-tf", "demo", "--output_dir=x"], 1, DEMO),
    "one that is gone": (["bert-tf", "help", "reproduce"], 1, "bert-tf classify and bert-tf squad"),
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


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("features", ["x.npy", "x.CSV", "x.parquet"]),
        ("predict", ["x.npz", "x.NPY", "gs://b/x.xlsx"]),
        ("score", ["x.csv"]),
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
    assert flags.format_of("a/x.NPZ", ("jsonl", "npz")) == "npz"
    assert flags.format_of("/dev/stdout", ("jsonl", "npz")) == "jsonl"


def test_several_numbers():
    parser = flags._FloatsParser(flags.ABOVE_0)
    assert parser.parse("5e-5,3e-5,5e-5") == [5e-5, 3e-5]
    for word in ("0", "1,nan", "x", ""):
        with pytest.raises(ValueError, match=r"number|range|convert"):
            parser.parse(word)
