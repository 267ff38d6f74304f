"""bert_tf.data.tfds: one split of a dataset that is built here."""

import sys
import warnings

import pytest
import tensorflow as tf

from bert_tf.data.tfds import read_split
from bert_tf.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two rows to train on, the first of them for validation too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tfds = pytest.importorskip("tensorflow_datasets")
        folder = str(tmp_path_factory.mktemp("tfds"))
        label, topics = ["bad", "good"], ["food", "place"]
        features = {
            "review": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=label),
            "topics": tfds.features.Sequence(tfds.features.ClassLabel(names=topics)),
        }
        rows = {
            "review": ["Süß.", "Dear."],
            "label": tf.constant([1, 0], tf.int64),
            "topics": tf.ragged.constant([[1, 0], []], tf.int64),
        }
        first = {name: column[:1] for name, column in rows.items()}
        parts = {"train": rows, "validation": first}
        data = {part: tf.data.Dataset.from_tensor_slices(parts[part]) for part in parts}
        tfds.dataset_builders.store_as_tfds_dataset(
            name="reviews", version="3.0.0", features=tfds.features.FeaturesDict(features),
            split_datasets=data, data_dir=folder, disable_shuffling=True,
        )  # fmt: skip
    return folder


def test_rows_and_names_of_labels(folder):
    found = read_split("reviews", "train", purpose="to train on", data_dir=folder)
    rows = list(found.rows)
    assert [row["review"].decode() for row in rows] == ["Süß.", "Dear."]
    assert [int(row["label"]) for row in rows] == [1, 0]
    assert [row["topics"].tolist() for row in rows] == [[1, 0], []]
    assert found.label_names("label") == ["bad", "good"]
    assert found.label_names("topics") == ["food", "place"]
    assert found.label_names("review") is found.label_names("no such") is None


def test_the_first_split_that_there_is(folder):
    for split, name in (("dev|validation", "validation"), ("train|validation", "train")):
        found = read_split("reviews", split, purpose="to predict", data_dir=folder)
        assert found.source == f"reviews, {name}"
    with pytest.raises(InputError, match=r"(?s)train, validation.*dev or test, to predict"):
        read_split("reviews", "dev|test", purpose="to predict", data_dir=folder)


def test_the_library_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(InputError, match="tensorflow-datasets is not installed"):
        read_split("glue/mrpc", "dev", purpose="to predict")
