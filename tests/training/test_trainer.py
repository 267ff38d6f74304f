"""The loop: resumed runs, several replicas, evaluation, and what stops it."""

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
from collections.abc import Callable

import keras
import numpy as np
import pytest
import reference
import small
import tensorflow as tf

from bert_tf import cluster, pretraining_model
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data.batches import Batches
from bert_tf.data.samplers import SequentialSampler, ShuffledSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError
from bert_tf.modeling.losses import PretrainingObjective
from bert_tf.runtime import Interrupted
from bert_tf.terminal import progress
from bert_tf.training import distribution
from bert_tf.training.fine_tuning import refuse_other_settings
from bert_tf.training.logging import read_curves
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.settings import Intervals, StepConfig
from bert_tf.training.step import step_seed
from bert_tf.training.trainer import Trainer

DROPPING = dataclasses.replace(small.CONFIG, num_hidden_layers=1)
STILL = dataclasses.replace(DROPPING, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
STEPS, BATCH, RECORDS = 6, 4, 11  # more than two epochs
SCHEDULE = Schedule(learning_rate=1e-2, num_train_steps=STEPS, num_warmup_steps=2)
EVERY_STEP = Intervals(iterations_per_loop=1, log_steps=2, save_checkpoints_steps=2)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> RecordFiles:
    path = tmp_path_factory.mktemp("records") / "train.tfrecord"
    return RecordFiles(small.write_records(path, small.examples(RECORDS)), small.RECORD)


def endless(files) -> Batches:
    order = ShuffledSampler(len(files), seed=5)
    return Batches(files, order, batch_size=BATCH)


@pytest.fixture
def batches(files) -> Batches:
    return endless(files)


def eval_batches(files, *, batch_size: int, num_examples: int) -> Batches:
    order = SequentialSampler(len(files))
    return Batches(
        files,
        order,
        batch_size=batch_size,
        num_examples=num_examples,
    )


def make_trainer(config, strategy=None, *, masked_lm_only: bool = False) -> Trainer:
    return Trainer(
        lambda: pretraining_model(config, with_losses=True),
        PretrainingObjective(masked_lm_only=masked_lm_only),
        AdamWeightDecay(schedule=SCHEDULE),
        strategy=strategy or distribution.make_strategy("one"),
        seed=3,
        step_config=StepConfig(xla=False),
    )


def train(
    trainer, batches, folder, *, steps=STEPS, intervals=EVERY_STEP, **kwargs
) -> dict[int, dict]:
    """Trains; returns the mean losses since the last stop, by step."""
    losses = {}
    on_stop = kwargs.pop("on_stop", lambda step, means: None)

    def note(step, means):
        losses[step] = means
        on_stop(step, means)

    trainer.train(
        batches,
        num_train_steps=steps,
        folder=CheckpointFolder(folder),
        intervals=intervals,
        run_settings=kwargs.pop("run_settings", {"seed": 3}),
        on_stop=note,
        **kwargs,
    )
    return losses


def tensors_of(folder, step: int) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(f"{folder}/model.ckpt-{step}")
    names = reader.get_variable_to_shape_map()
    return {name: np.asarray(reader.get_tensor(name)) for name in names}


def spoil(trainer: Trainer) -> None:
    """Makes every weight and moment wrong, so that what is right can only come from a file."""
    for _, *variables in trainer.training_step.named_variables():
        for variable in variables:
            variable.assign(tf.ones_like(variable) * 7)


@dataclasses.dataclass
class Run:
    trainer: Trainer
    folder: pathlib.Path
    losses: dict[int, dict]


@pytest.fixture(scope="module")
def undisturbed(files, tmp_path_factory) -> Run:
    """Six steps without a stop, with dropout and with evaluations on the way."""
    folder, trainer = tmp_path_factory.mktemp("undisturbed"), make_trainer(DROPPING)
    CheckpointFolder(folder / "start").save(0, trainer.state(0, {"seed": 3}))
    losses = train(
        trainer,
        endless(files),
        folder / "run",
        intervals=dataclasses.replace(EVERY_STEP, eval_steps=3),
        evaluate=lambda step: trainer.evaluate(eval_batches(files, batch_size=5, num_examples=7)),
    )
    return Run(trainer, folder, losses)


@pytest.fixture(scope="module")
def still(files, tmp_path_factory) -> Run:
    """Two steps without dropout and next-sentence loss."""
    trainer, folder = make_trainer(STILL, masked_lm_only=True), tmp_path_factory.mktemp("still")
    CheckpointFolder(folder / "start").save(0, trainer.state(0, {}))
    return Run(trainer, folder, train(trainer, endless(files), folder, steps=2))


# ---------------------------------------------------------------------------- one run


def test_what_a_run_writes(undisturbed):
    folder = undisturbed.folder / "run"
    assert list(undisturbed.losses) == [1, 2, 3, 4, 5, 6]
    for means in undisturbed.losses.values():
        assert set(means) == {"loss", "gradient_norm", "masked_lm_loss", "next_sentence_loss"}
        terms = means["masked_lm_loss"] + means["next_sentence_loss"]
        assert means["loss"] == pytest.approx(terms, rel=1e-6)
    assert CheckpointFolder(folder).latest() == f"{folder}/model.ckpt-6"
    shapes = reference.variable_shapes(DROPPING)
    for step in (2, 4, 6):
        tensors = tensors_of(folder, step)
        slots = {f"{name}/{slot}" for name in shapes for slot in ("adam_m", "adam_v")}
        assert tensors.keys() == shapes.keys() | slots | {"global_step", "bert_tf/run_facts"}
        assert tensors["global_step"] == step
        assert tensors["global_step"].dtype == np.int64
        assert tensors["bert_tf/run_facts"] == b'{"seed": 3}'


def test_what_a_run_reports(undisturbed):
    curves = read_curves(str(undisturbed.folder / "run"))
    train_curves = {name: curve for name, curve in curves.items() if not name.startswith("eval/")}
    losses = undisturbed.losses
    for name in ("loss", "masked_lm_loss", "next_sentence_loss", "gradient_norm"):
        expected = {step: (losses[step - 1][name] + losses[step][name]) / 2 for step in (2, 4, 6)}
        assert train_curves.pop(name) == pytest.approx(expected, rel=1e-5)
    # The rate of the last update before the line: of steps 1, 3 and 5.
    assert train_curves.pop("learning_rate") == pytest.approx({2: 5e-3, 4: 5e-3, 6: 1e-2 / 6})
    assert min(train_curves.pop("examples_per_second").values()) > 0
    assert not train_curves
    assert set(curves["eval/loss"]) == set(curves["eval/masked_lm_accuracy"]) == {0, 3, 6}


def test_weights_change_from_the_second_step_on(undisturbed):
    """The first has a rate of 0."""
    first, second = (
        undisturbed.trainer.optimizer.schedule(tf.constant(step)).numpy() for step in (0, 1)
    )
    assert (first, second) == (0, np.float32(5e-3))
    start = tensors_of(undisturbed.folder / "start", 0)
    end = tensors_of(undisturbed.folder / "run", 6)
    unchanged = [n for n in reference.variable_shapes(DROPPING) if np.array_equal(start[n], end[n])]
    assert not unchanged


# ---------------------------------------------------------------------------- resume


@pytest.fixture
def at_the_start(undisturbed, tmp_path) -> Run:
    """The same run in a new folder, with nothing done yet."""
    source = tf1.CheckpointReader(undisturbed.folder / "start")
    tensors = {name: source.read(name) for name in source.shapes}
    CheckpointFolder(tmp_path).save(0, tensors)
    return Run(undisturbed.trainer, tmp_path, {})


def kill_at(step: int) -> Callable:
    def on_stop(now, means):
        if now == step:
            raise KeyboardInterrupt

    return on_stop


def test_a_resumed_run_ends_as_an_undisturbed_one(undisturbed, at_the_start, batches):
    """Bit for bit: killed at step 3, so gone on with from 2; and in strides of another length."""
    trainer, folder = at_the_start.trainer, at_the_start.folder
    with pytest.raises(KeyboardInterrupt):
        train(trainer, batches, folder, on_stop=kill_at(3))
    assert CheckpointFolder(folder).latest() == f"{folder}/model.ckpt-2"
    spoil(trainer)
    strides = Intervals(iterations_per_loop=3, log_steps=6, save_checkpoints_steps=6)
    losses = train(trainer, batches, folder, intervals=strides)
    assert list(losses) == [5, 6]
    ours, theirs = tensors_of(folder, 6), tensors_of(undisturbed.folder / "run", 6)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, name)
    for name, mean in losses[5].items():
        expected = np.mean([undisturbed.losses[step][name] for step in (3, 4, 5)])
        assert mean == pytest.approx(expected, rel=1e-6)
    assert losses[6] == undisturbed.losses[6]


