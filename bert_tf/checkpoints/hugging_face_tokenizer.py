"""The tokenizer's files in Hugging Face's folders: vocabulary and settings, read and written.

There are up to five. They must describe BERT's tokenizer: another one would give other ids for the
same text without an error. The declarations below list the values that BERT's tokenizer has.
"""

import dataclasses
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.metadata import VOCAB_FILE, damage_errors, json_text, vocabulary_text
from bert_tf.declarations import OtherKeys, declared, typed
from bert_tf.errors import InputError, quoted
from bert_tf.files import read_json
from bert_tf.tokenization import basic
from bert_tf.tokenization.wordpiece import UNKNOWN, FullTokenizer, read_vocabulary

SETTINGS = "tokenizer_config.json"
FAST = "tokenizer.json"
ADDED = "added_tokens.json"
SPECIAL = "special_tokens_map.json"
_NAMES = ("unk", "sep", "pad", "cls", "mask")
SPECIAL_TOKENS = {f"{name}_token": f"[{name.upper()}]" for name in _NAMES}
_OWN = tuple(SPECIAL_TOKENS.values())
# Classes of transformers. DistilBERT's and ELECTRA's do the same as BERT's. The generic ones follow
# tokenizer.json, the others tokenizer_config.json.
_BERTS = tuple(
    f"{name}Tokenizer{fast}" for name in ("Bert", "DistilBert", "Electra") for fast in ("", "Fast")
)
_AS_A_PIECE = (
    f"append it to {VOCAB_FILE}, where its id says, and to the vocab of the model in {FAST}, and "
    "take its entry out of the added tokens in every file: it is then a word piece of any text"
)
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")

Files = TypeVar("Files")
Case: TypeAlias = dict[str, Any]  # arguments of `basic.load_unicode_table`


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddedToken(OtherKeys):
    """A token that is found in a text before that is cut into words.

    It is found anywhere, as it is written, unless a field that is true says otherwise.
    """

    content: str = declared(filled=True)
    normalized: bool | None = None  # in the normalized text: `added_words`, else `never_split`
    lstrip: bool | None = None  # with white space before it
    rstrip: bool | None = None  # with white space behind it
    single_word: bool | None = None  # not within a word


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(OtherKeys):
    """A tokenizer_config.json, without its special tokens."""

    tokenizer_class: str | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = declared(None, choices=(True,))
    do_basic_tokenize: bool | None = declared(None, choices=(True,))
    never_split: tuple[str, ...] | None = None
    model_max_length: float | None = declared(None, low=1)  # 1e30 stands for none
    added_tokens_decoder: dict[str, dict[str, Any]] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part(OtherKeys):
    """A part of a tokenizer.json before the model; the settings are the normalizer's."""

    type: str = declared(choices=("BertNormalizer", "BertPreTokenizer"))
    clean_text: bool | None = declared(None, choices=(True,))
    handle_chinese_chars: bool | None = declared(None, choices=(True,))
    lowercase: bool | None = None
    strip_accents: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(OtherKeys):
    """The vocabulary in a tokenizer.json, and how words are searched for in it."""

    type: str = declared("WordPiece", choices=("WordPiece",))
    vocab: dict[str, int]
    unk_token: str | None = declared(None, choices=(UNKNOWN,))
    continuing_subword_prefix: str | None = declared(None, choices=("##",))
    # transformers has 100, where the original has 200
    max_input_chars_per_word: int | None = declared(None, low=100)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fast(OtherKeys):
    """A tokenizer.json."""

    model: Model
    normalizer: Part
    pre_tokenizer: Part
    added_tokens: tuple[dict[str, Any], ...] | None = None


class Tokenizer(NamedTuple):
    """What the files say of the tokenizer."""

    pieces: tuple[str, ...] | None  # the vocabulary in the order of its ids
    vocab_file: str | None  # where that is
    do_lower_case: bool | None
    strip_accents: bool | None = None  # as do_lower_case
    never_split: tuple[str, ...] = ()  # added tokens that are found as they are written
    added_words: tuple[str, ...] = ()  # those that are found in normalized text
    max_length: float | None = None  # most ids of a sequence


