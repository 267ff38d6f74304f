"""Weights of small models, in memory and on disk in the layouts of other programs."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import reference
import safetensors.numpy
import small

from bert_tf import BertConfig
from bert_tf.checkpoints import saving
from bert_tf.checkpoints.metadata import ModelMetadata, Weights
from bert_tf.checkpoints.tf1 import write_checkpoint

NUM_CLASSES = 3
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PIECES = (*SPECIAL, *(f"w{i}" for i in range(small.CONFIG.vocab_size - len(SPECIAL))))
KINDS = ("pretraining", "classifier", "span")


def tensors_of(
    kind: str = "pretraining", config: BertConfig = small.CONFIG, *, seed: int = 3
) -> dict[str, np.ndarray]:
    """Random weights of a model of `KINDS`, by the original's names."""
    weights = reference.random_weights(config, seed=seed)
    if kind == "pretraining":
        return weights
    rng = np.random.default_rng(seed + 1)
    scope = {"classifier": "", "span": "cls/squad/"}[kind]
    rows = {"classifier": NUM_CLASSES, "span": 2}[kind]
    head = {
        f"{scope}output_weights": rng.standard_normal((rows, config.hidden_size)),
        f"{scope}output_bias": rng.standard_normal(rows),
    }
    encoder = {name: value for name, value in weights.items() if name.startswith("bert/")}
    return encoder | {name: value.astype(np.float32) for name, value in head.items()}


def weights_of(
    tensors: Mapping[str, np.ndarray],
    *,
    path: str = "/memory/bert_model.ckpt",
    config: BertConfig | None = small.CONFIG,
    pieces: Sequence[str] | None = PIECES,
    metadata: ModelMetadata = ModelMetadata(),  # noqa: B008  (frozen)
) -> Weights:
    """`Weights` of tensors in memory."""
    return Weights(
        path=path, format="tf1", shapes={name: np.shape(value) for name, value in tensors.items()},
        read=lambda name: tensors[name], config=config, pieces=pieces and tuple(pieces),
        vocab_file="/memory/vocab.txt", metadata=metadata,
    )  # fmt: skip


def all_tensors(weights: Weights) -> dict[str, np.ndarray]:
    """Every tensor, including the optimizer's."""
    return {name: weights.read(name) for name in weights.shapes}


def assert_same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Asserts that names, types, shapes and bits are equal."""
    assert ours.keys() == theirs.keys()
    for name in theirs:
        our_value = np.asarray(ours[name])
        their_value = np.asarray(theirs[name])
        assert our_value.dtype == their_value.dtype, name
        assert our_value.shape == their_value.shape, name
        assert our_value.tobytes() == their_value.tobytes(), name


def write_bundle(prefix: pathlib.Path | str, tensors: Mapping[str, Any]) -> str:
    """Writes a checkpoint of these tensors alone; returns its prefix."""
    write_checkpoint(str(prefix), tensors, temporary=f"{prefix}.temporary")
    return str(prefix)


def write_tf1(
    folder: pathlib.Path,
    tensors: Mapping[str, np.ndarray],
    *,
    config: BertConfig | None = small.CONFIG,
    pieces: Sequence[str] | None = PIECES,
    name: str = "bert_model.ckpt",
) -> str:
    """Writes a folder in the layout of the original's releases; returns the checkpoint's prefix."""
    folder.mkdir(parents=True, exist_ok=True)
    if config:
        (folder / "bert_config.json").write_text(config.to_json_string())
    if pieces:
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    return write_bundle(folder / name, tensors)


# ---------------------------------------------------------------------------- Hugging Face


def hugging_face_names(config: BertConfig = small.CONFIG) -> dict[str, str]:
    """The original's name -> transformers' name, for every weight, written out by hand."""
    names = {
        "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings.weight",
        "bert/embeddings/position_embeddings": "bert.embeddings.position_embeddings.weight",
        "bert/embeddings/token_type_embeddings": "bert.embeddings.token_type_embeddings.weight",
        "cls/predictions/output_bias": "cls.predictions.bias",
        "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
        "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
        "output_weights": "classifier.weight",
        "output_bias": "classifier.bias",
        "cls/squad/output_weights": "qa_outputs.weight",
        "cls/squad/output_bias": "qa_outputs.bias",
    }
    dense = {
        "bert/pooler/dense": "bert.pooler.dense",
        "cls/predictions/transform/dense": "cls.predictions.transform.dense",
    }
    norm = {
        "bert/embeddings/LayerNorm": "bert.embeddings.LayerNorm",
        "cls/predictions/transform/LayerNorm": "cls.predictions.transform.LayerNorm",
    }
    for i in range(config.num_hidden_layers):
        ours = f"bert/encoder/layer_{i}/"
        theirs = f"bert.encoder.layer.{i}."
        for part in ("query", "key", "value"):
            dense[f"{ours}attention/self/{part}"] = f"{theirs}attention.self.{part}"
        dense[f"{ours}attention/output/dense"] = f"{theirs}attention.output.dense"
        dense[f"{ours}intermediate/dense"] = f"{theirs}intermediate.dense"
        dense[f"{ours}output/dense"] = f"{theirs}output.dense"
        norm[f"{ours}attention/output/LayerNorm"] = f"{theirs}attention.output.LayerNorm"
        norm[f"{ours}output/LayerNorm"] = f"{theirs}output.LayerNorm"
    for ours, theirs in dense.items():
        names |= {f"{ours}/kernel": f"{theirs}.weight", f"{ours}/bias": f"{theirs}.bias"}
    for ours, theirs in norm.items():
        names |= {f"{ours}/gamma": f"{theirs}.weight", f"{ours}/beta": f"{theirs}.bias"}
    return names


def state_dict(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights as PyTorch holds them: by transformers' names, and every kernel as [out, in]."""
    names = hugging_face_names()
    state = {}
    for name, value in tensors.items():
        stored = value.T if name.endswith("/kernel") else value
        state[names[name]] = np.ascontiguousarray(stored)
    return state


