"""Exports of every kind, loaded and run by TensorFlow's C API, against the Python side."""

import dataclasses
import json
import math
import pathlib
import re

import numpy as np
import pytest
import served_models
import tensorflow as tf
from saved_models import read_saved_model, run_in_c
from served_models import CONFIG, KINDS, LENGTH, TAGS, THRESHOLD, TOKENIZER, TOP_K, Reference

from bert_tf import Predictor, cluster
from bert_tf.checkpoints.loading import Weights, open_weights
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.errors import InputError
from bert_tf.serving import export as export_module
from bert_tf.serving import fill_mask, loading
from bert_tf.serving.export import batch_of, export_checkpoint, export_run, warm_up_requests
from bert_tf.serving.options import ServingOptions
from bert_tf.serving.registry import make_task
from bert_tf.squad.answers import NO_CANDIDATE, decide
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


@pytest.fixture(scope="module")
def references(exports) -> dict[str, Reference]:
    return {kind: Reference(kind, weights_beside(path)) for kind, path in exports.items()}


def weights_beside(path: str) -> Weights:
    """What an export was made of."""
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
    """What is asked of the export of a kind."""
    if kind in ("pairs", "regression"):
        return {f"text_{x}": texts(*(p[i] for p in PAIRS)) for i, x in enumerate("ab")}
    if kind == "multiple_choice":
        contexts, endings = zip(*CHOICES, strict=True)
        return {"context": texts(*contexts), "endings": texts(*endings)}
    if kind in ("question_answering", "no_answer"):
        names = enumerate(("question", "context"))
        return {name: texts(*(q[i] for q in QUESTIONS)) for i, name in names}
    return {"text": texts(*{"token_labels": WORDS, "fill_mask": MASKED}.get(kind, TEXTS))}


def all_calls(exports) -> list[tuple[str, str, dict]]:
    """For each kind: texts, no texts, features, and their records."""
    calls = []
    for kind, path in exports.items():
        asked = inputs_of(kind)
        ids, serialized = records(kind)
        shaped = ids if kind == "multiple_choice" else ids[:, 0]
        mask = (shaped > 0).astype(np.int32)
        features = {"input_ids": shaped, "input_mask": mask, "segment_ids": mask * 0}
        if kind == "fill_mask":
            features["masked_lm_positions"] = np.array([[1, 2], [3, 0]], np.int32)
        none = {name: value[:0] for name, value in asked.items()}
        calls += [(path, "serving_default", asked), (path, "serving_default", none)]
        calls += [(path, "ids", features), (path, "examples", {"examples": serialized})]
    return calls


@pytest.fixture(scope="module")
def results(exports, tmp_path_factory) -> dict[str, list]:
    """What the C API gives to all calls of this file, in one process: it takes seconds to start."""
    calls = {
        "answers": all_calls(exports),
        "pieces": [(exports["embeddings"], "tokens", {"text": texts("it by it", "who")})],
        "unequal": calls_of_unequal_records(exports),
        "positions": calls_with_positions(exports),
        "refused": calls_to_refuse(exports),
        "warm_up": warm_up_calls(exports),
    }
    flat = [call for part in calls.values() for call in part]
    found = iter(run_in_c(flat, tmp_path_factory.mktemp("calls")))
    return {name: [next(found) for _ in part] for name, part in calls.items()}


@pytest.fixture(scope="module")
def answers(exports, results) -> dict[str, list]:
    """For each kind the answers to texts, to no texts, to features, and to records."""
    found = results["answers"]
    assert [result for result in found if isinstance(result, str)] == []
    return {kind: found[4 * i : 4 * i + 4] for i, kind in enumerate(exports)}


def strings(array: np.ndarray):
    """An array of bytes as nested lists of str."""
    return [strings(x) if isinstance(x, np.ndarray) else x.decode() for x in array]


def near(found, wanted) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)


# ---------------------------------------------------------------------------- answers


