"""The plan beside a real compiled step: XLA's own figures for one model."""

import dataclasses

import compiled_step
import pytest
from small_plans import CONFIG, changed

from bert_tf.planning import work
from bert_tf.planning.memory import step_memory

DEEP = changed(config=dataclasses.replace(CONFIG, num_hidden_layers=3))
AS_PLANNED = 0.25  # of its own figure XLA's may differ when blocks are computed again
CLEARLY_LESS = 0.7  # of the memory that three blocks take


@pytest.fixture(scope="module")
def plain() -> dict[str, float]:
    return compiled_step.run(DEEP)


def test_a_compiled_step_is_as_planned(plain):
    """XLA's own figures for one model; benchmarks/plan_check.py has many."""
    planned, flops = step_memory(DEEP), work.total_flops(DEEP)
    assert flops["forward"] + flops["backward"] == pytest.approx(plain["product_flops"], rel=0.005)
    assert sum(planned.constant.values()) == pytest.approx(plain["constant_bytes"], rel=0.05)
    assert planned.temporary == pytest.approx(plain["temporary_bytes"], rel=0.1)


def test_blocks_that_are_computed_again_take_less_memory(plain):
    """Of what XLA takes for a step, and about as much less as is planned."""
    again = changed(DEEP, recompute=True)
    found = compiled_step.run(again)
    assert found["temporary_bytes"] < CLEARLY_LESS * plain["temporary_bytes"]
    assert found["constant_bytes"] == pytest.approx(plain["constant_bytes"], rel=0.01)
    planned = step_memory(again).temporary
    assert planned == pytest.approx(found["temporary_bytes"], rel=AS_PLANNED)
    flops = work.total_flops(again)
    del flops["update"]
    assert sum(flops.values()) == pytest.approx(found["product_flops"], rel=0.02)


def test_only_one_replica_is_compiled():
    with pytest.raises(ValueError, match="received 11 replicas, expected 1"):
        compiled_step.run(changed(num_replicas=11))


def test_products_of_called_computations_count_as_often_as_they_are_called():
    hlo = """
%inner (p: f32[2,3], q: f32[3,5]) -> f32[2,5] {
  %p = f32[2,3]{1,0} parameter(0)
  %q = f32[3,5]{1,0} parameter(1)
  ROOT %d = f32[2,5]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY %main (a: f32[2,3], b: f32[3,5]) -> f32[2,5] {
  %a = f32[2,3]{1,0} parameter(0)
  %b = f32[3,5]{1,0} parameter(1)
  %x = f32[2,5]{1,0} fusion(%a, %b), kind=kLoop, calls=%inner
  %y = f32[2,5]{1,0} fusion(%a, %b), kind=kLoop, calls=%inner
  ROOT %z = f32[5,5]{1,0} dot(%x, %y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""
    assert compiled_step.product_flops(hlo) == 2 * (2 * 2 * 3 * 5) + 2 * 5 * 5 * 2


def test_products_in_a_loop_count_once_a_trip():
    hlo = """
%body (s: (s32[], f32[2,3], f32[3,5])) -> (s32[], f32[2,3], f32[3,5]) {
  %s = (s32[], f32[2,3]{1,0}, f32[3,5]{1,0}) parameter(0)
  %p = f32[2,3]{1,0} get-tuple-element(%s), index=1
  %q = f32[3,5]{1,0} get-tuple-element(%s), index=2
  %d = f32[2,5]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY %main (a: (s32[], f32[2,3], f32[3,5])) -> (s32[], f32[2,3], f32[3,5]) {
  %a = (s32[], f32[2,3]{1,0}, f32[3,5]{1,0}) parameter(0)
  ROOT %w = (s32[], f32[2,3]{1,0}, f32[3,5]{1,0}) while(%a), condition=%cond, body=%body
}
"""
    assert compiled_step.product_flops(hlo) == 2 * 2 * 3 * 5
    assert compiled_step.product_flops(hlo, trips=4) == 4 * 2 * 2 * 3 * 5
