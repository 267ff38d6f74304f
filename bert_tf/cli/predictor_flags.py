"""The flags of commands that answer texts, and the predictor that they say."""

from typing import Any

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.serving.options import TASKS
from bert_tf.serving.predictor import Predictor

_OF_WEIGHTS = ("task", "pairs", "max_seq_length", "bert_config_file", "vocab_file")


def define_flags() -> None:
    """Which version of an export, and what the files of a checkpoint do not say."""
    flags.DEFINE_integer("version", None, "Of an export; default: the greatest.")
    flags.DEFINE_enum("task", None, TASKS, "Of a folder with weights that does not say it.")
    flags.DEFINE_list("labels", [], "Of a folder with weights: names of the classes, in order.")
    flags.DEFINE_bool("pairs", None, "Of a folder with weights: it was trained on pairs of texts.")
    flags.DEFINE_integer("max_seq_length", None, "Of a folder with weights: most pieces of a text.")
    shared_flags.define_model_files()


def make_predictor(path: str, **arguments: Any) -> Predictor:
    """The predictor of a model, by these flags.

    Args:
      path: of the model.
      **arguments: further ones of `Predictor`.
    """
    given = {name: flags.FLAGS[name].value for name in _OF_WEIGHTS}
    given["do_lower_case"] = shared_flags.given_case()
    given["labels"] = tuple(flags.FLAGS.labels) or None
    options = {name: value for name, value in given.items() if value is not None}
    return Predictor(path, version=flags.FLAGS.version, **arguments, **options)
