"""The loop: what a run writes and reports, evaluation, replicas, and what stops it."""

import pathlib

import numpy as np
import pytest
import reference
import small
import tensorflow as tf
from small_runs import (
    BATCH,
    DROPPING,
    EVERY_STEP,
    RECORDS,
    SCHEDULE,
    STEPS,
    STILL,
    assert_close,
    endless,
    in_order,
    largest_difference,
    make_trainer,
    spoil,
    tensors,
    tensors_of,
    train,
    write_files,
)

from bert_tf import runtime
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.cli.plot import read_curves
from bert_tf.data.batches import ShuffledSampler
from bert_tf.errors import InputError
from bert_tf.heads.pretraining import FillMask
from bert_tf.training import distribution
from bert_tf.training.compilation import Programs
from bert_tf.training.distribution import HANGS
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.options import Intervals
from bert_tf.training.step import step_seed
from bert_tf.training.trainer import Trainer

MASKED_LM = FillMask()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("records"))


@pytest.fixture
def batches(files):
    return endless(files)


class Run:
    """A run from its first state on, in a folder; its losses."""

    def __init__(self, folder: pathlib.Path, trainer: Trainer, batches, **changes):
        self.folder, self.trainer = folder, trainer
        CheckpointFolder(folder / "start").save(0, trainer.state(0, {}))
        self.losses = train(trainer, batches, folder, **changes)


@pytest.fixture(scope="module")
def undisturbed(files, tmp_path_factory) -> Run:
    """Six steps without a stop, with dropout and with evaluations on the way."""
    trainer, folder = make_trainer(), tmp_path_factory.mktemp("undisturbed")
    few = in_order(files, batch_size=5, num_examples=7)
    intervals = Intervals(**vars(EVERY_STEP) | {"eval_steps": 3})
    evaluate = lambda step: trainer.evaluate(few)  # noqa: E731
    return Run(folder, trainer, endless(files), intervals=intervals, evaluate=evaluate)


@pytest.fixture(scope="module")
def still(files, tmp_path_factory) -> Run:
    """Two steps without dropout and next-sentence loss."""
    trainer = make_trainer(STILL, objective=MASKED_LM)
    return Run(tmp_path_factory.mktemp("still"), trainer, endless(files), num_train_steps=2)


@pytest.fixture
def at_the_start(undisturbed, tmp_path) -> pathlib.Path:
    """A folder in which nothing is done yet."""
    CheckpointFolder(tmp_path).save(0, tensors_of(undisturbed.folder / "start", 0))
    return tmp_path


# ---------------------------------------------------------------------------- one run


def test_what_a_run_writes(undisturbed):
    folder = undisturbed.folder
    assert list(undisturbed.losses) == [1, 2, 3, 4, 5, 6]
    for means in undisturbed.losses.values():
        assert set(means) == {"loss", "gradient_norm", "masked_lm_loss", "next_sentence_loss"}
        terms = means["masked_lm_loss"] + means["next_sentence_loss"]
        assert means["loss"] == pytest.approx(terms, rel=1e-5)
    assert CheckpointFolder(folder).latest() == f"{folder}/model.ckpt-6"
    shapes = reference.variable_shapes(DROPPING)
    for step in (2, 4, 6):
        tensors = tensors_of(folder, step)
        slots = {f"{name}/{slot}" for name in shapes for slot in ("adam_m", "adam_v")}
        assert tensors.keys() == shapes.keys() | slots | {"global_step", "bert_tf/run_facts"}
        assert tensors["global_step"] == step
        assert tensors["global_step"].dtype == np.int64
        assert tensors["bert_tf/run_facts"] == b'{"seed": 3}'
    start, end = tensors_of(folder / "start", 0), tensors_of(folder, 6)
    assert not [name for name in shapes if np.array_equal(start[name], end[name])]


def test_what_a_run_reports(undisturbed):
    curves = read_curves(str(undisturbed.folder))
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


