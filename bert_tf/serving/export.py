"""A task -> EXPORT_DIR/1, a SavedModel in the layout of TF Serving.

    EXPORT_DIR/1/saved_model.pb                              signatures
                 variables/                                  the weights, once
                 assets/vocab.txt                            the vocabulary
                 assets.extra/tf_serving_warmup_requests     run when TF Serving loads the model
                 README.md, export.json                      what it is, for people and programs

Nothing is below EXPORT_DIR/<number> before it is whole: TF Serving loads what it finds there. (On a
remote file system, where folders are moved file by file, what makes it a model comes last, and
exports into one folder must come one after the other.)
Files for LiteRT and ONNX Runtime have the same folder around them (`portable`).
"""

import contextlib
import shlex
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import cluster, files
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import VOCAB_FILE, Weights, vocabulary_text
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.serving import model_card, portable, warm_up
from bert_tf.serving.inference import ACTIVATIONS, PORTABLE_ACTIVATIONS
from bert_tf.serving.options import SAVED_MODEL, ServingOptions
from bert_tf.serving.registry import make_task
from bert_tf.serving.signatures import DEFAULT, ServingTask, refuse_no_numbers
from bert_tf.tokenization.wordpiece import FullTokenizer

WARM_UP_BATCHES = (1, 4)  # rows of the requests that TF Serving begins with
EXTRA = "assets.extra"
MODEL_CARD, FACTS = "README.md", "export.json"
INCOMPLETE = "incomplete-"  # begins the name of a folder that is being written
# The file that makes a folder one of its format.
MODEL_FILES = {SAVED_MODEL: "saved_model.pb"} | {
    name: file_format.file_name for name, file_format in portable.FORMATS.items()
}
_TAKEN = (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError)


class _Exported(tf.Module):
    """What is written: variables, vocabulary, and functions of both."""

    def __init__(self, task: ServingTask, vocab_file: str):
        super().__init__()
        self.model = task.model
        self.vocabulary = tf.saved_model.Asset(vocab_file)


def export_task(
    task: ServingTask,
    export_dir: str,
    *,
    origin: model_card.Origin,
    model_name: str = "bert",
    file_format: str = SAVED_MODEL,
    int8: bool = False,
) -> str:
    """Writes a task as the next version in a folder.

    Args:
      task: with the trained model.
      export_dir: of all versions of this model; TF Serving's base path.
      origin: where the model comes from, for the model card.
      model_name: as TF Serving is to call it, in the warm-up requests.
      file_format: one of FORMATS.
      int8: weights as int8, which a SavedModel has not.

    Returns:
      The folder of the version, export_dir/1 or the next free number.

    Raises:
      InputError: it cannot be converted or written, the folder has versions of another format, or
        the model gives infinities or no numbers.
    """
    if int8 and file_format == SAVED_MODEL:
        raise InputError(
            received=f"int8 weights with --format={SAVED_MODEL}",
            expected=f"one of {', '.join(portable.FORMATS)}, whose converters have them",
            remedy="leave out --int8, or choose another --format",
        )
    export_dir = export_dir.rstrip("/")
    with files.path_errors(export_dir, "written"):
        tf.io.gfile.makedirs(export_dir)
        _refuse_other_format(export_dir, file_format)
        for name in tf.io.gfile.listdir(export_dir):
            if name.startswith(INCOMPLETE):
                logging.warning(
                    "%s/%s is of an export that was killed, or is going on; remove it if none is.",
                    *(export_dir, name.rstrip("/")),
                )
        # Its own: other processes may export into the same folder.
        temporary = tf.io.gfile.join(export_dir, f"{INCOMPLETE}{uuid.uuid4().hex}")
    try:
        if file_format == SAVED_MODEL:
            _write_saved_model(task, temporary, model_name)
            facts = model_card.facts_of(task, origin)
            card = model_card.model_card(facts, task.title)
        else:
            converted = _write_portable(task, temporary, file_format, int8=int8)
            facts = model_card.portable_facts_of(task, origin, converted)
            card = model_card.portable_model_card(facts, task.title)
        with files.path_errors(export_dir, "written"):
            files.write_text(tf.io.gfile.join(temporary, FACTS), model_card.facts_text(facts))
            files.write_text(tf.io.gfile.join(temporary, MODEL_CARD), card)
            return _publish(temporary, export_dir, last=MODEL_FILES[file_format])
    finally:
        with files.path_errors(export_dir, "written"):
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.rmtree(temporary)


def _publish(temporary: str, export_dir: str, *, last: str) -> str:
    """Makes a whole folder the next version; returns its path."""
    while True:
        final = tf.io.gfile.join(export_dir, str(_next_version(export_dir)))
        if files.is_remote(export_dir):
            files.copy_folder(temporary, final, last=last)
            return final
        try:
            tf.io.gfile.rename(temporary, final)
            return final
        except _TAKEN:
            if not tf.io.gfile.exists(final):  # else another process has just made this version
                raise


