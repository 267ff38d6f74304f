"""fill_mask on a model whose weights are set by hand, so that every probability is known."""

import keras
import masked_by_place
import pytest
from masked_by_place import PIECES, SUM

from bert_tf.errors import InputError
from bert_tf.serving.fill_mask import Guess, fill_mask
from bert_tf.tokenization.wordpiece import FullTokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> FullTokenizer:
    return masked_by_place.make_tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return masked_by_place.make_model()


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
