"""What several of these tests begin with."""

import model_files
import pytest


@pytest.fixture
def tensors():
    """Random weights with both heads of pre-training, by the original's names."""
    return model_files.tensors_of()
