"""run.json in the folder of a run: the commands that made the model there."""

import contextlib
import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping

import keras
import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf import files
from bert_tf.checkpoints import tf1
from bert_tf.options import Options, changed
from bert_tf.training.log import with_null

RECORD_FILE = "run.json"  # in the folder of a run
_BEGAN = time.localtime()
_BEGAN_AT = time.monotonic()  # goes on if somebody sets the clock
_TIME = "%Y-%m-%d %H:%M:%S %z"


def write_record(
    output_dir: str,
    options: Options,
    results: Mapping[str, Mapping[str, float]],
    *,
    written: Iterable[str] = (),
) -> None:
    """Adds this command to run.json in --output_dir.

    The record holds options that differ from the defaults, versions, the settings of the training
    (with the checksum and the number of its records), scores (null if undefined), the SHA-256 of
    some files, and the commit of the current folder, if it is a repository.

    Args:
      output_dir: the folder of the run.
      options: the options of the command.
      results: the scores that the command has written, by the name of their file.
      written: the names of files in the folder whose SHA-256 is recorded.
    """
    latest = tf1.CheckpointFolder(output_dir).latest()
    packages = {"bert_tf": bert_tf, "tensorflow": tf, "keras": keras, "numpy": np}
    record = {
        "command": sys.argv,
        "flags": changed(options),
        "versions": {name: module.__version__ for name, module in packages.items()},
        "python": platform.python_version(),
        "commit": _commit(),
        "began": time.strftime(_TIME, _BEGAN),
        "seconds": round(time.monotonic() - _BEGAN_AT, 1),
        "settings": tf1.CheckpointReader(latest).run_settings() if latest else None,
        "scores": {name: with_null(scores) for name, scores in results.items()},
        "sha256": {name: files.digest_of(f"{output_dir}/{name}") for name in written},
    }
    commands = [*_commands(output_dir), record]
    path = f"{output_dir}/{RECORD_FILE}"
    files.write_text(path, json.dumps({"commands": commands}, indent=2) + "\n")


def written_digests(output_dir: str, name: str) -> set[str]:
    """The recorded SHA-256 of a file in --output_dir, of each command that wrote it."""
    digests = (command.get("sha256", {}).get(name) for command in _commands(output_dir))
    return {*filter(None, digests)}


def has_record(output_dir: str) -> bool:
    """Whether a command has written run.json."""
    return bool(_commands(output_dir))


def _commands(output_dir: str) -> list[dict]:
    """The records of earlier commands; none if the file is not ours."""
    path = f"{output_dir}/{RECORD_FILE}"
    record = files.read_json(path) if files.is_file(path) else {}
    return record.get("commands", []) if isinstance(record, dict) else []


def _commit() -> str | None:
    """The commit of the current folder."""
    git = ["git", "rev-parse", "HEAD"]
    with contextlib.suppress(OSError):
        result = subprocess.run(git, capture_output=True, text=True)
        return None if result.returncode else result.stdout.strip()
    return None
