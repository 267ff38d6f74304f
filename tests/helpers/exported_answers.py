"""Requests to the exports of every kind, and the answers of TensorFlow's C API."""

import pathlib

import numpy as np
import tensorflow as tf
from saved_models import batch_of, run_in_c
from served_models import Reference

from bert_tf.checkpoints.loading import Weights, open_weights
from bert_tf.tasks.features import classifier_record

TOLERANCE = 1e-5
TEXTS = [
    "who founded it",
    "",
    "Ruprecht founded it in 1386 (by the Café), " * 4,
    "中é 😀\u0301 Éf! Σ \u200b\0 x" + "a" * 201,
]
PAIRS = [*zip(TEXTS, reversed(TEXTS), strict=True), ("it", "by"), ("by " * 30, "it " * 20)]
CHOICES = [
    ("who founded", ["it", "Ruprecht by " * 9, ""]),
    ("the café " * 8, ["in 1386", "?", "japanese"]),
]
MASKED = ["who [MASK] it", "[MASK][MASK] in 138[MASK]", "none", "it " * 9 + "[MASK] by [MASK]"]
WORDS = [
    "Ruprecht founded it .",
    "",
    " ".join(["founded", "café", "1386", "japanese", "é", "中"] * 7),
]
QUESTIONS = [
    ("who founded it?", "Ruprecht founded it in 1386 by the Café. " * 3),
    ("in?", ""),
    ("", "1895-1943 😀 Japanese É中 "),
    ("the the the the the the", "it"),
]


def weights_beside(path: str) -> Weights:
    """The weights that an export of `served_models.export` was made of."""
    return open_weights(str(pathlib.Path(path).parents[1] / "model/model.ckpt"))


def texts(*values) -> np.ndarray:
    """A string tensor of texts, or of lists of them."""
    return batch_of([{"it": value} for value in values])["it"]


