"""Fine-tuned sentence tasks: `run_classifier.py` beside transformers in PyTorch, three seeds each.

    BERT_TF_DATA=... python benchmarks/sentence_tasks.py --results=results.jsonl --torch_python=...

Both start from all-MiniLM-L6-v2 and train by one recipe: batch 32, 128 tokens at most, three epochs
(SST-2 one), learning rate 5e-5 with a tenth of warm-up and linear decay to 0, Adam with bias
correction and decoupled decay 0.01 (none for biases and normalizations), gradients clipped to norm
1, dropout as configured. PyTorch pads each batch to its own longest example, which its users must
ask for, as for examples of similar length in a batch (--torch_sorted: within 50 batches, as its
Trainer's group_by_length); --torch_padding=128 is its scripts' default. Each measurement is a whole
process, from the files to the dev metrics; ours and PyTorch's take turns. What --results already
holds is not measured again; all of it is printed as a table at the end.

--torch_python names a Python that has torch and transformers.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from scores import scores_in

ROOT = pathlib.Path(__file__).parents[1]
BATCH, LENGTH, RATE, DECAY = 32, 128, 5e-5, 0.01
TASKS = {  # folder in the data, epochs, metrics of the table
    "mrpc": ("glue/MRPC", 3, ("accuracy", "f1")),
    "rte": ("glue/RTE", 3, ("accuracy",)),
    "cola": ("glue/CoLA", 3, ("matthews",)),
    "sts-b": ("glue/STS-B", 3, ("pearson", "spearman")),
    "sst-2": ("glue/SST-2", 1, ("accuracy",)),
    "swag": ("swag", 3, ("accuracy",)),
    "wnli": ("glue/WNLI", 3, ("accuracy",)),
}


def main() -> None:
    """Measures what is missing, then prints the table."""
    options = parse_options()
    if options.torch_part:
        train_with_torch(json.loads(options.torch_part))
        return
    results = pathlib.Path(options.results)
    for seed in options.seeds:
        for task in options.tasks:
            for side in ("ours", "torch"):
                if options.torch_python or side == "ours":
                    measure(results, side, task, seed, options)
    print_table(read(results))


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default="sentence_tasks.jsonl")
    parser.add_argument("--torch_python")
    parser.add_argument("--torch_padding", type=int, default=0)
    parser.add_argument("--torch_sorted", action="store_true")
    parser.add_argument("--tasks", type=lambda x: x.split(","), default=list(TASKS))
    parser.add_argument("--seeds", type=lambda x: [*map(int, x.split(","))], default=[1, 2, 3])
    parser.add_argument("--torch_part", help=argparse.SUPPRESS)
    return parser.parse_args()


def read(results: pathlib.Path) -> list[dict]:
    """The measurements of earlier runs."""
    return [json.loads(line) for line in results.open()] if results.exists() else []


def measure(results: pathlib.Path, side: str, task: str, seed: int, options) -> None:
    """Trains and evaluates in a process; adds its line to the results."""
    key = {"side": side, "task": task, "seed": seed}
    if side == "torch" and options.torch_padding:
        key["side"] = f"torch-{options.torch_padding}"
    elif side == "torch" and options.torch_sorted:
        key["side"] = "torch-sorted"
    if any(key.items() <= line.items() for line in read(results)):
        return
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run = run_ours if side == "ours" else run_torch
        found, seconds = run(task, seed, pathlib.Path(folder), options)
        line = key | {"seconds": round(seconds or time.perf_counter() - begin, 1), **found}
    with results.open("a") as file:
        print(json.dumps(line), file=file)
    print(line, flush=True)


def data_dir() -> pathlib.Path:
    """The folder of the real data."""
    return pathlib.Path(os.environ["BERT_TF_DATA"])


def weights() -> pathlib.Path:
    """The folder of the first weights of both."""
    return data_dir() / "weights/all-MiniLM-L6-v2"


def run_ours(task: str, seed: int, folder: pathlib.Path, options) -> tuple[dict, None]:
    """The script, as a user calls it."""
    del options
    where, epochs, names = TASKS[task]
    subprocess.run(
        [
            sys.executable,
            str(ROOT / "run_classifier.py"),
            *(f"--task_name={task}", f"--data_dir={data_dir() / where}", "--do_train", "--do_eval"),
            *(f"--init_checkpoint={weights()}", f"--output_dir={folder}", f"--seed={seed}"),
            *(f"--learning_rate={RATE}", f"--num_train_epochs={epochs}", "--bias_correction"),
            *(f"--train_batch_size={BATCH}", f"--max_seq_length={LENGTH}", "--eval_batch_size=32"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    values = scores_in(folder / "eval_results.txt")
    return {name: values[f"eval_{name}"] for name in names}, None


# -------------------------------------------------------------------------------- PyTorch


def run_torch(task: str, seed: int, folder: pathlib.Path, options) -> tuple[dict, float]:
    """The same with transformers; metrics of its logits by our library, not in its time."""
    from bert_tf.tasks import registry, results

    where, epochs, names = TASKS[task]
    declared = registry.get_task(task)
    parts = {name: declared.read(str(data_dir() / where), name) for name in ("train", "dev")}
    declared = declared.with_labels_of(parts["train"])
    work = {
        "folder": str(folder),
        "weights": str(weights()),
        "head": declared.head.name,
        "num_labels": declared.labels.size,
        "epochs": epochs,
        "seed": seed,
        "padding": options.torch_padding,
        "sorted": options.torch_sorted,
    }
    for name, examples in parts.items():
        rows = [as_row(example, declared) for example in examples]
        (folder / f"{name}.json").write_text(json.dumps(rows))
    begin = time.perf_counter()
    command = [options.torch_python, __file__, f"--torch_part={json.dumps(work)}"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    values = declared.labels.probabilities(np.load(folder / "logits.npy"))
    gold = [declared.labels.ids(example.label) for example in parts["dev"]]
    compared = declared.labels.for_metrics(gold, values)
    found = results.compute_metrics(declared.metrics, *compared)
    return {name: float(found[f"eval_{name}"]) for name in names}, seconds


def as_row(example, task) -> dict:
    """First texts, second texts (one each but for multiple choice), and the label's number."""
    if task.head.name == "multiple_choice":
        firsts, seconds = zip(*example.pairs, strict=True)
        return {"a": firsts, "b": seconds, "label": int(example.label)}
    label, second = example.label, example.text_b
    label = float(label) if task.head.name == "regression" else task.labels.names.index(label)
    return {"a": [example.text_a], "b": [second] if second else None, "label": label}


