"""What people and programs are told about an export: README.md and export.json beside it."""

import dataclasses
import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf import files
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import folder_of, join
from bert_tf.serving.signatures import DEFAULT, FROM_EXAMPLES, FROM_IDS, ServingTask

VERSIONS_OF = ("bert-tf", "tensorflow", "tensorflow-text", "keras")


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where an exported model comes from.

    Attributes:
      source: the checkpoint.
      commands: that made it, as far as they are known.
      metrics: by name, as in eval_results.txt.
    """

    source: str
    commands: tuple[str, ...] = ()
    metrics: Mapping[str, str] = dataclasses.field(default_factory=dict)


def metrics_of(path: str) -> dict[str, str]:
    """The eval_results.txt of a checkpoint: beside it, or of a best one in the folder of its run.

    Where it says another step it is of another checkpoint, and none are known.
    """
    folder = path if tf.io.gfile.isdir(path) else folder_of(path)
    metrics = _metrics_beside(folder)
    if not metrics and folder.rpartition("/")[2] == files.BEST:
        metrics = _metrics_beside(folder_of(folder))
    step = tf1.step_of(path)
    said = metrics.get(tf1.GLOBAL_STEP)
    return {} if step and said not in (None, str(step)) else metrics


def _metrics_beside(folder: str) -> dict[str, str]:
    """The lines of the eval_results.txt in a folder, none where there is no such file."""
    path = join(folder, files.EVAL_RESULTS)
    if not tf.io.gfile.exists(path):
        return {}
    pairs = (line.partition(" = ") for line in files.read_text(path).splitlines())
    return {name: value for name, separator, value in pairs if separator}


def facts_of(task: ServingTask, origin: Origin) -> dict[str, Any]:
    """All that the card says, for programs."""
    signatures = task.signatures()
    return {
        "task": task.name,
        "texts": dict(task.texts),
        "outputs": dict(task.outputs),
        "signatures": {
            name: {key: _spec(spec) for key, spec in signature.inputs.items()}
            for name, signature in signatures.items()
        },
        "answers": {name: dict(signature.outputs) for name, signature in signatures.items()},
        **_common_facts(task, origin),
    }


def portable_facts_of(
    task: ServingTask, origin: Origin, converted: Mapping[str, Any]
) -> dict[str, Any]:
    """The same of a file for LiteRT or ONNX Runtime, with what its conversion says."""
    facts = _common_facts(task, origin) | {"options": task.options_of_ids()}
    return {"task": task.name, **converted, **facts}


def _common_facts(task: ServingTask, origin: Origin) -> dict[str, Any]:
    return {
        "options": task.options(),
        "do_lower_case": task.sequences.tokenizer.do_lower_case,
        "config": task.sequences.config.to_dict(),
        "source": origin.source,
        "commands": list(origin.commands),
        "metrics": dict(origin.metrics),
        "versions": {name: _version(name) for name in VERSIONS_OF},
    }


def model_card(facts: Mapping[str, Any], title: str) -> str:
    """The README.md of an export."""
    further = [n for n in facts["signatures"] if n not in (DEFAULT, FROM_IDS, FROM_EXAMPLES)]
    lines = [
        f"# {facts['task']}",
        "",
        f"{title} A BERT as a SavedModel that takes raw text, for TensorFlow Serving and",
        "whatever else loads one. Every input and output has a row for each text; B is their",
        "number, which may be any, also 0.",
        "",
        f"## `{DEFAULT}`",
        "",
        "Takes strings in UTF-8 (bytes that are not are skipped), each [B] unless it says more:",
        "",
        *_listed(facts["texts"]),
        "",
        "Gives:",
        "",
        *_listed(facts["outputs"]),
        "",
        f"## `{FROM_IDS}` and `{FROM_EXAMPLES}`",
        "",
        f"`{FROM_IDS}` takes features as in the records that the model was trained on, padded to",
        f"one width (null: any size); `{FROM_EXAMPLES}` takes serialized tf.Examples of such",
        "records, of any lengths:",
        "",
        *_tensors(facts["signatures"][FROM_IDS]),
        *_tensors(facts["signatures"][FROM_EXAMPLES]),
        "",
        "Both give, with S as long as the longest row asked (columns that are padding in every row",
        "are left out):",
        "",
        *_listed(facts["answers"][FROM_IDS]),
        "",
        *(line for name in further for line in _signature_lines(facts, name)),
        *_common_lines(facts),
    ]
    return "\n".join(lines) + "\n"


def _signature_lines(facts: Mapping[str, Any], name: str) -> list[str]:
    """What a signature of one kind alone takes and gives."""
    takes, gives = facts["signatures"][name], facts["answers"][name]
    return [
        *(f"## `{name}`", "", "Takes (null: any size):", "", *_tensors(takes), ""),
        *("Gives, with S as long as the longest row asked:", "", *_listed(gives), ""),
    ]


def _listed(texts: Mapping[str, str]) -> list[str]:
    return [f"- `{name}`: {text}" for name, text in texts.items()]


def portable_model_card(facts: Mapping[str, Any], title: str) -> str:
    """The README.md of a file for LiteRT or ONNX Runtime."""
    weights = "int8 weights" if facts["int8_weights"] else "float32 weights"
    lines = [
        f"# {facts['task']}",
        "",
        f"{title} A BERT as `{facts['file']}`, with {weights}: ids in, numbers out. Texts are made",
        "into ids by the caller, with the vocabulary in `assets/vocab.txt`: [CLS] text [SEP], or",
        "[CLS] first [SEP] second [SEP] with segment 1 for the second; mask 1 for real pieces.",
        "",
        "Takes (null: any size):",
        "",
        *_tensors(facts["inputs"]),
        "",
        "Gives:",
        "",
        *_tensors(facts["answers"]),
        "",
        "Greatest difference from the model that it was made of, in float32, on drawn ids: "
        f"{facts['greatest_difference']:.1e}.",
        *_choice_lines(facts["choices"]),
        "",
        *_common_lines(facts),
    ]
    return "\n".join(lines) + "\n"


def _choice_lines(choices: Mapping[str, int]) -> list[str]:
    """Of answers that are no floating-point numbers, if there are any."""
    if not choices["compared"]:
        return []
    return [
        "Of the answers that name a label, a piece or an ending, or say whether a label applies, "
        f"{choices['different']} of {choices['compared']} differed."
    ]


def _tensors(specs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [f"- `{name}`: {s['dtype']} {json.dumps(s['shape'])}" for name, s in specs.items()]


def _common_lines(facts: Mapping[str, Any]) -> list[str]:
    """What every card ends with."""
    config = facts["config"]
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    case = "lower-cased" if facts["do_lower_case"] else "cased"
    return [
        "## Options",
        "",
        *(f"- {name}: {_shown(value)}" for name, value in facts["options"].items()),
        "",
        "## Model",
        "",
        f"- text: {case}; vocabulary in `assets/vocab.txt`",
        *(f"- {name}: {config[name]}" for name in sizes),
        f"- from: {facts['source']}",
        "",
        "## Metrics",
        "",
        *(f"- {name}: {value}" for name, value in facts["metrics"].items()),
        *([] if facts["metrics"] else ["None were found beside the checkpoint."]),
        *_threshold_lines(facts),
        "",
        "## Made with",
        "",
        *(f"    {command}" for command in facts["commands"]),
        "",
        *(f"- {name} {version}" for name, version in facts["versions"].items()),
    ]


def _threshold_lines(facts: Mapping[str, Any]) -> list[str]:
    """Where metrics are of another threshold than the export decides by."""
    name = "null_score_diff_threshold"
    measured, decides = facts["metrics"].get(name), facts["options"].get(name)
    if not facts["options"].get("version_2_with_negative"):
        return []  # it answers every question
    if measured is None or decides is None or float(measured) == decides:
        return []
    return [
        "",
        f"Those are with {name} = {measured}, but for best_ and at_best_f1_; this model decides by "
        f"{decides}.",
    ]


def facts_text(facts: Mapping[str, Any]) -> str:
    """The text of export.json."""
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _spec(spec: tf.TensorSpec) -> dict[str, Any]:
    return {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # run from a copy that was not installed
        return "not installed"
