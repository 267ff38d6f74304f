"""What several files of this folder use, made once."""

import pytest


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Gives the checkpoint of a kind."""
    import served_models  # not above: it starts TensorFlow, before devices are configured

    made = {}

    def get(kind: str):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind) / "model"
            made[kind] = served_models.write_folder(kind, folder)
        return made[kind]

    return get
