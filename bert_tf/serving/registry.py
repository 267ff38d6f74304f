"""A checkpoint -> the task that it is exported as.

model_facts.json or the names of the weights show what a checkpoint is for; the caller's options say
what neither does.
"""

import dataclasses
import importlib

from absl import logging

from bert_tf.checkpoints.loading import Weights, load_checkpoint, refuse_other_task, with_labels
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.heads import NAMES, head_named
from bert_tf.heads.head import Head
from bert_tf.serving.inference import ACTIVATIONS, Activations, InferenceModel
from bert_tf.serving.options import DEFAULT_CHOICES, ServingOptions
from bert_tf.serving.signatures import ServingTask
from bert_tf.squad.windows import WindowSizes
from bert_tf.tokenization.wordpiece import FullTokenizer


def make_task(
    source: Weights,
    config: BertConfig,
    tokenizer: FullTokenizer,
    options: ServingOptions,
    activations: Activations = ACTIVATIONS,
) -> ServingTask:
    """Builds the task of a checkpoint and loads its weights.

    Args:
      source: the checkpoint.
      config: of its model.
      tokenizer: with its vocabulary.
      options: what is not in the checkpoint.
      activations: as for `InferenceModel`.

    Raises:
      InputError: the checkpoint is of no such task, or something does not fit.
    """
    head = _head_of(source, options)
    kind, options = _class_of(head), _completed(source, config, options, head)
    refuse_other_task(source, head.name, options.pairs)
    if head.has_names:
        source = with_labels(source, options.labels)
    if source.metadata.doc_stride and "doc_stride" not in kind.own_options:
        logging.warning(
            "%s reads long texts in windows in run_classifier.py (--doc_stride=%d). A served model "
            "cuts them to %d tokens: its answers to longer texts are others.",
            *(source.path, source.metadata.doc_stride, options.max_seq_length),
        )
    if source.metadata.document_context:
        logging.warning(
            "%s was trained with --document_context. A served model sees each sentence by itself: "
            "give it the text around a sentence, too, for answers as good.",
            source.path,
        )
    model = head.model(config, num_classes=source.num_classes)
    load_checkpoint(model, source, required=head.required)
    has_pooler = "bert/pooler/dense/kernel" in source.shapes  # else it is a new one
    outputs = [name for name in head.outputs if has_pooler or name != "pooled_output"]
    return kind(
        head, InferenceModel(model, config, outputs, activations), tokenizer, config, options
    )


def check_options(source: Weights, options: ServingOptions, *, ids_only: bool = False) -> None:
    """Refuses chosen options that have no effect on the task of a checkpoint.

    Args:
      source: the checkpoint.
      options: what was chosen.
      ids_only: the export takes ids and returns numbers, so that options of texts have no effect.

    Raises:
      InputError: naming the flag.
    """
    head = _head_of(source, options)
    kind = _class_of(head)
    without = kind.text_options if ids_only else ()
    known = ["task", *(name for name in kind.option_names(head) if name not in without)]
    for field in dataclasses.fields(options):
        if getattr(options, field.name) != field.default and field.name not in known:
            raise InputError(
                f"--{field.name} for {source.path} as {head.name}",
                f"what has an effect there: {', '.join(f'--{one}' for one in known)}",
                f"leave out --{field.name}, or say with --task what the model is for",
            )
    threshold = options.null_score_diff_threshold
    if threshold is not None and options.version_2_with_negative is False:
        raise InputError(
            f"--null_score_diff_threshold={threshold} with --noversion_2_with_negative",
            "one of them: where every question has an answer, a threshold has no effect",
            "leave out one of the two",
        )


def _head_of(source: Weights, options: ServingOptions) -> Head:
    """The head of a checkpoint: as chosen, else as its files say, else as it looks.

    Raises:
      InputError: there is no such head, or the checkpoint has one of another architecture.
    """
    stored = source.metadata.task
    name = options.task or stored or looks_like(source)
    if name == "pretraining" or name not in NAMES:
        place = "--task" if options.task else f"task in {METADATA_FILE}"
        raise InputError(
            f"{name!r} as {place}, for {source.path}"
            if name
            else f"{source.path}, a {source.metadata.architecture}, with a head",
            f"one of {', '.join(name for name in NAMES if name != 'pretraining')}",
            "say with --task what the model is for",
        )
    return head_named(name)


def _class_of(head: Head) -> type[ServingTask]:
    module, name = head.serving.split(":")
    return getattr(importlib.import_module(module), name)


def _completed(
    source: Weights, config: BertConfig, options: ServingOptions, head: Head
) -> ServingOptions:
    """The options with a value in every field: as chosen, else as the files say, else a default."""
    stored = source.metadata
    is_trained_task = head.name == (stored.task or looks_like(source))
    trained = stored if is_trained_task else ModelMetadata()
    length = config.max_position_embeddings
    if "doc_stride" in _class_of(head).own_options:
        length = min(WindowSizes.max_seq_length, length)
    threshold = options.null_score_diff_threshold  # one that is chosen says that it is used
    defaults = {
        "pairs": (trained.pairs, False),
        "num_choices": (trained.num_choices, DEFAULT_CHOICES),
        "max_seq_length": (trained.max_seq_length, length),
        "doc_stride": (trained.doc_stride, WindowSizes.doc_stride),
        "max_query_length": (trained.max_query_length, WindowSizes.max_query_length),
        "labels": (stored.labels or None, tuple(map(str, range(source.num_classes)))),
        "version_2_with_negative": (
            stored.version_2_with_negative if threshold is None else True,
            stored.null_score_diff_threshold is not None,
        ),
        "null_score_diff_threshold": (stored.null_score_diff_threshold, 0.0),
    }
    chosen = {
        key: next(v for v in (getattr(options, key), *values) if v is not None)
        for key, values in defaults.items()
    }
    return dataclasses.replace(options, task=head.name, **chosen)


def looks_like(source: Weights) -> str | None:
    """The task that the architecture and the weights of a checkpoint show; None: an unknown one."""
    return "fill_mask" if source.head == "pretraining" else source.head
