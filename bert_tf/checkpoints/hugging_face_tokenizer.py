"""The tokenizer's files in Hugging Face's folders: vocabulary and settings, read and written.

There are up to five, and what they say must be what BERT's tokenizer does: other tokenizers would
give other ids for the same text without an error.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from bert_tf.checkpoints.metadata import VOCAB_FILE, json_text, refused_model, vocabulary_text
from bert_tf.config import OtherKeys, declared, typed
from bert_tf.errors import InputError
from bert_tf.files import read_json
from bert_tf.tokenization.wordpiece import (
    LONE_SURROGATE,
    UNKNOWN,
    FullTokenizer,
    read_vocabulary,
)

SETTINGS, FAST = "tokenizer_config.json", "tokenizer.json"
ADDED, SPECIAL = "added_tokens.json", "special_tokens_map.json"
_NAMES = ("unk", "sep", "pad", "cls", "mask")
SPECIAL_TOKENS = {f"{name}_token": f"[{name.upper()}]" for name in _NAMES}
# Classes of transformers; DistilBERT's and ELECTRA's do the same as BERT's. The generic ones do
# what tokenizer.json says, whatever else is in tokenizer_config.json; the others the reverse.
_BERTS = tuple(
    f"{name}Tokenizer{fast}" for name in ("Bert", "DistilBert", "Electra") for fast in ("", "Fast")
)
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
_CHINESE = "Chinese characters apart, as BERT has them"
LEAST_LONGEST_WORD = 100  # characters; transformers' limit, where the original has 200

Files = TypeVar("Files")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddedToken(OtherKeys):
    """A token that is found in a text before it is cut into words."""

    content: str
    id: int | None = None
    special: bool | None = None
    normalized: bool | None = None  # whether it is looked for in lower-cased text
    lstrip: bool | None = None
    rstrip: bool | None = None
    single_word: bool | None = None

    @property
    def is_never_split(self) -> bool:
        """Whether it is found as `FullTokenizer` finds its `never_split`: anywhere, as it is."""
        normalized = not self.special if self.normalized is None else self.normalized
        return not (normalized or self.lstrip or self.rstrip or self.single_word)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(OtherKeys):
    """A tokenizer_config.json, without its special tokens."""

    tokenizer_class: str | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    do_basic_tokenize: bool | None = None
    never_split: tuple[str, ...] | None = None
    model_max_length: float | None = declared(None, low=1)  # 1e30 stands for none
    added_tokens_decoder: dict[str, AddedToken] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part(OtherKeys):
    """A part of a tokenizer.json; its settings are those of BERT's normalizer."""

    type: str
    clean_text: bool | None = None
    lowercase: bool | None = None
    strip_accents: bool | None = None
    handle_chinese_chars: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(OtherKeys):
    """The vocabulary in a tokenizer.json, and how words are searched for in it."""

    type: str = "WordPiece"
    vocab: Any = None
    unk_token: str | None = None
    continuing_subword_prefix: str | None = None
    max_input_chars_per_word: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fast(OtherKeys):
    """A tokenizer.json."""

    model: Model
    normalizer: Part | None = None
    pre_tokenizer: Part | None = None
    added_tokens: tuple[AddedToken, ...] | None = None


class Tokenizer(NamedTuple):
    """What is read of all files."""

    pieces: tuple[str, ...] | None  # the vocabulary in the order of its ids
    vocab_file: str | None  # where that is
    do_lower_case: bool | None
    never_split: tuple[str, ...] = ()  # pieces that are found in a text before it is cut
    max_length: float | None = None  # most ids of a sequence


