"""Small models of every kind as checkpoint folders, and the answers that Python computes."""

import dataclasses
import pathlib
import random
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import small_squad
import tensorflow as tf

from bert_tf import BertConfig
from bert_tf.checkpoints.loading import Weights, open_weights
from bert_tf.checkpoints.matching import load_checkpoint
from bert_tf.checkpoints.metadata import ModelMetadata, write_model_files
from bert_tf.checkpoints.tf1 import write_checkpoint
from bert_tf.heads import Choices, Labels, Tags, head_named
from bert_tf.modeling.names import checkpoint_name
from bert_tf.serving import predictor
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.predictor import ServedModel
from bert_tf.squad.answers import (
    AnswerConfig,
    AnswerSizes,
    Prediction,
    make_alignment,
    rank_answers,
)
from bert_tf.squad.windows import WindowSizes, prediction_windows
from bert_tf.tasks.examples import ChoiceExample, Example, WordsExample
from bert_tf.tasks.features import Features, join_words, make_features

TOKENIZER = small_squad.make_tokenizer(do_lower_case=True)
CONFIG = BertConfig(
    vocab_size=TOKENIZER.vocab_size + 3,  # the table has more rows than there are pieces
    hidden_size=22,
    num_hidden_layers=1,  # each takes seconds to trace
    num_attention_heads=2,
    intermediate_size=37,
    max_position_embeddings=29,
    type_vocab_size=2,
)
LENGTH = 13  # max_seq_length
LABELS = ("bad", "so so", "good: très")
TAGS = ("O", "B-P", "I-P")
TOP_K = 3
THRESHOLD = -0.25
WINDOWS = WindowSizes(max_seq_length=LENGTH, doc_stride=3, max_query_length=4)
ANSWERS = AnswerSizes(n_best_size=5, max_answer_length=4)
QUESTION_OPTIONS = {
    "doc_stride": WINDOWS.doc_stride,
    "max_query_length": WINDOWS.max_query_length,
    "n_best_size": ANSWERS.n_best_size,
    "max_answer_length": ANSWERS.max_answer_length,
}
# name of the kind: the head, the names of the classes, the options of the export
KINDS = {
    "classification": ("classification", LABELS, {}),
    "pairs": ("classification", LABELS, {"pairs": True}),
    "multi_label": ("multi_label", LABELS, {"task": "multi_label"}),
    "regression": ("regression", None, {"pairs": True}),
    "multiple_choice": ("multiple_choice", None, {"num_choices": 3}),
    "token_labels": ("token_labels", TAGS, {}),
    "embeddings": ("embeddings", None, {}),
    "fill_mask": ("pretraining", None, {"top_k": TOP_K}),
    "question_answering": ("question_answering", None, {
        **QUESTION_OPTIONS, "version_2_with_negative": False, "top_k": TOP_K}),
    "no_answer": ("question_answering", None, {
        **QUESTION_OPTIONS, "null_score_diff_threshold": THRESHOLD, "top_k": TOP_K}),
}  # fmt: skip

# A row of a request, for some kinds.
ROWS = {
    "classification": {"text": "who founded it? " * 9},
    "pairs": {"text_a": "who founded", "text_b": "Ruprecht, the café, in 1386 by " * 2},
    "multiple_choice": {"context": "who founded", "endings": ["it", "Ruprecht by", ""]},
    "token_labels": {"text": "Ruprecht founded 中 in 1386 (by the café). " * 2},
    "fill_mask": {"text": "[MASK] founded [MASK][MASK] in 1386"},
    "question_answering": {"question": "who?", "context": "Ruprecht founded it in 1386. " * 4},
}


def metadata_of(**shapes) -> dict:
    """The content of export.json for a model with texts of these shapes."""
    inputs = {name: {"dtype": "string", "shape": shape} for name, shape in shapes.items()}
    return {
        "task": "of_tests",
        "texts": dict.fromkeys(shapes, "a text"),
        "outputs": {"length": "float [B]"},
        "signatures": {"serving_default": inputs},
    }


def make_model(kind: str) -> keras.Model:
    """The model of a kind.

    For multiple choice, a model with the same weights that scores a single sequence.
    """
    head, labels, _ = KINDS[kind]
    head = "regression" if head == "multiple_choice" else head
    return head_named(head).model(CONFIG, num_classes=len(labels or ()))


def write_folder(kind: str, folder: pathlib.Path, **facts: Any) -> Weights:
    """Writes a folder as training does, with random weights.

    The weights are large enough that different inputs get different answers.

    Args:
      kind: a name of `KINDS`.
      folder: the new folder.
      **facts: further fields of `ModelMetadata`.

    Returns:
      The weights, read from the folder.
    """
    rng = np.random.default_rng([*kind.encode()])
    tensors = {}
    for variable in make_model(kind).trainable_variables:
        name = checkpoint_name(variable)
        value = rng.standard_normal(tuple(variable.shape)) * 0.4 + float(name.endswith("gamma"))
        tensors[name] = value.astype(np.float32)
    folder.mkdir(parents=True)
    write_checkpoint(str(folder / "model.ckpt"), tensors, temporary=str(folder / "new"))
    head, labels, _ = KINDS[kind]
    facts |= {"architecture": head_named(head).architecture, "labels": labels}
    metadata = ModelMetadata(do_lower_case=True, **facts)
    write_model_files(str(folder), CONFIG, TOKENIZER, metadata)
    return open_weights(str(folder / "model.ckpt"))


