"""What several files of this folder use, made once."""

import pytest


@pytest.fixture(scope="session")
def exports(tmp_path_factory) -> dict[str, str]:
    """The folder of the export of each kind."""
    import served_models  # not above: it starts TensorFlow, before devices are configured

    return {
        kind: served_models.export(kind, tmp_path_factory.mktemp(kind))
        for kind in served_models.KINDS
    }
