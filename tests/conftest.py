"""What every test may need: where the reference data is, and a quiet TensorFlow."""

import os
import pathlib

import pytest

import bert_tf  # noqa: F401  (first of all: it sets what TensorFlow reads only at import)


def _folder(variable: str) -> pathlib.Path:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set: this test compares with reference data kept there")
    return pathlib.Path(os.environ[variable])


@pytest.fixture(scope="session")
def data_dir() -> pathlib.Path:
    """Real data, vocabularies and weights (environment variable BERT_TF_DATA)."""
    return _folder("BERT_TF_DATA")


@pytest.fixture(scope="session")
def goldens_dir() -> pathlib.Path:
    """Values computed by the original release (environment variable BERT_TF_GOLDENS)."""
    return _folder("BERT_TF_GOLDENS")
