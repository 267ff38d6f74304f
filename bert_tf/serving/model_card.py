"""What describes an exported model: export.json for programs, README.md for people."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf import __version__, files
from bert_tf.checkpoints import tf1
from bert_tf.config import BertConfig, OtherKeys
from bert_tf.errors import printable
from bert_tf.runtime import import_tensorflow_text
from bert_tf.serving.options import DEFAULT, ServingOptions
from bert_tf.serving.signatures import ServingTask, Signature

VERSIONS = {
    "bert-tf": __version__,
    "tensorflow": tf.__version__,
    "tensorflow-text": import_tensorflow_text().__version__,
    "keras": keras.__version__,
}
# Who gets a model need not learn where it was made.
_PATHS = ("_checkpoint", "_dir", "_file")  # end the names of flags whose values are paths
_PLACES = ("gcp_project", "master", "tpu", "tpu_name", "tpu_zone")  # flags that name machines


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportMetadata(OtherKeys):
    """What a program needs of a SavedModel's export.json, for `bert_tf.config.typed`.

    Beside it stand inputs and answers of all signatures, compared with the model when it is loaded,
    and what only people read.
    """

    task: str
    texts: dict[str, str]
    outputs: dict[str, str]
    options: ServingOptions
    do_lower_case: bool
    never_split: tuple[str, ...] = ()  # pieces that the tokenizer keeps whole
    config: BertConfig
    metrics: dict[str, str]


def metrics_of(path: str) -> dict[str, str]:
    """Reads the eval_results.txt of a checkpoint: beside it, or above the folder `best`.

    Empty if there is none, or if its step is another checkpoint's.
    """
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path)
    metrics = _metrics_in(folder)
    if not metrics and os.path.basename(folder) == files.BEST:
        metrics = _metrics_in(os.path.dirname(folder))
    step = tf1.step_of(path)
    is_other = step and metrics.get(tf1.GLOBAL_STEP) not in (None, str(step))
    return {} if is_other else metrics


def _metrics_in(folder: str) -> dict[str, str]:
    path = os.path.join(folder, files.EVAL_RESULTS)
    if not tf.io.gfile.exists(path):
        return {}
    pairs = (line.rstrip("\r\n").partition(" = ") for line in files.read_text_lines(path))
    return {name: value for name, separator, value in pairs if separator}


def metadata_of(
    task: ServingTask,
    source: str,
    signatures: Mapping[str, Signature],
    *,
    commands: Sequence[str] = (),
    **converted: Any,
) -> dict[str, Any]:
    """The content of export.json. Of paths it has the last part only.

    Args:
      task: that is exported.
      source: the path of its checkpoint.
      signatures: of the export.
      commands: that made the model, as far as they are known, as typed into a shell.
      **converted: what `portable.write_portable` says of a conversion; nothing for a SavedModel.
    """
    options, tokenizer = task.listed_options(), task.sequences.tokenizer
    if converted:
        options = {name: v for name, v in options.items() if name not in task.text_options}
    else:
        converted = {"texts": dict(task.texts), "outputs": dict(task.outputs)}
    return {
        "task": task.head.name,
        **converted,
        "signatures": specs_of({name: one.inputs for name, one in signatures.items()}),
        "answers": {name: dict(signature.outputs) for name, signature in signatures.items()},
        "options": options,
        "do_lower_case": tokenizer.do_lower_case,
        **({"never_split": list(tokenizer.never_split)} if tokenizer.never_split else {}),
        "config": task.sequences.config.to_dict(),
        "source": os.path.basename(source.rstrip("/")),
        "commands": [without_places(command) for command in commands],
        "metrics": metrics_of(source),
        "versions": VERSIONS,
    }


def without_places(command: str) -> str:
    """A command with the last part of each path, and without flags that name machines.

    >>> without_places("python /home/ann/run.py --data_dir ~/glue/RTE --tpu=grpc://a:1 --freeze=b/")
    'python run.py --data_dir RTE --freeze=b/'
    """
    try:
        words = shlex.split(command)
    except ValueError:  # a quotation mark without the second one
        words = command.split()
    kept, flag = [], ""
    for word in words:
        start, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        flag = start.lstrip("-") or flag  # a value may be the word behind its flag
        is_path = value.startswith(("/", "~", ".")) or "://" in value
        if is_path or not flag or flag.endswith(_PATHS):
            parts = (os.path.basename(part.rstrip("/")) or part for part in value.split(","))
            value = ",".join(parts)
        if flag not in _PLACES:
            kept.append(f"{start}{equals}{value}")
    return shlex.join(kept)


def specs_of(signatures: Mapping[str, Mapping[str, tf.TensorSpec]]) -> dict[str, Any]:
    """The types and shapes of the inputs of signatures, for JSON."""
    return {
        name: {k: {"dtype": v.dtype.name, "shape": v.shape.as_list()} for k, v in inputs.items()}
        for name, inputs in signatures.items()
    }


# ---------------------------------------------------------------------------- README.md

CARD, SAVED_MODEL_CARD, PORTABLE_CARD = (
    pathlib.Path(__file__).with_name(f"card{kind}.md").read_text(encoding="utf-8")
    for kind in ("", "_saved_model", "_portable")
)


def model_card(metadata: Mapping[str, Any], title: str) -> str:
    """The README.md of an export.

    Args:
      metadata: as of `metadata_of`.
      title: one line: what the model does.
    """
    about = SAVED_MODEL_CARD
    if "file" in metadata:
        weights = "int8" if metadata["int8_weights"] else "float32"
        about = PORTABLE_CARD.format(weights=weights, **metadata, **metadata["choices"])
    kept = ", ".join(map(_code, metadata.get("never_split", ())))
    case = "lower-cased" if metadata["do_lower_case"] else "cased"
    metrics = [_code(f"{name}: {value}") for name, value in metadata["metrics"].items()]
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    return CARD.format(
        task=metadata["task"],
        title=title,
        about=about.rstrip(),
        signatures="\n\n".join(_signature(metadata, name) for name in metadata["signatures"]),
        options=_listed(f"{name}: {_shown(v)}" for name, v in metadata["options"].items()),
        case=case + (f"; never split, wherever a text has them: {kept}" if kept else ""),
        sizes=_listed(f"{name}: {metadata['config'][name]}" for name in sizes),
        source=_code(metadata["source"]),
        metrics=_listed(metrics) or "None were found beside the checkpoint.",
        commands="".join(f"    {printable(command)}\n" for command in metadata["commands"]),
        versions=_listed(f"{name} {version}" for name, version in metadata["versions"].items()),
    )


def _signature(metadata: Mapping[str, Any], name: str) -> str:
    """The part about a signature: what it takes and gives."""
    meanings = metadata["texts"] if name == DEFAULT else {}
    takes = _listed(
        f"`{key}`: {spec['dtype']} {json.dumps(spec['shape'])}"
        + (f", {meanings[key]}" if key in meanings else "")
        for key, spec in metadata["signatures"][name].items()
    )
    gives = _listed(f"`{key}`: {what}" for key, what in metadata["answers"][name].items())
    return f"## `{name}`\n\nTakes:\n\n{takes}\n\nGives:\n\n{gives}"


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _shown(value: Any) -> str:
    """An option's value; the user's own texts are in lists."""
    return ", ".join(map(_code, value)) if isinstance(value, list) else str(value)


def _code(text: str) -> str:
    """A text of the user's as Markdown that shows it and interprets nothing in it.

    >>> print(_code("<b>"), _code("a`b"))
    `<b>` `` a`b ``
    """
    text = printable(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if "`" in text or not text.strip() else ""
    return f"{fence}{space}{text}{space}{fence}"
