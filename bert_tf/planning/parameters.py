"""The variables of a model by their names in checkpoints, without building it."""

import math
from collections.abc import Mapping

from bert_tf.config import BertConfig

Shapes = dict[str, tuple[int, ...]]


def variables(config: BertConfig, *, head: str, num_classes: int = 2) -> Shapes:
    """Every trained variable and its shape.

    Args:
      config: sizes of the model.
      head: one of `workload.HEADS`.
      num_classes: of a classifier.
    """
    shapes = _embeddings(config)
    for layer in range(config.num_hidden_layers):
        shapes |= _encoder_block(config, f"bert/encoder/layer_{layer}")
    hidden = config.hidden_size
    shapes |= _dense("bert/pooler/dense", hidden, hidden)
    if head == "pretraining":
        shapes |= _dense("cls/predictions/transform/dense", hidden, hidden)
        shapes |= _norm("cls/predictions/transform/LayerNorm", hidden)
        shapes["cls/predictions/output_bias"] = (config.vocab_size,)
        return shapes | _output("cls/seq_relationship/", 2, hidden)
    if head == "span":
        return shapes | _output("cls/squad/", 2, hidden)
    return shapes | _output("", num_classes, hidden)


def count(shapes: Mapping[str, tuple[int, ...]], prefix: str = "") -> int:
    """Elements of all variables whose names begin with `prefix`."""
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith(prefix))


def _embeddings(config: BertConfig) -> Shapes:
    rows = {
        "word_embeddings": config.vocab_size,
        "token_type_embeddings": config.type_vocab_size,
        "position_embeddings": config.max_position_embeddings,
    }
    tables = {f"bert/embeddings/{name}": (n, config.hidden_size) for name, n in rows.items()}
    return tables | _norm("bert/embeddings/LayerNorm", config.hidden_size)


def _encoder_block(config: BertConfig, name: str) -> Shapes:
    hidden, wide = config.hidden_size, config.intermediate_size
    shapes: Shapes = {}
    for projection in ("self/query", "self/key", "self/value", "output/dense"):
        shapes |= _dense(f"{name}/attention/{projection}", hidden, hidden)
    shapes |= _norm(f"{name}/attention/output/LayerNorm", hidden)
    shapes |= _dense(f"{name}/intermediate/dense", hidden, wide)
    shapes |= _dense(f"{name}/output/dense", wide, hidden)
    return shapes | _norm(f"{name}/output/LayerNorm", hidden)


def _dense(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}


def _norm(name: str, size: int) -> Shapes:
    return {f"{name}/gamma": (size,), f"{name}/beta": (size,)}


def _output(prefix: str, classes: int, hidden: int) -> Shapes:
    return {f"{prefix}output_weights": (classes, hidden), f"{prefix}output_bias": (classes,)}