def options(kind: str) -> ServingOptions:
    return ServingOptions(**KINDS[kind][-1], max_seq_length=LENGTH)


def export(kind: str, folder: pathlib.Path) -> str:
    """Writes a model into FOLDER/model and exports it; returns FOLDER/export/1."""
    weights = write_folder(kind, folder / "model")
    return export_checkpoint(
        weights, weights.config, TOKENIZER, str(folder / "export"), options=options(kind)
    )


def open_kind(weights: Weights, kind: str) -> ServedModel:
    """A checkpoint of a kind, loaded for predictions."""
    return predictor.of_weights(weights, weights.config, TOKENIZER, options(kind))


def features_of(ids, segments) -> dict[str, tf.Tensor]:
    """The features of one sequence without padding, each [1, S]."""
    values = {"input_ids": [ids], "segment_ids": [segments], "input_mask": [[1] * len(ids)]}
    return {name: tf.constant(value) for name, value in values.items()}


# ---------------------------------------------------------------------------- the Python side


class Reference:
    """A model of a kind that runs on one sequence at a time, without padding."""

    def __init__(self, kind: str, weights: Weights):
        self.model = make_model(kind)
        # Without metadata, which for choices names another head than that of `make_model`.
        load_checkpoint(self.model, dataclasses.replace(weights, metadata=ModelMetadata()))

    def outputs(self, ids: Sequence[int], segments: Sequence[int], **more) -> dict:
        """The outputs for one sequence, without the batch axis; more: further inputs [1, ...]."""
        inputs = {"input_ids": [ids], "input_mask": [[1] * len(ids)], "segment_ids": [segments]}
        arrays = {name: np.array(value, np.int32) for name, value in (inputs | more).items()}
        outputs = self.model(arrays, training=False)
        return {name: np.array(value[0]) for name, value in outputs.items()}

    def logits(self, features: Features) -> np.ndarray:
        """The logits of each sequence of an example: [C, ...]."""
        logits = []
        for ids, segments in zip(features.input_ids, features.segment_ids, strict=True):
            logits.append(self.outputs(ids, segments)["logits"])
        return np.array(logits)

    def texts(self, pairs: Sequence[tuple[str, str | None]], labels: Labels) -> np.ndarray:
        """Probabilities or scores [B, L]."""
        examples = [Example("g", *pair) for pair in pairs]
        rows = _features(examples, Labels(names=LABELS))
        return labels.probabilities(np.array([self.logits(row)[0] for row in rows]))

    def choices(self, context: str, endings: Sequence[str]) -> np.ndarray:
        """Probabilities [C]."""
        example = ChoiceExample("g", tuple((context, ending) for ending in endings))
        (row,) = _features([example], Choices(names=("0", "1")))
        return Choices().probabilities(self.logits(row)[:, 0])

    def words(self, words: Sequence[str]) -> np.ndarray:
        """Probabilities [W, L]."""
        example = WordsExample("g", tuple(words))
        rows = list(_features([example], Tags(names=TAGS)))
        values = [Tags().probabilities(self.logits(row)[0]) for row in rows]
        (probabilities,) = join_words(["g"] * len(rows), [row.label_ids for row in rows], values)
        return probabilities

    def answers(self, pairs: Sequence[tuple[str, str]], *, version_2: bool) -> list[Prediction]:
        """The answers to pairs (question, context)."""
        examples = [small_squad.example(context, question) for question, context in pairs]
        windows = prediction_windows(examples, TOKENIZER, WINDOWS)
        outputs = [self.outputs(window.input_ids, window.segment_ids) for window in windows]
        starts = [output["start_logits"] for output in outputs]
        ends = [output["end_logits"] for output in outputs]
        config = AnswerConfig.of(ANSWERS, version_2_with_negative=version_2, legacy_alignment=False)
        align = make_alignment(windows, TOKENIZER, config)
        return rank_answers(examples, windows, starts, ends, align, config)


def _features(examples, labels):
    return make_features(examples, labels, TOKENIZER, max_seq_length=LENGTH)


def random_pairs(count: int) -> list[tuple[str, str]]:
    """Random pairs of texts, the same at every call with the same count."""
    choose = random.Random(count)
    words = ["who", "founded", "it", "in", "Ruprecht", "1386", "(café)", "中", "😀", ""]

    def text() -> str:
        return " ".join(choose.choices(words, k=choose.randrange(9)))

    return [(text(), text()) for _ in range(count)]
