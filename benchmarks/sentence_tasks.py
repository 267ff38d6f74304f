"""Fine-tuned sentence tasks: `run_classifier.py` beside transformers in PyTorch, three seeds each.

    BERT_TF_DATA=... python benchmarks/sentence_tasks.py --results=results.jsonl --torch_python=...
    BERT_TF_DATA=... python benchmarks/sentence_tasks.py --results=bfloat16.jsonl --tasks=mrpc \
        --sides=ours,ours-bfloat16,torch-autocast --torch_python=...

Both start from all-MiniLM-L6-v2 and train by one recipe: batch 32, 128 tokens at most, three epochs
(SST-2 one), learning rate 5e-5 with a tenth of warm-up and linear decay to 0, Adam with bias
correction and decoupled decay 0.01 (none for biases and normalizations), gradients clipped to norm
1, dropout as configured. PyTorch pads each batch to its own longest example, which its users must
ask for, as for examples of similar length in a batch (--torch_sorted: within 50 batches, as its
Trainer's group_by_length). ours-bfloat16 adds --precision=bfloat16, torch-autocast trains under
torch.autocast in bfloat16, sorted. Each measurement is a whole process, from the files to the dev
metrics; ours and PyTorch's take turns. What --results already holds is not measured again; all of
it is printed as a table at the end.

--torch_python names a Python that has torch and transformers.
"""

import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import numpy as np

from measuring import (
    ROOT,
    Results,
    command,
    data_dir,
    parse_options,
    print_rows,
    print_titles,
    run,
    scores_in,
)

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
    options = parse_options(
        __doc__,
        results="sentence_tasks.jsonl",
        torch_python=None,
        torch_sorted=False,
        sides=(),  # default: ours, and with --torch_python torch or torch-sorted
        tasks=tuple(TASKS),
        seeds=(1, 2, 3),
        torch_part=None,  # the work of the process with PyTorch
    )
    if options.torch_part:
        train_with_torch(json.loads(options.torch_part))
        return
    results = Results(options.results)
    theirs = "torch-sorted" if options.torch_sorted else "torch"
    sides = options.sides or (("ours", theirs) if options.torch_python else ("ours",))
    for seed in options.seeds:
        for task in options.tasks:
            for side in sides:
                key = {"side": side, "task": task, "seed": seed}
                if not results.find(**key):
                    with tempfile.TemporaryDirectory() as folder:
                        results.add(key | measure(side, task, seed, pathlib.Path(folder), options))
    print_table(results.lines)


def measure(side: str, task: str, seed: int, folder: pathlib.Path, options) -> dict:
    """Trains and evaluates in a process: its seconds and scores."""
    if not side.startswith("ours"):
        return run_torch(side, task, seed, folder, options)
    begin = time.perf_counter()
    run_ours(task, seed, folder, precision="bfloat16" if side == "ours-bfloat16" else "float32")
    seconds = round(time.perf_counter() - begin, 1)
    scores = scores_in(folder / "eval_results.txt")
    return {"seconds": seconds} | {name: scores[f"eval_{name}"] for name in TASKS[task][2]}


def weights() -> pathlib.Path:
    """The folder of the first weights of both."""
    return data_dir() / "weights/all-MiniLM-L6-v2"


def run_ours(
    task: str, seed: int, folder: pathlib.Path, *, precision: str, epochs: float | None = None
) -> None:
    """The script, as a user calls it; for the epochs of the task unless others are given."""
    where, usual, _ = TASKS[task]
    epochs = epochs or usual
    flags = {"task_name": task, "data_dir": data_dir() / where, "do_train": True, "do_eval": True}
    flags |= {"init_checkpoint": weights(), "output_dir": folder, "seed": seed}
    flags |= {"learning_rate": RATE, "num_train_epochs": epochs, "bias_correction": True}
    flags |= {
        "precision": precision,
        "train_batch_size": BATCH,
        "max_seq_length": LENGTH,
        "eval_batch_size": 32,
    }
    run(ROOT / "run_classifier.py", **flags)


# -------------------------------------------------------------------------------- PyTorch


