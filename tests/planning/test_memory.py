"""Memory by hand, and the largest batch."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
from small_plans import BASE, CONFIG, LARGE, SETTINGS, WORK, B, D, F, N, P, S, changed

from bert_tf.planning import memory, tables, work
from bert_tf.planning.memory import largest_batch, step_memory


def test_what_a_block_keeps_by_hand():
    kept = memory.block_kept(WORK)
    assert kept == {
        "query, key, value, context": 4 * 4 * B * S * D,
        "attention probabilities": 2 * 4 * B * N * S * S,
        "normalizations": 4 * 4 * B * S * D,
        "feed-forward": 3 * 4 * B * S * F,
    }
    half = memory.block_kept(changed(precision="bfloat16"))
    assert half["attention probabilities"] == (4 + 2) * B * N * S * S  # the soft-max in float32
    del kept["attention probabilities"], half["attention probabilities"]
    assert sum(kept.values()) == 2 * sum(half.values())


def test_constant_memory_by_hand():
    parameters = WORK.parameters()
    constant = step_memory(WORK).constant
    assert constant["weights"] == 4 * parameters
    assert constant["moments"] == 8 * parameters
    assert constant["batch"] == 4 * B * (3 * S + 3 * P + 2)
    summed = step_memory(changed(train_batch_size=6, gradient_accumulation_steps=3)).constant
    assert summed["summed gradients"] == 4 * parameters
    assert "summed gradients" not in constant


def test_purposes_add_up_to_the_peak():
    found = step_memory(BASE)
    assert found.total == sum(found.purposes.values())
    for purposes in found.phases.values():
        assert sum(purposes.values()) <= found.temporary
    assert found.peak == "last block's gradient"
    many_logits = changed(config=dataclasses.replace(CONFIG, vocab_size=30522))
    assert step_memory(many_logits).peak == "head"


@hypothesis.given(SETTINGS)
def test_more_rows_need_more_memory_and_work(settings):
    small = changed(**settings)
    large = changed(small, train_batch_size=small.train_batch_size + 1)
    assert step_memory(large).total > step_memory(small).total
    assert sum(work.total_flops(large).values()) > sum(work.total_flops(small).values())


@hypothesis.given(SETTINGS, st.integers(4_000_000, 200_000_000), st.sampled_from([1, 2, 3]))
def test_the_largest_batch_fits_and_the_next_does_not(settings, available, parts):
    settings["train_batch_size"] = parts
    workload = changed(**settings, gradient_accumulation_steps=parts)
    found = largest_batch(workload, available)
    assert found % parts == 0
    if found:
        assert step_memory(changed(workload, train_batch_size=found)).total <= available
    assert step_memory(changed(workload, train_batch_size=found + parts)).total > available


def test_what_saves_memory():
    def batch(**changes) -> int:
        return tables.usable_batch(changed(LARGE, max_seq_length=512, **changes), 16, 0.75)

    plain = batch()
    assert batch(recompute=True) > 5 * plain
    assert batch(precision="bfloat16") > plain
    large_batch = changed(LARGE, train_batch_size=256)
    parts = changed(large_batch, gradient_accumulation_steps=64)
    assert step_memory(parts).total < step_memory(large_batch).total / 8
