"""Batches of requests: what is computed together, in which order, and how answers are joined."""

import concurrent.futures
import itertools
import threading
from collections.abc import Sequence

import numpy as np
import pytest
import small_squad
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.serving import batching
from bert_tf.serving.batching import (
    ClosedError,
    Turns,
    are_alike,
    batches,
    joined,
    num_tokens,
    sizes_of,
)

SIZED = st.tuples(st.integers(0, 40), st.integers(1, 3))


@given(st.lists(SIZED, max_size=25), st.integers(1, 5))
def test_batches_are_of_rows_alike(rows, batch_size):
    sizes = [size for size, _ in rows]
    shapes = [(count,) for _, count in rows]
    found = list(batches(sizes, shapes=shapes, batch_size=batch_size, most_bytes=64))
    assert sorted(itertools.chain(*found)) == list(range(len(rows)))
    for batch in found:
        assert len(batch) <= batch_size
        assert len({shapes[row] for row in batch}) == 1
        assert len(batch) == 1 or len(batch) * max(sizes[row] for row in batch) <= 64


def texts_of(*texts: str) -> dict[str, np.ndarray]:
    return {"text": np.array([text.encode() for text in texts], object)}


def test_sizes_are_bytes_of_texts_and_numbers_of_ids():
    assert sizes_of(texts_of("", "ab", "é")) == [0, 2, 2]
    endings = np.array([[b"a", b"bcd"], [b"", b""]], object)
    assert sizes_of({"context": np.array([b"xy", b""], object), "endings": endings}) == [6, 0]
    ids = np.array([[7, 8, 0], [9, 0, 0]], np.int32)
    assert sizes_of({"input_ids": ids, "input_mask": ids, "segment_ids": ids * 0}) == [4, 2]
    assert sizes_of(texts_of()) == []


def test_answers_are_joined_in_the_order_of_their_rows():
    """What is narrower is padded, as the graph pads it."""
    parts = [
        ([2, 0], {"score": np.array([0.2, 0.0]), "words": np.array([[b"c"], [b"a"]], object)}),
        ([1], {"score": np.array([0.1]), "words": np.array([[b"b", b"bb"]], object)}),
    ]
    answers = joined(parts, 3)
    assert answers["score"].tolist() == [0.0, 0.1, 0.2]
    assert answers["words"].tolist() == [[b"a", b""], [b"b", b"bb"], [b"c", b""]]
    assert joined(parts[:1], 2)["words"].tolist() == [[b"a"], [b"c"]]


# ---------------------------------------------------------------------------- turns


class Lengths:
    """A model that answers the length of each text, once it may; and notes what it is given."""

    def __init__(self, padded: Sequence[str] = ()):
        self.metadata = {"padded": padded}
        self.may_run = threading.Event()
        self.asked: list[list[bytes]] = []

    def run(self, arrays, signature):
        assert signature == "serving_default"
        assert self.may_run.wait(30)
        texts = arrays["text"].tolist()
        self.asked.append(texts)
        if b"wrong" in texts:
            raise ValueError("wrong")
        return {"length": np.array([*map(len, texts)], np.int32)}


@pytest.fixture
def model():
    return Lengths()


@pytest.fixture
def turns(model):
    made = Turns(model)
    yield made
    model.may_run.set()
    made.close()


def ask(turns: Turns, *texts: str) -> concurrent.futures.Future:
    return turns.ask(texts_of(*texts), "serving_default")


def begun(turns: Turns, model: Lengths) -> concurrent.futures.Future:
    """A request that the model has begun to compute."""
    first = ask(turns, "first")
    while turns._waiting:
        pass
    assert not model.asked
    return first


def test_a_short_request_does_not_wait_for_the_whole_of_a_long_one(turns, model):
    begun(turns, model)
    long = ask(turns, *["x" * n for n in range(1, 101)])
    short = ask(turns, "y" * 400)
    ended = []
    long.add_done_callback(lambda _: ended.append("long"))
    short.add_done_callback(lambda _: ended.append("short"))
    model.may_run.set()
    assert long.result(30)["length"].tolist() == [*range(1, 101)]
    assert short.result(30)["length"].tolist() == [400]
    assert ended == ["short", "long"]
    assert [len(texts) for texts in model.asked] == [1, 32, 1, 32, 32, 4]


