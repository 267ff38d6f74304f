"""Fine-tunes released weights by the paper's protocol; prints the scores beside published ones.

    python benchmarks/reproduce.py --weights=weights --data=data --output_dir=reproduced
    python benchmarks/reproduce.py --weights=weights --data=data --output_dir=reproduced \\
        --models=uncased_L-12_H-768_A-12 --tasks=mrpc,squad-v1.1 -- --precision=bfloat16

What is missing on disk is listed first, with where to get it. Then each task is trained by
`bert-tf classify` or `bert-tf squad`, one after the other; flags that both commands accept may
follow `--`. Stopped or killed, the same command goes on where it was; with other flags or files it
refuses the folders of runs that have begun. Exit code 0: every task that was to be run has a
result.

    WEIGHTS/uncased_L-12_H-768_A-12             the files of the archive of that name
    DATA/CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE    train.tsv, dev.tsv, test.tsv (optional)
    DATA/squad          train-v1.1.json, dev-v1.1.json, train-v2.0.json, dev-v2.0.json
    DATA/swag           train.csv, val.csv
    DATA/conll2003      eng.train, eng.testa, eng.testb (optional)
    OUTPUT_DIR/results.json                     the table, of what --models and --tasks name
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
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import flags
from bert_tf import files
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.errors import InputError
from bert_tf.terminal import aligned

from scores import scores_in

FLAGS = flags.FLAGS
HERE = pathlib.Path(__file__).parent
RECORD = "reproduced.json"  # in a run's folder: what identifies it and, at its end, its scores
COMPARED = {  # what to know of figures with this in their source
    "mean of 5 runs": "Tables 6 and 7 of the paper: means of 5 runs; ours is the best of a grid.",
    "whole-word": "The README's whole-word table names no protocol; ours is the paper's.",
}


class Task(NamedTuple):
    """A task: its data and its protocol; reproduce.toml has all, and says what the fields are.

    Attributes:
      test, restarts: "" and 1 where the table has none.
    """

    section: str
    folder: str
    files: list[str]
    source: str
    command: str
    metrics: list[str]
    batch_sizes: list[int]
    epochs: list[int]
    learning_rate: str
    test: str = ""
    restarts: int = 1


_groups = tomllib.loads((HERE / "reproduce.toml").read_text(encoding="utf-8")).values()
TASKS = {
    name: Task(**{k: group[k] for k in group if k != "tasks"} | own)
    for group in _groups
    for name, own in group["tasks"].items()
}
GLUE = tuple(name for name, task in TASKS.items() if task.section == "4.1")
OF_UNCASED = tuple(name for name in TASKS if name != "ner")
SMALL = "2020_02_20"  # the release of 24 models, one of them BERT-Base trained again
# These are fine-tuned as its README says.
OF_SMALL = {"batch_sizes": [8, 16, 32, 64, 128], "epochs": [4], "restarts": 1,
            "learning_rate": "3e-4,1e-4,5e-5,3e-5"}  # fmt: skip
SHAPES = itertools.product((2, 4, 6, 8, 10, 12), (128, 256, 512, 768))
MODELS = {  # name of the archive: folder of the release, tasks
    **{f"uncased_L-{n}_H-{h}_A-{h // 64}": (SMALL, GLUE) for n, h in SHAPES},
    "uncased_L-12_H-768_A-12": ("2018_10_18", OF_UNCASED),
    "uncased_L-24_H-1024_A-16": ("2018_10_18", OF_UNCASED),
    "cased_L-12_H-768_A-12": ("2018_10_18", ("ner",)),
    "cased_L-24_H-1024_A-16": ("2018_10_18", ("mnli", "squad-v1.1", "ner")),
    "wwm_uncased_L-24_H-1024_A-16": ("2019_05_30", ("mnli", "squad-v1.1")),
    "wwm_cased_L-24_H-1024_A-16": ("2019_05_30", ("mnli", "squad-v1.1")),
}
ARCHIVE = "https://storage.googleapis.com/bert_models/{}/{}.zip"
WEIGHTS = ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")
MODEL_FILES = ("bert_config.json", "vocab.txt", *WEIGHTS)


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

    weights = shared_flags.Path(required=True)
    data = shared_flags.Path(required=True)
    output_dir = shared_flags.Path(required=True)
    models = ()
    tasks = ()


def define_flags() -> None:
    """The flags of this command."""
    shared_flags.define(Reproduce)


def check_flags(words: Sequence[str]) -> None:
    """Refuses unknown names, missing folders and stray words."""
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


def find(root: str, name: str, needed: Sequence[str]) -> tuple[pathlib.Path | None, list[str]]:
    """The folder with this name, at most two levels down, that has most of `needed`; and the files
    it lacks.
    """
    home, best = pathlib.Path(root).absolute(), (None, [*needed])
    for folder in [home, *sorted(home.glob("*/")), *sorted(home.glob("*/*/"))]:
        lacking = [file for file in needed if not (folder / file).is_file()]
        if folder.resolve().name.lower() == name.lower() and len(lacking) < len(best[1]):
            best = folder, lacking
    return best


def plan() -> tuple[list[Job], list[tuple[str, str]]]:
    """What can be run; and the files that are missing, with where to get them."""
    tasks = FLAGS.tasks or [*TASKS]
    models = [m for m in FLAGS.models or [*MODELS] if {*MODELS[m][1]} & {*tasks}]
    places, missing = {}, []
    for name in (*models, *tasks):
        if name in MODELS:
            root, folder, needed = FLAGS.weights, name, MODEL_FILES
            source = ARCHIVE.format(MODELS[name][0], name)
        else:
            root, folder, needed, source = FLAGS.data, *TASKS[name][1:4]
        places[name], lacking = find(root, folder, needed)
        if lacking:
            is_whole = name in MODELS and len(lacking) == len(needed)
            listed = [""] if is_whole else lacking
            missing.append((", ".join(f"{folder}/{file}" for file in listed), source))
            del places[name]
    jobs = [
        Job(model, task, places[model], places[task])
        for model in models
        for task in MODELS[model][1]
        if places.keys() >= {model, task}
    ]
    return jobs, missing


def main(words: Sequence[str]) -> None:
    """Lists what is missing; trains task after task, prints the table after each and at the end."""
    jobs, missing = plan()
    if missing:
        print("Not on disk, and where to get it:\n", *aligned(missing), "", sep="\n", flush=True)
    found = {name for job in jobs for name in (job.model, job.task)}
    if named := [name for name in (*FLAGS.models, *FLAGS.tasks) if name not in found]:
        received = f"{', '.join(named)} in --models or --tasks, without weights or data for it"
        own = "".join(f"; tasks of {m}: {', '.join(MODELS[m][1])}" for m in FLAGS.models)
        remedy = "get what is listed as missing, or leave it out of the flags"
        raise InputError(received, f"what is named, on disk{own}", remedy)
    if not jobs:
        received = f"{FLAGS.weights} and {FLAGS.data}, without any task's weights and data"
        raise InputError(received, "some of what is listed", "get it; --help shows the folders")
    extra, failed = [*words[1:]], {}
    with files.locked(FLAGS.output_dir, folder=True):
        runs = {job: runs_of(job, extra) for job in jobs}
        for run in itertools.chain(*runs.values()):
            run.refuse_other()
        for job in jobs:
            codes = [run.train() for run in runs[job] if run.read() is None]
            if any(codes):
                failed[job] = max(codes, key=abs)
            if codes:
                show(runs, extra, failed, job.model)
        show(runs, extra, failed)
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

    def facts(self) -> dict[str, str]:
        """What identifies the run: its flags, and size and time of change of each file it reads."""
        flags = dict(word.partition("=")[::2] for word in self.words)
        del flags["--output_dir"]  # which may be moved
        stats = {str(path): path.stat() for path in self.inputs}
        return flags | {p: f"{s.st_size} bytes, {s.st_mtime_ns} ns" for p, s in stats.items()}

    def record(self) -> dict[str, Any]:
        """What was written when the run began, and when it ended; empty before."""
        path = self.folder / RECORD
        return files.read_json(str(path)) if path.exists() else {}

    def refuse_other(self) -> None:
        """Raises `InputError` if another run has begun in the folder: training would resume it."""
        other = self.facts().items() ^ self.record().get("facts", {}).items()
        if other and any(path.name != RECORD for path in self.folder.glob("*")):
            names = ", ".join(sorted(dict(other))[:4])
            raise InputError(
                f"{self.folder}, in which a run with other flags or files has begun: {names}",
                "flags and files as that run began with, weights and data unchanged",
                "remove the folder, or use another --output_dir",
            )

    def read(self) -> dict[str, dict[str, float]] | None:
        """The scores, by split; None unless this command has finished on these files."""
        record = self.record()
        return record.get("scores") if record.get("facts") == self.facts() else None

    def train(self) -> int:
        """Trains and evaluates; returns the exit code, 1 if it left no scores."""
        record, path = {"facts": self.facts()}, str(self.folder / RECORD)
        results = [self.folder / f"{name}eval_results.txt" for name in ("", "test_")]
        self.folder.mkdir(parents=True, exist_ok=True)
        for one in results:  # of an attempt that was killed before its end
            one.unlink(missing_ok=True)
        files.write_text(path, json.dumps(record, indent=2) + "\n")
        code = run_command(self.words)
        scores = dict(zip(("dev", "test"), map(scores_in, results), strict=True))
        if code == 0 and scores["dev"]:
            files.write_text(path, json.dumps(record | {"scores": scores}, indent=2) + "\n")
        return code or int(self.read() is None)


def runs_of(job: Job, extra: Sequence[str]) -> list[Run]:
    """The runs of a task, of which the best one counts.

    Args:
      job: the task of a model.
      extra: flags for every run; they replace those of the protocol.
    """
    task = TASKS[job.task]
    if MODELS[job.model][0] == SMALL:
        task = task._replace(**OF_SMALL)
    inputs = [*(job.weights / n for n in MODEL_FILES), *(job.data / n for n in task.files)]
    words = [word.format(task=job.task, data=job.data) for word in task.command.split()]
    words += [f"--init_checkpoint={job.weights}", "--do_train", "--do_eval"]
    if task.test and (job.data / task.test).is_file():
        inputs.append(job.data / task.test)
        words.append("--do_predict")
    if task.restarts > 1 and "L-24" in job.model:
        words.append(f"--num_trials={task.restarts}")
    words.append(f"--learning_rate={task.learning_rate}")
    runs = []
    for size, epochs in itertools.product(task.batch_sizes, task.epochs):
        home = pathlib.Path(FLAGS.output_dir, job.model, job.task)
        folder = home / f"batch_{size}_epochs_{epochs}"
        more = [f"--train_batch_size={size}", f"--num_train_epochs={epochs}"]
        runs.append(Run(folder, [*words, *more, f"--output_dir={folder}", *extra], inputs))
    return runs


def run_command(words: Sequence[str]) -> int:
    """Shows and runs a command of bert-tf; returns its exit code.

    Passes signals on, waits for the command, then raises them again.
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


