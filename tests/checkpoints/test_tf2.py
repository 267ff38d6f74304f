"""TF2 checkpoints laid out as tensorflow/models' BERT, by the names that TensorFlow gives them."""

import dataclasses
import re

import model_files
import numpy as np
import pytest
import small
from tf2_files import NEWER, OLDER, POOLER, encoder_places, pretraining_places, write_tf2

from bert_tf import load_checkpoint, make_model
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError


@pytest.mark.parametrize(
    ("root", "is_numbered", "attention"),
    [
        ("encoder", True, NEWER),
        ("encoder", True, OLDER),
        ("encoder", False, NEWER),
        ("model", False, OLDER),
        ("model/encoder", True, NEWER),
        ("model/encoder_network", False, NEWER),
        ("encoder_network", True, OLDER),
    ],
)
def test_an_encoder(tmp_path, tensors, root, is_numbered, attention):
    places = encoder_places(root, is_numbered=is_numbered, attention=attention)
    weights = open_weights(write_tf2(tmp_path, tensors, places))
    assert weights.format == "tf2"
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    model_files.assert_same(model_files.all_tensors(weights), encoder)
    assert {name: value.shape for name, value in encoder.items()} == weights.shapes
    assert weights.ignored == ("save_counter",)


@pytest.mark.parametrize(
    ("roots", "head", "pooler"),
    [
        (("encoder", ""), "next_sentence", "next_sentence..pooler_dense"),
        (("model/encoder_network", "model/"), "model/classification_heads/0",
         "model/classification_heads/0/dense"),
    ],
)  # fmt: skip
def test_a_pretrained_model(tmp_path, tensors, roots, head, pooler):
    """The pooler of the next-sentence head was trained, that of the encoder was not.

    The word table has the name that it has in the masked-LM head; an optimizer's slots stay.
    """
    root, above = roots
    places = encoder_places(root)
    (words,) = (place for place, name in places.items() if name.endswith("word_embeddings"))
    places[f"{above}masked_lm/embedding_table"] = places.pop(words)
    untrained = {place: np.zeros_like(tensors[name])
                 for place, name in places.items() if name.startswith(POOLER)}  # fmt: skip
    places |= pretraining_places(above, head, pooler)
    others = untrained | {"optimizer/m": tensors[f"{POOLER}/kernel"]}
    path = write_tf2(tmp_path / "tf2", tensors, places, **others)
    weights = open_weights(str(tmp_path / "tf2"))
    assert weights.path == path
    assert "optimizer/m" in weights.ignored
    saved = open_weights(save_weights(weights, f"{tmp_path}/tf1", format="tf1"))
    for found in (weights, saved):
        model_files.assert_same(model_files.all_tensors(found), tensors)
    report = load_checkpoint(make_model("pretraining", small.CONFIG), path)
    assert report.matched == sorted(tensors)


def test_what_is_refused(tmp_path, tensors):
    config = dataclasses.replace(small.CONFIG, num_attention_heads=1)
    path = write_tf2(tmp_path, tensors, encoder_places("encoder"), config=config)
    with pytest.raises(InputError, match="with 2 attention heads"):
        open_weights(path)
    path = write_tf2(tmp_path, {}, {}, **{"model/layer_with_weights-0/kernel": np.zeros([3, 2])})
    with pytest.raises(InputError, match="layer_with_weights-0/kernel") as caught:
        open_weights(path)
    assert caught.value.expected == "the encoder of a BERT of tensorflow/models"


def test_a_projection_between_table_and_blocks(tmp_path, tensors):
    """As in ALBERT: every number behind it is one higher, and no block is taken for another."""

    def moved(place: str) -> str:
        number = int(re.search(r"-(\d+)/", place)[1])
        return place.replace(f"-{number}/", f"-{number + (number >= 4)}/")

    places = {moved(place): name for place, name in encoder_places("encoder").items()}
    kernel = {"encoder/layer_with_weights-4/kernel": np.eye(small.CONFIG.hidden_size)}
    path = write_tf2(tmp_path, tensors, places, **kernel)
    with pytest.raises(InputError, match=r"lacks 16 .* such as bert/encoder/layer_0/"):
        load_checkpoint(make_model("pretraining", small.CONFIG), path)
