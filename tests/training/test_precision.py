"""bfloat16 and float16: what is computed in them and what is not; the scale of the loss."""

import numpy as np
import pytest
import small
import tensorflow as tf
from small_runs import (
    DROPPING,
    LOW_RATES,
    SameBatch,
    assert_same,
    endless,
    make_batch,
    make_trainer,
    spoil,
    take_steps,
    tensors,
    tensors_of,
    train,
    write_files,
)

from bert_tf import BertModel
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.errors import InputError
from bert_tf.training import distribution
from bert_tf.training.optimization import AdamWeightDecay
from bert_tf.training.step import LossScale, layer_precision

ROWS = 6


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    return endless(write_files(tmp_path_factory.mktemp("records")))


# ---------------------------------------------------------------------------- layers


def test_many_gradients_of_one_row_are_added_up_exactly():
    """2,048 ones are 2,048; added one by one in bfloat16 they would be 256."""
    with layer_precision("bfloat16"):
        embeddings = BertModel(small.CONFIG).get_layer("embeddings")
    embeddings.norm, embeddings.drop = tf.identity, lambda x, training: x
    ids = np.full([512, 4], 7, np.int32)
    with tf.GradientTape() as tape:
        x = embeddings(ids, np.zeros_like(ids))  # the sum of the three vectors
        assert x.dtype == tf.float32
        rows = tf.reduce_sum(x)
    gradient = tf.convert_to_tensor(tape.gradient(rows, embeddings.word_embeddings.value))
    np.testing.assert_array_equal(gradient[7], np.full(small.CONFIG.hidden_size, 2048.0))


# ---------------------------------------------------------------------------- the loss scale


def test_the_scale_looks_after_itself(monkeypatch):
    monkeypatch.setattr(LossScale, "GROWS_AFTER", 3)
    scale, strategy = LossScale(), distribution.make_strategy("one")
    seen = []
    for is_finite in (1, 1, 1, 1, 0, 1, 1, 1):
        scale.update(strategy, tf.constant(bool(is_finite)))
        values = scale.scale / 2.0**15, scale.good_steps, scale.skipped_steps
        seen.append(tuple(int(v) for v in values))
    expected = [(1, 1, 0), (1, 2, 0), (2, 0, 0), (2, 1, 0), (1, 0, 1), (1, 1, 1), (1, 2, 1)]
    assert seen == [*expected, (2, 0, 1)]
    scale.scale.assign(LossScale.LEAST)
    scale.update(strategy, tf.constant(False))
    assert float(scale.scale) == 1.0


FIRST = 26  # the power of two that is the scale at first


def test_steps_beyond_float16_are_skipped_and_a_resumed_run_is_the_same(batches, tmp_path, caplog):
    """The scale is so large at first that some steps are lost; then all goes well."""
    trainer, steps = make_trainer(precision="float16", xla=True), 20
    trainer.steps.loss_scale.scale.assign(2.0**FIRST)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        CheckpointFolder(folder).save(0, trainer.state(0, {"seed": 3}))
    start = tensors_of(whole, 0)
    losses = train(trainer, batches, whole, num_train_steps=steps)
    skipped = [step for step, means in losses.items() if not means]
    assert skipped[:3] == [1, 2, 3]
    assert len(skipped) < steps - 5
    assert f"loss scale is now {2.0 ** (FIRST - 1):g}." in caplog.text
    end = tensors_of(whole, steps)
    found = [end[f"bert_tf/loss_scale{name}"] for name in ("", "_skipped_steps", "_good_steps")]
    assert found == [2.0 ** (FIRST - len(skipped)), len(skipped), steps - skipped[-1]]
    assert any(n.startswith("bert/") and not np.array_equal(v, end[n]) for n, v in start.items())

    def kill(step, means):
        if step == 3:  # in the midst of those that are skipped
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(trainer, batches, killed, num_train_steps=steps, on_stop=kill)
    at_two = tensors_of(killed, 2)
    for name, value in start.items():  # nothing was changed by steps that were skipped
        if name.startswith(("bert/", "cls/")):
            np.testing.assert_array_equal(at_two[name], value, name)
    spoil(trainer)
    train(trainer, batches, killed, num_train_steps=steps)
    assert_same(killed, whole, steps)


