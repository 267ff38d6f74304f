"""A task -> one file for LiteRT or ONNX Runtime, for machines without TensorFlow.

    EXPORT_DIR/1/model.tflite or model.onnx     ids in, numbers out
                 assets/vocab.txt               the vocabulary
                 README.md, export.json         its description, for people and programs
                 SHA256SUMS                     checksums of the files but README.md

The `ids` signature without strings: features in, every numeric answer out. The caller tokenizes.
Before a file is published it is compared with the model it was converted from; only floating-point
answers decide, since of two equally likely pieces either may come first.

A LiteRT file takes one row of fixed length, the shape that its kernels are made for; an ONNX file
any number of rows of any length.

Shapes: B rows, S sequence, P masked positions.
"""

import dataclasses
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.runtime import import_extra
from bert_tf.serving.model_card import spec_of
from bert_tf.serving.options import LITERT, ONNX
from bert_tf.serving.signatures import Answers, ServingTask, refuse_not_finite

Arrays = dict[str, np.ndarray]
Answer = Callable[[Arrays], Arrays]
ONNX_OPSET = 18
MASKED_POSITIONS = 20  # P of a LiteRT file
THREADS = 2  # for the comparison
TOLERANCE = 1e-4  # between a file of float32 and the model
SAMPLE_LENGTHS = (1.0, 0.4, 0.05)  # lengths of the compared rows, as fractions of S


@dataclasses.dataclass(frozen=True)
class PortableFormat:
    """A file format.

    Attributes:
      file_name: in the folder of the export.
      fixed: whether shapes are fixed.
      modules: that converting and running need, with the name of each one's package.
      convert: model, signature, whether weights are int8 -> the file's bytes.
      load: the file's path, number of threads -> a function of features.
    """

    file_name: str
    fixed: bool
    modules: Mapping[str, str]
    convert: Callable[[tf.Module, tf.types.experimental.ConcreteFunction, bool], bytes]
    load: Callable[[str, int], Answer]


def write_portable(task: ServingTask, folder: str, *, name: str, int8: bool) -> dict[str, Any]:
    """Converts a task, compares the file with the model, and writes it.

    Args:
      task: with the trained model.
      folder: an existing one; local or remote.
      name: one of FORMATS.
      int8: weights as int8 with a scale for each channel.

    Returns:
      Its part of export.json: file, inputs, answers, the greatest difference from the model in
      float32, and how many choices differ.

    Raises:
      InputError: the extra is not installed, the file's answers differ from the model's, or it
        cannot be written.
    """
    file_format = FORMATS[name]
    for module, package in file_format.modules.items():
        import_extra(module, package=package, extra=name, needed_by=f"--format={name}")
    shapes = input_shapes(task, fixed=file_format.fixed)
    signature = _traced(task, shapes)
    with tempfile.TemporaryDirectory() as local:
        path = os.path.join(local, file_format.file_name)
        content = file_format.convert(task.model, signature, int8)
        with files.path_errors(path, "written"), open(path, "wb") as file:
            file.write(content)
        found = compare(file_format.load(path, THREADS), signature, task, shapes)
        logging.info(
            "%s: %.1f MB, greatest difference from the model %.1e, %d of %d choices differ",
            file_format.file_name, os.path.getsize(path) / 1e6, *found,
        )  # fmt: skip
        if not int8 and not found.greatest_difference <= TOLERANCE:
            raise _refused(
                f"that differ by {found.greatest_difference:.1e}", f"at most {TOLERANCE:.0e}"
            )
        with files.path_errors(folder, "written"):
            tf.io.gfile.copy(path, tf.io.gfile.join(folder, file_format.file_name))
    return {
        "file": file_format.file_name,
        "int8_weights": int8,
        "inputs": {key: {"dtype": "int32", "shape": list(shape)} for key, shape in shapes.items()},
        "answers": {key: spec_of(v) for key, v in signature.structured_outputs.items()},
        "greatest_difference": found.greatest_difference,
        "choices": {"different": found.different_choices, "compared": found.choices},
    }


def input_shapes(task: ServingTask, *, fixed: bool) -> dict[str, tuple[int | None, ...]]:
    """Shapes of the features; None where any size fits."""
    shapes = {name: tuple(spec.shape) for name, spec in task.id_specs().items()}
    if not fixed:
        return shapes
    length = task.sequences.max_seq_length
    sizes = {}
    for name, shape in shapes.items():
        choices = () if len(shape) == 2 else (task.options.num_choices,)
        sizes[name] = (1, *choices, length)
    if "masked_lm_positions" in sizes:
        sizes["masked_lm_positions"] = (1, min(MASKED_POSITIONS, length))
    return sizes


