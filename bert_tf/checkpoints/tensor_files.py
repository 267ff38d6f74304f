"""Files of tensors by name: safetensors, PyTorch's pickles, and several of either with an index.

PyTorch's loader of tensors alone opens a pickle. It runs no code from the file.
"""

import io
import os
import re
import zipfile
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from bert_tf.checkpoints.claims import MOST_UNPACKED, Claim, check_archive, check_tensors
from bert_tf.checkpoints.metadata import PARTS_INDEX, PICKLE, SAFETENSORS, damage_errors
from bert_tf.declarations import typed
from bert_tf.errors import InputError, quoted
from bert_tf.files import check_regular, is_remote, read_json
from bert_tf.runtime import import_extra

_OTHER_FLOATS = ("float16", "bfloat16", "float64")  # read as float32
# Earlier versions run code in spite of weights_only=True: CVE-2025-32434, CVE-2026-24747.
SAFE_TORCH = (2, 10)

Shape = tuple[int, ...]


class Tensors(NamedTuple):
    """The tensors of a file, or of several.

    Attributes:
      shapes: by name.
      read: returns the tensor of a name.
    """

    shapes: Mapping[str, Shape]
    read: Callable[[str], np.ndarray]


def open_tensors(path: str, *, copies: Collection[str] = ()) -> Tensors:
    """Opens a file of tensors, or the index of several files.

    Floating-point numbers of any width are read as float32.

    Args:
      path: the path of a .safetensors file, a pickle, or an index.
      copies: names of tensors that may share their bytes with others.

    Raises:
      InputError: a file is missing or damaged, or is a pickle that holds more than tensors.
    """
    check_regular(path)
    if path.endswith(PARTS_INDEX):
        return _open_parts(path, copies)
    if path.endswith(".safetensors"):
        shapes, read = _open_safetensors(path, copies)
    else:
        shapes, read = _open_pickle(path, copies)

    def as_float32(name: str) -> np.ndarray:
        value = read(name)
        return value.astype(np.float32) if value.dtype.name in _OTHER_FLOATS else value

    return Tensors(shapes, as_float32)


def _open_parts(path: str, copies: Collection[str]) -> Tensors:
    """Opens the files that an index names."""
    file_of = typed(dict[str, str], read_json(path).get("weight_map"), source=f"{path}, weight_map")
    for file in file_of.values():
        if not file.endswith((".safetensors", ".bin")) or os.path.basename(file) != file:
            received = f"{path} with the file {quoted(file)}"
            expected = "plain names of .safetensors or .bin files beside it"
            raise InputError(received, expected, "copy the file again")
    folder = os.path.dirname(path)
    parts = {}
    for file in sorted({*file_of.values()}):
        parts[file] = open_tensors(os.path.join(folder, file), copies=copies)
    with damage_errors(path, "an index of tensors that are in the files that it names"):
        shapes = {name: parts[file].shapes[name] for name, file in file_of.items()}
    return Tensors(shapes, lambda name: parts[file_of[name]].read(name))


# ---------------------------------------------------------------------------- safetensors


def _open_safetensors(path: str, copies: Collection[str]) -> Tensors:
    """Opens a safetensors file: a local one is mapped, a remote one is read as a whole."""
    expected = "a whole safetensors file"
    with damage_errors(path, expected):
        if is_remote(path):
            with tf.io.gfile.GFile(path, "rb") as file:
                content = file.read()
            tensors = safetensors.numpy.load(content)
            claims = {name: Claim(x.shape, 8 * x.itemsize) for name, x in tensors.items()}
            shapes = _checked_shapes(path, claims, stored=len(content), copies=copies)
            return Tensors(shapes, tensors.__getitem__)
        mapped = safetensors.safe_open(path, framework="numpy")
        claims = {}
        for name in mapped.keys():  # noqa: SIM118
            described = mapped.get_slice(name)
            claims[name] = Claim(tuple(described.get_shape()), _bits(described.get_dtype()))
        shapes = _checked_shapes(path, claims, stored=os.path.getsize(path), copies=copies)

    def read(name: str) -> np.ndarray:
        with damage_errors(path, expected):
            return mapped.get_tensor(name)

    return Tensors(shapes, read)


def _bits(dtype: str) -> int:
    """The bits of a number of a safetensors type, such as F32, F8_E4M3 or BOOL."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) if bits else 8


def _checked_shapes(
    path: str, claims: Mapping[str, Claim], *, stored: int, copies: Collection[str]
) -> dict[str, Shape]:
    """The shapes of a file's tensors by name.

    Args:
      path: the file, for messages.
      claims: its tensors as it describes them.
      stored: the bytes that it can hold.
      copies: as for `open_tensors`.

    Raises:
      InputError: the tensors need more bytes than are stored.
    """
    check_tensors(path, claims, stored=stored, copies=copies)
    return {name: claim.shape for name, claim in claims.items()}


# ---------------------------------------------------------------------------- pickles


def _open_pickle(path: str, copies: Collection[str]) -> Tensors:
    """Opens a pytorch_model.bin with PyTorch's loader of tensors alone."""
    torch = _safe_torch(path)
    with damage_errors(path, "the state_dict of a model: tensors by name, and no code"):
        with tf.io.gfile.GFile(path, "rb") as file:
            content = io.BytesIO(file.read())
        size = content.getbuffer().nbytes
        if zipfile.is_zipfile(content):
            with zipfile.ZipFile(content) as archive:
                check_archive(path, archive, size=size)
        content.seek(0)
        tensors = torch.load(content, map_location="cpu", weights_only=True)
        _refuse_nested(tensors, path)
        claims = {name: Claim(tuple(x.shape), 8 * x.element_size()) for name, x in tensors.items()}
        shapes = _checked_shapes(path, claims, stored=MOST_UNPACKED * size, copies=copies)

    def read(name: str) -> np.ndarray:
        tensor = tensors[name]
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()

    return Tensors(shapes, read)


def _safe_torch(path: str) -> Any:
    """PyTorch, which opens the pickle at this path.

    Raises:
      InputError: it is not installed, or is a version whose loader can run code.
    """
    torch = import_extra(
        "torch",
        package="torch",
        extra="torch",
        needed_by=f"{path}, a pickle, which can run code unless PyTorch's loader opens it",
        otherwise=f"convert it to {SAFETENSORS}",
    )
    version = tuple(map(int, torch.__version__.split(".")[:2]))
    if version < SAFE_TORCH:
        received = f"{path}, a pickle, with PyTorch {torch.__version__}"
        expected = f"PyTorch {'.'.join(map(str, SAFE_TORCH))} or later: a pickle could run code"
        remedy = f"pip install 'bert-tf[torch]', or convert it to {SAFETENSORS}"
        raise InputError(received, expected, remedy)
    return torch


def _refuse_nested(content: Mapping[str, Any], path: str) -> None:
    """Raises `InputError` if a pickle has its tensors by name as one entry among others."""
    nested = {key: value for key, value in content.items() if isinstance(value, Mapping)}
    if not nested:
        return
    # The entry to take: the first one with a word table, else the first.
    key = next(iter(nested))
    for candidate, tensors in nested.items():
        if "word_embeddings" in str([*tensors]):
            key = candidate
            break
    received = f"{path} with the entries {', '.join(map(repr, content))}"
    entry = f"torch.load({path!r}, weights_only=True)[{key!r}]"
    remedy = f"torch.save({entry}, {PICKLE!r}), and give that file in the model's folder"
    raise InputError(received, "tensors by name alone", remedy)
