"""The tokenizer's files in Hugging Face's folders: vocabulary and settings, read and written."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.metadata import VOCAB_FILE, join, refused_model, vocabulary_text
from bert_tf.errors import InputError
from bert_tf.files import read_json
from bert_tf.tokenization.wordpiece import read_vocabulary

_PARTS = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}  # BERT's


def read_case(folder: str) -> bool | None:
    """do_lower_case, where the files say it.

    Raises:
      InputError: the tokenizer does what BERT's does not.
    """
    source, fast = join(folder, "tokenizer_config.json"), join(folder, "tokenizer.json")
    values = read_json(source) if tf.io.gfile.exists(source) else {}
    settings = {
        "lowercase": values.get("do_lower_case"),
        "strip_accents": values.get("strip_accents"),
        "handle_chinese_chars": values.get("tokenize_chinese_chars", True),
    }
    normalizer = _normalizer_of_fast(fast) if tf.io.gfile.exists(fast) else {}
    if settings["lowercase"] is None and normalizer:
        source = fast
        settings |= normalizer
    _check_settings(settings, source)
    return settings["lowercase"]


def _normalizer_of_fast(path: str) -> dict[str, Any]:
    values = read_json(path)
    for part, only in _PARTS.items():
        kind = (values.get(part) or {}).get("type", only)
        if kind != only:
            raise refused_model(path, f"a {part} of the type {kind}", only)
    return values.get("normalizer") or {}


def _check_settings(settings: Mapping[str, Any], source: str) -> None:
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


def read_pieces(folder: str) -> tuple[tuple[str, ...] | None, str | None]:
    """The vocabulary in the order of its ids, and the file it is from.

    Raises:
      InputError: ids are missing, or vocab.txt and tokenizer.json differ.
    """
    text, fast = join(folder, VOCAB_FILE), join(folder, "tokenizer.json")
    in_text = read_vocabulary(text) if tf.io.gfile.exists(text) else None
    in_fast = _pieces_of_fast(fast) if tf.io.gfile.exists(fast) else None
    added = join(folder, "added_tokens.json")
    if in_text is not None and tf.io.gfile.exists(added):
        numbered = dict(zip(in_text, range(len(in_text)), strict=True))
        in_text = _in_order(numbered | read_json(added), added)
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
        raise refused_model(path, f"a vocabulary of the kind {kind}", "WordPiece")
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
        VOCAB_FILE: vocabulary_text(pieces),
        "tokenizer_config.json": _json(settings | special),
        "special_tokens_map.json": _json(special),
    }


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
