"""The signatures of an export, made from a checkpoint: a model with its texts and answers.

A head names the class of its signatures. `ServingTask` serves any head that defines `answers`, for
single texts or pairs; a task that makes something else of texts is a subclass in `tasks.py`,
`question_answering.py` or `token_labels.py`.

Shapes: B rows of a request, S the longest sequence.
"""

import dataclasses
import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import processor
from bert_tf.checkpoints.classes import with_labels
from bert_tf.checkpoints.matching import load_checkpoint, refuse_other_task
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata, Weights
from bert_tf.checkpoints.shown_heads import POOLER, head_weights, shown_head
from bert_tf.config import BertConfig
from bert_tf.errors import InputError
from bert_tf.heads import NAMES, head_named
from bert_tf.heads.head import Head
from bert_tf.modeling.models import layer_dtype
from bert_tf.serving import graph_text
from bert_tf.serving.graph_text import Features, Sequences
from bert_tf.serving.inference import ACTIVATIONS, Activations, InferenceModel
from bert_tf.serving.options import (
    BFLOAT16,
    DEFAULT,
    DEFAULT_CHOICES,
    FROM_EXAMPLES,
    FROM_IDS,
    TASKS,
    ServingOptions,
)
from bert_tf.squad.windows import WindowSizes
from bert_tf.tokenization import SPECIAL_PIECES
from bert_tf.tokenization.layer import FEATURE_NAMES
from bert_tf.tokenization.wordpiece import FullTokenizer