@functools.cache
def figures() -> dict[tuple[str, ...], dict[str, Any]]:
    """The rows of published.csv, by model, task, metric and data; scores are in percent.

    published is the score, tolerance how far from it a score may be (None where dev and test data
    are not to be compared); source says where it was published, tolerance_from where the tolerance
    is from.
    """
    with (HERE / "published.csv").open(newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    numbers = ("published", "tolerance")
    rows = [row | {n: float(row[n]) if row[n] else None for n in numbers} for row in rows]
    return {tuple(row[n] for n in ("model", "task", "metric", "data")): row for row in rows}


def rows_of(job: Job, runs: Sequence[Run], code: int | None) -> list[dict[str, Any]]:
    """The rows of a task in the table: its metrics on dev, and what is published for test data.

    Args:
      job: the task of a model.
      runs: all of it.
      code: the exit code of a run that failed.
    """
    task, published, results = TASKS[job.task], figures(), {r.folder.name: r.read() for r in runs}
    name, best, state = None, {"dev": {}, "test": {}}, "not run yet"
    if None not in results.values():
        name = max(results, key=lambda name: percent(results[name]["dev"], task.metrics[0]))
        best = results[name]
        has_file = job.task in GLUE and "--do_predict" in runs[0].words
        state = "GLUE's server scores it" if has_file else "no test data on disk"
    elif code is not None:
        state = f"failed, exit code {code}"
    keys = [(*job[:2], metric, "dev") for metric in task.metrics]
    keys += [key for key in published if key[:2] == job[:2] and key[3] == "test"]
    rows = []
    for key in keys:
        row = dict(zip(("model", "task", "metric", "data"), key, strict=True))
        ours = percent(best[row["data"]], row["metric"])
        row |= {"run": name, "ours": ours}
        row |= dict.fromkeys(("published", "difference", "tolerance"))
        row |= {"verdict": "", "source": "", "tolerance_from": "", **published.get(key, {})}
        if ours is None:
            row["verdict"] = state
        elif row["published"] is None:
            row["verdict"] = "no figure in published.csv"
        elif row["tolerance"] is not None:
            difference = row["difference"] = round(ours - row["published"], 2)
            is_within = abs(difference) <= row["tolerance"]
            row["verdict"] = "within" if is_within else "above" if difference > 0 else "below"
        rows.append(row)
    return rows


def percent(scores: dict[str, float], metric: str) -> float | None:
    """A score of eval_results.txt in percent; those of SQuAD are, others are of 1 at most."""
    share = scores.get(f"eval_{metric}")
    found = scores.get(metric) if share is None else 100 * share
    return None if found is None else round(found, 2)


def show(
    runs: dict[Job, list[Run]], extra: Sequence[str], failed: dict[Job, int], model: str = ""
) -> None:
    """Writes results.json; prints the tables.

    Args:
      runs: all, by the tasks that they are of.
      extra: flags for every run.
      failed: the exit codes of tasks that failed.
      model: prints only its table.
    """
    rows = [row for job in runs for row in rows_of(job, runs[job], failed.get(job))]
    notes = [note for note in dict.fromkeys(map(other_sizes, runs)) if note]
    compared = " ".join(row["source"] for row in rows if row["difference"] is not None)
    notes += [note for part, note in COMPARED.items() if part in compared]
    if FLAGS.models or FLAGS.tasks:
        notes.append("The table has only what --models and --tasks name.")
    if extra:
        notes.append(f"Every run with {shlex.join(extra)}, not by the protocol alone.")
    text = json.dumps({"notes": notes, "scores": rows}, indent=2) + "\n"
    files.write_text(f"{FLAGS.output_dir}/results.json", text)
    names = [name for name in rows[0] if name not in ("tolerance_from", "model")]
    shown = [row for row in rows if model in ("", row["model"])]
    for name, of_model in itertools.groupby(shown, lambda row: row["model"]):
        cells = [["-" if row[n] is None else row[n] for n in names] for row in of_model]
        print(f"=== {name}", *aligned([names, *cells]), "", sep="\n")
    notes += dict.fromkeys(
        f"Tolerance of {row['task']} {row['metric']}, {row['tolerance']}: {row['tolerance_from']}."
        for row in shown
        if row["difference"] is not None
    )
    print(*notes, "", sep="\n", flush=True)


def other_sizes(job: Job) -> str:
    """A warning if bert_config.json contradicts the model's name; else empty."""
    config = files.read_json(str(job.weights / "bert_config.json"))
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    name = "L-{}_H-{}_A-{}".format(*(config.get(size) for size in sizes))
    found = f"{job.weights}/bert_config.json says {name}: these are not the released weights."
    return "" if job.model.endswith(name) else found


if __name__ == "__main__":
    cli.parse(define_flags, check_flags, needs_tensorflow=False)
    cli.run(main)
