"""A checkpoint -> EXPORT_DIR/1, a SavedModel in the layout of TF Serving.

    EXPORT_DIR/1/saved_model.pb                              signatures
                 variables/                                  the weights, once
                 assets/vocab.txt                            the vocabulary
                 assets.extra/tf_serving_warmup_requests     run when TF Serving loads the model
                 README.md, export.json                      for people and for programs
                 SHA256SUMS                                  checksums of the files but README.md

EXPORT_DIR/<number> appears only when it is complete, was loaded and gave the model's answers: TF
Serving loads what it finds. One process at a time makes a version. (Remote file systems have no
locks and move folders file by file: there saved_model.pb comes last.) Files for LiteRT and ONNX
Runtime are laid out in the same way.
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
from bert_tf.tokenization.wordpiece import FullTokenizer

WARM_UP_BATCHES = (1, 4)  # rows of the requests that TF Serving begins with
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
METADATA_FILE, MODEL_CARD, CHECKSUMS = "export.json", "README.md", "SHA256SUMS"
Answered = tuple[Arrays, Arrays]  # a request and its answers, by name
# The file that makes a folder a model of its format.
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
      source: what the run began with.
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
    """Writes a checkpoint, as the task that it was trained for, as the next version in a folder.

    Args:
      source: the checkpoint; its metrics are in the eval_results.txt of its folder.
      config: of its model.
      tokenizer: with its vocabulary.
      export_dir: of all versions of this model; TF Serving's base path.
      options: what is not in the checkpoint.
      file_format: one of `options.EXPORT_FORMATS`.
      int8: weights as int8; not for a SavedModel.

    Returns:
      The folder of the version, export_dir/1 or the next free number.

    Raises:
      InputError: the checkpoint is of no such task, cannot be converted or written, its answers
        are NaN or infinite, or others once it is written, the folder has versions of another
        format, another process is exporting into it, or TensorFlow takes its path for a pattern.
    """
    if int8 and file_format == SAVED_MODEL:
        expected = f"--format={' or '.join(portable.FORMATS)}"
        raise InputError(f"--int8 with --format={SAVED_MODEL}", expected, "leave out one of both")
    if options.precision == BFLOAT16 and file_format != SAVED_MODEL:
        received = f"--precision={BFLOAT16} with --format={file_format}"
        raise InputError(
            received, f"--format={SAVED_MODEL}", "leave out one of both, or try --int8"
        )
    activations = ACTIVATIONS if file_format == SAVED_MODEL else PORTABLE_ACTIVATIONS
    export_dir = files.own_path(export_dir)
    if file_format == SAVED_MODEL:
        files.refuse_pattern(export_dir)
    task = make_task(source, config, tokenizer, options, activations)
    answered: list[Answered] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(files.locked(export_dir, folder=True))
        with files.path_errors(export_dir, "written"):
            final = tf.io.gfile.join(export_dir, str(_next_version(export_dir, file_format)))
        folder = stack.enter_context(
            files.published(
                final,
                lambda folder: _prove(folder, answered),
                folder=True,
                last=MODEL_FILES[file_format],
            )
        )
        if file_format == SAVED_MODEL:
            signatures, facts = task.signatures(), {}
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


def _beside_float32(
    source: Weights,
    config: BertConfig,
    tokenizer: FullTokenizer,
    options: ServingOptions,
    signatures: Mapping[str, Signature],
) -> dict[str, float]:
    """How far the answers of a model in bfloat16 are from those in float32, for export.json.

    Raises:
      InputError: they are not finite, or of other shapes.
    """
    exact = make_task(source, config, tokenizer, dataclasses.replace(options, precision=FLOAT32))
    of_ids, exact_of_ids = signatures[FROM_IDS].traced(), exact.signatures()[FROM_IDS].traced()
    names = [name for name, spec in of_ids.structured_outputs.items() if spec.dtype != tf.string]

    def numbers_of(**features: tf.Tensor) -> Answers:
        answers = exact_of_ids(**features)
        return {name: answers[name] for name in names}

    far = portable.beside(partial(_answers_of, of_ids), numbers_of, exact, fixed=False)
    if not np.isfinite([*far.values()]).all():
        received = (
            "answers in bfloat16 that are NaN or infinite, or of other shapes than in float32"
        )
        remedy = f"export with --precision={FLOAT32}, and report this; nothing was left"
        raise InputError(received, "answers near those in float32", remedy)
    return far


def _write_description(folder: str, metadata: Mapping[str, Any], title: str) -> None:
    text = json.dumps(metadata, indent=1, ensure_ascii=False) + "\n"
    files.write_text(tf.io.gfile.join(folder, METADATA_FILE), text)
    files.write_text(tf.io.gfile.join(folder, MODEL_CARD), model_card(metadata, title))


def _next_version(export_dir: str, file_format: str) -> int:
    """The next number; refuses versions of another format: TF Serving loads the greatest."""
    found = versions(export_dir)
    others = [file for name, file in MODEL_FILES.items() if name != file_format]
    for path in (tf.io.gfile.join(one, file) for one in found.values() for file in others):
        if tf.io.gfile.exists(path):
            received = f"--format={file_format} for a folder with {path}"
            raise InputError(received, "versions of one format", "choose another --export_dir")
    return max(found, default=0) + 1


def versions(export_dir: str) -> dict[int, str]:
    """The folders of an export's versions, by their numbers."""
    names = tf.io.gfile.listdir(export_dir) if tf.io.gfile.isdir(export_dir) else ()
    numbers = [name.rstrip("/") for name in names]
    return {int(name): tf.io.gfile.join(export_dir, name) for name in numbers if name.isdecimal()}


