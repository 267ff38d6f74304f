"""instances.py and masking.py: a drawn example, the plain way's records, protobuf's bytes."""

import dataclasses
import random

import numpy as np
import pytest
import reference_pretraining
import tensorflow as tf
from generation import SETTINGS
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data.records import Feature, Record, fill_rows, pretraining_record
from bert_tf.data.shards import checked
from bert_tf.errors import InputError
from data_gen import instances
from data_gen.corpus import CONTINUES_WORD, TOKEN_TYPE, Corpus
from data_gen.documents import Counts
from data_gen.instances import InstanceMaker
from data_gen.masking import MASKED, Masked, Pair
from data_gen.serialization import serialize

PIECES = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "he", "went", "home", "it", "was", "late")
VOCAB = {piece: number for number, piece in enumerate(PIECES)}


def ids(text: str) -> list[int]:
    return [VOCAB[piece] for piece in text.split()]


def make(**changes) -> InstanceMaker:
    return InstanceMaker(dataclasses.replace(SETTINGS, **changes), VOCAB)


def make_rows(maker: InstanceMaker, documents, rng, counts) -> np.ndarray:
    return maker.rows(Corpus.of(documents), range(len(documents)), rng, counts)


@pytest.mark.parametrize("is_random_next", [False, True])
def test_the_drawn_example(is_random_next):
    maker = make(max_seq_length=11, max_predictions_per_seq=2, do_whole_word_mask=True)
    a, b = (np.array(ids(t), TOKEN_TYPE).tobytes() for t in ("he went home", "it was late"))
    rows = maker.make_rows([Pair(a, b, is_random_next)], [Masked([3], [MASKED])])
    values = {name: value[0].tolist() for name, value in maker.record_values(rows).items()}
    assert values == {
        "input_ids": [*ids("[CLS] he went [MASK] [SEP] it was late [SEP]"), 0, 0],
        "input_mask": [1] * 9 + [0] * 2,
        "segment_ids": [0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0],
        "masked_lm_positions": [3, 0],
        "masked_lm_ids": [VOCAB["home"], 0],
        "masked_lm_weights": [1.0, 0.0],
        "next_sentence_labels": [int(is_random_next)],
    }


sentences = st.lists(st.integers(4, 39), min_size=1, max_size=30)
documents = st.lists(sentences, min_size=1, max_size=12)
whole_words = st.sampled_from(
    [{"do_whole_word_mask": False}]
    + [{"do_whole_word_mask": True, "words_from_spaces": spaces} for spaces in (False, True)]
)  # fmt: skip
shares = st.sampled_from([(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.0, 0.8, 0.2), (0.5, 0.1, 0.4)])


@given(
    corpus=st.lists(documents, min_size=1, max_size=6),
    changes=st.fixed_dictionaries(
        {
            "max_seq_length": st.sampled_from([5, 6, 20, 41, 300]),
            "max_predictions_per_seq": st.integers(1, 60),
            "masked_lm_prob": st.sampled_from([0.02, 0.15, 1.0]),
            "short_seq_prob": st.sampled_from([0.0, 0.1, 1.0]),
            "dupe_factor": st.integers(1, 3),
        }
    ),
    masking=whole_words,
    shares=shares,
    seed=st.integers(0, 9999),
    tokens_at_a_time=st.sampled_from([1, 100, 1 << 18]),
)
@settings(max_examples=80, deadline=None)
def test_the_instances_are_those_of_the_plain_way(
    corpus, changes, masking, shares, seed, tokens_at_a_time
):
    """The original's steps on lists; afterwards the generator is in the same state."""
    if masking.get("words_from_spaces"):
        corpus = [[[t | CONTINUES_WORD * (t % 4 > 1) for t in sentence] for sentence in document]
                  for document in corpus]  # fmt: skip
    vocab = {f"{'##' if n % 3 == 0 else ''}{n}": n for n in range(40)}
    vocab = {{1: "[CLS]", 2: "[SEP]", 3: "[MASK]"}.get(n, piece): n for piece, n in vocab.items()}
    masking |= dict(zip(("mask_share", "random_share", "unchanged_share"), shares, strict=True))
    chosen = dataclasses.replace(SETTINGS, **changes, **masking)
    rng, other = random.Random(seed), random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instances, "TOKENS_AT_A_TIME", tokens_at_a_time)
        rows = make_rows(InstanceMaker(chosen, vocab), corpus, rng, Counts())
    found = []
    for row in rows:
        length_a, length_b = row["lengths"].tolist()
        number = int(row["num_masked"])
        assert not row["positions"][number:].any()
        assert not row["labels"][number:].any()
        assert not row["input_ids"][length_a + length_b + 3 :].any()
        shown = row["input_ids"][: length_a + length_b + 3].tolist()
        masked = row["positions"][:number].tolist(), row["labels"][:number].tolist()
        found.append((shown, *masked, length_a, bool(row["is_random_next"])))
    assert found == list(reference_pretraining.instances(corpus, chosen, vocab, other))
    assert rng.getstate() == other.getstate()


