"""Hugging Face's folders: config.json, the tokenizer, and tensors in safetensors or a pickle.

What is named differently there:

    bert.encoder.layer.3.output.dense.weight [out, in]    bert/encoder/layer_3/output/dense/kernel
    ...LayerNorm.weight and .bias                         .../LayerNorm/gamma and /beta
    ...intermediate.dense_act.weight, of NVIDIA           .../intermediate/dense/kernel
    classifier.weight [classes, D]                        output_weights
    qa_outputs.weight [2, D]                              cls/squad/output_weights
    "hidden_act": "gelu"                                  "hidden_act": "gelu_erf"
    "hidden_act": "gelu_new"                              "hidden_act": "gelu"

A pickle is opened by PyTorch's loader of tensors alone, which runs nothing that is in it.
"""

import dataclasses
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.claims import MOST_UNPACKED, Claim, check_archive, check_tensors
from bert_tf.checkpoints.hugging_face_tokenizer import (
    Tokenizer,
    read_object,
    read_tokenizer,
    refused_model,
    write_tokenizer,
)
from bert_tf.checkpoints.loading import tokenizer_of
from bert_tf.checkpoints.metadata import (
    METADATA_FILE,
    PARTS_INDEX,
    PICKLE,
    SAFETENSORS,
    WEIGHT_FILES,
    ModelMetadata,
    Weights,
    damage_errors,
    json_text,
)
from bert_tf.checkpoints.scopes import unwrapped
from bert_tf.checkpoints.shown_heads import OUTPUT_BIAS, heads_of
from bert_tf.config import HUGGING_FACE_ACTIVATIONS, BertConfig
from bert_tf.declarations import OtherKeys, size, typed
from bert_tf.errors import InputError, quoted
from bert_tf.files import check_regular, is_remote, read_json, read_text_lines
from bert_tf.heads import SHIPPED, Head, head_named
from bert_tf.runtime import import_extra
from bert_tf.tokenization.whole_pieces import kept_whole

CONFIG = "config.json"
# Of a folder of sentence-transformers.
SENTENCE_CONFIG, MODULES, POOLING = "sentence_bert_config.json", "modules.json", "1_Pooling"
# Modules whose vectors are computed here, but for their length; once they were named BERT.
_COMPUTED = ("Transformer", "BERT", "Pooling", "Normalize", "Dropout")

_OTHER_FLOATS = ("float16", "bfloat16", "float64")  # what they hold is computed with in float32
SAFE_TORCH = (2, 10)  # earlier: code with weights_only=True, CVE-2025-32434, CVE-2026-24747

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
_THEIR_NAMES = {ours: theirs for theirs, ours in _OTHER_NAMES.items()}
# Copies, unless they alone are stored: of the word table and of the output bias; and a constant.
TIED = {
    "cls.predictions.decoder.weight": "bert/embeddings/word_embeddings",
    "cls.predictions.decoder.bias": "cls/predictions/output_bias",
}
_POSITIONS = "bert.embeddings.position_ids"
_PLACES = (
    r"bert\.(embeddings\.|encoder\.layer\.\d+\.(?:attention|intermediate|output)\.|pooler\.)"
    r"|cls\.predictions\.transform\."
)