def records(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """input_ids [2, C, S] with padding, and their tf.Examples."""
    count = 3 if kind == "multiple_choice" else 1
    rng = np.random.default_rng(5)
    ids = rng.integers(5, 60, (2, count, 9)).astype(np.int32)
    ids[0, :, 4:] = 0
    mask = (ids > 0).astype(np.int32)
    record = classifier_record(max_seq_length=9, num_choices=count)
    serialized = []
    for row_ids, row_mask in zip(ids, mask, strict=True):
        values = {"input_ids": row_ids.ravel(), "input_mask": row_mask.ravel()}
        values |= {"segment_ids": [0] * 9 * count, "label_ids": [0], "is_real_example": [1]}
        serialized.append(record.serialize(values))
    return ids, np.array(serialized, object)


def inputs_of(kind: str) -> dict[str, np.ndarray]:
    """The texts for the export of a kind, by the names of its inputs."""
    if kind in ("pairs", "regression"):
        firsts, seconds = zip(*PAIRS, strict=True)
        return {"text_a": texts(*firsts), "text_b": texts(*seconds)}
    if kind == "multiple_choice":
        contexts, endings = zip(*CHOICES, strict=True)
        return {"context": texts(*contexts), "endings": texts(*endings)}
    if kind in ("question_answering", "no_answer"):
        questions, contexts = zip(*QUESTIONS, strict=True)
        return {"question": texts(*questions), "context": texts(*contexts)}
    values = {"token_labels": WORDS, "fill_mask": MASKED}.get(kind, TEXTS)
    return {"text": texts(*values)}


def all_calls(exports) -> list[tuple[str, str, dict]]:
    """Four calls for each kind: texts, an empty batch, features, and the same as records."""
    calls = []
    for kind, path in exports.items():
        inputs = inputs_of(kind)
        ids, serialized = records(kind)
        shaped = ids if kind == "multiple_choice" else ids[:, 0]
        mask = (shaped > 0).astype(np.int32)
        features = {"input_ids": shaped, "input_mask": mask, "segment_ids": mask * 0}
        if kind == "fill_mask":
            features["masked_lm_positions"] = np.array([[1, 2], [3, 0]], np.int32)
        empty = {name: value[:0] for name, value in inputs.items()}
        calls += [
            (path, "serving_default", inputs),
            (path, "serving_default", empty),
            (path, "ids", features),
            (path, "examples", {"examples": serialized}),
        ]
    return calls


def strings(array: np.ndarray):
    """An array of bytes as nested lists of str."""
    return [strings(x) if isinstance(x, np.ndarray) else x.decode() for x in array]


def near(answer, expected) -> None:
    """Asserts that two arrays differ by rounding only."""
    np.testing.assert_allclose(answer, expected, rtol=0, atol=TOLERANCE)


def choice_record(length: int) -> tuple[dict[str, np.ndarray], bytes]:
    """Features [1, 3, S], and the same as a tf.Example."""
    ids = np.random.default_rng(length).integers(5, 60, (3, length)).astype(np.int32)
    features = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": ids * 0}
    features["segment_ids"][:, length // 2 :] = 1
    values = {name: value.ravel() for name, value in features.items()}
    record = classifier_record(max_seq_length=length, num_choices=3)
    serialized = record.serialize(values | {"label_ids": [0], "is_real_example": [1]})
    return {name: value[np.newaxis] for name, value in features.items()}, serialized


def calls_of_unequal_records(exports) -> list[tuple[str, str, dict]]:
    """Records of three sequences of 9 and of 7 pieces in one batch; then each as features."""
    path = exports["multiple_choice"]
    long, long_record = choice_record(9)
    short, short_record = choice_record(7)
    together = {"examples": np.array([long_record, short_record], object)}
    return [(path, "examples", together), (path, "ids", long), (path, "ids", short)]


def calls_with_positions(exports) -> list[tuple[str, str, dict]]:
    """Calls with masked positions: of padding, outside the row, and too few or too many rows.

    The first two ask for padding with and without a longer row in the batch.
    """
    ids = np.array([[7, 8, 9], [11, 12, 13]], np.int32)
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": ids * 0}
    first = {name: value[:1] for name, value in batch.items()}

    def call(features: dict, *positions: list[int]) -> tuple[str, str, dict]:
        features = features | {"masked_lm_positions": np.array(positions, np.int32)}
        return exports["fill_mask"], "ids", features

    return [
        call(batch, [2, 0], [0, 1]),
        call(first, [2, 0]),
        call(batch, [2, 0], [0, 3]),
        call(batch, [2, -1], [0, 0]),
        call(batch, [2, 0]),
        call(first, [2, 0], [0, 1]),
    ]


def calls_to_refuse(exports) -> list[tuple[str, str, dict]]:
    """A good request, then bad ones, and the good one again."""
    pairs = exports["pairs"]
    classes = exports["classification"]
    ids = np.full([2, 3], 7, np.int32)
    features = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
    long = {name: np.tile(value, [1, 10]) for name, value in features.items()}
    values = dict.fromkeys(features, [1] * 8) | {"label_ids": [0], "is_real_example": [1]}
    single = classifier_record(max_seq_length=8).serialize(values)  # one sequence, not three
    int64 = tf.train.Int64List(value=[7, 2**32 + 7, 3])
    numbers = dict.fromkeys(features, tf.train.Feature(int64_list=int64))
    huge = tf.train.Example(features=tf.train.Features(feature=numbers)).SerializeToString()
    good = (classes, "serving_default", {"text": texts("it")})
    return [
        good,
        (pairs, "serving_default", {"text_a": texts("a", "b"), "text_b": texts("a")}),
        (classes, "ids", features | {"segment_ids": ids[:, :2] * 0}),
        (classes, "ids", features | {"input_ids": ids * 0 + 1000}),
        (classes, "ids", features | {"segment_ids": ids * 0 + 2}),
        (classes, "ids", long),
        (classes, "examples", {"examples": np.array([b"no record"], object)}),
        (classes, "examples", {"examples": np.array([huge], object)}),
        (exports["multiple_choice"], "examples", {"examples": np.array([single], object)}),
        (classes, "serving_default", {"text": np.array([b"\xff\xfe\0", b"\x80" * 999], object)}),
        good,
    ]


def run_calls(exports, folder: pathlib.Path) -> dict[str, list]:
    """The answers of the C API to all calls, by the tests that compare them."""
    calls = {
        "answers": all_calls(exports),
        "pieces": [(exports["embeddings"], "tokens", {"text": texts("it by it", "who")})],
        "unequal": calls_of_unequal_records(exports),
        "positions": calls_with_positions(exports),
        "refused": calls_to_refuse(exports),
    }
    flat = [call for part in calls.values() for call in part]
    results = iter(run_in_c(flat, folder))
    answers = {}
    for name, part in calls.items():
        answers[name] = [next(results) for _ in part]
    return answers


class References(dict[str, Reference]):
    """The model of each kind in Python, loaded at its first use."""

    def __init__(self, exports: dict[str, str]):
        super().__init__()
        self.exports = exports

    def __missing__(self, kind: str) -> Reference:
        self[kind] = Reference(kind, weights_beside(self.exports[kind]))
        return self[kind]