BEYOND, WITHIN = 2.0**120, 2.0**10  # of float16, for gradients of any size that these have


def test_skipped_steps_do_not_count_in_the_bias_correction():
    """The first update of weights that begin at 0 is as long as the rate, whenever it comes."""
    optimizer = AdamWeightDecay(LOW_RATES, bias_correction=True)
    trainer = make_trainer(head="classification", optimizer=optimizer, precision="float16")
    batch = make_batch("classification", ROWS)
    trainer.steps.loss_scale.scale.assign(BEYOND)
    assert take_steps(trainer, batch, 3)["kept_steps"] == 0
    trainer.steps.loss_scale.scale.assign(WITHIN)
    assert not tensors(trainer)["output_bias"].any()
    iterator = distribution.distributed_batches(trainer.strategy, SameBatch(batch, 1))
    assert trainer.run_steps(iterator, 3, 4)[1]["kept_steps"] == 1
    change = np.abs(tensors(trainer)["output_bias"])
    assert change == pytest.approx(LOW_RATES.rate(3), rel=1e-3)


def test_gradients_are_those_of_float32_whatever_the_scale():
    """Without clipping, which would hide a factor."""
    optimizer = AdamWeightDecay(LOW_RATES, clip_norm=1e6)
    batch, found = make_batch("pretraining", ROWS), []
    for precision in ("float32", "float16"):
        trainer = make_trainer(optimizer=optimizer, precision=precision)
        if precision == "float16":
            trainer.steps.loss_scale.scale.assign(8.0)  # not the one that it begins with
        norm = take_steps(trainer, batch, 1)["gradient_norm"]
        found.append((norm, tensors(trainer)))
    (norm, exact), (other_norm, values) = found
    assert other_norm == pytest.approx(norm, rel=1e-2)
    for name, value in exact.items():
        if name.endswith("/adam_m") and np.linalg.norm(value) > 1e-4:
            distance = np.linalg.norm(values[name] - value)
            assert distance < 0.05 * np.linalg.norm(value), name


def test_two_replicas_are_one_in_float16(two_replicas):
    """They skip the same steps, and keep the same scale."""
    batch, means = make_batch("token_labels", ROWS), []
    for strategy, parts in ((None, 3), (two_replicas, 1)):
        options = {"precision": "float16", "gradient_accumulation_steps": parts}
        trainer = make_trainer(strategy=strategy, head="token_labels", **options)
        scale, before = trainer.steps.loss_scale, tensors(trainer)
        scale.scale.assign(BEYOND)
        assert take_steps(trainer, batch, 2)["kept_steps"] == 0
        np.testing.assert_equal(tensors(trainer), before)
        scale.scale.assign(WITHIN)
        means.append(take_steps(trainer, batch, 3))
        for name, expected in (("scale", WITHIN), ("good_steps", 3), ("skipped_steps", 2)):
            copies = trainer.strategy.experimental_local_results(getattr(scale, name))
            assert [copy.numpy() for copy in copies] == [expected] * len(copies)
    assert means[0]["kept_steps"] == 3
    assert means[1] == pytest.approx(means[0], rel=1e-2)


def test_when_no_scale_helps(batches, tmp_path):
    trainer = make_trainer(precision="float16")
    trainer.model.get_layer("embeddings").norm.gamma.assign([1e30] * DROPPING.hidden_size)
    trainer.steps.loss_scale.scale.assign(2.0)
    with pytest.raises(InputError, match="float16 in every step") as caught:
        train(trainer, batches, tmp_path)
    assert "--precision=bfloat16" in caught.value.remedy
