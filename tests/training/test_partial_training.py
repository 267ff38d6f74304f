"""Some weights are frozen, some trained more slowly: in the loop, on replicas, after a resume."""

import numpy as np
import pytest
import small
import tensorflow as tf
from small_runs import (
    SCHEDULE,
    STILL,
    assert_close,
    assert_same,
    endless,
    spoil,
    tensors,
    tensors_of,
    train,
    write_files,
)
from small_runs import make_trainer as trainer_of_all

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.modeling.memory import TrainingStep
from bert_tf.modeling.names import checkpoint_name
from bert_tf.training.optimization import AdamWeightDecay, Schedule, layer_scales

CONFIG = type(STILL)(**vars(STILL) | {"num_hidden_layers": small.CONFIG.num_hidden_layers})
FREEZE = ("bert/embeddings", "bert/encoder/layer_0/", "LayerNorm")
DECAY, STEPS = 0.5, 4
# Under the usual one the update of a gradient of 2e-6 multiplies its rounding, 4e-9, by a thousand.
EPSILON = 1e-3


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    return endless(write_files(tmp_path_factory.mktemp("records")))


def make_trainer(strategy=None, *, freeze=FREEZE, decay=DECAY, clip_norm=1.0, epsilon=EPSILON):
    schedule = Schedule(learning_rate=SCHEDULE.learning_rate, num_train_steps=STEPS)
    options = {"layerwise_lr_decay": decay, "clip_norm": clip_norm, "epsilon": epsilon}
    optimizer = AdamWeightDecay(schedule, **options)
    return trainer_of_all(CONFIG, strategy, optimizer=optimizer, freeze=freeze)


def is_frozen(name: str) -> bool:
    return any(pattern in name for pattern in FREEZE)


@pytest.fixture(scope="module")
def whole(batches, tmp_path_factory):
    """All four steps without a stop: trainer, losses, folder with the first state."""
    folder, trainer = tmp_path_factory.mktemp("whole"), make_trainer()
    CheckpointFolder(folder).save(0, trainer.state(0, {}))
    return trainer, train(trainer, batches, folder, num_train_steps=STEPS), folder


def test_frozen_weights_are_left_alone_and_have_no_moments(whole):
    trainer, _, folder = whole
    before, after = tensors_of(folder, 0), tensors_of(folder, STEPS)
    names = {checkpoint_name(v) for v in trainer.model.trainable_variables}
    frozen = {name for name in names if is_frozen(name)}
    assert 20 < len(frozen) < len(names)
    for name in names:
        assert np.array_equal(before[name], after[name]) == (name in frozen), name
    slots = {f"{name}/adam_{moment}" for name in names - frozen for moment in "mv"}
    assert after.keys() == names | slots | {tf1.GLOBAL_STEP, tf1.RUN_SETTINGS}


def first_changes(batches, folder, **options) -> tuple[dict[str, np.ndarray], dict]:
    """What one step adds to each weight, and its losses; there is no warm-up, and no clipping."""
    trainer = make_trainer(clip_norm=0, epsilon=1e-6, **options)
    before = tensors(trainer)
    (losses,) = train(trainer, batches, folder, num_train_steps=1).values()
    after = tensors(trainer)
    return {name: after[name] - value for name, value in before.items()}, losses


