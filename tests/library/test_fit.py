"""How `fit` trains: its labels, its schedule, its gradients; on several devices; as the trainer."""

import dataclasses
import pathlib

import keras
import model_files
import numpy as np
import pytest
import small
import tensorflow as tf
from small_runs import EVERY_STEP
from tensorflow.python.distribute import mirrored_run

import bert_tf
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data.batches import Batches, SequentialSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError
from bert_tf.heads import head_named
from bert_tf.modeling.names import checkpoint_name
from bert_tf.tasks.features import classifier_record
from bert_tf.training.optimization import AdamWeightDecay, make_optimizer
from bert_tf.training.plan import RunPlan
from bert_tf.training.trainer import Trainer

LABELS = ["bad", "so so", "good"]
ROWS, BATCH, STEPS = 12, 6, 20
STILL = dataclasses.replace(
    small.CONFIG, num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    classifier_dropout=0.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def still(tmp_path_factory) -> str:
    """A folder of an encoder without any dropout, that of the head included."""
    return model_files.write_encoder(tmp_path_factory.mktemp("still"), STILL)


@pytest.fixture(scope="module")
def data() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs [ROWS, S] and labels [ROWS], with words that stand several times in a text."""
    features = small.examples(ROWS, seed=4)
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: features[name] for name in names}
    inputs["input_ids"][:, 1] = inputs["input_ids"][:, 0]
    return inputs, np.random.default_rng(5).integers(0, len(LABELS), ROWS)


def weights_of(model) -> dict[str, np.ndarray]:
    return {checkpoint_name(variable): np.asarray(variable) for variable in model.weights}


def fitted(folder, data, *, strategy=None, optimizer=None, dtype=None, first=None, **options):
    """The weights of a classifier after STEPS steps of `fit`, the rows in their order."""
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        model = bert_tf.classifier(folder, labels=LABELS, dtype=dtype)
        for variable in model.weights:
            if first:
                variable.assign(first[checkpoint_name(variable)])
        model.compile(optimizer or faster(), **model.compile_options(), **options)
    begun = weights_of(model)
    epochs = STEPS * BATCH // ROWS
    model.fit(*data, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)
    return begun, weights_of(model)


def faster() -> AdamWeightDecay:
    """Clips every step: the norm of gradients is some ten."""
    return make_optimizer(STEPS, learning_rate=1e-3, clip_norm=0.05)


def apart(one, other) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


# ---------------------------------------------------------------------------- beside the trainer


def trained(first, data, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The weights after as many steps of the commands' trainer, from the same weights and data."""
    inputs, labels = data
    record = classifier_record(
        max_seq_length=small.S,
        num_labels=len(LABELS),
        vocab_size=STILL.vocab_size,
        type_vocab_size=STILL.type_vocab_size,
    )
    ones = np.ones([ROWS, 1], np.int64)
    features = inputs | {"label_ids": labels[:, None], "is_real_example": ones}
    files = RecordFiles(small.write_records(folder / "train", features, record), record)
    batches = Batches(files, SequentialSampler(ROWS), batch_size=BATCH)
    head = head_named("classification")
    trainer = Trainer(
        lambda: head.model(STILL, num_classes=len(LABELS)),
        head,
        faster(),
        strategy=tf.distribute.get_strategy(),
        seed=1,
    )
    for name, weight in trainer.steps.weights.items():
        weight.assign(first[name])
    plan = RunPlan(
        num_records=ROWS, batch_size=BATCH, num_train_steps=STEPS, last_step=STEPS, seed=1,
        intervals=dataclasses.replace(EVERY_STEP, log_steps=STEPS),
    )  # fmt: skip
    trainer.train(batches, plan, folder=CheckpointFolder(folder / "run"), run_settings={})
    return {name: weight.numpy() for name, weight in trainer.steps.weights.items()}


def test_fit_and_the_trainer_give_the_same_weights(still, data, tmp_path):
    """After twenty steps, and both as float64: `fit` clipped another norm (2e-4)."""
    first, by_fit = fitted(still, data)
    by_trainer = trained(first, data, tmp_path)
    _, exactly = fitted(still, data, dtype="float64", first=first, jit_compile=False)
    moved = apart(exactly, first)
    assert moved > 5e-3
    by_fit = {name: by_fit[name] for name in by_trainer}
    exactly = {name: exactly[name] for name in by_trainer}
    assert apart(by_fit, by_trainer) < 1e-5
    assert apart(by_fit, exactly) < 1e-5
    assert apart(by_trainer, exactly) < 1e-5


# ---------------------------------------------------------------------------- devices


@pytest.mark.parametrize("are_gpus", [False, True])
def test_two_devices_are_one(still, data, two_replicas, monkeypatch, are_gpus):
    """`fit` under MirroredStrategy failed, then clipped each replica's gradients.

    What MirroredStrategy does on GPUs is seen as in test_gpu_path.py.
    """
    first, one = fitted(still, data)
    if are_gpus:
        monkeypatch.setattr(mirrored_run, "_is_gpu_device", lambda device: True)
    for devices in (1, 2):
        strategy = two_replicas
        if devices == 1:
            names = [tf.config.list_logical_devices("CPU")[0].name]
            strategy = tf.distribute.MirroredStrategy(names)
        _, several = fitted(still, data, strategy=strategy, first=first)
        assert apart(one, several) < 1e-6, devices


# ---------------------------------------------------------------------------- the optimizer


@pytest.mark.usefixtures("_quickly")
def test_rates_of_other_kinds(encoder):
    """A number was an AttributeError, a schedule of Keras's too; clip_norm=0 likewise."""
    cosine = keras.optimizers.schedules.CosineDecay(1e-4, 10)
    for optimizer in (
        AdamWeightDecay(1e-3),
        AdamWeightDecay(cosine),
        make_optimizer(9, clip_norm=0),
    ):
        again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        assert again.get_config() == optimizer.get_config()
        model = bert_tf.classifier(encoder, labels=LABELS)
        model.compile(again, **model.compile_options())
        model.fit(["w1 w2", "w1 w3"], ["bad", "good"], verbose=0)
        assert int(again.iterations) == 1


@pytest.mark.usefixtures("_quickly")
@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.ReduceLROnPlateau(monitor="loss"),
        keras.callbacks.LearningRateScheduler(lambda epoch: 1e-3),
    ],
)
def test_callbacks_that_set_the_rate(encoder, callback):
    """They act on a plain rate, and are refused by name before the first step of a schedule."""
    model = bert_tf.classifier(encoder, labels=LABELS)
    with pytest.raises(InputError, match=f"{type(callback).__name__} with a learning rate"):
        model.fit(["w1"], ["bad"], callbacks=[callback], verbose=0)
    assert int(model.optimizer.iterations) == 0
    cosine = keras.optimizers.schedules.CosineDecay(1e-4, 10)
    model.compile(keras.optimizers.AdamW(cosine), **model.compile_options())
    with pytest.raises(InputError, match=f"{type(callback).__name__} with a learning rate"):
        model.fit(["w1"], ["bad"], callbacks=[callback], verbose=0)
    model.compile(AdamWeightDecay(0.5), **model.compile_options())
    model.fit(["w1"], ["bad"], callbacks=[callback], verbose=0)
    if isinstance(callback, keras.callbacks.LearningRateScheduler):
        assert float(model.optimizer.learning_rate) == pytest.approx(1e-3)


