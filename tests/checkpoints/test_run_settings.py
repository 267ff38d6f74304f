"""What a run has recorded: what a finished one is recognised by, its settings and its data."""

import json

import model_files
import numpy as np
import pytest
import walking

from bert_tf import cluster
from bert_tf.checkpoints import run_settings
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata
from bert_tf.checkpoints.run_settings import check_finished_run, warn_of_changed_settings
from bert_tf.checkpoints.tf1 import RUN_SETTINGS, CheckpointFolder
from bert_tf.data.shards import read_description
from bert_tf.data.sidecars import DataDescription
from bert_tf.errors import InputError


def test_the_end_of_another_run_is_not_taken_for_this_one(tmp_path, monkeypatch):
    folder = CheckpointFolder(tmp_path)
    notes = {"seed": 3, "freeze": [], "init_checkpoint": "a", "dev_data": "d", "num_replicas": 1}
    prefix = folder.save(6, {RUN_SETTINGS: np.array(json.dumps(notes))})
    same = notes | {"freeze": (), "dev_data": None, "num_replicas": 2, "precision": "float32"}
    for path in ("a", None, prefix):
        check_finished_run(prefix, same | {"init_checkpoint": path})
    check_finished_run(prefix, same | {"seed": 4}, besides=["seed"])
    others = {"seed": 4, "init_checkpoint": f"{tmp_path}_other/x", "dev_data": "e", "freeze": "x"}
    for name, other in others.items():
        says = rf"a finished run, with other settings: {name} {other} \(it had "
        with pytest.raises(InputError, match=says):
            check_finished_run(prefix, same | {name: other})
    monkeypatch.setattr(cluster, "any_process", lambda flag: True)
    with pytest.raises(InputError, match="other settings: those of another process"):
        check_finished_run(prefix, same)


def test_warn_of_changed_settings(caplog):
    with caplog.at_level("WARNING", logger="absl"):
        warn_of_changed_settings({"seed": 3, "old": 1}, {"seed": 3, "new": 2})
        assert not caplog.records
        warn_of_changed_settings({"seed": 3, "rate": 0.1}, {"seed": 4, "rate": 0.1})
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("Resuming with seed 4; the run was started with 3.")


# ---------------------------------------------------------------------------- pieces never split


@pytest.fixture
def data(tmp_path) -> DataDescription:
    """The description of data that keep w3 and w5 whole."""
    records = walking.write_records(tmp_path / "a", 2, seed=2)
    vocabulary = walking.write_vocabulary(tmp_path / "vocab.txt")
    walking.describe(records, vocabulary, never_split=["w3", "w5"])
    return read_description(str(records))


def test_the_pieces_of_data(data, tmp_path):
    """The same in all of it, and in a run that is resumed."""
    folder, of_data = str(tmp_path), run_settings.never_split_of_data
    assert of_data(data, None, folder) == ("w3", "w5")
    assert of_data(None, "b", folder) == ()
    with pytest.raises(InputError, match=r"info_b\.json, beside .*--never_split=w3,w5"):
        of_data(data, "b", folder)
    facts = {"do_lower_case": True}
    (tmp_path / METADATA_FILE).write_text(json.dumps(facts | {"never_split": ["w5", "w3"]}))
    assert of_data(data, None, folder) == ("w3", "w5")
    with pytest.raises(InputError, match=r"without --never_split, .* never_split w5, w3"):
        of_data(None, "b", folder)
    (tmp_path / METADATA_FILE).write_text(json.dumps(facts))
    assert of_data(None, "b", folder) == ()
    with pytest.raises(InputError, match=r"--never_split=w3,w5, .* never_split none"):
        of_data(data, None, folder)


def test_pieces_of_the_first_weights():
    """None may be lost; new ones are learned."""
    tensors = {"bert/x": np.ones(1, np.float32)}
    weights = model_files.weights_of(tensors, metadata=ModelMetadata(never_split=("w3",)))
    run_settings.refuse_lost_pieces(weights, ("w5", "w3"))
    run_settings.refuse_lost_pieces(model_files.weights_of(tensors), ("w5",))
    with pytest.raises(InputError, match="with --never_split=w5, for /memory") as caught:
        run_settings.refuse_lost_pieces(weights, ("w5",))
    assert caught.value.remedy == "make the data again with --never_split=w3,w5"