def _refuse_other_format(export_dir: str, file_format: str) -> None:
    """TF Serving loads the greatest version of a folder, whatever it is."""
    for version, folder in versions(export_dir).items():
        for name, file in MODEL_FILES.items():
            if name != file_format and tf.io.gfile.exists(tf.io.gfile.join(folder, file)):
                raise InputError(
                    received=f"--format={file_format} for {export_dir}, where version {version} "
                    f"has a {file}",
                    expected="a folder with versions of one format",
                    remedy="choose another --export_dir",
                )


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
    """Writes a checkpoint as the task that it was trained for.

    Args:
      source: the checkpoint. Metrics are those of its eval_results.txt (`model_card.metrics_of`).
      config: of its model.
      tokenizer: with its vocabulary.
      export_dir: of all versions of this model.
      options: what is not in the checkpoint.
      commands: that made it, for the model card.
      file_format, int8: as for `export_task`.

    Returns:
      The folder of the version.

    Raises:
      InputError: the checkpoint is of no such task, something does not fit, or cannot be written.
    """
    activations = ACTIVATIONS if file_format == SAVED_MODEL else PORTABLE_ACTIVATIONS
    task = make_task(source, config, tokenizer, options, activations)
    metrics = model_card.metrics_of(source.path)
    origin = model_card.Origin(source.path, tuple(commands), metrics)
    name = export_dir.rstrip("/").rpartition("/")[2] or task.name
    return export_task(
        task, export_dir, origin=origin, model_name=name, file_format=file_format, int8=int8
    )


def export_run(
    output_dir: str,
    source: Weights,
    config: BertConfig,
    tokenizer: FullTokenizer,
    export_dir: str,
    *,
    options: ServingOptions,
) -> str | None:
    """Writes the best checkpoint in the folder of a run, or `source` if the run has none.

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
    command = shlex.join(["python", *sys.argv])
    path = export_checkpoint(
        source, config, tokenizer, export_dir, options=options, commands=[command]
    )
    cluster.barrier()
    logging.info("Exported %s to %s", source.path, path)
    return path


def _next_version(export_dir: str) -> int:
    return max(versions(export_dir), default=0) + 1


def versions(export_dir: str) -> dict[int, str]:
    """The folders of an export's versions, by their numbers."""
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(export_dir))
    return {int(name): tf.io.gfile.join(export_dir, name) for name in names if name.isdecimal()}


def _write_saved_model(task: ServingTask, folder: str, model_name: str) -> None:
    with _without_chatter():
        functions = concrete_functions(task)
    requests = warm_up_requests(task)
    for signature, arrays in requests[: len(task.samples())]:
        answers = functions[signature](**{n: tf.constant(value) for n, value in arrays.items()})
        refuse_no_numbers({name: value.numpy() for name, value in answers.items()})
    records = warm_up.warm_up_records(requests, model_name=model_name)
    # What fails before has to do with the model, and not with the folder.
    with files.path_errors(folder, "written"), tempfile.TemporaryDirectory() as assets:
        vocab_file = tf.io.gfile.join(assets, VOCAB_FILE)
        files.write_text(vocab_file, _vocabulary(task))
        with _without_chatter():
            tf.saved_model.save(_Exported(task, vocab_file), folder, signatures=functions)
        extra = tf.io.gfile.join(folder, EXTRA)
        tf.io.gfile.makedirs(extra)
        warm_up.write_warm_up(tf.io.gfile.join(extra, warm_up.FILE), records)


def _write_portable(
    task: ServingTask, folder: str, file_format: str, *, int8: bool
) -> dict[str, Any]:
    with files.path_errors(folder, "written"):
        assets = tf.io.gfile.join(folder, "assets")
        tf.io.gfile.makedirs(assets)
        files.write_text(tf.io.gfile.join(assets, VOCAB_FILE), _vocabulary(task))
    with _without_chatter():
        return portable.write_portable(task, folder, name=file_format, int8=int8)


def _vocabulary(task: ServingTask) -> str:
    tokenizer = task.sequences.tokenizer
    return vocabulary_text([tokenizer.inv_vocab[i] for i in range(tokenizer.vocab_size)])


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Leaves out what TensorFlow notes of every step of saving."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def concrete_functions(task: ServingTask) -> dict[str, Any]:
    """Each signature of a task, traced for any batch size and length."""
    return {name: signature.traced() for name, signature in task.signatures().items()}


def warm_up_requests(task: ServingTask) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Requests of all sample texts, of one row and of several."""
    requests = []
    for batch in WARM_UP_BATCHES:
        for sample in task.samples():
            requests.append((DEFAULT, batch_of([sample] * batch)))
    return requests


def batch_of(rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Rows of texts by name -> arrays of bytes by name."""

    def encoded(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else [encoded(one) for one in value]

    return {name: np.array([encoded(row[name]) for row in rows], object) for name in rows[0]}
