"""TF2 checkpoints laid out as tensorflow/models' BERT, by the names that TensorFlow gives them."""

import dataclasses
import re

import model_files
import numpy as np
import pytest
import small

from bert_tf import load_checkpoint, make_model
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError

LAYERS, HEADS = small.CONFIG.num_hidden_layers, small.CONFIG.num_attention_heads
NEWER, OLDER = "_attention_layer/_output_dense", "_attention_output_dense"
POOLER, NEXT_SENTENCE = "bert/pooler/dense", "cls/seq_relationship/output_"


def dense(place: str, name: str) -> dict[str, str]:
    return {f"{place}/{part}": f"{name}/{part}" for part in ("kernel", "bias")}


def norm(place: str, name: str) -> dict[str, str]:
    return {f"{place}/{part}": f"{name}/LayerNorm/{part}" for part in ("gamma", "beta")}


def encoder_places(root: str, *, is_numbered: bool = True, attention: str = NEWER) -> dict:
    """The original's name of the variable at each place of an encoder."""
    parts = ["_embedding_layer", "_position_embedding_layer", "_type_embedding_layer",
             "_embedding_norm_layer", "_pooler_layer"]  # fmt: skip
    blocks = [f"_transformer_layers/{i}" for i in range(LAYERS)]
    if is_numbered:
        numbered = [f"layer_with_weights-{i}" for i in range(LAYERS + 5)]
        parts, blocks = [*numbered[:4], numbered[-1]], numbered[4:-1]
    word, position, segment, normalization, pooler = (f"{root}/{part}" for part in parts)
    places = {
        f"{word}/embeddings": "bert/embeddings/word_embeddings",
        f"{position}/embeddings": "bert/embeddings/position_embeddings",
        f"{segment}/embeddings": "bert/embeddings/token_type_embeddings",
        **norm(normalization, "bert/embeddings"),
        **dense(pooler, POOLER),
    }
    for i, block in enumerate(blocks):
        place, name = f"{root}/{block}", f"bert/encoder/layer_{i}"
        places |= dense(f"{place}/{attention}", f"{name}/attention/output/dense")
        places |= norm(f"{place}/_attention_layer_norm", f"{name}/attention/output")
        places |= dense(f"{place}/_intermediate_dense", f"{name}/intermediate/dense")
        places |= dense(f"{place}/_output_dense", f"{name}/output/dense")
        places |= norm(f"{place}/_output_layer_norm", f"{name}/output")
        for part in ("query", "key", "value"):
            own = f"{place}/_attention_layer/_{part}_dense"
            places |= dense(own, f"{name}/attention/self/{part}")
    return places


def pretraining_places(root: str, next_sentence: str, pooler: str) -> dict[str, str]:
    """The heads'; the bias has one of its two names there."""
    transform = "cls/predictions/transform"
    return {
        **dense(f"{root}masked_lm/dense", f"{transform}/dense"),
        **norm(f"{root}masked_lm/layer_norm", transform),
        f"{root}masked_lm/output_bias.Sbias": "cls/predictions/output_bias",
        f"{next_sentence}/out_proj/kernel": f"{NEXT_SENTENCE}weights",
        f"{next_sentence}/out_proj/bias": f"{NEXT_SENTENCE}bias",
        **dense(pooler, POOLER),
    }


def as_stored(name: str, value: np.ndarray) -> np.ndarray:
    """With heads and head size apart: kernels [D, N, H] and [N, H, D], biases [N, H]."""
    hidden = small.CONFIG.hidden_size
    heads = (HEADS, hidden // HEADS)
    if "/attention/self/" in name:
        return value.reshape(*value.shape[:-1], *heads)
    if name.endswith("attention/output/dense/kernel"):
        return value.reshape(*heads, hidden)
    return value.T if name == f"{NEXT_SENTENCE}weights" else value


def write(folder, tensors, places, *, config=small.CONFIG, **others) -> str:
    """A checkpoint with a counter, and the configuration beside it; others: by their places."""
    folder.mkdir(exist_ok=True)
    (folder / "bert_config.json").write_text(config.to_json_string())
    stored = {place: as_stored(name, tensors[name]) for place, name in places.items()} | others
    stored |= {"save_counter": np.int64(1)}
    stored = {f"{place}/.ATTRIBUTES/VARIABLE_VALUE": value for place, value in stored.items()}
    graph = {"_CHECKPOINTABLE_OBJECT_GRAPH": b""}
    return model_files.write_bundle(folder / "bert_model.ckpt-1", stored | graph)


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
    weights = open_weights(write(tmp_path, tensors, places))
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
    path = write(tmp_path / "tf2", tensors, places, **others)
    weights = open_weights(str(tmp_path / "tf2"))
    assert weights.path == path
    assert "optimizer/m" in weights.ignored
    saved = open_weights(save_weights(f"{tmp_path}/tf1", weights, to_format="tf1"))
    for found in (weights, saved):
        model_files.assert_same(model_files.all_tensors(found), tensors)
    report = load_checkpoint(make_model("pretraining", small.CONFIG), path)
    assert report.matched == sorted(tensors)


def test_what_is_refused(tmp_path, tensors):
    config = dataclasses.replace(small.CONFIG, num_attention_heads=1)
    path = write(tmp_path, tensors, encoder_places("encoder"), config=config)
    with pytest.raises(InputError, match="with 2 attention heads"):
        open_weights(path)
    path = write(tmp_path, {}, {}, **{"model/layer_with_weights-0/kernel": np.zeros([3, 2])})
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
    path = write(tmp_path, tensors, places, **kernel)
    with pytest.raises(InputError, match=r"lacks 16 .* such as bert/encoder/layer_0/"):
        load_checkpoint(make_model("pretraining", small.CONFIG), path)