Answers = dict[str, tf.Tensor]
TEXT = tf.TensorSpec([None], tf.string)
IDS = tf.TensorSpec([None, None], tf.int32)
PAIR = {"text_a": "the first text", "text_b": "the second text, or empty"}
SAMPLE_TEXTS = (
    "",
    "A short text.",
    "A text that is somewhat longer than the first one, as they come in practice.",
    "A long text. " * 60,
)


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of named tensors.

    Attributes:
      inputs: types and shapes by name.
      function: takes the inputs by name and returns the answers by name.
      outputs: each answer's type, shape and meaning.
      is_padded: whether answers are padded to the longest row of the batch, so that the answer to a
        row depends on the other rows. The server then computes each request by itself.
    """

    inputs: Mapping[str, tf.TensorSpec]
    function: Callable[..., Answers]
    outputs: Mapping[str, str]
    is_padded: bool = False

    def traced(self) -> tf.types.experimental.ConcreteFunction:
        """Traces the function for any batch size and length."""
        specs = {
            name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
            for name, spec in self.inputs.items()
        }
        # `autograph=False`: no function here has Python control flow over tensors.
        return tf.function(self.function, autograph=False).get_concrete_function(**specs)


def refuse_not_finite(answers: Mapping[str, np.ndarray]) -> None:
    """Raises InputError if an answer is NaN or infinite: it would look like any other."""
    for name, value in answers.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise InputError(
                f"a model whose {name} are NaN or infinite",
                "finite numbers: its training diverged, or its weights are damaged",
                "give another checkpoint",
            )


class ServingTask:
    """A model with the texts it takes and the answers it gives: single texts or pairs.

    Attributes:
      head: the head of the model.
      model: what computes the head's outputs.
      options: with a value in every field of `own_options`.
      outputs_of: features -> the model's outputs.
      sequences: texts -> features.
      texts: the names of the text inputs, and what each is.
      outputs: the names of the answers, and each one's type, shape and meaning.
      id_outputs: the same for answers to features, where they differ; S is the length of the
        request's longest row.
      padded: names of the signatures whose answers are padded to the longest row of the batch.
      samples: requests of different lengths: a value for each text input.
      feature_names: the model's inputs.
      own_options: fields of `ServingOptions` that affect this task, beside task, max_seq_length
        and the labels of a head whose classes have names.
      part: what a sequence is called if a request has several of them.
    """

    texts: Mapping[str, str] = {"text": "the text"}
    outputs: Mapping[str, str] = {}
    id_outputs: Mapping[str, str] = {}
    padded: Collection[str] = ()
    samples: Sequence[Mapping[str, Any]] = ()
    feature_names: Sequence[str] = FEATURE_NAMES
    own_options: Sequence[str] = ("pairs",)
    part = "sequence"

    def __init__(
        self,
        head: Head,
        model: InferenceModel | None,
        tokenizer: FullTokenizer,
        config: BertConfig,
        options: ServingOptions,
    ):
        """Connects a model with its tokenizer.

        Args:
          head: whose signatures these are.
          model: with this head; None if only `features` is called.
          tokenizer: the one that the model was trained with.
          config: the configuration of the model.
          options: with a value in every field of `own_options`.

        Raises:
          InputError: they do not fit each other.
        """
        self.head = head
        self.model = model
        self.options = options
        # One function for all signatures, so that the graph holds it once.
        specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in self.feature_names}
        self.outputs_of = tf.function(model, input_signature=[specs], autograph=False)
        self.sequences = Sequences(tokenizer, config, max_seq_length=options.max_seq_length)
        self.outputs = self.outputs or head.answer_meanings
        if head.has_padded_answers:
            self.padded = (DEFAULT, FROM_IDS, FROM_EXAMPLES)
        if "pairs" in self.own_options and options.pairs:
            self.texts = PAIR
        if len(self.texts) > 1 and config.type_vocab_size < 2:
            received = f"{' and '.join(self.texts)} for a model with type_vocab_size 1"
            raise InputError(received, "2 or more segment types", "use a model of pairs of texts")
        self.samples = self.samples or [dict.fromkeys(self.texts, text) for text in SAMPLE_TEXTS]

    # ------------------------------------------------------------------------ for subclasses

    def features(self, **texts: tf.Tensor) -> Features:
        """Texts by name, each [B] -> the sequences that the model reads, int32 [rows, S]."""
        in_order = [texts[name] for name in self.texts]
        if len(in_order) > 1:
            return self.sequences.of_pairs(*in_order)
        return self.sequences.of_texts(*in_order)

    def answer(self, **texts: tf.Tensor) -> Answers:
        """Texts by name, each [B] -> the answers, each [B, ...]."""
        return self.answer_ids(self.features(**texts))

    def answer_ids(self, features: Features) -> Answers:
        """Features [B, S], no column of which is all padding -> the answers, each [B, ...]."""
        return self.head.answers(self.outputs_of(features), self.options.labels)

    def text_specs(self) -> dict[str, tf.TensorSpec]:
        """Types and shapes of the text inputs."""
        return dict.fromkeys(self.texts, TEXT)

    def id_specs(self) -> dict[str, tf.TensorSpec]:
        """Types and shapes of a record's features."""
        return dict.fromkeys(self.feature_names, IDS)

    def parse(self, serialized: tf.Tensor) -> Features:
        """Serialized tf.Examples [B] -> the features of their records."""
        return graph_text.parse_examples(serialized, tuple(self.feature_names))

    def further_signatures(self) -> dict[str, Signature]:
        """Signatures that only this task has."""
        return {}

    def part_of(self, answer: Mapping[str, Any], **texts: tf.Tensor) -> int:
        """The sequence of a request that the answer comes from, numbered from 0."""
        del texts
        return answer.get("choice", 0)

    # ------------------------------------------------------------------------ for all tasks

    def listed_options(self) -> dict[str, Any]:
        """The options that affect the task, as they were chosen at export, for the model card."""
        names = ["max_seq_length", "precision", *self.own_options]
        if self.head.has_names:
            names.append("labels")
        values = {}
        for name in names:
            value = getattr(self.options, name)
            values[name] = list(value) if isinstance(value, tuple) else value
        return values

    def signatures(self) -> dict[str, Signature]:
        """All signatures by name."""

        def of_texts(**texts):
            if len(texts) > 1:
                counts = tf.stack([tf.shape(text)[0] for text in texts.values()])
                alike = tf.reduce_all(tf.equal(counts[0], counts))
                message = f"{' and '.join(texts)} must have the same length"
                texts = graph_text.checked(texts, alike, message)
            return self.answer(**texts)

        def of_ids(**features):
            return self.answer_ids(graph_text.accepted(features, self.sequences.config))

        def of_examples(examples):
            return of_ids(**self.parse(examples))

        id_outputs = self.id_outputs or self.outputs
        signatures = {
            DEFAULT: Signature(self.text_specs(), of_texts, self.outputs),
            FROM_IDS: Signature(self.id_specs(), of_ids, id_outputs),
            FROM_EXAMPLES: Signature({"examples": TEXT}, of_examples, id_outputs),
            **self.further_signatures(),
        }
        return {
            name: dataclasses.replace(signature, is_padded=name in self.padded)
            for name, signature in signatures.items()
        }


# ---------------------------------------------------------------------------- from a checkpoint


