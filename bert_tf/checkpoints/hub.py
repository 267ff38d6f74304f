"""Weights by name, `hf:OWNER/NAME` or `hf:OWNER/NAME@REVISION`, from Hugging Face's hub.

The library huggingface_hub fetches the files into its cache: only those in `TEXTS` and safetensors,
no pickle and no code. They are read like any folder of Hugging Face's. Messages and records name
the weights with the commit, `hf:OWNER/NAME@COMMIT`, which opens the same files again.
"""

import dataclasses
import logging
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


def open_hub(path: str) -> metadata.Weights:
    """Opens the weights of a name; fetches the files that the cache lacks.

    Raises:
      InputError: huggingface_hub is not installed, the hub cannot be reached and the cache lacks a
        file, the repository or revision does not exist or may not be read, it has no safetensors,
        or it is not of a BERT.
    """
    name = pinned(path)
    folder = _ask(name, "snapshot_download", allow_patterns=TEXTS)
    # Without the list of files in the cache it is unknown whether the folder has all of them.
    if not {*WEIGHTS} & {file.path for file in _ask(name, "get_cached_repo_tree")}:
        remedy = f"name another one; if its weights are a pickle, {_CLONE}"
        raise InputError(f"{name}, which has no {WEIGHTS[0]}", _EXPECTED, remedy)
    BertConfig.from_json_file(f"{folder}/{TEXTS[0]}")  # refuses other models before the download
    _ask(name, "snapshot_download", allow_patterns=WEIGHTS)
    weights = hugging_face.open_hugging_face(folder)
    facts = dataclasses.replace(weights.metadata, origin=name)
    return dataclasses.replace(weights, path=name, metadata=facts)


def pinned(path: str, folder: str | None = None) -> str:
    """A name with the commit of its revision.

    Args:
      path: as for `open_hub`.
      folder: the folder of a run. A path without a revision gets the commit that the run began
        with.

    Raises:
      InputError: as `open_hub`.
    """
    origin = folder and metadata.ModelMetadata.from_json_file(f"{folder}/{TEXTS[-1]}").origin
    if origin and origin.startswith(f"{path}@"):
        return origin
    return f"{path.partition('@')[0]}@{_ask(path, 'resolve_revision').resolved}"


def _ask(path: str, function: str, **options: Any) -> Any:
    """Calls a function of huggingface_hub with a repository and its revision."""
    package = "huggingface_hub"
    hub = import_extra(package, package=package, extra="hub", needed_by=path, otherwise=_CLONE)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs each request as INFO
    name, _, revision = path.partition(":")[2].partition("@")
    try:
        return getattr(hub, function)(name, revision=revision or None, **options)
    except Exception as error:
        says = f"{type(error).__name__}, {first_line(error.__cause__ or error)}"
        received = f"{path}, which cannot be fetched ({says})"
        remedy = (
            "correct it; check network, disk, HF_HUB_OFFLINE and HF_ENDPOINT; accept the terms "
            f"of a gated one, and run hf auth login; or {_CLONE}"
        )
        raise InputError(received, _EXPECTED, remedy) from None
