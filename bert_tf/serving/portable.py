"""A task -> one file for LiteRT or ONNX Runtime, for machines without TensorFlow.

    EXPORT_DIR/1/model.tflite or model.onnx     ids in, numbers out
                 assets/vocab.txt               the vocabulary
                 README.md, export.json         what it is, for people and programs

The `ids` signature without its strings: features of records in, every answer that is a number out.
Making ids of texts is left to the caller. Each file is run once beside the model that it was made
of, and is not written if its answers are others.

LiteRT has one row of fixed length, the shape that its kernels are made for; ONNX has any number of
rows of any length.

Shapes: B rows, S sequence, P masked positions.
"""

import dataclasses
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.errors import InputError
from bert_tf.serving import inference
from bert_tf.serving.task import Answers, ServingTask

Arrays = dict[str, np.ndarray]
ONNX_OPSET = 18
MASKED_POSITIONS = 20  # P of a LiteRT file
TOLERANCE = 1e-4  # between a file of float32 and the model
SAMPLE_LENGTHS = (1.0, 0.4, 0.05)  # real pieces of the rows that are compared, as shares of S


@dataclasses.dataclass(frozen=True)
class PortableFormat:
    """A kind of file.

    Attributes:
      file_name: in the folder of the export.
      fixed: whether it has one shape.
      convert: of a task, its signature and whether weights are to be int8, the file's bytes.
      run: of the file's path and features, its answers.
    """

    file_name: str
    fixed: bool
    convert: Callable[[ServingTask, tf.types.experimental.ConcreteFunction, bool], bytes]
    run: Callable[[str, Arrays], Arrays]


def write_portable(task: ServingTask, folder: str, *, name: str, int8: bool) -> dict[str, Any]:
    """Converts a task, compares the file with the model, and writes it.

    Args:
      task: with the trained model.
      folder: where the file goes; local or remote.
      name: one of FORMATS.
      int8: weights as int8 with a scale for each channel.

    Returns:
      What export.json says of it: file, inputs, answers, and the greatest difference from the
      model in float32.

    Raises:
      InputError: the extra is not installed, or the file does not answer as the model does.
    """
    file_format = FORMATS[name]
    shapes = input_shapes(task, fixed=file_format.fixed)
    signature = _traced(task, shapes)
    with tempfile.TemporaryDirectory() as local:
        path = os.path.join(local, file_format.file_name)
        with open(path, "wb") as file:
            file.write(file_format.convert(task, signature, int8))
        difference = _greatest_difference(path, file_format, signature, task, shapes)
        size = os.path.getsize(path)
        tf.io.gfile.copy(path, tf.io.gfile.join(folder, file_format.file_name))
    logging.info(
        "%s: %.1f MB, greatest difference from the model %.1e",
        file_format.file_name, size / 1e6, difference,
    )  # fmt: skip
    if not int8 and difference > TOLERANCE:
        raise InputError(
            received=f"answers of the converted model that differ by {difference:.1e}",
            expected=f"at most {TOLERANCE:.0e}",
            remedy="report it with the versions of tensorflow and of the converter; the "
            "SavedModel (--format=saved_model) does not depend on it",
        )
    return {
        "file": file_format.file_name,
        "int8_weights": int8,
        "inputs": {key: {"dtype": "int32", "shape": list(shape)} for key, shape in shapes.items()},
        "answers": {
            key: {"dtype": value.dtype.name, "shape": value.shape.as_list()}
            for key, value in signature.structured_outputs.items()
        },
        "greatest_difference": float(difference),
    }


def input_shapes(task: ServingTask, *, fixed: bool) -> dict[str, tuple[int | None, ...]]:
    """Shapes of the features, None where any size is taken."""
    shapes = {name: tuple(spec.shape) for name, spec in task.id_specs().items()}
    if not fixed:
        return shapes
    length = task.sequences.max_seq_length
    sizes = {}
    for name, shape in shapes.items():
        choices = () if len(shape) == 2 else (task.options()["num_choices"],)
        sizes[name] = (1, *choices, length)
    if "masked_lm_positions" in sizes:
        sizes["masked_lm_positions"] = (1, min(MASKED_POSITIONS, length))
    return sizes


