"""One step computes the same however it is computed: in parts, again, on replicas, compiled."""

import numpy as np
import pytest
import tensorflow as tf
from small_runs import (
    HEADS,
    LOW_RATES,
    both_batches,
    largest_difference,
    make_batch,
    make_trainer,
    take_steps,
    tensors,
)

from bert_tf import processor
from bert_tf.heads.pretraining import FillMask
from bert_tf.training.optimization import AdamWeightDecay, Lamb

ROWS = 12


def steps_taken(steps: int = 3, **options) -> tuple[dict, dict]:
    """Mean losses, and weights and moments after some steps over batches with filling rows."""
    trainer = make_trainer(**{"optimizer": AdamWeightDecay(LOW_RATES)} | options)
    means = take_steps(trainer, make_batch("pretraining", ROWS), steps)
    return means, tensors(trainer)


@pytest.fixture(scope="module")
def at_once() -> tuple[dict, dict]:
    """With dropout and clipping, every batch at once."""
    means, values = steps_taken()
    assert means["gradient_norm"] > 1  # so that clipping is tested too
    return means, values


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_accumulation_steps": 3, "recompute": True, "xla": True},
        {"recompute_attention": True},
    ],
    ids=["in parts, blocks again, compiled", "attention again"],
)
def test_less_memory_and_the_same_result(at_once, options):
    means, values = steps_taken(**options)
    assert means == pytest.approx(at_once[0], rel=1e-5)
    assert largest_difference(values, at_once[1]) < 1e-6


def test_two_replicas_in_parts_are_one(two_replicas):
    """With dropout, clipping and LAMB's norms, in two parts each.

    Pooler and next-sentence head have no gradient here.
    """
    lamb = Lamb(LOW_RATES, clip_norm=0.05)
    options = {"objective": FillMask(), "optimizer": lamb}
    means, one = steps_taken(steps=2, **options)
    assert means["gradient_norm"] > lamb.clip_norm
    extra = {"gradient_accumulation_steps": 2, "strategy": two_replicas}
    same, two = steps_taken(steps=2, **options, **extra)
    assert same == pytest.approx(means, rel=1e-5)
    assert largest_difference(one, two) < 1e-6


# ---------------------------------------------------------------------------- what XLA gets

# Of a shape that is known at run time only, or of something that the host must do.
NOT_FOR_A_TPU = ["<=", "dynamic-reshape", "set-dimension-size", "get-dimension-size", "custom-call"]
NOT_FOR_A_TPU += ["infeed", "outfeed", " send(", " recv("]


def intermediate_code(function, *arguments) -> str:
    tensors = tf.nest.map_structure(tf.convert_to_tensor, arguments)
    return function.experimental_get_compiler_ir(*tensors)(stage="hlo")


@pytest.mark.parametrize("head", HEADS)
def test_steps_compile_to_static_shapes(head, monkeypatch):
    """As near to a TPU as one comes without: the whole step is one program of static shapes."""
    monkeypatch.setattr(processor, "bfloat16", lambda: "")  # a CPU has steps of its own
    # The largest of what there is, on one head: parts in a loop, blocks again, half precision.
    extra = {"gradient_accumulation_steps": 2, "recompute": True, "precision": "bfloat16"}
    pack = head not in ("pretraining", "multi_label")  # packed batches have the larger programs
    extra = extra if head == "pretraining" else {"pack": pack}
    trainer = make_trainer(head=head, xla=True, **extra)
    values = both_batches(head, 4)[1] if pack else make_batch(head, 4)
    batch = {name: tf.constant(value) for name, value in values.items()}
    training = intermediate_code(trainer.steps.update, batch, 0)
    evaluation = intermediate_code(trainer.steps.sums, batch)
    logits = tuple(name for name in trainer.model.output if name.endswith("logits"))
    prediction = trainer.steps.outputs.experimental_get_compiler_ir(batch, logits)(stage="hlo")
    for code in (training, evaluation, prediction):
        assert " dot(" in code
        assert not [word for word in NOT_FOR_A_TPU if word in code]
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
    trainer = make_trainer()
    for program in (trainer.steps.update, trainer.steps.sums, trainer.steps.outputs):
        assert not hasattr(program, "experimental_get_compiler_ir")