def original_name(name: str) -> str | None:
    """The original's name for one of Hugging Face's without a wrapper; None if BERT has none."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    if not re.match(_PLACES, name):
        return None
    path = re.sub(r"^bert/encoder/layer/(\d+)", r"bert/encoder/layer_\1", name.replace(".", "/"))
    path = path.replace("/dense_act/", "/dense/")  # the activation is the same, within its layer
    path = re.sub(r"LayerNorm/(weight|gamma)$", "LayerNorm/gamma", path)
    path = re.sub(r"LayerNorm/(bias|beta)$", "LayerNorm/beta", path)
    path = re.sub(r"_embeddings/weight$", "_embeddings", path)
    return re.sub(r"/weight$", "/kernel", path)


def hugging_face_name(name: str) -> str | None:
    """Hugging Face's name for one of the original's; None for one that is not there."""
    if name in _THEIR_NAMES or not re.match(r"bert/|cls/predictions/transform/", name):
        return _THEIR_NAMES.get(name)
    path = re.sub(r"/encoder/layer_(\d+)/", r"/encoder/layer/\1/", name)
    path = re.sub(r"/(kernel|gamma)$", "/weight", re.sub(r"/beta$", "/bias", path))
    path = re.sub(r"_embeddings$", "_embeddings/weight", path)
    return path.replace("/", ".")


def is_transposed(name: str) -> bool:
    """Whether PyTorch keeps a weight of this original name as [out, in]."""
    return name.endswith("/kernel")


# ---------------------------------------------------------------------------- configuration

# Ours -> theirs; of several of theirs the last.
_ACTIVATIONS = {ours: theirs for theirs, ours in HUGGING_FACE_ACTIVATIONS.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(OtherKeys):
    """A config.json, without what `BertConfig.from_hugging_face` reads of it."""

    architectures: tuple[str, ...] | None = None
    problem_type: str | None = None
    id2label: dict[str, Any] | None = None
    tokenizer_class: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceConfig(OtherKeys):
    """A sentence_bert_config.json."""

    max_seq_length: int | None = size(None)  # most word pieces of a text
    do_lower_case: bool | None = None  # of a text before the tokenizer has it


def architecture_of(names: Iterable[str]) -> str:
    """The class that has just the heads among these original names."""
    names = {*names}
    if OUTPUT_BIAS not in names and "cls/seq_relationship/output_weights" in names:
        return "BertForNextSentencePrediction"
    return head_named(heads_of(names)[0]).architecture


def write_config(
    config: BertConfig, metadata: ModelMetadata, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Our configuration as the values of a config.json; shapes of the weights by original name."""
    values = config.to_dict() | {
        "architectures": [metadata.architecture],
        "model_type": "bert",
        "hidden_act": _ACTIVATIONS[config.hidden_act],
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
    }
    labels = metadata.labels or ()
    # transformers counts the labels to make the head
    num_classes = shapes.get("output_weights", (len(labels),))[0]
    if labels := labels if len(labels) == num_classes else _nameless(num_classes):
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    for head in _heads_of_problems():
        if head.name == metadata.task:
            values["problem_type"] = head.problem_type
    return values


def _heads_of_problems() -> list[Head]:
    """The heads that problem_type tells apart."""
    return [head for head in SHIPPED if head.problem_type]


def _nameless(num_labels: int) -> tuple[str, ...]:
    """What transformers calls labels that nobody named."""
    return tuple(f"LABEL_{i}" for i in range(num_labels))


def _read_metadata(
    config: Config, source: str, tokenizer: Tokenizer, positions: int
) -> ModelMetadata:
    """What their files say, and for the rest what ours does, if it is of the same architecture."""
    folder = os.path.dirname(source)
    path = os.path.join(folder, SENTENCE_CONFIG)
    sentence = read_object(SentenceConfig, path) or SentenceConfig()
    if sentence.do_lower_case and tokenizer.do_lower_case is False:
        raise refused_model(path, "do_lower_case true before a cased tokenizer", "false")
    (architecture, *_), longest = config.architectures or [None], tokenizer.max_length or positions
    bound = int(longest) if longest < positions else None  # a greater one does not matter
    tasks = {head.problem_type: head.name for head in _heads_of_problems()}
    is_classifier = architecture in (None, head_named("classification").architecture)
    theirs = {
        "do_lower_case": tokenizer.do_lower_case,
        "strip_accents": tokenizer.strip_accents,
        **kept_whole(tokenizer),
        "architecture": architecture,
        "labels": _read_labels(config.id2label or {}, source),
        "task": tasks.get(config.problem_type) if is_classifier else None,
        "max_seq_length": sentence.max_seq_length or bound,
    }
    ours = ModelMetadata.from_json_file(os.path.join(folder, METADATA_FILE)).known()
    known = ours if ours.get("architecture") == architecture else {}
    known |= {name: value for name, value in theirs.items() if value is not None}
    return typed(ModelMetadata, known | {"labels": theirs["labels"]}, source=source)


