"""TF2 checkpoints laid out as tensorflow/models' BERT, of models of the size of `small.CONFIG`."""

import model_files
import numpy as np
import small

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


def write_tf2(folder, tensors, places, *, config=small.CONFIG, **others) -> str:
    """A checkpoint with a counter, and the configuration beside it; others: by their places."""
    folder.mkdir(exist_ok=True)
    (folder / "bert_config.json").write_text(config.to_json_string())
    stored = {place: as_stored(name, tensors[name]) for place, name in places.items()} | others
    stored |= {"save_counter": np.int64(1)}
    stored = {f"{place}/.ATTRIBUTES/VARIABLE_VALUE": value for place, value in stored.items()}
    graph = {"_CHECKPOINTABLE_OBJECT_GRAPH": b""}
    return model_files.write_bundle(folder / "bert_model.ckpt-1", stored | graph)
