"""Runs SavedModels by the C API in a new process, and reads their operations."""

import json
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf import saved_model_pb2

PROCESS = pathlib.Path(__file__).with_name("saved_model_process.py")
LIBRARY = pathlib.Path(tf.__file__).with_name("libtensorflow_cc.so.2")
# Libraries of custom operations that are linked into TF Serving.
OPERATIONS = [
    pathlib.Path(tensorflow_text.__file__).parent / "python/ops/_fast_wordpiece_tokenizer.so"
]
Call = tuple[str, str, dict[str, np.ndarray]]  # export, signature, inputs by name
# Operations of tensorflow_model_server. It has all of TensorFlow's; the file lists those that are
# known to have kernels on all kinds of CPUs. It has tensorflow-text 2.12, without later operations
# such as TFText>RoundRobinTrim.
TEXT_OPERATIONS = {"FastWordpieceTokenizeWithOffsets"}
SERVED_OPERATIONS = set(
    (pathlib.Path(__file__).parents[1] / "serving/tf_serving_operations.txt").read_text().split()
)


def read_saved_model(path: str) -> saved_model_pb2.SavedModel:
    content = (pathlib.Path(path) / "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(content)


def operations_of(path: str) -> set[str]:
    """The operations in the graph of an export and in its functions."""
    (meta_graph,) = read_saved_model(path).meta_graphs
    graph = meta_graph.graph_def
    functions = [node for function in graph.library.function for node in function.node_def]
    return {node.op for node in [*graph.node, *functions]}


def batch_of(rows: Sequence[dict]) -> dict[str, np.ndarray]:
    """Rows of texts by name -> arrays of bytes by name."""

    def encoded(value):
        if isinstance(value, str):
            return value.encode()
        return [encoded(text) for text in value]

    batch = {}
    for name in rows[0]:
        batch[name] = np.array([encoded(row[name]) for row in rows], object)
    return batch


def run_in_c(calls: Sequence[Call], folder: pathlib.Path) -> list[dict[str, np.ndarray] | str]:
    """Runs all calls in one new process.

    Returns:
      For each call its outputs by name, or the message of its error.
    """
    signatures = {path: read_saved_model(path).meta_graphs[0].signature_def for path, *_ in calls}
    tensor_calls = []  # with the names of tensors in place of those of inputs and outputs
    output_names = []
    for path, name, inputs in calls:
        signature = signatures[path][name]
        feeds = {signature.inputs[key].name: value for key, value in inputs.items()}
        names = sorted(signature.outputs)
        output_names.append(names)
        tensor_calls.append((path, feeds, [signature.outputs[key].name for key in names]))
    calls_file = folder / "calls.pickle"
    calls_file.write_bytes(pickle.dumps(tensor_calls))
    libraries = json.dumps([str(LIBRARY), *map(str, OPERATIONS)])
    # -I: neither a folder of this project nor the user's packages are on the path.
    command = [sys.executable, "-I", str(PROCESS), libraries, str(calls_file)]
    ended = subprocess.run(command, capture_output=True, timeout=600)
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")[-3000:]
    answers = []
    for names, result in zip(output_names, pickle.loads(ended.stdout), strict=True):
        is_message = isinstance(result, str)
        answers.append(result if is_message else dict(zip(names, result, strict=True)))
    return answers