def test_those_that_wait_share_a_batch_if_they_are_alike(turns, model):
    """Of similar length, and not more rows than a batch has."""
    begun(turns, model)
    given = [["a"] * 30, ["b" * 20], ["c" * 500], ["d"] * 2, ["e" * 900], ["f" * 32]]
    found = [ask(turns, *texts) for texts in given]
    model.may_run.set()
    lengths = [answers.result(30)["length"].tolist() for answers in found]
    assert lengths == [[len(text) for text in texts] for texts in given]
    sets = [{text[:1] for text in texts} for texts in model.asked]
    assert sets == [{b"f"}, {b"a", b"b", b"f"}, {b"c", b"e"}, {b"d"}]


def test_answers_as_wide_as_their_batch_are_computed_alone():
    model = Lengths(padded=["serving_default"])
    turns = Turns(model)
    first = begun(turns, model)
    answers = [ask(turns, "a"), ask(turns, "b")]
    model.may_run.set()
    assert [x.result(30)["length"].tolist() for x in [first, *answers]] == [[5], [1], [1]]
    turns.close()
    assert [len(texts) for texts in model.asked] == [1, 1, 1]


def test_one_that_is_wrong_does_no_harm_to_others(turns, model):
    begun(turns, model)
    found = [ask(turns, text) for text in ("a", "wrong", "b")]
    model.may_run.set()
    assert found[0].result(30)["length"].tolist() == [1]
    with pytest.raises(ValueError, match="wrong"):
        found[1].result(30)
    assert found[2].result(30)["length"].tolist() == [1]


def test_what_nobody_waits_for_is_not_computed(turns, model):
    first = begun(turns, model)
    left = ask(turns, *["x" * 999] * 64)
    assert left.cancel()
    stays = ask(turns, "stays")
    model.may_run.set()
    assert stays.result(30)
    assert first.result(30)
    assert [len(texts) for texts in model.asked] == [1, 1]


def test_what_is_left_does_not_share_a_batch(turns, model):
    begun(turns, model)
    found = [ask(turns, text) for text in "abc"]
    assert found[1].cancel()
    model.may_run.set()
    assert found[2].result(30)["length"].tolist() == [1]
    assert model.asked[1:] == [[b"a", b"c"]]


def test_answers_that_cannot_be_joined_fail_alone(monkeypatch, turns, model):
    """Too large for the memory, say; the thread goes on."""

    def join(parts, num_rows):
        if num_rows == 40:
            raise MemoryError
        return joined(parts, num_rows)

    monkeypatch.setattr(batching, "joined", join)
    model.may_run.set()
    with pytest.raises(MemoryError):
        ask(turns, *["a"] * 40).result(30)
    assert ask(turns, "b").result(30)["length"].tolist() == [1]


SIZES = st.lists(st.integers(0, 3000), min_size=1, max_size=40)


@given(SIZES)
def test_rows_that_share_a_batch_are_alike(sizes):
    if are_alike(sizes):
        assert len(sizes) <= 32
        assert len(sizes) * max(sizes) <= 1 << 14
        assert max(sizes) <= 2 * max(32, min(sizes))
    assert are_alike([max(sizes)]) == (max(sizes) <= 1 << 14)


def test_at_the_end_what_waits_is_refused(turns, model):
    first = begun(turns, model)
    waits = ask(turns, *["x"] * 99)
    closing = threading.Thread(target=turns.close)
    closing.start()
    with pytest.raises(ClosedError):
        waits.result(30)
    model.may_run.set()
    assert first.result(30)["length"].tolist() == [5]  # what has begun is answered
    closing.join()
    assert not turns.is_alive
    with pytest.raises(ClosedError):
        ask(turns, "a")


def test_no_row_has_answers_too(turns, model):
    model.may_run.set()
    assert ask(turns).result(30)["length"].tolist() == []


def test_tokens_of_every_signature():
    tokenizer = small_squad.make_tokenizer(do_lower_case=True)

    class Model:
        pass

    Model.tokenizer = tokenizer
    texts = ["who founded it", "", "1386"]
    wanted = sum(len(tokenizer.tokenize(text)) for text in texts)
    assert num_tokens(Model, [(texts_of(*texts), "serving_default")] * 2) == 2 * wanted
    mask = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
    assert num_tokens(Model, [({"input_mask": mask, "input_ids": mask * 9}, "ids")]) == 3
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 1, 0]))
    example = tf.train.Example(features=tf.train.Features(feature={"input_mask": feature}))
    records = np.array([example.SerializeToString()] * 2, object)
    assert num_tokens(Model, [({"examples": records}, "examples")]) == 4
