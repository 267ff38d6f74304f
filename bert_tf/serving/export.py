"""A checkpoint -> EXPORT_DIR/1, a SavedModel in the layout of TF Serving.

    EXPORT_DIR/1/saved_model.pb                              the signatures
                 variables/                                  the weights, once
                 assets/vocab.txt                            the vocabulary
                 assets.extra/tf_serving_warmup_requests     run when TF Serving loads the model
                 README.md, export.json                      for people and for programs
                 SHA256SUMS                                  checksums of all files but README.md

TF Serving loads every version that it finds, so EXPORT_DIR/<number> appears only when it is
complete, was loaded and gave the model's answers. One process at a time makes a version. (Remote
file systems have no locks and move folders file by file: there saved_model.pb comes last.) Files
for LiteRT and ONNX Runtime are laid out in the same way.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import __version__, files, runtime
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import VOCAB_FILE, Weights, vocabulary_text
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.runtime import import_tensorflow_text
from bert_tf.serving import portable
from bert_tf.serving.inference import ACTIVATIONS, PORTABLE_ACTIVATIONS
from bert_tf.serving.options import (
    BFLOAT16,
    DEFAULT,
    FLOAT32,
    FROM_IDS,
    SAVED_MODEL,
    ServingOptions,
)
from bert_tf.serving.portable import Arrays
from bert_tf.serving.signatures import (
    Answers,
    ServingTask,
    Signature,
    make_task,
    refuse_not_finite,
)
from bert_tf.terminal import Progress
from bert_tf.tokenization.whole_pieces import kept_whole
from bert_tf.tokenization.wordpiece import FullTokenizer

WARM_UP_BATCHES = (1, 4)  # rows of the warm-up requests
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
METADATA_FILE = "export.json"
MODEL_CARD = "README.md"
CHECKSUMS = "SHA256SUMS"
Answered = tuple[Arrays, Arrays]  # a request and its answers, by name
# The file that makes a folder a model of a format.
MODEL_FILES = {SAVED_MODEL: "saved_model.pb"} | {
    name: file_format.file_name for name, file_format in portable.FORMATS.items()
}


def export_run(
    output_dir: str,
    source: Weights,
    config: BertConfig,
    tokenizer: FullTokenizer,
    export_dir: str,
    *,
    options: ServingOptions,
) -> str | None:
    """Exports the best checkpoint in the folder of a run, or `source` if the run has none.

    Of several processes the chief writes, and the others wait for it.

    Args:
      output_dir: the folder of the run.
      source: the weights that the run began with.
      config, tokenizer, export_dir, options: as for `export_checkpoint`.

    Returns:
      The folder of the version; None in a process that is not the chief.

    Raises:
      InputError: it cannot be written.
    """
    if not runtime.is_chief():
        logging.info("Waiting for the chief, which exports the model to %s", export_dir)
        runtime.barrier()
        return None
    if tf1.has_checkpoints(output_dir):
        source = open_weights(output_dir)
    path = export_checkpoint(source, config, tokenizer, export_dir, options=options)
    runtime.barrier()
    logging.info("Exported %s to %s", source.path, path)
    return path


def export_checkpoint(
    source: Weights,
    config: BertConfig,
    tokenizer: FullTokenizer,
    export_dir: str,
    *,
    options: ServingOptions,
    file_format: str = SAVED_MODEL,
    int8: bool = False,
) -> str:
    """Writes the next version in a folder: a checkpoint with the task that it was trained for.

    Args:
      source: the checkpoint; its metrics are in the eval_results.txt of its folder.
      config: the configuration of its model.
      tokenizer: with its vocabulary.
      export_dir: the folder of all versions of this model; TF Serving's base path.
      options: what is not in the checkpoint.
      file_format: one of `options.EXPORT_FORMATS`.
      int8: whether weights are stored as int8; not for a SavedModel.

    Returns:
      The folder of the version, export_dir/1 or the next free number.

    Raises:
      InputError: the checkpoint was trained for another task, or cannot be converted or written;
        its answers are NaN or infinite, or change when it is written; the folder has versions of
        another format, another process is exporting into it, or TensorFlow takes its path for a
        pattern.
    """
    _refuse_options(options, file_format, int8=int8)
    export_dir = files.own_path(export_dir)
    if file_format == SAVED_MODEL:
        files.refuse_pattern(export_dir)
    activations = ACTIVATIONS if file_format == SAVED_MODEL else PORTABLE_ACTIVATIONS
    task = make_task(source, config, tokenizer, options, activations)
    answered: list[Answered] = []

    def prove(folder: str) -> None:
        _prove(folder, answered)

    with contextlib.ExitStack() as stack:
        stack.enter_context(files.locked(export_dir, folder=True))
        with files.path_errors(export_dir, "written"):
            final = tf.io.gfile.join(export_dir, str(_next_version(export_dir, file_format)))
        folder = stack.enter_context(
            files.published(final, prove, folder=True, last=MODEL_FILES[file_format])
        )
        if file_format == SAVED_MODEL:
            signatures = task.signatures()
            facts = {}
            if options.precision == BFLOAT16:
                with Progress("compare with float32"), without_chatter():
                    facts = _beside_float32(source, config, tokenizer, options, signatures)
            name = export_dir.rpartition("/")[2] or task.head.name
            answered += _write_saved_model(task, signatures, folder, model_name=name)
        else:
            _write_vocabulary(task, folder)
            with Progress(f"convert to {file_format}"), without_chatter(logging.ERROR):
                signatures, facts = portable.write_portable(
                    task, folder, name=file_format, int8=int8
                )
        metadata = metadata_of(task, source, signatures, **facts)
        with files.path_errors(export_dir, "written"):
            _write_description(folder, metadata, task.head.title)
            write_checksums(folder)
    return final


def _refuse_options(options: ServingOptions, file_format: str, *, int8: bool) -> None:
    """Raises `InputError` for numbers that a format does not have."""
    if int8 and file_format == SAVED_MODEL:
        expected = f"--format={' or '.join(portable.FORMATS)}"
        raise InputError(f"--int8 with --format={SAVED_MODEL}", expected, "leave out one of both")
    if options.precision == BFLOAT16 and file_format != SAVED_MODEL:
        received = f"--precision={BFLOAT16} with --format={file_format}"
        remedy = "leave out one of both, or try --int8"
        raise InputError(received, f"--format={SAVED_MODEL}", remedy)


def _beside_float32(
    source: Weights,
    config: BertConfig,
    tokenizer: FullTokenizer,
    options: ServingOptions,
    signatures: Mapping[str, Signature],
) -> dict[str, float]:
    """The differences between a model's answers in bfloat16 and in float32, for export.json.

    Raises:
      InputError: answers are NaN or infinite, or of other shapes.
    """
    exact = make_task(source, config, tokenizer, dataclasses.replace(options, precision=FLOAT32))
    of_ids = signatures[FROM_IDS].traced()
    exact_of_ids = exact.signatures()[FROM_IDS].traced()
    names = [name for name, spec in of_ids.structured_outputs.items() if spec.dtype != tf.string]

    def exact_numbers(**features: tf.Tensor) -> Answers:
        answers = exact_of_ids(**features)
        return {name: answers[name] for name in names}

    figures = portable.beside(partial(_answers_of, of_ids), exact_numbers, exact, fixed=False)
    if not np.isfinite([*figures.values()]).all():
        received = (
            "answers in bfloat16 that are NaN or infinite, or of other shapes than in float32"
        )
        remedy = f"export with --precision={FLOAT32}, and report this; nothing was left"
        raise InputError(received, "answers near those in float32", remedy)
    return figures


def _write_description(folder: str, metadata: Mapping[str, Any], title: str) -> None:
    """Writes export.json and README.md."""
    text = json.dumps(metadata, indent=1, ensure_ascii=False) + "\n"
    files.write_text(tf.io.gfile.join(folder, METADATA_FILE), text)
    files.write_text(tf.io.gfile.join(folder, MODEL_CARD), model_card(metadata, title))


def _next_version(export_dir: str, file_format: str) -> int:
    """The number of the next version.

    Raises:
      InputError: there is a version of another format. TF Serving loads the greatest version, and
        could not read it.
    """
    folders = versions(export_dir)
    for name, file in MODEL_FILES.items():
        if name == file_format:
            continue
        for folder in folders.values():
            path = tf.io.gfile.join(folder, file)
            if tf.io.gfile.exists(path):
                received = f"--format={file_format} for a folder with {path}"
                raise InputError(received, "versions of one format", "choose another --export_dir")
    return max(folders, default=0) + 1


def versions(export_dir: str) -> dict[int, str]:
    """The folders of an export's versions, by their numbers."""
    if not tf.io.gfile.isdir(export_dir):
        return {}
    folders = {}
    for name in tf.io.gfile.listdir(export_dir):
        number = name.rstrip("/")
        if number.isdecimal():
            folders[int(number)] = tf.io.gfile.join(export_dir, number)
    return folders


