"""SQuAD v1.1 in float32 and in bfloat16: `run_squad.py` by several seeds, from files to scores.

    BERT_TF_DATA=... python benchmarks/question_answering.py --results=squad.jsonl

Trains all-MiniLM-L6-v2 on a drawn part of the questions (--epochs of them: another part for each
seed), by learning rate 1e-4, batches of --batch and windows of 384 tokens, and answers every
--every'th article of the dev set. Each measurement is a whole process; the precisions take turns.
What --results already holds is not measured again; all of it is printed as a table at the end.
"""

import json
import pathlib
import tempfile
import time

from measuring import (
    ROOT,
    Results,
    data_dir,
    parse_options,
    print_rows,
    print_titles,
    run,
    scores_in,
)
from sentence_tasks import weights

PRECISIONS = ("float32", "bfloat16")


def main() -> None:
    """Measures what is missing, then prints the table."""
    options = parse_options(
        __doc__, results="squad.jsonl", seeds=(1, 2, 3), epochs=0.03, every=16, batch=8
    )
    results = Results(options.results)
    for seed in options.seeds:
        for precision in PRECISIONS:
            key = {"precision": precision, "seed": seed}
            if not results.find(**key):
                with tempfile.TemporaryDirectory() as folder:
                    results.add(key | measure(precision, seed, pathlib.Path(folder), options))
    print_titles("", "seed", "exact match", "F1", "minutes")
    for line in sorted(results.lines, key=lambda line: line["precision"], reverse=True):
        scores = line["exact_match"], line["f1"]
        print_rows([line["precision"], line["seed"], *scores, line["seconds"] / 60])


def measure(precision: str, seed: int, folder: pathlib.Path, options) -> dict:
    """Trains and evaluates in a process: its seconds and scores."""
    dev = folder / "dev.json"
    dev.write_text(json.dumps(part_of_dev(options.every)), encoding="utf-8")
    flags = flags_of(folder / "model", epochs=options.epochs, batch=options.batch)
    flags |= {"do_predict": True, "do_eval": True, "predict_file": dev}
    flags |= {"seed": seed, "precision": precision}
    begin = time.perf_counter()
    run(ROOT / "run_squad.py", **flags)
    seconds = round(time.perf_counter() - begin, 1)
    scores = scores_in(folder / "model/eval_results.txt")
    return {"seconds": seconds} | {name: scores[name] for name in ("exact_match", "f1")}


def flags_of(folder: pathlib.Path, *, epochs: float, batch: int) -> dict:
    """The flags of a training on a part of SQuAD v1.1."""
    return {
        "do_train": True,
        "train_file": data_dir() / "squad/train-v1.1.json",
        "init_checkpoint": weights(),
        "output_dir": folder,
        "learning_rate": 1e-4,
        "bias_correction": True,
        "train_batch_size": batch,
        "num_train_epochs": epochs,
    }


def part_of_dev(every: int) -> dict:
    """SQuAD's dev set with every so manieth article."""
    content = json.loads((data_dir() / "squad/dev-v1.1.json").read_text(encoding="utf-8"))
    return content | {"data": content["data"][::every]}


if __name__ == "__main__":
    main()
