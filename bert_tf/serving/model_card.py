"""What accompanies an exported model: README.md, export.json, and the requests to warm up with."""

import contextlib
import dataclasses
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import __version__, files
from bert_tf.checkpoints import tf1
from bert_tf.config import BertConfig, declared, size
from bert_tf.errors import printable
from bert_tf.runtime import import_tensorflow_text
from bert_tf.serving.options import DEFAULT, FROM_EXAMPLES, FROM_IDS, TASKS, ServingOptions
from bert_tf.serving.signatures import ServingTask

VERSIONS = {
    "bert-tf": __version__,
    "tensorflow": tf.__version__,
    "tensorflow-text": import_tensorflow_text().__version__,
    "keras": keras.__version__,
}
THRESHOLD = "null_score_diff_threshold"
# Who gets a model need not learn where it was made.
_PATHS = ("_checkpoint", "_dir", "_file")  # end the names of flags whose values are paths
_PLACES = ("gcp_project", "master", "tpu", "tpu_name", "tpu_zone")  # flags that name machines


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorKind:
    """Type and shape of an input; None: any size."""

    dtype: str
    shape: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedOptions(ServingOptions):
    """The options in export.json."""

    max_seq_length: int = size()
    hidden_size: int | None = None  # of vectors


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportMetadata:
    """The content of a SavedModel's export.json, for `bert_tf.config.typed`."""

    task: str = declared(choices=TASKS)
    texts: dict[str, str]
    outputs: dict[str, str]
    signatures: dict[str, dict[str, TensorKind]]  # inputs
    answers: dict[str, dict[str, str]]
    options: ListedOptions
    do_lower_case: bool
    never_split: tuple[str, ...] = ()  # pieces that the tokenizer keeps whole
    config: BertConfig
    source: str
    commands: tuple[str, ...]
    metrics: dict[str, str]
    versions: dict[str, str]


def metrics_of(path: str) -> dict[str, str]:
    """Reads the eval_results.txt of a checkpoint: beside it, or above the folder `best`.

    Empty if there is none, or if its step is another checkpoint's.
    """
    folder = path if tf.io.gfile.isdir(path) else os.path.dirname(path)
    metrics = _metrics_in(folder)
    if not metrics and folder.rpartition("/")[2] == files.BEST:
        metrics = _metrics_in(os.path.dirname(folder))
    step = tf1.step_of(path)
    is_other = step and metrics.get(tf1.GLOBAL_STEP) not in (None, str(step))
    return {} if is_other else metrics


def _metrics_in(folder: str) -> dict[str, str]:
    path = os.path.join(folder, files.EVAL_RESULTS)
    if not tf.io.gfile.exists(path):
        return {}
    files.check_regular(path)
    pairs = (line.rstrip("\r\n").partition(" = ") for line in files.read_text_lines(path))
    return {name: value for name, separator, value in pairs if separator}