@pytest.mark.parametrize("kind", ["classification", "pairs"])
def test_labels_and_probabilities(answers, references, kind):
    found = answers[kind][0]
    asked = PAIRS if kind == "pairs" else [(text, None) for text in TEXTS]
    wanted = references[kind].texts(asked, "classification")
    near(found["probabilities"], wanted)
    near(found["probability"], wanted.max(axis=1))
    names = list(served_models.LABELS)
    assert strings(found["labels"]) == [names] * len(asked)
    assert strings(found["label"]) == [names[i] for i in wanted.argmax(axis=1)]
    assert np.ptp(wanted, axis=0).max() > 0.02  # the texts make a difference


def test_any_number_of_labels(answers, references):
    found = answers["multi_label"][0]
    wanted = references["multi_label"].texts([(text, None) for text in TEXTS], "multi_label")
    near(found["probabilities"], wanted)
    np.testing.assert_array_equal(found["applies"], wanted >= 0.5)
    assert 0 < found["applies"].sum() < found["applies"].size


def test_scores(answers, references):
    wanted = references["regression"].texts(PAIRS, "regression")
    near(answers["regression"][0]["score"], wanted[:, 0])


def test_choices(answers, references):
    found = answers["multiple_choice"][0]
    wanted = np.array([references["multiple_choice"].choices(*choice) for choice in CHOICES])
    near(found["probabilities"], wanted)
    assert found["choice"].tolist() == wanted.argmax(axis=1).tolist()


def test_labels_of_words(answers, references):
    found = answers["token_labels"][0]
    for row, text in enumerate(WORDS):
        words = text.split()
        assert found["num_words"][row] == len(words)
        assert strings(found["words"])[row][: len(words)] == words
        places = zip(found["starts"][row], found["ends"][row], strict=True)
        spans = list(places)[: len(words)]
        assert [text[start:end] for start, end in spans] == words
        if not words:
            continue
        wanted = references["token_labels"].words(words)
        near(found["probabilities"][row][: len(words)], wanted.max(axis=1))
        labels = strings(found["labels"])[row]
        assert labels[: len(words)] == [TAGS[i] for i in wanted.argmax(axis=1)]
        assert set(labels[len(words) :]) <= {""}


def test_vectors(answers, references):
    found = answers["embeddings"][0]
    for row, text in enumerate(TEXTS):
        cls, sep = TOKENIZER.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        pieces = TOKENIZER.convert_tokens_to_ids(TOKENIZER.tokenize(text))[: LENGTH - 2]
        ids = [cls, *pieces, sep]
        wanted = references["embeddings"].outputs(ids, [0] * len(ids))
        near(found["mean"][row], wanted["sequence_output"].mean(axis=0))
        near(found["pooled"][row], wanted["pooled_output"])


def test_guesses_for_masks(answers, references):
    found = answers["fill_mask"][0]
    model = references["fill_mask"].model
    assert found["pieces"].shape == (len(MASKED), 3, TOP_K)
    for row, text in enumerate(MASKED):
        cut = text.removesuffix(" [MASK]") if text == MASKED[-1] else text  # what does not fit
        masks = cut.count("[MASK]")
        assert found["num_masks"][row] == masks
        assert set(found["pieces"][row][masks:].ravel()) <= {b""}
        if not masks:
            continue
        wanted = fill_mask.fill_mask(model, TOKENIZER, cut, max_seq_length=LENGTH, top_k=TOP_K)
        pieces = strings(found["pieces"][row][:masks])
        assert pieces == [[guess.piece for guess in guesses] for guesses in wanted]
        probabilities = [[guess.probability for guess in guesses] for guesses in wanted]
        near(found["probabilities"][row][:masks], probabilities)