def _write_saved_model(
    task: ServingTask, signatures: Mapping[str, Signature], folder: str, *, model_name: str
) -> list[Answered]:
    """Writes the files that TensorFlow reads; returns requests with the model's own answers."""
    with Progress("trace the signatures"), without_chatter():
        functions = {name: signature.traced() for name, signature in signatures.items()}
    requests = [arrays_of([row] * count) for count in WARM_UP_BATCHES for row in task.samples]
    answered = []
    for arrays in requests[: len(task.samples)]:
        answers = _answers_of(functions[DEFAULT], arrays)
        refuse_not_finite(answers)
        answered.append((arrays, answers))
    # Errors up to here are the model's, not the folder's.
    with files.path_errors(folder, "written"), tempfile.TemporaryDirectory() as local:
        exported = tf.Module()  # what a SavedModel holds besides its functions
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
    """Loads a SavedModel, unless nothing was asked, and compares its answers.

    Args:
      folder: of the SavedModel.
      answered: requests, with the answers of the model that it was made of.

    Raises:
      InputError: they differ by more than rounding explains.
    """
    if not answered:  # a file of another format was compared where it was converted
        return
    with Progress("load the SavedModel, and compare its answers"), without_chatter():
        loaded = tf.saved_model.load(folder)
        for arrays, wanted in answered:
            found = _answers_of(loaded.signatures[DEFAULT], arrays)
            difference, others = portable.differences(found, wanted)
            if not difference <= portable.TOLERANCE or any(others):
                received = f"answers of the written model that differ by {difference:.1e}"
                received += f", and {sum(others)} that are no numbers" if any(others) else ""
                expected = f"the model's own, with differences up to {portable.TOLERANCE:.0e}"
                raise InputError(received, expected, "report this; nothing was left")


def _write_vocabulary(task: ServingTask, folder: str) -> str:
    """Writes assets/vocab.txt; returns its path."""
    text = vocabulary_text(task.sequences.tokenizer.pieces)
    assets = tf.io.gfile.join(folder, "assets")
    with files.path_errors(folder, "written"):
        tf.io.gfile.makedirs(assets)
        files.write_text(path := tf.io.gfile.join(assets, VOCAB_FILE), text)
    return path


@contextlib.contextmanager
def without_chatter(level: int = logging.WARNING) -> Iterator[None]:
    """Suppresses what TensorFlow logs below a level while it saves or loads."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(level)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


# ---------------------------------------------------------------------------- warm-up requests


def arrays_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Rows of texts by name, of one shape -> arrays [B] or [B, C] by name."""
    return {name: np.array([row[name] for row in rows], object) for name in rows[0]}


