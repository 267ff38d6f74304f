"""One step computes the same however it is computed: in parts, again, on replicas, compiled."""

import keras
import numpy as np
import pytest
import small
import tensorflow as tf
from small_heads import (
    CHOICES,
    CLASSES,
    HEADS,
    SCHEDULE,
    largest_difference,
    make_batch,
    make_trainer,
    take_steps,
    tensors,
)
from small_runs import DROPPING

from bert_tf import heads, runtime
from bert_tf.data.batches import Batches, SequentialSampler
from bert_tf.data.by_length import BatchingConfig
from bert_tf.data.records import Record
from bert_tf.data.shards import RecordFiles, write_records
from bert_tf.errors import InputError
from bert_tf.squad.windows import squad_record
from bert_tf.tasks.features import classifier_record
from bert_tf.training.optimization import AdamWeightDecay, Lamb, Schedule
from bert_tf.training.settings import StepConfig
from bert_tf.training.trainer import Trainer

ROWS = 12


@pytest.fixture(scope="module")
def at_once() -> tuple[Trainer, dict[str, float]]:
    """Three steps of pre-training with dropout and clipping, every batch at once."""
    trainer = make_trainer("pretraining", DROPPING)
    means = take_steps(trainer, make_batch("pretraining", ROWS))
    assert means["gradient_norm"] > 1  # so that clipping is tested too
    return trainer, means


def test_moments_that_the_memory_cannot_hold(monkeypatch):
    """The weights alone it can."""
    size = 4 * DROPPING.num_parameters
    monkeypatch.setattr(runtime, "memory_bytes", lambda: 2 * size)
    with pytest.raises(InputError, match="with the optimizer's moments"):
        make_trainer("pretraining", DROPPING)
    monkeypatch.setattr(runtime, "memory_bytes", lambda: 4 * size)
    make_trainer("pretraining", DROPPING)


@pytest.mark.parametrize(
    "step_config",
    [
        {"gradient_accumulation_steps": 3},
        {"recompute": True},
        {"recompute_attention": True},
        {"gradient_accumulation_steps": 2, "recompute": True, "xla": False},
    ],
    ids=["parts", "again", "attention again", "both, not compiled"],
)
def test_less_memory_and_the_same_result(at_once, step_config):
    expected, expected_means = at_once
    trainer = make_trainer("pretraining", DROPPING, **step_config)
    means = take_steps(trainer, make_batch("pretraining", ROWS))
    assert means == pytest.approx(expected_means, rel=1e-5)
    assert largest_difference(trainer, expected) < 1e-6


@pytest.mark.parametrize("head", ["pretraining", "classes", "multiple_choice", "span"])
def test_two_replicas_in_parts_are_one(head, two_replicas):
    """With dropout, clipping and LAMB's norms, in two parts each, blocks computed again."""
    lamb = Lamb(SCHEDULE, clip_norm=0.1)
    batch = make_batch(head, ROWS)
    one = make_trainer(head, DROPPING, optimizer=lamb, xla=False)
    two = make_trainer(
        head,
        DROPPING,
        optimizer=lamb,
        strategy=two_replicas,
        gradient_accumulation_steps=2,
        recompute=True,
        xla=False,
    )
    means = take_steps(one, batch, 2)
    assert means["gradient_norm"] > lamb.clip_norm
    assert take_steps(two, batch, 2) == pytest.approx(means, rel=1e-5)
    assert largest_difference(one, two) < 1e-6


# ---------------------------------------------------------------------------- clip_per_replica


def linear_trainer(strategy, **step_config) -> Trainer:
    """score = w x, squared error, w = 1 at first."""

    def model() -> keras.Model:
        x = keras.Input([1], name="x")
        dense = keras.layers.Dense(
            1, use_bias=False, kernel_initializer="ones", dtype="float32", name="score"
        )
        return keras.Model({"x": x}, {"logits": dense(x)})

    return Trainer(
        model,
        heads.Regression(),
        AdamWeightDecay(Schedule(learning_rate=1.0, num_train_steps=1)),
        strategy=strategy,
        seed=3,
        step_config=StepConfig(**step_config),
    )