def test_lower_layers_change_less_and_the_norm_is_of_what_is_trained(batches, tmp_path, caplog):
    """Moments are 0 before the first step, so m is a tenth of the gradient that was not clipped."""
    every, all_losses = first_changes(batches, tmp_path / "every", freeze=(), decay=1.0)
    names = [name for name in every if not name.endswith(("adam_m", "adam_v", "global_step"))]
    with caplog.at_level("INFO", logger="absl"):
        some, some_losses = first_changes(batches, tmp_path / "some")
    scales = {n: s * (not is_frozen(n)) for n, s in layer_scales(names, DECAY).items()}
    assert {*scales.values()} == {0, DECAY**2, DECAY, 1}  # of layer_1, the pooler, the heads
    for name, scale in scales.items():
        # Weights of size 1 keep 7 digits of a change of 0.03.
        assert some[name] == pytest.approx(scale * every[name], rel=1e-3, abs=2e-7), name
        if "attention/self/key/bias" not in name:  # which does not change the attention
            assert np.abs(every[name]).max() > 1e-4, name
    gradients = {n: 10 * v for n, v in every.items() if n.endswith("adam_m")}
    trained = {n: g for n, g in gradients.items() if not is_frozen(n)}
    assert {n for n in some if n.endswith("adam_m")} == trained.keys()
    sizes = [sum(v.size for v in some.values()) for some in (trained, gradients)]
    assert f"{sizes[0]} of {sizes[1]} parameters are trained." in caplog.text

    def norm(values) -> float:
        return float(np.sqrt(sum(np.square(g).sum() for g in values)))

    assert all_losses["gradient_norm"] == pytest.approx(norm(gradients.values()), rel=1e-4)
    assert some_losses["gradient_norm"] == pytest.approx(norm(trained.values()), rel=1e-4)
    assert some_losses["gradient_norm"] < 0.99 * all_losses["gradient_norm"]
    assert some_losses["loss"] == pytest.approx(all_losses["loss"], rel=1e-6)


def count_products(trainer, batches) -> int:
    """Matrix products in the graph of a step."""
    update, batch = tf.function(trainer.steps.update), next(iter(batches.dataset()))
    graph = update.get_concrete_function(batch, tf.constant(0)).graph.as_graph_def()
    nodes = [node for function in graph.library.function for node in function.node_def]
    return sum("MatMul" in node.op or "Einsum" in node.op for node in [*nodes, *graph.node])


def test_gradients_of_frozen_weights_are_not_computed(whole, batches):
    """Backward, a dense layer has two products; of all that is below what is trained, none."""
    everything = count_products(make_trainer(freeze=()), batches)
    upper = count_products(whole[0], batches)
    # The six dense layers of layer_0, twice, and both products of its attention, twice; and the
    # gradients of what the first of the trained layers is given, three products.
    assert everything - upper >= 2 * 6 + 2 * 2 + 3


@pytest.mark.parametrize(
    ("freeze", "is_fixed"),
    [("^bert/", True), ("bert/(embeddings|encoder)/", True), ("bert/e.*kernel", False)],
)
def test_a_frozen_encoder_drops_nothing(freeze, is_fixed):
    """Of steps with other masks the vectors are the same, also below a trained pooler."""
    trainer = trainer_of_all(head="classification", freeze=[freeze])
    batch = small.examples()
    inputs, seen = {name: batch[name] for name in trainer.model.input}, []
    for seed in (1, 2):
        with TrainingStep(seed, without_dropout=trainer.steps._without_dropout):
            outputs = trainer.model(inputs, training=True)
        seen.append([outputs[name].numpy() for name in ("sequence_output", "logits")])
    (one, logits), (other, other_logits) = seen
    assert np.array_equal(one, other) == is_fixed
    assert not np.array_equal(logits, other_logits)  # the classifier's own dropout


def test_resumed_is_undisturbed_and_two_replicas_are_one(whole, two_replicas, batches, tmp_path):
    """Bit for bit, frozen weights and all, in a trainer that had others when it was stopped."""
    trainer, losses, folder = whole
    CheckpointFolder(tmp_path).save(0, tensors_of(folder, 0))
    train(trainer, batches, tmp_path, num_train_steps=2)
    spoil(trainer)
    resumed = train(trainer, batches, tmp_path, num_train_steps=STEPS)
    assert resumed == {step: losses[step] for step in (3, 4)}
    assert_same(tmp_path, folder, STEPS)
    two = make_trainer(two_replicas)
    for step, means in train(two, batches, tmp_path / "two", num_train_steps=STEPS).items():
        assert means == pytest.approx(losses[step], rel=1e-5)
    assert_close(tmp_path / "two", folder, STEPS, most=1e-7)
