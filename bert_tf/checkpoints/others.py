"""Refuses files of weights that only other programs read, with the way to convert them."""

import os
import re

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.files import paths_in

_BY_TRANSFORMERS = (
    "with transformers 4: AutoModel, or the class of its head, .from_pretrained({folder!r}, "
    "{option}=True).save_pretrained(NEW); then give NEW"
)
# By a pattern of file names: what the file is, and how its model is converted.
_KINDS = {
    r"tf_model.*\.h5": (
        "Hugging Face's weights for TensorFlow",
        _BY_TRANSFORMERS.replace("{option}", "from_tf"),
    ),
    r"flax_model.*\.msgpack": (
        "Hugging Face's weights for Flax",
        _BY_TRANSFORMERS.replace("{option}", "from_flax"),
    ),
    r".*\.onnx": (
        "a graph of ONNX, which does not keep the names of weights",
        "give the model from which it was exported",
    ),
    r"(model|task)\.weights\.h5": (
        "weights of KerasHub",
        "give the checkpoint that it was converted from; or with keras_hub write its variables "
        "into a model.safetensors under Hugging Face's names, beside a config.json",
    ),
    r"saved_model\.pb": (
        "an exported graph of TensorFlow",
        "give its variables, {folder}/variables/variables, or the checkpoint that it was made from",
    ),
    r".*\.(ckpt|pt|pth)": (
        "a checkpoint of PyTorch",
        "with torch: save its state_dict, tensors by name, as pytorch_model.bin beside the "
        "model's config.json; then give that folder",
    ),
}  # fmt: skip


def refuse_others(path: str) -> None:
    """Raises `InputError` if a path is a file of such a kind, or a folder with one."""
    if tf.io.gfile.isdir(path):
        folder = path
        names = [os.path.basename(file) for file in paths_in(path, "")]
    elif tf.io.gfile.exists(path):
        folder = os.path.dirname(path)
        names = [os.path.basename(path)]
    else:
        return
    for pattern, (what, remedy) in _KINDS.items():
        for name in names:
            if re.fullmatch(pattern, name):
                place = f"{path}, where only {name} is" if folder == path else path
                expected = "model.safetensors, pytorch_model.bin, a TF1 or TF2 checkpoint or .keras"
                raise InputError(f"{place}: {what}", expected, remedy.format(folder=folder))