def test_a_run_that_is_asked_to_end_saves_first(undisturbed, at_the_start, batches):
    """SIGTERM after step 3, when no checkpoint is due; gone on with, it ends as undisturbed."""
    trainer, folder = at_the_start.trainer, at_the_start.folder
    before = signal.getsignal(signal.SIGTERM)

    def on_stop(step, means):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted) as caught:
        train(trainer, batches, folder, on_stop=on_stop)
    assert (caught.value.step, caught.value.code) == (3, 0)
    assert CheckpointFolder(folder).latest() == f"{folder}/model.ckpt-3"
    assert signal.getsignal(signal.SIGTERM) is before
    spoil(trainer)
    assert list(train(trainer, batches, folder)) == [4, 5, 6]
    for name, value in tensors_of(undisturbed.folder / "run", 6).items():
        np.testing.assert_array_equal(tensors_of(folder, 6)[name], value, name)


def test_it_ends_after_the_steps_that_it_makes_now(undisturbed, at_the_start, batches, monkeypatch):
    """SIGTERM within step 2, and nothing else stops before step 6."""
    trainer, folder = at_the_start.trainer, at_the_start.folder
    add_steps, made = trainer._add_steps, []

    def make(totals, iterator, step, number):
        made.append(step + number)
        if step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return add_steps(totals, iterator, step, number)

    monkeypatch.setattr(trainer, "_add_steps", make)
    monkeypatch.setattr(trainer._pace, "_num_steps", 1)
    strides = Intervals(iterations_per_loop=6, log_steps=6, save_checkpoints_steps=6)
    with pytest.raises(Interrupted) as caught:
        train(trainer, batches, folder, intervals=strides)
    assert len(made) == 2
    assert caught.value.step == made[-1] < 6
    spoil(trainer)
    train(trainer, batches, folder, intervals=strides)
    for name, value in tensors_of(undisturbed.folder / "run", 6).items():
        np.testing.assert_array_equal(tensors_of(folder, 6)[name], value, name)


