"""TF2 checkpoints in the layout of tensorflow/models' BERT, for models of `small.CONFIG`.

A place is the path of a variable in the graph of objects that the checkpoint describes.
"""

import model_files
import numpy as np
import small

LAYERS = small.CONFIG.num_hidden_layers
HEADS = small.CONFIG.num_attention_heads
# Places of the attention's output in newer and in older versions.
NEWER = "_attention_layer/_output_dense"
OLDER = "_attention_output_dense"
POOLER = "bert/pooler/dense"
NEXT_SENTENCE = "cls/seq_relationship/output_"


def dense(place: str, name: str) -> dict[str, str]:
    """The original's names of a dense layer's variables, by place."""
    return {f"{place}/{part}": f"{name}/{part}" for part in ("kernel", "bias")}


def norm(place: str, name: str) -> dict[str, str]:
    """The original's names of a normalization's variables, by place."""
    return {f"{place}/{part}": f"{name}/LayerNorm/{part}" for part in ("gamma", "beta")}


def encoder_places(root: str, *, is_numbered: bool = True, attention: str = NEWER) -> dict:
    """The original's names of an encoder's variables, by place.

    Args:
      root: the place of the encoder.
      is_numbered: whether layers have numbers in place of names.
      attention: NEWER or OLDER.
    """
    parts = ["_embedding_layer", "_position_embedding_layer", "_type_embedding_layer",
             "_embedding_norm_layer", "_pooler_layer"]  # fmt: skip
    blocks = [f"_transformer_layers/{i}" for i in range(LAYERS)]
    if is_numbered:
        numbered = [f"layer_with_weights-{i}" for i in range(LAYERS + 5)]
        parts = [*numbered[:4], numbered[-1]]
        blocks = numbered[4:-1]
    word, position, segment, normalization, pooler = (f"{root}/{part}" for part in parts)
    places = {
        f"{word}/embeddings": "bert/embeddings/word_embeddings",
        f"{position}/embeddings": "bert/embeddings/position_embeddings",
        f"{segment}/embeddings": "bert/embeddings/token_type_embeddings",
        **norm(normalization, "bert/embeddings"),
        **dense(pooler, POOLER),
    }
    for i, block in enumerate(blocks):
        place = f"{root}/{block}"
        name = f"bert/encoder/layer_{i}"
        places |= dense(f"{place}/{attention}", f"{name}/attention/output/dense")
        places |= norm(f"{place}/_attention_layer_norm", f"{name}/attention/output")
        places |= dense(f"{place}/_intermediate_dense", f"{name}/intermediate/dense")
        places |= dense(f"{place}/_output_dense", f"{name}/output/dense")
        places |= norm(f"{place}/_output_layer_norm", f"{name}/output")
        for part in ("query", "key", "value"):
            part_place = f"{place}/_attention_layer/_{part}_dense"
            places |= dense(part_place, f"{name}/attention/self/{part}")
    return places


def pretraining_places(root: str, next_sentence: str, pooler: str) -> dict[str, str]:
    """The original's names of the heads' variables, by place.

    Checkpoints have one of two places for the bias of the masked-LM head; this one is
    output_bias/bias, in which TensorFlow writes ".S" for "/".

    Args:
      root: the prefix of the masked-LM head's place.
      next_sentence: the place of the next-sentence head.
      pooler: the place of the pooler.
    """
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
    """A tensor as tensorflow/models stores it.

    Attention has separate axes of heads: kernels [D, N, H] and [N, H, D], biases [N, H].
    """
    hidden = small.CONFIG.hidden_size
    heads = (HEADS, hidden // HEADS)
    if "/attention/self/" in name:
        return value.reshape(*value.shape[:-1], *heads)
    if name.endswith("attention/output/dense/kernel"):
        return value.reshape(*heads, hidden)
    return value.T if name == f"{NEXT_SENTENCE}weights" else value


def write_tf2(folder, tensors, places, *, config=small.CONFIG, **others) -> str:
    """Writes a checkpoint and its configuration; returns its prefix.

    Args:
      folder: the folder.
      tensors: the weights, by the original's names.
      places: the original's names, by place.
      config: the configuration.
      **others: further tensors, by place.
    """
    folder.mkdir(exist_ok=True)
    (folder / "bert_config.json").write_text(config.to_json_string())
    stored = {place: as_stored(name, tensors[name]) for place, name in places.items()} | others
    stored["save_counter"] = np.int64(1)
    stored = {f"{place}/.ATTRIBUTES/VARIABLE_VALUE": value for place, value in stored.items()}
    graph = {"_CHECKPOINTABLE_OBJECT_GRAPH": b""}
    return model_files.write_bundle(folder / "bert_model.ckpt-1", stored | graph)
