"""Real questions, answered by an export in TensorFlow's C API and by `run_squad.py`.

    python benchmarks/served_questions.py --model=squad_runs/v1.1 --predict_file=dev-v1.1.json
    python benchmarks/served_questions.py --model=squad_runs/v2.0 \\
        --predict_file=dev-v2.0-small.json --version_2_with_negative

Takes --questions of them, spread evenly over the file. `run_squad.py --nolegacy_alignment` answers
them; so does its export, from raw questions and contexts, in a process with neither Keras nor this
package. Prints how many answers are equal, those that are not, and the greatest difference of null
odds.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
BATCH = 8


def main() -> None:
    """Both ways -> a line of figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--predict_file", required=True, type=pathlib.Path)
    parser.add_argument("--version_2_with_negative", action="store_true")
    parser.add_argument("--questions", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(options, pathlib.Path(folder))


def compare(options, folder: pathlib.Path) -> None:
    """Answers by the script and by the export; ends with an error if one differs."""
    asked = write_part(options.predict_file, folder / "part.json", options.questions)
    command = [sys.executable, str(ROOT / "run_squad.py"), "--do_predict", "--nolegacy_alignment"]
    command += ["--version_2_with_negative"] if options.version_2_with_negative else []
    command += [f"--init_checkpoint={options.model}", f"--predict_file={folder / 'part.json'}"]
    command += [f"--output_dir={folder / 'run'}", f"--export_dir={folder / 'export'}"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    predictions = json.loads((folder / "run" / "predictions.json").read_text())
    begin = time.perf_counter()
    answers = served(asked, folder)
    seconds = time.perf_counter() - begin
    pairs = [(question["id"], predictions[question["id"]]) for question in asked]
    found = [answer.decode() for answer in answers["answer"]]
    others = [
        f"{key}: {text!r} by the script, {answer!r} served"
        for (key, text), answer in zip(pairs, found, strict=True)
        if text != answer
    ]
    empty = sum(not answer for answer in found)
    print(
        f"{len(asked)} questions: {len(asked) - len(others)} answers are equal, {empty} of them "
        f"no answer; {seconds:.0f} s served in batches of {BATCH}, loading included"
    )
    print("\n".join(others))
    if "null_odds" in answers:
        odds = json.loads((folder / "run" / "null_odds.json").read_text())
        differences = np.abs(answers["null_odds"] - [odds[key] for key, _ in pairs])
        print(f"greatest difference of null odds: {differences.max():.1e}")
    sys.exit(1 if others else 0)


def write_part(source: pathlib.Path, path: pathlib.Path, count: int) -> list[dict]:
    """Questions spread evenly over a file -> a file of these, and them with their contexts."""
    content = json.loads(source.read_text(encoding="utf-8"))
    paragraphs = [p for article in content["data"] for p in article["paragraphs"]]
    questions = [(p["context"], question) for p in paragraphs for question in p["qas"]]
    places = np.linspace(0, len(questions) - 1, min(count, len(questions))).round().astype(int)
    chosen = [questions[place] for place in places]
    made = [{"context": context, "qas": [question]} for context, question in chosen]
    part = {"version": content["version"], "data": [{"title": "part", "paragraphs": made}]}
    path.write_text(json.dumps(part), encoding="utf-8")
    return [
        {"id": question["id"], "question": question["question"], "context": context}
        for context, question in chosen
    ]


def served(asked: list[dict], folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The answers of the export, batch by batch."""
    sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT)]
    from saved_models import run_in_c

    calls = []
    for begin in range(0, len(asked), BATCH):
        rows = asked[begin : begin + BATCH]
        texts = {
            name: np.array([row[name].encode() for row in rows], object)
            for name in ("question", "context")
        }
        calls.append((str(folder / "export" / "1"), "serving_default", texts))
    answers = run_in_c(calls, folder)
    return {name: np.concatenate([one[name] for one in answers]) for name in answers[0]}


if __name__ == "__main__":
    main()
