"""Data and models that keep other pieces whole."""

import json

import model_files
import numpy as np
import pytest
import walking

from bert_tf.checkpoints import kept_pieces
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata
from bert_tf.data.records import DataDescription
from bert_tf.data.shards import read_description
from bert_tf.errors import InputError


@pytest.fixture
def data(tmp_path) -> DataDescription:
    """The description of data that keep w3 and w5 whole."""
    records = walking.write_records(tmp_path / "a", 2, seed=2)
    vocabulary = walking.write_vocabulary(tmp_path / "vocab.txt")
    walking.describe(records, vocabulary, never_split=["w3", "w5"])
    return read_description(str(records))


def test_the_pieces_of_data(data, tmp_path):
    assert kept_pieces.of_data(data, None, str(tmp_path)) == ("w3", "w5")
    assert kept_pieces.of_data(None, "b", str(tmp_path)) == ()
    with pytest.raises(InputError, match=r"info_b\.json, beside .*--never_split=w3,w5"):
        kept_pieces.of_data(data, "b", str(tmp_path))


def test_the_pieces_of_a_run_that_is_resumed(data, tmp_path):
    facts, folder = {"do_lower_case": True}, str(tmp_path)
    (tmp_path / METADATA_FILE).write_text(json.dumps(facts | {"never_split": ["w5", "w3"]}))
    assert kept_pieces.of_data(data, None, folder) == ("w3", "w5")
    with pytest.raises(InputError, match=r"without --never_split, .* never_split w5, w3"):
        kept_pieces.of_data(None, "b", folder)
    (tmp_path / METADATA_FILE).write_text(json.dumps(facts))
    assert kept_pieces.of_data(None, "b", folder) == ()
    with pytest.raises(InputError, match=r"--never_split=w3,w5, .* never_split none"):
        kept_pieces.of_data(data, None, folder)


def test_pieces_of_the_first_weights():
    """None may be lost; new ones are learned."""
    tensors = {"bert/x": np.ones(1, np.float32)}
    weights = model_files.weights_of(tensors, metadata=ModelMetadata(never_split=("w3",)))
    kept_pieces.refuse_lost(weights, ("w5", "w3"))
    kept_pieces.refuse_lost(model_files.weights_of(tensors), ("w5",))
    with pytest.raises(InputError, match="with --never_split=w5, for /memory") as caught:
        kept_pieces.refuse_lost(weights, ("w5",))
    assert caught.value.remedy == "make the data again with --never_split=w3,w5"
