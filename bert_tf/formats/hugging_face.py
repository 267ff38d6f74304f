"""Hugging Face's folders: config.json, model.safetensors or pytorch_model.bin, the tokenizer.

What is named differently there:

    bert.encoder.layer.3.output.dense.weight [out, in]    bert/encoder/layer_3/output/dense/kernel
    ...LayerNorm.weight and .bias                         .../LayerNorm/gamma and /beta
    classifier.weight [classes, D]                        output_weights
    qa_outputs.weight [2, D]                              cls/squad/output_weights
    "hidden_act": "gelu"                                  "hidden_act": "gelu_erf"
    "hidden_act": "gelu_new"                              "hidden_act": "gelu"
"""

import contextlib
import json
import pickle
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.formats.base import ModelFacts, Weights, first_of, folder_of, join, read_json
from bert_tf.tokenization import read_vocabulary

CONFIG, SAFETENSORS, PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
WEIGHT_FILES = (SAFETENSORS, f"{SAFETENSORS}.index.json", PICKLE, f"{PICKLE}.index.json")

# ---------------------------------------------------------------------------- names

_OTHER_NAMES = {
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
}
# Copies: of the word table, of the output bias, and a constant.
TIED_TABLE, TIED_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
_POSITIONS = re.compile(r"^(bert\.)?embeddings\.position_ids$")
_PLACES = r"(embeddings\.|encoder\.layer\.\d+\.(?:attention|intermediate|output)\.|pooler\.)"