def class_of(head: Head) -> type[ServingTask]:
    """The class that makes a head's signatures."""
    module, name = head.serving.split(":")
    return getattr(importlib.import_module(module), name)


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
      config: the configuration of its model.
      tokenizer: with its vocabulary.
      options: what is not in the checkpoint.
      activations: as for `InferenceModel`.

    Raises:
      InputError: the checkpoint was trained for another task, or something does not fit.
    """
    head = head_of(source, options)
    options = _completed(source, config, options, head)
    task_class = class_of(head)
    refuse_other_task(source, head.name, options.pairs)
    if head.has_names:
        source = with_labels(source, options.labels)
        head = head.with_thresholds(source.metadata.thresholds or {}, options.labels)
    if source.metadata.doc_stride and "doc_stride" not in task_class.own_options:
        says = "The model was trained on windows of long texts; here texts are cut to %d tokens."
        logging.warning(says, options.max_seq_length)
    if source.metadata.document_context:
        logging.warning("Trained with --document_context: give the text around a sentence, too.")
    # A masked-LM head multiplies with the encoder's word table, so it computes in its precision.
    in_bfloat16 = "masked_lm_logits" in head.outputs and options.precision == BFLOAT16
    with layer_dtype("mixed_bfloat16" if in_bfloat16 else None):
        model = head.model(config, num_classes=source.num_classes)
    load_checkpoint(model, source, required=head.required)
    outputs = list(head.outputs)
    if POOLER not in source.shapes and "pooled_output" in outputs:
        outputs.remove("pooled_output")  # its pooler has fresh weights
    served = InferenceModel(model, config, outputs, activations, options.precision)
    warn_of_precision(options.precision)
    return task_class(head, served, tokenizer, config, options)


def warn_of_precision(precision: str) -> None:
    """Logs that bfloat16 is slower than float32 on a CPU without instructions for it."""
    if precision != BFLOAT16 or processor.bfloat16() or tf.config.list_physical_devices("GPU"):
        return
    answers = "a model in bfloat16 answers more slowly than one in float32."
    logging.warning("%s%s", processor.without_bfloat16(), answers)


def _shown_task(source: Weights) -> str | None:
    """The task by a checkpoint's architecture and weights; None if they are of no known head."""
    shown = shown_head(source)
    return "fill_mask" if shown == "pretraining" else shown


def head_of(source: Weights, options: ServingOptions) -> Head:
    """The head of a checkpoint: as chosen, else as its files say, else as its weights show.

    Raises:
      InputError: there is no such head, or the checkpoint's weights are of no known head.
    """
    name = options.task or source.metadata.task or _shown_task(source)
    if name != "pretraining" and name in NAMES:
        return head_named(name)
    if name:
        place = "task" if options.task else f"task in {METADATA_FILE}"
        received = f"{name!r} as {place}, for {source.path}"
    else:
        received = f"{source.path}, with another head ({', '.join(head_weights(source)[:3])})"
    expected = f"one of {', '.join(TASKS)}, or a head of your own"
    raise InputError(received, expected, "say with task= (--task) what the model is for")


def _completed(
    source: Weights, config: BertConfig, options: ServingOptions, head: Head
) -> ServingOptions:
    """The options with a value in every field: as chosen, else as the files say, else a default."""
    stored = source.metadata
    # How texts became sequences in training is of no use to another task.
    is_trained_task = head.name == (stored.task or _shown_task(source))
    trained = stored if is_trained_task else ModelMetadata()
    length = config.max_position_embeddings
    if "doc_stride" in class_of(head).own_options:
        length = min(WindowSizes.max_seq_length, length)
    may_be_null = stored.version_2_with_negative
    if options.null_score_diff_threshold is not None:
        may_be_null = True
    # The first that is not None: the chosen option, then these values in order.
    defaults = {
        "pairs": (trained.pairs, False),
        "num_choices": (trained.num_choices, DEFAULT_CHOICES),
        "max_seq_length": (trained.max_seq_length, length),
        "doc_stride": (trained.doc_stride, WindowSizes.doc_stride),
        "max_query_length": (trained.max_query_length, WindowSizes.max_query_length),
        "labels": (stored.labels or None, tuple(map(str, range(source.num_classes)))),
        "version_2_with_negative": (may_be_null, stored.null_score_diff_threshold is not None),
        "null_score_diff_threshold": (stored.null_score_diff_threshold, 0.0),
    }
    chosen = {}
    for name, values in defaults.items():
        candidates = (getattr(options, name), *values)
        chosen[name] = next(value for value in candidates if value is not None)
    # A window holds at least one piece of context beside the question.
    longest = chosen["max_seq_length"] - SPECIAL_PIECES - 1
    has_windows = "max_query_length" in class_of(head).own_options
    if has_windows and options.max_query_length is None and chosen["max_query_length"] > longest:
        chosen["max_query_length"] = longest // 2
        logging.info("Questions are cut to %d tokens, as windows are short.", longest // 2)
    return dataclasses.replace(options, task=head.name, **chosen)
