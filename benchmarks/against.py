"""Compares the speed with another checkout: training step, reading, generation, answers of exports.

    git worktree add ../before COMMIT
    BERT_TF_DATA=... python benchmarks/against.py --before=../before

Processes of both take turns, so that a change of the machine's speed affects both. Prints rates of
each, and the median ratio of the turns, above 1 where this checkout is faster. The parts:

    step        examples/s of the training loop, L2 H128 and L4 H256 (each checkout's train_step.py)
    reading     records/s, shuffled and checked (this one's reading.py, with each one's package)
    generation  MB/s of `data` with one worker; both must write the same records
    tuning      examples/s of fine-tuning all-MiniLM-L6-v2 on MRPC, CoLA and SQuAD, batches of 32,
                as each checkout counts them, without the steps that are compiled
    answer      requests/s of an export of all-MiniLM-L6-v2, made by each checkout, by TensorFlow's
                C API (each one's serving_latency.py); both must give the same vectors
"""

import json
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
from bert_tf.cli.plot import read_curves

import data_generation
import reading
import serving_latency
import train_step
from measuring import ROOT, Contender, command, data_dir, in_turn, parse_options, print_rates, run

SIZES = ("2x128", "4x256")  # of the step
MEGABYTES = 4  # of text
ROUNDING = 1e-5
CASES = ((20, 1), (200, 1), (20, 32))  # of answers: words of a text, texts of a request
Trees = dict[str, pathlib.Path]


def main() -> None:
    """The parts, each in turn -> tables."""
    options = parse_options(__doc__, before=None, rounds=9, parts=tuple(PARTS))
    trees = {"now": ROOT, "before": pathlib.Path(options.before).resolve()}
    for part in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[part](trees, pathlib.Path(folder), options.rounds)


def step(trees: Trees, _: pathlib.Path, rounds: int) -> None:
    """Examples a second of a training step."""
    for size in SIZES:
        contenders = {
            name: train_step.start("ours", size, sys.executable, tree)
            for name, tree in trees.items()
        }
        print_rates(f"step {size}, examples/s", train_step.rates(contenders, rounds, 4.0))


def read(trees: Trees, folder: pathlib.Path, rounds: int) -> None:
    """Records a second."""
    pattern = reading.write_many(folder, 50_000)
    words = command(reading.__file__, contender=pattern)
    contenders = {n: Contender(words, PYTHONPATH=str(tree)) for n, tree in trees.items()}
    rates: dict[str, list[float]] = {name: [] for name in trees}
    for contender in contenders.values():
        contender.ask(10)
    for name in in_turn(trees, rounds):
        rates[name].append(contenders[name].ask(150))
    for contender in contenders.values():
        contender.close()
    print_rates("reading, records/s", rates)


def generation(trees: Trees, folder: pathlib.Path, rounds: int) -> None:
    """Megabytes of text a second, from start to end."""
    text = folder / "text.txt"
    data_generation.write_text(text, f"{data_dir()}/wiki/extracted/*", MEGABYTES * 10**6)
    vocabulary = data_dir() / "vocab/uncased_en_30522.txt"
    flags = {"input_file": text, "vocab_file": vocabulary, "dupe_factor": 5, "num_workers": 1}
    rates: dict[str, list[float]] = {name: [] for name in trees}
    for name in in_turn(trees, rounds):
        begin = time.perf_counter()
        script = trees[name] / "create_pretraining_data.py"
        run(script, cwd=trees[name], output_file=folder / f"{name}.tfrecord", **flags)
        rates[name].append(MEGABYTES / (time.perf_counter() - begin))
    print_rates("generation, MB/s", rates)
    if len({(folder / f"{name}.tfrecord").read_bytes() for name in trees}) > 1:
        sys.exit("the checkouts write different records")


def tuning(trees: Trees, folder: pathlib.Path, rounds: int) -> None:
    """Examples a second of fine-tuning: medians over the parts of a training."""
    squad = json.loads((data_dir() / "squad/train-v1.1.json").read_text("utf-8"))
    (folder / "train.json").write_text(json.dumps(squad | {"data": squad["data"][:2]}))
    source = {"init_checkpoint": data_dir() / "weights/all-MiniLM-L6-v2", "do_train": True}
    source |= {"train_batch_size": 32, "log_steps": 4}
    commands = {
        name: ("classify", {"task_name": name, "data_dir": data_dir() / "glue" / table})
        for name, table in {"mrpc": "MRPC", "cola": "CoLA"}.items()
    }
    commands["squad"] = "squad", {"train_file": folder / "train.json"}
    epochs = {"mrpc": 0.3, "cola": 0.3, "squad": 0.4}
    for name, (verb, flags) in commands.items():
        rates: dict[str, list[float]] = {tree: [] for tree in trees}
        for turn, tree in enumerate(in_turn(trees, rounds)):
            output = folder / f"{name}{turn}"
            flags |= source | {"num_train_epochs": epochs[name], "output_dir": output}
            run("-m", "bert_tf", verb, cwd=trees[tree], **flags)
            rates[tree].append(
                statistics.median(read_curves(str(output))["examples_per_second"].values())
            )
        print_rates(f"{name}, examples/s", rates)


def answer(trees: Trees, folder: pathlib.Path, rounds: int) -> None:
    """Requests a second, one after the other."""
    contenders = {}
    for name, tree in trees.items():
        export_dir = folder / name / "export-float32"
        flags = {
            "init_checkpoint": data_dir() / "weights/all-MiniLM-L6-v2",
            "task": "embeddings",
            "export_dir": export_dir,
        }
        run("-m", "bert_tf", "export", cwd=tree, **flags)
        names = serving_latency.names_of(export_dir / "1")
        (folder / name / "tensors.json").write_text(json.dumps(names))
        script = tree / "benchmarks/serving_latency.py"
        contenders[name] = Contender(command(script, contender="ours", folder=folder / name))
    for words, texts in CASES:
        rates: dict[str, list[float]] = {name: [] for name in trees}
        vectors: dict[str, list] = {name: [] for name in trees}
        for turn, name in enumerate(in_turn(trees, rounds)):
            count = 20 if texts == 1 else 4
            requests = serving_latency.texts_of(words, texts, turn // 2, count)
            answers = contenders[name].ask(requests)
            rates[name].append(1 / statistics.median(answers["seconds"]))
            vectors[name].append(answers["vectors"])
        print_rates(f"answer {texts} x {words} words, requests/s", rates)
        pairs = zip(*vectors.values(), strict=True)
        if (difference := max(np.abs(np.subtract(*pair)).max() for pair in pairs)) > ROUNDING:
            sys.exit(f"the exports of the checkouts differ by {difference:.1e}")


PARTS = {
    "step": step,
    "reading": read,
    "generation": generation,
    "tuning": tuning,
    "answer": answer,
}

if __name__ == "__main__":
    main()
