"""What several files of this folder use, made once.

The helpers are imported where they are used: they start TensorFlow, before devices are configured.
"""

import shutil

import once
import pytest


@pytest.fixture(scope="session")
def exports(exported) -> dict[str, str]:
    """The folder of the export of each kind."""
    import served_models

    return {kind: str(exported(kind) / "export/1") for kind in served_models.KINDS}


@pytest.fixture(scope="session")
def references(exports):
    """The model of each kind on the Python side."""
    import exported_answers

    return exported_answers.References(exports)


@pytest.fixture(scope="session")
def results(exports, tmp_path_factory) -> dict[str, list]:
    """What the C API gives to all calls, in one process: it takes seconds to start."""
    import exported_answers

    def make(folder):
        return exported_answers.run_calls(exports, folder)

    return once.make_once(tmp_path_factory, "results", make)


@pytest.fixture(scope="session")
def answers(exports, results) -> dict[str, list]:
    """For each kind the answers to texts, to no texts, to features, and to records."""
    found = results["answers"]
    assert [result for result in found if isinstance(result, str)] == []
    return {kind: found[4 * i : 4 * i + 4] for i, kind in enumerate(exports)}


@pytest.fixture(scope="session")
def pairs_folder(exported, tmp_path_factory):
    """A model of pairs, and its export as the versions 1 and 10."""
    folder = shutil.copytree(exported("pairs"), tmp_path_factory.mktemp("pairs") / "pairs")
    shutil.copytree(folder / "export/1", folder / "export/10")
    for name in ("11", "incomplete-12"):  # neither is whole
        (folder / "export" / name).mkdir()
    return folder


@pytest.fixture(scope="session")
def pairs_export(pairs_folder):
    """Answers by the greatest version of this export."""
    from bert_tf.serving.predictor import Predictor

    return Predictor(pairs_folder / "export", batch_size=4)
