"""The paper's ablations (section 5, appendix C) in miniature, by the scripts that users run.

    BERT_TF_DATA=... python benchmarks/ablations.py --folder=ablations --results=ablations.jsonl
    python benchmarks/ablations.py --results=ablations.jsonl --measure=none

Text: the Wikipedia sample, two of its files held out; a vocabulary of 8,000 pieces learned from all
of it. A pre-training makes --steps updates with 8 sequences of 128 tokens, six times as many for
figure 5; weights, order and masks are drawn by its seed. `MODELS` says what differs. A task has one
recipe (`TASKS`) for all models; a BiLSTM on fixed features, which starts from random weights, has
its own (`FIXED_RECIPE`). `TABLES` has the rows of the paper with its figures.

Each measurement is a line of --results with its seconds of CPU and a digest of its settings; what
is there already is not measured again, and a pre-training that was stopped goes on, its seconds
then unknown. --jobs run side by side, each on a core of its own. All of it is printed as tables at
the end: means over the seeds with half their range, and the minutes of a core that one seed takes.

With --scale=gpu three starts of one larger model on a GPU, with --jobs sharing it: the released
vocabulary, all of SST-2, more of SQuAD, seconds of wall clock. --seeds are then those of the small
tasks; the rest has the first. A pre-training ends after --pretraining_seconds if it is not done:

    BERT_TF_DATA=... python benchmarks/ablations.py --scale=gpu --jobs=8 --folder=ablations \\
        --results=ablations_gpu.jsonl
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from measuring import (
    ROOT,
    Results,
    command,
    data_dir,
    parse_options,
    print_rows,
    print_titles,
    scores_in,
)

HELD_OUT = ("AD_wiki_92", "AD_wiki_99")
BATCH, RATE = 8, 5e-4  # in so few steps larger batches learn less
CONFIG = {
    "vocab_size": 8000, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 512, "max_position_embeddings": 512, "type_vocab_size": 2,
    "initializer_range": 0.05,  # for 128 inputs what 0.02 is for 768
    "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0,  # texts are seen once or twice
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Model:
    """A pre-training: how it differs from the first one, as flags and keys of the configuration.

    Attributes:
      config: keys of bert_config.json.
      data: flags of `bert-tf data`.
      train: flags of `run_pretraining.py`.
      times: how many times --steps.
    """

    config: dict = dataclasses.field(default_factory=dict)
    data: dict = dataclasses.field(default_factory=dict)
    train: dict = dataclasses.field(default_factory=dict)
    times: int = 1


def masks(mask: float, unchanged: float, random_: float) -> Model:
    """Other shares of the pieces to predict, in the order of table 8."""
    shares = {"mask_share": mask, "unchanged_share": unchanged, "random_share": random_}
    return Model(data=shares)


BERT, LONGER, NEW = "BERT", "BERT, six times the steps", "not pre-trained"
MODELS = {
    BERT: Model(),
    LONGER: Model(times=6),
    "no NSP": Model(train={"task": "fill_mask"}),
    "LTR, no NSP": Model(config={"attention": "causal"}),
    "100/0/0": masks(1, 0, 0),
    "80/0/20": masks(0.8, 0, 0.2),
    "80/20/0": masks(0.8, 0.2, 0),
    "0/20/80": masks(0, 0.2, 0.8),
    "0/0/100": masks(0, 0, 1),
}

# On top of the encoder, whose weights stay as they are: a BiLSTM (heads_of_ones_own.py).
FIXED = "fixed, last four"
TOP_OF_TASK = "_bilstm_concat_last_four"
TOPS = {"": {}, FIXED: {"bilstm_layers": 1, "features": "concat_last_four"}}


@dataclasses.dataclass(frozen=True)
class Task:
    """A fine-tuning: script, flags, and the score of eval_results.txt that is shown, in percent."""

    script: str
    flags: dict
    metric: str


def sentences(name: str, metric: str, epochs: int, length: int = 128) -> Task:
    """A task of `run_classifier.py`."""
    flags = {"task_name": name, "num_train_epochs": epochs, "max_seq_length": length}
    return Task("run_classifier.py", flags, metric)


SST_2, MRPC, STS_B, SQUAD, NAMES = "SST-2", "MRPC", "STS-B", "SQuAD", "names"
TASKS = {
    NAMES: sentences("ner", "eval_entity_f1", 5, length=64),
    SST_2: sentences("sst-2", "eval_accuracy", 5),
    STS_B: sentences("sts-b", "eval_spearman", 3),
    MRPC: sentences("mrpc", "eval_accuracy", 3),
    SQUAD: Task("run_squad.py", {"num_train_epochs": 2, "max_seq_length": 256}, "f1"),
}
RECIPE = {"learning_rate": 3e-4}
FIXED_RECIPE = {
    "freeze": "^bert/", "learning_rate": 3e-3, "num_train_epochs": 15, "xla": "false",
}  # fmt: skip
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}  # of fine-tuning
NUM_SST_2, ARTICLES, DEV_ARTICLES, NUM_NAMES = 2000, 15, 5, {"train": 1000, "dev": 1000}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A fine-tuning of a table: a model, so many percent of its steps, a task and what is on top.

    `task` is "" for the held-out loss of the model itself.
    """

    model: str
    task: str
    percent: int = 100
    top: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table: its columns are tasks; its rows models with the paper's figures for `paper`."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, list[Cell]]
    paper: tuple[str, ...] = ()
    figures: dict[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)


