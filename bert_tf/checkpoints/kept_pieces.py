"""Pieces that are never split: whether pre-training data have the same ones as a model."""

import os
from collections.abc import Sequence

from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata, Weights
from bert_tf.data.records import DataDescription, description_path
from bert_tf.errors import InputError


def of_data(
    data: DataDescription | None, undescribed: str | None, output_dir: str
) -> tuple[str, ...]:
    """The pieces that are whole in the data; without a description none, as in the original's.

    Args:
      data: describes the files that have a description.
      undescribed: a file that has none.
      output_dir: of the run, which may be resumed.

    Raises:
      InputError: some files have no description, or the run was begun with other pieces.
    """
    kept = data.never_split if data else ()
    if kept and undescribed:
        raise InputError(
            f"{undescribed}, without {description_path(undescribed)}, beside data made "
            + _made(kept),
            "files that were all made with the same --never_split",
            "copy that file too, or leave out the data without it",
        )
    path = os.path.join(output_dir, METADATA_FILE)
    recorded = ModelMetadata.from_json_file(path)
    before = recorded.never_split or ()
    if recorded != ModelMetadata() and {*before} != {*kept}:
        raise InputError(
            f"data made {_made(kept)}, and {path} with never_split {_listed(before)}",
            "the data that the run was begun with",
            "for other data use another --output_dir",
        )
    return kept


def refuse_lost(weights: Weights, kept: Sequence[str]) -> None:
    """Raises `InputError` if a piece that the model never splits is not among those of its data.

    Data may keep more pieces whole than the model did before: those are learned.
    """
    own = weights.metadata.never_split or ()
    if {*own} - {*kept}:
        raise InputError(
            f"data made {_made(kept)}, for {weights.path} with never_split {_listed(own)}",
            "data in which the model's pieces are whole",
            f"make the data again {_made(sorted({*own, *kept}))}",
        )


def _made(pieces: Sequence[str]) -> str:
    return f"with --never_split={','.join(pieces)}" if pieces else "without --never_split"


def _listed(pieces: Sequence[str]) -> str:
    return ", ".join(pieces) or "none"
