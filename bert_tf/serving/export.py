"""A checkpoint -> EXPORT_DIR/1, a SavedModel in the layout of TF Serving.

    EXPORT_DIR/1/saved_model.pb                              signatures
                 variables/                                  the weights, once
                 assets/vocab.txt                            the vocabulary
                 assets.extra/tf_serving_warmup_requests     run when TF Serving loads the model
                 README.md, export.json                      for people and for programs
                 SHA256SUMS                                  checksums of the files but README.md

EXPORT_DIR/<number> appears only when it is complete: TF Serving loads what it finds. One process
at a time exports into a folder. (Remote file systems have no locks and move folders file by file:
there saved_model.pb comes last.) Files for LiteRT and ONNX Runtime are laid out in the same way.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import files, runtime
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import VOCAB_FILE, Weights, vocabulary_text
from bert_tf.checkpoints.saving import publish_folder
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.runtime import command_line
from bert_tf.serving import model_card, portable
from bert_tf.serving.checksums import MODEL_CARD, write_checksums
from bert_tf.serving.inference import ACTIVATIONS, PORTABLE_ACTIVATIONS
from bert_tf.serving.options import DEFAULT, SAVED_MODEL, ServingOptions
from bert_tf.serving.registry import make_task
from bert_tf.serving.signatures import ServingTask, Signature, refuse_not_finite
from bert_tf.terminal import Progress
from bert_tf.tokenization.wordpiece import FullTokenizer

WARM_UP_BATCHES = (1, 4)  # rows of the requests that TF Serving begins with
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
METADATA_FILE = "export.json"
# The file that makes a folder a model of its format.
MODEL_FILES = {SAVED_MODEL: "saved_model.pb"} | {
    name: file_format.file_name for name, file_format in portable.FORMATS.items()
}


class _Exported(tf.Module):
    """What a SavedModel holds besides its functions: variables and vocabulary."""

    def __init__(self, task: ServingTask, vocab_file: str):
        super().__init__()
        self.model = task.model
        self.vocabulary = tf.saved_model.Asset(vocab_file)


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
    path = export_checkpoint(
        source, config, tokenizer, export_dir, options=options, commands=[command_line()]
    )
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
    commands: Sequence[str] = (),
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
      commands: that made it, for the model card.
      file_format: one of `options.FORMATS`.
      int8: weights as int8; not for a SavedModel.

    Returns:
      The folder of the version, export_dir/1 or the next free number.

    Raises:
      InputError: the checkpoint is of no such task, cannot be converted or written, its answers
        are NaN or infinite, the folder has versions of another format, or another process is
        exporting into it.
    """
    if int8 and file_format == SAVED_MODEL:
        raise InputError(
            f"int8 weights with --format={SAVED_MODEL}",
            f"one of {', '.join(portable.FORMATS)}, whose converters have them",
            "leave out --int8, or choose another --format",
        )
    activations = ACTIVATIONS if file_format == SAVED_MODEL else PORTABLE_ACTIVATIONS
    task = make_task(source, config, tokenizer, options, activations)
    export_dir = export_dir.rstrip("/")
    with contextlib.ExitStack() as stack:
        stack.enter_context(files.locked(export_dir, folder=True))
        with files.path_errors(export_dir, "written"):
            tf.io.gfile.makedirs(export_dir)
            final = tf.io.gfile.join(export_dir, str(_next_version(export_dir, file_format)))
            folder = stack.enter_context(files.temporary(final, folder=True))
        if file_format == SAVED_MODEL:
            signatures, converted = task.signatures(), {}
            name = export_dir.rpartition("/")[2] or task.head.name
            _write_saved_model(task, signatures, folder, model_name=name)
        else:
            _write_vocabulary(task, folder)
            with Progress(f"convert to {file_format}"), without_chatter():
                signatures, converted = portable.write_portable(
                    task, folder, name=file_format, int8=int8
                )
        metadata = model_card.metadata_of(
            task, source.path, signatures, commands=commands, **converted
        )
        texts = {
            METADATA_FILE: json.dumps(metadata, indent=1, ensure_ascii=False) + "\n",
            MODEL_CARD: model_card.model_card(metadata, task.head.title),
        }
        with files.path_errors(export_dir, "written"):
            for name, text in texts.items():
                files.write_text(tf.io.gfile.join(folder, name), text)
            write_checksums(folder)
            publish_folder(folder, final, last=MODEL_FILES[file_format])
    return final


def _next_version(export_dir: str, file_format: str) -> int:
    """The next number; refuses versions of another format: TF Serving loads the greatest."""
    found = versions(export_dir)
    for version, folder in found.items():
        for name, file in MODEL_FILES.items():
            if name != file_format and tf.io.gfile.exists(tf.io.gfile.join(folder, file)):
                raise InputError(
                    f"--format={file_format} for {export_dir}, where version {version} has a "
                    f"{file}",
                    "a folder with versions of one format",
                    "choose another --export_dir",
                )
    return max(found, default=0) + 1


def versions(export_dir: str) -> dict[int, str]:
    """The folders of an export's versions, by their numbers."""
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(export_dir))
    return {int(name): tf.io.gfile.join(export_dir, name) for name in names if name.isdecimal()}


def _write_saved_model(
    task: ServingTask, signatures: Mapping[str, Signature], folder: str, *, model_name: str
) -> None:
    with Progress("trace the signatures"), without_chatter():
        functions = {name: signature.traced() for name, signature in signatures.items()}
    requests = warm_up_requests(task)
    for arrays in requests[: len(task.samples())]:
        answers = functions[DEFAULT](**{n: tf.constant(value) for n, value in arrays.items()})
        refuse_not_finite({name: value.numpy() for name, value in answers.items()})
    # Errors up to here are the model's, not the folder's.
    with files.path_errors(folder, "written"), tempfile.TemporaryDirectory() as local:
        vocab_file = _write_vocabulary(task, local)
        try:
            with Progress("write the SavedModel"), without_chatter():
                tf.saved_model.save(_Exported(task, vocab_file), folder, signatures=functions)
        except ValueError as error:  # TensorFlow's, of the file that it reads back at the end
            if "fingerprint" not in str(error):
                raise
            raise OSError(str(error).splitlines()[-1]) from None
        path = tf.io.gfile.join(folder, WARM_UP_FILE)
        tf.io.gfile.makedirs(path.rpartition("/")[0])
        with tf.io.TFRecordWriter(path) as writer:
            for arrays in requests:
                writer.write(warm_up_record(arrays, model_name=model_name))


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


def warm_up_requests(task: ServingTask) -> list[dict[str, np.ndarray]]:
    """The default signature's inputs for all sample texts, of one row and of several."""
    return [batch_of([row] * count) for count in WARM_UP_BATCHES for row in task.samples()]


def batch_of(rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Rows of texts by name -> arrays of bytes by name."""

    def encoded(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else [encoded(one) for one in value]

    return {name: np.array([encoded(row[name]) for row in rows], object) for name in rows[0]}


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