def test_fill_rows():
    """The drawn example; then a row has too many predictions, or sequences."""
    lengths = np.array([5, 3, 3, 2, 1])
    assert fill_rows(lengths, 6) == [[0, 4], [1, 2], [3]]
    assert fill_rows(lengths, 6, np.array([3, 2, 2, 1, 1]), 9, 3) == [[0], [1, 3], [2, 4]]
    assert fill_rows(np.array([1, 1, 1]), 6, None, 2) == [[0, 1], [2]]


@given(
    lengths=st.lists(st.integers(5, 70), min_size=1, max_size=60),
    prob=st.sampled_from([0.02, 0.15, 1.0]),
    most=st.integers(1, 90),
    tokens_at_a_time=st.sampled_from([1, 1 << 18]),
    seed=st.integers(0, 9999),
)
@settings(max_examples=60, deadline=None)
def test_packed_rows_hold_every_instance_once(lengths, prob, most, tokens_at_a_time, seed):
    """Cut out of their rows again, they are what `record_values` gives for each alone."""
    size, rng = 70, np.random.default_rng(seed)
    sizes = {"max_seq_length": size, "max_predictions_per_seq": most}
    vocab = {{1: "[CLS]", 2: "[SEP]", 3: "[MASK]"}.get(n, str(n)): n for n in range(40)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instances, "TOKENS_AT_A_TIME", tokens_at_a_time)
        chosen = dataclasses.replace(SETTINGS, **sizes, masked_lm_prob=prob, pack=True)
        maker, pairs, masked = InstanceMaker(chosen, vocab), [], []
        for length in lengths:
            a, b = np.split(rng.integers(4, 40, length - 3, TOKEN_TYPE), [rng.integers(length - 3)])
            count = min(most, max(1, round(length * prob)), length - 3)
            positions = rng.choice(
                np.delete(np.arange(1, length - 1), len(a)), count, replace=False
            )
            pairs.append(Pair(a.tobytes(), b.tobytes(), bool(rng.integers(2))))
            masked.append(Masked(positions.tolist(), [MASKED] * count))
        rows = maker.make_rows(pairs, masked)
        serialized = list(maker.records(rows))
    record = pretraining_record(**sizes, packed_with=prob)
    values = checked(record, serialized, where=str)
    found = []
    for row in range(len(serialized)):
        one = {name: value[row] for name, value in values.items()}
        numbers, places = one["input_mask"], one["masked_lm_positions"]
        assert sorted(numbers[numbers > 0]) == numbers[numbers > 0].tolist()
        assert not one["next_sentence_labels"][numbers.max() :].any()
        assert not one["input_ids"][numbers == 0].any()
        is_real = one["masked_lm_weights"] == 1
        assert not one["masked_lm_ids"][~is_real].any()
        for number in range(1, numbers.max() + 1):
            own, here = numbers == number, is_real & (numbers[places] == number)
            tokens = zip(one["input_ids"][own], one["segment_ids"][own], strict=True)
            masks = zip(places[here] - np.argmax(own), one["masked_lm_ids"][here], strict=True)
            label = one["next_sentence_labels"][number - 1]
            found.append((list(tokens), list(masks), label))
    alone, expected = maker.record_values(rows), []
    for row, length in enumerate(lengths):
        ids, segments = (alone[name][row, :length] for name in ("input_ids", "segment_ids"))
        count = rows["num_masked"][row]
        masks = (alone[f"masked_lm_{name}"][row, :count] for name in ("positions", "ids"))
        tokens = zip(ids, segments.astype(int), strict=True)
        label = int(alone["next_sentence_labels"][row, 0])
        expected.append((list(tokens), list(zip(*masks, strict=True)), label))
    assert sorted(found) == sorted(expected)


SIZES = {"zeta": (tf.int64, 3), "a" * 130: (tf.float32, 2), "Beta": (tf.int64, 1)}
RECORD = Record("test", tuple(Feature(name, *kind) for name, kind in SIZES.items()))
integers = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 127, 128, 16383, 16384, 2**21, 2**28, 2**31, 2**32 - 1]),
)


@given(
    rows=st.lists(st.tuples(*[integers] * 4, *[st.floats(width=32)] * 2), min_size=1, max_size=4),
    dtype=st.sampled_from([np.int64, np.uint32, np.bool_]),
)
@settings(deadline=None)
def test_the_bytes_are_those_of_protocol_buffers(rows, dtype):
    numbers = np.array([row[:4] for row in rows], np.int64).astype(dtype)
    floats = np.array([row[4:] for row in rows], np.float32)
    values = {"zeta": numbers[:, :3], "Beta": numbers[:, 3:], "a" * 130: floats}
    expected = [
        RECORD.serialize({name: (value[row] * 1).tolist() for name, value in values.items()})
        for row in range(len(rows))
    ]
    assert serialize(RECORD, values) == expected
    with pytest.raises(ValueError, match="received features"):
        serialize(RECORD, {"zeta": numbers})


@pytest.mark.parametrize(("random", "unchanged"), [(0.3, 0.1), (0.3, -0.1), (0.1, float("nan"))])
def test_shares_that_do_not_sum_to_1(random, unchanged):
    with pytest.raises(InputError, match=r"sum to at most 1|unchanged_share (-0\.1|nan)"):
        dataclasses.replace(SETTINGS, random_share=random, unchanged_share=unchanged)
