"""The paper's ablations (section 5, appendix C) in miniature, by the scripts that users run.

    BERT_TF_DATA=... python benchmarks/ablations.py --folder=ablations --results=ablations.jsonl
    python benchmarks/ablations.py --results=ablations.jsonl --measure=none --picture=ablations.png

Text: the Wikipedia sample, two of its files held out; a vocabulary of 8,000 pieces learned from all
of it. A pre-training makes --steps updates with 8 sequences of 128 tokens, six times as many for
figure 5; weights, order and masks are drawn by its seed. `MODELS` says what differs: larger batches
see as many sequences in fewer steps, and 512 tokens come in batches of as many tokens. A task has
one recipe (`TASKS`) for all models; a BiLSTM on fixed features, which starts from random weights,
has its own (`FIXED_RECIPE`). `TABLES` has the rows of the paper with its figures.

Each measurement is a line of --results with its seconds of CPU and a digest of its settings; what
is there already is not measured again, and a pre-training that was stopped goes on, its seconds
then unknown. --jobs run side by side, each on a core of its own. All of it is printed as tables at
the end: means over the seeds with half their range, and the minutes of a core that one seed takes.
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
from collections.abc import Iterator

from bert_tf.runtime import import_extra

from scores import scores_in

ROOT = pathlib.Path(__file__).parents[1]
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
      long_steps: the share of steps with 512 tokens at its end, with as many tokens in a batch.
      times: how many times --steps.
    """

    config: dict = dataclasses.field(default_factory=dict)
    data: dict = dataclasses.field(default_factory=dict)
    train: dict = dataclasses.field(default_factory=dict)
    long_steps: float = 0
    times: int = 1


def masks(mask: float, unchanged: float, random_: float) -> Model:
    """Other shares of the pieces to predict, in the order of table 8."""
    shares = {"mask_share": mask, "unchanged_share": unchanged, "random_share": random_}
    return Model(data=shares)


BERT, LONGER, WIDE, NEW = "BERT", "BERT, six times the steps", "L4 H256", "not pre-trained"
MODELS = {
    BERT: Model(),
    LONGER: Model(times=6),
    "no NSP": Model(train={"masked_lm_only": "true"}),
    "LTR, no NSP": Model(config={"attention": "causal"}),
    WIDE: Model(
        config={
            "num_hidden_layers": 4,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        }
    ),
    "100/0/0": masks(1, 0, 0),
    "80/0/20": masks(0.8, 0, 0.2),
    "80/20/0": masks(0.8, 0.2, 0),
    "0/20/80": masks(0, 0.2, 0.8),
    "0/0/100": masks(0, 0, 1),
    "whole words": Model(data={"do_whole_word_mask": "true"}),
    "128, then 512": Model(long_steps=0.1),
    "Adam, 32": Model(train={"train_batch_size": 32}),
    "LAMB, 512": Model(
        train={
            "optimizer": "lamb",
            "train_batch_size": 512,
            "gradient_accumulation_steps": 16,
            "learning_rate": 1e-2,
        }
    ),
}

# On top of the encoder, as keys of the configuration; "fixed" ones leave its weights as they are.
FEATURES = {  # of four layers, so the sum of all is that of the last four
    "embeddings": "embeddings", "second to last": "second_to_last", "last": "last",
    "sum of the last four": "sum_last_four", "last four": "concat_last_four",
}  # fmt: skip
FIXED = {f"fixed, {name}": {"bilstm_layers": 1, "features": x} for name, x in FEATURES.items()}
TOPS = {"": {}, "BiLSTM": {"bilstm_layers": 1}} | FIXED


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


def row(model: str, columns: tuple[str, ...], *, top: str = "", percent: int = 100) -> list[Cell]:
    """The cells of a model."""
    return [
        Cell(model, NAMES, percent, "fixed, last four") if column == FIXED_NAMES
        else Cell(model, column, percent, top)
        for column in columns
    ]  # fmt: skip


