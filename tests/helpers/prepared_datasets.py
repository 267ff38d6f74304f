"""Datasets of tensorflow-datasets, prepared as the library would after a download."""

import pytest
import tensorflow as tf

# Those that the library has, or it would look for its own datasets in the network.
VERSIONS = {"glue": "2.0.0", "xnli": "1.1.0", "reviews": "3.0.0", "conll2003": "1.0.0"}


def store(folder: str, name: str, config: str | None, features: dict, parts: dict) -> None:
    """Prepares a dataset as the library would after a download; parts are columns by name."""
    tfds = pytest.importorskip("tensorflow_datasets")
    data = {part: tf.data.Dataset.from_tensor_slices(columns) for part, columns in parts.items()}
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name, config=config, version=VERSIONS[name],
        features=tfds.features.FeaturesDict(features), split_datasets=data, data_dir=folder,
        disable_shuffling=True,
    )  # fmt: skip


def numbers(*values: int) -> tf.Tensor:
    return tf.constant(values, tf.int64)