def _traced(
    task: ServingTask, shapes: Mapping[str, tuple[int | None, ...]]
) -> tf.types.experimental.ConcreteFunction:
    """The ids signature as a graph; answers that are strings are left out."""

    def numbers(*features: tf.Tensor) -> Answers:
        answers = task.answer_ids(dict(zip(shapes, features, strict=True)))
        return {name: value for name, value in answers.items() if value.dtype != tf.string}

    specs = [tf.TensorSpec(shape, tf.int32, name) for name, shape in shapes.items()]
    return tf.function(numbers, autograph=False).get_concrete_function(*specs)


def _greatest_difference(
    path: str, file_format: PortableFormat, signature, task: ServingTask, shapes: Mapping
) -> float:
    """Over rows of several lengths, one at a time."""
    greatest = 0.0
    for features in sample_features(task, shapes):
        wanted = signature(*(tf.constant(features[name]) for name in shapes))
        found = file_format.run(path, features)
        for name, value in wanted.items():
            both = np.asarray(found[name], np.float64), np.asarray(value, np.float64)
            greatest = max(greatest, float(np.abs(np.subtract(*both)).max()))
    return greatest


def sample_features(task: ServingTask, shapes: Mapping) -> list[Arrays]:
    """A row of drawn ids for each of SAMPLE_LENGTHS, padded to the most pieces of a sequence."""
    rng = np.random.default_rng(0)
    config, length = task.sequences.config, task.sequences.max_seq_length
    fixed = input_shapes(task, fixed=True)
    rows = []
    for share in SAMPLE_LENGTHS:
        real = (np.arange(length) < max(2, round(share * length))).astype(np.int32)
        drawn = {
            "input_ids": lambda shape, real=real: rng.integers(0, config.vocab_size, shape) * real,
            "input_mask": lambda shape, real=real: np.broadcast_to(real, shape),
            "segment_ids": lambda shape, real=real: (rng.random(shape) < 0.5) * real,
            "masked_lm_positions": lambda shape, real=real: rng.integers(0, real.sum(), shape),
        }
        rows.append({name: drawn[name](fixed[name]).astype(np.int32) for name in shapes})
    return rows


# ---------------------------------------------------------------------------- LiteRT


def _to_litert(task: ServingTask, signature, int8: bool) -> bytes:
    converter = tf.lite.TFLiteConverter.from_concrete_functions([signature], task.model)
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def _run_litert(path: str, features: Arrays) -> Arrays:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise _missing("ai-edge-litert", "litert") from error
    return Interpreter(path).get_signature_runner()(**features)


# ---------------------------------------------------------------------------- ONNX


def _to_onnx(task: ServingTask, signature, int8: bool) -> bytes:
    del task  # the weights are frozen into the signature's graph
    try:
        import tf2onnx
    except ImportError as error:
        raise _missing("tf2onnx", "onnx") from error
    function = tf.function(lambda *features: signature(*features), autograph=False)
    specs = [tf.TensorSpec(t.shape, t.dtype, t.name.split(":")[0]) for t in signature.inputs
             if t.dtype != tf.resource]  # fmt: skip
    model, _ = tf2onnx.convert.from_function(function, input_signature=specs, opset=ONNX_OPSET)
    return _with_int8_weights(model) if int8 else model.SerializeToString()


def _with_int8_weights(model) -> bytes:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        quantize_dynamic(model, path, per_channel=True, weight_type=QuantType.QInt8)
        with open(path, "rb") as file:
            return file.read()


def _run_onnx(path: str, features: Arrays) -> Arrays:
    try:
        import onnxruntime
    except ImportError as error:
        raise _missing("onnxruntime", "onnx") from error
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, features), strict=True))


def _missing(package: str, extra: str) -> InputError:
    return InputError(
        received=f"--format={extra}, but {package} is not installed",
        expected=f"{package}, which converts or checks the model",
        remedy=f"pip install 'bert-tf[{extra}]'",
    )


def _gelu_erf(x: tf.Tensor) -> tf.Tensor:
    """The exact form, as LiteRT's converter knows it for its own operation; ONNX has no erfc."""
    return (x * 0.5) * (tf.math.erf(x * math.sqrt(0.5)) + 1.0)


ACTIVATIONS = {**inference.ACTIVATIONS, "gelu_erf": _gelu_erf}
FORMATS: Mapping[str, PortableFormat] = {
    "litert": PortableFormat("model.tflite", True, _to_litert, _run_litert),
    "onnx": PortableFormat("model.onnx", False, _to_onnx, _run_onnx),
}