LONG = {"max_seq_length": 512, "max_predictions_per_seq": 77}
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
        | {name: row(name, ALL) for name in (BERT, "no NSP", "LTR, no NSP")}
        | {"+ BiLSTM": row("LTR, no NSP", ALL, top="BiLSTM")},
        ("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD"),
        {
            BERT: (84.4, 88.4, 86.7, 92.7, 88.5),
            "no NSP": (83.9, 84.9, 86.5, 92.6, 87.9),
            "LTR, no NSP": (82.1, 84.3, 77.5, 92.1, 77.8),
            "+ BiLSTM": (82.1, 84.1, 75.7, 91.6, 84.9),
        },
    ),
    "table 6": Table(
        "Table 6: size",
        (LOSS, *ALL[:3]),
        {name: row(shown, (LOSS, *ALL[:3]))
         for name, shown in {"L2 H128": BERT, WIDE: WIDE}.items()},
        ("perplexity", "MNLI-m", "MRPC", "SST-2"),
        {
            "L3 H768": (5.84, 77.9, 79.8, 88.4),
            "L6 H768, 3 heads": (5.24, 80.6, 82.2, 90.7),
            "L6 H768": (4.68, 81.9, 84.8, 91.3),
            "L12 H768": (3.99, 84.4, 86.7, 92.9),
            "L12 H1024": (3.54, 85.7, 86.9, 93.3),
            "L24 H1024": (3.23, 86.6, 87.8, 93.7),
        },
    ),
    "table 7": Table(
        "Table 7: tagging, fine-tuned or by fixed features of L4 H256",
        (NAMES,),
        {"fine-tuned": row(WIDE, (NAMES,))}
        | {top: row(WIDE, (NAMES,), top=top) for top in FIXED},
        ("NER, BERT-Base",),
        {
            "fine-tuned": (96.4,),
            "fixed, embeddings": (91.0,),
            "fixed, second to last": (95.6,),
            "fixed, last": (94.9,),
            "fixed, sum of the last four": (95.9,),
            "fixed, last four": (96.1,),
            "fixed, sum of all": (95.5,),
        },
    ),
    "table 8": Table(
        "Table 8: [MASK] / the same / random, and whole words",
        ALL[:3],
        {
            name: row(shown, ALL[:3])
            for name, shown in {
                "80/10/10": BERT,
                **{name: name for name in MODELS if "/" in name or "whole" in name},
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
    "lengths": Table(
        "128 tokens, then 512",
        (LOSS, "loss at 512", SQUAD),
        {name: row(name, (LOSS, "loss at 512", SQUAD)) for name in (BERT, "128, then 512")},
    ),
    "batches": Table(
        "As many sequences in larger batches",
        (LOSS, *ALL[:3]),
        {name: row(shown, (LOSS, *ALL[:3]))
         for name, shown in {"Adam, 8": BERT, "Adam, 32": "Adam, 32",
                             "LAMB, 512": "LAMB, 512"}.items()},
    ),
}  # fmt: skip


def main() -> None:
    """Measures what is missing, then prints the tables."""
    options = parse_options()
    results = Results(pathlib.Path(options.results))
    if options.measure:
        prepare(options)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            runs = [pool.submit(measure, *one, results, options) for one in chains(options)]
            for done in concurrent.futures.as_completed(runs):
                done.result()
    for table in TABLES.values():
        print_table(table, results, options)
    if options.picture:
        draw(options.picture, results, options)


def parse_options() -> argparse.Namespace:
    """The command line."""

    def names(text: str) -> list[str]:
        return [name for name in text.split(",") if name != "none"]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, default="ablations", help="of all models")
    parser.add_argument("--results", default="ablations.jsonl")
    parser.add_argument("--measure", type=names, default=list(TABLES), help="tables, or none")
    parser.add_argument("--seeds", type=lambda x: [*map(int, x.split(","))], default=[1, 2])
    parser.add_argument("--steps", type=int, default=5000, help="of a pre-training")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each on a core of its own")
    parser.add_argument("--picture")
    return parser.parse_args()


class Results:
    """The lines of --results; each has a key, what was found, and seconds."""

    def __init__(self, path: pathlib.Path):
        self._path, self._lock = path, threading.Lock()
        text = path.read_text() if path.exists() else ""
        self._lines = [json.loads(line) for line in text.splitlines()]

    def find(self, **key) -> list[dict]:
        """The lines that have all of these values."""
        return [line for line in [*self._lines] if key.items() <= line.items()]

    def add(self, line: dict) -> None:
        """Appends a line; later runs do not measure it again."""
        with self._lock, self._path.open("a") as file:
            self._lines.append(line)
            print(json.dumps(line), file=file)
        print(line, flush=True)


def chains(options: argparse.Namespace) -> Iterator[tuple[str, int, list[Cell]]]:
    """A pre-trained model and all that starts from it, for each seed."""
    cells = [cell for name in options.measure for row in TABLES[name].rows.values() for cell in row]
    for seed in options.seeds:
        for model in dict.fromkeys(cell.model for cell in cells):
            of_model = [cell for cell in cells if cell.model == model and cell.task in TASKS]
            of_model.sort(key=lambda cell: (list(TASKS).index(cell.task), not cell.top))
            yield model, seed, list(dict.fromkeys(of_model))  # the quickest first


def measure(model: str, seed: int, cells: list[Cell], results: Results, options) -> None:
    """Pre-trains, then fine-tunes, each in a process."""
    key = {"model": model, "seed": seed, "task": "", "settings": settings(model, options)}
    keys = {cell: key_of(cell, options) | {"seed": seed} for cell in cells}
    missing = [cell for cell in cells if not results.find(**keys[cell])]
    whole = folder_of(model, seed, options) / f"model.ckpt-{last_step(model, options)}.index"
    if not results.find(**key) or (missing and not whole.exists()):
        found = key | pretrain(model, seed, options)
        if not results.find(**key):
            results.add(found)
    for cell in missing:
        results.add(keys[cell] | fine_tune(cell, seed, options))


def settings(model: str, options: argparse.Namespace, cell: Cell | None = None) -> str:
    """A digest of all that decides a result but the seed."""
    own = [CONFIG, BATCH, RATE, options.steps, dataclasses.asdict(MODELS[model])]
    if cell:
        recipe = FIXED_RECIPE if cell.top.startswith("fixed") else RECIPE | DROPOUT
        sizes = [NUM_SST_2, ARTICLES, DEV_ARTICLES, NUM_NAMES]
        own += [dataclasses.asdict(TASKS[cell.task]), TOPS[cell.top], recipe, sizes]
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:8]