def _traced(
    task: ServingTask, shapes: Mapping[str, tuple[int | None, ...]]
) -> tf.types.experimental.ConcreteFunction:
    """The ids signature as a graph, without answers that are strings."""

    def numbers(*features: tf.Tensor) -> Answers:
        answers = task.answer_ids(dict(zip(shapes, features, strict=True)))
        return {name: value for name, value in answers.items() if value.dtype != tf.string}

    specs = [tf.TensorSpec(shape, tf.int32, name) for name, shape in shapes.items()]
    return tf.function(numbers, autograph=False).get_concrete_function(*specs)


class Comparison(NamedTuple):
    """A file compared with its model.

    Attributes:
      greatest_difference: of floating-point answers.
      different_choices, choices: how many of the other answers differ, and their number.
    """

    greatest_difference: float
    different_choices: int
    choices: int


def compare(answer: Answer, signature, task: ServingTask, shapes: Mapping) -> Comparison:
    """Compares a file's answers with its model's, on rows of several lengths, one at a time.

    Raises:
      InputError: shapes differ, or answers are NaN or infinite.
    """
    greatest, different, choices = 0.0, 0, 0
    for features in sample_features(task, shapes):
        wanted = signature(*(tf.constant(features[name]) for name in shapes))
        answers = answer(features)
        for name, value in wanted.items():
            found, value = np.asarray(answers[name]), value.numpy()
            if found.shape != value.shape:
                raise _refused(f"whose {name} has the shape {found.shape}", f"{value.shape}")
            if value.dtype.kind != "f":
                different += int(np.count_nonzero(found != value))
                choices += value.size
                continue
            refuse_not_finite({name: value})
            if not np.isfinite(found).all():
                raise _refused(f"whose {name} are NaN or infinite", "those of the model")
            both = found.astype(np.float64), value.astype(np.float64)
            greatest = max(greatest, float(np.abs(np.subtract(*both)).max()))
    return Comparison(greatest, different, choices)


def _refused(received: str, expected: str) -> InputError:
    return InputError(
        f"answers of the converted model {received}",
        expected,
        "report it with the versions of tensorflow and of the converter; the SavedModel "
        "(--format=saved_model) does not depend on it",
    )


def sample_features(task: ServingTask, shapes: Mapping) -> list[Arrays]:
    """A row of random ids for each of SAMPLE_LENGTHS, padded to the maximum length."""
    rng = np.random.default_rng(0)
    config, length = task.sequences.config, task.sequences.max_seq_length
    fixed = input_shapes(task, fixed=True)
    rows = []
    for share in SAMPLE_LENGTHS:
        count = max(2, round(share * length))
        real = (np.arange(length) < count).astype(np.int32)  # [S]
        one = fixed["input_ids"]
        features = {
            "input_ids": rng.integers(0, config.vocab_size, one) * real,
            "input_mask": np.broadcast_to(real, one),
            "segment_ids": rng.integers(0, 2, one) * real,
        }
        if "masked_lm_positions" in shapes:
            features["masked_lm_positions"] = rng.integers(0, count, fixed["masked_lm_positions"])
        rows.append({name: features[name].astype(np.int32) for name in shapes})
    return rows


# ---------------------------------------------------------------------------- LiteRT


def _to_litert(model: tf.Module, signature, int8: bool) -> bytes:
    converter = tf.lite.TFLiteConverter.from_concrete_functions([signature], model)
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def _load_litert(path: str, num_threads: int) -> Answer:
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(path, num_threads=num_threads).get_signature_runner()
    return lambda features: run(**features)


# ---------------------------------------------------------------------------- ONNX


def _to_onnx(model: tf.Module, signature, int8: bool) -> bytes:
    del model  # the weights are frozen into the signature's graph
    import tf2onnx

    function = tf.function(lambda *features: signature(*features), autograph=False)
    specs = [tf.TensorSpec(t.shape, t.dtype, t.name.split(":")[0]) for t in signature.inputs
             if t.dtype != tf.resource]  # fmt: skip
    proto, _ = tf2onnx.convert.from_function(function, input_signature=specs, opset=ONNX_OPSET)
    return _with_int8_weights(proto) if int8 else proto.SerializeToString()


def _with_int8_weights(proto) -> bytes:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        quantize_dynamic(proto, path, per_channel=True, weight_type=QuantType.QInt8)
        with open(path, "rb") as file:
            return file.read()


def _load_onnx(path: str, num_threads: int) -> Answer:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda features: dict(zip(names, session.run(names, features), strict=True))


FORMATS: Mapping[str, PortableFormat] = {
    LITERT: PortableFormat(
        "model.tflite", True, {"ai_edge_litert": "ai-edge-litert"}, _to_litert, _load_litert
    ),
    ONNX: PortableFormat(
        "model.onnx",
        False,
        {"tf2onnx": "tf2onnx", "onnxruntime": "onnxruntime"},
        _to_onnx,
        _load_onnx,
    ),
}