@pytest.mark.parametrize("comes", ["before it", "within it"])
def test_sigterm_about_an_evaluation(at_the_start, batches, comes):
    """What had not begun is left to the run that goes on; what had is the last thing done."""
    trainer, folder = at_the_start.trainer, at_the_start.folder
    evaluated: list[int] = []
    to_come = [comes]  # once only

    def at(step, place):
        if step == 3 and place in to_come:
            to_come.remove(place)
            os.kill(os.getpid(), signal.SIGTERM)

    def evaluate(step):
        at(step, "within it")
        evaluated.append(step)
        return {"loss": 0.0}

    intervals = dataclasses.replace(EVERY_STEP, eval_steps=3)
    with pytest.raises(Interrupted) as caught:
        train(
            trainer,
            batches,
            folder,
            intervals=intervals,
            evaluate=evaluate,
            on_stop=lambda step, means: at(step, "before it"),
        )
    assert caught.value.step == 3
    assert evaluated == ([0] if comes == "before it" else [0, 3])
    assert CheckpointFolder(folder).latest() == f"{folder}/model.ckpt-3"
    evaluated.clear()
    assert list(train(trainer, batches, folder, intervals=intervals, evaluate=evaluate)) == [
        4,
        5,
        6,
    ]
    assert evaluated == [3, 6]


