"""Settings of a run: what a finished one is recognised by, what is logged on resuming."""

import json

import numpy as np
import pytest

from bert_tf import cluster
from bert_tf.checkpoints.run_settings import check_finished_run, warn_of_changed_settings
from bert_tf.checkpoints.tf1 import RUN_SETTINGS, CheckpointFolder
from bert_tf.errors import InputError


def test_the_end_of_another_run_is_not_taken_for_this_one(tmp_path, monkeypatch):
    folder = CheckpointFolder(tmp_path)
    notes = {"seed": 3, "freeze": [], "init_checkpoint": "a", "dev_data": "d", "num_replicas": 1}
    prefix = folder.save(6, {RUN_SETTINGS: np.array(json.dumps(notes))})
    same = notes | {"freeze": (), "dev_data": None, "num_replicas": 2, "precision": "float32"}
    for path in ("a", None, prefix):
        check_finished_run(prefix, same | {"init_checkpoint": path})
    with pytest.raises(InputError, match="other settings: init_checkpoint"):
        check_finished_run(prefix, same | {"init_checkpoint": f"{tmp_path}_other/x"})
    monkeypatch.setattr(cluster, "any_process", lambda flag: True)
    with pytest.raises(InputError, match="other settings: those of another process"):
        check_finished_run(prefix, same)
    monkeypatch.undo()
    with pytest.raises(
        InputError, match=r"a finished run, with other settings: seed 4 \(it had 3\)"
    ):
        check_finished_run(prefix, same | {"seed": 4})
    check_finished_run(prefix, same | {"seed": 4}, besides=["seed"])
    for name, other in (("init_checkpoint", "b"), ("dev_data", "e"), ("freeze", ("x",))):
        with pytest.raises(InputError, match=f"other settings: {name} "):
            check_finished_run(prefix, same | {name: other})


def test_warn_of_changed_settings(caplog):
    with caplog.at_level("WARNING", logger="absl"):
        warn_of_changed_settings({"seed": 3, "old": 1}, {"seed": 3, "new": 2})
        assert not caplog.records
        warn_of_changed_settings({"seed": 3, "rate": 0.1}, {"seed": 4, "rate": 0.1})
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("Resuming with seed 4; the run was started with 3.")