def key_of(cell: Cell, options: argparse.Namespace) -> dict:
    """What a line of --results has for a fine-tuning, but for the seed."""
    return dataclasses.asdict(cell) | {"settings": settings(cell.model, options, cell)}


def last_step(model: str, options: argparse.Namespace) -> int:
    """The steps of a whole pre-training."""
    own = MODELS[model]
    return own.times * options.steps * BATCH // own.train.get("train_batch_size", BATCH)


# -------------------------------------------------------------------------------- commands


def run(script: str, log: pathlib.Path, **given) -> float:
    """Runs a script, or a verb of bert-tf, on a core of this thread's; gives its seconds of CPU."""
    command = [str(ROOT / script)] if script.endswith(".py") else ["-m", "bert_tf", script]
    command += [f"--{name}={value}" for name, value in given.items()]
    cores = sorted(os.sched_getaffinity(0))
    if (number := threading.current_thread().name.rpartition("_")[2]).isdigit():
        cores = [cores[int(number) % len(cores)]]
    pin = functools.partial(os.sched_setaffinity, 0, cores)
    with log.open("a") as file:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=file, stderr=file, cwd=ROOT, preexec_fn=pin
        )
        _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{script} failed: see {log}")
    return used.ru_utime + used.ru_stime


def pretrain(name: str, seed: int, options: argparse.Namespace) -> dict:
    """Records -> a model of all steps -> its scores on held-out records."""
    model, folder = MODELS[name], options.folder.resolve()
    output, log = folder_of(name, seed, options), folder / f"{folder_name(name)}-{seed}.log"
    is_new = not output.exists()
    config = folder / f"{folder_name(name)}.json"
    config.write_text(json.dumps(CONFIG | model.config, indent=1))
    steps = model.times * options.steps
    given = {
        "bert_config_file": config, "vocab_file": folder / "vocab.txt", "output_dir": output,
        "do_train": "true", "seed": seed, "num_train_steps": steps, "learning_rate": RATE,
        "num_warmup_steps": steps // 10, "save_checkpoints_steps": steps // 10,
        "keep_checkpoint_max": 0, "train_batch_size": BATCH,
    }  # fmt: skip
    held_out = {"do_eval": "true", "eval_batch_size": 32, "max_eval_steps": 200}
    given |= model.train
    for count in ("num_train_steps", "num_warmup_steps", "save_checkpoints_steps"):
        given[count] = given[count] * BATCH // given["train_batch_size"]  # equal examples
    data, seconds, done = make_records(folder, "train", seed, **model.data), 0.0, 0
    if model.long_steps:
        given["stop_at_step"] = given["num_train_steps"] - round(model.long_steps * steps)
        done = max([0, *map(step_of, output.glob("model.ckpt-*.index"))])
    if done <= given.get("stop_at_step", given["num_train_steps"]):  # else in the second phase
        seconds = run("run_pretraining.py", log, input_file=data, **given)
    if model.long_steps:
        given["stop_at_step"], long = given["num_train_steps"], {"train_batch_size": BATCH // 4}
        data = make_records(folder, "train", seed, **LONG)
        seconds += run("run_pretraining.py", log, input_file=data, **(given | LONG | long))
    found = {}
    for length, flags in {"": {}, " at 512": LONG}.items():
        if not flags or name in (BERT, "128, then 512"):
            own = {k: v for k, v in given.items() if k not in ("do_train", "stop_at_step")}
            own["eval_input_file"] = make_records(folder, "dev", 1, **flags)
            run("run_pretraining.py", log, input_file=data, **(own | held_out | flags))
            scores = scores_in(output / "eval_results.txt")
            found |= {f"{key}{length}": value for key, value in scores.items()}
    return found | ({"seconds": round(seconds, 1)} if is_new else {})


def step_of(path: pathlib.Path) -> int:
    """The step of a checkpoint's file."""
    return int(path.suffixes[0].rpartition("-")[2])


def fine_tune(cell: Cell, seed: int, options: argparse.Namespace) -> dict:
    """A checkpoint -> the scores of a task."""
    folder, task = options.folder.resolve(), TASKS[cell.task]
    name = folder_name(f"{cell.model}-{seed}-{cell.percent}-{cell.task}-{cell.top}")
    output, log = folder / "tuned" / name, folder / f"{name}.log"
    config = json.loads((folder / f"{folder_name(cell.model)}.json").read_text()) | TOPS[cell.top]
    given = dict(task.flags)
    if cell.top:
        config["bilstm_size"] = config["hidden_size"]
    if cell.top.startswith("fixed"):
        given |= FIXED_RECIPE
    else:
        given |= RECIPE
        config |= DROPOUT
    own = folder / f"{name}.json"
    own.write_text(json.dumps(config, indent=1))
    given |= {
        "bert_config_file": own, "vocab_file": folder / "vocab.txt", "output_dir": output,
        "init_checkpoint": checkpoint(cell, seed, options), "do_train": "true", "do_eval": "true",
        "seed": seed,
    }  # fmt: skip
    if cell.task == SQUAD:
        files = {"train_file": folder / "squad-train.json", "predict_file": folder / "squad.json"}
        given |= files | {"do_predict": "true", "predict_batch_size": 32}
    else:
        given |= {"data_dir": folder / folder_name(cell.task), "eval_batch_size": 32}
    shutil.rmtree(output, ignore_errors=True)  # of a run that was stopped
    seconds = round(run(task.script, log, **given), 1)
    score = scores_in(output / "eval_results.txt")[task.metric]
    shutil.rmtree(output)
    log.unlink()
    return {"score": score if cell.task == SQUAD else 100 * score, "seconds": seconds}


def folder_name(name: str) -> str:
    """Of what stands in a table."""
    return re.sub(r"[^\w.]+", "_", name).strip("_").lower()


def folder_of(model: str, seed: int, options: argparse.Namespace) -> pathlib.Path:
    """Where a pre-trained model is."""
    return options.folder.resolve() / f"{folder_name(model)}-{seed}"


def checkpoint(cell: Cell, seed: int, options: argparse.Namespace) -> pathlib.Path:
    """The model after so many percent of its steps; before the first they are new weights."""
    output = folder_of(cell.model, seed, options)
    if cell.percent:
        return output / f"model.ckpt-{last_step(cell.model, options) * cell.percent // 100}"
    path = options.folder.resolve() / f"new-{folder_name(cell.model)}-{seed}"
    if not path.exists():
        code = (
            "import bert_tf, keras, sys; keras.utils.set_random_seed(int(sys.argv[1]));"
            "config = bert_tf.BertConfig.from_json_file(sys.argv[2]);"
            "model = bert_tf.make_model('pretraining', config);"
            "model.tokenizer = bert_tf.FullTokenizer(sys.argv[3]);"
            "bert_tf.save_weights(sys.argv[4], model, to_format='tf1')"
        )
        files = [output.parent / f"{folder_name(cell.model)}.json", output.parent / "vocab.txt"]
        command = [sys.executable, "-c", code, str(seed), *map(str, files), str(path)]
        subprocess.run(command, check=True, cwd=ROOT, stderr=subprocess.DEVNULL)
    return path


# -------------------------------------------------------------------------------- data


LOCK = threading.Lock()


def prepare(options: argparse.Namespace) -> None:
    """The text, the vocabulary and the data of the tasks."""
    data, folder = pathlib.Path(os.environ["BERT_TF_DATA"]), options.folder.resolve()
    if (folder / "names" / "dev.txt").exists():  # written last
        return
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "dev"):
        (folder / "text" / part).mkdir(parents=True, exist_ok=True)
    for path in sorted((data / "wiki" / "extracted").iterdir()):
        shutil.copy(path, folder / "text" / ("dev" if path.name in HELD_OUT else "train"))
    log, text = folder / "data.log", {"input_format": "wikiextractor"}
    vocab = {"output_file": folder / "vocab.txt", "vocab_size": CONFIG["vocab_size"]}
    run("vocab", log, input_file=f"{folder}/text/*/*", **text, **vocab)
    for task in (SST_2, MRPC, STS_B):
        (folder / folder_name(task)).mkdir(exist_ok=True)
        for part in ("train", "dev"):
            lines = (data / "glue" / task / f"{part}.tsv").read_text("utf-8").split("\n")
            kept = lines[: NUM_SST_2 + 1] if task == SST_2 else lines  # with its header
            (folder / folder_name(task) / f"{part}.tsv").write_text("\n".join(kept) + "\n", "utf-8")
    cuts = {"squad-train": ("train", ARTICLES), "squad": ("dev", DEV_ARTICLES)}
    for name, (part, number) in cuts.items():
        whole = json.loads((data / "squad" / f"{part}-v1.1.json").read_text("utf-8"))
        whole["data"] = whole["data"][:number]
        (folder / f"{name}.json").write_text(json.dumps(whole), "utf-8")
    write_names(folder)