def test_a_finished_run_does_nothing(undisturbed, at_the_start, batches):
    trainer, folder = at_the_start.trainer, at_the_start.folder
    train(trainer, batches, folder, steps=1)
    before = tensors_of(folder, 1)
    spoil(trainer)
    assert train(trainer, batches, folder, steps=1) == {}
    for name, value in tensors_of(folder, 1).items():
        np.testing.assert_array_equal(value, before[name])
    assert CheckpointFolder(folder).latest() == f"{folder}/model.ckpt-1"


def test_a_fine_tuned_model_may_be_trained_longer(undisturbed, tmp_path):
    """With other settings only before its end; then it is not what they make."""
    notes = {"seed": 3, "num_train_epochs": 3.0, "num_train_steps": 6}
    folder = CheckpointFolder(tmp_path)
    refuse_other_settings(folder, {"seed": 4})
    folder.save(5, {tf1.RUN_SETTINGS: np.array(json.dumps(notes))})
    refuse_other_settings(folder, notes | {"seed": 4})
    folder.save(6, {tf1.RUN_SETTINGS: np.array(json.dumps(notes))})
    longer = {"num_train_epochs": 4.0, "num_train_steps": 8, "early_stopping": 2}
    refuse_other_settings(folder, notes | longer)
    with pytest.raises(InputError, match="other settings: seed 4"):
        refuse_other_settings(folder, notes | {"seed": 4, "num_train_steps": 12})


def test_processes_with_other_settings_data_or_weights_are_refused(
    at_the_start, batches, monkeypatch
):
    """As seen by one of two processes: numbers that must be the same in both."""
    seen: list[dict] = []

    def check_same(numbers):
        seen.append(dict(numbers))
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "has_peers", lambda: True)
    monkeypatch.setattr(cluster, "check_same", check_same)
    trainer, folder = at_the_start.trainer, at_the_start.folder
    others = [
        {},
        {"run_settings": {"seed": 3, "init_checkpoint": "elsewhere"}},
        {"run_settings": {"seed": 4}},
        {"intervals": dataclasses.replace(EVERY_STEP, log_steps=3)},
    ]
    for other in others:
        with pytest.raises(KeyboardInterrupt):
            train(trainer, batches, folder, **other)
    first, elsewhere, *differing = seen
    assert first.keys() == {"flags", "records", "first weights"}
    assert elsewhere == first  # the same weights may have another path there
    assert all(numbers["flags"] != first["flags"] for numbers in differing)
    state = trainer.state(0, {}) | {"bert/pooler/dense/bias": np.ones(DROPPING.hidden_size)}
    CheckpointFolder(folder).save(0, state)
    with pytest.raises(KeyboardInterrupt):
        train(trainer, batches, folder)
    assert seen[-1]["first weights"] != first["first weights"]


def test_processes_that_evaluate_other_records_are_refused(undisturbed, files, monkeypatch):
    def check_same(numbers):
        seen.append(dict(numbers))
        raise KeyboardInterrupt

    seen: list[dict] = []
    monkeypatch.setattr(cluster, "has_peers", lambda: True)
    monkeypatch.setattr(cluster, "check_same", check_same)
    for num_examples in (BATCH, 2 * BATCH):
        given = eval_batches(files, batch_size=BATCH, num_examples=num_examples)
        with pytest.raises(KeyboardInterrupt):
            undisturbed.trainer.evaluate(given)
    records = files.fingerprint()
    assert seen == [
        {"batches to evaluate": 1, "records to evaluate": records},
        {"batches to evaluate": 2, "records to evaluate": records},
    ]