def run_torch(side: str, task: str, seed: int, folder: pathlib.Path, options) -> dict:
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
        "sorted": side != "torch",
        "autocast": side == "torch-autocast",
    }
    for name, examples in parts.items():
        rows = [as_row(example, declared) for example in examples]
        (folder / f"{name}.json").write_text(json.dumps(rows))
    begin = time.perf_counter()
    words = command(__file__, python=options.torch_python, torch_part=json.dumps(work))
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    seconds = round(time.perf_counter() - begin, 1)
    values = declared.labels.probabilities(np.load(folder / "logits.npy"))
    gold = [declared.labels.ids(example.label) for example in parts["dev"]]
    compared = declared.labels.for_metrics(gold, values)
    found = results.compute_metrics(declared.metrics, *compared)
    return {"seconds": seconds} | {name: float(found[f"eval_{name}"]) for name in names}


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
    batches = TorchBatches(work, transformers.AutoTokenizer.from_pretrained(work["weights"]))
    train, dev = (json.loads((folder / f"{name}.json").read_text()) for name in ("train", "dev"))
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
            rows += batches.in_order(random.sample(train, len(train)))
        taken, rows = rows[:BATCH], rows[BATCH:]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=work["autocast"]):
            loss = model(**batches.batch(taken), labels=batches.labels(taken)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        parts = [dev[i : i + BATCH] for i in range(0, len(dev), BATCH)]
        logits = [model(**batches.batch(part)).logits.numpy() for part in parts]
    np.save(folder / "logits.npy", np.concatenate(logits))


class TorchBatches:
    """Rows as `as_row` gives them -> tensors."""

    def __init__(self, work: dict, tokenizer):
        self._work, self._tokenizer = work, tokenizer
        self._lengths: dict[str, int] = {}

    def batch(self, rows: list[dict]) -> dict:
        """Ids, mask and segments, padded to the longest row."""
        firsts = [text for row in rows for text in row["a"]]
        seconds = [text for row in rows for text in row["b"]] if rows[0]["b"] else None
        padded = {"truncation": True, "max_length": LENGTH, "padding": True}
        made = dict(self._tokenizer(firsts, seconds, **padded, return_tensors="pt"))
        if self._work["head"] == "multiple_choice":
            made = {k: v.view(len(rows), len(rows[0]["a"]), -1) for k, v in made.items()}
        return made

    def labels(self, rows: list[dict]):
        """Scores or numbers of classes."""
        import torch

        dtype = torch.float32 if self._work["head"] == "regression" else torch.long
        return torch.tensor([row["label"] for row in rows], dtype=dtype)

    def in_order(self, rows: list[dict]) -> list[dict]:
        """By length within 50 batches, if asked for."""
        if not self._work["sorted"]:
            return rows
        windows = [rows[i : i + 50 * BATCH] for i in range(0, len(rows), 50 * BATCH)]
        return [row for window in windows for row in sorted(window, key=self._length)]

    def _length(self, row: dict) -> int:
        key = json.dumps(row)
        if key not in self._lengths:
            self._lengths[key] = self.batch([row])["input_ids"].shape[-1]
        return self._lengths[key]


# -------------------------------------------------------------------------------- the table


def print_table(lines: list[dict]) -> None:
    """Mean, deviation and every seed's figure of each task and side; minutes of the first seed."""
    print_titles("task", "metric", "side", "mean", "deviation", "seeds", "minutes")
    for task, (_, _, names) in TASKS.items():
        for name in names:
            for side in dict.fromkeys(line["side"] for line in lines):
                found = [x for x in lines if x["task"] == task and x["side"] == side]
                if found:
                    print_rows([task, name, side, *figures(name, found)])


def figures(name: str, found: list[dict]) -> list[str]:
    """Mean, deviation, every seed's figure, in hundredths; minutes of the first seed."""
    values = [100 * line[name] for line in found]
    deviation = f"{statistics.stdev(values):.1f}" if len(values) > 1 else ""
    each = ", ".join(f"{value:.1f}" for value in values)
    minutes = min(found, key=lambda line: line["seed"])["seconds"] / 60
    return [f"{statistics.fmean(values):.1f}", deviation, each, f"{minutes:.1f}"]


if __name__ == "__main__":
    main()
