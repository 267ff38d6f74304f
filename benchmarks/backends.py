"""The same layers on every Keras backend that is installed: greatest difference of each output.

    python benchmarks/backends.py

Each backend runs in a process of its own, on one checkpoint of random weights and one batch.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile

BACKENDS = {"tensorflow": "tensorflow", "torch": "torch", "jax": "jax"}  # its name, its module


def main() -> None:
    """A checkpoint -> outputs on each backend -> a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        run(options.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        installed = [name for name, module in BACKENDS.items() if importlib.util.find_spec(module)]
        for name in installed:
            subprocess.run(
                [sys.executable, __file__, f"--folder={folder}"],
                env={**os.environ, "KERAS_BACKEND": name},
                check=True,
            )
        report(folder, installed)


def run(folder: str) -> None:
    """In a backend's process: loads the checkpoint (the first one writes it), saves the outputs."""
    from bert_tf import runtime

    runtime.prepare_process()  # as commands do, before TensorFlow loads
    import bert_tf
    import keras
    import numpy as np
    from bert_tf.checkpoints import tf1

    config = bert_tf.BertConfig(
        vocab_size=997,
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=200,
        type_vocab_size=2,
    )
    model = bert_tf.make_model("pretraining", config, with_losses=True)
    if not os.path.exists(f"{folder}/model.ckpt.index"):
        tensors = {tf1.checkpoint_name(v): v.numpy() for v in model.trainable_variables}
        tf1.write_checkpoint(f"{folder}/model.ckpt", tensors, temporary=f"{folder}/new")
    bert_tf.load_checkpoint(model, f"{folder}/model.ckpt", required="")
    random = np.random.default_rng(0)
    high = {"segment_ids": 2, "input_mask": 2, "masked_lm_positions": 33}
    batch = {
        name: random.integers(
            0, high.get(name, 997), (5, 7 if name.startswith("masked") else 33)
        ).astype(np.int32)
        for name in model.input
    }
    outputs = model(batch, training=False)
    arrays = {name: keras.ops.convert_to_numpy(value) for name, value in outputs.items()}
    np.savez(f"{folder}/{keras.backend.backend()}.npz", **arrays)


def report(folder: str, installed: list[str]) -> None:
    """The greatest difference from the first backend."""
    import numpy as np

    first = np.load(f"{folder}/{installed[0]}.npz")
    for name in BACKENDS:
        if name not in installed:
            print(f"{name:12} not installed")
            continue
        other = np.load(f"{folder}/{name}.npz")
        worst = max((float(np.abs(first[key] - other[key]).max()), key) for key in first)
        print(f"{name:12} greatest difference {worst[0]:.2g} ({worst[1]}) in {len(first)} outputs")


if __name__ == "__main__":
    main()
