"""What all tests of data generation may ask for."""

import functools

import pytest
from generation import LETTERS

from bert_tf.tokenization import wordpiece

tokenizer_of = functools.cache(wordpiece.FullTokenizer)


@pytest.fixture(autouse=True)
def _equal_tokenizers_are_one(monkeypatch):
    """In this process: TensorFlow traces each for 0.3 s."""

    def made_once(*args, pieces, **options) -> wordpiece.FullTokenizer:
        return tokenizer_of(*args, pieces=tuple(pieces), **options)

    monkeypatch.setattr(wordpiece, "FullTokenizer", made_once)


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory) -> str:
    """Single letters, so that every word has many pieces, and some marks."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *",.'"]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join([*pieces, *(f"##{letter}" for letter in LETTERS)]) + "\n")
    return str(path)