@pytest.mark.parametrize("kind", ["question_answering", "no_answer"])
def test_answers_to_questions(answers, references, kind):
    found, version_2 = answers[kind][0], kind == "no_answer"
    wanted = references[kind].answers(QUESTIONS, version_2=version_2)
    for row, ((_, context), prediction) in enumerate(zip(QUESTIONS, wanted, strict=True)):
        entries = [entry for entry in prediction.nbest if entry.text != NO_CANDIDATE][:TOP_K]
        answer = decide(prediction, null_score_diff_threshold=THRESHOLD)
        answer = "" if answer == NO_CANDIDATE else answer
        has_answer = bool(found["has_answer"][row])
        assert found["answer"][row].decode() == answer
        assert has_answer == bool(answer)
        start, end = found["start"][row], found["end"][row]
        assert (context[start:end] == answer) if has_answer else (start == end == -1)
        nbest = strings(found["nbest_answers"])[row]
        assert nbest == [e.text for e in entries] + [""] * (TOP_K - len(entries))
        shares = [entry.probability for entry in entries]
        near(found["nbest_probabilities"][row][: len(entries)], shares)
        chosen = next((e for e in prediction.nbest if e.text == answer), None)
        if chosen is not None:
            near(found["score"][row], chosen.start_logit + chosen.end_logit)
            near(found["probability"][row], chosen.probability)
        if version_2:
            near(found["null_odds"][row], prediction.null_odds)
    assert ("null_odds" in found) == version_2
    assert found["has_answer"].tolist().count(True) in (1, 2, 3)


# ---------------------------------------------------------------------------- other signatures


@pytest.mark.parametrize("kind", KINDS)
def test_no_texts_no_answers(answers, kind):
    some, none, *_ = answers[kind]
    assert set(none) == set(some)
    for name, value in none.items():
        assert value.shape[0] == 0
        assert value.dtype == some[name].dtype


@pytest.mark.parametrize("kind", KINDS)
def test_features_and_their_records_give_the_same(answers, references, kind):
    _, _, of_ids, of_examples = answers[kind]
    ids, _ = records(kind)
    if kind != "fill_mask":  # whose records have positions too
        for name, value in of_ids.items():
            if value.dtype == np.float32:
                near(of_examples[name], value)
            else:
                np.testing.assert_array_equal(of_examples[name], value, err_msg=name)
    if kind == "multiple_choice":
        rows = [
            [references[kind].outputs(x[x > 0], [0] * (x > 0).sum())["logits"][0] for x in row]
            for row in ids
        ]
        scores = np.exp(rows - np.max(rows, axis=1, keepdims=True))
        near(of_ids["probabilities"], scores / scores.sum(axis=1, keepdims=True))
        return
    first = ids[0, 0][ids[0, 0] > 0]  # 4 pieces, without its padding
    more = {"masked_lm_positions": [[1, 2]]} if kind == "fill_mask" else {}
    wanted = references[kind].outputs(first, [0] * len(first), **more)
    if kind in ("question_answering", "no_answer"):
        near(of_ids["start_logits"][0, :4], wanted["start_logits"])
        near(of_ids["end_logits"][0, :4], wanted["end_logits"])
    elif kind == "embeddings":
        near(of_ids["mean"][0], wanted["sequence_output"].mean(axis=0))
    elif kind == "regression":
        near(of_ids["score"][0], wanted["logits"][0])
    elif kind == "fill_mask":
        assert of_ids["probabilities"].shape == (2, 2, TOP_K)
        best = wanted["masked_lm_logits"].argmax(axis=-1)
        assert strings(of_ids["pieces"][0, :, 0]) == TOKENIZER.convert_ids_to_tokens(best)
    else:
        logits = wanted["logits"].astype(np.float64)
        head = "multi_label" if kind == "multi_label" else "classification"
        shares = served_models.probabilities(head, logits)
        near(of_ids["probabilities"][0][: len(shares)], shares)


def test_vectors_of_pieces(results, references):
    (found,) = results["pieces"]
    assert strings(found["pieces"]) == [
        ["[CLS]", "it", "by", "it", "[SEP]"],
        ["[CLS]", "who", "[SEP]", "", ""],
    ]
    assert found["num_pieces"].tolist() == [5, 3]
    ids = TOKENIZER.convert_tokens_to_ids(["[CLS]", "who", "[SEP]"])
    wanted = references["embeddings"].outputs(ids, [0] * 3)["sequence_output"]
    near(found["vectors"][1, :3], wanted)
    assert not found["vectors"][1, 3:].any()


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
    """Records of three sequences of 9 pieces and of 7 in one batch; then each as features."""
    path, made = exports["multiple_choice"], [choice_record(length) for length in (9, 7)]
    together = {"examples": np.array([serialized for _, serialized in made], object)}
    return [(path, "examples", together), *((path, "ids", features) for features, _ in made)]