@pytest.mark.usefixtures("_quickly")
def test_a_schedule_that_is_over_is_refused_within_a_loss_scale(encoder):
    model = bert_tf.classifier(encoder, labels=LABELS)
    scaled = keras.optimizers.LossScaleOptimizer(make_optimizer(1))
    model.compile(scaled, **model.compile_options())
    model.fit(["w1"], ["bad"], verbose=0)
    with pytest.raises(InputError, match="whose schedule of 1 steps is over"):
        model.fit(["w1"], ["bad"], verbose=0)


def test_steps_of_an_execution_are_steps(encoder):
    model = bert_tf.classifier(encoder, labels=LABELS)
    model.compile(make_optimizer(3), **model.compile_options(), steps_per_execution=2)
    model.fit(["w1"] * 5, ["bad"] * 5, batch_size=2, verbose=0)
    assert int(model.optimizer.iterations) == 3


# ---------------------------------------------------------------------------- labels


@pytest.mark.usefixtures("_quickly")
@pytest.mark.parametrize(
    ("names", "y", "places"),
    [
        (("1", "2", "3"), [1, 2, 3], [0, 1, 2]),  # there was a traceback, or NaN under XLA
        (("1", "2", "3"), np.array([3.0, 1.0, 2.0]), [2, 0, 1]),
        (("0", "1", "2"), [0, 2, 1], [0, 2, 1]),  # a name is its place
        (("1", "2", "x"), [0, 1, 2], [0, 1, 2]),  # 0 is no name: places
        (("5", "7"), [7, 5, 7], [1, 0, 1]),
        (("-1", "1"), [1, -1, 1], [1, 0, 1]),
        (("1", "0"), ["1", "0", "1"], [0, 1, 0]),
        (("a", "b"), [1, 0, 1], [1, 0, 1]),
    ],
)
def test_labels_that_are_numbers(encoder, names, y, places):
    model = bert_tf.classifier(encoder, labels=list(names))
    assert model.read(["w1", "w2", "w3"], y)[1].tolist() == places


