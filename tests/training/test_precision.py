"""bfloat16 and float16: what is computed in them and what is not; the scale of the loss."""

import dataclasses

import keras
import numpy as np
import pytest
import small
import tensorflow as tf
from small_heads import OPTIMIZER, Batches, make_batch, make_trainer, take_steps, tensors

from bert_tf import bert_encoder
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data.batches import Batches as RecordBatches
from bert_tf.data.samplers import ShuffledSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError
from bert_tf.training import distribution
from bert_tf.training.optimization import Schedule
from bert_tf.training.settings import Intervals
from bert_tf.training.step import LossScale, layer_precision

LOW = ("bfloat16", "float16")
ROWS = 6
SHALLOW = dataclasses.replace(small.CONFIG, num_hidden_layers=1)
TRAINED = dataclasses.replace(
    OPTIMIZER, schedule=Schedule(learning_rate=2e-3, num_train_steps=60, num_warmup_steps=6)
)


@pytest.fixture(scope="module")
def batches(tmp_path_factory) -> RecordBatches:
    path = tmp_path_factory.mktemp("records") / "train.tfrecord"
    files = RecordFiles(small.write_records(path, small.examples(11)), small.RECORD)
    order = ShuffledSampler(len(files), seed=5)
    return RecordBatches(files, order, batch_size=4)


def tensors_of(folder, step: int) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(f"{folder}/model.ckpt-{step}")
    return {n: np.asarray(reader.get_tensor(n)) for n in reader.get_variable_to_shape_map()}


# ---------------------------------------------------------------------------- layers


@pytest.mark.parametrize("precision", LOW)
def test_what_is_computed_in_it(precision):
    """Hidden states are; weights are not, and nobody's policy is changed for good."""
    before = keras.config.dtype_policy().name
    with layer_precision(precision):
        low = bert_encoder(small.CONFIG)
    assert keras.config.dtype_policy().name == before
    exact = bert_encoder(small.CONFIG)
    for ours, theirs in zip(low.weights, exact.weights, strict=True):
        assert ours.dtype == "float32"
        ours.assign(theirs)
    inputs = {n: small.examples()[n] for n in ("input_ids", "input_mask", "segment_ids")}
    hidden, expected = low(inputs)["sequence_output"], exact(inputs)["sequence_output"]
    assert hidden.dtype == precision
    error = np.abs(np.float32(hidden) - np.asarray(expected)).max()
    assert 0 < error < {"bfloat16": 0.2, "float16": 0.02}[precision]


def test_logits_are_float32():
    for head, names in (("classes", ["logits"]), ("span", ["start_logits", "end_logits"])):
        trainer = make_trainer(head, SHALLOW, precision="bfloat16")
        batch = make_batch(head, ROWS)
        outputs = trainer.model({name: batch[name] for name in trainer.model.input})
        assert {outputs[name].dtype for name in names} == {tf.float32}


def test_many_gradients_of_one_row_are_added_up_exactly():
    """2,048 ones are 2,048; added one by one in bfloat16 they would be 256."""
    with layer_precision("bfloat16"):
        embeddings = bert_encoder(small.CONFIG).get_layer("embeddings")
    ids = np.full([512, 4], 7, np.int32)
    with tf.GradientTape() as tape:
        _, words = embeddings(ids, np.zeros_like(ids))
        assert words.dtype == tf.float32
        rows = tf.reduce_sum(tf.gather(words, ids))
    gradient = tf.convert_to_tensor(tape.gradient(rows, embeddings.word_embeddings.value))
    np.testing.assert_array_equal(gradient[7], np.full(small.CONFIG.hidden_size, 2048.0))


# ---------------------------------------------------------------------------- training


@pytest.fixture(scope="module")
def final_losses() -> dict[str, float]:
    """Of 60 steps over one batch, by precision; evaluation of the trained model."""
    found = {}
    batch = make_batch("pretraining", ROWS)
    for precision in ("float32", *LOW):
        trainer = make_trainer(
            "pretraining", SHALLOW, optimizer=TRAINED, precision=precision, xla=precision in LOW
        )
        found[f"{precision} first"] = take_steps(trainer, batch, 2)["loss"]
        take_steps(trainer, batch, 50)
        found[precision] = take_steps(trainer, batch, 10)["loss"]
        assert all(v.dtype in (np.float32, np.int64) for v in tensors(trainer).values())
    return found


