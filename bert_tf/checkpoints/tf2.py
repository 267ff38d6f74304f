"""TF2 checkpoints of tensorflow/models' BERT: a graph of objects instead of names.

Two layouts of the encoder are out there, and two places of the attention's output projection:

    encoder/layer_with_weights-<n>/...                   a functional model: word, position and type
                                                         embeddings, norm, blocks, pooler
    encoder/_embedding_layer, _transformer_layers/<i>/   attributes of the model

    <block>/_attention_layer/_output_dense               newer
    <block>/_attention_output_dense                      older

A variable is saved under the shortest of its paths: the word table of a model with a masked-LM head
is masked_lm/embedding_table. Next-sentence prediction has a pooler of its own there,
next_sentence..pooler_dense; the encoder's is then untrained.
"""

import os
import re
from collections.abc import Iterable, Sequence

import numpy as np

from bert_tf.checkpoints.metadata import Weights, read_model_files
from bert_tf.checkpoints.scopes import refused_pair
from bert_tf.checkpoints.tf1 import CheckpointReader
from bert_tf.errors import InputError

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_NORM, _DENSE = r"/(gamma|beta)", r"/(kernel|bias)"
_ENCODER = r"(?:model/encoder_network|model/encoder|encoder_network|encoder|model)/"
_TABLE = _ENCODER + r"_embedding_layer/embeddings"
_BLOCK, _LAYER = _ENCODER + r"_transformer_layers/(\d+)/", r"bert/encoder/layer_\1/"
_MASKED_LM = r"(?:model/)?masked_lm/"
_CLASSIFIER = r"(?:model/)?classification_heads/0/"
_NEXT_SENTENCE = rf"(?:next_sentence/|{_CLASSIFIER})out_proj/"
_HEADS_POOLER = rf"(?:next_sentence\.\.pooler_|{_CLASSIFIER})dense"

# The place in the object graph, with the layers of a functional model under their attributes'
# names, and the original's name.
_NAMES = (
    (_TABLE, "bert/embeddings/word_embeddings"),
    (_ENCODER + r"_position_embedding_layer/embeddings", "bert/embeddings/position_embeddings"),
    (_ENCODER + r"_type_embedding_layer/embeddings", "bert/embeddings/token_type_embeddings"),
    (_ENCODER + r"_embedding_norm_layer" + _NORM, r"bert/embeddings/LayerNorm/\1"),
    (_ENCODER + r"_pooler_layer" + _DENSE, r"bert/pooler/dense/\1"),
    (_BLOCK + r"_attention_layer/_(query|key|value)_dense" + _DENSE,
     _LAYER + r"attention/self/\2/\3"),
    (_BLOCK + r"(?:_attention_layer/_output_dense|_attention_output_dense)" + _DENSE,
     _LAYER + r"attention/output/dense/\2"),
    (_BLOCK + r"_attention_layer_norm" + _NORM, _LAYER + r"attention/output/LayerNorm/\2"),
    (_BLOCK + r"_intermediate_dense" + _DENSE, _LAYER + r"intermediate/dense/\2"),
    (_BLOCK + r"_output_dense" + _DENSE, _LAYER + r"output/dense/\2"),
    (_BLOCK + r"_output_layer_norm" + _NORM, _LAYER + r"output/LayerNorm/\2"),
    (_MASKED_LM + r"dense" + _DENSE, r"cls/predictions/transform/dense/\1"),
    (_MASKED_LM + r"layer_norm" + _NORM, r"cls/predictions/transform/LayerNorm/\1"),
    (_MASKED_LM + r"(?:output_bias\.Sbias|bias)", "cls/predictions/output_bias"),
    (_MASKED_LM + r"embedding_table", "bert/embeddings/word_embeddings"),
    (_HEADS_POOLER + _DENSE, r"bert/pooler/dense/\1"),
    (_NEXT_SENTENCE + "kernel", "cls/seq_relationship/output_weights"),
    (_NEXT_SENTENCE + "bias", "cls/seq_relationship/output_bias"),
)  # fmt: skip
_TRANSPOSED = frozenset({"cls/seq_relationship/output_weights"})