def make_records(folder: pathlib.Path, part: str, seed: int, **flags) -> str:
    """The records of a part of the text, made once."""
    name = "-".join([part, str(seed), *(f"{k}_{v}" for k, v in flags.items())])
    path = f"{folder}/records/{name}.tfrecord"
    with LOCK:
        if not os.path.exists(path):
            given = {"max_seq_length": 128, "max_predictions_per_seq": 20} | flags
            given |= {"input_format": "wikiextractor", "vocab_file": folder / "vocab.txt"}
            given |= {"input_file": f"{folder}/text/{part}/*", "output_file": path}
            run("data", folder / "data.log", dupe_factor=1, random_seed=seed, **given)
    return path


def write_names(folder: pathlib.Path) -> None:
    """Sentences of the text with their names as tags, in CoNLL's format.

    A name is a run of words that begin with a capital letter; the first word of a sentence, which
    always does, is none. An uncased model sees no capitals, so it must know names or their context.
    """
    from bert_tf.files import write_text
    from data_gen.documents import DocumentReader, sentence_splitter

    split, words_of = sentence_splitter("wikiextractor", "en"), re.compile(r"\w+|[^\w\s]")
    kept = {}
    for part, number in NUM_NAMES.items():
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
    if cell.task in TASKS:
        return results.find(**key_of(cell, options))
    return results.find(model=cell.model, task="", settings=settings(cell.model, options))


