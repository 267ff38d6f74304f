"""The same layers on every Keras backend that is installed: numbers, and the time of `fit`.

    python benchmarks/backends.py

Greatest difference of outputs from TensorFlow's, and milliseconds of a step of `fit` with two
layers of 128 on 8 rows of 32 tokens. Each backend runs in a process of its own, on one checkpoint
of random weights and one batch.
"""

import importlib.util
import os
import pathlib
import subprocess
import tempfile
import time

import numpy as np

from measuring import command, parse_options, print_rows, print_titles

SIZES = {"vocab_size": 997, "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
         "intermediate_size": 200, "type_vocab_size": 2}  # fmt: skip
TIMED = {"vocab_size": 30522, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 512}  # fmt: skip
ROWS, TOKENS, STEPS, ROUNDS = 8, 32, 50, 5


def main() -> None:
    """A checkpoint -> outputs and times on each backend -> a table."""
    options = parse_options(__doc__, folder=None)  # of what a backend's process reads and writes
    if options.folder:
        run(options.folder)
        time_fit(options.folder)
        return
    backends = [name for name in ("tensorflow", "torch", "jax") if importlib.util.find_spec(name)]
    with tempfile.TemporaryDirectory() as folder:
        print_titles("backend", "greatest difference from TensorFlow", "ms a step of fit")
        for name in backends:
            environment = os.environ | {"KERAS_BACKEND": name}
            subprocess.run(command(__file__, folder=folder), env=environment, check=True)
            first, found = (np.load(f"{folder}/{n}.npz") for n in ("tensorflow", name))
            greatest = max(np.abs(first[key] - found[key]).max() for key in first)
            print_rows([name, f"{greatest:.2g}", float(np.load(f"{folder}/{name}_ms.npy"))])


def run(folder: str) -> None:
    """In a backend's process: loads the checkpoint (the first one writes it), saves the outputs."""
    from bert_tf import runtime

    runtime.prepare_process()  # as commands do, before TensorFlow loads
    import bert_tf
    import keras
    from bert_tf.checkpoints import tf1
    from bert_tf.modeling.names import checkpoint_name

    model = bert_tf.make_model("pretraining", bert_tf.BertConfig(**SIZES), with_losses=True)
    if not os.path.exists(f"{folder}/model.ckpt.index"):
        tensors = {checkpoint_name(v): v.numpy() for v in model.trainable_variables}
        tf1.write_checkpoint(f"{folder}/model.ckpt", tensors, temporary=f"{folder}/new")
    bert_tf.load_checkpoint(model, f"{folder}/model.ckpt", required="")
    random = np.random.default_rng(0)
    high = {"segment_ids": 2, "input_mask": 2, "masked_lm_positions": 33}

    def ids(name: str) -> np.ndarray:
        columns = 7 if name.startswith("masked") else 33
        return random.integers(0, high.get(name, 997), (5, columns)).astype(np.int32)

    outputs = model({name: ids(name) for name in model.input}, training=False)
    arrays = {name: keras.ops.convert_to_numpy(value) for name, value in outputs.items()}
    np.savez(f"{folder}/{keras.backend.backend()}.npz", **arrays)


def time_fit(folder: str) -> None:
    """In a backend's process: saves the milliseconds of a step, the least mean of some rounds."""
    import bert_tf
    import keras

    encoder = bert_tf.BertModel(bert_tf.BertConfig(**TIMED))
    logits = bert_tf.heads.SequenceClassifier(num_classes=2)(encoder.output["pooled_output"])
    model = bert_tf.BertModel(encoder.input, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(bert_tf.make_optimizer(STEPS * (ROUNDS + 1)), loss)
    random = np.random.default_rng(0)
    ids = random.integers(1, TIMED["vocab_size"], (ROWS * STEPS, TOKENS)).astype(np.int32)
    labels = random.integers(0, 2, len(ids))
    seconds = []
    for _ in range(ROUNDS + 1):  # the first one compiles
        start = time.perf_counter()
        model.fit(ids, labels, batch_size=ROWS, verbose=0)
        seconds.append(time.perf_counter() - start)
    milliseconds = 1000 * min(seconds[1:]) / STEPS
    np.save(pathlib.Path(folder) / f"{keras.backend.backend()}_ms.npy", milliseconds)


if __name__ == "__main__":
    main()
