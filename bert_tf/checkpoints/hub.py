"""Weights by name: `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION`, by the library huggingface_hub.

Only the files in `TEXTS` and safetensors are fetched, into the library's cache: no pickle, no code.
They are read as any folder of Hugging Face's. Wherever a path is shown or recorded, the name with
the commit stands, `hf:OWNER/NAME@COMMIT`, which opens the same files again.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

from bert_tf.checkpoints import hugging_face, metadata
from bert_tf.config import BertConfig
from bert_tf.errors import InputError, first_line
from bert_tf.runtime import import_extra

TEXTS = ["config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "added_tokens.json",
         "special_tokens_map.json", "sentence_bert_config.json", "modules.json",
         "*/config.json", "model_facts.json"]  # fmt: skip
WEIGHTS = ["model.safetensors", "model.safetensors.index.json", "model-?????-of-?????.safetensors"]
_EXPECTED = f"hf:OWNER/NAME or hf:OWNER/NAME@REVISION of a BERT with {TEXTS[0]} and {WEIGHTS[0]}"
_CLONE = "clone the repository (with git LFS) and give the folder"
_REFUSALS = {  # by the client: what is wrong with a name, what to do
    "HFValidationError": ("which names no repository", "correct it"),
    "GatedRepoError": ("whose terms you have not accepted", "accept them, then run hf auth login"),
    "RepositoryNotFoundError": ("which is missing or private", "correct it, or run hf auth login"),
    "RevisionNotFoundError": ("a revision that does not exist", "correct what follows the @"),
}


def open_hub(path: str) -> metadata.Weights:
    """Opens the weights of a name; what the cache lacks is fetched.

    Raises:
      InputError: huggingface_hub is not installed, the hub cannot be reached and the cache lacks a
        file, the repository or revision does not exist or may not be read, it has no safetensors,
        or it is not of a BERT.
    """
    name = pinned(path)
    folder = _ask(name, "snapshot_download", allow_patterns=TEXTS)
    # Where the list of files is not in the cache, nobody knows whether the folder has them all.
    if not {*WEIGHTS} & {file.path for file in _ask(name, "get_cached_repo_tree")}:
        remedy = f"name another one; if its weights are a pickle, {_CLONE}"
        raise InputError(f"{name}, which has no {WEIGHTS[0]}", _EXPECTED, remedy)
    named = _named(folder, name)
    named(BertConfig.from_json_file)(f"{folder}/{TEXTS[0]}")  # before its weights come
    _ask(name, "snapshot_download", allow_patterns=WEIGHTS)
    weights = named(hugging_face.open_hugging_face)(folder)
    read, vocab_file = named(weights.read), (weights.vocab_file or "").replace(folder, name) or None
    facts = dataclasses.replace(weights.metadata, origin=name)
    return dataclasses.replace(weights, path=name, read=read, vocab_file=vocab_file, metadata=facts)


def pinned(path: str, folder: str | None = None) -> str:
    """A name with the commit of its revision.

    Args:
      path: as for `open_hub`.
      folder: of a run; a path without a revision gets the commit that the run began with.
    """
    origin = folder and metadata.ModelMetadata.from_json_file(f"{folder}/{TEXTS[-1]}").origin
    if origin and origin.startswith(f"{path}@"):
        return origin
    return f"{path.partition('@')[0]}@{_ask(path, 'resolve_revision').resolved}"


def _ask(path: str, function: str, **options: Any) -> Any:
    """What a function of the client answers for a name."""
    hub = "huggingface_hub"
    hub = import_extra(hub, package=hub, extra="hub", needed_by=path, otherwise=_CLONE)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # below it a line for each request
    name, _, revision = path.partition(":")[2].partition("@")
    try:
        return getattr(hub, function)(name, revision=revision or None, **options)
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        received = f"which is not fully in the cache ({first_line(error.__cause__ or error)})"
        other = received, f"check network, disk, HF_HUB_OFFLINE and HF_ENDPOINT; or {_CLONE}"
        received, remedy = next((_REFUSALS[kind] for kind in _REFUSALS if kind in kinds), other)
        raise InputError(f"{path}, {received}", _EXPECTED, remedy) from None


@contextlib.contextmanager
def _named(folder: str, name: str) -> Iterator[None]:
    """In messages, puts the name in the place of the cache's folder, which nobody should edit."""
    remedy = "name another repository or revision; remove a damaged one from the cache: hf cache rm"
    try:
        yield
    except InputError as error:
        received, expected = (x.replace(folder, name) for x in (error.received, error.expected))
        raise InputError(received, expected, remedy) from None
