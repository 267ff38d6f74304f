"""The same layers on every Keras backend that is installed: greatest difference of each output.

    python benchmarks/backends.py

Each backend runs in a process of its own, on one checkpoint of random weights and one batch.
"""

import importlib.util
import os
import subprocess
import tempfile

import numpy as np

from measuring import command, parse_options, print_rows, print_titles

SIZES = {"vocab_size": 997, "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
         "intermediate_size": 200, "type_vocab_size": 2}  # fmt: skip


def main() -> None:
    """A checkpoint -> outputs on each backend -> a table."""
    options = parse_options(__doc__, folder=None)  # of what a backend's process reads and writes
    if options.folder:
        run(options.folder)
        return
    backends = [name for name in ("tensorflow", "torch", "jax") if importlib.util.find_spec(name)]
    with tempfile.TemporaryDirectory() as folder:
        print_titles("backend", "greatest difference from TensorFlow")
        for name in backends:
            environment = os.environ | {"KERAS_BACKEND": name}
            subprocess.run(command(__file__, folder=folder), env=environment, check=True)
            first, found = (np.load(f"{folder}/{n}.npz") for n in ("tensorflow", name))
            print_rows([name, f"{max(np.abs(first[key] - found[key]).max() for key in first):.2g}"])


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


if __name__ == "__main__":
    main()
