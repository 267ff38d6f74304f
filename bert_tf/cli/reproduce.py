"""Fine-tunes released weights by the paper's protocol; prints the scores beside published ones.

    bert-tf reproduce --weights=weights --data=data --output_dir=reproduced
    bert-tf reproduce --weights=weights --data=data --output_dir=reproduced \\
        --models=uncased_L-12_H-768_A-12 --tasks=mrpc,squad-v1.1 -- --precision=bfloat16

What is missing on disk is listed first, with where to get it. Then each task is trained by
`bert-tf classify` or `bert-tf squad`, one after the other; flags after -- are added to each of
these commands. Stopped or killed, the same command goes on where it was. Exit code 0: every task
that was to be run has a result.

    WEIGHTS/uncased_L-12_H-768_A-12             the files of the archive of that name
    DATA/CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE    train.tsv, dev.tsv, test.tsv (optional)
    DATA/squad          train-v1.1.json, dev-v1.1.json, train-v2.0.json, dev-v2.0.json
    DATA/swag           train.csv, val.csv
    DATA/conll2003      eng.train, eng.testa, eng.testb (optional)
    OUTPUT_DIR/results.json                     the table
    OUTPUT_DIR/MODEL/TASK/batch_32_epochs_3     the runs

All scores are in percent. The paper has most of GLUE's scores on test data: GLUE's server scores
the files that the runs leave, CoLA.tsv and so on.
"""

import csv
import functools
import itertools
import json
import pathlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import flags

from bert_tf import files
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.errors import InputError
from bert_tf.tasks import registry
from bert_tf.terminal import aligned

FLAGS = flags.FLAGS
PUBLISHED = pathlib.Path(__file__).with_name("published.csv")
RESULT = "reproduced.json"  # in the folder of a run that has ended

# ---------------------------------------------------------------------------- what there is

GLUE_FOLDERS = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")  # without WNLI
GLUE = tuple(map(str.lower, GLUE_FOLDERS))
UNCASED = (*GLUE, "squad-v1.1", "squad-v2.0", "swag")
SHAPES = itertools.product((2, 4, 6, 8, 10, 12), (128, 256, 512, 768))
MODELS = {  # name of the archive: folder of the release, tasks
    **{f"uncased_L-{n}_H-{h}_A-{h // 64}": ("2020_02_20", GLUE) for n, h in SHAPES},
    "uncased_L-12_H-768_A-12": ("2018_10_18", UNCASED),
    "uncased_L-24_H-1024_A-16": ("2018_10_18", UNCASED),
    "cased_L-12_H-768_A-12": ("2018_10_18", ("ner",)),
    "cased_L-24_H-1024_A-16": ("2018_10_18", ("mnli", "squad-v1.1", "ner")),
    "wwm_uncased_L-24_H-1024_A-16": ("2019_05_30", ("mnli", "squad-v1.1")),
    "wwm_cased_L-24_H-1024_A-16": ("2019_05_30", ("mnli", "squad-v1.1")),
}
ARCHIVE = "https://storage.googleapis.com/bert_models/{}/{}.zip"
MODEL_FILES = (
    *("bert_config.json", "vocab.txt"),
    *("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"),
)


class Protocol(NamedTuple):
    """How a task is fine-tuned: in a run for each batch size and number of epochs.

    The best run on dev counts, and in each run the best learning rate and seed.
    """

    batch_sizes: tuple[int, ...]
    epochs: tuple[int, ...]
    learning_rate: str


OF_GLUE = Protocol((32,), (3,), "5e-5,4e-5,3e-5,2e-5")  # section 4.1
OF_SMALL_MODELS = Protocol((8, 16, 32, 64, 128), (4,), "3e-4,1e-4,5e-5,3e-5")  # README
# Of BERT-Large: the paper took the best of several runs on small data sets, not saying how many.
RESTARTS, SMALL_DATA = 5, ("cola", "mrpc", "sts-b", "rte")


