"""Times the hand-fused export beside an export of the Keras layers themselves.

    python benchmarks/exported_layers.py --models=minilm,base

Both are SavedModels with the signature `ids`: input_ids, input_mask, segment_ids [B, S] -> logits
of a classifier. One is `serving.inference.InferenceModel`, the other the Keras model, of
the same weights. TensorFlow's C API runs them, in sessions as TensorFlow Serving has them, in one
process with neither Keras nor this package; they take turns call by call, so that a change of the
machine's speed affects both. minilm is all-MiniLM-L6-v2 if BERT_TF_DATA has it, else random
weights of its sizes; base has BERT-Base's sizes and random weights.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

TESTS = pathlib.Path(__file__).parents[1] / "tests" / "helpers"
CASES = {(1, 26): 80, (1, 128): 40, (32, 128): 10}  # B, S: calls of each
CONTENDERS = ("fused", "keras")
VOCAB = 30522
SIZES = {
    "minilm": {
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "intermediate_size": 1536,
        "hidden_act": "gelu_erf",
    },
    "base": {},
}


def main() -> None:
    """Every model, every case -> a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="minilm,base")
    parser.add_argument("--calls", type=float, default=1.0, help="times as many calls")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        measure(pathlib.Path(options.folder), options.calls)
        return
    print("| model | batch x tokens | fused ms | keras ms | keras / fused | difference |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            export(name, pathlib.Path(folder))
            command = [sys.executable, __file__, f"--folder={folder}", f"--calls={options.calls}"]
            found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for row in found.splitlines():
            print(f"| {name} {row}", flush=True)


def export(name: str, folder: pathlib.Path) -> None:
    """folder/fused and folder/keras, and tensors.json with what the measuring process needs."""
    from bert_tf import make_model, runtime

    runtime.prepare_process()  # as commands do, before TensorFlow loads
    import bert_tf
    import keras
    import tensorflow as tf
    from bert_tf.serving import inference

    keras.utils.set_random_seed(1)
    path = pathlib.Path(os.environ.get("BERT_TF_DATA", "")) / "weights/all-MiniLM-L6-v2"
    real = bert_tf.open_weights(str(path)) if name == "minilm" and path.exists() else None
    config = real.config if real else bert_tf.BertConfig(vocab_size=VOCAB, **SIZES[name])
    model = make_model("classification", config, num_classes=2)
    for variable in model.trainable_variables:  # biases too
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.02))
    if real:
        bert_tf.load_checkpoint(model, real, required="bert/")

    class Exported(tf.Module):
        """The Keras model is kept from tracking: the C++ loader does not know its variables."""

        def __init__(self):
            super().__init__()
            self.__dict__["model"] = model
            self.tracked = [variable.value for variable in model.variables]

        def __call__(self, features):
            return self.model(features, training=False)

    fused = inference.InferenceModel(model, config, ("logits",))
    names = {}
    for contender, module in zip(CONTENDERS, (fused, Exported()), strict=True):
        names[contender] = save(module, str(folder / contender))
    libraries = str(pathlib.Path(tf.__file__).with_name("libtensorflow_cc.so.2"))
    (folder / "tensors.json").write_text(json.dumps({"library": libraries, "names": names}))


def save(module, path: str) -> dict[str, str]:
    """A SavedModel of a module; the tensors of its signature by name."""
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    @tf.function(autograph=False)
    def ids(input_ids, input_mask, segment_ids):
        features = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        return {"logits": module(features)["logits"]}

    specs = [tf.TensorSpec([None, None], tf.int32, name) for name in NAMES]
    tf.saved_model.save(module, path, signatures={"ids": ids.get_concrete_function(*specs)})
    content = (pathlib.Path(path) / "saved_model.pb").read_bytes()
    (meta_graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    signature = meta_graph.signature_def["ids"]
    return {key: info.name for key, info in (*signature.inputs.items(), *signature.outputs.items())}


NAMES = ("input_ids", "input_mask", "segment_ids")


def measure(folder: pathlib.Path, times: float) -> None:
    """In the process without Keras: times the calls and prints a row of the table for each case."""
    sys.path.insert(0, str(TESTS))
    from saved_model_process import FOREIGN, SavedModel, TensorFlow

    random = np.random.default_rng(0)  # NumPy loads it here: after TensorFlow's library it fails
    described = json.loads((folder / "tensors.json").read_text())
    tensorflow, names = TensorFlow(described["library"], []), described["names"]
    models = {name: SavedModel(tensorflow, str(folder / name)) for name in CONTENDERS}
    for (batch, length), calls in CASES.items():
        mask = np.arange(length) < random.integers(length // 2, length + 1, [batch, 1])
        mask = mask.astype(np.int32) if batch > 1 else np.ones([1, length], np.int32)
        high = {"input_ids": VOCAB, "segment_ids": 2}
        features = {
            name: mask * random.integers(1, high[name], mask.shape, np.int32) if name in high
            else mask for name in NAMES
        }  # fmt: skip
        seconds, logits = {name: [] for name in CONTENDERS}, {}
        for turn in range(max(round(calls * times), 1) + 3):  # the first three warm up
            for name in CONTENDERS[:: 1 if turn % 2 else -1]:
                feed = {names[name][key]: value for key, value in features.items()}
                begin = time.perf_counter()
                (logits[name],) = models[name].run(feed, [names[name]["logits"]])
                seconds[name] += [time.perf_counter() - begin] if turn >= 3 else []
        fused, keras = (1000 * statistics.median(seconds[name]) for name in CONTENDERS)
        difference = np.abs(logits["fused"] - logits["keras"]).max()
        if difference > 1e-5:
            sys.exit(f"the two models differ by {difference}")
        print(f"| {batch} x {length} | {fused:.2f} | {keras:.2f} | {keras / fused:.3f} | "
              f"{difference:.1e} |")  # fmt: skip
    if set(FOREIGN) & set(sys.modules):
        sys.exit("the measuring process has loaded TensorFlow's Python or this package")


if __name__ == "__main__":
    main()
