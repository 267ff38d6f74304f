"""Packed rows: their sequences learn and answer as if each had a row of its own."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from generation import SETTINGS
from heads_of_ones_own import NextToken
from small_runs import STILL, make_trainer

from bert_tf import heads
from bert_tf.data import packed_sizes
from bert_tf.data.records import fill_rows, pretraining_record
from bert_tf.modeling.rows import first_tokens, places_in_sequences
from bert_tf.training.step import model_inputs
from data_gen.corpus import TOKEN_TYPE
from data_gen.instances import InstanceMaker
from data_gen.masking import MASKED, Masked, Pair

S, P, PROB = 128, 20, 0.15
CONFIG = dataclasses.replace(STILL, max_position_embeddings=S)
K, PACKED_P = packed_sizes(S, P, PROB)
VOCAB = {name: number for number, name in enumerate(("[PAD]", "[CLS]", "[SEP]", "[MASK]"))}
VOCAB |= {str(number): number for number in range(4, CONFIG.vocab_size)}
LENGTHS = (128, 97, 61, 40, 30, 30, 22, 9, 7, 5)  # with [CLS] and [SEP]


def both_batches(seed: int = 0) -> tuple[dict, dict, list[list[int]]]:
    """The same instances with a row each, and packed; and which of them share a row."""
    rng = np.random.default_rng(seed)
    settings = dataclasses.replace(
        SETTINGS, max_seq_length=S, max_predictions_per_seq=P, masked_lm_prob=PROB, pack=True
    )
    maker, pairs, masked = InstanceMaker(settings, VOCAB), [], []
    for length in rng.permutation(LENGTHS):
        size_a = rng.integers(1, length - 3)
        ids = rng.integers(4, CONFIG.vocab_size, length - 3).astype(TOKEN_TYPE)
        pairs.append(Pair(ids[:size_a].tobytes(), ids[size_a:].tobytes(), bool(rng.integers(2))))
        count = max(1, round(PROB * length))
        positions = rng.choice(np.delete(np.arange(1, length - 1), size_a), count, replace=False)
        masked.append(Masked(positions.tolist(), [MASKED] * count))
    rows = maker.make_rows(pairs, masked)
    lengths = rows["lengths"].sum(axis=1) + 3
    packed = fill_rows(lengths, S, rows["num_masked"], K, PACKED_P)

    def as_batch(record, values):
        batch = {f.key: values[f.name].astype(f.batch_dtype) for f in record.features}
        rows = np.arange(len(batch["input_ids"]), dtype=np.int32)
        return batch | {
            "is_real_example": np.ones(len(rows), np.float32),
            "sequences": rows[:, None],
        }

    sizes = {"max_seq_length": S, "max_predictions_per_seq": P}
    one_each = as_batch(pretraining_record(**sizes), maker.record_values(rows))
    record = pretraining_record(**sizes, packed_with=PROB)
    return one_each, as_batch(record, maker.packed_values(rows, packed)), packed


def test_places_and_first_places():
    numbers = np.int32([[1, 1, 1, 2, 3, 3, 0, 0], [1] * 8])
    places = keras.ops.convert_to_numpy(places_in_sequences(numbers))
    assert places.tolist() == [[0, 1, 2, 0, 0, 1, 6, 7], [*range(8)]]
    x = np.arange(16.0).reshape(2, 8, 1)
    firsts = keras.ops.convert_to_numpy(first_tokens(x, numbers, 3))
    assert firsts[:, :, 0].tolist() == [[0, 3, 4], [8, 15, 15]]


def gradients_and_sums(batch: dict, num_sequences: int, head: heads.Head) -> dict[str, np.ndarray]:
    """What one step makes of a batch: sums of losses and metrics, and every gradient."""
    keras.utils.set_random_seed(1)
    attention = "causal" if isinstance(head, NextToken) else "bidirectional"
    config = dataclasses.replace(CONFIG, attention=attention)
    model = head.model(config, with_losses=True, num_sequences=num_sequences)
    steps = make_trainer(config, model=lambda: model, objective=head).steps
    batch = {name: tf.constant(value) for name, value in batch.items()}
    denominators = head.denominators(batch)
    losses, gradients = steps.gradients(batch, denominators, tf.constant(0), None)
    metrics = head.metric_sums(model(model_inputs(model, batch), training=False), batch)
    counts = {f"number of {term}": value for term, value in denominators.items()}
    return keras.tree.map_structure(np.asarray, {**losses, **metrics, **counts, **gradients})


@pytest.mark.parametrize("kind", [heads.Pretraining, NextToken])
def test_loss_and_gradients_are_those_of_rows_of_their_own(kind):
    one_each, packed, members = both_batches()
    assert len(members) < len(LENGTHS) / 2
    assert max(map(len, members)) == K
    expected = gradients_and_sums(one_each, 1, kind())
    found = gradients_and_sums(packed, K, kind())
    assert found.keys() == expected.keys()
    assert len(found) >= 25
    if kind is NextToken:
        assert found["number of next_token"] == sum(LENGTHS) - len(LENGTHS)
    else:
        assert found["number of next_sentence"] == len(LENGTHS)
    for name, value in expected.items():
        scale = max(1.0, np.abs(value).max())
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * scale, err_msg=name)
