"""A checkpoint -> the task that it is exported as.

What a checkpoint is for is in its model_facts.json, or shows in the names of its weights; what
neither says, the caller does.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import keras

from bert_tf import models
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.serving import inference
from bert_tf.serving.classification import ClassifierTask, MultiLabelTask, RegressionTask
from bert_tf.serving.embeddings import EmbeddingTask
from bert_tf.serving.masked_lm import MaskedLmTask
from bert_tf.serving.multiple_choice import MultipleChoiceTask
from bert_tf.serving.question_answering import QuestionAnsweringTask
from bert_tf.serving.task import ServingTask
from bert_tf.serving.token_labels import TokenLabelsTask
from bert_tf.squad.answers import AnswerSizes
from bert_tf.squad.windows import WindowSizes
from bert_tf.tokenization import FullTokenizer
from bert_tf.weights import ENCODER, Weights, load_checkpoint

_HEAD = r"output_(weights|bias)"
_CLASSIFIER = f"bert/|{_HEAD}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """What can be chosen at export; names are those of the flags. None: as the checkpoint says.

    Attributes:
      task: one of KINDS.
      labels: names of the classes, in order.
      pairs: the model was trained on pairs of texts.
      num_choices: sequences in a record of multiple choice.
      max_seq_length: most pieces of a sequence; None: 384 for questions, else all that the model
        can take.
      doc_stride, max_query_length, n_best_size, max_answer_length, version_2_with_negative,
      null_score_diff_threshold: as for run_squad.py.
      top_k: pieces for each [MASK], or answers to a question, that are listed.
    """

    task: str | None = None
    labels: tuple[str, ...] | None = None
    pairs: bool = False
    num_choices: int = 4
    max_seq_length: int | None = None
    doc_stride: int = 128
    max_query_length: int = 64
    n_best_size: int = 20
    max_answer_length: int = 30
    version_2_with_negative: bool | None = None
    null_score_diff_threshold: float | None = None
    top_k: int = 5


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of task.

    Attributes:
      make_task: its class.
      make_model: of configuration and number of classes, what the weights are loaded into.
      head: of the model that answers.
      required: a pattern of the weights that must be in the checkpoint.
      arguments: of weights and options, what `make_task` wants beside the usual.
    """

    make_task: Callable[..., ServingTask]
    make_model: Callable[[BertConfig, int], keras.Model]
    head: str
    required: str
    arguments: Callable[[Weights, ServingOptions], dict[str, Any]]


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
      activations: by name; how they are written decides what a converter makes of them.

    Raises:
      InputError: the checkpoint is of no such task, or something does not fit.
    """
    name = options.task or kind_of(source)
    kind = KINDS[name]
    length = options.max_seq_length or config.max_position_embeddings
    if name == QuestionAnsweringTask.name:
        length = options.max_seq_length or min(WindowSizes.max_seq_length, length)
    options = dataclasses.replace(options, task=name, max_seq_length=length)
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


def kind_of(source: Weights) -> str:
    """The kind of task that a checkpoint is for."""
    architecture, shapes = source.facts.architecture, source.shapes
    for name, known in _ARCHITECTURES.items():
        if architecture in known:
            return name
    if architecture in _CLASSIFIERS or (architecture is None and "output_weights" in shapes):
        return RegressionTask.name if _num_classes(source) == 1 else ClassifierTask.name
    if "cls/squad/output_weights" in shapes:
        return QuestionAnsweringTask.name
    return MaskedLmTask.name if "cls/predictions/output_bias" in shapes else EmbeddingTask.name


def _num_classes(source: Weights) -> int:
    return source.shapes.get("output_weights", (2,))[0]


# ---------------------------------------------------------------------------- arguments


def _labels(source: Weights, options: ServingOptions) -> tuple[str, ...]:
    """The names given, or the model's own, or numbers."""
    own = source.facts.labels or tuple(map(str, range(_num_classes(source))))
    return options.labels or own


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
            remedy="leave out --task, or give the checkpoint of such a task",
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
    stored = source.facts.null_score_diff_threshold
    given = options.null_score_diff_threshold
    threshold = stored if given is None else given
    negative = options.version_2_with_negative
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
        ClassifierTask, _classifier, inference.SEQUENCE, _CLASSIFIER, _of_labels
    ),
    MultiLabelTask.name: Kind(
        MultiLabelTask, _classifier, inference.SEQUENCE, _CLASSIFIER, _of_labels
    ),
    RegressionTask.name: Kind(
        RegressionTask, _classifier, inference.SEQUENCE, _CLASSIFIER, _of_regression
    ),
    # Each ending by itself, so that there may be any number of them.
    MultipleChoiceTask.name: Kind(
        MultipleChoiceTask, _classifier, inference.SEQUENCE, _CLASSIFIER, _of_choices
    ),
    TokenLabelsTask.name: Kind(
        TokenLabelsTask,
        lambda config, num_classes: models.token_model(config, num_classes=num_classes),
        inference.TOKENS,
        f"{ENCODER}|{_HEAD}",
        _of_tokens,
    ),
    QuestionAnsweringTask.name: Kind(
        QuestionAnsweringTask,
        lambda config, _: models.span_model(config),
        inference.SPANS,
        f"{ENCODER}|cls/squad/",
        _of_questions,
    ),
    EmbeddingTask.name: Kind(
        EmbeddingTask,
        lambda config, _: models.bert_encoder(config),
        inference.VECTORS,
        ENCODER,
        _of_vectors,
    ),
    MaskedLmTask.name: Kind(
        MaskedLmTask,
        lambda config, _: models.pretraining_model(config, next_sentence=False),
        inference.MASKED_LM,
        f"{ENCODER}|cls/predictions/",
        _of_masks,
    ),
}
KIND_OF_HEAD = {  # the heads of bert_tf.tasks
    "classes": ClassifierTask.name,
    "regression": RegressionTask.name,
    "multi_label": MultiLabelTask.name,
    "multiple_choice": MultipleChoiceTask.name,
    "token_labels": TokenLabelsTask.name,
}
_CLASSIFIERS = ("BertForSequenceClassification",)
_ARCHITECTURES = {  # Hugging Face's names
    MultipleChoiceTask.name: ("BertForMultipleChoice",),
    TokenLabelsTask.name: ("BertForTokenClassification",),
    QuestionAnsweringTask.name: ("BertForQuestionAnswering",),
    MaskedLmTask.name: ("BertForMaskedLM", "BertForPreTraining"),
    EmbeddingTask.name: ("BertModel",),
}
