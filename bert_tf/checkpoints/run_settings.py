"""What a run has recorded, beside what is asked for: its settings, and pieces that are never split.

companions.py compares what belongs to weights.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf import cluster
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata, Weights
from bert_tf.data.sidecars import DataDescription, description_path
from bert_tf.errors import InputError


def is_finished(prefix: str) -> bool:
    """Whether a checkpoint is the last of its run, which has then done all its steps."""
    return tf1.CheckpointReader(prefix).run_settings().get("num_train_steps") == tf1.step_of(prefix)


def changed_settings(
    saved: Mapping[str, Any], given: Mapping[str, Any], *, besides: Iterable[str] = ()
) -> list[str]:
    """The names of settings that both have, with different values.

    On another host than the chief's the same initial weights may have another path.

    Args:
      saved: as `tf1.CheckpointReader.run_settings` gives them.
      given: those of a run that is asked for.
      besides: names that are ignored.
    """
    names = (saved.keys() & given.keys()) - {*besides}
    if not cluster.is_chief():
        names -= {"init_checkpoint"}
    return sorted(name for name in names if saved[name] != json.loads(json.dumps(given[name])))


def check_finished_run(
    prefix: str, given: Mapping[str, Any], *, besides: Iterable[str] = ()
) -> None:
    """Raises `InputError`, in all processes, if a finished run had other settings than these.

    The number of devices is ignored, and so are dev data that did not select a model, and initial
    weights that are not given or are the run's own.

    Args:
      prefix: of the run's last checkpoint.
      given: the settings of the run that is asked for.
      besides: names of settings that may differ.
    """
    saved = tf1.CheckpointReader(prefix).run_settings()
    ignored = {"num_replicas", *besides}
    if None in (saved.get("dev_data"), given.get("dev_data")):
        ignored.add("dev_data")
    folder = f"{os.path.dirname(prefix)}/"
    initial = [settings.get("init_checkpoint") or folder for settings in (saved, given)]
    if any(f"{path}/".startswith(folder) for path in initial):
        ignored.add("init_checkpoint")
    other = changed_settings(saved, given, besides=ignored)
    if cluster.any_process(bool(other)):
        listed = ", ".join(f"{name} {given[name]} (it had {saved[name]})" for name in other)
        listed = listed or "those of another process"
        raise InputError(
            f"{prefix}, a finished run, with other settings: {listed}",
            "the settings and data of that run, which is not trained again",
            "choose another --output_dir, remove the folder, or leave out --do_train",
        )


def warn_of_changed_settings(saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Logs the settings in which a resumed run differs from its beginning."""
    for name in changed_settings(saved, given):
        logging.warning(
            "Resuming with %s %s; the run was started with %s. Training continues from the last "
            "step, but the result differs from a run with one setting throughout.",
            *(name, given[name], saved[name]),
        )


# ---------------------------------------------------------------------------- data of pre-training


def never_split_of_data(
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
        without = f"{undescribed}, without {description_path(undescribed)}"
        expected = "files that were all made with the same --never_split"
        remedy = "copy that file too, or leave out the data without it"
        raise InputError(f"{without}, beside data made {_made(kept)}", expected, remedy)
    path = os.path.join(output_dir, METADATA_FILE)
    recorded = ModelMetadata.from_json_file(path)
    before = recorded.never_split or ()
    if recorded != ModelMetadata() and {*before} != {*kept}:
        begun = f"{path} with never_split {', '.join(before) or 'none'}"
        expected, remedy = "the data that the run began with", "use another --output_dir"
        raise InputError(f"data made {_made(kept)}, and {begun}", expected, remedy)
    return kept


def refuse_lost_pieces(weights: Weights, kept: Sequence[str]) -> None:
    """Raises `InputError` if a piece that the model never splits is not among those of its data.

    Data may keep more pieces whole than the model did before: those are learned.
    """
    own = weights.metadata.never_split or ()
    if {*own} - {*kept}:
        received = f"data made {_made(kept)}, for {weights.path} with never_split {', '.join(own)}"
        remedy = f"make the data again {_made(sorted({*own, *kept}))}"
        raise InputError(received, "data in which the model's pieces are whole", remedy)


def _made(pieces: Sequence[str]) -> str:
    return f"with --never_split={','.join(pieces)}" if pieces else "without --never_split"