@pytest.mark.parametrize("precision", LOW)
def test_a_run_ends_where_float32_does(final_losses, precision):
    assert final_losses["float32"] < 0.9 * final_losses["float32 first"]  # something is learned
    assert final_losses[precision] == pytest.approx(final_losses["float32"], rel=0.02)
    assert final_losses[precision] != final_losses["float32"]


# ---------------------------------------------------------------------------- the loss scale


def test_the_scale_looks_after_itself(monkeypatch):
    monkeypatch.setattr(LossScale, "GROWS_AFTER", 3)
    scale, strategy = LossScale(), distribution.make_strategy("one")
    seen = []
    for is_finite in (1, 1, 1, 1, 0, 1, 1, 1):
        scale.update(strategy, tf.constant(bool(is_finite)))
        seen.append(tuple(int(v) for v in (scale.scale, scale.good_steps, scale.skipped_steps)))
    first = 2**15
    assert seen == [
        (first, 1, 0),
        (first, 2, 0),
        (2 * first, 0, 0),
        (2 * first, 1, 0),
        (first, 0, 1),
        (first, 1, 1),
        (first, 2, 1),
        (2 * first, 0, 1),
    ]
    scale.scale.assign(1.0)
    assert scale.is_least
    scale.update(strategy, tf.constant(False))
    assert float(scale.scale) == 1.0


def run(trainer, batches, folder, *, steps: int, on_stop=lambda step, means: None) -> None:
    trainer.train(
        batches,
        num_train_steps=steps,
        folder=CheckpointFolder(folder),
        intervals=Intervals(iterations_per_loop=1, log_steps=2, save_checkpoints_steps=2),
        run_settings={},
        on_stop=on_stop,
    )


def test_steps_beyond_float16_are_skipped_and_a_resumed_run_is_the_same(batches, tmp_path, caplog):
    """The scale is so large at first that some steps are lost; then all goes well."""
    losses = {}

    trainer = make_trainer("pretraining", SHALLOW, precision="float16")
    trainer.training_step.loss_scale.scale.assign(2.0**36)
    for name in ("whole", "killed"):
        CheckpointFolder(tmp_path / name).save(0, trainer.state(0, {}))
    start = tensors_of(tmp_path / "whole", 0)
    with caplog.at_level("WARNING", logger="absl"):
        run(trainer, batches, tmp_path / "whole", steps=40, on_stop=losses.__setitem__)
    skipped = [step for step, means in losses.items() if not means]
    assert skipped[:3] == [1, 2, 3]
    assert len(skipped) < 30
    assert f"loss scale is {2.0 ** (36 - 1):g} now" in caplog.text
    end = tensors_of(tmp_path / "whole", 40)
    assert end["bert_tf/loss_scale_skipped_steps"] == len(skipped)
    assert end["bert_tf/loss_scale"] == 2.0 ** (36 - len(skipped))
    assert end["bert_tf/loss_scale_good_steps"] == 40 - skipped[-1]
    changed = [n for n in start if n.startswith("bert/") and not np.array_equal(start[n], end[n])]
    assert changed

    def kill(step, means):
        if step == 3:  # in the midst of those that are skipped
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(trainer, batches, tmp_path / "killed", steps=40, on_stop=kill)
    at_two = tensors_of(tmp_path / "killed", 2)
    for name, value in start.items():  # nothing was changed by steps that were skipped
        if name.startswith(("bert/", "cls/")):
            np.testing.assert_array_equal(at_two[name], value, name)
    for (
        _,
        *variables,
    ) in trainer.training_step.named_variables():  # all are to be restored
        for variable in (*variables, *trainer.training_step.loss_scale.variables.values()):
            variable.assign(tf.ones_like(variable) * 7)
    run(trainer, batches, tmp_path / "killed", steps=40)
    for name, value in tensors_of(tmp_path / "killed", 40).items():
        np.testing.assert_array_equal(value, end[name], name)


