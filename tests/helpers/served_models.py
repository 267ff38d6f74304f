"""Small models of every kind as checkpoint folders, and what the Python side answers for them."""

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
    vocab_size=TOKENIZER.vocab_size + 3,  # rows that no piece has
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
# name: its head, the names of its classes, and how it is exported
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

# One request of several kinds.
ROWS = {
    "classification": {"text": "who founded it? " * 9},
    "pairs": {"text_a": "who founded", "text_b": "Ruprecht, the café, in 1386 by " * 2},
    "multiple_choice": {"context": "who founded", "endings": ["it", "Ruprecht by", ""]},
    "token_labels": {"text": "Ruprecht founded 中 in 1386 (by the café). " * 2},
    "fill_mask": {"text": "[MASK] founded [MASK][MASK] in 1386"},
    "question_answering": {"question": "who?", "context": "Ruprecht founded it in 1386. " * 4},
}


def metadata_of(**shapes) -> dict:
    """What export.json says of the texts of a model."""
    inputs = {name: {"dtype": "string", "shape": shape} for name, shape in shapes.items()}
    return {
        "task": "of_tests",
        "texts": dict.fromkeys(shapes, "a text"),
        "outputs": {"length": "float [B]"},
        "signatures": {"serving_default": inputs},
    }


def make_model(kind: str) -> keras.Model:
    """Of multiple choice one that scores one sequence at a time: the weights are the same."""
    head, labels, _ = KINDS[kind]
    head = "regression" if head == "multiple_choice" else head
    return head_named(head).model(CONFIG, num_classes=len(labels or ()))


def write_folder(kind: str, folder: pathlib.Path, **known: Any) -> Weights:
    """A folder as training leaves it, with random weights that tell inputs apart; further facts."""
    rng = np.random.default_rng([*kind.encode()])
    tensors = {}
    for variable in make_model(kind).trainable_variables:
        name, shape = checkpoint_name(variable), tuple(variable.shape)
        value = rng.standard_normal(shape) * 0.4 + float(name.endswith("gamma"))
        tensors[name] = value.astype(np.float32)
    folder.mkdir(parents=True)
    write_checkpoint(str(folder / "model.ckpt"), tensors, temporary=str(folder / "new"))
    head, labels, _ = KINDS[kind]
    known |= {"architecture": head_named(head).architecture, "labels": labels}
    metadata = ModelMetadata(do_lower_case=True, **known)
    write_model_files(str(folder), CONFIG, TOKENIZER, metadata)
    return open_weights(str(folder / "model.ckpt"))


def options(kind: str) -> ServingOptions:
    return ServingOptions(**KINDS[kind][-1], max_seq_length=LENGTH)


def export(kind: str, folder: pathlib.Path) -> str:
    """Exports a folder of random weights; returns the folder of the version."""
    weights = write_folder(kind, folder / "model")
    return export_checkpoint(
        weights, weights.config, TOKENIZER, str(folder / "export"), options=options(kind)
    )


def open_kind(weights: Weights, kind: str) -> ServedModel:
    """A checkpoint of a kind, loaded to be asked."""
    return predictor.of_weights(weights, weights.config, TOKENIZER, options(kind))


def features_of(ids, segments) -> dict[str, tf.Tensor]:
    """The features of one sequence."""
    values = {"input_ids": [ids], "segment_ids": [segments], "input_mask": [[1] * len(ids)]}
    return {name: tf.constant(value) for name, value in values.items()}


# ---------------------------------------------------------------------------- the Python side


class Reference:
    """A model of a kind, loaded again, one sequence at a time and without padding."""

    def __init__(self, kind: str, weights: Weights):
        self.model = make_model(kind)
        # Without what is known of it: a head for choices is asked one sequence at a time.
        load_checkpoint(self.model, dataclasses.replace(weights, metadata=ModelMetadata()))

    def outputs(self, ids: Sequence[int], segments: Sequence[int], **more) -> dict:
        inputs = {"input_ids": [ids], "input_mask": [[1] * len(ids)], "segment_ids": [segments]}
        arrays = {name: np.array(value, np.int32) for name, value in (inputs | more).items()}
        return {name: np.array(v[0]) for name, v in self.model(arrays, training=False).items()}

    def logits(self, features: Features) -> np.ndarray:
        """[C, ...]: of each of its sequences."""
        both = zip(features.input_ids, features.segment_ids, strict=True)
        return np.array([self.outputs(*one)["logits"] for one in both])

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
        (found,) = join_words(["g"] * len(rows), [row.label_ids for row in rows], values)
        return found

    def answers(self, pairs: Sequence[tuple[str, str]], *, version_2: bool) -> list[Prediction]:
        examples = [small_squad.example(context, question) for question, context in pairs]
        windows = prediction_windows(examples, TOKENIZER, WINDOWS)
        outputs = [self.outputs(w.input_ids, w.segment_ids) for w in windows]
        logits = [[o[name] for o in outputs] for name in ("start_logits", "end_logits")]
        config = AnswerConfig.of(ANSWERS, version_2_with_negative=version_2, legacy_alignment=False)
        align = make_alignment(windows, TOKENIZER, config)
        return rank_answers(examples, windows, *logits, align, config)


def _features(examples, labels):
    return make_features(examples, labels, TOKENIZER, max_seq_length=LENGTH)


def random_pairs(count: int) -> list[tuple[str, str]]:
    """Pairs of texts, the same for the same number."""
    choose = random.Random(count)
    words = ["who", "founded", "it", "in", "Ruprecht", "1386", "(café)", "中", "😀", ""]
    return [
        tuple(" ".join(choose.choices(words, k=choose.randrange(9))) for _ in range(2))
        for _ in range(count)
    ]
