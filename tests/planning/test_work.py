"""FLOPs and seconds of a step, by hand; the variables of a workload, and what is refused."""

import dataclasses

import pytest
from small_plans import BASE, CONFIG, LARGE, SPEED, WORK, B, C, D, F, L, N, P, S, V, changed

from bert_tf.checkpoints import tf1
from bert_tf.errors import InputError
from bert_tf.planning import programs, tables
from bert_tf.planning.memory import step_memory
from bert_tf.planning.tables import Speed, step_seconds
from bert_tf.planning.workload import HEADS

BILSTM = {"bilstm_layers": 2, "bilstm_size": 7, "num_hidden_layers": 5}


@pytest.mark.parametrize(
    ("head", "changes"),
    [
        *((head, {}) for head in HEADS),
        ("pretraining", {"attention": "causal"}),
        ("pretraining", BILSTM),
        ("classification", BILSTM),
        ("token_labels", BILSTM | {"features": "concat_last_four"}),
        ("question_answering", BILSTM | {"features": "sum_last_four"}),
        ("token_labels", BILSTM | {"features": "sum_all"}),
        ("token_labels", BILSTM | {"features": "sum_last_four", "num_hidden_layers": 3}),
        ("token_labels", BILSTM | {"features": "concat_last_four", "num_hidden_layers": 3}),
    ],
)
def test_variables_are_those_of_the_model(head, changes):
    workload = changed(head=head, config=dataclasses.replace(CONFIG, **changes))
    model = programs.make_trainer(workload).model
    assert workload.variables == {
        tf1.checkpoint_name(v): tuple(v.shape) for v in model.trainable_variables
    }
    assert workload.parameters() == model.count_params()
    # Of the paper's 110M and 340M (section 3), without heads.
    assert (BASE.parameters("bert/"), LARGE.parameters("bert/")) == (109_482_240, 335_141_888)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"max_seq_length": 72}, "max_seq_length 72"), ({"num_replicas": 2}, "--train_batch_size=11")],
)
def test_what_cannot_be_is_refused(changes, named):
    with pytest.raises(InputError) as error:
        changed(**changes)
    assert named in error.value.received


def test_flops_by_hand():
    dense = 2 * B * S * (4 * D * D + 2 * D * F)
    attention = 2 * 2 * B * S * S * D
    head = 2 * B * (D * D + 2 * D) + 2 * B * P * (D * D + D * V)
    types = 2 * B * S * 4 * D
    forward = L * (dense + attention) + head + types
    # Types: one gradient, there is none of one-hot rows. And the gradient of the logits' bias.
    backward = 2 * forward - types + 2 * B * P * V
    scores = L * attention // 2  # of a GPU or TPU, which does not keep the probabilities
    found = {"forward": forward, "backward": backward, "recompute": scores}
    assert tables.total_flops(WORK) == found
    for changes in ({"gradient_accumulation_steps": B}, {"num_replicas": B}):
        assert tables.total_flops(changed(**changes)) == pytest.approx(tables.total_flops(WORK))
    again = tables.total_flops(changed(recompute=True))
    assert again["recompute"] == L * (dense + attention)
    for head, own in {"classification": B * D * (D + C), "token_labels": B * S * D * C,
                      "question_answering": B * S * D * 2}.items():  # fmt: skip
        found = tables.total_flops(changed(head=head))
        assert found["forward"] == L * (dense + attention) + types + 2 * own