def metadata_of(
    task: ServingTask,
    source: str,
    *,
    commands: Sequence[str] = (),
    converted: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The content of export.json. Of paths it has the last part only.

    Args:
      task: that is exported.
      source: the path of its checkpoint.
      commands: that made the model, as far as they are known, as typed into a shell.
      converted: the result of `portable.write_portable`; None for a SavedModel.
    """
    options, tokenizer = task.listed_options(), task.sequences.tokenizer
    if converted is None:
        signatures = task.signatures()
        converted = {
            "texts": dict(task.texts),
            "outputs": dict(task.outputs),
            "signatures": {
                name: {key: spec_of(value) for key, value in signature.inputs.items()}
                for name, signature in signatures.items()
            },
            "answers": {name: dict(signature.outputs) for name, signature in signatures.items()},
        }
    else:
        options = {name: v for name, v in options.items() if name not in task.text_options}
    return {
        "task": task.name,
        **converted,
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


def metadata_text(metadata: Mapping[str, Any]) -> str:
    """The text of export.json."""
    return json.dumps(metadata, indent=1, ensure_ascii=False) + "\n"


def spec_of(spec: tf.TensorSpec | tf.Tensor) -> dict[str, Any]:
    """The type and shape of a tensor, for JSON."""
    return {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}


# ---------------------------------------------------------------------------- README.md

_SAVED_MODEL = """\
{title} A BERT as a SavedModel that takes raw text, for TensorFlow Serving and
whatever else loads one. Every input and output has a row for each text; B is their
number, which may be any, also 0.

## `{default}`

Takes strings in UTF-8 (bytes that are not are skipped), each [B] unless it says more:

{texts}

Gives:

{outputs}

## `{ids}` and `{examples}`

`{ids}` takes features as in the records that the model was trained on, padded to
one width (null: any size); `{examples}` takes serialized tf.Examples of such
records, of any lengths:

{id_inputs}
{example_inputs}

Both give, with S as long as the longest row asked (columns that are padding in every row
are left out):

{id_outputs}
"""
_FURTHER = """
## `{name}`

Takes (null: any size):

{inputs}

Gives, with S as long as the longest row asked:

{outputs}
"""
_PORTABLE = """\
{title} A BERT as `{file}`, with {weights} weights: ids in, numbers out. Texts are made
into ids by the caller, with the vocabulary in `assets/vocab.txt`: [CLS] text [SEP], or
[CLS] first [SEP] second [SEP] with segment 1 for the second; mask 1 for real pieces.

Takes (null: any size):

{inputs}

Gives:

{outputs}

Greatest difference from the model that it was made of, in float32, on drawn ids: \
{difference:.1e}.
"""
_CHOICES = """\
Of the answers that name a label, a piece or an ending, or say whether a label applies, \
{different} of {compared} differed.
"""
_COMMON = """
## Options

{options}

## Model

- text: {case}; vocabulary in `assets/vocab.txt`
{sizes}
- from: {source}

## Metrics

{metrics}{threshold}

## Made with

{commands}
{versions}
"""
_OTHER_THRESHOLD = """

Those are with {name} = {measured}, but for best_ and at_best_f1_; this model decides by \
{decides}."""


def model_card(metadata: Mapping[str, Any], title: str) -> str:
    """The README.md of an export.

    Args:
      metadata: as of `metadata_of`.
      title: one line: what the model does.
    """
    body = _portable_body if "file" in metadata else _saved_model_body
    config, metrics = metadata["config"], metadata["metrics"]
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    common = _COMMON.format(
        options=_listed({name: _shown(v) for name, v in metadata["options"].items()}, "{}: {}"),
        case=_case(metadata),
        sizes=_listed({name: config[name] for name in sizes}, "{}: {}"),
        source=_code(metadata["source"]),
        metrics="\n".join(f"- {_code(f'{name}: {value}')}" for name, value in metrics.items())
        or "None were found beside the checkpoint.",
        threshold=_other_threshold(metadata),
        commands="".join(f"    {printable(command)}\n" for command in metadata["commands"]),
        versions=_listed(metadata["versions"], "{} {}"),
    )
    return f"# {metadata['task']}\n\n{body(metadata, title)}{common}"


def _case(metadata: Mapping[str, Any]) -> str:
    """How text is cut into pieces, in words."""
    case = "lower-cased" if metadata["do_lower_case"] else "cased"
    kept = ", ".join(map(_code, metadata.get("never_split", ())))
    return case + (f"; never split, wherever a text has them: {kept}" if kept else "")


def _saved_model_body(metadata: Mapping[str, Any], title: str) -> str:
    inputs, outputs = metadata["signatures"], metadata["answers"]
    body = _SAVED_MODEL.format(
        title=title,
        default=DEFAULT,
        ids=FROM_IDS,
        examples=FROM_EXAMPLES,
        texts=_listed(metadata["texts"]),
        outputs=_listed(metadata["outputs"]),
        id_inputs=_tensors(inputs[FROM_IDS]),
        example_inputs=_tensors(inputs[FROM_EXAMPLES]),
        id_outputs=_listed(outputs[FROM_IDS]),
    )
    for name in inputs:
        if name not in (DEFAULT, FROM_IDS, FROM_EXAMPLES):
            body += _FURTHER.format(
                name=name, inputs=_tensors(inputs[name]), outputs=_listed(outputs[name])
            )
    return body


def _portable_body(metadata: Mapping[str, Any], title: str) -> str:
    body = _PORTABLE.format(
        title=title,
        file=metadata["file"],
        weights="int8" if metadata["int8_weights"] else "float32",
        inputs=_tensors(metadata["inputs"]),
        outputs=_tensors(metadata["answers"]),
        difference=metadata["greatest_difference"],
    )
    choices = metadata["choices"]
    return body + (_CHOICES.format(**choices) if choices["compared"] else "")


def _listed(values: Mapping[str, Any], form: str = "`{}`: {}") -> str:
    return "\n".join(f"- {form.format(name, value)}" for name, value in values.items())


def _tensors(specs: Mapping[str, Mapping[str, Any]]) -> str:
    return _listed({name: f"{s['dtype']} {json.dumps(s['shape'])}" for name, s in specs.items()})


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


def _other_threshold(metadata: Mapping[str, Any]) -> str:
    """A note where metrics are of another threshold than the export decides by."""
    measured, decides = metadata["metrics"].get(THRESHOLD), metadata["options"].get(THRESHOLD)
    if not metadata["options"].get("version_2_with_negative"):
        return ""  # it answers every question
    if measured is None or decides is None:
        return ""
    with contextlib.suppress(ValueError):  # a file of results may say anything
        if float(measured) == decides:
            return ""
    return _OTHER_THRESHOLD.format(name=THRESHOLD, measured=_code(measured), decides=decides)


# ---------------------------------------------------------------------------- warm-up requests

WARM_UP_FILE = "tf_serving_warmup_requests"


def warm_up_records(
    requests: Sequence[tuple[str, Mapping[str, np.ndarray]]], *, model_name: str
) -> list[bytes]:
    """Serialized `PredictionLog` messages, which TF Serving runs when it loads a model.

    Written in the wire format, so that an export needs no tensorflow-serving-api (field numbers as
    in tensorflow_serving/apis; a test reads them with that package):

        PredictionLog.predict_log = 6 > PredictLog.request = 1 > PredictRequest
        PredictRequest: model_spec = 1 {name = 1, signature_name = 3},
                        inputs = 2 {key = 1, value = 2}

    Args:
      requests: the signature's name and the inputs of each.
      model_name: TF Serving's name of the model.
    """
    records = []
    for signature, inputs in requests:
        model_spec = _field(1, model_name.encode()) + _field(3, signature.encode())
        request = _field(1, model_spec)
        for name, value in sorted(inputs.items()):
            tensor = tf.make_tensor_proto(value).SerializeToString()
            request += _field(2, _field(1, name.encode()) + _field(2, tensor))
        records.append(_field(6, _field(1, request)))
    return records


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes: its number and type, its length as a varint, its content."""
    length, size = bytearray(), len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content