class Task(NamedTuple):
    """A task: its data, and its protocol in the paper.

    Attributes:
      folder: of its files, in any case; several with | between.
      files: of training and dev data; alternatives with | between.
      source: where they are.
      metrics: the names in eval_results.txt, without eval_; the first selects the best run.
      protocol: of the models of the paper.
      flags: further ones.
    """

    folder: str
    files: Sequence[str]
    source: str
    metrics: Sequence[str]
    protocol: Protocol = OF_GLUE
    flags: Sequence[str] = ()


def _of_registry(name: str, source: str, folder: str, **fields) -> Task:
    task = registry.get_task(name)
    needed = [split for split in task.splits if split.kind in ("train", "dev")]
    metrics = [*task.metrics, *(["accuracy_mismatched"] if name == "mnli" else [])]
    return Task(folder, [split.files for split in needed], source, metrics, **fields)


def _squad(version: str, protocol: Protocol, metrics: Sequence[str], *words: str) -> Task:
    names = [f"{split}-v{version}.json" for split in ("train", "dev")]
    source = f"https://rajpurkar.github.io/SQuAD-explorer/dataset/{names[0]}, {names[1]}"
    return Task("squad", names, source, metrics, protocol, words)


TASKS = {
    **{
        name: _of_registry(name, "https://gluebenchmark.com/tasks", folder)
        for name, folder in zip(GLUE, GLUE_FOLDERS, strict=True)
    },
    "squad-v1.1": _squad("1.1", Protocol((32,), (3,), "5e-5"), ("f1", "exact_match")),  # 4.2
    "squad-v2.0": _squad(  # 4.3: 2 epochs; the threshold is that of the best F1 on dev
        *("2.0", Protocol((48,), (2,), "5e-5"), ("best_f1", "at_best_f1_exact")),
        "--version_2_with_negative",
    ),
    "swag": _of_registry(  # 4.4
        *("swag", "https://github.com/rowanz/swagaf/tree/master/data", "swag"),
        protocol=Protocol((16,), (3,), "2e-5"),
    ),
    "ner": _of_registry(  # 5.3, as much context as fits; appendix A.3, from which dev chooses
        *("ner", "https://www.clips.uantwerpen.be/conll2003/ner/", "conll2003|conll|ner"),
        protocol=Protocol((16, 32), (2, 3, 4), "5e-5,3e-5,2e-5"),
        flags=("--document_context", "--max_seq_length=512"),
    ),
}


class Reproduce:
    """The flags of this command.

    Attributes:
      weights: A folder with the folders of released weights in it, or one of them.
      data: A folder with the folders of the tasks in it.
      output_dir: Where everything is written.
      models: Some of the released weights, by the names of their folders; these must be there.
        Default: those that are there.
      tasks: Some of cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, squad-v1.1, squad-v2.0, swag,
        ner; their data must be there. Default: those whose data are there.
    """

    weights = shared_flags.REQUIRED
    data = shared_flags.REQUIRED
    output_dir = shared_flags.REQUIRED
    models = ()
    tasks = ()


def define_flags() -> None:
    """The flags of this command."""
    shared_flags.define(Reproduce)


def check_flags(words: Sequence[str]) -> None:
    """Refuses names that are none, folders that are not there, and words that are no flags."""
    shared_flags.refuse_words([word for word in words if not word.startswith("--")])
    for flag, known in {"models": MODELS, "tasks": TASKS}.items():
        if unknown := [name for name in FLAGS[flag].value if name not in known]:
            expected = f"some of {', '.join(known)}"
            raise InputError(f"--{flag} with {unknown[0]!r}", expected, f"correct --{flag}")
    for flag in ("weights", "data"):
        if not pathlib.Path(FLAGS[flag].value).is_dir():
            received = f"--{flag}={FLAGS[flag].value}, which is no folder"
            raise InputError(received, FLAGS[flag].help, "check the path")