def original_name(name: str) -> str | None:
    """The original's name for one of Hugging Face's; None for one that BERT does not have."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    inside = name.removeprefix("bert.")
    if not re.match(_PLACES, inside) and not inside.startswith("cls.predictions.transform."):
        return None
    scope = "" if inside.startswith("cls.") else "bert/"
    path = re.sub(r"^encoder/layer/(\d+)", r"encoder/layer_\1", inside.replace(".", "/"))
    path = re.sub(r"LayerNorm/(weight|gamma)$", "LayerNorm/gamma", path)
    path = re.sub(r"LayerNorm/(bias|beta)$", "LayerNorm/beta", path)
    path = re.sub(r"_embeddings/weight$", "_embeddings", path)
    return scope + re.sub(r"/weight$", "/kernel", path)


def hugging_face_name(name: str) -> str | None:
    """Hugging Face's name for one of the original's; None for one that is not there."""
    for theirs, ours in _OTHER_NAMES.items():
        if name == ours:
            return theirs
    if not re.match(r"bert/|cls/predictions/transform/", name):
        return None
    path = re.sub(r"/encoder/layer_(\d+)/", r"/encoder/layer/\1/", name)
    path = re.sub(r"/(kernel|gamma)$", "/weight", re.sub(r"/beta$", "/bias", path))
    path = re.sub(r"_embeddings$", "_embeddings/weight", path)
    return path.replace("/", ".")


def is_transposed(name: str) -> bool:
    """Whether PyTorch keeps a weight of this original name as [out, in]."""
    return name.endswith("/kernel")


# ---------------------------------------------------------------------------- configuration

_ACTIVATIONS = {  # theirs -> ours
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_THEIR_ACTIVATION = {"gelu_erf": "gelu", "gelu": "gelu_new", "relu": "relu", "tanh": "tanh",
                     "linear": "linear"}  # fmt: skip
_DEFAULTS = {  # of a BertConfig in transformers, for files that leave them out
    "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
    "initializer_range": 0.02, "layer_norm_eps": 1e-12,
}  # fmt: skip
_ONLY = {  # keys that change what is computed, and the one value that BERT has
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def read_config(values: Mapping[str, Any], *, source: str) -> BertConfig:
    """A config.json as our configuration.

    Raises:
      InputError: it is of another architecture, or has what BERT does not have.
    """
    for key, only in _ONLY.items():
        value = values.get(key, only)
        if value is not None and value != only:
            raise _refused(source, f"{key} {value!r}", f"{key} {only!r}")
    act = values.get("hidden_act", _DEFAULTS["hidden_act"])
    if act not in _ACTIVATIONS:
        raise _refused(source, f"hidden_act {act!r}", f"one of {', '.join(_ACTIVATIONS)}")
    sizes = {key: values.get(key, default) for key, default in _DEFAULTS.items()}
    return BertConfig.from_dict(sizes | {"hidden_act": _ACTIVATIONS[act]}, source=source)


def _refused(source: str, received: str, expected: str) -> InputError:
    return InputError(
        received=f"{source} with {received}",
        expected=expected,
        remedy="give a model of the architecture BERT; others compute something else",
    )


def architecture_of(names: Iterable[str]) -> str:
    """The class that has just the heads among these original names."""
    names = set(names)
    if "cls/squad/output_weights" in names:
        return "BertForQuestionAnswering"
    if "output_weights" in names:
        return "BertForSequenceClassification"
    if "cls/predictions/output_bias" in names:
        both = "cls/seq_relationship/output_weights" in names
        return "BertForPreTraining" if both else "BertForMaskedLM"
    if "cls/seq_relationship/output_weights" in names:
        return "BertForNextSentencePrediction"
    return "BertModel"


def write_config(config: BertConfig, facts: ModelFacts, names: Iterable[str]) -> dict[str, Any]:
    """Our configuration as the values of a config.json."""
    values = config.to_dict() | {
        "architectures": [facts.architecture or architecture_of(names)],
        "model_type": "bert",
        "hidden_act": _THEIR_ACTIVATION[config.hidden_act],
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
    }
    if facts.labels:
        values["id2label"] = {str(i): label for i, label in enumerate(facts.labels)}
        values["label2id"] = {label: i for i, label in enumerate(facts.labels)}
    return values


def _read_facts(values: Mapping[str, Any], folder: str) -> ModelFacts:
    tokenizer = _tokenizer_settings(folder)
    by_id = {int(i): label for i, label in values.get("id2label", {}).items()}
    labels = tuple(by_id[i] for i in sorted(by_id))
    if labels == tuple(f"LABEL_{i}" for i in range(len(labels))):  # not said by anyone
        labels = ()
    architectures = values.get("architectures") or [None]
    return ModelFacts(do_lower_case=tokenizer, architecture=architectures[0], labels=labels or None)


# ---------------------------------------------------------------------------- tokenizer


def _tokenizer_settings(folder: str) -> bool | None:
    """do_lower_case, where the files say it.

    Raises:
      InputError: the tokenizer does what BERT's does not.
    """
    source = join(folder, "tokenizer_config.json")
    values = read_json(source) if tf.io.gfile.exists(source) else {}
    settings = {"lowercase": values.get("do_lower_case"),
                "strip_accents": values.get("strip_accents"),
                "handle_chinese_chars": values.get("tokenize_chinese_chars", True)}  # fmt: skip
    fast = join(folder, "tokenizer.json")
    if settings["lowercase"] is None and tf.io.gfile.exists(fast):
        source = fast
        settings |= read_json(fast).get("normalizer") or {}
    lower = settings["lowercase"]
    if settings["handle_chinese_chars"] is False:
        raise _refused(source, "tokenize_chinese_chars false", "Chinese characters split, as BERT")
    if settings["strip_accents"] not in (None, lower):
        raise _refused(
            source,
            f"strip_accents {settings['strip_accents']} and do_lower_case {lower}",
            "both true or both false, as BERT's tokenizer has them",
        )
    return lower


def read_pieces(folder: str) -> tuple[tuple[str, ...] | None, str | None]:
    """The vocabulary in the order of its ids, and the file it is from.

    Raises:
      InputError: ids are missing, or vocab.txt and tokenizer.json differ.
    """
    text, fast = join(folder, "vocab.txt"), join(folder, "tokenizer.json")
    in_text = read_vocabulary(text) if tf.io.gfile.exists(text) else None
    in_fast = _pieces_of_fast(fast) if tf.io.gfile.exists(fast) else None
    added = join(folder, "added_tokens.json")
    if in_text is not None and tf.io.gfile.exists(added):
        in_text = _in_order(dict(zip(in_text, range(len(in_text)), strict=True)) | read_json(added),
                            added)  # fmt: skip
    if in_text and in_fast and in_text != in_fast[: len(in_text)]:
        other = next(i for i, piece in enumerate(in_text) if in_fast[i : i + 1] != [piece])
        raise InputError(
            received=f"{text} and {fast}, which differ at id {other}",
            expected="one vocabulary",
            remedy="remove the file that does not belong to the model",
        )
    if in_fast and len(in_fast) > len(in_text or ()):
        return tuple(in_fast), fast
    return (tuple(in_text), text) if in_text else (None, None)


def _pieces_of_fast(path: str) -> list[str]:
    values = read_json(path)
    model = values.get("model") or {}
    kind = model.get("type", "WordPiece")
    if kind != "WordPiece" or not isinstance(model.get("vocab"), dict):
        raise _refused(path, f"a vocabulary of the kind {kind}", "WordPiece")
    ids = dict(model["vocab"])
    ids |= {token["content"]: token["id"] for token in values.get("added_tokens") or ()}
    return _in_order(ids, path)


def _in_order(ids: Mapping[str, int], path: str) -> list[str]:
    pieces = sorted(ids, key=lambda piece: ids[piece])
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(
            received=f"{path}, whose ids are not 0 to {len(ids) - 1}",
            expected="an id for each piece, without gaps",
            remedy="copy the file again",
        )
    return pieces


def write_tokenizer(pieces: Iterable[str], do_lower_case: bool, longest: int) -> dict[str, str]:
    """The tokenizer's files, text by name."""
    pieces = list(pieces)
    special = {
        f"{name}_token": f"[{name.upper()}]"
        for name in ("unk", "sep", "pad", "cls", "mask")
        if f"[{name.upper()}]" in pieces
    }
    settings = {
        "do_lower_case": do_lower_case,
        "model_max_length": longest,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
    }
    return {
        "vocab.txt": "".join(f"{piece}\n" for piece in pieces),
        "tokenizer_config.json": _json(settings | special),
        "special_tokens_map.json": _json(special),
    }


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


