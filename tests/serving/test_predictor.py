"""bert_tf.Predictor: what it takes and refuses, its batches, its order, its memory."""

import concurrent.futures
import itertools
import unittest.mock

import pytest
import served_models
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from served_models import metadata_of, random_pairs

import bert_tf
from bert_tf.errors import InputError
from bert_tf.serving import predictor as predictor_module
from bert_tf.serving.export import batch_of
from bert_tf.serving.loading import ServedModel
from bert_tf.serving.predictor import Predictor, batches
from bert_tf.serving.rows import arrays_of, shape_of, size_of

SINGLE = metadata_of(text=[None])
CHOICE = metadata_of(context=[None], endings=[None, None])


class Counting:
    """A model that gives each text's length, and notes the batches it is asked."""

    def __init__(self, metadata: dict = SINGLE, *, batch_size: int = 3):
        self.batches = []
        self.predictor = Predictor(
            ServedModel("none", metadata, None, lambda _: self._run, lambda: None),
            batch_size=batch_size,
        )

    def _run(self, **texts):
        lengths = sum(
            tf.reduce_sum(tf.reshape(tf.strings.length(t), [t.shape[0], -1]), 1)
            for t in texts.values()
        )
        self.batches.append(lengths.numpy().tolist())
        return {"length": lengths}


# ---------------------------------------------------------------------------- batches

SIZED = st.tuples(st.integers(0, 40), st.integers(1, 3))


@given(st.lists(SIZED, max_size=25), st.integers(1, 5))
def test_batches_are_of_rows_alike(sizes, batch_size):
    rows = [{"context": b"x" * n, "endings": [b"y"] * c} for n, c in sizes]
    with unittest.mock.patch.object(predictor_module, "BYTES_OF_A_BATCH", 64):
        found = list(batches(rows, batch_size=batch_size))
    assert sorted(itertools.chain(*found)) == list(range(len(rows)))
    for batch in found:
        assert len(batch) <= batch_size
        assert len({shape_of(rows[i]) for i in batch}) == 1
        widest = max(size_of(rows[i]) for i in batch)
        assert len(batch) == 1 or len(batch) * widest <= 64
        arrays = arrays_of([rows[i] for i in batch])
        assert arrays["endings"].shape == (len(batch), len(rows[batch[0]]["endings"]))


def test_rows_of_like_length_are_asked_together():
    model = Counting()
    texts = ["aaaaaaa", "a", "aaaaaaaa", "aa", "aaaaaa", "aaa"]
    found = model.predictor.predict(texts)
    assert [one["length"] for one in found] == [7, 1, 8, 2, 6, 3]
    assert model.batches == [[1, 2, 3], [6, 7, 8]]


def test_lists_of_other_sizes_are_asked_apart():
    model = Counting(CHOICE)
    found = model.predictor.predict([("a", ["b"]), ("aa", ["b", "bb"]), ("aaaa", ["bb"])])
    assert [one["length"] for one in found] == [2, 5, 6]
    assert model.batches == [[2, 6], [5]]
    assert model.predictor.predict([]) == []
    assert list(model.predictor.stream(iter(()))) == []


@pytest.mark.parametrize("items", ["a text", b"a text", {"text": "a"}])
def test_a_single_item_is_refused(items):
    with pytest.raises(InputError, match="a single item"):
        Counting().predictor.predict(items)


def test_answers_come_before_an_item_that_cannot_be_used():
    items = ["a", "bb", 5]
    answers = Counting().predictor.stream(items, window=2, place="thing {}".format)
    assert [next(answers)["length"] for _ in range(2)] == [1, 2]
    with pytest.raises(InputError, match="thing 3: 5"):
        next(answers)


# ---------------------------------------------------------------------------- streams


def test_a_stream_reads_no_further_than_a_window():
    read = 0

    def items():
        nonlocal read
        for read in range(1, 1000):
            yield "a" * (read % 7)

    for number, one in enumerate(Counting().predictor.stream(items()), 1):
        assert one["length"] == number % 7
        assert number <= read <= number + 3 * predictor_module.BATCHES_OF_A_WINDOW
    assert read == 999


def test_a_window_of_one_is_answered_at_once():
    read = itertools.count(1)
    answers = Counting().predictor.stream(("a" * next(read) for _ in range(5)), window=1)
    for number in range(1, 6):
        assert next(answers)["length"] == number
        assert repr(read) == f"count({number + 1})"


def test_a_window_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(predictor_module, "BYTES_OF_A_WINDOW", 100)
    model = Counting()
    model.predictor.predict(["a" * 60] * 6)
    assert model.batches == [[60, 60]] * 3


# ---------------------------------------------------------------------------- real models


def test_batches_and_threads_change_nothing(pairs_export):
    parts = [random_pairs(count) for count in (5, 9, 14, 2)]
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        found = [*itertools.chain(*pool.map(pairs_export.predict, parts))]
    assert len({one["label"] for one in found}) > 1
    for (text_a, text_b), one in zip(itertools.chain(*parts), found, strict=True):
        alone = pairs_export.model.run(batch_of([{"text_a": text_a, "text_b": text_b}]))
        assert one["label"] == alone["label"][0].decode()
        assert one["labels"] == list(served_models.LABELS)
        assert one["probabilities"] == pytest.approx(alone["probabilities"][0], abs=1e-5)


def test_bytes_that_are_not_utf_8_are_skipped(pairs_export):
    odd, plain = pairs_export.predict([(b"who\xff founded", "it"), ("who founded", "it")])
    assert odd["probabilities"] == pytest.approx(plain["probabilities"], abs=1e-5)


@pytest.mark.parametrize("given", [{"version": 9}, {"vocab_file": "x"}, {"topk": 3}])
def test_options_of_a_model_that_is_loaded(given):
    model = ServedModel("m", {}, None, lambda _: None, lambda: None)
    with pytest.raises(InputError, match="options for the model m, which is loaded"):
        bert_tf.Predictor(model, **given)


def test_answers_come_in_the_order_of_names():
    """TensorFlow gives an export's in that of a set, another one in each process."""
    metadata, names = {"signatures": {"serving_default": {}}}, ("label", "b", "labels")
    answers = {name: tf.constant(0.5) for name in names}
    model = ServedModel("m", metadata, None, lambda _: lambda: answers, lambda: None)
    assert list(model.run({})) == ["b", "label", "labels"]