# ---------------------------------------------------------------------------- what is on disk


class Job(NamedTuple):
    """A task of a model."""

    model: str
    task: str
    weights: pathlib.Path
    data: pathlib.Path


class Place(NamedTuple):
    """Where weights or data are, and what they lack."""

    folder: pathlib.Path | None
    lacking: Sequence[str]


def find(root: str, names: str, needed: Sequence[str]) -> Place:
    """The folder of one of these names, at most two levels below, that has most of the files."""
    home = pathlib.Path(root)
    best = Place(None, needed)
    for folder in [home, *sorted(home.glob("*/")), *sorted(home.glob("*/*/"))]:
        if folder.resolve().name.lower() in names.lower().split("|"):
            found = [n for n in needed if any((folder / one).is_file() for one in n.split("|"))]
            lacking = [n for n in needed if n not in found]
            if len(lacking) < len(best.lacking):
                best = Place(folder, lacking)
    return best


def plan() -> tuple[list[Job], list[Sequence[str]]]:
    """What can be run; and what is missing: what it is, its files, where to get it."""
    tasks = FLAGS.tasks or [*TASKS]
    models = [m for m in FLAGS.models or [*MODELS] if {*MODELS[m][1]} & {*tasks}]
    places = {m: find(FLAGS.weights, m, MODEL_FILES) for m in models}
    places |= {t: find(FLAGS.data, TASKS[t].folder, TASKS[t].files) for t in tasks}
    jobs = [
        Job(model, task, places[model].folder, places[task].folder)
        for model in models
        for task in MODELS[model][1]
        if task in tasks and not places[model].lacking and not places[task].lacking
    ]
    missing = []
    for name, (_, lacking) in places.items():
        if lacking:
            listed = ", ".join(one.split("|")[-1] for one in lacking)
            if name in MODELS:
                listed = "its folder" if len(lacking) == len(MODEL_FILES) else listed
                source = ARCHIVE.format(MODELS[name][0], name)
            else:
                listed, source = f"{TASKS[name].folder.split('|')[0]}: {listed}", TASKS[name].source
            missing.append((name, listed, source))
    return jobs, missing


def main(words: Sequence[str]) -> None:
    """Lists what is missing; then trains task after task, and prints the table after each."""
    jobs, missing = plan()
    if missing:
        print("Not on disk:\n", *aligned(missing), "", sep="\n", flush=True)
    found = {name for job in jobs for name in (job.model, job.task)}
    if named := [name for name in (*FLAGS.models, *FLAGS.tasks) if name not in found]:
        received = f"--models or --tasks with {', '.join(named)}, without weights or data for it"
        remedy = "get what is listed above, or leave it out of the flags"
        raise InputError(received, "weights and data of what is named", remedy)
    if not jobs:
        received = f"{FLAGS.weights} and {FLAGS.data}, without any task's weights and data"
        raise InputError(received, "some of what is listed above", "get it; --help has the folders")
    extra, failed = [*words[1:]], {}
    with files.locked(FLAGS.output_dir, folder=True):
        for job in jobs:
            for run in runs_of(job, extra):
                if run.read() is None and (code := run.train()):
                    failed[job] = code
            show(jobs, extra, failed)
    if failed:
        sys.exit(1)


# ---------------------------------------------------------------------------- runs


