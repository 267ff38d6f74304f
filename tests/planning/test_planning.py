"""Planning: variables as the models have them, figures by hand, and one real compiled step."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import compiled_step
import hypothesis
import hypothesis.strategies as st
import pytest
import walking

from bert_tf import BertConfig
from bert_tf.checkpoints import tf1
from bert_tf.errors import InputError
from bert_tf.modeling import models
from bert_tf.planning import memory, tables, timing, work
from bert_tf.planning.memory import largest_batch, step_memory
from bert_tf.planning.timing import Device, step_time
from bert_tf.planning.work import Part
from bert_tf.planning.workload import HEADS, Workload

ROOT = pathlib.Path(__file__).parents[2]
V, D, L, N, F = 997, 60, 2, 3, 140
B, S, P, C = 11, 53, 7, 5
CONFIG = BertConfig(
    vocab_size=V,
    hidden_size=D,
    num_hidden_layers=L,
    num_attention_heads=N,
    intermediate_size=F,
    max_position_embeddings=71,
    type_vocab_size=4,
)
WORK = Workload(
    config=CONFIG,
    max_seq_length=S,
    train_batch_size=B,
    max_predictions_per_seq=P,
    num_classes=C,
)
BASE = Workload(config=tables.PUBLISHED["BERT-Base"])
LARGE = Workload(config=tables.PUBLISHED["BERT-Large"])


def changed(workload=WORK, **changes) -> Workload:
    return dataclasses.replace(workload, **changes)


# ------------------------------------------------------------------------------ parameters


@pytest.mark.parametrize("head", HEADS)
def test_variables_are_those_of_the_model(head):
    workload = changed(head=head)
    model = models.make_model(head, CONFIG, num_classes=C)
    assert workload.variables == {
        tf1.checkpoint_name(v): tuple(v.shape) for v in model.trainable_variables
    }
    assert workload.parameters() == model.count_params()


def test_parameters_of_the_published_models():
    """The paper's 110M and 340M (section 3) are these."""
    head = {"BERT-Base": 624_188, "BERT-Large": 1_084_220}  # both heads of pre-training
    for name, encoder in {"BERT-Base": 109_482_240, "BERT-Large": 335_141_888}.items():
        workload = Workload(config=tables.PUBLISHED[name])
        assert workload.parameters("bert/") == encoder
        assert workload.parameters() == encoder + head[name]


# ------------------------------------------------------------------------------ memory


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


SETTINGS = st.fixed_dictionaries(
    {
        "head": st.sampled_from(HEADS),
        "max_seq_length": st.integers(1, 71),
        "train_batch_size": st.integers(1, 300),
        "precision": st.sampled_from(["float32", "bfloat16"]),
        "recompute": st.booleans(),
    }
)


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


# ------------------------------------------------------------------------------ work and time


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


DEVICE = Device(
    flops_per_second=1e12,
    bytes_per_second=1e9,
    efficiency=0.5,
    link_bytes_per_second=1e8,
    link_seconds=0.01,
)


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


# ------------------------------------------------------------------------------ the real thing


def test_a_compiled_step_is_as_planned():
    """XLA's own figures for one model; benchmarks/plan_check.py has many."""
    found, planned = compiled_step.run(WORK), step_memory(WORK)
    flops = work.total_flops(WORK)
    assert flops["forward"] + flops["backward"] == pytest.approx(found["product_flops"], rel=0.005)
    assert sum(planned.constant.values()) == pytest.approx(found["constant_bytes"], rel=0.05)
    assert planned.temporary == pytest.approx(found["temporary_bytes"], rel=0.1)


DEEP = changed(config=dataclasses.replace(CONFIG, num_hidden_layers=4))
AS_PLANNED = 0.25  # of its own figure XLA's may differ when blocks are computed again
CLEARLY_LESS = 0.7  # of the memory that four blocks take; planned is about 0.4


def test_blocks_that_are_computed_again_take_less_memory():
    """Of what XLA takes for a step, and about as much less as is planned."""
    again = changed(DEEP, recompute=True)
    found, plain = compiled_step.run(again), compiled_step.run(DEEP)
    assert found["temporary_bytes"] < CLEARLY_LESS * plain["temporary_bytes"]
    assert found["constant_bytes"] == pytest.approx(plain["constant_bytes"], rel=0.01)
    for work_of, told in ((again, found), (DEEP, plain)):
        planned = step_memory(work_of).temporary
        assert planned == pytest.approx(told["temporary_bytes"], rel=AS_PLANNED)
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


# ------------------------------------------------------------------------------ text and command


def test_figures_as_text():
    assert tables.amount(1234567890) == "1.23 GB"
    assert tables.amount(999.6) == "1 kB"
    assert tables.amount(0, "FLOP") == "0 FLOP"
    assert [tables.precise_duration(s) for s in (0.0123, 100, 8000, 300_000)] == [
        "12.3 ms",
        "100 s",
        "2.22 h",
        "3.47 days",
    ]
    assert list(tables.columns([("a", "1"), ("bcd", "234")])) == ["a      1", "bcd  234"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_seq_length": 72}, "max_seq_length 72"),
        ({"head": "embeddings"}, "--head=embeddings"),
        ({"precision": "int8"}, "--precision=int8"),
        ({"num_replicas": 0}, "--num_replicas=0"),
        ({"num_replicas": 2}, "--train_batch_size=11"),
    ],
)
def test_what_cannot_be_is_refused(changes, named):
    with pytest.raises(InputError) as error:
        changed(**changes)
    assert named in error.value.received


def test_a_device_is_described_in_full():
    with pytest.raises(InputError, match="give --device_gb_per_s"):
        Device(flops_per_second=1e12, bytes_per_second=0)
    alone = Device(flops_per_second=1e12, bytes_per_second=1e9)
    with pytest.raises(InputError, match="add --link_gb_per_s"):
        step_time(changed(BASE, num_replicas=2), alone)


def test_the_command_answers_without_tensorflow(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise RuntimeError('TensorFlow was loaded')\n")
    ended = subprocess.run(
        [sys.executable, "-m", "bert_tf", "plan", "--fits", "--head=span"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
    )
    assert ended.returncode == 0, ended.stderr
    work_of = changed(BASE, head="question_answering")
    assert ended.stdout.splitlines() == list(tables.fits_lines(work_of, 0.75))


def test_the_command(tmp_path, capsys):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(tables.PUBLISHED["BERT-Base"].to_dict()))
    with walking.in_process("plan") as main:
        main(
            bert_config_file=path,
            memory_gb=16,
            fits=True,
            device_tflops=15.7,
            device_gb_per_s=900,
            link_gb_per_s=10,
            num_train_steps=1000,
        )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Parameters: 110,106,428"
    batch = tables.usable_batch(BASE, 16, 0.75)
    assert f"Largest --train_batch_size in 16 GB: {batch}" in lines
    (fits,) = (line.split() for line in lines if line.startswith("  BERT-Base       128"))
    assert fits[4] == str(batch)
    assert fits[-1] == "32"
    assert any(line.startswith("  1,000 steps: ") for line in lines)
    assert any(line.startswith("  1024 ") for line in lines)
