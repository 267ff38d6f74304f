"""Files of tensors by name: safetensors, and PyTorch's pickles without running what is in them."""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from bert_tf.checkpoints.metadata import folder_of, join
from bert_tf.errors import InputError
from bert_tf.files import is_remote, read_json
from bert_tf.runtime import import_extra

SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"  # behind the name of a file that is cut into several
_OTHER_FLOATS = ("float16", "bfloat16", "float64")  # what they hold is computed with in float32

Tensors = tuple[Mapping[str, tuple[int, ...]], Callable[[str], np.ndarray]]


def open_tensors(path: str) -> Tensors:
    """Shapes by name, and what reads a tensor; of one file or of several with an index.

    Floating-point numbers of any width are read as float32.

    Raises:
      InputError: a file is missing or damaged, or is a pickle that holds more than tensors.
    """
    if path.endswith(INDEX):
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
        isinstance(name, str) and name.endswith(endings) for name in weight_map.values()
    ):
        raise InputError(
            received=f"{path} without a weight_map of tensors to files",
            expected=f"the index of files that end with {' or '.join(endings)}",
            remedy="copy the file again",
        )
    parts = {n: open_tensors(join(folder_of(path), n)) for n in sorted(set(weight_map.values()))}
    missing = [tensor for tensor, part in weight_map.items() if tensor not in parts[part][0]]
    if missing:
        raise InputError(
            received=f"{path}, which says that {weight_map[missing[0]]} has {missing[0]}",
            expected="every tensor in the file that the index names",
            remedy="copy the index and all its files again",
        )
    shapes = {tensor: parts[part][0][tensor] for tensor, part in weight_map.items()}
    return shapes, lambda name: parts[weight_map[name]][1](name)


def _open_safetensors(path: str) -> Tensors:
    with _damage_named(path):
        if is_remote(path):
            with tf.io.gfile.GFile(path, "rb") as file:
                tensors = safetensors.numpy.load(file.read())
            return {name: value.shape for name, value in tensors.items()}, tensors.__getitem__
        file = safetensors.safe_open(path, framework="numpy")
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118

    def read(name: str) -> np.ndarray:
        with _damage_named(path):
            return file.get_tensor(name)

    return shapes, read


@contextlib.contextmanager
def _damage_named(path: str) -> Iterator[None]:
    try:
        yield
    except (
        safetensors.SafetensorError,
        OSError,
        ValueError,
        TypeError,  # of a kind of number that NumPy does not have
        tf.errors.OpError,
    ) as error:
        raise InputError(
            received=f"{path}, which cannot be read ({_first_line(error)})",
            expected="a whole safetensors file",
            remedy="copy the file again",
        ) from None


def _open_pickle(path: str) -> Tensors:
    """A pytorch_model.bin, by torch's loader that takes tensors and nothing else."""
    torch = import_extra(
        "torch",
        package="torch",
        extra="torch",
        needed_by=f"{path}, a pickle, which can run code unless PyTorch's loader opens it",
        otherwise=f"convert it to {SAFETENSORS}",
    )
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = io.BytesIO(file.read())
        tensors = torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(
            received=f"{path}, which torch.load(weights_only=True) refuses "
            f"({_first_line(error).split('. ')[0]})",  # then it says how to load it all the same
            expected="a file of tensors by name, and nothing that runs code",
            remedy="do not load it elsewhere; get the model's safetensors file",
        ) from None
    if not isinstance(tensors, dict) or not all(torch.is_tensor(t) for t in tensors.values()):
        raise InputError(
            received=f"{path}, which holds something else than tensors by name",
            expected="the state_dict of a model",
            remedy="save model.state_dict(), not the model",
        )

    def read(name: str) -> np.ndarray:
        tensor = tensors[name]
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()

    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}, read


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