def test_records_of_other_lengths_are_cut_into_their_own_sequences(results):
    together, *alone = results["unequal"]
    for row, one in enumerate(alone):
        near(together["probabilities"][row], one["probabilities"][0])
        assert together["choice"][row] == one["choice"][0]
    assert np.ptp(together["probabilities"], axis=0).max() > 0.02


# ---------------------------------------------------------------------------- positions of masks


def calls_with_positions(exports) -> list[tuple[str, str, dict]]:
    """Of padding, with and without a longer row beside it; then such as no row has."""
    ids = np.array([[7, 8, 9], [11, 12, 13]], np.int32)
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    both = {"input_ids": ids, "input_mask": mask, "segment_ids": ids * 0}
    first = {name: value[:1] for name, value in both.items()}

    def call(features: dict, *positions: list[int]) -> tuple[str, str, dict]:
        features = features | {"masked_lm_positions": np.array(positions, np.int32)}
        return exports["fill_mask"], "ids", features

    return [
        call(both, [2, 0], [0, 1]),
        call(first, [2, 0]),
        call(both, [2, 0], [0, 3]),
        call(both, [2, -1], [0, 0]),
        call(both, [2, 0]),
        call(first, [2, 0], [0, 1]),
    ]


def test_positions_are_of_the_ids_given(results):
    together, alone, *refused = results["positions"]
    near(alone["probabilities"][0], together["probabilities"][0])
    np.testing.assert_array_equal(alone["pieces"][0], together["pieces"][0])
    assert len(refused) == 4
    for message in refused:
        assert "masked_lm_positions must have a row for each of input_ids" in message


# ---------------------------------------------------------------------------- requests refused


def calls_to_refuse(exports) -> list[tuple[str, str, dict]]:
    """A good request, then bad ones, and the good one again."""
    pairs, classes = exports["pairs"], exports["classification"]
    ids = np.full([2, 3], 7, np.int32)
    features = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
    long = {name: np.tile(value, [1, 10]) for name, value in features.items()}
    values = dict.fromkeys(features, [1] * 8) | {"label_ids": [0], "is_real_example": [1]}
    of_eight = classifier_record(max_seq_length=8).serialize(values)
    int64 = tf.train.Int64List(value=[7, 2**32 + 7, 3])
    numbers = dict.fromkeys(features, tf.train.Feature(int64_list=int64))
    great = tf.train.Example(features=tf.train.Features(feature=numbers)).SerializeToString()
    good = (classes, "serving_default", {"text": texts("it")})
    return [
        good,
        (pairs, "serving_default", {"text_a": texts("a", "b"), "text_b": texts("a")}),
        (classes, "ids", features | {"segment_ids": ids[:, :2] * 0}),
        (classes, "ids", features | {"input_ids": ids * 0 + 1000}),
        (classes, "ids", features | {"segment_ids": ids * 0 + 2}),
        (classes, "ids", long),
        (classes, "examples", {"examples": np.array([b"no record"], object)}),
        (classes, "examples", {"examples": np.array([great], object)}),
        (exports["multiple_choice"], "examples", {"examples": np.array([of_eight], object)}),
        (classes, "serving_default", {"text": np.array([b"\xff\xfe\0", b"\x80" * 999], object)}),
        good,
    ]


def test_requests_that_cannot_be_answered_say_why(results):
    first, uneven, shapes, row, segment, length, record, *others = results["refused"]
    great, no_multiple, not_utf8, again = others
    assert "text_a and text_b must have the same length" in uneven
    assert "must have the same shape" in shapes
    assert f"input_ids must be 0 or more and below {CONFIG.vocab_size}" in row
    assert "segment_ids must be 0 or more and below 2" in segment
    assert "more than 29 pieces" in length
    assert "Could not parse example input" in record
    assert "must have numbers of 32 bits" in great  # and not what is left of it in 32 bits
    assert "must be a multiple of 3" in no_multiple
    assert not_utf8["probabilities"].shape == (2, 3)  # as empty texts
    np.testing.assert_array_equal(again["probabilities"], first["probabilities"])


# ---------------------------------------------------------------------------- what is written

