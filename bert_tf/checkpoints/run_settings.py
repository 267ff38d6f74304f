"""The settings of a run, recorded in its checkpoints, beside those of a run that is asked for."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from absl import logging

from bert_tf import cluster
from bert_tf.checkpoints import tf1
from bert_tf.errors import InputError

_BEFORE = {"record_order": "as one"}  # in version 0.1.0, which did not record it


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
    names = (saved.keys() & given.keys()) - {tf1.RUN_ENDS, *besides}
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
        raise InputError(
            f"{prefix}, a finished run, with other settings: "
            + (listed or "those of another process"),
            "the settings and data of that run: it would not be trained again",
            "choose another --output_dir, remove the folder to train again, or leave out "
            "--do_train to use its model as it is",
        )


def warn_of_changed_settings(saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Logs the settings in which a resumed run differs from its beginning."""
    saved = _BEFORE | dict(saved)
    for name in changed_settings(saved, given):
        logging.warning(
            "Resuming with %s %s; the run was started with %s. Training continues from the last "
            "step, but the result differs from a run with one setting throughout.",
            *(name, given[name], saved[name]),
        )
