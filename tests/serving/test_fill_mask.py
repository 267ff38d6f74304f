"""bert-tf fill-mask on a model whose weights are set by hand: every probability is known."""

import keras
import masked_by_place
import pytest
import reference
from masked_by_place import PIECES, SUM
from walking import in_process

from bert_tf.checkpoints.keras_files import weights_of
from bert_tf.checkpoints.tf1 import write_checkpoint
from bert_tf.errors import InputError
from bert_tf.serving.loading import of_weights
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.predictor import Predictor
from bert_tf.tokenization.wordpiece import FullTokenizer


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return masked_by_place.make_model()


def served(model, tokenizer: FullTokenizer, **options) -> Predictor:
    config = model.get_layer("embeddings").config
    options = ServingOptions(task="fill_mask", **options)
    return Predictor(of_weights(weights_of(model), config, tokenizer, options))


@pytest.fixture(scope="module")
def fill(model):
    """Gives all guesses for a text."""
    return served(model, FullTokenizer("v", pieces=PIECES), top_k=len(PIECES)).predict


def test_guesses_in_order(fill):
    """[CLS] [MASK] , water [MASK] wine [SEP]: the first is at 1, odd, the second at 4, even."""
    (found,) = fill(["[MASK], water [MASK] wine"])
    assert [row[:2] for row in found["pieces"]] == [["wine", "##s"], ["bread", "water"]]
    for row in found["probabilities"]:
        assert row[:2] == pytest.approx([16 / SUM, 4 / SUM], rel=1e-4)
        assert sum(row) == pytest.approx(1)
    ties = ["bread", "water", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", "##s", "wine"]
    assert found["pieces"][1] == ties  # to the lower id


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("bread[MASK]wine", [2]),  # needs no spaces
        ("breads [MASK]", [3]),  # bread ##s
        ("Bread [mask] WATER [MASK]", [6]),  # of its own case only: [ [UNK] ] to a tokenizer
        ("  [MASK]  ", [1]),
        ("[MASK]" + " water" * 9, [1]),  # longer than the model
        ("water " * 9 + "[MASK]", []),
        ("[ MASK ]", []),
    ],
)
def test_places(fill, text, places):
    (found,) = fill([text])
    wanted = ["bread" if place % 2 == 0 else "wine" for place in places]
    assert [row[0] for row in found["pieces"]] == wanted


def test_vocabularies(model):
    """Without [MASK]; and shorter than the model's table, whose other rows have a name."""
    with pytest.raises(InputError, match=r"without \[MASK\]"):
        served(model, FullTokenizer("v", pieces=[p for p in PIECES if p != "[MASK]"]))
    (found,) = served(model, FullTokenizer("v", pieces=PIECES[:-1])).predict(["[MASK]"])
    assert found["pieces"][0][0] == "#9"


def test_the_command(model, tmp_path, capsys):
    masked_by_place.make_tokenizer(tmp_path)
    config = model.get_layer("embeddings").config
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    tensors, path = reference.take_weights(model), str(tmp_path / "bert_model.ckpt")
    write_checkpoint(path, tensors, temporary=str(tmp_path / "new"))
    with in_process("fill-mask") as main:
        main("bread [MASK]", init_checkpoint=tmp_path, top_k=2)
        assert capsys.readouterr().out == "bread [MASK]\n  [MASK] 1: bread 60.8%  water 15.2%\n"
        for text in ("water " * 9 + "[MASK]", "bread"):
            with pytest.raises(InputError, match=r"\[MASK\] 0 fit"):
                main(text, init_checkpoint=tmp_path)
