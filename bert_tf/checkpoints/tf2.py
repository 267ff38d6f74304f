"""TF2 checkpoints of tensorflow/models' BERT: a graph of objects instead of names.

The encoder has one of two layouts, and the attention's output projection one of two places:

    encoder/layer_with_weights-<n>/...                   a functional model: word, position and type
                                                         embeddings, norm, blocks, pooler
    encoder/_embedding_layer, _transformer_layers/<i>/   attributes of the model

    <block>/_attention_layer/_output_dense               newer
    <block>/_attention_output_dense                      older

A variable is saved under the shortest of its paths: the word table of a model with a masked-LM head
is masked_lm/embedding_table. Next-sentence prediction has a pooler of its own,
next_sentence..pooler_dense; the encoder's pooler is then untrained.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bert_tf.checkpoints.metadata import Weights, read_model_files
from bert_tf.checkpoints.scopes import refused_pair
from bert_tf.checkpoints.tf1 import CheckpointReader
from bert_tf.config import BertConfig
from bert_tf.errors import InputError

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_NORM = r"/(gamma|beta)"
_DENSE = r"/(kernel|bias)"
_ENCODER = r"(?:model/encoder_network|model/encoder|encoder_network|encoder|model)/"
_TABLE = _ENCODER + r"_embedding_layer/embeddings"
_BLOCK = _ENCODER + r"_transformer_layers/(\d+)/"
_LAYER = r"bert/encoder/layer_\1/"
_MASKED_LM = r"(?:model/)?masked_lm/"
_CLASSIFIER = r"(?:model/)?classification_heads/0/"
_NEXT_SENTENCE = rf"(?:next_sentence/|{_CLASSIFIER})out_proj/"
_HEADS_POOLER = rf"(?:next_sentence\.\.pooler_|{_CLASSIFIER})dense"

# Patterns of places in the object graph (where `_attributes` has renamed numbered layers), and the
# original's names.
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
      InputError: it is damaged, has no known BERT encoder or has two, or has another number of
        attention heads than the configuration beside it.
    """
    reader = CheckpointReader(path)
    places = [key.removesuffix(_VALUE) for key in reader.shapes if key != GRAPH]
    tables = [place for place in places if re.fullmatch(_TABLE, _attributes(place, 0))]
    if len(tables) > 1:
        raise refused_pair(reader.prefix, *tables[:2])
    names = original_names(places)
    if "bert/embeddings/word_embeddings" not in names.values():
        examples = ", ".join(sorted(places)[:3])
        received = (
            f"{reader.prefix}, a TF2 checkpoint with {len(places)} objects, such as {examples}"
        )
        expected = "the encoder of a BERT of tensorflow/models"
        remedy = (
            "convert it to TF1 names or to Hugging Face's format with the library that wrote it"
        )
        raise InputError(received, expected, remedy)
    beside = read_model_files(os.path.dirname(reader.prefix))
    keys = {name: f"{place}{_VALUE}" for place, name in names.items()}
    stored = {name: reader.shapes[key] for name, key in keys.items()}
    if config := beside["config"]:
        _check_heads(stored, config, reader.prefix)
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
        **beside,
    )


def _check_heads(shapes: Mapping[str, Sequence[int]], config: BertConfig, path: str) -> None:
    """Raises `InputError` if a configuration has another number of attention heads.

    In no other format do the shapes show this number.

    Args:
      shapes: the shapes in the file, by original name; kernels of queries are [D, N, H] or [D, D].
      config: beside the weights.
      path: the path of the weights, for messages.
    """
    for name, shape in shapes.items():
        if not name.endswith("/query/kernel") or len(shape) != 3:
            continue
        num_heads = shape[1]
        if num_heads != config.num_attention_heads:
            received = f"{path} with {num_heads} attention heads"
            expected = f"{config.num_attention_heads}, as the configuration beside it says"
            raise InputError(received, expected, "correct num_attention_heads")


def original_names(places: Iterable[str]) -> dict[str, str]:
    """The original's name for each place in the object graph that has one."""
    # The head's pooler comes first, as the encoder's is then untrained.
    places = sorted(places, key=lambda place: (not re.match(_HEADS_POOLER, place), place))
    in_block = re.compile(r"layer_with_weights-(\d+)/_attention_layer/")
    blocks = set()
    for place in places:
        if match := in_block.search(place):
            blocks.add(match[1])
    names: dict[str, str] = {}
    for place in places:
        name = _name(_attributes(place, len(blocks)))
        if name and name not in names.values():  # a variable can have several places
            names[place] = name
    return names


def _attributes(place: str, num_blocks: int) -> str:
    """A place in which the numbered layers of a functional model have their attributes' names."""
    layers = [
        "_embedding_layer",
        "_position_embedding_layer",
        "_type_embedding_layer",
        "_embedding_norm_layer",
        *(f"_transformer_layers/{i}" for i in range(num_blocks)),
        "_pooler_layer",
    ]

    def attribute(match: re.Match) -> str:
        number = int(match[1])
        return layers[number] if number < len(layers) else match[0]

    return re.sub(r"layer_with_weights-(\d+)", attribute, place)


def _name(place: str) -> str | None:
    """The original's name for a place, as from `_attributes`; None if it has none."""
    for pattern, name in _NAMES:
        if match := re.fullmatch(pattern, place):
            return match.expand(name)
    return None


def _flat_shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape with the heads N and the head size H joined to one dimension D."""
    if "/attention/self/" in name:
        rank = 1 if name.endswith("bias") else 2
        if len(shape) > rank:
            return (*shape[:-2], shape[-2] * shape[-1])  # [D, N, H] -> [D, D], [N, H] -> [D]
    if name.endswith("attention/output/dense/kernel") and len(shape) == 3:
        return (shape[0] * shape[1], shape[2])  # [N, H, D] -> [D, D]
    return tuple(shape[::-1] if name in _TRANSPOSED else shape)