# What tensorflow_model_server has. TensorFlow's operations are all linked into it; listed are those
# that are known to have kernels on CPUs of every kind. Of tensorflow-text it has the version 2.12,
# without what came later, such as TFText>RoundRobinTrim.
TEXT_OPERATIONS = {"FastWordpieceTokenizeWithOffsets"}
OPERATIONS = set(pathlib.Path(__file__).with_name("tf_serving_operations.txt").read_text().split())


def operations_of(path: str) -> set[str]:
    """Of the graph and every function in it."""
    (meta_graph,) = read_saved_model(path).meta_graphs
    graph = meta_graph.graph_def
    functions = [node for function in graph.library.function for node in function.node_def]
    return {node.op for node in [*graph.node, *functions]}


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_is_one_that_tf_serving_has(exports, kind):
    operations = operations_of(exports[kind])
    assert not operations - OPERATIONS - TEXT_OPERATIONS
    assert operations >= {"FastWordpieceTokenizeWithOffsets", "MatMul"}


def test_operations_of_this_list_are_tensorflows_own():
    registered = tf.raw_ops.__dict__
    control_flow = {"If", "While", "StatelessIf", "StatelessWhile", "Const"}
    calls = {"PartitionedCall", "StatefulPartitionedCall"}
    assert not [name for name in OPERATIONS - control_flow - calls if name not in registered]


def warm_up_calls(exports) -> list[tuple[str, str, dict]]:
    """The requests that a server would begin with."""
    calls = []
    for kind in ("pairs", "multiple_choice", "token_labels", "fill_mask", "no_answer"):
        requests = warm_up_requests(make_task_of(kind, exports[kind]))
        calls += [(exports[kind], *request) for request in requests]
    return calls


def test_warm_up_requests_can_be_answered(results):
    assert [result for result in results["warm_up"] if isinstance(result, str)] == []


def make_task_of(kind: str, path: str):
    weights = weights_beside(path)
    return make_task(weights, weights.config, TOKENIZER, served_models.options(kind))


def test_weights_are_written_once(exports):
    for kind, path in exports.items():
        written = sum(4 * math.prod(shape) for shape in read_weights(path).values())
        size = (pathlib.Path(path) / "variables/variables.data-00000-of-00001").stat().st_size
        unused = r"cls/seq_relationship/"
        if kind in ("token_labels", "fill_mask", "question_answering", "no_answer"):
            unused += "|bert/pooler/"
        weights = weights_beside(path)
        used = [name for name in weights.names if not re.match(unused, name)]
        assert written == sum(4 * math.prod(weights.shapes[name]) for name in used)
        assert size < written + 20_000  # the object graph


def read_weights(path: str) -> dict[str, list[int]]:
    reader = tf.train.load_checkpoint(f"{path}/variables/variables")
    shapes = reader.get_variable_to_shape_map()
    return {name: shape for name, shape in shapes.items() if "CHECKPOINTABLE" not in name}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_that_the_card_tells(exports, answers, results, kind):
    of_texts, _, of_ids, of_examples = answers[kind]
    found = {"serving_default": of_texts, "ids": of_ids, "examples": of_examples}
    if kind == "embeddings":
        found["tokens"] = results["pieces"][0]
    metadata = json.loads((pathlib.Path(exports[kind]) / "export.json").read_text())
    card = (pathlib.Path(exports[kind]) / "README.md").read_text()
    assert metadata["answers"].keys() == metadata["signatures"].keys() == found.keys()
    types = {"string": object, "float": np.float32, "int32": np.int32, "bool": np.bool_}
    for signature, arrays in found.items():
        told = metadata["answers"][signature]
        assert told.keys() == arrays.keys()
        for name, text in told.items():
            dtype, shape = re.match(r"(\w+) \[(.+?)\]", text).groups()
            assert arrays[name].dtype == types[dtype]
            assert arrays[name].ndim == len(shape.split(", "))
            assert f"- `{name}`: {text}" in card
    assert "as long as the longest row asked" in card


