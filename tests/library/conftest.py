"""What the tests of the library share: an encoder in a folder, and quick steps."""

import dataclasses

import keras
import model_files
import pytest
import small

CONFIG = dataclasses.replace(small.CONFIG, num_hidden_layers=1)  # each takes seconds to trace


@pytest.fixture
def _quickly(monkeypatch):
    """A graph of few steps takes longer to trace than to run."""
    owner = next(kind for kind in keras.Model.__mro__ if "compile" in vars(kind))
    whole = owner.compile

    def eagerly(self, *args, **options):
        return whole(self, *args, **{"run_eagerly": True, **options})

    monkeypatch.setattr(owner, "compile", eagerly)  # Keras asks who overrides it


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> str:
    """A folder as the original's releases are, without a head."""
    return model_files.write_encoder(tmp_path_factory.mktemp("encoder"), CONFIG)
