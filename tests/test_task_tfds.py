"""Tasks from tensorflow-datasets, with a dataset that is built here."""

import sys
import warnings

import pytest
import tensorflow as tf

from bert_tf.errors import InputError
from bert_tf.tasks import tfds as task_datasets
from bert_tf.tasks.declarations import get_task
from bert_tf.tasks.reading import Example


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A prepared glue/mrpc with two parts of three and one examples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tfds = pytest.importorskip("tensorflow_datasets")
        folder = str(tmp_path_factory.mktemp("tfds"))
        features = tfds.features.FeaturesDict(
            {
                "idx": tf.int32,
                "label": tfds.features.ClassLabel(names=["not_equivalent", "equivalent"]),
                "sentence1": tfds.features.Text(),
                "sentence2": tfds.features.Text(),
            }
        )
        columns = {
            "idx": [7, 3, 5],
            "label": tf.constant([1, 0, 1], tf.int64),
            "sentence1": ["A", "B", "Ü"],
            "sentence2": ["X", "Y", "Z"],
        }
        data = tf.data.Dataset.from_tensor_slices(columns)
        tfds.dataset_builders.store_as_tfds_dataset(
            name="glue",
            config="mrpc",
            version="2.0.0",
            features=features,
            split_datasets={"train": data.take(3), "validation": data.take(1)},
            data_dir=folder,
            disable_shuffling=True,
        )
    return folder


def test_examples(folder):
    task = get_task("mrpc")
    assert task_datasets.read_tfds(task, "glue/mrpc", "train", data_dir=folder) == [
        Example("7", "A", "X", "1"),
        Example("3", "B", "Y", "0"),
        Example("5", "Ü", "Z", "1"),
    ]
    assert len(task_datasets.read_tfds(task, "glue/mrpc", "dev", data_dir=folder)) == 1


def test_a_users_own_columns(folder):
    task = get_task("csv", text_a="sentence2", label="label", id_column="idx")
    found = task_datasets.read_tfds(task, "glue/mrpc", "dev", data_dir=folder)
    assert found == [Example("7", "X", None, "equivalent")]


def test_a_part_that_there_is_not(folder):
    with pytest.raises(InputError, match="with the parts train, validation"):
        task_datasets.read_tfds(get_task("mrpc"), "glue/mrpc", "test", data_dir=folder)


def test_another_task(folder):
    with pytest.raises(InputError, match="a feature 'premise'"):
        task_datasets.read_tfds(get_task("mnli"), "glue/mrpc", "train", data_dir=folder)


def test_no_such_dataset(folder):
    with pytest.raises(InputError, match="the dataset no_such"):
        task_datasets.read_tfds(get_task("mrpc"), "no_such", "dev", data_dir=folder)


def test_the_library_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(InputError, match="tensorflow-datasets is not installed"):
        task_datasets.read_tfds(get_task("mrpc"), "glue/mrpc", "dev")
