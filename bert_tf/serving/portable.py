"""A task -> one file for LiteRT or ONNX Runtime, for machines without TensorFlow.

    EXPORT_DIR/1/model.tflite or model.onnx     ids in, numbers out
                 assets/vocab.txt               the vocabulary
                 README.md, export.json         its description, for people and programs
                 SHA256SUMS                     checksums of the files but README.md

The `ids` signature without strings: features in, every numeric answer out. The caller tokenizes.
Before a file is published it is compared with the model it was converted from. Most whole numbers
must be the same, not all: of two equally likely pieces either may come first.

A LiteRT file takes one row of fixed length, the shape that its kernels are made for; an ONNX file
any number of rows of any length.

Shapes: B rows, S sequence, P masked positions.
"""

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.heads.labels import MOST_USUAL
from bert_tf.runtime import import_extra
from bert_tf.serving.options import FROM_IDS, LITERT, ONNX
from bert_tf.serving.signatures import Answers, ServingTask, Signature, refuse_not_finite

Arrays = dict[str, np.ndarray]
Answer = Callable[[Arrays], Arrays]
Shapes = Mapping[str, tuple[int | None, ...]]
MASKED_POSITIONS = 20  # P of a LiteRT file
THREADS = 2  # for the comparison
TOLERANCE = 1e-4  # between a file of float32 and the model
SAMPLE_LENGTHS = (1.0, 0.4, 0.05)  # lengths of the compared rows, as fractions of S


class PortableFormat(NamedTuple):
    """A file format.

    Attributes:
      file_name: in the folder of the export.
      fixed: whether shapes are fixed.
      modules: that converting and running need.
      load: the file's path, number of threads -> a function of features.
    """

    file_name: str
    fixed: bool
    modules: Sequence[str]
    load: Callable[[str, int], Answer]


class AnswersOfIds(keras.Model):
    """Features [B, S] -> the answers of a task that are numbers; as Keras exports models."""

    def __init__(self, task: ServingTask, names: Sequence[str]):
        super().__init__()
        self.served, self._task, self._names, self.built = task.model, task, names, True

    def call(self, features: Mapping[str, tf.Tensor]) -> Answers:
        """The answers by name, each [B, ...]."""
        answers = self._task.answer_ids(features)
        return {name: answers[name] for name in self._names}


def write_portable(
    task: ServingTask, folder: str, *, name: str, int8: bool
) -> tuple[dict[str, Signature], dict[str, Any]]:
    """Converts a task, compares the file with the model, and writes it.

    Args:
      task: with the trained model.
      folder: an existing one; local or remote.
      name: one of FORMATS.
      int8: weights as int8 with a scale for each channel.

    Returns:
      The signature, and its part of export.json: the file, the greatest difference from the model
      in float32, and the share of other whole numbers among the answers.

    Raises:
      InputError: the extra is not installed, the file's answers differ from the model's, or it
        cannot be written.
    """
    file_format = FORMATS[name]
    for module in file_format.modules:
        package = module.replace("_", "-")
        import_extra(module, package=package, extra=name, needed_by=f"--format={name}")
    told = task.id_outputs or task.outputs
    outputs = {name: what for name, what in told.items() if not what.startswith("string")}
    shapes = input_shapes(task, fixed=file_format.fixed)
    specs = {name: tf.TensorSpec(shape, tf.int32, name) for name, shape in shapes.items()}
    model = AnswersOfIds(task, tuple(outputs))
    signature = Signature(specs, lambda **features: model.call(features), outputs)
    with tempfile.TemporaryDirectory() as local:
        path = os.path.join(local, file_format.file_name)
        with files.path_errors(path, "written"):
            convert(model, path, specs, name=name, int8=int8)
        difference, other = compare(file_format.load(path, THREADS), signature.traced(), task)
        says = "%s: %.1f MB, differs from the model by %.1e and in %.0f %% of the whole numbers"
        size = os.path.getsize(path) / 1e6
        logging.info(says, file_format.file_name, size, difference, 100 * other)
        most = sys.float_info.max if int8 else TOLERANCE
        if not difference <= most or (other > 0.5 and not int8):
            raise InputError(
                f"answers of the converted model that differ by {difference:.1e}, and in "
                f"{other:.0%} of the whole numbers",
                f"at most {TOLERANCE:.0e} and half; of int8 weights finite numbers of these shapes",
                "take --format=saved_model, and report it with the versions of the converter",
            )
        with files.path_errors(folder, "written"):
            tf.io.gfile.copy(path, tf.io.gfile.join(folder, file_format.file_name))
    facts = {"file": file_format.file_name, "int8_weights": int8}
    facts |= {"greatest_difference": difference, "other_whole_numbers": other}
    return {FROM_IDS: signature}, facts


