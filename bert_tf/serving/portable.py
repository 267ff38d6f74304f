"""A task -> one file for LiteRT or ONNX Runtime, for machines without TensorFlow.

    EXPORT_DIR/1/model.tflite or model.onnx     ids in, numbers out
                 assets/vocab.txt               the vocabulary
                 README.md, export.json         its description, for people and programs
                 SHA256SUMS                     checksums of the files but README.md

The file has the `ids` signature without strings: features in, every numeric answer out. The caller
tokenizes. Before a file is published, its answers are compared with those of the model that it was
converted from. Half of the whole numbers may differ, as of two equally likely pieces either may
come first.

A LiteRT file takes one row of fixed length, the shape that its kernels are made for. An ONNX file
takes any number of rows of any length, and names these sizes.

Shapes: B rows, S sequence, C choices, P masked positions.
"""

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.heads.labels import MOST_USUAL
from bert_tf.runtime import import_extra
from bert_tf.serving import onnx_names
from bert_tf.serving.options import FROM_IDS, LITERT, ONNX
from bert_tf.serving.signatures import Answers, ServingTask, Signature, refuse_not_finite
from bert_tf.tokenization.layer import FEATURE_NAMES
from bert_tf.tokenization.wordpiece import LEAST_LENGTH

Arrays = dict[str, np.ndarray]
Answer = Callable[[Arrays], Arrays]
Shapes = Mapping[str, tuple[int | None, ...]]
MASKED = "masked_lm_positions"
MASKED_POSITIONS = 20  # P of a LiteRT file
THREADS = 2  # of the comparison
TOLERANCE = 1e-4  # of the answers of a float32 file
# Lengths of the compared texts, in words, as fractions of S.
SAMPLE_LENGTHS = (1.0, 0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.02)
# Names of figures in export.json.
GREATEST = "greatest_difference"
OTHERS = "other_whole_numbers"
IN_BATCHES = "_in_batches"
BATCH, CHOICES, MASKS, SEQUENCE = "batch", "choices", "masks", "sequence"  # in an ONNX file
# Sizes that every model can take. As all differ, an answer's size shows which dimension it is.
TOLD_APART = {BATCH: 2, CHOICES: 3, MASKS: 4, SEQUENCE: LEAST_LENGTH}


class PortableFormat(NamedTuple):
    """A file format.

    Attributes:
      file_name: the file name in the folder of the export.
      fixed: whether shapes are fixed.
      modules: what converting and running import.
      load: the file's path, number of threads -> a function from features to answers.
    """

    file_name: str
    fixed: bool
    modules: Sequence[str]
    load: Callable[[str, int], Answer]


class AnswersOfIds(keras.Model):
    """Features [B, S] -> the numeric answers of a task, as a model that Keras can export."""

    def __init__(self, task: ServingTask, names: Sequence[str]):
        super().__init__()
        self.served = task.model
        self._task = task
        self._names = names
        self.built = True

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
      int8: whether weights are int8 with a scale for each channel.

    Returns:
      The signature, and its part of export.json: the file's name, and the differences between its
      answers and those of the model in float32, as from `beside`.

    Raises:
      InputError: the extra is not installed, the file's answers differ from the model's, or it
        cannot be written.
    """
    file_format = FORMATS[name]
    for module in file_format.modules:
        package = module.replace("_", "-")
        import_extra(module, package=package, extra=name, needed_by=f"--format={name}")
    meanings = task.id_outputs or task.outputs
    outputs = {name: what for name, what in meanings.items() if not what.startswith("string")}
    shapes = input_shapes(task, fixed=file_format.fixed)
    specs = {name: tf.TensorSpec(shape, tf.int32, name) for name, shape in shapes.items()}
    model = AnswersOfIds(task, tuple(outputs))
    is_padded = FROM_IDS in task.padded
    signature = Signature(specs, lambda **features: model.call(features), outputs, is_padded)
    with tempfile.TemporaryDirectory() as local:
        path = os.path.join(local, file_format.file_name)
        with files.path_errors(path, "written"):
            convert(model, path, specs, name=name, int8=int8)
        answer = file_format.load(path, THREADS)
        figures = beside(answer, signature.traced(), task, fixed=file_format.fixed)
        size = os.path.getsize(path) / 1e6
        listed = ", ".join(f"{figure} {value:.2g}" for figure, value in figures.items())
        logging.info("%s: %.1f MB; %s", file_format.file_name, size, listed)
        _refuse_differences(figures, int8=int8)
        with files.path_errors(folder, "written"):
            tf.io.gfile.copy(path, tf.io.gfile.join(folder, file_format.file_name))
    return {FROM_IDS: signature}, {"file": file_format.file_name, "int8_weights": int8, **figures}


def _refuse_differences(figures: Mapping[str, float], *, int8: bool) -> None:
    """Raises `InputError` if the answers of a file differ too much from the model's."""
    difference = max(value for name, value in figures.items() if name.startswith(GREATEST))
    share = max(value for name, value in figures.items() if name.startswith(OTHERS))
    most = sys.float_info.max if int8 else TOLERANCE
    if not difference <= most or (share > 0.5 and not int8):
        raise InputError(
            f"answers of the converted model that differ by {difference:.1e}, and in "
            f"{share:.0%} of the whole numbers",
            f"at most {TOLERANCE:.0e} and half; of int8 weights finite numbers of these shapes",
            "take --format=saved_model, and report it with the versions of the converter",
        )