def _check_modules(folder: str, weight_file: str) -> None:
    """Refuses a folder of sentence-transformers whose vectors are others than those made here.

    Warns if they are those of [CLS]. A folder without modules.json may have a pooling.
    """
    path, modules = os.path.join(folder, MODULES), [{"type": "Pooling", "path": POOLING}]
    with damage_errors(path, "a list of modules, each with its type and path"):
        if tf.io.gfile.exists(path):
            modules = json.loads("".join(read_text_lines(path)))
        elif not tf.io.gfile.exists(os.path.join(folder, POOLING, CONFIG)):
            return
        found = [(x["type"].split(".")[-1], os.path.join(folder, x["path"])) for x in modules]
    for kind, place in found:
        source = os.path.join(place, CONFIG)
        modes = _pooling_modes(source) if kind == "Pooling" else ["mean"]
        if kind not in _COMPUTED or modes not in (["mean"], ["cls"]):
            what = kind if kind not in _COMPUTED else f"{kind} of {' and '.join(modes) or 'none'}"
            received = f"{source} with the module {what}"
            expected = "a Transformer with one Pooling, mean or cls, and no layers behind it"
            remedy = f"give {weight_file} for the encoder alone, without what makes its vectors"
            raise InputError(received, expected, remedy)
        if modes == ["cls"]:
            logging.warning("%s: its vectors are those of [CLS]: features --pooling=cls.", source)


def _pooling_modes(path: str) -> list[str]:
    """The poolings of which a text's vector consists: one of mean, cls, max, ..., or several."""
    values = {"pooling_mode_mean_tokens": True} | read_json(path)
    switches = [name for name, value in values.items() if value and "pooling_mode_" in name]
    modes = values.get("pooling_mode") or switches  # newer, and older
    modes = modes if isinstance(modes, list) else [modes]
    return [re.sub("^pooling_mode_|_tokens?$", "", str(mode)) for mode in modes]


def _read_labels(by_id: Mapping[str, Any], source: str) -> tuple[str, ...] | None:
    numbers = [*map(str, range(len(by_id)))]
    are_names = all(isinstance(label, str | int | float) for label in by_id.values())
    if by_id.keys() != {*numbers} or not are_names:
        received = f"{source} with id2label {quoted(by_id)}"
        raise InputError(received, "names for 0, 1, 2, ...", "correct id2label")
    labels = tuple(str(by_id[number]) for number in numbers)
    return None if labels == _nameless(len(labels)) else labels


# ---------------------------------------------------------------------------- reading


def open_hugging_face(path: str) -> Weights:
    """Opens a folder, or a file of weights in one.

    Raises:
      InputError: a file is missing or damaged, would run code, or is not of a BERT.
    """
    folder, weight_file = os.path.dirname(path), path
    if tf.io.gfile.isdir(path):
        files = (os.path.join(path, name) for name in WEIGHT_FILES)
        folder, weight_file = path, next(filter(tf.io.gfile.exists, files))
        _check_modules(folder, weight_file)
    config_file = os.path.join(folder, CONFIG)
    values = read_json(config_file, remedy="copy the whole folder")
    config = BertConfig.from_hugging_face(values, source=config_file)
    shapes, read = open_tensors(weight_file)
    names, ignored = _names(shapes, read, weight_file)
    theirs = typed(Config, values, source=config_file)
    tokenizer = read_tokenizer(folder, model_class=theirs.tokenizer_class)

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
        pieces=tokenizer.pieces,
        vocab_file=tokenizer.vocab_file,
        metadata=_read_metadata(theirs, config_file, tokenizer, config.max_position_embeddings),
        ignored=ignored,
        file_names=names,
    )


