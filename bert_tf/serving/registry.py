"""A checkpoint -> the task that it is exported as.

model_facts.json or the names of the weights show what a checkpoint is for; the caller's options say
what neither does.
"""

import dataclasses

from absl import logging

from bert_tf.checkpoints.companions import refuse_other_task, with_labels
from bert_tf.checkpoints.loading import Weights, load_checkpoint
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata
from bert_tf.config import HEADS, BertConfig
from bert_tf.errors import InputError
from bert_tf.heads import make_model
from bert_tf.serving import inference
from bert_tf.serving.classification import ClassifierTask, MultiLabelTask, RegressionTask
from bert_tf.serving.embeddings import EmbeddingTask
from bert_tf.serving.masked_lm import MaskedLmTask
from bert_tf.serving.multiple_choice import MultipleChoiceTask
from bert_tf.serving.options import DEFAULT_CHOICES, TASKS, ServingOptions
from bert_tf.serving.question_answering import QuestionAnsweringTask
from bert_tf.serving.signatures import ServingTask
from bert_tf.serving.token_labels import TokenLabelsTask
from bert_tf.squad.windows import WindowSizes
from bert_tf.tokenization.wordpiece import FullTokenizer

SERVING_TASKS: dict[str, type[ServingTask]] = {
    task.name: task
    for task in (
        ClassifierTask,
        MultiLabelTask,
        RegressionTask,
        MultipleChoiceTask,
        TokenLabelsTask,
        QuestionAnsweringTask,
        EmbeddingTask,
        MaskedLmTask,
    )
}


def make_task(
    source: Weights,
    config: BertConfig,
    tokenizer: FullTokenizer,
    options: ServingOptions,
    activations: inference.Activations = inference.ACTIVATIONS,
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
    options = _completed(source, config, options)
    task, num_classes = SERVING_TASKS[options.task], source.num_classes
    refuse_other_task(source, task.name, options.pairs)
    if "labels" in task.own_options:
        source = with_labels(source, options.labels)
    if task in (RegressionTask, MultipleChoiceTask) and num_classes != 1:
        raise InputError(
            f"{source.path}, a model of {num_classes} classes, as {task.name}",
            "a model with one score",
            "give another --task, or the checkpoint of such a task",
        )
    if task is not QuestionAnsweringTask and source.metadata.doc_stride:
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
    model = make_model(task.name, config, num_classes=num_classes)
    load_checkpoint(model, source, required=task.required)
    tensors = {n: v for n, v in inference.tensors_of(model).items() if n in source.shapes}
    model = inference.InferenceModel(tensors, config, head=task.name, activations=activations)
    return task(model, tokenizer, config, options)


def check_options(source: Weights, options: ServingOptions, *, ids_only: bool = False) -> None:
    """Refuses chosen options that have no effect on the task of a checkpoint.

    Args:
      source: the checkpoint.
      options: what was chosen.
      ids_only: the export takes ids and returns numbers, so that options of texts have no effect.

    Raises:
      InputError: naming the flag.
    """
    name = _task_name(source, options)
    task = SERVING_TASKS[name]
    without = task.text_options if ids_only else ()
    known = ("task", "max_seq_length", *(o for o in task.own_options if o not in without))
    for field in dataclasses.fields(options):
        if getattr(options, field.name) != field.default and field.name not in known:
            raise InputError(
                f"--{field.name} for {source.path} as {name}",
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


def _task_name(source: Weights, options: ServingOptions) -> str:
    """The task of a checkpoint: as chosen, else as its files say, else as it looks."""
    for name, place in (
        (options.task, "--task"),
        (source.metadata.task, f"task in {METADATA_FILE}"),
    ):
        if name is not None and name not in TASKS:
            raise InputError(
                f"{name!r} as {place}, for {source.path}",
                f"one of {', '.join(TASKS)}",
                "correct it, or leave it out",
            )
    return options.task or source.metadata.task or task_of(source)


def _completed(source: Weights, config: BertConfig, options: ServingOptions) -> ServingOptions:
    """The options with a value in every field: as chosen, else as the files say, else a default."""
    name, stored = _task_name(source, options), source.metadata
    trained = stored if name == (stored.task or _looks_like(source)) else ModelMetadata()
    length = config.max_position_embeddings
    if name == QuestionAnsweringTask.name:
        length = min(WindowSizes.max_seq_length, length)
    defaults = {
        "pairs": (trained.pairs, False),
        "num_choices": (trained.num_choices, DEFAULT_CHOICES),
        "max_seq_length": (trained.max_seq_length, length),
        "doc_stride": (trained.doc_stride, WindowSizes.doc_stride),
        "max_query_length": (trained.max_query_length, WindowSizes.max_query_length),
        "labels": (stored.labels or None, tuple(map(str, range(source.num_classes)))),
        "version_2_with_negative": _may_have_no_answer(stored, options),
        "null_score_diff_threshold": (stored.null_score_diff_threshold, 0.0),
    }
    chosen = {
        key: next(v for v in (getattr(options, key), *values) if v is not None)
        for key, values in defaults.items()
    }
    return dataclasses.replace(options, task=name, **chosen)


def _may_have_no_answer(stored: ModelMetadata, options: ServingOptions) -> tuple[bool | None, bool]:
    """A chosen threshold says it, else how the model was trained, else a stored threshold."""
    if options.null_score_diff_threshold is not None:
        return None, True
    return stored.version_2_with_negative, stored.null_score_diff_threshold is not None


def task_of(source: Weights) -> str:
    """The task that a checkpoint looks like, by its architecture and its weights.

    Raises:
      InputError: it has a head of another architecture.
    """
    if name := _looks_like(source):
        return name
    raise InputError(
        f"{source.path}, a {source.metadata.architecture}, with a head",
        f"one of {', '.join(dict.fromkeys(HEADS.values()))}",
        "choose a task with --task",
    )


def _looks_like(source: Weights) -> str | None:
    name = source.head
    return MaskedLmTask.name if name == "pretraining" else name