def read_tokenizer(folder: str, *, model_class: str | None = None) -> Tokenizer:
    """Reads the files of a folder.

    Args:
      folder: of the files.
      model_class: the tokenizer_class in config.json, for folders whose tokenizer has none.

    Raises:
      InputError: the tokenizer does something else than BERT's, or its files contradict each other.
    """
    source, special_source, fast_source, bare_source = (
        os.path.join(folder, name) for name in (SETTINGS, SPECIAL, FAST, ADDED)
    )
    settings = read_object(Settings, source) or Settings()
    fast = read_object(Fast, fast_source)
    added = [
        *_special_tokens(special_source),
        *_special_tokens(source),
        *((source, token) for token in (settings.added_tokens_decoder or {}).values()),
        *((fast_source, token) for token in (fast and fast.added_tokens) or ()),
    ]
    kept = _never_split(added, bare_source)
    own_class = settings.tokenizer_class or model_class or _BERTS[0]
    if own_class not in (*_BERTS, *(_GENERIC if fast else ())):
        raise refused_model(source, f"tokenizer_class {own_class!r:.80}", f"a {_BERTS[0]}")
    if settings.do_basic_tokenize is False:
        raise refused_model(source, "do_basic_tokenize false", "text cut into words first")
    own = settings.never_split or ()  # alone it is only of words between spaces
    if never := set(own) - {*SPECIAL_TOKENS.values(), *kept}:
        expected = "added tokens only, which are found anywhere"
        raise refused_model(source, f"never_split {sorted(never)!r:.80}", expected)
    chinese = settings.tokenize_chinese_chars
    lower, strip = settings.do_lower_case, settings.strip_accents
    if fast:
        _check_fast(fast_source, fast)
        if own_class in _GENERIC or lower is None:
            source, part = fast_source, fast.normalizer
            chinese, lower, strip = part.handle_chinese_chars, part.lowercase, part.strip_accents
    if chinese is False:
        raise refused_model(source, "tokenize_chinese_chars false", _CHINESE)
    if strip not in (None, lower):
        received = f"strip_accents {strip} and do_lower_case {lower}"
        raise refused_model(source, received, "both true or both false, as BERT has them")
    never_split = tuple(dict.fromkeys((*own, *kept)))
    pieces, vocab_file = _read_pieces(folder, settings, fast)
    return Tokenizer(pieces, vocab_file, lower, never_split, settings.model_max_length)


def read_object(cls: type[Files], path: str) -> Files | None:
    """What a JSON file says; None if it is not there."""
    return typed(cls, read_json(path), source=path) if tf.io.gfile.exists(path) else None


def _check_fast(source: str, fast: Fast) -> None:
    """Raises `InputError` if the parts of a tokenizer.json are not BERT's."""
    model, normalizer, splitter = fast.model, fast.normalizer, fast.pre_tokenizer
    kinds = {  # what is there, and what BERT has
        "a normalizer of the type": (normalizer and normalizer.type, "BertNormalizer"),
        "a pre_tokenizer of the type": (splitter and splitter.type, "BertPreTokenizer"),
        "a model of the type": (model.type, "WordPiece"),
        "the prefix": (model.continuing_subword_prefix or "##", "##"),
        "unk_token": (model.unk_token or UNKNOWN, UNKNOWN),
    }
    for what, (kind, only) in kinds.items():
        if kind != only:
            raise refused_model(source, f"{what} {kind}", only)
    if normalizer.clean_text is False:
        raise refused_model(source, "clean_text false", "control characters taken out")
    longest = model.max_input_chars_per_word
    if longest is not None and longest < LEAST_LONGEST_WORD:
        received = f"max_input_chars_per_word {longest}"
        raise refused_model(source, received, f"{LEAST_LONGEST_WORD} or more")


def _special_tokens(source: str) -> Iterator[tuple[str, AddedToken]]:
    """The special tokens beside BERT's own, each with the file; `InputError` if BERT's differ."""
    values = read_object(dict[str, Any], source) or {}
    for name, only in SPECIAL_TOKENS.items():
        token = values.get(name)
        if token is not None and _values_of(token).get("content") != only:
            raise refused_model(source, f"{name} {token!r:.80}", only)
    for name in ("additional_special_tokens", "extra_special_tokens"):
        tokens = values.get(name) or ()
        if isinstance(tokens, Mapping):
            tokens = tokens.values()
        if not isinstance(tokens, Iterable) or isinstance(tokens, str):
            raise InputError(f"{source} with {name} {tokens!r:.80}", "a list", f"correct {name}")
        for token in tokens:
            given = {"special": True, **_values_of(token)}
            yield source, typed(AddedToken, given, source=f"{source}, {name}")


def _values_of(token: Any) -> Mapping[str, Any]:
    """A token is an object with its `content`, or that alone."""
    return token if isinstance(token, Mapping) else {"content": token}