def test_nothing_but_the_end(undisturbed, at_the_start, batches):
    intervals = Intervals(iterations_per_loop=10, log_steps=0, save_checkpoints_steps=0)
    losses = train(undisturbed.trainer, batches, at_the_start, intervals=intervals)
    assert list(losses) == [6]
    assert CheckpointFolder(at_the_start).latest().endswith("model.ckpt-6")
    spoil(undisturbed.trainer)  # and a finished run does nothing
    before = tensors_of(at_the_start, 6)
    assert train(undisturbed.trainer, batches, at_the_start) == {}
    np.testing.assert_equal(tensors_of(at_the_start, 6), before)


def test_a_weight_without_gradient_is_left_alone(still):
    """Without the next-sentence loss, pooler and head stay as they are: not even decayed."""
    assert set(still.losses[1]) == {"loss", "gradient_norm", "masked_lm_loss"}
    before, after = tensors_of(still.folder / "start", 0), tensors_of(still.folder, 2)
    unchanged = {name for name in before if np.array_equal(before[name], after[name])}
    idle = {
        name
        for name in reference.variable_shapes(STILL)
        if name.startswith(("bert/pooler/", "cls/seq_relationship/"))
    }
    slots = {f"{name}/{slot}" for name in idle for slot in ("adam_m", "adam_v")}
    assert len(idle) == 4
    assert unchanged == idle | slots
    assert not any(after[slot].any() for slot in slots)


def test_two_replicas_are_one(undisturbed, still, two_replicas, files, batches, tmp_path):
    """With dropout; what is evaluated with them; and a state that is kept while steps go on."""
    assert two_replicas.num_replicas_in_sync == 2
    trainer, kept = make_trainer(DROPPING, two_replicas), []

    def on_stop(step, means):
        if step == 2:  # the first has a rate of 0
            state = trainer.state(2, {})
            kept.extend((state, {name: np.array(value) for name, value in state.items()}))

    losses = train(trainer, batches, tmp_path, on_stop=on_stop)
    for step, means in undisturbed.losses.items():
        assert losses[step] == pytest.approx(means, rel=1e-5), step
    assert_close(tmp_path, undisturbed.folder, STEPS)
    state, before = kept
    for name, value in before.items():
        assert np.asarray(state[name]).tobytes() == value.tobytes(), name
    assert largest_difference(tensors(trainer), {n: before[n] for n in tensors(trainer)}) > 0
    one = undisturbed.trainer
    one.restore(CheckpointFolder(undisturbed.folder), {})
    # Five examples on two replicas of two: the second one's last rows are only filling.
    for num_examples in (5, 7):
        few = in_order(files, num_examples=num_examples)
        assert trainer.evaluate(few) == pytest.approx(one.evaluate(few), rel=1e-5)
    # Dropout is no small thing, or the test would prove little.
    change = still.losses[1]["masked_lm_loss"] - undisturbed.losses[1]["masked_lm_loss"]
    assert abs(change) > 1e-3


@pytest.mark.parametrize("seed", [-3, 2**32 - 1])
def test_any_seed(seed):
    """Of weights, order and dropout; another seed, another of each."""

    def drawn(seed: int) -> tuple[bytes, list[int]]:
        weights = tensors(make_trainer(seed=seed))["bert/pooler/dense/kernel"]
        order = ShuffledSampler([31], batch_size=BATCH, seed=seed)
        return weights.tobytes(), order.rows(0, 31).tolist()

    (weights, order), (others, other_order) = drawn(seed), drawn(seed + 1)
    assert drawn(seed) == (weights, order)
    assert weights != others
    assert order != other_order


def test_every_step_has_its_own_dropout():
    seeds = {int(s) for seed in (-1, 0, 1, 7) for s in step_seed(seed, tf.range(200))}
    assert len(seeds) == 4 * 200


# ---------------------------------------------------------------------------- processes


@pytest.fixture
def seen(monkeypatch) -> list[dict]:
    """What one of two processes compares with the other; then it stops."""
    seen: list[dict] = []

    def check_same(numbers):
        if numbers.keys() != {"latest checkpoint in --output_dir"}:
            seen.append(dict(numbers))
            raise KeyboardInterrupt

    monkeypatch.setattr(runtime, "has_peers", lambda: True)
    monkeypatch.setattr(runtime, "check_same", check_same)
    return seen