def read_tokenizer(folder: str, *, model_class: str | None = None) -> Tokenizer:
    """Reads the files of a folder.

    Args:
      folder: the folder of the files.
      model_class: the tokenizer_class in config.json, for folders whose tokenizer has none.

    Raises:
      InputError: the tokenizer does something else than BERT's, or its files contradict each other.
    """
    source = os.path.join(folder, SETTINGS)
    with damage_errors(source, "the settings of a tokenizer, and files that agree with them"):
        settings = read_object(Settings, source) or Settings()
        fast = read_object(Fast, os.path.join(folder, FAST))
        class_name = settings.tokenizer_class or model_class or _BERTS[0]
        if class_name not in (*_BERTS, *(_GENERIC if fast else ())):
            raise refused_model(source, f"tokenizer_class {quoted(class_name)}", f"a {_BERTS[0]}")
        lower = settings.do_lower_case
        strip = settings.strip_accents
        if fast and class_name in _GENERIC:
            lower = fast.normalizer.lowercase
            strip = fast.normalizer.strip_accents
        elif fast and lower is None:
            lower = True  # as BERT's classes do, whatever the normalizer of tokenizer.json says
        case = {"do_lower_case": lower is not False, "strip_accents": strip}
        added = list(_added_tokens(folder, settings, fast))
        is_normalized = _how_found(added)
        as_written = [token for token, normalized in is_normalized.items() if not normalized]
        added_words = [token for token, normalized in is_normalized.items() if normalized]
        listed = settings.never_split or ()  # alone it is only of words between spaces
        if unknown := {*listed} - {*_OWN, *as_written}:
            expected = "added tokens only, which are found anywhere"
            raise refused_model(source, f"never_split {quoted(sorted(unknown))}", expected)
        pieces, vocab_file = _read_pieces(folder, fast, added, case, added_words)
    return Tokenizer(
        pieces,
        vocab_file,
        lower,
        strip_accents=None if strip == lower else strip,
        never_split=tuple(dict.fromkeys((*listed, *as_written))),
        added_words=tuple(added_words),
        max_length=settings.model_max_length,
    )


def read_object(cls: type[Files], path: str) -> Files | None:
    """The content of a JSON file as a `cls`; None without the file."""
    return typed(cls, read_json(path), source=path) if tf.io.gfile.exists(path) else None


def refused_model(source: str, received: str, expected: str) -> InputError:
    """The error for a model that is no BERT; `source` names the file that says so."""
    remedy = "give a BERT; others compute something else"
    return InputError(f"{source} with {received}", expected, remedy)