@pytest.mark.usefixtures("_quickly")
@pytest.mark.parametrize(
    ("names", "y", "says"),
    [
        (("1", "2", "3"), [1, 2], "the label 1, which is a name and the place of '2'"),
        (("1", "0"), [0, 1], "the label 0, which is a name and the place of '1'"),
        (("1", "2", "3"), [4, 1], "the label 4"),
        (("1", "2", "3"), ["1", 2], "the label 2, which is a name and the place of '3'"),
    ],
)
def test_labels_that_could_be_either(encoder, names, y, says):
    model = bert_tf.classifier(encoder, labels=list(names))
    with pytest.raises(InputError, match=says):
        model.fit(["w1", "w2"], y, verbose=0)


@pytest.mark.usefixtures("_quickly")
@pytest.mark.parametrize("y", [["2", "3", "1"], [2, 3, 1]])
def test_validation_data_are_read_once(encoder, y):
    """Keras's `fit` evaluates what `fit` has converted: places that are names of others."""
    model = bert_tf.classifier(encoder, labels=["1", "2", "3"])
    texts = ["w1", "w2", "w3"]
    for validation in ((texts[:2], ["2", "3"]), (texts, y)):
        history = model.fit(texts, y, validation_data=validation, verbose=0).history
        assert "val_loss" in history
    assert "val_loss" in model.fit(texts, y, validation_split=0.5, verbose=0).history
    model.fit(texts * 2, y * 2, validation_split=0.5, validation_data=(texts, y), batch_size=1,
              verbose=0)  # fmt: skip
    assert model.optimizer.schedule.num_train_steps == int(model.optimizer.iterations) == 6


@pytest.mark.usefixtures("_quickly")
def test_numbers_of_a_dataset_are_checked_as_they_come(encoder):
    """Under XLA a label that there is not gave NaN weights."""
    model = bert_tf.classifier(encoder, labels=["a", "b"])

    def batches(y):
        return tf.data.Dataset.from_tensor_slices((["w1", "w2"], y)).batch(2)

    model.fit(batches([0, 1]), shuffle=False, verbose=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="that are not 0 to 1"):
        model.fit(batches([0, 2]), shuffle=False, verbose=0)
    model = bert_tf.classifier(encoder, labels=["1", "2"])
    with pytest.raises(InputError, match="a dataset with numbers as labels, and '1' as the name"):
        model.fit(batches([1, 2]), shuffle=False, verbose=0)
    model.fit(batches(["1", "2"]), shuffle=False, verbose=0)