def test_processes_with_other_settings_data_or_weights_are_refused(
    undisturbed, at_the_start, batches, seen
):
    others = [
        {},
        {"run_settings": {"seed": 3, "init_checkpoint": "elsewhere"}},
        {"run_settings": {"seed": 4}},
        {"intervals": Intervals(**vars(EVERY_STEP) | {"log_steps": 3})},
    ]
    for other in others:
        with pytest.raises(KeyboardInterrupt):
            train(undisturbed.trainer, batches, at_the_start, **other)
    first, elsewhere, *differing = seen
    assert first.keys() == {"flags", "records", "first weights"}
    assert elsewhere == first  # the same weights may have another path there
    assert all(numbers["flags"] != first["flags"] for numbers in differing)
    state = undisturbed.trainer.state(0, {})
    bias = {"bert/pooler/dense/bias": np.ones(DROPPING.hidden_size, np.float32)}
    CheckpointFolder(at_the_start).save(0, state | bias)
    with pytest.raises(KeyboardInterrupt):
        train(undisturbed.trainer, batches, at_the_start)
    assert seen[-1]["first weights"] != first["first weights"]


def test_processes_that_evaluate_other_records_are_refused(undisturbed, files, seen):
    for num_examples in (BATCH, 2 * BATCH):
        with pytest.raises(KeyboardInterrupt):
            undisturbed.trainer.evaluate(in_order(files, num_examples=num_examples))
    records = files.fingerprint()
    assert seen == [
        {"batches to evaluate": number, "records to evaluate": records} for number in (1, 2)
    ]


# ---------------------------------------------------------------------------- restoring


def test_weights_without_moments(undisturbed, tmp_path, caplog):
    """As of an original checkpoint stripped of its optimizer, put into the folder by hand."""
    weights = reference.random_weights(DROPPING, seed=8)
    CheckpointFolder(tmp_path).save(40, weights | {"global_step": np.int64(40)})
    trainer = undisturbed.trainer
    spoil(trainer)
    assert trainer.restore(CheckpointFolder(tmp_path), {}) == 40
    for name, value in reference.take_weights(trainer.model).items():
        np.testing.assert_array_equal(value, weights[name])
    assert not any(moment.numpy().any() for moment in trainer.steps.slots.values())
    assert len(caplog.records) == 2 * len(weights)
    assert "it starts at 0" in caplog.records[0].getMessage()


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


@pytest.mark.parametrize(("batch_size", "num_examples"), [(4, 9), (3, 2)])
def test_every_example_counts_once(undisturbed, files, batch_size, num_examples):
    """Also in a last batch that is filled up."""
    trainer = undisturbed.trainer
    weights = reference.random_weights(DROPPING, seed=8)
    reference.put_weights(trainer.model, weights)
    given = in_order(files, batch_size=batch_size, num_examples=num_examples)
    rows = np.arange(num_examples)
    expected = expected_results(weights, small.examples(RECORDS), rows, batch_size)
    for _ in range(2):  # the second time from the start again
        assert trainer.evaluate(given) == pytest.approx(expected, rel=1e-5)


# ---------------------------------------------------------------------------- what stops a run


def test_a_bad_record_stops_training_and_evaluation_with_its_place(
    undisturbed, at_the_start, tmp_path
):
    features = small.examples(RECORDS)
    features["input_ids"][9, 0] = DROPPING.vocab_size
    files, trainer = write_files(tmp_path, features), undisturbed.trainer
    for ends in (
        lambda: train(trainer, in_order(files), at_the_start),
        lambda: trainer.evaluate(in_order(files, num_examples=RECORDS)),
    ):
        with pytest.raises(InputError, match=r"a\.tfrecord, record 10, with the input_ids 41"):
            ends()
    assert CheckpointFolder(at_the_start).latest() == f"{at_the_start}/model.ckpt-2"