def train_with_torch(work: dict) -> None:
    """In the Python that has torch: files -> training -> logits.npy of the dev examples."""
    import torch
    import transformers

    folder = pathlib.Path(work["folder"])
    random.seed(work["seed"])
    torch.manual_seed(work["seed"])
    if work["head"] == "multiple_choice":
        model = transformers.AutoModelForMultipleChoice.from_pretrained(work["weights"])
    else:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            work["weights"], num_labels=work["num_labels"]
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(work["weights"])
    train, dev = (json.loads((folder / f"{name}.json").read_text()) for name in ("train", "dev"))
    choices = len(train[0]["a"])

    def batch(rows: list[dict]) -> dict:
        firsts = [text for row in rows for text in row["a"]]
        seconds = [text for row in rows for text in row["b"]] if rows[0]["b"] else None
        made = tokenizer(
            firsts,
            seconds,
            truncation=True,
            max_length=LENGTH,
            padding="max_length" if work["padding"] else "longest",
            return_tensors="pt",
        )
        if work["head"] == "multiple_choice":
            made = {name: value.view(len(rows), choices, -1) for name, value in made.items()}
        return dict(made)

    def labels(rows: list[dict]):
        dtype = torch.float32 if work["head"] == "regression" else torch.long
        return torch.tensor([row["label"] for row in rows], dtype=dtype)

    def in_order(rows: list[dict]) -> list[dict]:
        """By length within so many, if asked for."""
        size = 50 * BATCH if work["sorted"] else 1
        windows = [rows[i : i + size] for i in range(0, len(rows), size)]
        return [x for w in windows for x in sorted(w, key=lambda x: x.get("length", 0))]

    if work["sorted"]:
        for row in train + dev:
            row["length"] = batch([row])["input_ids"].shape[-1]
    steps = int(len(train) / BATCH * work["epochs"])
    free = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    decayed = [p for p in model.parameters() if not any(p is other for other in free)]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": free, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, int(steps * 0.1), steps)
    model.train()
    rows: list[dict] = []
    for _ in range(steps):
        if len(rows) < BATCH:
            rows += in_order(random.sample(train, len(train)))
        taken, rows = rows[:BATCH], rows[BATCH:]
        model(**batch(taken), labels=labels(taken)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        parts = [dev[i : i + BATCH] for i in range(0, len(dev), BATCH)]
        logits = [model(**batch(part)).logits.numpy() for part in parts]
    np.save(folder / "logits.npy", np.concatenate(logits))


# -------------------------------------------------------------------------------- the table


def print_table(lines: list[dict]) -> None:
    """Mean, deviation and every seed's figure of each task and side; minutes of the first seed."""
    print("| task | metric | side | mean | deviation | seeds | minutes |")
    print("|---|---|---|---|---|---|---|")
    for task, (_, _, names) in TASKS.items():
        for name in names:
            for side in dict.fromkeys(line["side"] for line in lines):
                found = [x for x in lines if x["task"] == task and x["side"] == side]
                if found:
                    print(table_row(task, name, side, found))


def table_row(task: str, name: str, side: str, found: list[dict]) -> str:
    """One row; figures in hundredths."""
    values = [100 * line[name] for line in found]
    deviation = f"{statistics.stdev(values):.1f}" if len(values) > 1 else ""
    each = ", ".join(f"{value:.1f}" for value in values)
    minutes = min(found, key=lambda line: line["seed"])["seconds"] / 60
    mean = statistics.fmean(values)
    return f"| {task} | {name} | {side} | {mean:.1f} | {deviation} | {each} | {minutes:.1f} |"


if __name__ == "__main__":
    main()
