"""fill_mask on a model whose weights are set by hand, so that every probability is known."""

import math

import keras
import numpy as np
import pytest

from bert_tf import BertConfig, pretraining_model
from bert_tf.checkpoints.tf1 import checkpoint_name
from bert_tf.errors import InputError
from bert_tf.serving.fill_mask import Guess, fill_mask
from bert_tf.tokenization.wordpiece import FullTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bread", "water", "##s", ",", "wine"]
# How much a piece is preferred at even places; at odd ones the other way round.
PREFERENCES = [0, 0, 0, 0, 0, math.log(16), math.log(4), math.log(1 / 4), 0, math.log(1 / 16)]
SUM = 6 + 16 + 4 + 1 / 4 + 1 / 16


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> FullTokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n")
    return FullTokenizer(path)


@pytest.fixture(scope="module")
def model() -> keras.Model:
    """Of two columns: every normalization makes them (1, -1) or (-1, 1), by their order.

    The position embeddings decide which: (1, -1) at even places, (-1, 1) at odd ones. All kernels
    are 0 but the last, which is the identity, so the head sees that vector s, and the logit of a
    piece whose embedding is (w, -w) is s . (w, -w) = 2 w at even places, -2 w at odd ones.
    """
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=2,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=3,
        max_position_embeddings=11,
        type_vocab_size=2,
    )
    model = pretraining_model(config)
    weights = {checkpoint_name(variable): variable for variable in model.trainable_variables}
    for name, variable in weights.items():
        if not name.endswith("gamma"):
            variable.assign(np.zeros(variable.shape))
    table = np.outer(np.divide(PREFERENCES, 2), [1, -1])
    weights["bert/embeddings/word_embeddings"].assign(table)
    places = np.outer([100 * (-1) ** place for place in range(11)], [1, -1])
    weights["bert/embeddings/position_embeddings"].assign(places)
    weights["cls/predictions/transform/dense/kernel"].assign(np.eye(2))
    return model


def fill(model, tokenizer, text, **kwargs) -> list[list[Guess]]:
    return fill_mask(model, tokenizer, text, **{"max_seq_length": 11} | kwargs)


def assert_guesses(guesses, *expected: tuple[str, float]) -> None:
    assert [guess.piece for guess in guesses] == [piece for piece, _ in expected]
    shares = [share for _, share in expected]
    assert [guess.probability for guess in guesses] == pytest.approx(shares, rel=1e-4)


def test_two_masks_each_by_its_place(model, tokenizer):
    """[CLS] [MASK] , water [MASK] wine [SEP]: the first is at 1, odd, the second at 4, even."""
    odd, even = fill(model, tokenizer, "[MASK], water [MASK] wine", top_k=2)
    assert_guesses(odd, ("wine", 16 / SUM), ("##s", 4 / SUM))
    assert_guesses(even, ("bread", 16 / SUM), ("water", 4 / SUM))


def test_ties_go_to_the_lower_id_and_all_together_are_one(model, tokenizer):
    ((*guesses,),) = fill(model, tokenizer, "bread [MASK]", top_k=99)
    assert [guess.piece for guess in guesses] == [
        *("bread", "water", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", "##s", "wine")
    ]
    assert sum(guess.probability for guess in guesses) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("bread[MASK]wine", 2),  # needs no spaces
        ("breads [MASK]", 3),  # bread ##s
        (
            "Bread [mask] WATER [MASK]",
            6,
        ),  # of its own case only: [mask] is [ [UNK] ] to a tokenizer
        ("  [MASK]  ", 1),
    ],
)
def test_places(model, tokenizer, text, place):
    ((guess,),) = fill(model, tokenizer, text, top_k=1)
    assert guess.piece == ("bread" if place % 2 == 0 else "wine")


def test_a_text_as_long_as_it_may_be(model, tokenizer):
    """11 places with [CLS] and [SEP]."""
    assert len(fill(model, tokenizer, "[MASK]" + " water" * 8)) == 1
    with pytest.raises(InputError) as caught:
        fill(model, tokenizer, "[MASK]" + " water" * 9)
    assert caught.value.received.endswith("of 12 pieces with 1 [MASK]")
    assert caught.value.expected == "at least one [MASK] and at most 11 pieces"
    with pytest.raises(InputError, match="at most 4 pieces"):
        fill(model, tokenizer, "[MASK], water", max_seq_length=4)


@pytest.mark.parametrize("text", ["", "bread and water", "[mask]", "MASK", "[ MASK ]"])
def test_no_mask(model, tokenizer, text):
    with pytest.raises(InputError, match=r"with 0 \[MASK\]"):
        fill(model, tokenizer, text)


def test_a_vocabulary_without_mask(model, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(p for p in PIECES if p != "[MASK]") + "\n")
    with pytest.raises(InputError, match=r"without \[MASK\]"):
        fill(model, FullTokenizer(tmp_path / "vocab.txt"), "[MASK]")


def test_ids_beyond_the_vocabulary_have_a_name(model, tmp_path):
    """A model may have more rows than its vocabulary has pieces."""
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES[:-1]) + "\n")
    ((guess,),) = fill(model, FullTokenizer(tmp_path / "vocab.txt"), "[MASK]", top_k=1)
    assert guess.piece == "#9"