def test_a_loss_that_is_not_finite(undisturbed, at_the_start, batches):
    """Stops the run, and no checkpoint has it."""
    trainer, folder = undisturbed.trainer, at_the_start

    def on_stop(step, means):
        if step == 3:
            trainer.model.get_layer("embeddings").norm.gamma.assign([np.nan] * DROPPING.hidden_size)

    rate = rf"between steps 3 and 4, at a learning rate of {SCHEDULE.rate(3):g}\n"
    with pytest.raises(InputError, match=rate) as caught:
        train(trainer, batches, folder, on_stop=on_stop)
    assert "the learning rate is most likely too high" in caught.value.expected
    assert f"{folder}/model.ckpt-2" in caught.value.remedy
    assert CheckpointFolder(folder).latest() == f"{folder}/model.ckpt-2"
    assert not pathlib.Path(f"{folder}/model.ckpt-4.index").exists()
    for value in tensors_of(folder, 2).values():
        assert value.dtype.kind == "S" or np.isfinite(value).all()


def test_initial_weights_that_are_not_finite(undisturbed, at_the_start, batches):
    """Are refused before the first step, and not taken for a learning rate that is too high."""
    bias = {"bert/pooler/dense/bias": np.full(DROPPING.hidden_size, -np.inf, np.float32)}
    CheckpointFolder(at_the_start).save(0, tensors_of(at_the_start, 0) | bias)
    with pytest.raises(InputError, match="NaN or infinity in bert/pooler/dense/bias"):
        train(undisturbed.trainer, batches, at_the_start)


def test_a_warm_up_as_long_as_the_run_is_warned_of(caplog):
    long = Schedule(learning_rate=1e-2, num_train_steps=STEPS, num_warmup_steps=STEPS)
    make_trainer(optimizer=AdamWeightDecay(long))._check_beginning()
    assert "The warm-up of 6 steps lasts for the whole run of 6" in caplog.text


def test_steps_and_evaluations_are_watched(undisturbed, at_the_start, files, batches, monkeypatch):
    """How a hang is reported: test_hangs.py."""
    trainer, watched, names = undisturbed.trainer, HANGS.watched, []

    def noted(what: str, **more):
        names.append(what)
        return watched(what, **more)

    monkeypatch.setattr(HANGS, "watched", noted)
    train(trainer, batches, at_the_start)
    trainer.evaluate(in_order(files, num_examples=RECORDS))
    assert {"train, steps 3 to 3", "evaluate, batch 1 of 3"} <= {*names}

    names.clear()  # each second, and what compiles; then what comes next
    now = iter([10.0, 10.0, 10.5, 11.5, 11.5, 11.6])
    monkeypatch.setattr(distribution.time, "monotonic", lambda: next(now))
    with HANGS.progress() as doing:
        for number in range(3):
            doing(f"batch {number}")
        doing("batch 2", compiles=True)
        monkeypatch.undo()
        monkeypatch.setattr(HANGS, "watched", noted)
        doing("batch 3")
    assert names == ["batch 0", "batch 2", "batch 2", "batch 3"]


def test_a_second_shape_of_batches_is_a_call_of_its_own():
    """As XLA compiles it; processes with peers make equal calls."""
    programs = Programs(by_shape=True)
    programs.begin(lambda step: 3 if step in (5, 8) else 2)
    first = [programs.steps_of_call(0, 9, whole=whole) for whole in (False, True)]
    assert first == [1, 1]
    for step in range(2):
        with programs.call(step, 1):
            pass
    assert programs.timed[0] == 1  # the first one compiled
    assert programs.steps_of_call(2, 9, whole=False) == 3
    assert programs.steps_of_call(5, 9, whole=False) == 1
    assert programs.steps_of_call(2, 9, whole=True) == 7
    with programs.call(5, 1):
        pass
    assert programs.timed[0] == 1
    assert programs.steps_of_call(6, 9, whole=False) == 3  # both shapes are known
    by_graph = Programs(by_shape=False)
    by_graph.begin(lambda step: step)
    with by_graph.call(0, 1):
        pass
    with by_graph.call(1, 1):
        pass
    assert by_graph.steps_of_call(2, 9, whole=False) == 7