def _never_split(added: Iterable[tuple[str, AddedToken]], bare_file: str) -> tuple[str, ...]:
    """The added tokens beside BERT's own, each once.

    BERT's own are text like any other here, as in the original, unless `never_split` lists them.

    Args:
      added: tokens, each with its file.
      bare_file: where tokens may have an id alone; then another file must say how they are found.

    Raises:
      InputError: one is not found anywhere in a text, as it is.
    """
    kept: dict[str, None] = {}
    bare = read_json(bare_file) if tf.io.gfile.exists(bare_file) else {}
    for source, token in [*added, *((bare_file, AddedToken(content=name)) for name in bare)]:
        is_known = token.content in kept and source == bare_file
        if is_known or token.content in SPECIAL_TOKENS.values():
            continue
        is_text = token.content and not LONE_SURROGATE.search(token.content)
        if not (is_text and token.is_never_split):
            raise InputError(
                f"{source} with the added token {token.content!r:.80}",
                "tokens that are found anywhere in a text, before it is lower-cased: special, "
                "without normalized, lstrip, rstrip and single_word",
                "make it such a token, or take it out of the tokenizer's files",
            )
        kept[token.content] = None
    return tuple(kept)


# ---------------------------------------------------------------------------- vocabulary


def _read_pieces(
    folder: str, settings: Settings, fast: Fast | None
) -> tuple[tuple[str, ...] | None, str | None]:
    """The vocabulary in the order of its ids, and the file it is from."""
    text, added, path = (os.path.join(folder, name) for name in (VOCAB_FILE, ADDED, FAST))
    in_text = read_vocabulary(text) if tf.io.gfile.exists(text) else []
    in_fast = _pieces_of_fast(path, fast.model.vocab) if fast else []
    if fast:
        _add_tokens(in_fast, [(t.content, t.id) for t in fast.added_tokens or ()], path)
    if (pieces := in_text or in_fast) and tf.io.gfile.exists(added):
        _add_tokens(pieces, read_json(added).items(), added)
    if pieces:
        decoder = (settings.added_tokens_decoder or {}).items()
        ids = {str(number): number for number in range(len(pieces) + len(decoder))}
        numbered = [(token.content, ids.get(number, number)) for number, token in decoder]
        _add_tokens(pieces, numbered, os.path.join(folder, SETTINGS))
    if in_text and in_fast and in_text != in_fast[: len(in_text)]:
        other = next(i for i, piece in enumerate(in_text) if in_fast[i : i + 1] != [piece])
        received = f"{text} and {path}, which differ at id {other}"
        raise InputError(received, "one vocabulary", "remove the file that is not the model's")
    if len(in_fast) > len(in_text):
        return tuple(in_fast), path
    return (tuple(in_text), text) if in_text else (None, None)


def _pieces_of_fast(path: str, vocab: Any) -> list[str]:
    """The keys of a vocabulary in the order of their ids."""
    if not isinstance(vocab, dict) or not vocab:
        wrong = f" with the vocabulary {vocab!r:.80}"
    elif any(map(LONE_SURROGATE.search, vocab)):
        wrong = ", whose vocabulary has half a character"
    elif {type(number) for number in vocab.values()} != {int} or (
        sorted(vocab.values()) != list(range(len(vocab)))
    ):
        wrong = f", whose ids are not 0 to {len(vocab) - 1}"
    else:
        return sorted(vocab, key=vocab.__getitem__)
    expected = "an object of word pieces with their ids, without gaps"
    raise InputError(f"{path}{wrong}", expected, "copy the file again")


def _add_tokens(pieces: list[str], added: Iterable[tuple[str, Any]], path: str) -> None:
    """Puts added tokens behind a vocabulary that does not have them."""
    for token, number in sorted(added, key=lambda pair: str(pair[1]).rjust(99)):
        if token not in pieces and number == len(pieces):
            pieces.append(token)
        elif not isinstance(number, int) or pieces[number : number + 1] != [token]:
            received = f"{path} with the token {token} as number {number!r:.80}"
            expected = f"its number in the vocabulary of {len(pieces)} word pieces"
            raise InputError(received, expected, "copy the tokenizer's files again")


def write_tokenizer(tokenizer: FullTokenizer, longest: int) -> dict[str, str]:
    """The tokenizer's files, text by name; `longest`: the most ids of a sequence."""
    pieces = tokenizer.pieces
    special: dict[str, Any]
    special = {name: token for name, token in SPECIAL_TOKENS.items() if token in pieces}
    settings = {
        "do_lower_case": tokenizer.do_lower_case,
        "model_max_length": longest,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": _BERTS[0],
    }
    if kept := tokenizer.never_split:
        settings["never_split"] = list(kept)
        others = [piece for piece in kept if piece not in SPECIAL_TOKENS.values()]
        special |= {"additional_special_tokens": others} if others else {}
    return {
        VOCAB_FILE: vocabulary_text(pieces),
        SETTINGS: json_text(settings | special),
        SPECIAL: json_text(special),
    }