class Run(NamedTuple):
    """A run of a task.

    Attributes:
      folder: of the run.
      words: its command, after bert-tf.
      inputs: the files that it reads.
    """

    folder: pathlib.Path
    words: Sequence[str]
    inputs: Sequence[pathlib.Path]

    def facts(self) -> dict[str, Any]:
        """What the result is of: the command, and the sizes of the files that it reads."""
        return {
            "command": ["bert-tf", *self.words],
            "inputs": {str(path): path.stat().st_size for path in self.inputs},
        }

    def read(self) -> dict[str, dict[str, float]] | None:
        """The scores on dev and test data; None if it has not ended, or was another one."""
        path = self.folder / RESULT
        saved = files.read_json(str(path)) if path.exists() else {}
        return saved["scores"] if self.facts().items() <= saved.items() else None

    def train(self) -> int:
        """Trains and evaluates; returns the exit code, 1 if it left no scores."""
        code = run_command(self.words)
        scores = {"dev": scores_in(self.folder / "eval_results.txt")}
        scores["test"] = scores_in(self.folder / "test_eval_results.txt")
        if code == 0 and scores["dev"]:
            text = json.dumps({**self.facts(), "scores": scores}, indent=2) + "\n"
            files.write_text(str(self.folder / RESULT), text)
        return code or int(not scores["dev"])


def runs_of(job: Job, extra: Sequence[str]) -> list[Run]:
    """The runs of a task, of which the best one counts.

    Args:
      job: the task of a model.
      extra: flags for every run; they replace those of the protocol.
    """
    task = TASKS[job.task]
    protocol = OF_SMALL_MODELS if MODELS[job.model][1] is GLUE else task.protocol
    data = {name: job.data / name for names in task.files for name in names.split("|")}
    if job.task.startswith("squad"):
        train, dev = data.values()
        words = ["squad", f"--train_file={train}", f"--predict_file={dev}", "--do_predict"]
    else:
        words = ["classify", f"--task_name={job.task}", f"--data_dir={job.data}"]
        tests = registry.get_task(job.task).splits_of("test")[:1] if job.task != "swag" else ()
        test = {n: job.data / n for split in tests for n in split.files.split("|")}
        data |= test
        words += ["--do_predict"] * any(path.is_file() for path in test.values())
    if "L-24" in job.model and job.task in SMALL_DATA:
        words.append(f"--num_trials={RESTARTS}")
    inputs = [*(job.weights / name for name in MODEL_FILES), *data.values()]
    runs = []
    for size, number in itertools.product(protocol.batch_sizes, protocol.epochs):
        home = pathlib.Path(FLAGS.output_dir, job.model, job.task)
        folder = home / f"batch_{size}_epochs_{number}"
        chosen = (f"--learning_rate={protocol.learning_rate}", f"--train_batch_size={size}")
        places = (f"--init_checkpoint={job.weights}", f"--output_dir={folder}")
        more = ("--do_train", "--do_eval", *chosen, f"--num_train_epochs={number}", *task.flags)
        found = [path for path in inputs if path.is_file()]
        runs.append(Run(folder, [*words, *places, *more, *extra], found))
    return runs


