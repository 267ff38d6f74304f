"""What all tests of data generation may ask for."""

import pytest
from generation import LETTERS


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory) -> str:
    """Single letters, so that every word has many pieces, and some marks."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *",.'"]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join([*pieces, *(f"##{letter}" for letter in LETTERS)]) + "\n")
    return str(path)
