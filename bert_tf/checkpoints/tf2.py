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

import re
from collections.abc import Iterable

import numpy as np

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import Weights, folder_of, read_model_files
from bert_tf.config import BertConfig
from bert_tf.errors import InputError

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_NORM, _DENSE = r"/(gamma|beta)", r"/(kernel|bias)"
_ROOT = r"^(?:model/encoder_network|model/encoder|encoder_network|encoder|model)"
_HEADS_POOLER = r"^next_sentence\.\.|classification_heads/0/dense"

# In order: the place in the object graph, and the original's name.
_EMBEDDINGS = (
    (r"_embedding_layer/embeddings", "bert/embeddings/word_embeddings"),
    (r"_position_embedding_layer/embeddings", "bert/embeddings/position_embeddings"),
    (r"_type_embedding_layer/embeddings", "bert/embeddings/token_type_embeddings"),
    (r"_embedding_norm_layer" + _NORM, r"bert/embeddings/LayerNorm/\1"),
    (r"_pooler_layer" + _DENSE, r"bert/pooler/dense/\1"),
)
_BLOCK = (
    (r"_attention_layer/_(query|key|value)_dense" + _DENSE, r"attention/self/\1/\2"),
    (r"(?:_attention_layer/_output_dense|_attention_output_dense)" + _DENSE,
     r"attention/output/dense/\1"),
    (r"_attention_layer_norm" + _NORM, r"attention/output/LayerNorm/\1"),
    (r"_intermediate_dense" + _DENSE, r"intermediate/dense/\1"),
    (r"_output_dense" + _DENSE, r"output/dense/\1"),
    (r"_output_layer_norm" + _NORM, r"output/LayerNorm/\1"),
)  # fmt: skip
_OUT_PROJ = r"^(?:next_sentence|(?:model/)?classification_heads/0)/out_proj/"
_HEADS = (
    (r"^(?:model/)?masked_lm/dense" + _DENSE, r"cls/predictions/transform/dense/\1"),
    (r"^(?:model/)?masked_lm/layer_norm" + _NORM, r"cls/predictions/transform/LayerNorm/\1"),
    (r"^(?:model/)?masked_lm/(?:output_bias\.Sbias|bias)", "cls/predictions/output_bias"),
    (r"^(?:model/)?masked_lm/embedding_table", "bert/embeddings/word_embeddings"),
    (r"^next_sentence\.\.pooler_dense" + _DENSE, r"bert/pooler/dense/\1"),
    (r"^(?:model/)?classification_heads/0/dense" + _DENSE, r"bert/pooler/dense/\1"),
    (_OUT_PROJ + "kernel", "cls/seq_relationship/output_weights"),
    (_OUT_PROJ + "bias", "cls/seq_relationship/output_bias"),
)
_TRANSPOSED = frozenset({"cls/seq_relationship/output_weights"})


def is_object_graph(shapes: Iterable[str]) -> bool:
    """Whether the names of a bundle are those of an object graph."""
    return GRAPH in shapes


def open_object_graph(path: str) -> Weights:
    """Opens a TF2 checkpoint of tensorflow/models.

    Raises:
      InputError: it is damaged, or holds no BERT encoder that is known.
    """
    reader = tf1.CheckpointReader(path)
    prefix, stored = reader.prefix, reader.shapes
    paths = [key.removesuffix(_VALUE) for key in stored]
    names = original_names([p for p in paths if p != GRAPH])
    if "bert/embeddings/word_embeddings" not in names.values():
        raise InputError(
            received=f"{prefix}, a TF2 checkpoint with {len(paths) - 1} objects, such as "
            f"{', '.join(sorted(paths)[:3])}",
            expected="the encoder of a BERT of tensorflow/models",
            remedy="convert the checkpoint with the library that wrote it to TF1 names or to "
            "Hugging Face's format, and give that",
        )
    found = read_model_files(folder_of(prefix))
    keys = {name: f"{place}{_VALUE}" for place, name in names.items()}
    _check_heads({stored[key][1] for name, key in keys.items()
                  if name.endswith("/query/kernel") and len(stored[key]) == 3},
                 found["config"], prefix)  # fmt: skip
    shapes = {name: _flat_shape(name, stored[key]) for name, key in keys.items()}

    def read(name: str) -> np.ndarray:
        value = reader.read(keys[name])
        value = value.T if name in _TRANSPOSED else value
        return np.ascontiguousarray(value.reshape(shapes[name]))

    return Weights(
        path=prefix,
        format="tf2",
        shapes=shapes,
        read=read,
        ignored=tuple(sorted(p for p in paths if p not in names and p != GRAPH)),
        **found,
    )


def _check_heads(heads: set[int], config: BertConfig | None, prefix: str) -> None:
    """Their number is a dimension here; no other format can tell whether it is right."""
    if config and heads - {config.num_attention_heads}:
        raise InputError(
            received=f"{prefix} with {heads.pop()} attention heads",
            expected=f"{config.num_attention_heads}, as the configuration beside it says",
            remedy="correct num_attention_heads",
        )


def original_names(places: Iterable[str]) -> dict[str, str]:
    """The original's name for each place in the object graph that has one."""
    # The head's pooler first: the encoder's, if there is one too, has not been trained.
    places = sorted(places, key=lambda place: (not re.search(_HEADS_POOLER, place), place))
    num_blocks = len(
        {m[1] for p in places if (m := re.search(r"layer_with_weights-(\d+)/_attention_layer/", p))}
    )
    names: dict[str, str] = {}
    for place in places:
        name = _head_name(place) or _encoder_name(place, num_blocks)
        if name and name not in names.values():  # one variable can have several places
            names[place] = name
    return names


def _head_name(place: str) -> str | None:
    for pattern, name in _HEADS:
        if match := re.match(f"{pattern}$", place):
            return match.expand(name)
    return None


def _encoder_name(place: str, num_blocks: int) -> str | None:
    match = re.match(_ROOT + r"/(.*)", place)
    if not match:
        return None
    inside = match[1]
    if block := re.match(r"_transformer_layers/(\d+)/(.*)", inside):
        return _block_name(int(block[1]), block[2])
    if numbered := re.match(r"layer_with_weights-(\d+)/(.*)", inside):
        number, rest = int(numbered[1]), numbered[2]
        if 4 <= number < 4 + num_blocks:
            return _block_name(number - 4, rest)
        layers = ("_embedding_layer", "_position_embedding_layer", "_type_embedding_layer",
                  "_embedding_norm_layer")  # fmt: skip
        layer = layers[number] if number < 4 else "_pooler_layer"
        if number > 4 + num_blocks:
            return None
        inside = f"{layer}/{rest}"
    for pattern, name in _EMBEDDINGS:
        if match := re.fullmatch(pattern, inside):
            return match.expand(name)
    return None


def _block_name(number: int, rest: str) -> str | None:
    for pattern, name in _BLOCK:
        if match := re.fullmatch(pattern, rest):
            return f"bert/encoder/layer_{number}/{match.expand(name)}"
    return None


def _flat_shape(name: str, shape: list[int]) -> tuple[int, ...]:
    """The shape with heads N and head size H made one dimension D."""
    if "/attention/self/" in name and len(shape) > (1 if name.endswith("bias") else 2):
        return (*shape[:-2], shape[-2] * shape[-1])  # of kernel [D, N, H] or bias [N, H]
    if name.endswith("attention/output/dense/kernel") and len(shape) == 3:  # [N, H, D]
        return (shape[0] * shape[1], shape[2])
    return tuple(shape[::-1] if name in _TRANSPOSED else shape)