def scores_in(path: pathlib.Path) -> dict[str, float]:
    """The numbers of an eval_results.txt; none without the file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else ()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}


def run_command(words: Sequence[str]) -> int:
    """Shows a command of bert-tf and runs it; a signal ends it first, and then this process.

    Returns:
      Its exit code.
    """
    came: list[int] = []

    def pass_on(number: int, _: Any) -> None:
        came.append(number)
        if number != signal.SIGINT:  # Ctrl-C, which the terminal sends to both
            process.send_signal(number)

    print(f"$ bert-tf {shlex.join(words)}\n", flush=True)
    process = subprocess.Popen([sys.executable, "-m", "bert_tf", *words])
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    code = process.wait()  # it saves first
    for number, handler in before.items():
        signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
    return code


# ---------------------------------------------------------------------------- the table


class Figure(NamedTuple):
    """A published score, in percent; a row of published.csv.

    Attributes:
      model, task: names of `MODELS` and `TASKS`.
      metric: one of the task's, or another that eval_results.txt has.
      data: dev or test.
      published: the score; "" as for other fields that are unknown.
      tolerance: how far a score may be away from it.
      source: where it was published, and what it is the mean of.
      tolerance_from: where the tolerance is from.
    """

    model: str
    task: str
    metric: str
    data: str
    published: str
    tolerance: str
    source: str
    tolerance_from: str


@functools.cache
def figures() -> dict[tuple[str, ...], Figure]:
    """The published scores by model, task, metric and data."""
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        rows = [Figure(*row) for row in csv.reader(file)][1:]
    return {tuple(row[:4]): row for row in rows}


def rows_of(job: Job, runs: Sequence[Run], code: int | None) -> list[dict[str, Any]]:
    """The rows of a task in the table: its metrics on dev, and what is published for test data.

    Args:
      job: the task of a model.
      runs: all of it.
      code: the exit code of a run that failed.
    """
    task, is_squad = TASKS[job.task], job.task.startswith("squad")
    results = [run.read() for run in runs]
    prefix, percent = ("", 1) if is_squad else ("eval_", 100)
    best, state = {"dev": {}, "test": {}}, "not run yet"
    if None not in results:
        best = max(results, key=lambda scores: scores["dev"][prefix + task.metrics[0]])
        state = "GLUE's server scores it"
    elif code is not None:
        state = f"failed, exit code {code}"
    keys = [(metric, "dev") for metric in task.metrics]
    keys += [key[2:] for key in figures() if key[:2] == job[:2] and key[3] == "test"]
    rows = []
    for metric, data in keys:
        figure = figures().get((job.model, job.task, metric, data))
        row = {"model": job.model, "task": job.task, "metric": metric, "data": data}
        ours = best[data].get(prefix + metric)
        row["ours"] = None if ours is None else round(percent * ours, 2)
        row |= {"published": None, "difference": None, "tolerance": None}
        row["verdict"] = state if ours is None else "not published" if figure is None else ""
        row |= {"source": "", "tolerance_from": ""}
        if figure:
            row |= {"published": float(figure.published), "source": figure.source}
        if figure and figure.tolerance and ours is not None:
            row["difference"] = difference = round(row["ours"] - row["published"], 2)
            row["tolerance"] = tolerance = float(figure.tolerance)
            row["tolerance_from"] = figure.tolerance_from
            side = "above" if difference > 0 else "below"
            row["verdict"] = "within" if abs(difference) <= tolerance else side
        rows.append(row)
    return rows


def show(jobs: Sequence[Job], extra: Sequence[str], failed: dict[Job, int]) -> None:
    """Prints the table, and writes results.json."""
    rows = [row for job in jobs for row in rows_of(job, runs_of(job, extra), failed.get(job))]
    notes = [
        f"{model}: {note}"
        for model, note in {j.model: other_sizes(j) for j in jobs}.items()
        if note
    ]
    notes += [f"Every run with {shlex.join(extra)}, not by the protocol alone."] if extra else []
    notes += [
        f"Tolerance of {row['task']} {row['metric']}: {row['tolerance_from']}."
        for row in rows
        if row["tolerance_from"]
    ]
    names = [name for name in rows[0] if name not in ("tolerance_from", "model")]
    for model, of_model in itertools.groupby(rows, lambda row: row["model"]):
        print(f"=== {model}")
        cells = [["-" if row[n] is None else row[n] for n in names] for row in of_model]
        print(*aligned([names, *cells]), "", sep="\n")
    print(*notes, "", sep="\n", flush=True)
    text = json.dumps({"notes": notes, "scores": rows}, indent=2) + "\n"
    files.write_text(f"{FLAGS.output_dir}/results.json", text)


def other_sizes(job: Job) -> str:
    """Says so if weights are of other sizes than their name; "" if not."""
    config = files.read_json(str(job.weights / "bert_config.json"))
    sizes = [
        config.get(f"{n}") for n in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    ]
    name = "L-{}_H-{}_A-{}".format(*sizes)
    if job.model.endswith(name):
        return ""
    return f"its bert_config.json says {name}, so these are not the released weights"


if __name__ == "__main__":
    cli.parse(define_flags, check_flags, needs_tensorflow=False)
    cli.run(main)