def _write_saved_model(
    task: ServingTask, signatures: Mapping[str, Signature], folder: str, *, model_name: str
) -> list[Answered]:
    """Writes the files that TensorFlow reads; returns requests with the model's own answers."""
    with Progress("trace the signatures"), without_chatter():
        functions = {name: signature.traced() for name, signature in signatures.items()}
    requests = []
    for num_rows in WARM_UP_BATCHES:
        requests += [arrays_of([row] * num_rows) for row in task.samples]
    answered = []
    for arrays in requests[: len(task.samples)]:
        answers = _answers_of(functions[DEFAULT], arrays)
        refuse_not_finite(answers)
        answered.append((arrays, answers))
    # Errors above come from the model, not from the folder.
    with files.path_errors(folder, "written"), tempfile.TemporaryDirectory() as local:
        exported = tf.Module()  # what the SavedModel holds besides its functions
        exported.model = task.model
        exported.vocabulary = tf.saved_model.Asset(_write_vocabulary(task, local))
        with Progress("write the SavedModel"), without_chatter():
            tf.saved_model.save(exported, folder, signatures=functions)
        path = tf.io.gfile.join(folder, WARM_UP_FILE)
        tf.io.gfile.makedirs(path.rpartition("/")[0])
        with tf.io.TFRecordWriter(path) as writer:
            for arrays in requests:
                writer.write(warm_up_record(arrays, model_name=model_name))
    return answered


