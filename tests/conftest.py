"""What every test may need: where the reference data is, and a quiet TensorFlow."""

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
    """The settings of commands, and two devices for the tests of tf.distribute.

    What asks for no device runs on the first, as if it were the only one. GPUs, which compare
    neither bytes nor float32 as CPUs do, are hidden unless CUDA_VISIBLE_DEVICES is set. XLA
    compiles quickly: so small models run no slower. tests/cli/test_check.py lets it optimize.
    """
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    quickly = "--xla_backend_optimization_level=0"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quickly}".strip()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # as commands have it; JAX sets it to 1
    runtime.prepare_process()
    import tensorflow as tf  # after the settings, which it reads when it loads

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole walks first, as they are the longest: processes that share the tests end together."""
    items.sort(key=lambda item: "walk" not in item.keywords)


NO_XLA = "could not find registered transfer manager for platform Host"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Skips what needs XLA under TensorFlow's build for TPUs, which has none for CPUs."""
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
    """Of what is logged `caplog` has the warnings, whatever a command has set before."""
    caplog.set_level("WARNING", logger="absl")


SHIPPED = pathlib.Path(__file__).parent / "goldens"


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
    from bert_tf.training import distribution  # loads TensorFlow

    return distribution.make_strategy("mirrored")


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Callable[[str], pathlib.Path]:
    """Gives the folder of a kind of `served_models`, with model/ and export/1: not to be changed.

    Each is made once for all processes that share the tests.
    """
    import once
    import served_models  # starts TensorFlow, after devices are configured

    def make(kind: str, folder: pathlib.Path) -> pathlib.Path:
        served_models.export(kind, folder)
        return folder

    return functools.cache(
        lambda kind: once.make_once(
            tmp_path_factory, f"export_{kind}", functools.partial(make, kind)
        )
    )


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
    """The original's small model: its checkpoint, figures and updates."""
    shipped = goldens_dir == SHIPPED
    own = pathlib.Path(bert_tf.__file__).parent / "goldens"
    return own if shipped else goldens_dir / "pretraining_tiny"


@pytest.fixture(scope="session")
def vocab_dir(goldens_dir) -> pathlib.Path:
    """The vocabularies of the goldens: uncased*.txt, cased*.txt ..."""
    shipped = goldens_dir == SHIPPED
    return (goldens_dir if shipped else _folder("BERT_TF_DATA")) / "vocab"


@pytest.fixture(scope="session")
def uncased(vocab_dir) -> bert_tf.FullTokenizer:
    """The tokenizer of the goldens that are lower-cased."""
    (path,) = vocab_dir.glob("uncased*.txt")
    return bert_tf.FullTokenizer(path)


# A busy machine makes any example slow; what takes long shows in --durations.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")
