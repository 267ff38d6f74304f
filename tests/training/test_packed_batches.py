"""Packed batches: steps and predictions are those of the same batches with their padding."""

import numpy as np
import pytest
import tensorflow as tf
from small_runs import DROPPING, HEADS, STILL, make_trainer, packed

from bert_tf.data import PACKED_TOKENS

TASKS = [head for head in HEADS if head != "pretraining"]


def result_of(head: str, batch: dict, **options) -> dict[str, np.ndarray]:
    """Losses and every gradient of a step, and what is predicted for tokens."""
    trainer = make_trainer(head=head, **options)
    values = {name: tf.constant(value) for name, value in batch.items()}
    steps, objective, zero = trainer.steps, trainer.objective, tf.constant(0)
    losses, gradients = steps.gradients(values, objective.denominators(values), zero, zero, None)
    found = {**losses, **gradients}
    if options["gradient_accumulation_steps"] == 1:
        found |= steps.outputs(values, objective.outputs)
    found = {name: np.array(value) for name, value in found.items()}
    for name in {"start_logits", "end_logits", "logits"} & found.keys():
        if found[name].shape[:2] == batch["input_mask"].shape:
            found[name][batch["input_mask"] == 0] = 0
    return found


@pytest.mark.parametrize("head", TASKS)
@pytest.mark.parametrize(("config", "parts"), [(DROPPING, 1), (DROPPING, 2), (STILL, 1)])
def test_gradients_and_outputs(head, config, parts):
    """Dropout masks, too: they belong to tokens, wherever these are computed."""
    batch, options = (
        packed(head, 8, parts),
        {"config": config, "gradient_accumulation_steps": parts},
    )
    expected, found = (result_of(head, batch, pack=pack, **options) for pack in (False, True))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5, err_msg=name)


def test_parts_of_a_batch_whose_rows_are_not_known_before():
    """As in a graph where batches have two shapes."""
    batch = packed("classification", 8, 2)
    trainer = make_trainer(head="classification", pack=True, gradient_accumulation_steps=2)
    specs = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batch.items()}
    specs[PACKED_TOKENS] = tf.TensorSpec([None, batch[PACKED_TOKENS].shape[1]], tf.int32)
    values = {name: tf.constant(value) for name, value in batch.items()}
    rest = trainer.objective.denominators(values), tf.constant(0), tf.constant(0), None
    compute = tf.function(
        lambda part: trainer.steps.gradients(part, *rest), input_signature=[specs]
    )
    found, expected = compute(values), trainer.steps.gradients(values, *rest)
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)
