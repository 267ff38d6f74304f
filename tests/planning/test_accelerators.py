"""Memory on GPUs and TPUs: by hand, and beside what their compilers made of BERT-Base."""

import pytest
from small_plans import BASE, CONFIG, WORK, B, D, F, L, N, P, S, V, changed

from bert_tf.planning import accelerators
from bert_tf.planning.accelerators import accelerator_memory, largest_batch_on
from bert_tf.planning.devices import DEVICES

HALF = changed(precision="bfloat16")
WEIGHTS = HALF.parameters()


@pytest.mark.parametrize(("kind", "wide"), [("gpu", 3), ("tpu", 1)])
def test_what_a_block_keeps_by_hand(kind, wide):
    assert accelerators.block_kept(HALF, kind) == {
        "query, key, value, context": 4 * 2 * B * S * D,
        "normalizations": 4 * 2 * B * S * D,
        "feed-forward": wide * 2 * B * S * F,
    }


def test_the_phases_of_a_gpu_by_hand():
    tables = HALF.parameters("bert/embeddings/")
    kept = L * (8 * 2 * B * S * D + 3 * 2 * B * S * F)
    always = 3 * 2 * B * S * D + 2 * (WEIGHTS - tables)
    phases = {name: sum(p.values()) for name, p in accelerator_memory(HALF, "gpu").phases.items()}
    assert phases["head"] == kept + always + (4 + 4) * B * P * V + 6 * 2 * B * P * D + 2 * V * D
    again = (2 + 2 + 1 + 1) * B * N * S * S
    assert phases["last block's gradient"] == kept + always + again + 2 * B * P * V
    recomputed = changed(HALF, recompute=True)
    assert accelerators.attention_again(recomputed, "gpu") == again - 2 * B * S * F


def test_the_phases_of_a_tpu_by_hand():
    again = changed(HALF, recompute=True)
    phases = {name: sum(p.values()) for name, p in accelerator_memory(again, "tpu").phases.items()}
    always = 3 * 2 * B * S * D + 4 * N * S * S
    inputs = L * 2 * B * S * D
    assert (
        phases["head"] == inputs + always + (4 + 4 + 2) * B * P * V + 6 * 2 * B * P * D + 2 * V * D
    )
    block = 8 * 2 * B * S * D + 2 * B * S * F
    attention = (2 + 2 + 1) * B * N * S * S + 4 * B * S * D
    assert phases["last block's gradient"] == inputs + always + block + attention + 4 * V * D


def test_attention_takes_nothing_where_the_feed_forward_half_kept_more():
    assert (
        accelerators.attention_again(HALF, "tpu")
        == 5 * B * N * S * S + 4 * B * S * D - 2 * B * S * F
    )
    short = changed(HALF, max_seq_length=2)  # 5 N S + 4 D < 2 F
    assert accelerators.attention_again(short, "tpu") == 0


@pytest.mark.parametrize("kind", ["gpu", "tpu"])
@pytest.mark.parametrize("head", ["classification", "token_labels", "question_answering"])
def test_other_heads_have_no_logits_of_a_vocabulary(kind, head):
    purposes = accelerator_memory(changed(HALF, head=head), kind).phases["head"]
    assert "masked-LM logits" not in purposes
    full = accelerator_memory(changed(WORK, head=head), kind)  # float32 needs no copies of weights
    assert not [name for name in full.purposes if name.startswith("weights in")]


@pytest.mark.parametrize(
    ("kind", "length", "batch", "recompute", "allocated"),
    [
        ("tpu", 128, 400, False, 13_906_772_480),
        ("tpu", 512, 100, False, 13_922_910_720),
        ("tpu", 512, 400, True, 14_363_984_384),
        ("gpu", 128, 6387, True, 53_750_000_000),
        ("gpu", 512, 350, False, 73_953_243_768),
        ("gpu", 512, 400, True, 20_197_898_104),
    ],
)
def test_a_plan_is_close_to_what_the_compilers_allocate(kind, length, batch, recompute, allocated):
    """For BERT-Base in bfloat16, on a v5e and an H100."""
    work = changed(
        BASE,
        max_seq_length=length,
        max_predictions_per_seq={128: 20, 512: 77}[length],
        train_batch_size=batch,
        precision="bfloat16",
        recompute=recompute,
    )
    assert accelerator_memory(work, kind).temporary == pytest.approx(allocated, rel=0.1)


@pytest.mark.parametrize("name", DEVICES)
def test_the_largest_batch_fits_and_the_next_does_not(name):
    device = DEVICES[name]

    def allocated(batch: int) -> int:
        found = accelerator_memory(changed(HALF, train_batch_size=batch), device.kind)
        return found.total

    largest = largest_batch_on(HALF, device)
    assert CONFIG.num_hidden_layers == L
    assert allocated(largest) <= device.memory_bytes < allocated(largest + 1)
