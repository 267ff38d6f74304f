"""Seconds of a step, by hand."""

import pytest
from small_plans import BASE, DEVICE, changed

from bert_tf.errors import InputError
from bert_tf.planning import timing
from bert_tf.planning.timing import Device, step_time
from bert_tf.planning.work import Part


def test_a_part_takes_as_long_as_its_flops_or_its_bytes():
    many_flops = Part("x", "forward", 10**12, 10**8, 0)
    many_bytes = Part("x", "forward", 10**6, 3 * 10**9, 0)
    others = Part("x", "update", 0, 0, 5 * 10**9)
    seconds = [timing.part_seconds(part, DEVICE) for part in (many_flops, many_bytes, others)]
    assert seconds == [2.0, 3.0, 5.0]


def test_all_reduce_by_hand():
    """4 devices in a ring: three quarters of the bytes twice, in six rounds."""
    assert timing.all_reduce_seconds(2 * 10**8, 4, DEVICE) == pytest.approx(2 * 0.75 * 2 + 6 * 0.01)
    one, eight = (
        step_time(BASE, DEVICE),
        step_time(changed(BASE, num_replicas=8), DEVICE),
    )
    assert one.all_reduce == 0
    assert one.scaling_efficiency == 1
    assert eight.total == eight.compute + eight.all_reduce
    assert eight.compute < one.compute
    assert 0 < eight.scaling_efficiency < 1


def test_a_device_is_described_in_full():
    with pytest.raises(InputError, match="give --device_gb_per_s"):
        Device(flops_per_second=1e12, bytes_per_second=0)
    alone = Device(flops_per_second=1e12, bytes_per_second=1e9)
    with pytest.raises(InputError, match="add --link_gb_per_s"):
        step_time(changed(BASE, num_replicas=2), alone)