def open_tf2(path: str) -> Weights:
    """Opens a TF2 checkpoint of tensorflow/models.

    Raises:
      InputError: it is damaged, holds no BERT encoder that is known, or two of them, or has another
        number of attention heads than the configuration beside it.
    """
    reader = CheckpointReader(path)
    places = [key.removesuffix(_VALUE) for key in reader.shapes if key != GRAPH]
    tables = [place for place in places if re.fullmatch(_TABLE, _attributes(place, 0))]
    if len(tables) > 1:
        raise refused_pair(reader.prefix, *tables[:2])
    names = original_names(places)
    if "bert/embeddings/word_embeddings" not in names.values():
        such = ", ".join(sorted(places)[:3])
        received = f"{reader.prefix}, a TF2 checkpoint with {len(places)} objects, such as {such}"
        expected = "the encoder of a BERT of tensorflow/models"
        remedy = (
            "convert it to TF1 names or to Hugging Face's format with the library that wrote it"
        )
        raise InputError(received, expected, remedy)
    found = read_model_files(os.path.dirname(reader.prefix))
    keys = {name: f"{place}{_VALUE}" for place, name in names.items()}
    stored = {name: reader.shapes[key] for name, key in keys.items()}
    # [D, N, H]: no other format can tell whether the number of heads is right.
    heads = {s[1] for n, s in stored.items() if n.endswith("/query/kernel") and len(s) == 3}
    config = found["config"]
    if config and heads - {config.num_attention_heads}:
        received = f"{reader.prefix} with {heads.pop()} attention heads"
        expected = f"{config.num_attention_heads}, as the configuration beside it says"
        raise InputError(received, expected, "correct num_attention_heads")
    shapes = {name: _flat_shape(name, shape) for name, shape in stored.items()}

    def read(name: str) -> np.ndarray:
        value = reader.read(keys[name])
        value = value.T if name in _TRANSPOSED else value
        return np.ascontiguousarray(value.reshape(shapes[name]))

    return Weights(
        path=reader.prefix,
        format="tf2",
        shapes=shapes,
        read=read,
        ignored=tuple(sorted(place for place in places if place not in names)),
        file_names=keys,
        **found,
    )


def original_names(places: Iterable[str]) -> dict[str, str]:
    """The original's name for each place in the object graph that has one."""
    # The head's pooler first: the encoder's, if there is one too, has not been trained.
    places = sorted(places, key=lambda place: (not re.match(_HEADS_POOLER, place), place))
    in_block = re.compile(r"layer_with_weights-(\d+)/_attention_layer/")
    num_blocks = len({match[1] for place in places if (match := in_block.search(place))})
    names: dict[str, str] = {}
    for place in places:
        name = _name(_attributes(place, num_blocks))
        if name and name not in names.values():  # one variable can have several places
            names[place] = name
    return names


def _attributes(place: str, num_blocks: int) -> str:
    """A place with the numbered layers of a functional model under their attributes' names."""
    layers = ["_embedding_layer", "_position_embedding_layer", "_type_embedding_layer",
              "_embedding_norm_layer", *(f"_transformer_layers/{i}" for i in range(num_blocks)),
              "_pooler_layer"]  # fmt: skip

    def attribute(match: re.Match) -> str:
        number = int(match[1])
        return layers[number] if number < len(layers) else match[0]

    return re.sub(r"layer_with_weights-(\d+)", attribute, place)


def _name(place: str) -> str | None:
    for pattern, name in _NAMES:
        if match := re.fullmatch(pattern, place):
            return match.expand(name)
    return None


def _flat_shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape with heads N and head size H made one dimension D."""
    if "/attention/self/" in name and len(shape) > (1 if name.endswith("bias") else 2):
        return (*shape[:-2], shape[-2] * shape[-1])  # [D, N, H] -> [D, D], [N, H] -> [D]
    if name.endswith("attention/output/dense/kernel") and len(shape) == 3:
        return (shape[0] * shape[1], shape[2])  # [N, H, D] -> [D, D]
    return tuple(shape[::-1] if name in _TRANSPOSED else shape)