# ---------------------------------------------------------------------------- files


def is_hugging_face(path: str) -> bool:
    """Whether a path is one of these folders, or a file of weights in one."""
    if path.endswith((".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json")):
        return True
    return any(tf.io.gfile.exists(join(path, name)) for name in WEIGHT_FILES)


def open_hugging_face(path: str) -> Weights:
    """Opens a folder, or a file of weights in one.

    Raises:
      InputError: a file is missing or damaged, would run code, or is not of a BERT.
    """
    folder = path if tf.io.gfile.isdir(path) else folder_of(path)
    weight_file = path if path != folder else first_of(*(join(folder, n) for n in WEIGHT_FILES))
    if not tf.io.gfile.exists(weight_file):
        raise InputError(
            received=f"{weight_file}, which is not there",
            expected="a file of weights",
            remedy="check the path",
        )
    config_file = join(folder, CONFIG)
    if not tf.io.gfile.exists(config_file):
        raise InputError(
            received=f"{weight_file} without a {CONFIG} beside it",
            expected=f"{config_file}, which says what kind of model it is",
            remedy="copy the whole folder",
        )
    values = read_json(config_file)
    config = read_config(values, source=config_file)
    shapes, read = _open_tensors(weight_file)
    names, ignored = _names(shapes, read, weight_file)
    pieces, vocab_file = read_pieces(folder)

    def read_original(name: str) -> np.ndarray:
        value = read(names[name])
        return np.ascontiguousarray(value.T) if is_transposed(name) else value

    return Weights(
        path=weight_file,
        format="hugging_face",
        shapes={
            ours: shapes[theirs][::-1] if is_transposed(ours) else shapes[theirs]
            for ours, theirs in names.items()
        },
        read=read_original,
        config=config,
        pieces=pieces,
        vocab_file=vocab_file,
        facts=_read_facts(values, folder),
        ignored=ignored,
    )