BEYOND, WITHIN = 2.0**120, 2.0**10  # of float16, for gradients of any size that these have


def test_skipped_steps_do_not_count_in_the_bias_correction():
    """The first update of weights that begin at 0 is as long as the rate, whenever it comes."""
    optimizer = dataclasses.replace(OPTIMIZER, bias_correction=True)
    trainer = make_trainer("classes", SHALLOW, optimizer=optimizer, precision="float16")
    batch = make_batch("classes", ROWS)
    trainer.training_step.loss_scale.scale.assign(BEYOND)
    assert take_steps(trainer, batch, 3)["kept_steps"] == 0
    trainer.training_step.loss_scale.scale.assign(WITHIN)
    assert not tensors(trainer)["output_bias"].any()
    iterator = distribution.distributed_batches(trainer.strategy, Batches(batch, 1))
    assert trainer.run_steps(iterator, 3, 4)["kept_steps"] == 1
    rate = float(optimizer.schedule(3))
    assert np.abs(tensors(trainer)["output_bias"]) == pytest.approx(rate, rel=1e-3)


def test_gradients_are_those_of_float32_whatever_the_scale():
    """Without clipping, which would hide a factor."""
    optimizer = dataclasses.replace(OPTIMIZER, clip_norm=1e6)
    batch, found = make_batch("pretraining", ROWS), []
    for precision, scale in (("float32", None), ("float16", 8.0), ("float16", 1024.0)):
        trainer = make_trainer(
            "pretraining", SHALLOW, optimizer=optimizer, precision=precision, xla=False
        )
        if scale:
            trainer.training_step.loss_scale.scale.assign(scale)
        norm = take_steps(trainer, batch, 1)["gradient_norm"]
        found.append((norm, tensors(trainer)))
    (norm, exact), *others = found
    for other_norm, values in others:
        assert other_norm == pytest.approx(norm, rel=1e-2)
        for name, value in exact.items():
            if name.endswith("/adam_m") and np.linalg.norm(value) > 1e-4:
                distance = np.linalg.norm(values[name] - value)
                assert distance < 0.05 * np.linalg.norm(value), name


def test_two_replicas_are_one_in_float16(two_replicas):
    """They skip the same steps, and keep the same scale."""
    batch = make_batch("pretraining", ROWS)
    means = []
    for strategy, parts in ((None, 1), (two_replicas, 3)):
        trainer = make_trainer(
            "pretraining",
            SHALLOW,
            strategy=strategy,
            precision="float16",
            gradient_accumulation_steps=parts,
            xla=False,
        )
        scale = trainer.training_step.loss_scale
        before = tensors(trainer)
        scale.scale.assign(BEYOND)
        assert take_steps(trainer, batch, 2)["kept_steps"] == 0
        for name, value in tensors(trainer).items():
            np.testing.assert_array_equal(value, before[name], name)
        scale.scale.assign(WITHIN)
        means.append(take_steps(trainer, batch, 3))
        for variable, expected in (
            (scale.scale, WITHIN),
            (scale.good_steps, 3),
            (scale.skipped_steps, 2),
        ):
            copies = trainer.strategy.experimental_local_results(variable)
            assert [copy.numpy() for copy in copies] == [expected] * len(copies)
    assert means[0]["kept_steps"] == 3
    assert means[1] == pytest.approx(means[0], rel=1e-2)


def test_when_no_scale_helps(batches, tmp_path):
    trainer = make_trainer("pretraining", SHALLOW, precision="float16", xla=False)
    trainer.model.get_layer("embeddings").norm.gamma.assign([1e30] * SHALLOW.hidden_size)
    trainer.training_step.loss_scale.scale.assign(2.0)
    with pytest.raises(InputError, match="float16 in every step") as caught:
        run(trainer, batches, tmp_path, steps=6)
    assert "--precision=bfloat16" in caught.value.remedy