FIXED_NAMES = "names, fixed"  # a column: what the vectors hold, whatever fine-tuning does


def row(model: str, columns: tuple[str, ...], *, percent: int = 100) -> list[Cell]:
    """The cells of a model."""
    return [
        Cell(model, NAMES, percent, FIXED) if column == FIXED_NAMES
        else Cell(model, column, percent)
        for column in columns
    ]  # fmt: skip


LOSS = ""  # a column: the masked-LM loss on held-out records
ALL = (FIXED_NAMES, NAMES, SST_2, STS_B, MRPC, SQUAD)
TABLES = {
    "figure 5": Table(
        "Figure 5: after so much of six times the steps",
        ALL,
        {"0 %": row(BERT, ALL, percent=0)}
        | {f"{x} %": row(LONGER, ALL, percent=x) for x in (10, 30, 100)},
    ),
    "table 5": Table(
        "Table 5: pre-training tasks",
        ALL,
        {NEW: row(BERT, ALL, percent=0)}
        | {name: row(name, ALL) for name in (BERT, "no NSP", "LTR, no NSP")},
        ("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD"),
        {
            BERT: (84.4, 88.4, 86.7, 92.7, 88.5),
            "no NSP": (83.9, 84.9, 86.5, 92.6, 87.9),
            "LTR, no NSP": (82.1, 84.3, 77.5, 92.1, 77.8),
        },
    ),
    "table 8": Table(
        "Table 8: [MASK] / the same / random",
        ALL[:3],
        {
            name: row(shown, ALL[:3])
            for name, shown in {
                "80/10/10": BERT,
                **{name: name for name in MODELS if "/" in name},
            }.items()
        },
        ("MNLI", "NER", "NER, fixed"),
        {
            "80/10/10": (84.2, 95.4, 94.9),
            "100/0/0": (84.3, 94.9, 94.0),
            "80/0/20": (84.1, 95.2, 94.6),
            "80/20/0": (84.4, 95.2, 94.7),
            "0/20/80": (83.7, 94.8, 94.6),
            "0/0/100": (83.6, 94.9, 94.6),
        },
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Scale:
    """The sizes of all runs.

    Attributes:
      config: bert_config.json.
      batch: sequences of a step of pre-training.
      rate: its peak learning rate.
      steps: of a pre-training.
      tasks: those of its tables, the first ones measured first.
      recipe: flags of every fine-tuning.
      sizes: rows of SST-2, articles of SQuAD to train on and to answer, sentences of names; None:
        all.
      tables: by name; the first ones are measured first.
      data, train: flags of `bert-tf data` and `run_pretraining.py` for all models.
      vocab: a file of BERT_TF_DATA/vocab; "": learned from the text.
      repeated: on a GPU the tasks that are fine-tuned with every seed.
      on_gpu: runs share a GPU and are timed by wall clock; otherwise each has a core.
    """

    config: dict
    batch: int
    rate: float
    steps: int
    tasks: dict[str, Task]
    recipe: dict
    sizes: tuple
    tables: dict[str, Table]
    data: dict = dataclasses.field(default_factory=dict)
    train: dict = dataclasses.field(default_factory=dict)
    vocab: str = ""
    repeated: tuple[str, ...] = ()
    on_gpu: bool = False


ON_GPU = (SQUAD, SST_2, STS_B, MRPC, NAMES)
BFLOAT16 = {"precision": "bfloat16"}
SCALES = {
    "cpu": Scale(
        CONFIG, BATCH, RATE, 5000, TASKS, RECIPE, (NUM_SST_2, ARTICLES, DEV_ARTICLES, NUM_NAMES),
        TABLES,
    ),
    "gpu": Scale(
        config=CONFIG | DROPOUT | {
            "vocab_size": 30522, "hidden_size": 512, "num_hidden_layers": 4,
            "num_attention_heads": 8, "intermediate_size": 2048, "initializer_range": 0.02,
        },
        batch=256,
        rate=5e-4,
        steps=6000,
        tasks={
            SQUAD: Task("run_squad.py", {"num_train_epochs": 2, "max_seq_length": 384}, "f1"),
            SST_2: dataclasses.replace(
                of_sst_2 := sentences("sst-2", "eval_accuracy", 2),
                flags=of_sst_2.flags | {"train_batch_size": 64},
            ),
            STS_B: TASKS[STS_B], MRPC: TASKS[MRPC], NAMES: TASKS[NAMES],
        },
        recipe=BFLOAT16 | {"learning_rate": 1e-4, "save_checkpoints_steps": 1_000_000},
        sizes=(None, 150, None, NUM_NAMES),
        tables={
            "table 5": Table(
                "Three starts of L4 H512",
                (LOSS, *ON_GPU),
                {NEW: row(BERT, (LOSS, *ON_GPU), percent=0)}
                | {name: row(name, (LOSS, *ON_GPU)) for name in (BERT, "LTR, no NSP")},
                *(TABLES["table 5"].paper, {
                    name: TABLES["table 5"].figures[name] for name in (BERT, "LTR, no NSP")
                }),
            ),
            "figure 5": Table(
                "Figure 5: BERT after so much of its steps",
                ON_GPU,
                {f"{x} %": row(BERT, ON_GPU, percent=x) for x in (0, 10, 30, 100)},
            ),
        },
        data={"dupe_factor": 10},
        train=BFLOAT16,
        vocab="uncased_en_30522.txt",
        repeated=(STS_B, MRPC, NAMES),
        on_gpu=True,
    ),
}  # fmt: skip


def main() -> None:
    """Measures what is missing, then prints the tables."""
    options = parse_options(
        __doc__,
        folder="ablations",  # of all models
        results="ablations.jsonl",
        scale="cpu",
        measure=("all",),  # tables, or none
        seeds=(1, 2),
        steps=0,  # of a pre-training; 0: those of the scale
        pretraining_seconds=0.0,  # the most, each; 0: any
        jobs=1,  # processes, each on a core of its own
    )
    options.scale, options.folder = SCALES[options.scale], pathlib.Path(options.folder).resolve()
    options.steps = options.steps or options.scale.steps
    results, failed = Results(options.results), 0
    if options.measure != ("none",):
        prepare(options)
        failed = measure(results, options)
    printed = set()
    for table in options.scale.tables.values():
        cells = {x for cells in table.rows.values() for x in cells if values(x, results, options)}
        if not cells <= printed:
            print_table(table, results, options)
        printed |= cells
    if options.scale.on_gpu:
        print_runs(results, options)
    if failed:
        sys.exit(f"{failed} runs failed")


# -------------------------------------------------------------------------------- jobs


def measure(results: Results, options: argparse.Namespace) -> int:
    """Pre-trains, then fine-tunes, what is missing; the number of runs that failed."""
    tables, on_gpu = options.scale.tables, options.scale.on_gpu
    chosen = tables if options.measure == ("all",) else options.measure
    cells = {cell: None for name in chosen for row in tables[name].rows.values() for cell in row}
    seeds = options.seeds[:1] if on_gpu else options.seeds
    tuned = [
        (cell, seed, own)
        for cell, seed in itertools.product(cells, seeds)
        if cell.task in options.scale.tasks
        for own in own_seeds(cell, seed, options)
        if not results.find(**key_of(cell, options), seed=own)
    ]
    needed = {(cell.model, seed, cell.percent > 0) for cell, seed, _ in tuned}
    models = dict.fromkeys(cell.model for cell in cells)
    starts = [
        functools.partial(pretrain, model, seed, (model, seed, True) in needed, results, options)
        for seed, model in itertools.product(seeds, models)
    ]
    starts += [functools.partial(make_new, *one[:2], options) for one in needed if not one[2]]
    failed = in_parallel(starts, options.jobs)
    # Tasks in their order; on GPUs other seeds and figure 5 are last.
    order = list(options.scale.tasks)
    tuned.sort(key=lambda one: (one[2] != one[1], one[0].percent not in (0, 100),
                                order.index(one[0].task)))  # fmt: skip
    jobs = [functools.partial(fine_tune, *one, results, options) for one in tuned]
    return failed + in_parallel(jobs, options.jobs)


def own_seeds(cell: Cell, seed: int, options: argparse.Namespace) -> tuple[int, ...]:
    """The seeds with which a model is fine-tuned."""
    repeated = cell.task in options.scale.repeated and cell.percent in (0, 100)
    return options.seeds if repeated else (seed,)


def in_parallel(jobs: list[Callable[[], None]], number: int) -> int:
    """Runs jobs, so many at once; counts those that failed."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        for one in [pool.submit(job) for job in jobs]:
            try:
                one.result()
            except (Exception, SystemExit) as error:  # the others go on
                failed += 1
                print(f"FAILED: {error!r}", flush=True)
    return failed


def settings(model: str, options: argparse.Namespace, cell: Cell | None = None) -> str:
    """A digest of all that decides a result but the seed."""
    scale = options.scale
    own = [scale.config, scale.batch, scale.rate, options.steps, dataclasses.asdict(MODELS[model])]
    if cell:
        recipe = FIXED_RECIPE if cell.top == FIXED else scale.recipe | DROPOUT
        task = dataclasses.asdict(scale.tasks[cell.task])
        own += [task, TOPS[cell.top], recipe, list(scale.sizes)]
    if scale.on_gpu:
        own += [scale.data, scale.train, scale.vocab]
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:8]


def key_of(cell: Cell, options: argparse.Namespace) -> dict:
    """What a line of --results has for a fine-tuning, but for the seed."""
    return dataclasses.asdict(cell) | {"settings": settings(cell.model, options, cell)}


def last_step(model: str, options: argparse.Namespace) -> int:
    """The steps of a whole pre-training."""
    own, batch = MODELS[model], options.scale.batch
    return own.times * options.steps * batch // own.train.get("train_batch_size", batch)


# -------------------------------------------------------------------------------- commands


def run(options: argparse.Namespace, script: str, log: pathlib.Path, **given) -> float:
    """Runs a script, or a verb of bert-tf; gives its seconds.

    On a GPU they are those of the clock; otherwise of CPU, on a core of this thread's. A
    pre-training is stopped after --pretraining_seconds, and has then saved a checkpoint.
    """
    own_head = ("next_token", f"ner{TOP_OF_TASK}")
    if given.get("task", given.get("task_name")) in own_head:
        verb = "pretrain" if script == "run_pretraining.py" else "classify"
        words = command(ROOT / "benchmarks" / "heads_of_ones_own.py", verb)
    else:
        words = command(*([ROOT / script] if script.endswith(".py") else ["-m", "bert_tf", script]))
    words += [f"--{name}={value}" for name, value in given.items()]
    cores = sorted(os.sched_getaffinity(0))
    number = threading.current_thread().name.rpartition("_")[2]
    if number.isdigit() and not options.scale.on_gpu:
        cores = [cores[int(number) % len(cores)]]
    pin = functools.partial(os.sched_setaffinity, 0, cores)
    own = {} if script.endswith(".py") else {"CUDA_VISIBLE_DEVICES": "-1"}  # of data
    is_limited = script == "run_pretraining.py" and given.get("do_train") == "true"
    limit = is_limited and options.pretraining_seconds
    start = time.monotonic()
    with log.open("a") as file:
        process = subprocess.Popen(
            words, stdout=file, stderr=file, cwd=ROOT, preexec_fn=pin, env=os.environ | own
        )
        timer = threading.Timer(limit or threading.TIMEOUT_MAX, process.terminate)
        timer.daemon = True
        timer.start()
        _, status, used = os.wait4(process.pid, 0)
        is_stopped = not timer.is_alive()
        timer.cancel()
    if status and not (is_stopped and os.waitstatus_to_exitcode(status) == 143):
        end = log.read_text(errors="replace").splitlines()[-5:]
        sys.exit("\n".join([f"{script} failed: see {log}", *(line[:500] for line in end)]))
    return time.monotonic() - start if options.scale.on_gpu else used.ru_utime + used.ru_stime


def log_of(name: str, seed: int, options: argparse.Namespace) -> pathlib.Path:
    """The log of a pre-training."""
    return options.folder / f"{folder_name(name)}-{seed}.log"


def flags_of(name: str, seed: int, options: argparse.Namespace) -> dict:
    """The flags of a pre-training but its data; writes its configuration."""
    model, folder, scale = MODELS[name], options.folder, options.scale
    config = folder / f"{folder_name(name)}.json"
    write_json(config, scale.config | model.config)
    steps = model.times * options.steps
    given = {
        "bert_config_file": config, "vocab_file": folder / "vocab.txt",
        "output_dir": folder_of(name, seed, options), "do_train": "true", "seed": seed,
        "num_train_steps": steps, "learning_rate": scale.rate, "num_warmup_steps": steps // 10,
        "save_checkpoints_steps": steps // 10, "keep_checkpoint_max": 0,
        "train_batch_size": scale.batch,
    } | scale.train | model.train  # fmt: skip
    given |= {"task": "next_token"} if model.config.get("attention") == "causal" else {}
    for count in ("num_train_steps", "num_warmup_steps", "save_checkpoints_steps"):
        given[count] = given[count] * scale.batch // given["train_batch_size"]  # equal examples
    return given


def write_json(path: pathlib.Path, values: dict) -> None:
    """Writes a file at once: runs beside this one may read it."""
    part = path.with_suffix(f".{threading.get_ident()}")
    part.write_text(json.dumps(values, indent=1))
    part.replace(path)


def pretrain(
    name: str, seed: int, is_tuned: bool, results: Results, options: argparse.Namespace
) -> None:
    """Records -> a model of all steps, if that is missing; its seconds and held-out losses.

    The seconds are unknown of what had been begun before.
    """
    key = {"model": name, "seed": seed, "task": "", "settings": settings(name, options)}
    has_losses = any("loss" in line for line in results.find(**key))
    output, log = folder_of(name, seed, options), log_of(name, seed, options)
    is_whole = (output / f"model.ckpt-{last_step(name, options)}.index").exists()
    given = flags_of(name, seed, options)
    if not has_losses or (is_tuned and not is_whole):
        is_new = not output.exists()
        data = make_records(options, "train", seed, **MODELS[name].data)
        seconds = run(options, "run_pretraining.py", log, input_file=data, **given)
        found = {"seconds": round(seconds, 1)} if is_new else {}
        if options.scale.on_gpu:
            found |= {"steps": step_of(newest(output)), "card": card()}
        if not results.find(**key):
            results.add(key | found)
    if not has_losses:
        data = make_records(options, "dev", 1)
        given |= {"input_file": data, "eval_input_file": data, "do_train": "false"}
        given |= {"do_eval": "true", "eval_batch_size": 32, "max_eval_steps": 200}
        run(options, "run_pretraining.py", log, **given)
        results.add(key | scores_in(output / "eval_results.txt"))


def card() -> str:
    """The name of the GPU, or "CPU"."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "CPU"
    return found.splitlines()[0].strip()


def newest(output: pathlib.Path) -> pathlib.Path:
    """The index of the last checkpoint of a folder."""
    return max(output.glob("model.ckpt-*.index"), key=step_of)


def step_of(path: pathlib.Path) -> int:
    """The step of a checkpoint's file."""
    return int(path.suffixes[0].rpartition("-")[2])


def fine_tune(cell: Cell, seed: int, own_seed: int, results: Results, options) -> None:
    """A checkpoint of a seed -> the scores of a task, fine-tuned with a seed of its own."""
    folder, scale, task = options.folder, options.scale, options.scale.tasks[cell.task]
    name = folder_name(f"{cell.model}-{own_seed}-{cell.percent}-{cell.task}-{cell.top}")
    output, log = folder / "tuned" / name, folder / f"{name}.log"
    config = json.loads((folder / f"{folder_name(cell.model)}.json").read_text())
    given = task.flags | (FIXED_RECIPE if cell.top == FIXED else scale.recipe)
    if cell.top:
        given["task_name"] += TOP_OF_TASK
    else:
        config |= DROPOUT
    write_json(folder / f"{name}.json", config)
    given |= {
        "bert_config_file": folder / f"{name}.json", "vocab_file": folder / "vocab.txt",
        "init_checkpoint": checkpoint(cell, seed, options), "output_dir": output,
        "do_train": "true", "do_eval": "true", "seed": own_seed,
    }  # fmt: skip
    if cell.task == SQUAD:
        files = {"train_file": folder / "squad-train.json", "predict_file": folder / "squad.json"}
        given |= files | {"do_predict": "true", "predict_batch_size": 32}
    else:
        given |= {"data_dir": folder / folder_name(cell.task), "eval_batch_size": 32}
    shutil.rmtree(output, ignore_errors=True)  # of a run that was stopped
    seconds = round(run(options, task.script, log, **given), 1)
    scores = scores_in(output / "eval_results.txt")
    shutil.rmtree(output)
    log.unlink()
    found = {"score": scores[task.metric] * (1 if cell.task == SQUAD else 100), "seconds": seconds}
    found |= {"scores": scores} if scale.on_gpu else {}
    results.add(key_of(cell, options) | {"seed": own_seed} | found)


def folder_name(name: str) -> str:
    """Of what stands in a table."""
    return re.sub(r"[^\w.]+", "_", name).strip("_").lower()


def folder_of(model: str, seed: int, options: argparse.Namespace) -> pathlib.Path:
    """Where a pre-trained model is."""
    return options.folder / f"{folder_name(model)}-{seed}"


def checkpoint(cell: Cell, seed: int, options: argparse.Namespace) -> pathlib.Path:
    """The model after so many percent of its steps; before the first they are new weights."""
    output = folder_of(cell.model, seed, options)
    if cell.percent == 100:  # or where it was stopped
        return newest(output).with_suffix("")
    if cell.percent:
        return output / f"model.ckpt-{last_step(cell.model, options) * cell.percent // 100}"
    return path_of_new(cell.model, seed, options)


def path_of_new(model: str, seed: int, options: argparse.Namespace) -> pathlib.Path:
    """Where the new weights of a model are."""
    return options.folder / f"new-{folder_name(model)}-{seed}"


def make_new(model: str, seed: int, options: argparse.Namespace) -> None:
    """Writes new weights, once."""
    path, config = path_of_new(model, seed, options), flags_of(model, seed, options)
    if not path.exists():
        code = (
            "import bert_tf, keras, sys; keras.utils.set_random_seed(int(sys.argv[1]));"
            "config = bert_tf.BertConfig.from_json_file(sys.argv[2]);"
            "model = bert_tf.make_model('pretraining', config);"
            "model.tokenizer = bert_tf.FullTokenizer(sys.argv[3]);"
            "bert_tf.save_weights(model, sys.argv[4], format='tf1')"
        )
        files = [config["bert_config_file"], config["vocab_file"]]
        command = [sys.executable, "-c", code, str(seed), *map(str, files), str(path)]
        own = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
        subprocess.run(command, check=True, cwd=ROOT, stderr=subprocess.DEVNULL, env=own)


# -------------------------------------------------------------------------------- data


LOCK = threading.Lock()


def prepare(options: argparse.Namespace) -> None:
    """The text, the vocabulary and the data of the tasks; on a GPU also the records."""
    if not (options.folder / "names" / "dev.txt").exists():  # written last
        prepare_tasks(data_dir(), options.folder, options)
    if options.scale.on_gpu:
        make_records(options, "train", options.seeds[0])


def prepare_tasks(data: pathlib.Path, folder: pathlib.Path, options: argparse.Namespace) -> None:
    """Text, vocabulary, data of the tasks."""
    scale = options.scale
    num_sst_2, articles, dev_articles, num_names = scale.sizes
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "dev"):
        (folder / "text" / part).mkdir(parents=True, exist_ok=True)
    for path in sorted((data / "wiki" / "extracted").iterdir()):
        shutil.copy(path, folder / "text" / ("dev" if path.name in HELD_OUT else "train"))
    log, text = folder / "data.log", {"input_format": "wikiextractor"}
    if scale.vocab:
        shutil.copy(data / "vocab" / scale.vocab, folder / "vocab.txt")
    else:
        vocab = {"output_file": folder / "vocab.txt", "vocab_size": scale.config["vocab_size"]}
        run(options, "vocab", log, input_file=f"{folder}/text/*/*", **text, **vocab)
    for task in (SST_2, MRPC, STS_B):
        (folder / folder_name(task)).mkdir(exist_ok=True)
        for part in ("train", "dev"):
            lines = (data / "glue" / task / f"{part}.tsv").read_text("utf-8").split("\n")
            kept = lines[: num_sst_2 + 1] if task == SST_2 and num_sst_2 else lines  # with header
            text_of_part = "\n".join(kept).rstrip("\n") + "\n"
            (folder / folder_name(task) / f"{part}.tsv").write_text(text_of_part, "utf-8")
    cuts = {"squad-train": ("train", articles), "squad": ("dev", dev_articles)}
    for name, (part, number) in cuts.items():
        whole = json.loads((data / "squad" / f"{part}-v1.1.json").read_text("utf-8"))
        whole["data"] = whole["data"][:number]
        (folder / f"{name}.json").write_text(json.dumps(whole), "utf-8")
    write_names(folder, num_names)


def make_records(options: argparse.Namespace, part: str, seed: int, **flags) -> str:
    """The records of a part of the text, made once."""
    folder, name = options.folder, "-".join(
        [part, str(seed), *(f"{k}_{v}" for k, v in flags.items())]
    )  # fmt: skip
    path = f"{folder}/records/{name}.tfrecord"
    with LOCK:
        if not os.path.exists(path):
            given = {"max_seq_length": 128, "max_predictions_per_seq": 20, "dupe_factor": 1}
            given |= (options.scale.data if part == "train" else {}) | flags
            given |= {"input_format": "wikiextractor", "vocab_file": folder / "vocab.txt"}
            given |= {"input_file": f"{folder}/text/{part}/*", "output_file": path}
            run(options, "data", folder / "data.log", random_seed=seed, **given)
    return path


def write_names(folder: pathlib.Path, numbers: dict[str, int]) -> None:
    """Sentences of the text with their names as tags, in CoNLL's format.

    A name is a run of words that begin with a capital letter; the first word of a sentence, which
    always does, is none. An uncased model sees no capitals, so it must know names or their context.
    """
    from bert_tf.files import write_text
    from data_gen.documents import DocumentReader
    from data_gen.sentences import sentence_splitter

    split, words_of = sentence_splitter("wikiextractor", "en"), re.compile(r"\w+|[^\w\s]")
    kept = {}
    for part, number in numbers.items():
        paths = [str(path) for path in sorted((folder / "text" / part).iterdir())]
        lines = itertools.chain(*DocumentReader(paths, input_format="wikiextractor").documents())
        found = (words_of.findall(sentence) for line in lines for sentence in split(line))
        pool = [words for words in itertools.islice(found, 40 * number) if 8 <= len(words) <= 40]
        kept[part] = random.Random(1).sample(pool, min(number, len(pool)))
    (folder / "names").mkdir(exist_ok=True)
    for part, rows in kept.items():
        lines = []
        for words in rows:
            inside = False
            for place, word in enumerate(words):
                is_name = place > 0 and word[0].isupper()
                tag = ("I-NAME" if inside else "B-NAME") if is_name else "O"
                lines.append(f"{word} {tag}")
                inside = is_name
            lines.append("")
        write_text(str(folder / "names" / f"{part}.txt"), "\n".join([*lines, ""]))


# -------------------------------------------------------------------------------- tables


def lines_of(cell: Cell, results: Results, options: argparse.Namespace) -> list[dict]:
    """The lines of a cell, one for each seed."""
    if cell.task in options.scale.tasks:
        return results.find(**key_of(cell, options))
    return results.find(model=cell.model, task="", settings=settings(cell.model, options))


def values(cell: Cell, results: Results, options: argparse.Namespace) -> list[float]:
    """What the seeds gave."""
    if cell.task not in options.scale.tasks and not cell.percent:  # new weights have none
        return []
    name = "score" if cell.task in options.scale.tasks else "masked_lm_loss"
    return [line[name] for line in lines_of(cell, results, options) if name in line]


def shown(cell: Cell, results: Results, options: argparse.Namespace) -> str:
    """Mean, and half the range of the seeds."""
    found, digits = values(cell, results, options), 1 if cell.task in options.scale.tasks else 3
    if not found:
        return ""
    spread = f" ± {(max(found) - min(found)) / 2:.{digits}f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.{digits}f}{spread}"


def print_table(table: Table, results: Results, options: argparse.Namespace) -> None:
    """Ours beside the paper's: what is measured, once that is two rows or more."""
    rows = table.rows.values()
    if sum(any(values(cell, results, options) for cell in cells) for cells in rows) < 2:
        return
    found = [any(values(x, results, options) for x in cells) for cells in zip(*rows, strict=True)]
    heads = [name or "masked-LM loss" for name in itertools.compress(table.columns, found)]
    heads += [f"paper: {name}" for name in table.paper]
    print(f"\n{table.title}\n")
    print_titles("", *heads, "minutes")
    for name, row in table.rows.items():
        cells = [*itertools.compress(row, found)]
        ours = [shown(cell, results, options) for cell in cells]
        paper = [f"{x:g}" for x in table.figures.get(name, ())] or [""] * len(table.paper)
        parts = {cell for cell in cells if cell.task in options.scale.tasks}
        parts |= {Cell(cell.model, LOSS) for cell in cells if cell.percent}
        lines = [lines_of(cell, results, options) for cell in parts]
        seconds = [[x["seconds"] for x in of_cell if "seconds" in x] for of_cell in lines]
        is_known = seconds and all(seconds)
        minutes = f"{sum(map(statistics.mean, seconds)) / 60:.0f}" if is_known else ""
        print_rows([name, *ours, *paper, minutes])


def print_runs(results: Results, options: argparse.Namespace) -> None:
    """The pre-trainings: on what, how long, and the loss of a held-out token at the end."""
    print("\nMeasured on a card\n")
    print_titles("", "card", "steps", "sequences", "seconds", "loss of a token")
    models = (
        c.model for t in options.scale.tables.values() for row in t.rows.values() for c in row
    )
    for model in dict.fromkeys(models):
        key = {"model": model, "task": "", "settings": settings(model, options)}
        names = ("masked_lm_loss", "next_token_loss")
        losses = {x["seed"]: x[name] for x in results.find(**key) for name in names if name in x}
        for x in (x for x in results.find(**key) if "steps" in x):
            loss = f"{losses[x['seed']]:.2f}" if x["seed"] in losses else ""
            cells = [x["card"], f"{x['steps']:,}", f"{x['steps'] * options.scale.batch:,}"]
            print_rows([model, *cells, str(x.get("seconds", "")), loss])


if __name__ == "__main__":
    main()
