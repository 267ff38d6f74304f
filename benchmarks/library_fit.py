"""`bert_tf.classifier` with Keras's `fit` beside `run_classifier.py`: MRPC, several seeds.

    BERT_TF_DATA=... python benchmarks/library_fit.py --results=library_fit.jsonl

Both start from all-MiniLM-L6-v2 and train with batches of 32, 128 tokens at most, the learning rate
5e-5 with a tenth of warm-up, the original's AdamW. Batches differ: those of the script are of
similar length, those of `make_dataset` are drawn from all rows. Each seed is a process of its own.
What --results already holds is not measured again; mean and deviation of both are printed at the
end, and the exit code is 1 if the means of the accuracy differ by more than two deviations of the
script's.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from scores import scores_in

ROOT = pathlib.Path(__file__).parents[1]
BATCH, LENGTH, RATE = 32, 128, 5e-5
LABELS = ["0", "1"]  # in MRPC.tsv: whether the sentences say the same


def main() -> None:
    """Measures what is missing, then prints the table."""
    options = parse_options()
    if options.part:
        fit(pathlib.Path(options.part), options.part_seed, options.epochs)
        return
    results = pathlib.Path(options.results)
    sizes = {"epochs": options.epochs, "rows": options.rows}
    with tempfile.TemporaryDirectory() as folder:
        data = copy_data(pathlib.Path(folder), options.rows)
        for seed in options.seeds:
            for side, run in {"script": run_script, "fit": run_fit}.items():
                key = {"side": side, "seed": seed, **sizes}
                if not any(key.items() <= line.items() for line in read(results)):
                    line = key | {"accuracy": run(data, seed, options.epochs)}
                    print(line, flush=True)
                    with results.open("a") as file:
                        print(json.dumps(line), file=file)
    lines = [line for line in read(results) if sizes.items() <= line.items()]
    sys.exit(report([line for line in lines if line["seed"] in options.seeds]))


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default="library_fit.jsonl")
    parser.add_argument(
        "--seeds", type=lambda x: [*map(int, x.split(","))], default=[1, 2, 3, 4, 5]
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, help="of training and dev; default: all")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--part_seed", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def read(results: pathlib.Path) -> list[dict]:
    """The measurements of earlier runs."""
    return [json.loads(line) for line in results.open()] if results.exists() else []


def copy_data(folder: pathlib.Path, rows: int | None) -> pathlib.Path:
    """MRPC's training and dev files, or their first rows."""
    for name in ("train.tsv", "dev.tsv"):
        source = pathlib.Path(os.environ["BERT_TF_DATA"], "glue/MRPC", name)
        lines = source.read_text("utf-8").splitlines(keepends=True)
        (folder / name).write_text("".join(lines[: rows and rows + 1]), "utf-8")
    return folder


def weights() -> str:
    """The folder of the first weights of both."""
    return os.path.join(os.environ["BERT_TF_DATA"], "weights/all-MiniLM-L6-v2")


def run_script(data: pathlib.Path, seed: int, epochs: int) -> float:
    """The dev accuracy of the script, as a user calls it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, str(ROOT / "run_classifier.py"), "--task_name=mrpc"),
            *(f"--data_dir={data}", f"--output_dir={folder}", f"--init_checkpoint={weights()}"),
            *("--do_train", "--do_eval", f"--seed={seed}", f"--num_train_epochs={epochs}"),
            *(f"--train_batch_size={BATCH}", f"--max_seq_length={LENGTH}"),
            f"--learning_rate={RATE}",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return scores_in(pathlib.Path(folder, "eval_results.txt"))["eval_accuracy"]


def run_fit(data: pathlib.Path, seed: int, epochs: int) -> float:
    """The dev accuracy of `fit`, in a process of its own."""
    command = [sys.executable, __file__, f"--part={data}", f"--part_seed={seed}"]
    done = subprocess.run(
        [*command, f"--epochs={epochs}"], check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout.splitlines()[-1])


def fit(data: pathlib.Path, seed: int, epochs: int) -> None:
    """What a user of Keras writes; prints the dev accuracy."""
    import bert_tf
    import keras

    keras.utils.set_random_seed(seed)
    model = bert_tf.classifier(weights(), labels=LABELS)

    def dataset(name: str, **options):
        with (data / name).open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        columns = {"text": "#1 String", "text_pair": "#2 String", "label": "Quality"}
        options |= {"labels": model.labels, "max_length": LENGTH, "batch_size": BATCH}
        return bert_tf.make_dataset(rows, model.tokenizer, **columns, **options)

    train, dev = dataset("train.tsv", seed=seed), dataset("dev.tsv")
    model.compile(
        bert_tf.make_optimizer(epochs * len(train), learning_rate=RATE),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(train, epochs=epochs, shuffle=False, verbose=0)
    print(model.evaluate(dev, verbose=0, return_dict=True)["accuracy"])


def report(lines: list[dict]) -> int:
    """Prints mean and deviation of both; 1 if they are more than two deviations apart."""
    found = {}
    for side in ("script", "fit"):
        scores = [line["accuracy"] for line in lines if line["side"] == side]
        found[side] = statistics.mean(scores), statistics.stdev(scores) if scores[1:] else 0.0
        mean, deviation = found[side]
        print(f"{side:8}{mean:8.4f} ± {deviation:.4f}  ({len(scores)} seeds)")
    (script, deviation), (ours, _) = found["script"], found["fit"]
    is_reached = abs(ours - script) <= 2 * deviation
    print(f"difference {ours - script:+.4f}, two deviations of the script {2 * deviation:.4f}")
    return 0 if is_reached else 1


if __name__ == "__main__":
    main()
