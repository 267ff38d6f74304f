"""A checkpoint -> the task that it is exported as.

What a checkpoint is for is in its model_facts.json, or shows in the names of its weights; what
neither says, the caller does. What the caller says goes before what the files say.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras

from bert_tf.checkpoints.loading import ENCODER, HEAD, Weights, load_checkpoint
from bert_tf.checkpoints.metadata import METADATA_FILE
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.modeling import models
from bert_tf.serving import inference
from bert_tf.serving.classification import ClassifierTask, MultiLabelTask, RegressionTask
from bert_tf.serving.embeddings import EmbeddingTask
from bert_tf.serving.masked_lm import MaskedLmTask
from bert_tf.serving.multiple_choice import MultipleChoiceTask
from bert_tf.serving.options import DEFAULT_CHOICES, ServingOptions
from bert_tf.serving.question_answering import QuestionAnsweringTask
from bert_tf.serving.signatures import ServingTask
from bert_tf.serving.token_labels import TokenLabelsTask
from bert_tf.squad.answers import AnswerSizes
from bert_tf.squad.windows import WindowSizes
from bert_tf.tokenization.wordpiece import FullTokenizer

_CLASSIFIER = f"bert/|{HEAD}"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of task.

    Attributes:
      make_task: its class.
      make_model: of configuration and number of classes, what the weights are loaded into.
      head: of the model that answers.
      required: a pattern of the weights that must be in the checkpoint.
      arguments: of weights and options, what `make_task` wants beside the usual.
      options: that have an effect on it, beside those that all kinds have.
    """

    make_task: type[ServingTask]
    make_model: Callable[[BertConfig, int], keras.Model]
    head: str
    required: str
    arguments: Callable[[Weights, ServingOptions], dict[str, Any]]
    options: tuple[str, ...]