@pytest.mark.parametrize("xla", [False, True])
def test_every_replica_clips_its_own(two_replicas, xla):
    """Rows x = 3, 1 | 0.1, 0.2 with labels 0: d(x²w²)/dw = 18, 2 | 0.02, 0.08.

    The mean of each replica's: 10 and 0.05; clipped at 1: 1 and 0.05; added up: 1.05. The mean of
    all is 5.025, which is clipped to 1.
    """
    batch = {
        "x": np.float32([[3], [1], [0.1], [0.2]]),
        "label_ids": np.zeros([4, 1], np.float32),
        "is_real_example": np.ones(4, np.float32),
    }
    for per_replica, applied, norm in ((True, 1.05, 5.025), (False, 1.0, 5.025)):
        trainer = linear_trainer(two_replicas, clip_per_replica=per_replica, xla=xla)
        means = take_steps(trainer, batch, 1)
        (first_moment,) = (v for n, v in tensors(trainer).items() if n.endswith("adam_m"))
        assert first_moment.item() == pytest.approx(0.1 * applied, rel=1e-6)
        assert means["gradient_norm"] == pytest.approx(norm, rel=1e-6)
        assert means["loss"] == pytest.approx((9 + 1 + 0.01 + 0.04) / 4, rel=1e-6)


# ---------------------------------------------------------------------------- what XLA gets

# Of a shape that is known at run time only, or of something that the host must do.
NOT_FOR_A_TPU = (
    "<=",
    "dynamic-reshape",
    "set-dimension-size",
    "get-dimension-size",
    "custom-call",
    "infeed",
    "outfeed",
    " send(",
    " recv(",
)


def intermediate_code(function, *arguments) -> str:
    tensors = tf.nest.map_structure(tf.convert_to_tensor, arguments)
    return function.experimental_get_compiler_ir(*tensors)(stage="hlo")


def record_of(head: str) -> Record:
    """What the scripts write for the head."""
    if head == "pretraining":
        return small.RECORD
    if head == "span":
        return squad_record(max_seq_length=small.S, is_training=True)
    choices = CHOICES if head == "multiple_choice" else 1
    name = "classification" if head == "classes" else head
    return classifier_record(
        max_seq_length=small.S, head=name, num_labels=CLASSES, num_choices=choices
    )


def batches_on_a_tpu(head: str, path: str) -> list[dict[str, tf.TensorSpec]]:
    """Of training and of what comes after it, as the scripts make them without length buckets."""
    record, rows = record_of(head), 4
    ones = {feature.name: [1] * feature.size for feature in record.features}
    write_records(path, record, [ones] * rows)
    files = RecordFiles(path, record)
    if head == "pretraining":
        order = SequentialSampler(rows)
        batches = [Batches(files, order, batch_size=rows)]
    else:
        batching = BatchingConfig(max_seq_length=small.S, bucket_by_length=False)
        batches = [
            batching.training(files, batch_size=rows, num_train_steps=2, seed=1),
            batching.once(files, batch_size=rows),
        ]
    return [one.dataset().element_spec for one in batches]


@pytest.mark.parametrize("head", list(HEADS))
def test_steps_compile_to_static_shapes(head, tmp_path):
    """As near to a TPU as one comes without: the whole step is one program of static shapes."""
    # The largest of what there is, on one head: parts in a loop, blocks again, half precision.
    extra = {"gradient_accumulation_steps": 2, "recompute": True, "precision": "bfloat16"}
    trainer = make_trainer(head, DROPPING, **(extra if head == "pretraining" else {}))
    first, *others = batches_on_a_tpu(head, str(tmp_path / "records"))
    assert all(spec.shape.is_fully_defined() for spec in first.values())
    assert all(spec == first for spec in others)
    batch = {name: tf.zeros(spec.shape, spec.dtype) for name, spec in first.items()}
    training = intermediate_code(trainer.steps.update, batch, 0)
    evaluation = intermediate_code(trainer.steps.sums, batch)
    logits = tuple(name for name in trainer.model.output if name.endswith("logits"))
    prediction = trainer.steps.outputs.experimental_get_compiler_ir(batch, logits)(stage="hlo")
    for code in (training, evaluation, prediction):
        assert " dot(" in code
        found = [word for word in NOT_FOR_A_TPU if word in code]
        assert not found
    assert "while(" in training or head != "pretraining"


def test_what_a_tpu_could_not_do_is_found():
    """The words above are those that XLA writes."""

    @tf.function(jit_compile=True)
    def picks(x):
        return tf.boolean_mask(x, x > 0)

    code = intermediate_code(picks, np.float32([1, -1, 2]))
    assert "<=" in code
    assert any(word in code for word in NOT_FOR_A_TPU[1:])


def test_compilation_can_be_left_out():
    trainer = make_trainer("classes", DROPPING, xla=False)
    for program in (trainer.steps.update, trainer.steps.sums, trainer.steps.outputs):
        assert not hasattr(program, "experimental_get_compiler_ir")