def test_other_settings_are_logged(at_the_start, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        step = at_the_start.trainer.restore(CheckpointFolder(at_the_start.folder), {"seed": 4})
    assert step == 0
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("Resuming with seed 4; the run was started with 3.")


def test_weights_without_moments(undisturbed, tmp_path, caplog):
    """As of an original checkpoint stripped of its optimizer, put into the folder by hand."""
    weights = reference.random_weights(DROPPING, seed=8)
    CheckpointFolder(tmp_path).save(40, weights | {"global_step": np.int64(40)})
    trainer = undisturbed.trainer
    spoil(trainer)
    with caplog.at_level("WARNING", logger="absl"):
        assert trainer.restore(CheckpointFolder(tmp_path), {}) == 40
    for name, value in reference.take_weights(trainer.model).items():
        np.testing.assert_array_equal(value, weights[name])
    for _, _, m, v in trainer.training_step.named_variables():
        assert not m.numpy().any()
        assert not v.numpy().any()
    assert len(caplog.records) == 2 * len(weights)
    assert "it starts at 0" in caplog.records[0].getMessage()


def test_a_damaged_checkpoint_is_refused(at_the_start, batches):
    data = at_the_start.folder / "model.ckpt-0.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(InputError, match=r"model\.ckpt-0, which cannot be read"):
        train(at_the_start.trainer, batches, at_the_start.folder)


# ---------------------------------------------------------------------------- evaluation


def expected_results(weights, batch, rows, size: int) -> dict[str, float]:
    """Of the examples `rows`, in batches of `size`, from the model in NumPy."""
    batch = {name: value[rows] for name, value in batch.items()}
    outputs = reference.pretraining_outputs(weights, DROPPING, small.model_inputs(batch))
    results, terms = {}, {}
    for term, labels, item_weights in (
        ("masked_lm", batch["masked_lm_ids"], batch["masked_lm_weights"]),
        ("next_sentence", batch["next_sentence_labels"][:, 0], np.ones(len(rows))),
    ):
        log_probs = reference.log_softmax(outputs[f"{term}_logits"])
        losses = -np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
        right = outputs[f"{term}_logits"].argmax(-1) == labels
        results[f"{term}_loss"] = (item_weights * losses).sum() / item_weights.sum()
        results[f"{term}_accuracy"] = (item_weights * right).sum() / item_weights.sum()
        terms[term] = losses, item_weights
    of_batches = []
    for first in range(0, len(rows), size):
        here = slice(first, first + size)
        sums = [((w * x)[here].sum(), w[here].sum()) for x, w in terms.values()]
        loss = sums[0][0] / (sums[0][1] + 1e-5) + sums[1][0] / sums[1][1]
        of_batches += [loss] * len(rows[here])
    return results | {"loss": np.mean(of_batches)}


@pytest.mark.parametrize(("batch_size", "num_examples"), [(4, 8), (4, 9), (5, 7), (3, 2)])
def test_every_example_counts_once(undisturbed, files, batch_size, num_examples):
    """Also in a last batch that is filled up."""
    trainer = undisturbed.trainer
    weights = reference.random_weights(DROPPING, seed=8)
    reference.put_weights(trainer.model, weights)
    given = eval_batches(files, batch_size=batch_size, num_examples=num_examples)
    rows = np.arange(num_examples)
    expected = expected_results(weights, small.examples(RECORDS), rows, batch_size)
    for _ in range(2):  # the second time from the start again
        assert trainer.evaluate(given) == pytest.approx(expected, rel=1e-5)


def test_long_evaluations_and_predictions_log_their_progress(
    undisturbed, files, monkeypatch, caplog
):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", (0, 0))
    given = eval_batches(files, batch_size=5, num_examples=7)
    with caplog.at_level("INFO", logger="absl"):
        undisturbed.trainer.evaluate(given)
        list(undisturbed.trainer.predict(given, ["next_sentence_logits"]))
    lines = [record.getMessage().partition(" batches")[0] for record in caplog.records]
    counted = [line for line in lines if "compile" not in line]
    assert counted == [f"{label}: {n} of 2" for label in ("evaluate", "predict") for n in (1, 2)]


# ---------------------------------------------------------------------------- what stops a run


def with_bad_record(tmp_path) -> RecordFiles:
    features = small.examples(RECORDS)
    features["input_ids"][9, 0] = DROPPING.vocab_size
    path = small.write_records(tmp_path / "bad.tfrecord", features)
    return RecordFiles(path, small.RECORD)


def test_a_bad_record_stops_training_with_its_place(at_the_start, tmp_path):
    files = with_bad_record(tmp_path)
    order = SequentialSampler(len(files))
    batches = Batches(files, order, batch_size=BATCH)
    with pytest.raises(InputError, match=r"bad\.tfrecord, record 10, with the input_ids 41"):
        train(at_the_start.trainer, batches, at_the_start.folder)
    assert CheckpointFolder(at_the_start.folder).latest() == f"{at_the_start.folder}/model.ckpt-2"


def test_a_bad_record_stops_evaluation_with_its_place(undisturbed, tmp_path):
    bad = eval_batches(with_bad_record(tmp_path), batch_size=BATCH, num_examples=RECORDS)
    with pytest.raises(InputError, match=r"bad\.tfrecord, record 10, with the input_ids 41"):
        undisturbed.trainer.evaluate(bad)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_finite(at_the_start, batches, bad):
    """Stops the run, and no checkpoint has it."""
    trainer, folder = at_the_start.trainer, at_the_start.folder

    def on_stop(step, means):
        if step == 3:
            trainer.model.get_layer("embeddings").norm.gamma.assign([bad] * DROPPING.hidden_size)

    rate = rf"between steps 3 and 4, at a learning rate of {SCHEDULE.rate(3):g}\n"
    with pytest.raises(InputError, match=rate) as caught:
        train(trainer, batches, folder, on_stop=on_stop)
    assert "the learning rate is most likely too high" in caught.value.expected
    assert f"{folder}/model.ckpt-2" in caught.value.remedy
    assert CheckpointFolder(folder).latest() == f"{folder}/model.ckpt-2"
    assert not pathlib.Path(f"{folder}/model.ckpt-4.index").exists()
    for value in tensors_of(folder, 2).values():
        assert value.dtype.kind == "S" or np.isfinite(value).all()


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_initial_weights_that_are_not_finite(at_the_start, batches, bad):
    """Are refused before the first step, and not taken for a learning rate that is too high."""
    trainer, folder = at_the_start.trainer, at_the_start.folder
    bias = {"bert/pooler/dense/bias": np.full(DROPPING.hidden_size, bad, np.float32)}
    CheckpointFolder(folder).save(0, tensors_of(folder, 0) | bias)
    with pytest.raises(InputError, match="NaN or infinity in bert/pooler/dense/bias"):
        train(trainer, batches, folder)


def test_a_warm_up_as_long_as_the_run_is_warned_of_before_training(
    at_the_start, batches, monkeypatch, caplog
):
    trainer, folder = at_the_start.trainer, at_the_start.folder

    def warnings(schedule, steps: int) -> list[str]:
        optimizer = dataclasses.replace(trainer.optimizer, schedule=schedule)
        monkeypatch.setattr(trainer, "optimizer", optimizer)
        monkeypatch.setattr(trainer, "_checked_steps", lambda *_: pytest.fail("a step"))
        caplog.clear()
        with caplog.at_level("WARNING", logger="absl"), contextlib.suppress(pytest.fail.Exception):
            train(trainer, batches, folder, steps=steps)
        return [record.getMessage() for record in caplog.records]

    long = dataclasses.replace(SCHEDULE, num_warmup_steps=STEPS)
    (message,) = warnings(long, STEPS)
    assert message.startswith("The warm-up of 6 steps lasts for the whole run of 6")
    assert warnings(SCHEDULE, STEPS) == []
    assert warnings(long, 0) == []  # nothing is trained


def test_a_weight_without_gradient_is_left_alone(still):
    """Without the next-sentence loss, pooler and head stay as they are: not even decayed."""
    assert set(still.losses[1]) == {"loss", "gradient_norm", "masked_lm_loss"}
    before, after = tensors_of(still.folder / "start", 0), tensors_of(still.folder, 2)
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    idle = {
        name
        for name in reference.variable_shapes(STILL)
        if name.startswith(("bert/pooler/", "cls/seq_relationship/"))
    }
    slots = {f"{name}/{slot}" for name in idle for slot in ("adam_m", "adam_v")}
    assert len(idle) == 4
    assert before.keys() - changed == idle | slots
    assert not any(after[slot].any() for slot in slots)


# ---------------------------------------------------------------------------- seeds


def first_weights(seed: int) -> np.ndarray:
    trainer = Trainer(
        lambda: keras.Sequential([keras.Input([5]), keras.layers.Dense(7, name="dense")]),
        PretrainingObjective(),
        AdamWeightDecay(schedule=SCHEDULE),
        strategy=distribution.make_strategy("one"),
        seed=seed,
    )
    return next(v for name, v in trainer.state(0, {}).items() if name.endswith("/kernel"))


@pytest.mark.parametrize("seed", [-3, 0, 2**32 - 1, 2**32 + 5])
def test_any_seed(seed):
    """Of weights, order and dropout; another seed, another of each."""
    np.testing.assert_array_equal(first_weights(seed), first_weights(seed))
    assert not np.array_equal(first_weights(seed), first_weights(seed + 1))
    order, other = (ShuffledSampler(31, seed=s).rows(0, 31).tolist() for s in (seed, seed + 1))
    assert order != other


def test_every_step_has_its_own_dropout():
    seeds = {int(s) for seed in (-1, 0, 1, 7) for s in step_seed(seed, tf.range(200))}
    assert len(seeds) == 4 * 200


# ---------------------------------------------------------------------------- intervals


def test_nothing_but_the_end(at_the_start, batches):
    intervals = Intervals(iterations_per_loop=10, log_steps=0, save_checkpoints_steps=0)
    assert list(train(at_the_start.trainer, batches, at_the_start.folder, intervals=intervals)) == [
        6
    ]
    assert CheckpointFolder(at_the_start.folder).latest().endswith("model.ckpt-6")


# ---------------------------------------------------------------------------- replicas


def assert_same_run(one: Run, two: Run, *, step: int) -> None:
    assert one.losses.keys() == two.losses.keys()
    for now, means in one.losses.items():
        assert two.losses[now] == pytest.approx(means, rel=1e-5), now
    ours, theirs = tensors_of(two.folder, step), tensors_of(one.folder, step)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if value.dtype == np.float32:
            assert np.abs(ours[name] - value).max() < 1e-6, name


def test_two_replicas_are_one_with_dropout(undisturbed, two_replicas, files, batches, tmp_path):
    assert two_replicas.num_replicas_in_sync == 2
    trainer = make_trainer(DROPPING, two_replicas)
    two = Run(trainer, tmp_path, train(trainer, batches, tmp_path))
    one = dataclasses.replace(undisturbed, folder=undisturbed.folder / "run")
    assert_same_run(one, two, step=6)
    # Five examples on two replicas of two: the second has nothing but filling in the last batch.
    undisturbed.trainer.restore(CheckpointFolder(one.folder), {})
    for num_examples in (5, 7):
        few = eval_batches(files, batch_size=4, num_examples=num_examples)
        expected = pytest.approx(undisturbed.trainer.evaluate(few), rel=1e-5)
        assert trainer.evaluate(few) == expected


def test_two_replicas_are_one_without_dropout(undisturbed, still, two_replicas, batches, tmp_path):
    trainer = make_trainer(STILL, two_replicas, masked_lm_only=True)
    assert_same_run(
        still, Run(trainer, tmp_path, train(trainer, batches, tmp_path, steps=2)), step=2
    )
    # Dropout is no small thing, or the test above would prove little.
    change = still.losses[1]["masked_lm_loss"] - undisturbed.losses[1]["masked_lm_loss"]
    assert abs(change) > 1e-3
