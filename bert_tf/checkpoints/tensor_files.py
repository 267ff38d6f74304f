"""Files of tensors by name: safetensors, and PyTorch's pickles without running what is in them."""

import io
import os
from collections.abc import Callable, Mapping

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from bert_tf.checkpoints.metadata import PARTS_INDEX, SAFETENSORS, damage_errors
from bert_tf.errors import InputError
from bert_tf.files import check_regular, is_remote, read_json
from bert_tf.runtime import import_extra

_OTHER_FLOATS = ("float16", "bfloat16", "float64")  # what they hold is computed with in float32
SAFE_TORCH = (2, 10)  # earlier: code with weights_only=True, CVE-2025-32434, CVE-2026-24747

Tensors = tuple[Mapping[str, tuple[int, ...]], Callable[[str], np.ndarray]]


def open_tensors(path: str) -> Tensors:
    """Shapes by name, and a function that reads a tensor; of one file or of several with an index.

    Floating-point numbers of any width are read as float32.

    Raises:
      InputError: a file is missing or damaged, or is a pickle that holds more than tensors.
    """
    check_regular(path)
    if path.endswith(PARTS_INDEX):
        return _open_parts(path)
    shapes, read = _open_safetensors(path) if path.endswith(".safetensors") else _open_pickle(path)

    def as_float32(name: str) -> np.ndarray:
        value = read(name)
        return value.astype(np.float32) if value.dtype.name in _OTHER_FLOATS else value

    return shapes, as_float32


def _open_parts(path: str) -> Tensors:
    weight_map = read_json(path).get("weight_map")
    endings = (".safetensors", ".bin")
    if not isinstance(weight_map, dict) or not all(
        isinstance(name, str) and name.endswith(endings) and os.path.basename(name) == name
        for name in weight_map.values()
    ):
        raise InputError(
            f"{path} without a weight_map of tensors to files beside it",
            f"an index with plain names of files that end with {' or '.join(endings)}",
            "copy the file again",
        )
    folder = os.path.dirname(path)
    parts = {n: open_tensors(os.path.join(folder, n)) for n in sorted(set(weight_map.values()))}
    for tensor, part in weight_map.items():
        if tensor not in parts[part][0]:
            received = f"{path}, which says that {part} has {tensor}"
            expected = "every tensor in the file that the index names"
            raise InputError(received, expected, "copy the index and all its files again")
    shapes = {tensor: parts[part][0][tensor] for tensor, part in weight_map.items()}
    return shapes, lambda name: parts[weight_map[name]][1](name)


def _open_safetensors(path: str) -> Tensors:
    expected = "a whole safetensors file"
    with damage_errors(path, expected):
        if is_remote(path):
            with tf.io.gfile.GFile(path, "rb") as file:
                tensors = safetensors.numpy.load(file.read())
            return {name: value.shape for name, value in tensors.items()}, tensors.__getitem__
        file = safetensors.safe_open(path, framework="numpy")
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118

    def read(name: str) -> np.ndarray:
        with damage_errors(path, expected):
            return file.get_tensor(name)

    return shapes, read


def _open_pickle(path: str) -> Tensors:
    """A pytorch_model.bin, by torch's loader that takes tensors and nothing else."""
    torch = import_extra(
        "torch",
        package="torch",
        extra="torch",
        needed_by=f"{path}, a pickle, which can run code unless PyTorch's loader opens it",
        otherwise=f"convert it to {SAFETENSORS}",
    )
    if tuple(map(int, torch.__version__.split(".")[:2])) < SAFE_TORCH:
        raise InputError(
            f"{path}, a pickle, with PyTorch {torch.__version__}",
            f"PyTorch {'.'.join(map(str, SAFE_TORCH))} or later: before, a pickle could run code",
            f"pip install 'bert-tf[torch]', or convert it to {SAFETENSORS}",
        )
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = io.BytesIO(file.read())
        tensors = torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can raise anything
        # Its second sentence says how to load the file all the same.
        says = (str(error) or type(error).__name__).splitlines()[0].split(". ")[0]
        raise InputError(
            f"{path}, which torch.load(weights_only=True) refuses ({says})",
            "a file of tensors by name, and nothing that runs code",
            "do not load it elsewhere; get the model's safetensors file",
        ) from None
    if not isinstance(tensors, dict) or not all(torch.is_tensor(t) for t in tensors.values()):
        received = f"{path}, which holds something else than tensors by name"
        raise InputError(received, "the state_dict of a model", "save model.state_dict() alone")

    def read(name: str) -> np.ndarray:
        tensor = tensors[name]
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()

    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}, read
