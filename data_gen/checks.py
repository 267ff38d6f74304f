"""What the user gave, looked at before anything is made of it."""

import contextlib
import os
from collections.abc import Iterator, Sequence

import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.files import is_remote
from data_gen.documents import Counts
from data_gen.instances import NUM_SPECIAL_TOKENS, Settings

# [CLS] A [SEP] B [SEP], with a token in A and one in B.
MIN_SEQ_LENGTH = NUM_SPECIAL_TOKENS + 2


def check_settings(settings: Settings, *, num_workers: int) -> None:
    """Raises `InputError` for a value that cannot work."""
    counted = ("max_predictions_per_seq", "dupe_factor")
    require_least("max_seq_length", settings.max_seq_length, MIN_SEQ_LENGTH)
    for name in counted:
        require_least(name, getattr(settings, name), 1)
    require_least("num_workers", num_workers, 0)
    for name in ("masked_lm_prob", "short_seq_prob"):
        value = getattr(settings, name)
        lowest_allowed = name == "short_seq_prob"
        if not (0 < value <= 1 or (lowest_allowed and value == 0)):
            raise InputError(
                received=f"--{name}={value}",
                expected=f"a share {'from' if lowest_allowed else 'above'} 0 to 1",
                remedy=f"use another --{name}, such as 0.15",
            )


def require_least(name: str, value: int, least: int) -> None:
    """Raises `InputError` if the flag `name` is below `least`."""
    if value < least:
        raise InputError(
            received=f"--{name}={value}",
            expected=f"at least {least}",
            remedy=f"use a greater --{name}",
        )


def check_paths(input_files: Sequence[str], output_files: Sequence[str]) -> None:
    """Raises `InputError` if an output has no name, is there twice, or would replace an input."""
    inputs = set(map(_real_path, input_files))
    outputs = list(map(_real_path, output_files))
    for path, real_path in zip(output_files, outputs, strict=True):
        if not path or outputs.count(real_path) > 1 or real_path in inputs:
            raise InputError(
                received=f"--output_file={','.join(output_files)}",
                expected="names of files, separated by commas, each once, none of them an input",
                remedy=f"correct {path!r}",
            )


def _real_path(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)


def require_text(counts: Counts) -> None:
    """Raises `InputError` if there is nothing to make instances of."""
    if not counts["documents"]:
        raise InputError(
            received="--input_file: files without a sentence that has a token",
            expected="text: a sentence a line, a blank line between documents",
            remedy="check the files and --input_format",
        )


@contextlib.contextmanager
def input_errors() -> Iterator[None]:
    """Turns what the file systems refuse while data are made into an `InputError`."""
    try:
        yield
    except OSError as error:
        reason, path = error.strerror, error.filename or "the working folder (--temp_dir)"
    except tf.errors.OpError as error:
        reason, path = error.message, "a file"
    else:
        return
    raise InputError(
        received=f"{path}: {reason}",
        expected="files that can be read and written, and space for them",
        remedy="make room or give other paths, and start again",
    )
