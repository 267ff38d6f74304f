"""Memory of a step: by hand, beside what compilers made of BERT-Base, and the largest batch."""

import hypothesis
import hypothesis.strategies as st
import pytest
from small_plans import BASE, SETTINGS, WORK, B, D, F, L, N, P, S, V, changed

from bert_tf.planning import memory
from bert_tf.planning.memory import largest_batch, step_memory
from bert_tf.planning.workload import DEVICES

HALF = changed(precision="bfloat16")
KINDS = pytest.mark.parametrize("kind", ["gpu", "tpu"])


def phases_of(workload, kind: str) -> dict[str, int]:
    found = step_memory(workload, kind)
    assert found.total == max(map(sum, map(dict.values, found.phases.values()))) + sum(
        found.constant.values()
    )
    return {name: sum(purposes.values()) for name, purposes in found.phases.items()}


def test_constant_memory_by_hand():
    parameters = WORK.parameters()
    constant = step_memory(WORK).constant
    assert constant == {
        "weights": 4 * parameters,
        "moments": 8 * parameters,
        "batch": 4 * B * (3 * S + 3 * P + 2),
    }
    summed = step_memory(changed(train_batch_size=6, gradient_accumulation_steps=3)).constant
    assert summed["summed gradients"] == 4 * parameters


def test_the_phases_of_a_gpu_by_hand():
    weights, word_tables = HALF.parameters(), HALF.parameters("bert/embeddings/")
    kept = L * (9 * 2 * B * S * D + 2 * 2 * B * S * F)
    always = 3 * 2 * B * S * D + 2 * (weights - word_tables)
    phases = phases_of(HALF, "gpu")
    assert phases["head"] == kept + always + (4 + 4) * B * P * V + 6 * 2 * B * P * D + 2 * V * D
    again = (2 + 2 + 1 + 1) * B * N * S * S
    assert phases["last block's gradient"] == kept + always + again + 2 * B * P * V
    block, encoder = HALF.parameters("bert/encoder/layer_0/"), HALF.parameters("bert/encoder/")
    assert phases["first block's gradient"] == (
        kept // L + always + again + 2 * B * P * V + 2 * (encoder - block)
    )
    assert phases["update"] == 2 * encoder + 4 * (weights - encoder) + 4 * V * D
    recomputed = changed(HALF, recompute=True)
    assert memory.attention_again(recomputed, "gpu") == again - 2 * B * S * F
    two = phases_of(changed(HALF, num_replicas=2, train_batch_size=2 * B), "gpu")
    assert two["head"] == phases["head"] + 4 * weights
    assert two["update"] == 8 * weights + 4 * V * D


def test_the_phases_of_a_tpu_by_hand():
    phases = phases_of(changed(HALF, recompute=True), "tpu")
    always = 3 * 2 * B * S * D + 4 * N * S * S
    inputs = L * 2 * B * S * D
    assert (
        phases["head"] == inputs + always + (4 + 4 + 2) * B * P * V + 6 * 2 * B * P * D + 2 * V * D
    )
    assert memory.attention_again(changed(HALF, max_seq_length=2), "tpu") == 0  # 5 N S + 4 D < 2 F
    block = 9 * 2 * B * S * D + 2 * B * S * F
    attention = (2 + 2 + 1) * B * N * S * S + 4 * B * S * D
    assert phases["last block's gradient"] == inputs + always + block + attention + 4 * V * D


@KINDS
@pytest.mark.parametrize(
    ("head", "size"),
    [
        ("classification", 3 * B * D * 4),
        ("token_labels", B * S * (D * 4 + 3 * 5 * 4)),
        ("question_answering", B * S * (D * 4 + 3 * 2 * 4)),
    ],
)
def test_other_heads_have_no_logits_of_a_vocabulary(kind, head, size):
    found = step_memory(changed(WORK, head=head), kind)  # float32 needs no copies of weights
    assert found.phases["head"]["head"] == size
    assert (
        not {"masked-LM logits", "word table", "weights in float32"} & found.phases["head"].keys()
    )


@pytest.mark.parametrize(
    ("kind", "length", "batch", "recompute", "allocated"),
    [
        ("tpu", 128, 400, False, 13_906_772_480),
        ("tpu", 512, 90, False, 14_310_772_224),
        ("tpu", 512, 400, True, 15_184_486_912),
        ("gpu", 128, 6387, True, 60_989_558_464),
        ("gpu", 512, 350, False, 65_620_705_480),
        ("gpu", 512, 400, True, 18_119_370_176),
    ],
)
def test_a_plan_is_close_to_what_the_compilers_allocate(kind, length, batch, recompute, allocated):
    """For BERT-Base in bfloat16, on a v5e and an H100."""
    found = changed(
        BASE,
        max_seq_length=length,
        max_predictions_per_seq={128: 20, 512: 77}[length],
        train_batch_size=batch,
        precision="bfloat16",
        recompute=recompute,
    )
    memory_of = step_memory(found, kind)
    temporary = sum(memory_of.phases[memory_of.peak].values())
    assert temporary == pytest.approx(allocated, rel=0.1)


@hypothesis.given(
    SETTINGS, st.integers(4_000_000, 200_000_000), st.sampled_from([1, 2, 3]), st.booleans()
)
def test_the_largest_batch_fits_and_the_next_does_not(settings, available, parts, is_gpu):
    settings["train_batch_size"] = parts
    workload, kind = (
        changed(**settings, gradient_accumulation_steps=parts),
        "gpu" if is_gpu else "tpu",
    )
    found = largest_batch(workload, available, kind)
    assert found % parts == 0
    if found:
        assert step_memory(changed(workload, train_batch_size=found), kind).total <= available
    assert step_memory(changed(workload, train_batch_size=found + parts), kind).total > available


def test_devices_are_described():
    for device in DEVICES.values():
        if device.kind == "gpu":
            assert f"NVIDIA {device.name.split()[1]}" in device.description
            bytes_named = int(device.description.split("device_memory_size: ")[1].split()[0])
            assert device.memory_bytes == int(0.95 * 0.8 * bytes_named)
        else:
            assert device.topology.startswith(device.slice_type[:2])