def test_versions_are_counted_and_nothing_unfinished_is_left(tmp_path, monkeypatch, caplog):
    path = pathlib.Path(served_models.export("classification", tmp_path))
    assert path.name == "1"
    weights = weights_beside(str(path))
    (path.parent / "7").mkdir()
    (path.parent / "incomplete-8").mkdir()  # of a process that was killed, or is writing it
    (tmp_path / "model/eval_results.txt").write_text("eval_accuracy = 0.75\nloss = 1.0\n")
    arguments = (weights, weights.config, TOKENIZER, str(path.parent))
    with caplog.at_level("WARNING", logger="absl"):
        second = export_checkpoint(*arguments, options=ServingOptions())
    assert f"{path.parent}/incomplete-8 is of an export that was killed" in caplog.text
    assert pathlib.Path(second).name == "8"
    assert "eval_accuracy: 0.75" in (path.parent / "8/README.md").read_text()

    def fail(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "no space left")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(InputError, match="no space left"):
        export_checkpoint(*arguments, options=ServingOptions())
    assert sorted(p.name for p in path.parent.iterdir()) == ["1", "7", "8", "incomplete-8"]


def test_two_exports_at_once_are_two_versions(tmp_path, monkeypatch):
    """Each writes its own folder; whoever comes second takes the next number."""
    weights = served_models.write_folder("classification", tmp_path / "model")
    arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
    save, paths = tf.saved_model.save, []

    def save_after_another(*args, **kwargs):
        monkeypatch.setattr(tf.saved_model, "save", save)
        paths.append(export_checkpoint(*arguments, options=ServingOptions(labels=("a", "b", "c"))))
        save(*args, **kwargs)

    monkeypatch.setattr(tf.saved_model, "save", save_after_another)
    paths.append(export_checkpoint(*arguments, options=ServingOptions()))
    assert [pathlib.Path(path).name for path in paths] == ["1", "2"]
    labels = [json.loads(pathlib.Path(p, "export.json").read_text())["options"] for p in paths]
    assert [one["labels"] for one in labels] == [["a", "b", "c"], list(served_models.LABELS)]

    taken = iter([1, 1, 3])
    monkeypatch.setattr(export_module, "_next_version", lambda _: next(taken))
    third = export_checkpoint(*arguments, options=ServingOptions())
    assert pathlib.Path(third).name == "3"
    assert sorted(p.name for p in (tmp_path / "export").iterdir()) == ["1", "2", "3"]


def test_a_folder_that_cannot_be_moved_is_no_version(tmp_path, monkeypatch):
    """Refused once, and not tried for ever."""
    weights = served_models.write_folder("classification", tmp_path / "model")

    rename, moved = tf.io.gfile.rename, []

    def fail(source, target, **more):
        if not tf.io.gfile.isdir(source):
            rename(source, target, **more)
            return
        moved.append(target)
        raise tf.errors.FailedPreconditionError(None, None, "not here")

    monkeypatch.setattr(tf.io.gfile, "rename", fail)
    arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
    with pytest.raises(InputError, match="not here"):
        export_checkpoint(*arguments, options=ServingOptions())
    assert moved == [str(tmp_path / "export/1")]
    assert list((tmp_path / "export").iterdir()) == []


def test_on_a_remote_file_system_what_makes_it_a_model_comes_last(tmp_path, monkeypatch):
    weights = served_models.write_folder("classification", tmp_path / "model")
    copy, copied = tf.io.gfile.copy, []

    def noting(source, target, **more):
        copied.append(target)
        copy(source, target, **more)

    monkeypatch.setattr(tf.io.gfile, "copy", noting)
    monkeypatch.setattr(export_module.files, "is_remote", lambda _: True)
    arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
    path = export_checkpoint(*arguments, options=ServingOptions())
    names = [name.removeprefix(f"{path}/") for name in copied if name.startswith(path)]
    assert names[-1] == "saved_model.pb"
    wanted = {"README.md", "export.json", "assets/vocab.txt", "variables/variables.index"}
    assert wanted <= {*names}
    assert [p.name for p in (tmp_path / "export").iterdir()] == ["1"]
    assert Predictor(path).predict(["it"])