def test_a_bilstm_by_hand():
    """Its products, what it keeps, and what is read of it instead of the encoder's vectors."""
    config = dataclasses.replace(CONFIG, bilstm_layers=2, bilstm_size=7)
    for head, classified in (("token_labels", B * S), ("classification", B)):
        with_it, without = changed(head=head, config=config), changed(head=head)
        parts = {part.name: part.flops for part in tables.forward_parts(with_it)}
        assert parts["BiLSTM"] == 2 * 2 * B * S * 4 * 7 * ((D + 7) + (2 * 7 + 7))
        assert parts["head"] == 2 * classified * 2 * 7 * C
        kept = 2 * 2 * B * S * 4 * (4 * 7 + 7 + 7)
        phases = [step_memory(work).phases["head"] for work in (with_it, without)]
        assert phases[0] == phases[1] | {"BiLSTM": kept}
        moved = step_seconds(with_it, Speed(flops_per_second=1e30, bytes_per_second=1e9))
        products = sum(m * k + k * n + m * n for m, k, n in [
            (B * S, D, 28), (B * S, 14, 28), *[(B, 7, 28)] * 2 * S])  # fmt: skip
        passes = 2 * (3 * 4 * products + 3 * 2 * 4 * B * S * 4 * 7 * 2)
        assert moved["BiLSTM"] == pytest.approx(passes / 1e9)


def test_seconds_by_hand():
    parts, parameters = step_seconds(WORK, SPEED), WORK.parameters()
    flops = L * 4 * B * S * D * D * (1 + 2) * 2
    moved = 22 * L * 4 * B * S * D * 3
    elements = L * 4 * (2 * B * S * D + D * D) * (1 + 2)
    seconds = max(flops / 0.5e12, 4 * elements / 1e9) + moved / 1e9
    assert parts["projections"] == pytest.approx(seconds)
    square = B * N * S * S
    core = 4 * L * 2 * (2 * B * S * D + square) * 3.5 / 1e9
    assert parts["attention"] == pytest.approx(core + 6 * 4 * square * L * 4 / 1e9)
    assert parts["update"] == pytest.approx(8 * 4 * parameters / 1e9)
    lamb = step_seconds(changed(optimizer="lamb"), SPEED)
    assert lamb["update"] == pytest.approx(11 * 4 * parameters / 1e9)
    again = step_seconds(changed(recompute=True), SPEED)
    assert again["projections"] == pytest.approx(seconds * 4 / 3)
    assert again["head"] == parts["head"]
    halves = step_seconds(changed(train_batch_size=2 * B, gradient_accumulation_steps=2), SPEED)
    assert halves["projections"] == pytest.approx(2 * seconds)
    assert halves["update"] == pytest.approx((8 + 6) * 4 * parameters / 1e9)
    fast = Speed(flops_per_second=1e9, bytes_per_second=1e15)
    assert step_seconds(WORK, fast)["projections"] == pytest.approx(flops / 0.5e9, rel=1e-3)


def test_the_exchange_of_gradients_by_hand():
    """4 devices in a ring: three quarters of the bytes twice."""
    four = step_seconds(changed(num_replicas=4, train_batch_size=4 * B), SPEED)
    one = step_seconds(WORK, SPEED)
    exchange = four.pop("all-reduce")
    assert exchange == pytest.approx(2 * 0.75 * 4 * WORK.parameters() / 1e8)
    assert four == one


@pytest.mark.parametrize(
    ("missing", "replicas"), [("device_tflops", 1), ("device_gb_per_s", 1), ("link_gb_per_s", 2)]
)
def test_a_speed_that_is_missing(missing, replicas):
    speeds = {"device_tflops": 1e12, "device_gb_per_s": 1e9, "link_gb_per_s": 1e8} | {missing: 0.0}
    flops, of_memory, link = speeds.values()
    speed = Speed(flops_per_second=flops, bytes_per_second=of_memory, link_bytes_per_second=link)
    with pytest.raises(InputError, match=f"no --{missing}"):
        step_seconds(changed(BASE, num_replicas=replicas), speed)


@pytest.mark.parametrize("pack", [False, True])
def test_a_causal_model_predicts_every_token(pack):
    config = dataclasses.replace(CONFIG, attention="causal")
    work = changed(config=config, pack=pack)
    assert work.masked == B * S
    (head,) = (part for part in tables.forward_parts(work) if part.name == "head")
    assert head.flops == 2 * B * S * D * D  # no pooler, no next sentences