def _added_tokens(
    folder: str, settings: Settings, fast: Fast | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tokens beside the vocabulary in all files, each with its file."""
    source, special, fast_source, bare = (
        os.path.join(folder, name) for name in (SETTINGS, SPECIAL, FAST, ADDED)
    )
    for path in (special, source):
        values = read_object(dict[str, Any], path) or {}
        for name, only in SPECIAL_TOKENS.items():
            token = values.get(name)
            if token is not None and _values_of(token).get("content") != only:
                raise refused_model(path, f"{name} {quoted(token)}", only)
        for name in ("additional_special_tokens", "extra_special_tokens"):
            tokens = values.get(name) or ()
            for token in tokens.values() if isinstance(tokens, Mapping) else tokens:
                yield path, {"special": True} | _values_of(token)
    by_id = {int(number): token for number, token in (settings.added_tokens_decoder or {}).items()}
    for number in sorted(by_id):
        yield source, by_id[number] | {"id": number}
    for token in (fast and fast.added_tokens) or ():
        yield fast_source, token
    for content, number in (read_object(dict[str, int], bare) or {}).items():
        yield bare, {"content": content, "id": number}


def _values_of(token: Any) -> dict[str, Any]:
    """The fields of a token, which is an object, or its `content` alone."""
    return token if isinstance(token, dict) else {"content": token}


def _how_found(added: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, bool]:
    """Whether each added token beside BERT's own is found in the normalized text.

    BERT's own are text like any other here, as in the original, unless `never_split` lists them.
    Where a token is a string alone, or has an id alone, another file may say how it is found.

    Args:
      added: the tokens, each with its file.

    Raises:
      InputError: one is not found anywhere in a text; or two files say differently how.
    """
    is_normalized: dict[str, bool] = {}
    described: set[str] = set()
    for source, values in added:
        content = values.get("content")
        if content in _OWN:
            continue
        stated = {name: value for name, value in values.items() if value is not None}
        stated = {"normalized": not values.get("special")} | stated
        token = typed(AddedToken, stated, source=f"{source}, token {quoted(content)}")
        _refuse_otherwise_found(token, source)
        normalized = bool(token.normalized)
        is_name = os.path.basename(source) == ADDED or not {"id", "normalized"} & values.keys()
        if is_name:
            is_normalized.setdefault(token.content, normalized)
        elif token.content in described and normalized != is_normalized[token.content]:
            received = f"{source}, token {quoted(content)} with normalized {normalized}"
            expected = "the same value as in the tokenizer's other files"
            raise InputError(received, expected, "correct its entry in one of them")
        else:
            described.add(token.content)
            is_normalized[token.content] = normalized
    return is_normalized


def _refuse_otherwise_found(token: AddedToken, source: str) -> None:
    """Raises `InputError` unless a token is found anywhere."""
    fields = ("lstrip", "rstrip", "single_word")
    how = [name for name in fields if getattr(token, name)]
    if how:
        received = f"{source}, token {quoted(token.content)} with {' and '.join(how)} true"
        expected = "tokens that are found anywhere, without the white space around them"
        fixed = ", ".join(f"{json.dumps(name)}: false" for name in how)
        remedy = f"write {fixed} into its entry, in every file that has one"
        raise InputError(received, expected, remedy)


def _is_word(text: str, case: Case) -> bool:
    """Whether text has this as a word, or the beginning of one, after its case is changed."""
    table = basic.load_unicode_table(**case)
    points = np.array([*map(ord, text.removeprefix("##"))])
    rows = table.rows[table.pages[points // basic.PAGE], points % basic.PAGE]
    is_same = table.characters[rows] == [0] + [basic.ABSENT] * (table.characters.shape[1] - 1)
    return bool(is_same.all() and not (table.flags[rows] & basic.BREAK_BEFORE).any())


# ---------------------------------------------------------------------------- vocabulary


def _read_pieces(
    folder: str,
    fast: Fast | None,
    added: Iterable[tuple[str, Mapping[str, Any]]],
    case: Case,
    added_words: Collection[str],
) -> tuple[tuple[str, ...] | None, str | None]:
    """The vocabulary in the order of its ids, and the file it is from.

    Args:
      folder: the folder of the files.
      fast: its tokenizer.json, if there is one.
      added: the added tokens, each with its file: they stand behind the vocabulary or are in it.
      case: the case of the text.
      added_words: those that are found in normalized text.

    Raises:
      InputError: files contradict each other; or a token behind the vocabulary would be found here
        as a word piece too, where the library does not find it.
    """
    vocab_file = os.path.join(folder, VOCAB_FILE)
    fast_file = os.path.join(folder, FAST)
    vocabularies = {}
    if tf.io.gfile.exists(vocab_file):
        vocabularies[vocab_file] = read_vocabulary(vocab_file)
    if fast:
        vocabularies[fast_file] = _in_order(fast.model.vocab, fast_file)
    with_ids = [(token["id"], token["content"], file) for file, token in added if "id" in token]
    for pieces in vocabularies.values():
        for number, token, file in sorted(with_ids):
            if token not in pieces and number == len(pieces):
                if token not in _OWN and _is_other_piece(token, case, token in added_words):
                    received = f"{file} with the token {quoted(token)} behind the vocabulary"
                    expected = "tokens that no lower-cased word has in it, such as <e1>"
                    raise InputError(received, expected, _AS_A_PIECE)
                pieces.append(token)
            elif pieces[number : number + 1] != [token]:
                received = f"{file} with the token {token} as number {number}"
                expected = f"its number in the vocabulary of {len(pieces)} word pieces"
                raise InputError(received, expected, "copy the tokenizer's files again")
    if not vocabularies:
        return None, None
    if len(vocabularies) == 2 and vocabularies[vocab_file] != vocabularies[fast_file]:
        received = f"{vocab_file} and {fast_file}, which differ"
        raise InputError(received, "one vocabulary", "remove the file that is not the model's")
    file = next(iter(vocabularies))
    return tuple(vocabularies[file]), file


def _is_other_piece(token: str, case: Case, normalized: bool) -> bool:
    """Whether a token, as a word piece, is found where it is not as an added token.

    As a piece it continues a word if it begins with ##. Otherwise it begins one: in text with
    capitals and accents, where an added token that is not `normalized` is not found.
    """
    is_elsewhere = token.startswith("##") or (any(case.values()) and not normalized)
    return is_elsewhere and _is_word(token, case)


def _in_order(ids: Mapping[str, int], path: str) -> list[str]:
    """The pieces of a vocabulary in the order of their ids."""
    if sorted(ids.values()) != [*range(len(ids))]:
        expected = "an object of word pieces with the ids 0, 1, 2, ..."
        raise InputError(
            f"{path} with the vocabulary {quoted(ids)}", expected, "copy the file again"
        )
    return sorted(ids, key=ids.__getitem__)


def write_tokenizer(tokenizer: FullTokenizer, longest: int) -> dict[str, str]:
    """The texts of the tokenizer's files by name; `longest`: the most ids of a sequence."""
    pieces = tokenizer.pieces
    never_split = tokenizer.never_split
    special: dict[str, Any]
    special = {name: token for name, token in SPECIAL_TOKENS.items() if token in tokenizer.vocab}
    if others := [piece for piece in never_split if piece not in _OWN]:
        special["additional_special_tokens"] = others
    how = dict.fromkeys(("lstrip", "rstrip", "single_word", "special"), False)
    decoder = {
        str(tokenizer.vocab[word]): {"content": word, "normalized": True, **how}
        for word in tokenizer.added_words
    }
    settings = {
        **tokenizer.case,
        "model_max_length": longest,
        "tokenize_chinese_chars": True,
        "tokenizer_class": _BERTS[0],
        **({"never_split": list(never_split)} if never_split else {}),
        **({"added_tokens_decoder": decoder} if decoder else {}),
    }
    return {
        VOCAB_FILE: vocabulary_text(pieces),
        SETTINGS: json_text(settings | special),
        SPECIAL: json_text(special),
    }