def _answers_of(function: Callable[..., Answers], arrays: Arrays) -> Arrays:
    """A signature's answers to a request."""
    answers = function(**{name: tf.constant(value) for name, value in arrays.items()})
    return {name: value.numpy() for name, value in answers.items()}


def _prove(folder: str, answered: Sequence[Answered]) -> None:
    """Loads a SavedModel and compares its answers.

    Args:
      folder: the folder of the SavedModel.
      answered: requests, with the answers of the model that it was made of. Empty: the folder has
        a file of another format, which was compared when it was converted.

    Raises:
      InputError: answers differ by more than rounding explains.
    """
    if not answered:
        return
    with Progress("load the SavedModel, and compare its answers"), without_chatter():
        loaded = tf.saved_model.load(folder)
        for arrays, wanted in answered:
            answers = _answers_of(loaded.signatures[DEFAULT], arrays)
            difference, is_other = portable.differences(answers, wanted)
            num_other = sum(is_other)
            if not difference <= portable.TOLERANCE or num_other:
                received = f"answers of the written model that differ by {difference:.1e}"
                if num_other:
                    received += f", and {num_other} that are no numbers"
                expected = f"the model's own, with differences up to {portable.TOLERANCE:.0e}"
                raise InputError(received, expected, "report this; nothing was left")


def _write_vocabulary(task: ServingTask, folder: str) -> str:
    """Writes assets/vocab.txt; returns its path."""
    text = vocabulary_text(task.sequences.tokenizer.pieces)
    assets = tf.io.gfile.join(folder, "assets")
    path = tf.io.gfile.join(assets, VOCAB_FILE)
    with files.path_errors(folder, "written"):
        tf.io.gfile.makedirs(assets)
        files.write_text(path, text)
    return path


@contextlib.contextmanager
def without_chatter(level: int = logging.WARNING) -> Iterator[None]:
    """Suppresses TensorFlow's messages below a level while it saves or loads."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(level)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


# ---------------------------------------------------------------------------- warm-up requests


def arrays_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Rows of texts by name, of one shape -> arrays [B] or [B, C] by name."""
    arrays = {}
    for name in rows[0]:
        arrays[name] = np.array([row[name] for row in rows], object)
    return arrays


