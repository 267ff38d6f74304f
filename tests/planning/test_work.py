"""FLOPs and bytes moved, by hand."""

import pytest
from small_plans import BASE, DEVICE, WORK, B, D, F, L, P, S, V, changed

from bert_tf.planning import work
from bert_tf.planning.memory import step_memory
from bert_tf.planning.timing import step_time


def test_flops_by_hand():
    dense = 2 * B * S * (4 * D * D + 2 * D * F)
    attention = 2 * 2 * B * S * S * D
    head = 2 * B * (D * D + 2 * D) + 2 * B * P * (D * D + D * V)
    types = 2 * B * S * 4 * D
    found = work.total_flops(WORK)
    forward = L * (dense + attention) + head + types
    assert found["forward"] == forward
    # Types: one gradient, there is none of one-hot rows. And the gradient of the logits' bias.
    assert found["backward"] == 2 * forward - types + 2 * B * P * V
    again = work.total_flops(changed(recompute=True))
    assert again["recompute"] == L * (dense + attention)
    assert "recompute" not in found


def test_micro_batches_and_replicas_do_the_same_products():
    for changes in ({"gradient_accumulation_steps": 4}, {"num_replicas": 8}):
        found = work.total_flops(changed(BASE, **changes))
        for phase in ("forward", "backward"):
            assert found[phase] == work.total_flops(BASE)[phase]


def test_what_lamb_adds():
    """Another time over update and weight, for their norms; its state is that of AdamW."""
    adamw, lamb = changed(), changed(optimizer="lamb")
    parameters = WORK.parameters()
    moved = [work.step_parts(one)[-1].moved_bytes for one in (adamw, lamb)]
    assert moved == [8 * 4 * parameters, (8 + 3) * 4 * parameters]
    assert step_time(lamb, DEVICE).compute > step_time(adamw, DEVICE).compute
    assert step_memory(lamb) == step_memory(adamw)


def test_six_flops_a_token_and_weight():
    """The rule of thumb for short sequences, without embeddings and attention's own products."""
    short = changed(BASE, max_seq_length=16, head="classification", train_batch_size=7)
    weights = short.parameters("bert/encoder/")
    found = work.total_flops(short)
    expected = 6 * weights * 7 * 16
    assert found["forward"] + found["backward"] == pytest.approx(expected, rel=0.01)
