"""Some weights are frozen, some trained more slowly: in the loop, on replicas, after a resume."""

import dataclasses

import numpy as np
import pytest
import small
import tensorflow as tf

from bert_tf import pretraining_model
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data.batches import Batches
from bert_tf.data.samplers import ShuffledSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.modeling.losses import PretrainingObjective
from bert_tf.training import distribution
from bert_tf.training.optimization import AdamWeightDecay, Schedule, layer_scales
from bert_tf.training.settings import Intervals, StepConfig
from bert_tf.training.trainer import Trainer

CONFIG = dataclasses.replace(small.CONFIG, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
FREEZE = ("bert/embeddings", "bert/encoder/layer_0/", "LayerNorm")
DECAY = 0.5
BATCH, STEPS, PEAK = 4, 4, 1e-2


@pytest.fixture(scope="module")
def batches(tmp_path_factory) -> Batches:
    path = tmp_path_factory.mktemp("records") / "train.tfrecord"
    files = RecordFiles(small.write_records(path, small.examples(11)), small.RECORD)
    order = ShuffledSampler(len(files), seed=5)
    return Batches(files, order, batch_size=BATCH)


def make_trainer(strategy=None, *, freeze=FREEZE, decay=DECAY, clip_norm=1.0) -> Trainer:
    schedule = Schedule(learning_rate=PEAK, num_train_steps=STEPS)
    return Trainer(
        lambda: pretraining_model(CONFIG, with_losses=True),
        PretrainingObjective(),
        AdamWeightDecay(schedule=schedule, layerwise_lr_decay=decay, clip_norm=clip_norm),
        strategy=strategy or distribution.make_strategy("one"),
        seed=3,
        freeze=freeze,
        step_config=StepConfig(xla=False),
    )


def train(trainer: Trainer, batches, folder, *, steps: int = STEPS) -> dict[int, dict]:
    losses = {}
    trainer.train(
        batches,
        num_train_steps=steps,
        folder=CheckpointFolder(folder),
        intervals=Intervals(iterations_per_loop=1, log_steps=0, save_checkpoints_steps=2),
        run_settings={"freeze": list(FREEZE)},
        on_stop=losses.__setitem__,
    )
    return losses


def tensors(trainer: Trainer) -> dict[str, np.ndarray]:
    return {n: v.numpy() for n, v in trainer.state(0, {}).items() if isinstance(v, tf.Tensor)}


def is_frozen(name: str) -> bool:
    return any(pattern in name for pattern in FREEZE)


@pytest.fixture(scope="module")
def whole(batches, tmp_path_factory):
    """All four steps without a stop: weights before, trainer, losses, folder."""
    folder, trainer = tmp_path_factory.mktemp("whole"), make_trainer()
    before = tensors(trainer)
    return before, trainer, train(trainer, batches, folder), folder


def test_frozen_weights_are_left_alone_and_have_no_moments(whole):
    before, trainer, _, folder = whole
    after = tensors(trainer)
    names = {tf1.checkpoint_name(v) for v in trainer.model.trainable_variables}
    frozen = {name for name in names if is_frozen(name)}
    assert 20 < len(frozen) < len(names)
    for name in names:
        assert np.array_equal(before[name], after[name]) == (name in frozen), name
    saved = tf.train.load_checkpoint(str(folder)).get_variable_to_shape_map().keys()
    slots = {f"{name}/adam_{moment}" for name in names - frozen for moment in "mv"}
    assert saved == names | slots | {tf1.GLOBAL_STEP, tf1.RUN_SETTINGS}


def first_changes(batches, folder, **options) -> tuple[dict[str, np.ndarray], dict]:
    """What one step adds to each weight, and its losses; there is no warm-up, and no clipping."""
    trainer = make_trainer(clip_norm=0, **options)
    before = tensors(trainer)
    (losses,) = train(trainer, batches, folder, steps=1).values()
    after = tensors(trainer)
    return {name: after[name] - value for name, value in before.items()}, losses


@pytest.fixture(scope="module")
def plain(batches, tmp_path_factory):
    return first_changes(batches, tmp_path_factory.mktemp("plain"), freeze=(), decay=1.0)


def test_lower_layers_change_less(plain, batches, tmp_path):
    plain, _ = plain
    slow, _ = first_changes(batches, tmp_path, freeze=())
    names = [name for name in plain if not name.endswith(("adam_m", "adam_v", "global_step"))]
    for name, scale in layer_scales(names, DECAY).items():
        # Weights of size 1 keep 7 digits of a change of 0.03.
        assert slow[name] == pytest.approx(scale * plain[name], rel=1e-3, abs=2e-7), name
        if "attention/self/key/bias" not in name:  # which does not change the attention
            assert np.abs(plain[name]).max() > 1e-4, name


def test_the_norm_is_of_what_is_trained(plain, batches, tmp_path):
    """Moments are 0 before the first step, so m is a tenth of the gradient that was not clipped."""
    every, all_losses = plain
    some, some_losses = first_changes(batches, tmp_path)
    gradients = {n: 10 * v for n, v in every.items() if n.endswith("adam_m")}
    trained = {n: g for n, g in gradients.items() if not is_frozen(n)}
    assert {n for n in some if n.endswith("adam_m")} == trained.keys()

    def norm(values) -> float:
        return float(np.sqrt(sum(np.square(g).sum() for g in values)))

    assert all_losses["gradient_norm"] == pytest.approx(norm(gradients.values()), rel=1e-4)
    assert some_losses["gradient_norm"] == pytest.approx(norm(trained.values()), rel=1e-4)
    assert some_losses["gradient_norm"] < 0.99 * all_losses["gradient_norm"]
    assert some_losses["loss"] == pytest.approx(all_losses["loss"], rel=1e-6)


def count_products(trainer: Trainer, batches) -> int:
    """Matrix products in the graph of a step."""
    batch = next(iter(batches.dataset()))
    graph = (
        tf.function(trainer.training_step._on_replica)
        .get_concrete_function(batch, tf.constant(0))
        .graph
    )
    functions = graph.as_graph_def().library.function
    nodes = [node for function in functions for node in function.node_def]
    nodes += graph.as_graph_def().node
    return sum("MatMul" in node.op or "Einsum" in node.op for node in nodes)


def test_gradients_of_frozen_weights_are_not_computed(batches):
    """Backward, a dense layer has two products; of all that is below what is trained, none."""
    everything = count_products(make_trainer(freeze=()), batches)
    upper = count_products(make_trainer(freeze=("bert/embeddings", "layer_0/")), batches)
    # The six dense layers of layer_0, twice, and both products of its attention, twice; and the
    # gradients of what the first of the trained layers is given, three products.
    assert everything - upper >= 2 * 6 + 2 * 2 + 3


def test_resumed_is_undisturbed(whole, batches, tmp_path):
    """Bit for bit, frozen weights and all, in a trainer that had others when it was stopped."""
    start, trainer, losses, folder = whole
    CheckpointFolder(tmp_path).save(0, start | {tf1.GLOBAL_STEP: np.int64(0)})
    train(trainer, batches, tmp_path, steps=2)
    for variable in trainer.model.trainable_variables:
        variable.assign(tf.ones_like(variable.value) * 7)
    assert train(trainer, batches, tmp_path) == {step: losses[step] for step in (3, 4)}
    ours, theirs = (tf.train.load_checkpoint(f"{f}/model.ckpt-4") for f in (tmp_path, folder))
    for name in theirs.get_variable_to_shape_map():
        np.testing.assert_array_equal(ours.get_tensor(name), theirs.get_tensor(name), name)


def test_two_replicas_are_one(whole, two_replicas, batches, tmp_path):
    _, one, losses, _ = whole
    two = make_trainer(two_replicas)
    for step, means in train(two, batches, tmp_path).items():
        assert means == pytest.approx(losses[step], rel=1e-5)
    ours = tensors(two)
    for name, value in tensors(one).items():
        assert np.abs(ours[name] - value).max() < 1e-6, name


def test_how_much_is_trained_is_said(whole, batches, tmp_path, caplog):
    trainer = whole[1]
    sizes = {
        tf1.checkpoint_name(v): int(np.prod(v.shape)) for v in trainer.model.trainable_variables
    }
    trained = sum(size for name, size in sizes.items() if not is_frozen(name))
    with caplog.at_level("INFO", logger="absl"):
        train(trainer, batches, tmp_path, steps=1)
    assert f"{trained} of {sum(sizes.values())} parameters are trained." in caplog.text