def warm_up_record(inputs: Mapping[str, np.ndarray], *, model_name: str) -> bytes:
    """A serialized `PredictionLog` message, which TF Serving runs when it loads a model.

    It is written byte by byte, so that an export needs no tensorflow-serving-api (field numbers as
    in tensorflow_serving/apis; a test reads the message with that package):

        PredictionLog.predict_log = 6 > PredictLog.request = 1 > PredictRequest
        PredictRequest: model_spec = 1 {name = 1, signature_name = 3},
                        inputs = 2 {key = 1, value = 2}

    Args:
      inputs: the inputs of the default signature.
      model_name: TF Serving's name of the model.
    """
    request = _field(1, _field(1, model_name.encode()) + _field(3, DEFAULT.encode()))
    for name, value in sorted(inputs.items()):
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes: its number and type, its length as a varint, its content."""
    length = bytearray()
    size = len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


# ---------------------------------------------------------------------------- export.json


def metadata_of(
    task: ServingTask, source: Weights, signatures: Mapping[str, Signature], **facts: Any
) -> dict[str, Any]:
    """The content of export.json. Of paths it has the last part only.

    Args:
      task: that is exported.
      source: its checkpoint.
      signatures: the signatures of the export.
      **facts: figures of the comparison with the model; of a file of another format also what
        `portable.write_portable` returns.
    """
    metadata: dict[str, Any] = {"task": task.head.name, **facts}
    if "file" not in facts:
        metadata["texts"] = dict(task.texts)
        metadata["outputs"] = dict(task.outputs)
    inputs = {name: signature.inputs for name, signature in signatures.items()}
    metadata["signatures"] = specs_of(inputs)
    metadata["answers"] = {name: dict(s.outputs) for name, s in signatures.items()}
    metadata["padded"] = [name for name, s in signatures.items() if s.is_padded]
    metadata["options"] = task.listed_options()
    tokenizer = task.sequences.tokenizer
    metadata |= {name: value for name, value in tokenizer.case.items() if value is not None}
    metadata |= {name: list(pieces) for name, pieces in kept_whole(tokenizer).items()}
    metadata["config"] = task.sequences.config.to_dict()
    metadata["source"] = os.path.basename(source.path.rstrip("/"))
    for name in ("origin", "columns", "thresholds"):
        if value := getattr(source.metadata, name):
            metadata[name] = value
    metadata["metrics"] = metrics_of(source.path)
    metadata["versions"] = {
        "bert-tf": __version__,
        "tensorflow": tf.__version__,
        "tensorflow-text": import_tensorflow_text().__version__,
        "keras": keras.__version__,
    }
    return metadata


def specs_of(signatures: Mapping[str, Mapping[str, tf.TensorSpec]]) -> dict[str, Any]:
    """The types and shapes of the inputs of signatures, for JSON."""
    listed: dict[str, Any] = {}
    for signature, inputs in signatures.items():
        listed[signature] = {}
        for name, spec in inputs.items():
            listed[signature][name] = {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}
    return listed


def metrics_of(path: str) -> dict[str, str]:
    """Reads the eval_results.txt of a checkpoint: beside it, or above the folder `best`.

    Empty if there is no such file, or if it has the step of another checkpoint.
    """
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path)
    folders = [folder]
    if os.path.basename(folder) == files.BEST:
        folders.append(os.path.dirname(folder))
    paths = [os.path.join(folder, files.EVAL_RESULTS) for folder in folders]
    results_file = next(filter(tf.io.gfile.exists, paths), None)
    if results_file is None:
        return {}
    metrics = {}
    for line in files.read_text_lines(results_file):
        name, separator, value = line.rstrip("\r\n").partition(" = ")
        if separator:
            metrics[name] = value
    step = tf1.step_of(path)
    if step and metrics.get(tf1.GLOBAL_STEP) not in (None, str(step)):
        return {}
    return metrics


# ---------------------------------------------------------------------------- README.md


def _card(kind: str = "") -> str:
    """A part of the model card, from a file beside this one."""
    return pathlib.Path(__file__).with_name(f"card{kind}.md").read_text(encoding="utf-8")


CARD = _card()
SAVED_MODEL_CARD = _card("_saved_model")
PORTABLE_CARD = _card("_portable")
BFLOAT16_CARD = _card("_bfloat16")
BATCHES_CARD = _card("_batches")
INT8_CARDS = {MODEL_FILES[name]: _card(f"_int8_{name}") for name in portable.FORMATS}


def model_card(metadata: Mapping[str, Any], title: str) -> str:
    """The README.md of an export.

    Args:
      metadata: as from `metadata_of`.
      title: a line that says what the model does.
    """
    parts = [SAVED_MODEL_CARD]
    if metadata["options"].get("precision") == BFLOAT16:
        parts.append(BFLOAT16_CARD.format(**metadata))
    if "file" in metadata:
        weights = "int8" if metadata["int8_weights"] else "float32"
        parts = [PORTABLE_CARD.format(weights=weights, **metadata)]
    if f"{portable.GREATEST}{portable.IN_BATCHES}" in metadata:
        parts.append(BATCHES_CARD.format(**metadata))
    if metadata.get("int8_weights"):
        parts.append(INT8_CARDS[metadata["file"]])
    about = "\n\n".join(part.rstrip() for part in parts)
    return CARD.format(task=metadata["task"], title=title, about=about)


# ---------------------------------------------------------------------------- checksums


def write_checksums(folder: str) -> None:
    """Writes the checksums of the files in a folder, for `sha256sum -c SHA256SUMS` there.

    They show damage and files of another export, but are no protection: whoever can change a file
    can change the list.

    Raises:
      InputError: a file cannot be read, or the list not written.
    """
    lines = [f"{digest}  {name}\n" for name, digest in sorted(_digests(folder).items())]
    files.write_text(tf.io.gfile.join(folder, CHECKSUMS), "".join(lines))


def _digests(folder: str) -> dict[str, str]:
    """The checksums of the files in a folder and the folders in it, by their relative paths.

    The list itself is left out, and so is the model card, which people may edit.
    """
    paths = []
    with files.path_errors(folder):
        for inner_folder, _, names in tf.io.gfile.walk(folder):
            paths += [tf.io.gfile.join(inner_folder, name) for name in names]
    digests = {}
    for path in paths:
        name = path.removeprefix(folder).lstrip("/")
        if name not in (CHECKSUMS, MODEL_CARD):
            digests[name] = files.digest_of(path)
    return digests
