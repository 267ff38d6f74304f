"""The tokenizer's files in Hugging Face's folders: vocabulary and settings, read and written."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.metadata import VOCAB_FILE, json_text, refused_model, vocabulary_text
from bert_tf.errors import InputError
from bert_tf.files import read_json
from bert_tf.tokenization.wordpiece import read_vocabulary

SETTINGS, FAST = "tokenizer_config.json", "tokenizer.json"
_PARTS = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}  # BERT's


def read_case(folder: str) -> bool | None:
    """do_lower_case, if the files say it.

    Raises:
      InputError: the tokenizer computes something else than BERT's.
    """
    source, fast = os.path.join(folder, SETTINGS), os.path.join(folder, FAST)
    values = _read_if_there(source)
    settings = {
        "lowercase": values.get("do_lower_case"),
        "strip_accents": values.get("strip_accents"),
        "handle_chinese_chars": values.get("tokenize_chinese_chars", True),
    }
    values = _read_if_there(fast)
    for part, only in _PARTS.items():
        kind = (values.get(part) or {}).get("type", only)
        if kind != only:
            raise refused_model(fast, f"a {part} of the type {kind}", only)
    if settings["lowercase"] is None and values.get("normalizer"):
        source = fast
        settings |= values["normalizer"]
    lower = settings["lowercase"]
    if settings["handle_chinese_chars"] is False:
        raise refused_model(
            source, "tokenize_chinese_chars false", "Chinese characters apart, as BERT has them"
        )
    if settings["strip_accents"] not in (None, lower):
        raise refused_model(
            source,
            f"strip_accents {settings['strip_accents']} and do_lower_case {lower}",
            "both true or both false, as BERT's tokenizer has them",
        )
    return lower


def _read_if_there(path: str) -> dict[str, Any]:
    return read_json(path) if tf.io.gfile.exists(path) else {}


def read_pieces(folder: str) -> tuple[tuple[str, ...] | None, str | None]:
    """The vocabulary in the order of its ids, and the file it is from.

    Raises:
      InputError: ids are missing, or vocab.txt and tokenizer.json differ.
    """
    text, fast = os.path.join(folder, VOCAB_FILE), os.path.join(folder, FAST)
    added = os.path.join(folder, "added_tokens.json")
    in_text = read_vocabulary(text) if tf.io.gfile.exists(text) else []
    in_fast = _pieces_of_fast(fast) if tf.io.gfile.exists(fast) else []
    if in_text and tf.io.gfile.exists(added):
        ids = {piece: i for i, piece in enumerate(in_text)}
        in_text = _in_order(ids | read_json(added), added)
    if in_text and in_fast and in_text != in_fast[: len(in_text)]:
        other = next(i for i, piece in enumerate(in_text) if in_fast[i : i + 1] != [piece])
        raise InputError(
            f"{text} and {fast}, which differ at id {other}",
            "one vocabulary",
            "remove the file that does not belong to the model",
        )
    if len(in_fast) > len(in_text):
        return tuple(in_fast), fast
    return (tuple(in_text), text) if in_text else (None, None)


def _pieces_of_fast(path: str) -> list[str]:
    values = read_json(path)
    model = values.get("model") or {}
    kind = model.get("type", "WordPiece")
    if kind != "WordPiece" or not isinstance(model.get("vocab"), dict):
        raise refused_model(path, f"a vocabulary of the kind {kind}", "WordPiece")
    added = {token["content"]: token["id"] for token in values.get("added_tokens") or ()}
    return _in_order(model["vocab"] | added, path)


def _in_order(ids: Mapping[str, int], path: str) -> list[str]:
    if sorted(ids.values()) != list(range(len(ids))):
        raise InputError(
            f"{path}, whose ids are not 0 to {len(ids) - 1}",
            "an id for each word piece, without gaps",
            "copy the file again",
        )
    return sorted(ids, key=ids.__getitem__)


def write_tokenizer(pieces: Iterable[str], do_lower_case: bool, longest: int) -> dict[str, str]:
    """The tokenizer's files, text by name."""
    pieces = list(pieces)
    tokens = {name: f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    special = {f"{name}_token": token for name, token in tokens.items() if token in pieces}
    settings = {
        "do_lower_case": do_lower_case,
        "model_max_length": longest,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
    }
    return {
        VOCAB_FILE: vocabulary_text(pieces),
        SETTINGS: json_text(settings | special),
        "special_tokens_map.json": json_text(special),
    }