def convert(
    model: keras.Model, path: str, specs: Mapping[str, tf.TensorSpec], *, name: str, int8: bool
) -> None:
    """Writes a model of inputs by name as a file of a format."""
    more = {"optimizations": [tf.lite.Optimize.DEFAULT]} if int8 and name == LITERT else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Keras asks for a name that NumPy had
        model.export(path, format=name, input_signature=[specs], verbose=False, **more)
    if int8 and name == ONNX:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(path, path, per_channel=True, weight_type=QuantType.QInt8)


def input_shapes(task: ServingTask, *, fixed: bool) -> Shapes:
    """Shapes of the features; None where any size fits."""
    shapes = {name: tuple(spec.shape) for name, spec in task.id_specs().items()}
    if not fixed:
        return shapes
    length = task.sequences.max_seq_length
    sizes = {}
    for name, shape in shapes.items():
        last = min(MASKED_POSITIONS, length) if name == "masked_lm_positions" else length
        sizes[name] = (1, last) if len(shape) == 2 else (1, task.options.num_choices, last)
    return sizes


def compare(answer: Answer, signature: Any, task: ServingTask) -> tuple[float, float]:
    """A file's answers beside its model's, on rows of several lengths, one at a time.

    Returns:
      The greatest difference of floating-point answers, of an answer beyond 10 for each 10 of its
      size; infinite if shapes differ or an answer is missing or NaN. And the share of other whole
      numbers among the rest.
    """
    greatest = 0.0
    is_other: list[bool] = []
    for features in sample_features(task):
        answers = signature(**{name: tf.constant(value) for name, value in features.items()})
        wanted = {name: value.numpy() for name, value in answers.items()}
        refuse_not_finite(wanted)
        difference, others = differences(answer(features), wanted)
        greatest = max(greatest, difference)
        is_other += others
    return greatest, float(np.mean(is_other or [False]))


def differences(answers: Mapping[str, Any], wanted: Arrays) -> tuple[float, list[bool]]:
    """Answers beside those that are wanted, by name.

    Returns:
      The greatest difference of floating-point answers, as `compare` has it, and of each other
      value whether it is another one.
    """
    greatest, is_other = 0.0, []
    for name, value in wanted.items():
        found = np.asarray(answers.get(name))
        is_wrong = found.dtype.kind == "f" and not np.isfinite(found).all()
        if found.shape != value.shape or is_wrong:
            greatest = np.inf
        elif value.dtype.kind == "f":
            size = max(1.0, np.abs(value).max(initial=0) / MOST_USUAL)  # of prices, say
            greatest = max(greatest, float(np.abs(found - value).max(initial=0) / size))
        else:
            is_other += (found != value).ravel().tolist()
    return greatest, is_other


def sample_features(task: ServingTask) -> Iterator[Arrays]:
    """A row of random ids for each of SAMPLE_LENGTHS, padded to the maximum length."""
    rng, sizes = np.random.default_rng(0), input_shapes(task, fixed=True)
    config, length, shape = task.sequences.config, task.sequences.max_seq_length, sizes["input_ids"]
    for share in SAMPLE_LENGTHS:
        count = max(2, round(share * length))
        real = np.arange(length) < count  # [S]
        row = {
            "input_ids": rng.integers(0, config.vocab_size, shape) * real,
            "input_mask": np.broadcast_to(real, shape),
            "segment_ids": rng.integers(0, 2, shape) * real,
        }
        if "masked_lm_positions" in sizes:
            row["masked_lm_positions"] = rng.integers(0, count, sizes["masked_lm_positions"])
        yield {name: value.astype(np.int32) for name, value in row.items()}


# ---------------------------------------------------------------------------- files


def _load_litert(path: str, num_threads: int) -> Answer:
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(path, num_threads=num_threads).get_signature_runner()
    return lambda features: run(**features)


def _load_onnx(path: str, num_threads: int) -> Answer:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda features: dict(zip(names, session.run(names, features), strict=True))


FORMATS: Mapping[str, PortableFormat] = {
    LITERT: PortableFormat("model.tflite", True, ("ai_edge_litert",), _load_litert),
    ONNX: PortableFormat("model.onnx", False, ("tf2onnx", "onnxruntime"), _load_onnx),
}
