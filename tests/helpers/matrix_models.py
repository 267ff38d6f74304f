"""A small model of every head, written in every format that the package reads or exports."""

import pathlib
import shutil
from collections.abc import Callable
from typing import NamedTuple

import model_files
import numpy as np
import small
import tf2_files

from bert_tf import FullTokenizer, save_weights
from bert_tf.checkpoints import metadata
from bert_tf.checkpoints.loading import open_weights, tokenizer_of
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.heads import NAMES, head_named
from bert_tf.modeling.models import BertModel
from bert_tf.serving import options, portable
from bert_tf.serving.export import MODEL_FILES, export_checkpoint

CONFIG = small.CONFIG
CHOICES = 3
STEP = 7
LENGTH = CONFIG.max_position_embeddings - 1
LABELS = ("bad", "so so", "good: très")
CLASSES = {"token_labels": ("O", "B-P", "I-P")}  # of heads whose classes are not LABELS
# Without heads that a test registers.
HEADS = tuple(n for n in NAMES if type(head_named(n)).__module__.startswith("bert_tf."))


def make_model(head: str, vocab_file: str) -> BertModel:
    """A model with random weights, labels, a tokenizer and metadata.

    The weights are large enough that different inputs get different outputs.
    """
    head_object = head_named(head)
    names = CLASSES.get(head, LABELS) if head_object.has_names else None
    num_classes = len(names) if names else 1
    model = head_object.model(CONFIG, num_classes=num_classes, num_choices=CHOICES)
    rng = np.random.default_rng([*head.encode()])
    for variable in model.trainable_variables:
        value = rng.standard_normal(variable.shape) * 0.4 + float(variable.path.endswith("gamma"))
        variable.assign(value)
    model.labels = names
    model.tokenizer = FullTokenizer(vocab_file, True)
    model.tokenizer.max_length = LENGTH
    metadata = {}
    if head_object.is_ambiguous:
        metadata["task"] = head
    if head == "multiple_choice":
        metadata["num_choices"] = CHOICES
    if head_object.reads_windows:
        metadata |= {"doc_stride": 3, "max_query_length": 4}
    model.metadata = metadata
    return model


class Written(NamedTuple):
    """How a format is written.

    Attributes:
      write: writes a model; takes the model, the folder of its run, and a new folder.
      names: the paths in the folder that stand for the model; most pairs use the first one.
      heads: the heads that it can hold.
    """

    write: Callable[[BertModel, pathlib.Path, pathlib.Path], None]
    names: tuple[str, ...] = ("",)
    heads: frozenset[str] = frozenset(HEADS)


def write_run(model: BertModel, _: pathlib.Path, folder: pathlib.Path) -> None:
    """The folder of a run, as training leaves it."""
    save_weights(model, folder / "saved", format="bert_tf")
    weights = open_weights(folder / "saved")
    run = CheckpointFolder(folder)
    run.save(STEP, model_files.all_tensors(weights) | {"global_step": np.int64(STEP)})
    copy_texts(folder / "saved", folder)
    shutil.rmtree(folder / "saved")


def copy_texts(source: pathlib.Path, folder: pathlib.Path) -> None:
    """Copies configuration, vocabulary and facts."""
    for name in (metadata.CONFIG_FILE, metadata.VOCAB_FILE, metadata.METADATA_FILE):
        shutil.copy(source / name, folder)


def write_keras(model: BertModel, _: pathlib.Path, folder: pathlib.Path) -> None:
    """One file, which includes tokenizer and labels."""
    model.save(folder / "model.keras")


def write_tf2(model: BertModel, run: pathlib.Path, folder: pathlib.Path) -> None:
    """A checkpoint of tensorflow/models."""
    tensors = model_files.all_tensors(open_weights(run))
    places = tf2_files.encoder_places("encoder")
    if "masked_lm_logits" in model.output:
        pooler = "next_sentence..pooler_dense"
        places |= tf2_files.pretraining_places("", "next_sentence", pooler)
    places = {place: name for place, name in places.items() if name in tensors}
    tf2_files.write_tf2(folder, tensors, places)
    copy_texts(run, folder)


def _saved(name: str) -> Written:
    """A format that `save_weights` writes."""

    def write(model: BertModel, _: pathlib.Path, folder: pathlib.Path) -> None:
        folder.rmdir()
        save_weights(model, folder, format=name)

    # The folder, its file, and for a checkpoint the prefix stand for the model.
    file = metadata.FORMATS[name].file
    prefix = file.removesuffix(".index")
    return Written(write, tuple(dict.fromkeys(("", prefix, file))))


def _exported(name: str) -> Written:
    """An export."""

    def write(model: BertModel, run: pathlib.Path, folder: pathlib.Path) -> None:
        weights = open_weights(run)
        tokenizer = tokenizer_of(weights, weights.config)
        chosen = options.ServingOptions()
        export_checkpoint(weights, CONFIG, tokenizer, str(folder), options=chosen, file_format=name)

    return Written(write, ("", "1"))


EXPORTS = tuple(MODEL_FILES)
REPOSITORY = "bert"  # on a hub on this machine
# Formats that we read and that `save_weights` does not write. A new one needs an entry here.
READ_ONLY = {
    "keras": Written(write_keras, ("model.keras",)),
    "tf2": Written(
        write_tf2,
        ("bert_model.ckpt-1", "", "bert_model.ckpt-1.index"),
        frozenset({"pretraining", "fill_mask", "embeddings"}),
    ),
    "hub": _saved("hugging_face")._replace(names=(f"hf:o/{REPOSITORY}",)),
}
FORMATS = {
    "run": Written(write_run, ("", f"model.ckpt-{STEP}", f"model.ckpt-{STEP}.index")),
    **{name: _saved(name) for name in metadata.WRITTEN},
    **READ_ONLY,
    **{name: _exported(name) for name in MODEL_FILES},
}
assert {*portable.FORMATS} < {*EXPORTS}
