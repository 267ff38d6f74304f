"""TF2 checkpoints laid out as tensorflow/models' BERT, made with tf.train.Checkpoint itself."""

import dataclasses

import model_files
import numpy as np
import pytest
import small
import tensorflow as tf

from bert_tf import load_checkpoint, make_model
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError

LAYERS, HEADS = small.CONFIG.num_hidden_layers, small.CONFIG.num_attention_heads
ATTRIBUTES, NUMBERED, NEWER, OLDER = "attributes", "numbered", "newer", "older"
POOLER, NEXT_SENTENCE = "bert/pooler/dense", "cls/seq_relationship/output_"


class Node(tf.Module):
    """An object whose attributes are the places below it."""

    def put(self, path: str, value) -> None:
        """Sets the attribute at the end of a path of names, "." between; makes what is on it."""
        first, _, rest = path.partition(".")
        if not rest:
            setattr(self, first, value)
            return
        if not hasattr(self, first):
            setattr(self, first, Node())
        getattr(self, first).put(rest, value)


def dense(place: str, name: str) -> dict[str, str]:
    return {f"{place}.kernel": f"{name}/kernel", f"{place}.bias": f"{name}/bias"}


def norm(place: str, name: str) -> dict[str, str]:
    return {f"{place}.{n}": f"{name}/LayerNorm/{n}" for n in ("gamma", "beta")}


def encoder_places(layout: str, attention: str) -> dict[str, str]:
    """The original's name of the variable at each place below the encoder."""
    parts = ["_embedding_layer", "_position_embedding_layer", "_type_embedding_layer",
             "_embedding_norm_layer", "_pooler_layer"]  # fmt: skip
    blocks = [f"_transformer_layers.{i}" for i in range(LAYERS)]
    if layout == NUMBERED:
        numbered = [f"layer_with_weights-{i}" for i in range(LAYERS + 5)]
        parts, blocks = [*numbered[:4], numbered[-1]], numbered[4:-1]
    word, position, segment, normalization, pooler = parts
    places = {
        f"{word}.embeddings": "bert/embeddings/word_embeddings",
        f"{position}.embeddings": "bert/embeddings/position_embeddings",
        f"{segment}.embeddings": "bert/embeddings/token_type_embeddings",
        **norm(normalization, "bert/embeddings"),
        **dense(pooler, POOLER),
    }
    for i, place in enumerate(blocks):
        places |= block_places(place, f"bert/encoder/layer_{i}", attention)
    return places


def block_places(place: str, name: str, attention: str) -> dict[str, str]:
    output = {NEWER: "_attention_layer._output_dense", OLDER: "_attention_output_dense"}[attention]
    places = {
        **dense(f"{place}.{output}", f"{name}/attention/output/dense"),
        **norm(f"{place}._attention_layer_norm", f"{name}/attention/output"),
        **dense(f"{place}._intermediate_dense", f"{name}/intermediate/dense"),
        **dense(f"{place}._output_dense", f"{name}/output/dense"),
        **norm(f"{place}._output_layer_norm", f"{name}/output"),
    }
    for part in ("query", "key", "value"):
        places |= dense(f"{place}._attention_layer._{part}_dense", f"{name}/attention/self/{part}")
    return places


