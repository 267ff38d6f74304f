"""MiniLM fine-tuned on SQuAD by `run_squad.py`, and its scores.

    BERT_TF_DATA=... python benchmarks/question_answering.py --output_dir=squad_runs

v1.1    every fourth article of train-v1.1, one epoch; scored on all of dev-v1.1
v2.0    train-v2.0-small, two epochs; scored on dev-v2.0-small without and with the searched
        threshold. Starts from the encoder, and once more from the v1.1 model.

Prints the minutes of each run and its eval_results.txt. A finished run is not repeated;
a stopped one resumes from its last checkpoint, and its minutes count from there.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]
EVERY = 4  # which articles of train-v1.1


def main() -> None:
    """All runs, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_dir", default="squad_runs", type=pathlib.Path)
    folder = parser.parse_args().output_dir
    data = pathlib.Path(os.environ["BERT_TF_DATA"])
    encoder, squad = data / "weights/all-MiniLM-L6-v2", data / "squad"
    folder.mkdir(parents=True, exist_ok=True)
    part = write_part(squad / "train-v1.1.json", folder / "train-v1.1-part.json")
    run(
        folder / "v1.1",
        *(f"--train_file={part}", f"--predict_file={squad}/dev-v1.1.json"),
        *(f"--init_checkpoint={encoder}", "--num_train_epochs=1", "--learning_rate=1e-4"),
    )
    for name, begin in (("v2.0", encoder), ("v2.0-from-v1.1", folder / "v1.1")):
        run(
            folder / name,
            f"--train_file={squad}/train-v2.0-small.json",
            f"--predict_file={squad}/dev-v2.0-small.json",
            *("--version_2_with_negative", f"--init_checkpoint={begin}"),
            *("--num_train_epochs=2", "--learning_rate=1e-4"),
        )


def write_part(source: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    """Every fourth article of a SQuAD file."""
    content = json.loads(source.read_text(encoding="utf-8"))
    content["data"] = content["data"][::EVERY]
    count = sum(len(p["qas"]) for article in content["data"] for p in article["paragraphs"])
    print(f"{path}: {len(content['data'])} articles, {count} questions")
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def run(folder: pathlib.Path, *flags: str) -> None:
    """Trains, answers and scores as a user would; prints minutes and scores."""
    results, minutes = folder / "eval_results.txt", folder / "minutes.txt"
    if not minutes.exists():
        since = " since it was resumed" if (folder / "checkpoint").exists() else ""
        begin = time.perf_counter()
        fixed = ("--do_train", "--do_predict", "--do_eval", "--predict_batch_size=32", "--seed=1",
                 "--save_checkpoints_steps=50")  # fmt: skip
        command = [sys.executable, str(ROOT / "run_squad.py"), f"--output_dir={folder}"]
        subprocess.run([*command, *fixed, *flags], check=True)
        minutes.write_text(f"{(time.perf_counter() - begin) / 60:.1f} minutes{since}\n")
    print(f"\n{folder.name}: {minutes.read_text().strip()}\n{results.read_text()}")


if __name__ == "__main__":
    main()
