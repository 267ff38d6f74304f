"""What several files of this folder use."""

import pathlib

import pytest

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture
def write(tmp_path):
    """Writes a file; returns its path."""

    def write_file(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write_file


@pytest.fixture
def tokenizer(write):
    """Makes a tokenizer whose vocabulary has these pieces behind the special ones."""
    from bert_tf import FullTokenizer  # starts TensorFlow, before devices are configured

    def make(*pieces: str, do_lower_case: bool = True) -> FullTokenizer:
        text = "".join(f"{piece}\n" for piece in (*SPECIAL, *pieces))
        return FullTokenizer(pathlib.Path(write("vocab.txt", text)), do_lower_case)

    return make
