"""SavedModels run by the C API in a process of their own, from a test."""

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
# TF Serving has them linked in.
OPERATIONS = [
    pathlib.Path(tensorflow_text.__file__).parent / "python/ops/_fast_wordpiece_tokenizer.so"
]
Call = tuple[str, str, dict[str, np.ndarray]]  # export, signature, inputs by name
# What tensorflow_model_server has. TensorFlow's operations are all linked into it; listed are those
# that are known to have kernels on CPUs of every kind. Of tensorflow-text it has the version 2.12,
# without what came later, such as TFText>RoundRobinTrim.
TEXT_OPERATIONS = {"FastWordpieceTokenizeWithOffsets"}
SERVED_OPERATIONS = set(
    (pathlib.Path(__file__).parents[1] / "serving/tf_serving_operations.txt").read_text().split()
)


def read_saved_model(path: str) -> saved_model_pb2.SavedModel:
    content = (pathlib.Path(path) / "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(content)


def operations_of(path: str) -> set[str]:
    """Of the graph and every function in it."""
    (meta_graph,) = read_saved_model(path).meta_graphs
    graph = meta_graph.graph_def
    functions = [node for function in graph.library.function for node in function.node_def]
    return {node.op for node in [*graph.node, *functions]}


def batch_of(rows: Sequence[dict]) -> dict[str, np.ndarray]:
    """Rows of texts by name -> arrays of bytes by name."""

    def encoded(value):
        return value.encode() if isinstance(value, str) else [encoded(one) for one in value]

    return {name: np.array([encoded(row[name]) for row in rows], object) for name in rows[0]}


def run_in_c(calls: Sequence[Call], folder: pathlib.Path) -> list[dict[str, np.ndarray] | str]:
    """What each call gives, by name, or its error's message; all in one process."""
    signatures = {path: read_saved_model(path).meta_graphs[0].signature_def for path, *_ in calls}
    listed, names = [], []
    for path, name, inputs in calls:
        signature = signatures[path][name]
        fed = {signature.inputs[key].name: value for key, value in inputs.items()}
        names.append(sorted(signature.outputs))
        listed.append((path, fed, [signature.outputs[key].name for key in names[-1]]))
    calls_file = folder / "calls.pickle"
    calls_file.write_bytes(pickle.dumps(listed))
    libraries = json.dumps([str(LIBRARY), *map(str, OPERATIONS)])
    # -I: no folder of this project, or of the user, is on the path.
    command = [sys.executable, "-I", str(PROCESS), libraries, str(calls_file)]
    ended = subprocess.run(command, capture_output=True, timeout=600)
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")[-3000:]
    results = pickle.loads(ended.stdout)
    return [
        result if isinstance(result, str) else dict(zip(keys, result, strict=True))
        for keys, result in zip(names, results, strict=True)
    ]
