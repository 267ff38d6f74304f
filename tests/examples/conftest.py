"""What the tests of examples/ share."""

import importlib.util
import pathlib

import pytest


@pytest.fixture(scope="package")
def client():
    """examples/client.py as a module."""
    path = pathlib.Path(__file__).parents[2] / "examples" / "client.py"
    spec = importlib.util.spec_from_file_location("client", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
