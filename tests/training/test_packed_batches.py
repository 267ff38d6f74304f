"""Packed batches: steps and predictions are those of the same batches with their padding."""

import contextlib

import numpy as np
import pytest
import small
import tensorflow as tf
from small_runs import CHOICES, CLASSES, DROPPING, HEADS, STILL, make_batch, make_trainer

from bert_tf import heads
from bert_tf.data import PACKED_TOKENS
from bert_tf.data.packing import Packing
from bert_tf.modeling.models import packing

ROWS = 8
TASKS = [head for head in HEADS if head != "pretraining"]


def packed(head: str, parts: int) -> dict[str, np.ndarray]:
    """A batch with its rows, fewer than it has examples; labels are those of tokens."""
    batch = make_batch(head, ROWS)
    lengths = batch["input_mask"].reshape(ROWS, -1, small.S).sum(axis=2)
    for name in {"start_positions", "end_positions"} & batch.keys():
        batch[name] %= lengths
    if head == "token_labels":
        batch["label_ids"] = np.where(batch["input_mask"], batch["label_ids"], -1)
    rows = Packing(lengths, small.S, np.arange(ROWS)[np.newaxis], parts=parts)
    cells = rows.fill(np.arange(ROWS)).reshape(-1, rows.width)
    assert len(cells) < batch["input_ids"].size / small.S
    return batch | {PACKED_TOKENS: cells}


def result_of(head: str, batch: dict, *, pack: bool, **options) -> dict[str, np.ndarray]:
    """Losses and every gradient of a step, and what is predicted for tokens."""

    def model():
        with packing() if pack else contextlib.nullcontext():
            return heads.make_model(head, num_classes=CLASSES, num_choices=CHOICES, **sizes)

    sizes = {"config": options.pop("config")}
    trainer = make_trainer(sizes["config"], head=head, model=model, **options)
    values = {name: tf.constant(value) for name, value in batch.items()}
    steps, objective, zero = trainer.steps, trainer.objective, tf.constant(0)
    losses, gradients = steps.gradients(values, objective.denominators(values), zero, zero, None)
    found = {**losses, **gradients}
    if options.get("gradient_accumulation_steps") == 1:
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
    batch, options = packed(head, parts), {"config": config, "gradient_accumulation_steps": parts}
    expected = result_of(head, batch, pack=False, **options)
    found = result_of(head, batch, pack=True, **options)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5, err_msg=name)
