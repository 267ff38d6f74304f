"""How long an export takes to answer, in the session that TensorFlow Serving runs it in.

    python benchmarks/serving_session.py EXPORT_DIR/1 [--rounds=5]

Text in, answers out, by TensorFlow's C API in this process, with neither Keras nor this package:
p50 and p99 of one text of 20 words and of 200, and texts a second in batches of 32. CPU time is
given beside the wall's: on a machine that does other things too, it is what can be compared.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))
from saved_model_process import SavedModel, TensorFlow

TEXT = (
    "the quick brown fox jumps over the lazy dog while seventeen engineers measure how long it "
    "takes to answer requests "
)  # of 20 words
CASES = ((20, 1, 40), (200, 1, 15), (20, 32, 8))  # words, texts, requests of a round


def main() -> None:
    """Looks up the tensors' names, then measures in a process without TensorFlow's Python side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tensors", help="used by the program itself")
    arguments = parser.parse_args()
    if arguments.tensors:
        measure(arguments.export, arguments.rounds, **json.loads(arguments.tensors))
        return
    import saved_models

    (meta_graph,) = saved_models.read_saved_model(arguments.export).meta_graphs
    signature = meta_graph.signature_def["serving_default"]
    tensors = {
        "libraries": list(map(str, [saved_models.LIBRARY, *saved_models.OPERATIONS])),
        "inputs": [info.name for info in signature.inputs.values()],
        "outputs": [info.name for info in signature.outputs.values()],
    }
    command = [sys.executable, *sys.argv, f"--tensors={json.dumps(tensors)}"]
    sys.exit(subprocess.run(command).returncode)


def measure(
    export: str, rounds: int, *, libraries: list[str], inputs: list[str], outputs: list[str]
) -> None:
    """Loads once, then rounds of every case, of which the first is to warm up."""
    tensorflow, begin = TensorFlow(libraries[0], libraries[1:]), time.perf_counter()
    model = SavedModel(tensorflow, export)
    print(f"loaded in {time.perf_counter() - begin:.2f} s")
    times: dict[tuple, list] = {case: [] for case in CASES}
    for number in range(rounds + 1):
        for case in CASES:
            words, texts, requests = case
            text = (TEXT * (words // 20)).encode()
            feed = {name: np.array([text] * texts, object) for name in inputs}
            for _ in range(requests if number else 3):
                start = np.array([time.perf_counter(), time.process_time()])
                model.run(feed, outputs)
                if number:
                    times[case].append([time.perf_counter(), time.process_time()] - start)
    for case, values in times.items():
        words, texts, _ = case
        wall, cpu = 1000 * np.array(values).T
        p50, p99 = np.quantile(wall, [0.5, 0.99])
        print(
            f"{texts} x {words} words: p50 {p50:.2f} ms, p99 {p99:.2f} ms, "
            f"CPU {np.median(cpu):.2f} ms, {1000 * texts / p50:.1f} texts/s"
        )


if __name__ == "__main__":
    main()