def make_task(
    source: Weights,
    config: BertConfig,
    tokenizer: FullTokenizer,
    options: ServingOptions,
    activations: inference.Activations = inference.ACTIVATIONS,
) -> ServingTask:
    """The task of a checkpoint, its weights loaded.

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
    kind = KINDS[options.task]
    arguments = kind.arguments(source, options)
    model = kind.make_model(config, _num_classes(source))
    load_checkpoint(model, source, required=kind.required)
    has_pooler = "bert/pooler/dense/kernel" in source.shapes
    answering = inference.InferenceModel(
        inference.tensors_of(model),
        config,
        head=kind.head,
        pooler=has_pooler,
        activations=activations,
    )
    return kind.make_task(answering, tokenizer, config, **arguments)


def check_options(source: Weights, options: ServingOptions, *, ids_only: bool = False) -> None:
    """Refuses what a caller has chosen and has no effect on the task of a checkpoint.

    Args:
      source: the checkpoint.
      options: what was chosen.
      ids_only: the export takes ids and gives numbers: nothing makes sequences or reads answers.

    Raises:
      InputError: naming the flag.
    """
    name = _kind_name(source, options)
    without = KINDS[name].make_task.text_options if ids_only else ()
    options_of_kind = [one for one in KINDS[name].options if one not in without]
    known = ("task", "max_seq_length", *options_of_kind)
    for field in dataclasses.fields(options):
        if getattr(options, field.name) != field.default and field.name not in known:
            raise InputError(
                received=f"--{field.name} for {source.path} as {name}",
                expected=f"what has an effect there: {', '.join(f'--{one}' for one in known)}",
                remedy=f"leave out --{field.name}, or say with --task what the model is for",
            )
    threshold = options.null_score_diff_threshold
    if threshold is not None and options.version_2_with_negative is False:
        raise InputError(
            received=f"--null_score_diff_threshold={threshold} with --noversion_2_with_negative",
            expected="one of them: without questions that have no answer it has no effect",
            remedy="leave out one of the two",
        )


def _kind_name(source: Weights, options: ServingOptions) -> str:
    """The kind that a checkpoint is to be: as chosen, else as its files say, else as it looks."""
    for name, place in (
        (options.task, "--task"),
        (source.metadata.task, f"task in {METADATA_FILE}"),
    ):
        if name is not None and name not in KINDS:
            raise InputError(
                received=f"{name!r} as {place}, for {source.path}",
                expected=f"one of {', '.join(KINDS)}",
                remedy="correct it, or leave it out",
            )
    return options.task or source.metadata.task or kind_of(source)


def _completed(source: Weights, config: BertConfig, options: ServingOptions) -> ServingOptions:
    """The options, with what the files of the checkpoint say, or the defaults, where none are."""
    name = _kind_name(source, options)
    length = config.max_position_embeddings
    if name == QuestionAnsweringTask.name:
        length = min(WindowSizes.max_seq_length, length)
    defaults = {
        "pairs": False,
        "num_choices": DEFAULT_CHOICES,
        "max_seq_length": length,
        "doc_stride": WindowSizes.doc_stride,
        "max_query_length": WindowSizes.max_query_length,
    }
    is_own = name == (source.metadata.task or _looks_like(source))  # what it was trained for
    chosen = {}
    for key, default in defaults.items():
        known = getattr(source.metadata, key) if is_own else None
        values = (getattr(options, key), known, default)
        chosen[key] = next(value for value in values if value is not None)
    return dataclasses.replace(options, task=name, **chosen)


def kind_of(source: Weights) -> str:
    """The kind of task that a checkpoint looks like, by its architecture and its weights.

    Raises:
      InputError: it has a head of another architecture.
    """
    if name := _looks_like(source):
        return name
    raise InputError(
        received=f"{source.path}, a {source.metadata.architecture}, with a head",
        expected=f"one of {', '.join((*_CLASSIFIERS, *sum(_ARCHITECTURES.values(), ())))}",
        remedy="say with --task what it is to be",
    )


def _looks_like(source: Weights) -> str | None:
    architecture, shapes = source.metadata.architecture, source.shapes
    for name, known in _ARCHITECTURES.items():
        if architecture in known:
            return name
    is_classifier = architecture in _CLASSIFIERS
    if not is_classifier and architecture and any(re.match(f"{HEAD}|cls/", n) for n in shapes):
        return None
    if is_classifier or "output_weights" in shapes:
        return RegressionTask.name if _num_classes(source) == 1 else ClassifierTask.name
    if "cls/squad/output_weights" in shapes:
        return QuestionAnsweringTask.name
    return MaskedLmTask.name if "cls/predictions/output_bias" in shapes else EmbeddingTask.name


def _num_classes(source: Weights) -> int:
    return source.shapes.get("output_weights", (2,))[0]


# ---------------------------------------------------------------------------- arguments


def _labels(source: Weights, options: ServingOptions) -> tuple[str, ...]:
    """The names given, or the model's own, or numbers."""
    own = source.metadata.labels or tuple(map(str, range(_num_classes(source))))
    return own if options.labels is None else options.labels


def _length(options: ServingOptions) -> dict[str, Any]:
    return {"max_seq_length": options.max_seq_length}


def _of_texts(options: ServingOptions) -> dict[str, Any]:
    return {**_length(options), "pairs": options.pairs}


def _of_labels(source: Weights, options: ServingOptions) -> dict[str, Any]:
    return {**_of_texts(options), "labels": _labels(source, options)}


def _of_one_score(source: Weights, options: ServingOptions) -> None:
    if _num_classes(source) != 1:
        raise InputError(
            received=f"{source.path}, a model of {_num_classes(source)} classes, as {options.task}",
            expected="a model with one score",
            remedy="give another --task, or the checkpoint of such a task",
        )


def _of_regression(source: Weights, options: ServingOptions) -> dict[str, Any]:
    _of_one_score(source, options)
    return _of_texts(options)


