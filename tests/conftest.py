"""Settings of TensorFlow and Hypothesis for all tests, and fixtures for reference data."""

import functools
import importlib.metadata
import os
import pathlib
from collections.abc import Callable

import hypothesis
import pytest

import bert_tf
from bert_tf import runtime


def pytest_configure() -> None:
    """Makes the settings of commands, and two devices for the tests of tf.distribute.

    Operations without a device run on the first one. GPUs are hidden unless CUDA_VISIBLE_DEVICES is
    set, because their float32 results differ from those of CPUs. XLA does not optimize, which makes
    small models no slower; tests/cli/test_check.py lets it optimize.
    """
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    quickly = "--xla_backend_optimization_level=0"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quickly}".strip()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # as in commands; JAX sets it to 1
    runtime.prepare_process()
    import tensorflow as tf  # after the settings: it reads them when it loads

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves whole walks to the front, so that processes that share the tests end together."""
    items.sort(key=lambda item: "walk" not in item.keywords)


NO_XLA = "could not find registered transfer manager for platform Host"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Skips tests that need XLA under TensorFlow's build for TPUs, which has none for CPUs."""
    report = yield
    if report.failed and call.excinfo and NO_XLA in str(call.excinfo.value):
        try:
            importlib.metadata.version("tensorflow-tpu")
        except importlib.metadata.PackageNotFoundError:
            return report
        report.outcome = "skipped"
        report.longrepr = (str(item.path), None, "Skipped: this TensorFlow has no XLA for CPUs")
    return report


@pytest.fixture(autouse=True)
def _warnings(caplog):
    """Lets `caplog` have warnings, whatever level a command has set before."""
    caplog.set_level("WARNING", logger="absl")


SHIPPED = pathlib.Path(__file__).parent / "goldens"


def _folder(variable: str) -> pathlib.Path:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set: this test compares with reference data kept there")
    return pathlib.Path(os.environ[variable])


@pytest.fixture(scope="session")
def two_replicas():
    """A MirroredStrategy of two CPU devices, the only one in the process.

    A second MirroredStrategy would number its collective operations from the start again, and
    TensorFlow would take them for those of the first ("Shape mismatch in the collective instance").
    """
    from bert_tf.training import distribution  # loads TensorFlow

    return distribution.make_strategy("mirrored")


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Callable[[str], pathlib.Path]:
    """A function: a kind of `served_models` -> its folder, with model/ and export/1.

    Each folder is made once for all processes that share the tests, and must not be changed.
    """
    import once
    import served_models  # starts TensorFlow, after devices are configured

    def make(kind: str, folder: pathlib.Path) -> pathlib.Path:
        served_models.export(kind, folder)
        return folder

    @functools.cache
    def folder_of(kind: str) -> pathlib.Path:
        return once.make_once(tmp_path_factory, f"export_{kind}", functools.partial(make, kind))

    return folder_of


@pytest.fixture(scope="session")
def data_dir() -> pathlib.Path:
    """Real data, vocabularies and weights (environment variable BERT_TF_DATA)."""
    return _folder("BERT_TF_DATA")


@pytest.fixture(scope="session", params=["shipped", "BERT_TF_GOLDENS"])
def goldens_dir(request) -> pathlib.Path:
    """Values computed by the original: those of tests/goldens, and a folder with more of them."""
    return SHIPPED if request.param == "shipped" else _folder(request.param)


@pytest.fixture(scope="session")
def tiny(goldens_dir) -> pathlib.Path:
    """The original's small model: its checkpoint, losses and updates."""
    if goldens_dir == SHIPPED:
        return pathlib.Path(bert_tf.__file__).parent / "goldens"
    return goldens_dir / "pretraining_tiny"


@pytest.fixture(scope="session")
def vocab_dir(goldens_dir) -> pathlib.Path:
    """The vocabularies of the goldens: uncased*.txt, cased*.txt ..."""
    folder = goldens_dir if goldens_dir == SHIPPED else _folder("BERT_TF_DATA")
    return folder / "vocab"


@pytest.fixture(scope="session")
def uncased(vocab_dir) -> bert_tf.FullTokenizer:
    """The tokenizer of the lower-cased goldens."""
    (path,) = vocab_dir.glob("uncased*.txt")
    return bert_tf.FullTokenizer(path)


# No deadline: a busy machine makes any example slow. --durations shows slow tests.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")