def hugging_face_config(config: BertConfig = small.CONFIG, **changes: Any) -> dict[str, Any]:
    """The values of a config.json of that size, with the exact gelu.

    A change to None removes the key.
    """
    keys = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
            "intermediate_size", "max_position_embeddings", "type_vocab_size")  # fmt: skip
    values = {key: getattr(config, key) for key in keys}
    values |= {"model_type": "bert", "architectures": ["BertForPreTraining"], "hidden_act": "gelu"}
    return {key: value for key, value in (values | changes).items() if value is not None}


# Every file that transformers and sentence-transformers write, with every field that we read.
HUGGING_FACE_FILES = {
    "config.json": hugging_face_config(
        architectures=["BertForSequenceClassification"], tokenizer_class="BertTokenizer",
        problem_type="single_label_classification", is_decoder=False,
        id2label={"0": "bad", "1": "so so", "2": "good"},
        label2id={"bad": 0, "so so": 1, "good": 2}, torch_dtype="float32", pad_token_id=0,
        layer_norm_eps=1e-12, hidden_dropout_prob=0.1, initializer_range=0.02,
        position_embedding_type="absolute", transformers_version="4.50.0",
    ),
    "model_facts.json": {
        "architecture": "BertForSequenceClassification", "max_seq_length": 11, "pairs": False},
    "tokenizer_config.json": {
        "tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": None,
        "tokenize_chinese_chars": True, "do_basic_tokenize": True, "never_split": [],
        "model_max_length": 13, "cls_token": {"content": "[CLS]"}, "unk_token": "[UNK]",
        "additional_special_tokens": [], "added_tokens_decoder": {"2": {"content": "[CLS]"}},
    },
    "special_tokens_map.json": {
        "unk_token": "[UNK]", "mask_token": "[MASK]", "extra_special_tokens": {}},
    "added_tokens.json": {"[CLS]": 2},
    "sentence_bert_config.json": {"max_seq_length": 9, "do_lower_case": False},
    "tokenizer.json": {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": p, "special": True} for i, p in enumerate(SPECIAL)],
        "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None,
                       "clean_text": True, "handle_chinese_chars": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(PIECES)},
                  "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100},
    },
}  # fmt: skip


def write_hugging_face(
    folder: pathlib.Path,
    tensors: Mapping[str, np.ndarray],
    *,
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Writes a folder as transformers does; returns it.

    Args:
      folder: the folder; made if it is missing.
      tensors: the content of model.safetensors, by PyTorch's names.
      config: the content of config.json; None: `hugging_face_config()`.
      files: other files by name; all but strings are written as JSON.
    """
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(dict(tensors), folder / "model.safetensors", {"format": "pt"})
    files = {"config.json": hugging_face_config() if config is None else config} | (files or {})
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def greatest_difference(ours: Weights, theirs: Weights) -> dict[str, float]:
    """The greatest difference of each output, by name, when both models run on one random input."""
    inputs = saving.random_inputs(ours.config)
    our_outputs = saving.outputs_of(ours, inputs)
    their_outputs = saving.outputs_of(theirs, inputs)
    return saving.difference_of_outputs(our_outputs, their_outputs)


def write_encoder(folder, config: BertConfig) -> str:
    """Writes an encoder in the layout of the original's releases; returns the folder's path."""
    tensors = tensors_of("span", config)
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    write_tf1(folder, encoder, config=config)
    return str(folder)
