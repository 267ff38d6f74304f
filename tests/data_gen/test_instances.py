"""data_gen/instances.py: the drawn example as a record, what is counted, and settings in range."""

import dataclasses
import random

import pytest
import tensorflow as tf
from generation import SETTINGS

from bert_tf.errors import InputError
from data_gen.corpus import MemoryCorpus
from data_gen.documents import Counts
from data_gen.instances import InstanceMaker, Settings
from data_gen.masking import MaskedIds
from data_gen.pairs import Pair

PIECES = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "he", "went", "home", "it", "was", "late")
VOCAB = {piece: number for number, piece in enumerate(PIECES)}


def ids(text: str) -> list[int]:
    return [VOCAB[piece] for piece in text.split()]


def make(**changes) -> InstanceMaker:
    return InstanceMaker(dataclasses.replace(SETTINGS, **changes), VOCAB)


@pytest.mark.parametrize("is_random_next", [False, True])
def test_the_drawn_example(is_random_next):
    maker = make(max_seq_length=11, max_predictions_per_seq=2)
    pair = Pair(ids("he went home"), ids("it was late"), is_random_next)
    assert maker.input_ids(pair) == ids("[CLS] he went home [SEP] it was late [SEP]")
    shown = ids("[CLS] he went [MASK] [SEP] it was late [SEP]")
    assert maker.record_values(pair, MaskedIds(shown, [3], ids("home"))) == {
        "input_ids": [*shown, 0, 0],
        "input_mask": [1] * 9 + [0] * 2,
        "segment_ids": [0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0],
        "masked_lm_positions": [3, 0],
        "masked_lm_ids": [VOCAB["home"], 0],
        "masked_lm_weights": [1.0, 0.0],
        "next_sentence_labels": [int(is_random_next)],
    }


def test_each_pass_over_the_documents_is_another_and_all_is_counted():
    documents = [[ids("he went home"), ids("it was late")] * 9, [ids("late it was")] * 5]
    counts = Counts()
    records = list(
        make(max_seq_length=17, dupe_factor=4, masked_lm_prob=0.3).records(
            documents,
            first_document=0,
            corpus=MemoryCorpus(documents),
            rng=random.Random(1),
            counts=counts,
        )
    )
    features = [tf.train.Example.FromString(record).features.feature for record in records]
    lengths = [sum(f["input_mask"].int64_list.value) for f in features]
    assert len(records) == counts["instances"] > 4 * 5
    assert len(set(records)) > 0.9 * len(records)  # no pass repeats another
    assert sum(lengths) == counts["instance_tokens"]
    assert lengths.count(17) == counts["full_instances"] > 0
    labels = [f["next_sentence_labels"].int64_list.value[0] for f in features]
    assert 0 < sum(labels) == counts["random_next"] < len(labels)
    assert sum(sum(f["masked_lm_weights"].float_list.value) for f in features) == counts["masked"]
    shown = [n for f in features for n in f["input_ids"].int64_list.value]
    assert shown.count(VOCAB["[MASK]"]) == counts["masked_as_mask"] > counts["masked_as_itself"] > 0


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("max_seq_length", 5, [4]),
        ("max_predictions_per_seq", 1, [0, -1]),
        ("dupe_factor", 1, [0]),
        ("masked_lm_prob", 1.0, [0.0, 15.0, float("nan")]),
        ("short_seq_prob", 0.0, [-0.1, 1.1]),
    ],
)
def test_settings_are_in_range(name, good, bad):
    settings: Settings = dataclasses.replace(SETTINGS, **{name: good})
    assert getattr(settings, name) == good
    for value in bad:
        with pytest.raises(InputError, match=rf"^Received: --{name}={value}\n"):
            dataclasses.replace(SETTINGS, **{name: value})