def warm_up_record(inputs: Mapping[str, np.ndarray], *, model_name: str) -> bytes:
    """A serialized `PredictionLog` message, which TF Serving runs when it loads a model.

    Written in the wire format, so that an export needs no tensorflow-serving-api (field numbers as
    in tensorflow_serving/apis; a test reads them with that package):

        PredictionLog.predict_log = 6 > PredictLog.request = 1 > PredictRequest
        PredictRequest: model_spec = 1 {name = 1, signature_name = 3},
                        inputs = 2 {key = 1, value = 2}

    Args:
      inputs: of the default signature.
      model_name: TF Serving's name of the model.
    """
    request = _field(1, _field(1, model_name.encode()) + _field(3, DEFAULT.encode()))
    for name, value in sorted(inputs.items()):
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes: its number and type, its length as a varint, its content."""
    length, size = bytearray(), len(content)
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
      signatures: of the export.
      **facts: what was measured of the model; of a file of another format what
        `portable.write_portable` says of it.
    """
    options, tokenizer = task.listed_options(), task.sequences.tokenizer
    if "file" not in facts:
        facts |= {"texts": dict(task.texts), "outputs": dict(task.outputs)}
    return {
        "task": task.head.name,
        **facts,
        "signatures": specs_of({name: one.inputs for name, one in signatures.items()}),
        "answers": {name: dict(signature.outputs) for name, signature in signatures.items()},
        "options": options,
        **{name: value for name, value in tokenizer.case.items() if value is not None},
        **{name: list(pieces) for name, pieces in tokenizer.kept_whole.items()},
        "config": task.sequences.config.to_dict(),
        "source": os.path.basename(source.path.rstrip("/")),
        **({"origin": source.metadata.origin} if source.metadata.origin else {}),
        **({"columns": columns} if (columns := source.metadata.columns) else {}),
        **({"thresholds": thresholds} if (thresholds := source.metadata.thresholds) else {}),
        "metrics": metrics_of(source.path),
        "versions": {
            "bert-tf": __version__,
            "tensorflow": tf.__version__,
            "tensorflow-text": import_tensorflow_text().__version__,
            "keras": keras.__version__,
        },
    }


def specs_of(signatures: Mapping[str, Mapping[str, tf.TensorSpec]]) -> dict[str, Any]:
    """The types and shapes of the inputs of signatures, for JSON."""
    return {
        name: {k: {"dtype": v.dtype.name, "shape": v.shape.as_list()} for k, v in inputs.items()}
        for name, inputs in signatures.items()
    }


def metrics_of(path: str) -> dict[str, str]:
    """Reads the eval_results.txt of a checkpoint: beside it, or above the folder `best`.

    Empty if there is none, or if its step is another checkpoint's.
    """
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path)
    is_best = os.path.basename(folder) == files.BEST
    folders = [folder, *([os.path.dirname(folder)] * is_best)]
    paths = [os.path.join(one, files.EVAL_RESULTS) for one in folders]
    found = next(filter(tf.io.gfile.exists, paths), None)
    lines = files.read_text_lines(found) if found else ()
    pairs = (line.rstrip("\r\n").partition(" = ") for line in lines)
    metrics = {name: value for name, separator, value in pairs if separator}
    step = tf1.step_of(path)
    is_other = step and metrics.get(tf1.GLOBAL_STEP) not in (None, str(step))
    return {} if is_other else metrics


# ---------------------------------------------------------------------------- README.md


def _card(kind: str = "") -> str:
    return pathlib.Path(__file__).with_name(f"card{kind}.md").read_text(encoding="utf-8")


CARD, SAVED_MODEL_CARD, PORTABLE_CARD = _card(), _card("_saved_model"), _card("_portable")
BFLOAT16_CARD, BATCHES_CARD = _card("_bfloat16"), _card("_batches")
INT8_CARDS = {MODEL_FILES[name]: _card(f"_int8_{name}") for name in portable.FORMATS}


def model_card(metadata: Mapping[str, Any], title: str) -> str:
    """The README.md of an export.

    Args:
      metadata: as of `metadata_of`.
      title: one line: what the model does.
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

    They show damage and files of another export, not intent: who can change a file can change the
    list.

    Raises:
      InputError: a file cannot be read, or the list not written.
    """
    lines = [f"{digest}  {name}\n" for name, digest in sorted(_digests(folder).items())]
    files.write_text(tf.io.gfile.join(folder, CHECKSUMS), "".join(lines))


def _digests(folder: str) -> dict[str, str]:
    """The checksums of the files in a folder and its folders by their names in it.

    Without the list itself and the model card, which people may edit.
    """
    with files.path_errors(folder):
        paths = [
            tf.io.gfile.join(inside, name)
            for inside, _, found in tf.io.gfile.walk(folder)
            for name in found
        ]
    named = {path.removeprefix(folder).lstrip("/"): path for path in paths}
    return {
        name: files.digest_of(path)
        for name, path in named.items()
        if name not in (CHECKSUMS, MODEL_CARD)
    }