def values(cell: Cell, results: Results, options: argparse.Namespace) -> list[float]:
    """What the seeds gave."""
    of_model = "masked_lm_loss" + cell.task.removeprefix("loss")
    name = "score" if cell.task in TASKS else of_model
    return [line[name] for line in lines_of(cell, results, options) if name in line]


def shown(cell: Cell, results: Results, options: argparse.Namespace) -> str:
    """Mean, and half the range of the seeds."""
    found, digits = values(cell, results, options), 1 if cell.task in TASKS else 3
    if not found:
        return ""
    spread = f" ± {(max(found) - min(found)) / 2:.{digits}f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.{digits}f}{spread}"


def print_table(table: Table, results: Results, options: argparse.Namespace) -> None:
    """Ours beside the paper's, once two rows or more are measured."""
    rows = table.rows.values()
    if sum(any(values(cell, results, options) for cell in cells) for cells in rows) < 2:
        return
    heads = [name or "masked-LM loss" for name in table.columns]
    heads += [f"paper: {name}" for name in table.paper]
    print(f"\n{table.title}\n\n| | {' | '.join(heads)} | minutes |")
    print("|---" * (len(heads) + 2) + "|")
    for name in dict.fromkeys([*table.rows, *table.figures]):
        cells = table.rows.get(name, ())
        ours = [shown(cell, results, options) for cell in cells] or [""] * len(table.columns)
        paper = [f"{x:g}" for x in table.figures.get(name, ())] or [""] * len(table.paper)
        parts = {cell for cell in cells if cell.task in TASKS}
        parts |= {Cell(cell.model, LOSS) for cell in cells if cell.percent}
        found = [lines_of(cell, results, options) for cell in parts]
        seconds = [[x["seconds"] for x in lines if "seconds" in x] for lines in found]
        is_known = seconds and all(seconds)
        minutes = f"{sum(map(statistics.mean, seconds)) / 60:.0f}" if is_known else ""
        print(f"| {name} | {' | '.join([*ours, *paper])} | {minutes} |")


def draw(path: str, results: Results, options: argparse.Namespace) -> None:
    """Figure 5: the scores of the tasks over the steps of pre-training, every seed a point."""
    options_of = {"package": "matplotlib", "extra": "plot", "needed_by": "a picture"}
    pyplot = import_extra("matplotlib.pyplot", **options_of)
    pyplot.switch_backend("agg")
    table = TABLES["figure 5"]
    _, axes = pyplot.subplots(1, len(table.columns), figsize=(13, 2.6), constrained_layout=True)
    for number, (column, panel) in enumerate(zip(table.columns, axes, strict=True)):
        found = {}
        for cell in [row[number] for row in table.rows.values()]:
            if scores := values(cell, results, options):
                found[cell.percent] = statistics.mean(scores)
                panel.plot([cell.percent] * len(scores), scores, "C0o", ms=4)
        panel.plot([*found], [*found.values()], "C0-")
        metric = TASKS[column if column in TASKS else NAMES].metric.removeprefix("eval_")
        panel.set(title=column, xlabel="% of the steps", ylabel=metric.replace("_", " "))
    pyplot.savefig(path, dpi=90)


if __name__ == "__main__":
    main()
