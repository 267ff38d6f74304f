"""What several files of this folder use."""

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes text or bytes to a file and gives its path."""

    def write(content, name="train.tsv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write