def _of_choices(source: Weights, options: ServingOptions) -> dict[str, Any]:
    _of_one_score(source, options)
    return {**_length(options), "num_choices": options.num_choices}


def _of_tokens(source: Weights, options: ServingOptions) -> dict[str, Any]:
    return {**_length(options), "labels": _labels(source, options)}


def _of_vectors(source: Weights, options: ServingOptions) -> dict[str, Any]:
    del source
    return _of_texts(options)


def _of_masks(source: Weights, options: ServingOptions) -> dict[str, Any]:
    del source
    return {**_length(options), "top_k": options.top_k}


def _of_questions(source: Weights, options: ServingOptions) -> dict[str, Any]:
    stored = source.metadata.null_score_diff_threshold
    given = options.null_score_diff_threshold
    threshold = stored if given is None else given
    negative = options.version_2_with_negative
    if negative is None and given is None:
        negative = source.metadata.version_2_with_negative
    return {
        "window_sizes": WindowSizes(
            options.max_seq_length, options.doc_stride, options.max_query_length
        ),
        "answer_sizes": AnswerSizes(options.n_best_size, options.max_answer_length),
        "version_2_with_negative": threshold is not None if negative is None else negative,
        "null_score_diff_threshold": 0.0 if threshold is None else threshold,
        "top_k": options.top_k,
    }


# ---------------------------------------------------------------------------- the kinds


def _classifier(config: BertConfig, num_classes: int) -> keras.Model:
    return models.classifier_model(config, num_classes=num_classes)


KINDS: Mapping[str, Kind] = {
    ClassifierTask.name: Kind(
        ClassifierTask,
        _classifier,
        inference.SEQUENCE,
        _CLASSIFIER,
        _of_labels,
        ("pairs", "labels"),
    ),
    MultiLabelTask.name: Kind(
        MultiLabelTask,
        _classifier,
        inference.SEQUENCE,
        _CLASSIFIER,
        _of_labels,
        ("pairs", "labels"),
    ),
    RegressionTask.name: Kind(
        RegressionTask,
        _classifier,
        inference.SEQUENCE,
        _CLASSIFIER,
        _of_regression,
        ("pairs",),
    ),
    # Each ending by itself, so that there may be any number of them.
    MultipleChoiceTask.name: Kind(
        MultipleChoiceTask,
        _classifier,
        inference.SEQUENCE,
        _CLASSIFIER,
        _of_choices,
        ("num_choices",),
    ),
    TokenLabelsTask.name: Kind(
        TokenLabelsTask,
        lambda config, num_classes: models.token_model(config, num_classes=num_classes),
        inference.TOKENS,
        f"{ENCODER}|{HEAD}",
        _of_tokens,
        ("labels",),
    ),
    QuestionAnsweringTask.name: Kind(
        QuestionAnsweringTask,
        lambda config, _: models.span_model(config),
        inference.SPANS,
        f"{ENCODER}|cls/squad/",
        _of_questions,
        QuestionAnsweringTask.text_options,
    ),
    EmbeddingTask.name: Kind(
        EmbeddingTask,
        lambda config, _: models.bert_encoder(config),
        inference.VECTORS,
        ENCODER,
        _of_vectors,
        ("pairs",),
    ),
    MaskedLmTask.name: Kind(
        MaskedLmTask,
        lambda config, _: models.pretraining_model(config, next_sentence=False),
        inference.MASKED_LM,
        f"{ENCODER}|cls/predictions/",
        _of_masks,
        ("top_k",),
    ),
}
_CLASSIFIERS = ("BertForSequenceClassification",)
_ARCHITECTURES = {  # Hugging Face's names
    MultipleChoiceTask.name: ("BertForMultipleChoice",),
    TokenLabelsTask.name: ("BertForTokenClassification",),
    QuestionAnsweringTask.name: ("BertForQuestionAnswering",),
    MaskedLmTask.name: ("BertForMaskedLM", "BertForPreTraining"),
    EmbeddingTask.name: ("BertModel",),
}
