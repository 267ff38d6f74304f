"""The flags of the commands that ask a model, and the predictor that they describe."""

import importlib
from typing import Any

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.serving.options import TASKS
from bert_tf.terminal import Progress

FLAGS = flags.FLAGS
_OF_WEIGHTS = ("task", "pairs", "max_seq_length", "bert_config_file", "vocab_file")


def define_flags() -> None:
    """Which version of an export, and what the files of a folder with weights do not say."""
    of_weights = "Of a folder with weights:"
    shared_flags.define_count(
        "version", None, "Of an export; default: the latest.", least=0, most=2**63 - 1
    )
    flags.DEFINE_enum(
        "task", None, TASKS, f"{of_weights} what the model does, where its files do not say it."
    )
    flags.DEFINE_list(
        "labels",
        [],
        f"{of_weights} names of the classes, in order where its files do not name them.",
    )
    flags.DEFINE_bool("pairs", None, f"{of_weights} it was trained on pairs of texts.")
    shared_flags.define_count("max_seq_length", None, f"{of_weights} most tokens of a text.")
    shared_flags.define_model_files()


def make_predictor(path: str, **arguments: Any) -> Any:
    """The `Predictor` of the model at a path, by these flags and further arguments."""
    options = {name: FLAGS[name].value for name in _OF_WEIGHTS}
    options |= {"do_lower_case": shared_flags.given_case(), "labels": tuple(FLAGS.labels) or None}
    predictor = importlib.import_module("bert_tf.serving.predictor").Predictor
    with Progress(f"load {path}"):
        return predictor(path, version=FLAGS.version, **arguments, **options)