def as_stored(name: str, value: np.ndarray) -> np.ndarray:
    """With heads and head size apart: kernels [D, N, H] and [N, H, D], biases [N, H]."""
    hidden = small.CONFIG.hidden_size
    heads = (HEADS, hidden // HEADS)
    if "/attention/self/" in name:
        return value.reshape(*value.shape[:-1], *heads)
    if name.endswith("attention/output/dense/kernel"):
        return value.reshape(*heads, hidden)
    return value.T if name == f"{NEXT_SENTENCE}weights" else value


def variable(tensors, name: str) -> tf.Variable:
    return tf.Variable(as_stored(name, tensors[name]))


def make_encoder(tensors, layout: str = NUMBERED, attention: str = NEWER) -> Node:
    encoder = Node()
    for place, name in encoder_places(layout, attention).items():
        encoder.put(place, variable(tensors, name))
    return encoder


def make_masked_lm(tensors, word_table: tf.Variable) -> Node:
    """Whose bias has two names, and whose word table is the encoder's."""
    head = Node()
    transform = "cls/predictions/transform"
    places = dense("dense", f"{transform}/dense") | norm("layer_norm", transform)
    for place, name in places.items():
        head.put(place, variable(tensors, name))
    bias = variable(tensors, "cls/predictions/output_bias")
    setattr(head, "output_bias/bias", bias)
    head.bias = bias
    head.embedding_table = word_table
    return head


def pretrainer(tensors, encoder: Node) -> dict:
    """The objects that tensorflow/models saves of a BERT in pre-training."""
    masked_lm = make_masked_lm(tensors, getattr(encoder, "layer_with_weights-0").embeddings)
    head = Node()
    for place, name in dense("dense", POOLER).items():
        head.put(place, variable(tensors, name))
    for part, name in (("kernel", "weights"), ("bias", "bias")):
        head.put(f"out_proj.{part}", variable(tensors, NEXT_SENTENCE + name))
    model = Node()
    model.encoder_network, model.masked_lm, model.classification_heads = encoder, masked_lm, [head]
    return {
        "model": model,
        "encoder": encoder,
        "masked_lm": masked_lm,
        "next_sentence.pooler_dense": head.dense,
    }


def write(folder, config=small.CONFIG, **objects) -> str:
    """A checkpoint of those objects, with a counter, and the configuration beside it."""
    folder.mkdir(exist_ok=True)
    (folder / "bert_config.json").write_text(config.to_json_string())
    return tf.train.Checkpoint(**objects).save(str(folder / "bert_model.ckpt"))


@pytest.mark.parametrize(
    ("root", "layout", "attention"),
    [
        ("encoder", NUMBERED, NEWER),
        ("encoder", NUMBERED, OLDER),
        ("encoder", ATTRIBUTES, NEWER),
        ("model", ATTRIBUTES, OLDER),
        ("model.encoder", NUMBERED, NEWER),
        ("model.encoder_network", ATTRIBUTES, NEWER),
        ("encoder_network", NUMBERED, OLDER),
    ],
)
def test_an_encoder(tmp_path, tensors, root, layout, attention):
    outer = Node()
    outer.put(root, make_encoder(tensors, layout, attention))
    first = root.partition(".")[0]
    weights = open_weights(write(tmp_path, **{first: getattr(outer, first)}))
    assert weights.format == "tf2"
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    model_files.assert_same(model_files.all_tensors(weights), encoder)
    assert {name: value.shape for name, value in encoder.items()} == weights.shapes
    assert weights.ignored == ("save_counter",)


def test_a_pretrained_model(tmp_path, tensors):
    """The pooler of the next-sentence head was trained, that of the encoder was not.

    The slots of an optimizer are left aside. The model alone is enough, and a folder too.
    """
    encoder, slot = make_encoder(tensors), Node()
    kernel = getattr(encoder, f"layer_with_weights-{LAYERS + 4}").kernel
    kernel.assign(np.zeros_like(tensors["bert/pooler/dense/kernel"]))
    slot.put("m", tf.Variable(tensors["bert/pooler/dense/kernel"]))
    objects = pretrainer(tensors, encoder)
    path = write(tmp_path / "tf2", optimizer=slot, **objects)
    keys = [key for key, _ in tf.train.list_variables(path)]
    for part in ("masked_lm/embedding_table", "masked_lm/output_bias.Sbias",
                 "next_sentence..pooler_dense/kernel", "encoder/layer_with_weights-6/kernel",
                 "model/classification_heads/0/out_proj/kernel"):  # fmt: skip
        assert f"{part}/.ATTRIBUTES/VARIABLE_VALUE" in keys  # else this tests another layout
    weights = open_weights(str(tmp_path / "tf2"))
    assert weights.path == path
    assert "optimizer/m" in weights.ignored
    saved = open_weights(save_weights(f"{tmp_path}/tf1", weights, to_format="tf1"))
    alone = open_weights(write(tmp_path / "alone", model=objects["model"]))
    for found in (weights, saved, alone):
        model_files.assert_same(model_files.all_tensors(found), tensors)
    report = load_checkpoint(make_model("pretraining", small.CONFIG), path)
    assert report.matched == sorted(tensors)


def test_heads_that_are_not_those_of_the_configuration(tmp_path, tensors):
    config = dataclasses.replace(small.CONFIG, num_attention_heads=1)
    path = write(tmp_path, config=config, encoder=make_encoder(tensors))
    with pytest.raises(InputError, match="with 2 attention heads"):
        open_weights(path)


def test_a_foreign_object_graph(tmp_path):
    layer = Node()
    layer.put("layer_with_weights-0.kernel", tf.Variable(np.zeros([3, 2])))
    with pytest.raises(InputError, match="layer_with_weights-0/kernel") as caught:
        open_weights(write(tmp_path, model=layer))
    assert caught.value.expected == "the encoder of a BERT of tensorflow/models"


@pytest.mark.parametrize("left_out", ["layer_with_weights-5", "layer_with_weights-3"])
def test_an_encoder_that_lacks_something(tmp_path, tensors, left_out):
    encoder = make_encoder(tensors)
    delattr(encoder, left_out)
    with pytest.raises(InputError, match="lacks"):
        load_checkpoint(make_model("pretraining", small.CONFIG), write(tmp_path, encoder=encoder))


def test_a_projection_between_table_and_blocks(tmp_path, tensors):
    """As in ALBERT: every number behind it is one higher, and no block is taken for another."""
    encoder, projected = make_encoder(tensors), Node()
    for number in range(LAYERS + 5):
        layer = getattr(encoder, f"layer_with_weights-{number}")
        setattr(projected, f"layer_with_weights-{number + (number >= 4)}", layer)
    projected.put("layer_with_weights-4.kernel", tf.Variable(np.eye(small.CONFIG.hidden_size)))
    with pytest.raises(InputError, match=r"lacks 16 .* such as bert/encoder/layer_0/"):
        load_checkpoint(make_model("pretraining", small.CONFIG), write(tmp_path, encoder=projected))
