"""A fine-tuned classifier as SavedModel, LiteRT and ONNX: size, dev metrics, time of an example.

    python benchmarks/portable_exports.py --init_checkpoint=/models/mrpc --task_name=mrpc \\
        --data_dir=glue/MRPC

All of dev, one example at a time, two threads, ids in and probabilities out. LiteRT's file takes
only rows of --max_seq_length; for the others a row is as long as its example.
"""

import argparse
import pathlib
import tempfile
import time

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

import numpy as np
from bert_tf.checkpoints import loading as weights
from bert_tf.serving import portable, predictor
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.options import ServingOptions
from bert_tf.tasks import registry, results
from bert_tf.tasks.features import Features, make_features

KINDS = (
    ("saved_model", False),
    ("litert", False),
    ("litert", True),
    ("onnx", False),
    ("onnx", True),
)
THREADS = 2


def main() -> None:
    """Every kind -> a row of the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--init_checkpoint", required=True)
    parser.add_argument("--task_name", required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    options = parser.parse_args()
    source = weights.open_weights(options.init_checkpoint)
    config = weights.config_of(source)
    tokenizer = weights.tokenizer_of(source, config)
    task = registry.get_task(options.task_name)
    examples = task.read(options.data_dir, "dev")
    task = task.with_labels_of(examples)
    length = options.max_seq_length
    rows = [*make_features(examples, task.labels, tokenizer, max_seq_length=length)]
    gold = [task.labels.ids(example.label) for example in examples]
    serving = ServingOptions(max_seq_length=length, labels=tuple(task.labels.names))
    print("| file | weights | MB | ms an example | greatest difference | metrics on dev |")
    print("|---|---|---|---|---|---|")
    first = None
    for name, int8 in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            path = export_checkpoint(
                source, config, tokenizer, folder, options=serving, file_format=name, int8=int8
            )
            file, answer = open_file(pathlib.Path(path), name)
            found, seconds = answers(answer, rows, length if name == "litert" else None)
            first = found if first is None else first
            compared = task.labels.for_metrics(gold, found)
            scores = results.compute_metrics(task.metrics, *compared)
            shown = ", ".join(f"{key[5:]} {100 * value:.2f}" for key, value in scores.items())
            print(
                f"| {name} | {'int8' if int8 else 'float32'} | {size(file):.1f} | "
                f"{1000 * seconds / len(rows):.1f} | {np.abs(found - first).max():.1e} | {shown} |",
                flush=True,
            )


def answers(
    answer: portable.Answer, rows: list[Features], length: int | None
) -> tuple[np.ndarray, float]:
    """Probabilities [examples, L] and the seconds all took but for the first."""
    arrays = [as_arrays(row, length) for row in rows]
    answer(arrays[0])
    begin = time.perf_counter()
    found = [answer(one)["probabilities"][0] for one in arrays]
    return np.array(found), time.perf_counter() - begin


def as_arrays(row: Features, length: int | None) -> dict[str, np.ndarray]:
    """Features [1, S], padded to `length` if there is one."""
    ids, segments = row.input_ids[0], row.segment_ids[0]
    padding = [0] * ((length or len(ids)) - len(ids))
    values = {
        "input_ids": [*ids, *padding],
        "input_mask": [1] * len(ids) + padding,
        "segment_ids": [*segments, *padding],
    }
    return {name: np.array([value], np.int32) for name, value in values.items()}


def open_file(path: pathlib.Path, name: str) -> tuple[pathlib.Path, portable.Answer]:
    """Where the weights of an export are, and a function of features."""
    if name not in portable.FORMATS:
        model = predictor.open_export(str(path))
        return path / "variables", lambda arrays: model.run(arrays, "ids")
    file = path / portable.FORMATS[name].file_name
    return file, portable.FORMATS[name].load(str(file), THREADS)


def size(path: pathlib.Path) -> float:
    """MB of a file, or of the files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


if __name__ == "__main__":
    main()