def convert(
    model: AnswersOfIds, path: str, specs: Mapping[str, tf.TensorSpec], *, name: str, int8: bool
) -> None:
    """Writes a model as a file of a format.

    Args:
      model: to write.
      path: the path of the file.
      specs: the specs of the model's inputs, by name.
      name: the name of the format, one of FORMATS.
      int8: whether weights are int8.
    """
    options = {}
    if int8 and name == LITERT:
        options["optimizations"] = [tf.lite.Optimize.DEFAULT]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Keras uses a name that NumPy deprecates
        model.export(path, format=name, input_signature=[specs], verbose=False, **options)
    if name != ONNX:
        return
    if int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(path, path, per_channel=True, weight_type=QuantType.QInt8)
    onnx_names.write_named(path, named_dimensions(model, specs))


def input_shapes(task: ServingTask, *, fixed: bool) -> Shapes:
    """Shapes of the features; None where any size fits."""
    specs = task.id_specs()
    if not fixed:
        return {name: tuple(spec.shape) for name, spec in specs.items()}
    length = task.sequences.max_seq_length
    masks = min(MASKED_POSITIONS, length)
    sizes = {BATCH: 1, CHOICES: task.options.num_choices, MASKS: masks, SEQUENCE: length}
    return {name: _shape(dimensions_of(name, spec), sizes) for name, spec in specs.items()}


def dimensions_of(name: str, spec: tf.TensorSpec) -> tuple[str, ...]:
    """The names of the dimensions of a feature."""
    if name == MASKED:
        return BATCH, MASKS
    return (BATCH, SEQUENCE) if spec.shape.rank == 2 else (BATCH, CHOICES, SEQUENCE)


def named_dimensions(
    model: AnswersOfIds, specs: Mapping[str, tf.TensorSpec]
) -> onnx_names.Dimensions:
    """Names for the dimensions of a model's features and answers.

    A dimension of an answer is named like the dimension of the features that has its size;
    otherwise it gets the answer's name and its place.
    """
    names = {name: dimensions_of(name, spec) for name, spec in specs.items()}
    features = {}
    for name, dimensions in names.items():
        features[name] = tf.zeros(_shape(dimensions, TOLD_APART), tf.int32)
    of_size = {size: dimension for dimension, size in TOLD_APART.items()}
    for name, answer in model.call(features).items():
        places = enumerate(answer.shape)
        names[name] = tuple(of_size.get(size, f"{name}_{place}") for place, size in places)
    return names