def test_a_copy_to_a_remote_file_system_that_fails_leaves_nothing(tmp_path, monkeypatch):
    """And is not tried again under another number."""
    weights = served_models.write_folder("classification", tmp_path / "model")
    copy, copied = tf.io.gfile.copy, []

    def fail_at_the_third(source, target, **more):
        if target.startswith(str(tmp_path / "export/1/")):
            copied.append(target)
            if len(copied) == 3:
                raise tf.errors.FailedPreconditionError(None, None, "a changed generation")
        copy(source, target, **more)

    monkeypatch.setattr(tf.io.gfile, "copy", fail_at_the_third)
    monkeypatch.setattr(export_module.files, "is_remote", lambda _: True)
    arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
    with pytest.raises(InputError, match="a changed generation"):
        export_checkpoint(*arguments, options=ServingOptions())
    assert len(copied) == 3
    assert list((tmp_path / "export").iterdir()) == []


def with_no_numbers(weights: Weights) -> Weights:
    def read(name: str) -> np.ndarray:
        value = np.array(weights.read(name))
        return np.full_like(value, np.nan) if name == "output_bias" else value

    return dataclasses.replace(weights, read=read)


def test_a_model_that_has_lost_its_way_is_not_exported(tmp_path):
    weights = with_no_numbers(served_models.write_folder("classification", tmp_path / "model"))
    arguments = (weights, weights.config, TOKENIZER)
    with pytest.raises(InputError, match=r"a model whose probabilit.* NaN or infinite"):
        export_checkpoint(*arguments, str(tmp_path / "export"), options=ServingOptions())
    assert list((tmp_path / "export").iterdir()) == []
    model = loading.of_weights(*arguments, ServingOptions())
    with pytest.raises(InputError, match="NaN or infinite"):
        Predictor(model).predict(["it"])


def test_versions_of_another_format_are_refused(tmp_path):
    """TF Serving would load the greatest, and have no model."""
    path = pathlib.Path(served_models.export("classification", tmp_path))
    weights = weights_beside(str(path))
    arguments = (weights, weights.config, TOKENIZER, str(path.parent))
    with pytest.raises(InputError, match=r"where version 1 has a saved_model\.pb"):
        export_checkpoint(*arguments, options=ServingOptions(), file_format="onnx")
    assert [p.name for p in path.parent.iterdir()] == ["1"]


def test_what_a_model_has_no_memory_for_is_no_fault_of_the_path(tmp_path, monkeypatch):
    weights = served_models.write_folder("classification", tmp_path / "model")

    def fail(_):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")

    monkeypatch.setattr(export_module, "concrete_functions", fail)
    arguments = (weights, weights.config, TOKENIZER, str(tmp_path / "export"))
    with pytest.raises(tf.errors.ResourceExhaustedError, match="OOM"):
        export_checkpoint(*arguments, options=ServingOptions())
    assert list((tmp_path / "export").iterdir()) == []


# ---------------------------------------------------------------------------- of a run


def export_of_run(folder: pathlib.Path, source: Weights) -> str | None:
    return export_run(
        str(folder / "run"), source, source.config, TOKENIZER, str(folder / "export"),
        options=ServingOptions(),
    )  # fmt: skip


def test_the_best_checkpoint_of_a_run_is_exported(tmp_path, monkeypatch):
    source = served_models.write_folder("classification", tmp_path / "model")
    tensors = {name: source.read(name) for name in source.names}
    asked = []
    monkeypatch.setattr(
        export_module, "export_checkpoint", lambda source, *_, **__: asked.append(source.path)
    )
    export_of_run(tmp_path, source)
    for folder, step in (("run", 3), ("run/best", 2)):
        CheckpointFolder(str(tmp_path / folder)).save(step, tensors)
        export_of_run(tmp_path, source)
    assert asked == [
        str(tmp_path / name)
        for name in ("model/model.ckpt", "run/model.ckpt-3", "run/best/model.ckpt-2")
    ]


def test_of_several_processes_the_chief_exports(tmp_path, monkeypatch):
    source = served_models.write_folder("classification", tmp_path / "model")
    waited = []
    monkeypatch.setattr(cluster, "is_chief", lambda: False)
    monkeypatch.setattr(cluster, "barrier", lambda: waited.append(True))
    assert export_of_run(tmp_path, source) is None
    assert waited == [True]
    assert not (tmp_path / "export").exists()
