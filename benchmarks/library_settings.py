"""Measures what `bert_tf.runtime.prepare_process` gains a program that uses the library.

    BERT_TF_DATA=... python benchmarks/library_settings.py --rounds=3

Speed of `fit` (batches of 32 pairs of MRPC, padded to one length) and of `Predictor` (sentence
vectors) with all-MiniLM-L6-v2, without and with the call, in processes that take turns; medians.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

WARM_UP, STEPS, BATCH, LENGTH = 2, 10, 32, 128
TEXTS, SINGLE = 512, 50  # answered together, and one by one


def main() -> None:
    """Measures both, then prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settings", choices=("none", "prepared"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.settings:
        print(json.dumps(measure(prepared=options.settings == "prepared")))
        return
    found = {"none": [], "prepared": []}
    for _ in range(options.rounds):
        for settings, lines in found.items():
            command = [sys.executable, __file__, f"--settings={settings}"]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            lines.append(json.loads(done.stdout.splitlines()[-1]))
            print(settings, lines[-1], flush=True)
    for name in found["none"][0]:
        none, prepared = (statistics.median(line[name] for line in found[key]) for key in found)
        print(f"{name:32}{none:9.1f}{prepared:9.1f}{prepared / none:7.2f}")


def measure(*, prepared: bool) -> dict[str, float]:
    """Examples/s of `fit`, texts/s of `Predictor`, and the memory at the end."""
    from bert_tf import runtime

    if prepared:
        runtime.prepare_process()
    import bert_tf
    import keras
    import numpy as np

    data = pathlib.Path(os.environ["BERT_TF_DATA"])
    with (data / "glue/MRPC/train.tsv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    path = str(data / "weights/all-MiniLM-L6-v2")
    model = bert_tf.classifier(path, labels=["0", "1"])
    pairs = [[row[name] for row in rows] for name in ("#1 String", "#2 String")]
    batch = model.tokenizer(*pairs, max_length=LENGTH)
    labels = np.array([int(row["Quality"]) for row in rows])
    model.compile(
        bert_tf.make_optimizer(100, learning_rate=5e-5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    for number in (WARM_UP, STEPS):
        part = {name: value[: number * BATCH] for name, value in batch.items()}
        begun = time.perf_counter()
        model.fit(part, labels[: number * BATCH], batch_size=BATCH, verbose=0)
        seconds = time.perf_counter() - begun
    predictor = bert_tf.Predictor(path)
    texts = [row["#1 String"] for row in rows[:TEXTS]]
    predictor.predict(texts)
    begun = time.perf_counter()
    predictor.predict(texts)
    together = time.perf_counter() - begun
    begun = time.perf_counter()
    for text in texts[:SINGLE]:
        predictor.predict([text])
    return {
        "fit, examples/s": STEPS * BATCH / seconds,
        "Predictor, batches, texts/s": TEXTS / together,
        "Predictor, one by one, texts/s": SINGLE / (time.perf_counter() - begun),
        "resident memory, MB": resident_mb(),
    }


def resident_mb() -> float:
    """VmRSS of this process."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1000


if __name__ == "__main__":
    main()
