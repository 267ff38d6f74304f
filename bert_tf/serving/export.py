"""A checkpoint -> EXPORT_DIR/1, a SavedModel in the layout of TF Serving.

    EXPORT_DIR/1/saved_model.pb                              signatures
                 variables/                                  the weights, once
                 assets/vocab.txt                            the vocabulary
                 assets.extra/tf_serving_warmup_requests     run when TF Serving loads the model
                 README.md, export.json                      for people and for programs
                 SHA256SUMS                                  checksums of the files but README.md

EXPORT_DIR/<number> appears only when it is complete: TF Serving loads what it finds. (Remote file
systems move folders file by file: there saved_model.pb comes last, and only one process may
export into a folder at a time.) Files for LiteRT and ONNX Runtime are laid out in the same way.
"""

import contextlib
import re
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import cluster, files
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
from bert_tf.serving.signatures import ServingTask, refuse_not_finite
from bert_tf.terminal.progress import Progress
from bert_tf.tokenization.wordpiece import FullTokenizer

WARM_UP_BATCHES = (1, 4)  # rows of the requests that TF Serving begins with
METADATA_FILE = "export.json"
_WRITTEN = re.compile(r"\.(version-[0-9a-f]{8})\..+")  # lock and folder of an unfinished export
# The file that makes a folder a model of its format.
MODEL_FILES = {SAVED_MODEL: "saved_model.pb"} | {
    name: file_format.file_name for name, file_format in portable.FORMATS.items()
}
_TAKEN = (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError)


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
    if not cluster.is_chief():
        logging.info("Waiting for the chief, which exports the model to %s", export_dir)
        cluster.barrier()
        return None
    if tf1.has_checkpoints(output_dir):
        source = open_weights(output_dir)
    path = export_checkpoint(
        source, config, tokenizer, export_dir, options=options, commands=[command_line()]
    )
    cluster.barrier()
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
        are NaN or infinite, or the folder has versions of another format.
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
    with files.path_errors(export_dir, "written"):
        tf.io.gfile.makedirs(export_dir)
        _check_folder(export_dir, file_format)
    # A name of its own: other processes may export into the same folder.
    own = tf.io.gfile.join(export_dir, f"version-{secrets.token_hex(4)}")
    with contextlib.ExitStack() as stack:
        with files.path_errors(export_dir, "written"):
            folder = stack.enter_context(files.temporary(own, folder=True))
        converted = _write_model(task, folder, export_dir, file_format, int8=int8)
        metadata = model_card.metadata_of(task, source.path, commands=commands, converted=converted)
        card = model_card.model_card(metadata, task.title)
        text = model_card.metadata_text(metadata)
        with files.path_errors(export_dir, "written"):
            files.write_text(tf.io.gfile.join(folder, METADATA_FILE), text)
            files.write_text(tf.io.gfile.join(folder, MODEL_CARD), card)
            write_checksums(folder)
            return _publish(folder, export_dir, last=MODEL_FILES[file_format])


def _write_model(
    task: ServingTask, folder: str, export_dir: str, file_format: str, *, int8: bool
) -> dict[str, Any] | None:
    """Writes model and vocabulary; returns what `portable.write_portable` says of a conversion."""
    if file_format == SAVED_MODEL:
        _write_saved_model(task, folder, export_dir.rpartition("/")[2] or task.name)
        return None
    _write_vocabulary(task, folder)
    with Progress(f"convert to {file_format}"), without_chatter():
        return portable.write_portable(task, folder, name=file_format, int8=int8)


def _check_folder(export_dir: str, file_format: str) -> None:
    """Refuses versions of another format: TF Serving loads the greatest, whatever it is.

    Removes what killed exports have left.
    """
    for version, folder in versions(export_dir).items():
        for name, file in MODEL_FILES.items():
            if name != file_format and tf.io.gfile.exists(tf.io.gfile.join(folder, file)):
                raise InputError(
                    f"--format={file_format} for {export_dir}, where version {version} has a "
                    f"{file}",
                    "a folder with versions of one format",
                    "choose another --export_dir",
                )
    for name in sorted(tf.io.gfile.listdir(export_dir)):
        if not (found := _WRITTEN.fullmatch(name.rstrip("/"))):
            continue
        path, own = (tf.io.gfile.join(export_dir, found[group]) for group in (0, 1))
        # Taking the lock of a killed process removes what it has left.
        with contextlib.suppress(InputError), files.locked(own):  # else it is being written
            if tf.io.gfile.isdir(path):
                logging.warning("%s is of an export that was killed, or is still running; "
                                "remove it if none is.", path)  # fmt: skip


def _publish(temporary: str, export_dir: str, *, last: str) -> str:
    """Makes a complete folder the next version; returns its path."""
    while True:
        final = tf.io.gfile.join(export_dir, str(_next_version(export_dir)))
        try:
            publish_folder(temporary, final, last=last)
            return final
        except _TAKEN:
            if not tf.io.gfile.exists(final):  # else another process has just made this version
                raise


def _next_version(export_dir: str) -> int:
    return max(versions(export_dir), default=0) + 1


def versions(export_dir: str) -> dict[int, str]:
    """The folders of an export's versions, by their numbers."""
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(export_dir))
    return {int(name): tf.io.gfile.join(export_dir, name) for name in names if name.isdecimal()}


def _write_saved_model(task: ServingTask, folder: str, model_name: str) -> None:
    with Progress("trace the signatures"), without_chatter():
        functions = concrete_functions(task)
    requests = warm_up_requests(task)
    for signature, arrays in requests[: len(task.samples())]:
        answers = functions[signature](**{n: tf.constant(value) for n, value in arrays.items()})
        refuse_not_finite({name: value.numpy() for name, value in answers.items()})
    records = model_card.warm_up_records(requests, model_name=model_name)
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
        extra = tf.io.gfile.join(folder, "assets.extra")
        tf.io.gfile.makedirs(extra)
        path = tf.io.gfile.join(extra, model_card.WARM_UP_FILE)
        with tf.io.TFRecordWriter(path) as writer:
            for record in records:
                writer.write(record)


def _write_vocabulary(task: ServingTask, folder: str) -> str:
    """Writes assets/vocab.txt; returns its path."""
    tokenizer = task.sequences.tokenizer
    text = vocabulary_text(tokenizer.pieces)
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


def concrete_functions(task: ServingTask) -> dict[str, Any]:
    """Each signature of a task, traced for any batch size and length."""
    return {name: signature.traced() for name, signature in task.signatures().items()}


def warm_up_requests(task: ServingTask) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Requests of all sample texts, of one row and of several."""
    return [
        (DEFAULT, batch_of([sample] * batch))
        for batch in WARM_UP_BATCHES
        for sample in task.samples()
    ]


def batch_of(rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Rows of texts by name -> arrays of bytes by name."""

    def encoded(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else [encoded(one) for one in value]

    return {name: np.array([encoded(row[name]) for row in rows], object) for name in rows[0]}