def _names(shapes, read, path: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Original name -> name in the file; and the names that are copies of another."""
    copies = [name for name in shapes if name in (TIED_TABLE, TIED_BIAS) or _POSITIONS.match(name)]
    names: dict[str, str] = {}
    for theirs in shapes:
        if theirs in copies:
            continue
        ours = original_name(theirs)
        names[ours or theirs.replace(".", "/")] = theirs
    if TIED_BIAS in copies and "cls/predictions/output_bias" not in names:  # newer files
        names["cls/predictions/output_bias"] = TIED_BIAS
        copies.remove(TIED_BIAS)
    for copy, ours in ((TIED_TABLE, "bert/embeddings/word_embeddings"),
                       (TIED_BIAS, "cls/predictions/output_bias")):  # fmt: skip
        if copy in copies and ours in names and not np.array_equal(read(copy), read(names[ours])):
            raise InputError(
                received=f"{path}, whose {copy} differs from {names[ours]}",
                expected="one table for input and output, as BERT has",
                remedy="give a model with tied embeddings; this one cannot be represented",
            )
    return names, tuple(copies)


def _open_tensors(path: str) -> tuple[dict[str, tuple[int, ...]], Callable[[str], np.ndarray]]:
    """Shapes by name, and what reads one; of one file or of several with an index."""
    if path.endswith(".index.json"):
        files = sorted(set(read_json(path).get("weight_map", {}).values()))
        parts = [_open_tensors(join(folder_of(path), name)) for name in files]
        reads = {name: read for shapes, read in parts for name in shapes}
        shapes = {name: shape for shapes, _ in parts for name, shape in shapes.items()}
        return shapes, lambda name: reads[name](name)
    if path.endswith(".safetensors"):
        return _open_safetensors(path)
    return _open_pickle(path)


def _open_safetensors(path: str):
    with _damage_named(path):
        if "://" in path:
            with tf.io.gfile.GFile(path, "rb") as file:
                tensors = safetensors.numpy.load(file.read())
            return {name: value.shape for name, value in tensors.items()}, tensors.__getitem__
        file = safetensors.safe_open(path, framework="numpy")
        names = list(file.keys())
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}

    def read(name: str) -> np.ndarray:
        with _damage_named(path):
            return file.get_tensor(name)

    return shapes, read


@contextlib.contextmanager
def _damage_named(path: str):
    try:
        yield
    except (safetensors.SafetensorError, OSError, ValueError, tf.errors.OpError) as error:
        raise InputError(
            received=f"{path}, which cannot be read ({str(error).splitlines()[0]})",
            expected="a whole safetensors file",
            remedy="copy the file again",
        ) from None


def _open_pickle(path: str):
    """A pytorch_model.bin, by torch's loader that takes tensors and nothing else."""
    try:
        import torch
    except ImportError:
        raise InputError(
            received=f"{path}, a pickle, which can run code when it is loaded",
            expected=f"{SAFETENSORS}, or PyTorch installed, whose loader refuses code",
            remedy="pip install 'bert-tf[torch]', or convert the file to safetensors",
        ) from None
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise InputError(
            received=f"{path}, which torch.load(weights_only=True) refuses "
            f"({str(error).splitlines()[0]})",
            expected="a file of tensors by name, and nothing that runs code",
            remedy="do not load it elsewhere; get the model's safetensors file",
        ) from None
    if not isinstance(tensors, dict) or not all(torch.is_tensor(t) for t in tensors.values()):
        raise InputError(
            received=f"{path}, which holds something else than tensors by name",
            expected="the state_dict of a model",
            remedy="save model.state_dict(), not the model",
        )
    return (
        {name: tuple(tensor.shape) for name, tensor in tensors.items()},
        lambda name: tensors[name].float().numpy(),
    )


def write_tensors(weights: Weights, names: Iterable[str]) -> bytes:
    """The bytes of a model.safetensors with these weights."""
    tensors = {}
    for name in names:
        value = weights.read(name)
        tensors[hugging_face_name(name)] = np.ascontiguousarray(
            value.T if is_transposed(name) else value
        )
    return safetensors.numpy.save(tensors, metadata={"format": "pt"})
