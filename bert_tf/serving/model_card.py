"""What people and programs are told about an export: README.md and export.json beside it."""

import dataclasses
import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf import files
from bert_tf.serving.task import DEFAULT, FROM_EXAMPLES, FROM_IDS, ServingTask

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


def metrics_beside(folder: str) -> dict[str, str]:
    """The lines of the eval_results.txt in a folder, none where there is no such file."""
    path = tf.io.gfile.join(folder, files.EVAL_RESULTS)
    if not tf.io.gfile.exists(path):
        return {}
    pairs = (line.partition(" = ") for line in files.read_text(path).splitlines())
    return {name: value for name, separator, value in pairs if separator}


def facts_of(task: ServingTask, origin: Origin) -> dict[str, Any]:
    """All that the card says, for programs."""
    return {
        "task": task.name,
        "texts": dict(task.texts),
        "outputs": dict(task.outputs),
        "signatures": {
            name: {key: _spec(spec) for key, spec in signature.inputs.items()}
            for name, signature in task.signatures().items()
        },
        **_common_facts(task, origin),
    }


def portable_facts_of(
    task: ServingTask, origin: Origin, converted: Mapping[str, Any]
) -> dict[str, Any]:
    """The same of a file for LiteRT or ONNX Runtime, with what its conversion says."""
    return {"task": task.name, **converted, **_common_facts(task, origin)}


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
    texts = [f"- `{name}`: {text}" for name, text in facts["texts"].items()]
    outputs = [f"- `{name}`: {text}" for name, text in facts["outputs"].items()]
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
        *texts,
        "",
        "Gives:",
        "",
        *outputs,
        "",
        "## Further signatures",
        "",
        f"- `{FROM_IDS}`: {', '.join(facts['signatures'][FROM_IDS])}, int32 as in the records that "
        "the model was trained on.",
        f"- `{FROM_EXAMPLES}`: `examples`, string [B], serialized tf.Examples of such records.",
        *(f"- `{name}`: takes {', '.join(facts['signatures'][name])}." for name in further),
        "",
        *_common_lines(facts),
    ]
    return "\n".join(lines) + "\n"


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
        "",
        *_common_lines(facts),
    ]
    return "\n".join(lines) + "\n"


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
        "",
        "## Made with",
        "",
        *(f"    {command}" for command in facts["commands"]),
        "",
        *(f"- {name} {version}" for name, version in facts["versions"].items()),
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
