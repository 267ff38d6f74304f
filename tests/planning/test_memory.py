"""Memory of a step: by hand, beside what compilers made of BERT-Base, and the largest batch."""

import dataclasses
import doctest

import hypothesis
import hypothesis.strategies as st
import pytest
from small_plans import BASE, CONFIG, SETTINGS, WORK, B, C, D, F, L, N, P, S, V, changed

from bert_tf.errors import InputError
from bert_tf.modeling.names import checkpoint_name
from bert_tf.planning import memory, steps
from bert_tf.planning.memory import largest_batch, step_memory
from bert_tf.planning.workload import PLANNED, PUBLISHED

HALF = changed(precision="bfloat16")
KINDS = pytest.mark.parametrize("kind", ["gpu", "tpu"])


PARTS = {"embeddings": "bert/embeddings", "encoder": "bert/encoder", "pooler": "bert/pooler"}


@pytest.mark.parametrize(
    ("head", "changes"),
    [*((head, {}) for head in PLANNED), ("pretraining", {"attention": "causal"})],
)
def test_parameters_and_batches_are_those_of_the_model_and_its_records(head, changes):
    work = changed(head=head, config=dataclasses.replace(CONFIG, **changes))
    found = dict.fromkeys([*PARTS, "head"], 0)
    for variable in steps.make_trainer(work).model.trainable_variables:
        name = checkpoint_name(variable)
        part = next((p for p, scope in PARTS.items() if name.startswith(scope)), "head")
        found[part] += variable.shape.num_elements()
    assert work.parameters == found
    batch = steps.random_batch(work)
    labels = {
        "pretraining": {"masked_lm_ids": (B, P)},
        "classification": {"label_ids": (B, 1)},
        "multi_label": {"label_ids": (B, C)},
        "regression": {"label_ids": (B, 1)},
        "token_labels": {"label_ids": (B, S)},
        "question_answering": {"start_positions": (B, 1), "end_positions": (B, 1)},
    }[head]
    shapes = {name: value.shape for name, value in batch.items()}
    assert shapes.items() >= {"input_ids": (B, S), "is_real_example": (B,), **labels}.items()
    assert "label_ids" not in batch or batch["label_ids"].max() < C


def test_the_published_models_have_the_papers_parameters():
    """110M and 340M (section 3), without heads."""
    found = [changed(BASE, config=config).parameters for config in PUBLISHED.values()]
    assert [sum(p.values()) - p["head"] for p in found] == [109_482_240, 335_141_888]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_seq_length": 72}, "max_seq_length 72"),
        ({"num_replicas": 2}, "--train_batch_size=11"),
        ({"head": "classification", "pack": True}, "--pack with --task=classification"),
    ],
)
def test_what_cannot_be_is_refused(changes, named):
    with pytest.raises(InputError) as error:
        changed(**changes)
    assert named in error.value.received


def phases_of(workload, kind: str) -> dict[str, int]:
    found = step_memory(workload, kind)
    assert found.total == max(map(sum, map(dict.values, found.phases.values()))) + sum(
        found.constant.values()
    )
    return {name: sum(purposes.values()) for name, purposes in found.phases.items()}


def test_constant_memory_by_hand():
    parameters = sum(WORK.parameters.values())
    constant = step_memory(WORK).constant
    assert constant == {
        "weights": 4 * parameters,
        "moments": 8 * parameters,
        "batch": 4 * B * (3 * S + 3 * P + 2),
    }
    summed = step_memory(changed(train_batch_size=6, gradient_accumulation_steps=3)).constant
    assert summed["summed gradients"] == 4 * parameters


def test_the_phases_of_a_gpu_by_hand():
    weights, word_tables = sum(HALF.parameters.values()), HALF.parameters["embeddings"]
    kept = L * (9 * 2 * B * S * D + 2 * 2 * B * S * F)
    always = 3 * 2 * B * S * D + 2 * (weights - word_tables)
    phases = phases_of(HALF, "gpu")
    assert phases["head"] == kept + always + (4 + 4) * B * P * V + 6 * 2 * B * P * D + 2 * V * D
    again = (2 + 2 + 1 + 1) * B * N * S * S
    assert phases["last block's gradient"] == kept + always + again + 2 * B * P * V
    encoder = HALF.parameters["encoder"]
    block = encoder // L
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


def test_examples_in_docstrings():
    assert doctest.testmod(memory) == (0, 1)