def _shape(dimensions: Sequence[str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[dimension] for dimension in dimensions)


def beside(answer: Answer, signature: Any, task: ServingTask, *, fixed: bool) -> dict[str, float]:
    """Compares answers to sample texts with a model's, for export.json: one by one, and in a batch.

    Args:
      answer: features -> the answers to compare.
      signature: the model's, from features as keyword arguments.
      task: whose texts are asked about.
      fixed: whether texts are padded to the maximum length, and there are no batches.

    Returns:
      What `compare` returns, by name; for a batch the names end with IN_BATCHES.
    """
    rows = sample_rows(task)
    length = task.sequences.max_seq_length if fixed else 0
    requests = {"": [joined([row], length) for row in rows]}
    if not fixed:
        requests[IN_BATCHES] = [joined(rows)]
    figures = {}
    for ending, batches in requests.items():
        difference, share = compare(answer, signature, batches)
        figures[f"{GREATEST}{ending}"] = difference
        figures[f"{OTHERS}{ending}"] = share
    return figures


def compare(answer: Answer, signature: Any, requests: Iterable[Arrays]) -> tuple[float, float]:
    """Compares answers to requests with a model's.

    Returns:
      The greatest difference of floating-point answers, divided by a tenth of the answer's
      greatest number where that is more than 10; infinite if shapes differ or an answer is missing
      or NaN. And the share of the other numbers that differ.
    """
    greatest = 0.0
    is_other: list[bool] = []
    for features in requests:
        answers = signature(**{name: tf.constant(value) for name, value in features.items()})
        wanted = {name: value.numpy() for name, value in answers.items()}
        refuse_not_finite(wanted)
        difference, is_other_here = differences(answer(features), wanted)
        greatest = max(greatest, difference)
        is_other += is_other_here
    return greatest, float(np.mean(is_other or [False]))


def differences(answers: Mapping[str, Any], wanted: Arrays) -> tuple[float, list[bool]]:
    """Compares answers with the wanted ones, by name.

    Returns:
      The greatest difference of floating-point answers, as from `compare`; and for each value that
      is not of floating point whether it differs.
    """
    greatest = 0.0
    is_other: list[bool] = []
    for name, value in wanted.items():
        answer = np.asarray(answers.get(name))
        has_nan = answer.dtype.kind == "f" and not np.isfinite(answer).all()
        if answer.shape != value.shape or has_nan:
            greatest = np.inf
        elif value.dtype.kind == "f":
            scale = max(1.0, np.abs(value).max(initial=0) / MOST_USUAL)  # of prices, say
            greatest = max(greatest, float(np.abs(answer - value).max(initial=0) / scale))
        else:
            is_other += (answer != value).ravel().tolist()
    return greatest, is_other


def sample_rows(task: ServingTask) -> list[Arrays]:
    """Features [1, (C,) S] of texts of random words, one for each of SAMPLE_LENGTHS."""
    rng = np.random.default_rng(0)
    shapes = input_shapes(task, fixed=True)
    shape = shapes["input_ids"]
    num_sequences = shape[1] if len(shape) == 3 else 1
    pieces = [piece for piece in task.sequences.tokenizer.pieces if piece.isalnum()]
    words = np.array(pieces or ["?"])
    rows = []
    for share in SAMPLE_LENGTHS:
        num_words = max(1, round(share * shape[-1]))
        request = {}
        for name, spec in task.text_specs().items():
            count = shape[1] if spec.shape.rank == 2 else 1  # endings of a context
            texts = [" ".join(rng.choice(words, num_words)) for _ in range(count)]
            request[name] = tf.reshape(texts, [1, count][: spec.shape.rank])
        row = {}
        for name, value in task.features(**request).items():
            first = value[:num_sequences]  # of several windows only the first
            row[name] = first.numpy().reshape(*shape[:-1], -1)
        if MASKED in shapes:
            num_tokens = row["input_mask"].sum()
            row[MASKED] = rng.integers(0, num_tokens, shapes[MASKED]).astype(np.int32)
        rows.append(row)
    return rows


def joined(rows: Sequence[Arrays], length: int = 0) -> Arrays:
    """Joins rows [1, (C,) S] to a batch, padded with 0 to the longest row, or to `length`."""
    longest = max(length, *(row["input_ids"].shape[-1] for row in rows))
    batch = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if name in FEATURE_NAMES:
            values = [_padded(value, longest) for value in values]
        batch[name] = np.concatenate(values)
    return batch


def _padded(value: np.ndarray, length: int) -> np.ndarray:
    shorter = [(0, 0)] * (value.ndim - 1)
    return np.pad(value, [*shorter, (0, length - value.shape[-1])])


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