def _names(
    shapes: Mapping[str, tuple[int, ...]], read: Callable[[str], np.ndarray], path: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Original name -> name in the file; and the names that are copies of another."""
    copies: dict[str, str] = {}  # without a wrapper -> name in the file
    names: dict[str, str] = {}
    for theirs, plain in unwrapped(shapes, path, separator=".").items():
        if plain in TIED or plain == _POSITIONS:
            copies[plain] = theirs
            continue
        ours = original_name(plain) or plain.replace(".", "/")
        if ours in names:
            raise refused_model(path, f"both {names[ours]} and {theirs}", "one: they are the same")
        names[ours] = theirs
    for tied, ours in TIED.items():
        if tied in copies and ours not in names:  # tied tensors are stored once, under any name
            names[ours] = copies.pop(tied)
        elif tied in copies and not np.array_equal(read(copies[tied]), read(names[ours])):
            differs = f"a {copies[tied]} that differs from {names[ours]}"
            raise refused_model(path, differs, "one for both")
    return names, tuple(copies.values())


# ---------------------------------------------------------------------------- writing


def texts_of(weights: Weights) -> dict[str, str]:
    """The files beside the weights, text by name.

    Raises:
      InputError: vocabulary and configuration do not fit, the vocabulary is no text, or the model
        is more than a BERT.
    """
    config, architecture = weights.config, weights.metadata.architecture
    if config.is_causal:
        received = f"{weights.path} with attention {config.attention}"
        expected = "a BERT, as which transformers would read the weights"
        raise InputError(received, expected, "use another format")
    metadata = dataclasses.replace(
        weights.metadata, architecture=architecture or architecture_of(weights.shapes)
    )
    texts = {
        CONFIG: json_text(write_config(config, metadata, weights.shapes)),
        METADATA_FILE: metadata.to_json_string(),
    }
    if weights.pieces is not None:
        texts |= write_tokenizer(tokenizer_of(weights, config), config.max_position_embeddings)
    return texts


def write_tensors(folder: str, weights: Weights) -> None:
    """Writes the model.safetensors, with the weights that have a name there."""
    tensors = {}
    for name in weights.names:
        if theirs := hugging_face_name(name):
            value = weights.read(name)
            tensors[theirs] = np.ascontiguousarray(value.T if is_transposed(name) else value)
    with tf.io.gfile.GFile(os.path.join(folder, SAFETENSORS), "wb") as file:
        file.write(safetensors.numpy.save(tensors, metadata={"format": "pt"}))


# ---------------------------------------------------------------------------- files of tensors

Shape = tuple[int, ...]
Tensors = tuple[Mapping[str, Shape], Callable[[str], np.ndarray]]


def open_tensors(path: str) -> Tensors:
    """Shapes by name, and a function that reads a tensor; of one file or of several with an index.

    Floating-point numbers of any width are read as float32.

    Raises:
      InputError: a file is missing or damaged, or is a pickle that holds more than tensors.
    """
    check_regular(path)
    if path.endswith(PARTS_INDEX):
        return _open_parts(path)
    shapes, read = _open_safetensors(path) if path.endswith(".safetensors") else _open_pickle(path)

    def as_float32(name: str) -> np.ndarray:
        value = read(name)
        return value.astype(np.float32) if value.dtype.name in _OTHER_FLOATS else value

    return shapes, as_float32


def _open_parts(path: str) -> Tensors:
    files = typed(dict[str, str], read_json(path).get("weight_map"), source=f"{path}, weight_map")
    for name in files.values():
        if not name.endswith((".safetensors", ".bin")) or os.path.basename(name) != name:
            expected = "plain names of .safetensors or .bin files beside it"
            raise InputError(
                f"{path} with the file {quoted(name)}", expected, "copy the file again"
            )
    folder = os.path.dirname(path)
    parts = {name: open_tensors(os.path.join(folder, name)) for name in sorted({*files.values()})}
    with damage_errors(path, "an index of tensors that are in the files that it names"):
        shapes = {tensor: parts[name][0][tensor] for tensor, name in files.items()}
    return shapes, lambda tensor: parts[files[tensor]][1](tensor)


def _open_safetensors(path: str) -> Tensors:
    expected = "a whole safetensors file"
    with damage_errors(path, expected):
        if is_remote(path):
            with tf.io.gfile.GFile(path, "rb") as file:
                content = file.read()
            tensors = safetensors.numpy.load(content)
            found = {name: Claim(x.shape, 8 * x.itemsize) for name, x in tensors.items()}
            return _checked_shapes(path, found, len(content)), tensors.__getitem__
        file = safetensors.safe_open(path, framework="numpy")
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        claims = {
            name: Claim(tuple(x.get_shape()), _bits(x.get_dtype())) for name, x in slices.items()
        }
        shapes = _checked_shapes(path, claims, os.path.getsize(path))

    def read(name: str) -> np.ndarray:
        with damage_errors(path, expected):
            return file.get_tensor(name)

    return shapes, read


def _refuse_nested(content: Mapping[str, Any], path: str) -> None:
    """Raises `InputError` if a pickle holds its tensors by name as an entry among others."""
    nested = {key: value for key, value in content.items() if isinstance(value, Mapping)}
    if nested:
        with_tables = (key for key, value in nested.items() if "word_embeddings" in str([*value]))
        key = next(with_tables, next(iter(nested)))
        received = f"{path} with the entries {', '.join(map(repr, content))}"
        taken = f"torch.load({path!r}, weights_only=True)[{key!r}]"
        remedy = f"torch.save({taken}, {PICKLE!r}), and give that file in the model's folder"
        raise InputError(received, "tensors by name alone", remedy)


def _bits(dtype: str) -> int:
    """The bits of a number of a type of safetensors, such as F32, F8_E4M3 or BOOL."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) if bits else 8


def _checked_shapes(path: str, claims: Mapping[str, Claim], stored: int) -> dict[str, Shape]:
    """The shapes of a file's tensors by name; `stored`: bytes of the file."""
    check_tensors(path, claims, stored=stored, copies=TIED)
    return {name: claim.shape for name, claim in claims.items()}


def _open_pickle(path: str) -> Tensors:
    """A pytorch_model.bin, by torch's loader that takes tensors and nothing else."""
    torch = import_extra(
        "torch",
        package="torch",
        extra="torch",
        needed_by=f"{path}, a pickle, which can run code unless PyTorch's loader opens it",
        otherwise=f"convert it to {SAFETENSORS}",
    )
    if tuple(map(int, torch.__version__.split(".")[:2])) < SAFE_TORCH:
        received = f"{path}, a pickle, with PyTorch {torch.__version__}"
        expected = f"PyTorch {'.'.join(map(str, SAFE_TORCH))} or later: a pickle could run code"
        remedy = f"pip install 'bert-tf[torch]', or convert it to {SAFETENSORS}"
        raise InputError(received, expected, remedy)
    with damage_errors(path, "the state_dict of a model: tensors by name, and no code"):
        with tf.io.gfile.GFile(path, "rb") as file:
            content = io.BytesIO(file.read())
        size = content.getbuffer().nbytes
        if zipfile.is_zipfile(content):
            with zipfile.ZipFile(content) as archive:
                check_archive(path, archive, size=size)
        content.seek(0)
        tensors = torch.load(content, map_location="cpu", weights_only=True)
        _refuse_nested(tensors, path)
        claims = {name: Claim(tuple(x.shape), 8 * x.element_size()) for name, x in tensors.items()}
        shapes = _checked_shapes(path, claims, MOST_UNPACKED * size)

    def read(name: str) -> np.ndarray:
        tensor = tensors[name]
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()

    return shapes, read
