"""What every test may need: where the reference data is, and a quiet TensorFlow."""

import os
import pathlib

import hypothesis
import pytest

import bert_tf
from bert_tf.training import distribution


def pytest_configure() -> None:
    """Two devices for the tests of tf.distribute, before the first operation.

    What asks for no device runs on the first, as if it were the only one.
    """
    import tensorflow as tf  # after bert_tf, which makes settings that it reads when it loads

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole walks first, as they are the longest: processes that share the tests end together."""
    items.sort(key=lambda item: "walk" not in item.keywords)


def _folder(variable: str) -> pathlib.Path:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set: this test compares with reference data kept there")
    return pathlib.Path(os.environ[variable])


@pytest.fixture(scope="session")
def two_replicas():
    """Two CPU devices, mirrored. The only one of its kind in the process.

    A second MirroredStrategy would number its collective operations from the start again, and
    TensorFlow would take them for those of the first ("Shape mismatch in the collective instance").
    """
    return distribution.make_strategy("mirrored")


@pytest.fixture(scope="session")
def data_dir() -> pathlib.Path:
    """Real data, vocabularies and weights (environment variable BERT_TF_DATA)."""
    return _folder("BERT_TF_DATA")


@pytest.fixture(scope="session")
def goldens_dir() -> pathlib.Path:
    """Values computed by the original release (environment variable BERT_TF_GOLDENS)."""
    return _folder("BERT_TF_GOLDENS")


@pytest.fixture(scope="session")
def uncased(data_dir) -> bert_tf.FullTokenizer:
    """The tokenizer of the released uncased models."""
    return bert_tf.FullTokenizer(data_dir / "vocab" / "uncased_en_30522.txt")


# A busy machine makes any example slow; what takes long shows in --durations.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")
