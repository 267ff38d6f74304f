"""Packed batches: steps and predictions are those of the same examples with a row for each."""

import numpy as np
import pytest
import tensorflow as tf
from small_runs import (
    CLASSES,
    DROPPING,
    HEADS,
    STILL,
    both_batches,
    make_batch,
    make_trainer,
    take_steps,
)

from bert_tf import BertModel, heads, layers
from bert_tf.data.packing import in_order
from bert_tf.modeling import rows
from bert_tf.modeling.models import encode, token_inputs
from bert_tf.training.step import is_packed

TASKS = [head for head in HEADS if head != "pretraining"]


def result_of(head: str, batch: dict, **options) -> tuple[dict[str, np.ndarray], dict]:
    """Losses and every gradient of a step and what is predicted, by example; and the metrics."""
    trainer = make_trainer(head=head, pack=is_packed(batch), **options)
    values = {name: tf.constant(value) for name, value in batch.items()}
    steps, objective = trainer.steps, trainer.head
    losses, gradients = steps.gradients(
        values, objective.denominators(values), tf.constant(0), None
    )
    found = {name: np.array(value) for name, value in (losses | gradients).items()}
    outputs = {n: v.numpy() for n, v in steps.outputs(values, objective.outputs).items()}
    outputs = in_order(outputs) if is_packed(batch) else outputs
    if head in ("token_labels", "question_answering"):  # without padding, one after the other
        lengths = both_batches("classification", 8)[0]["input_mask"].sum(axis=1)
        outputs = {
            n: np.concatenate([row[:size] for row, size in zip(rows, lengths, strict=True)])
            for n, rows in outputs.items()
        }
    return found | outputs, steps.sums(values)


@pytest.mark.parametrize(
    ("head", "config", "parts"),
    [(head, DROPPING, 2) for head in TASKS]
    + [("token_labels", config, 1) for config in (DROPPING, STILL)],
)
def test_losses_gradients_metrics_and_outputs(head, config, parts):
    """Dropout masks, too: they belong to tokens, whatever rows these stand in."""
    options = {"config": config, "gradient_accumulation_steps": parts}
    (expected, metrics), (found, same) = (
        result_of(head, batch, **options) for batch in both_batches(head, 8, parts)
    )
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5, err_msg=name)
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), same, metrics)


def test_steps_over_several_replicas_and_that_compute_again(two_replicas):
    """Replicas pack rows by themselves; what is computed again stands in a graph, where masks of
    who sees whom are tensors without a gradient."""
    batch = both_batches("classification", 8, 2)[1]
    options = {"head": "classification", "pack": True}
    plain, again, two = (
        take_steps(make_trainer(DROPPING, strategy, **options, **more), batch, steps=2)
        for strategy, more in (
            (None, {}),
            (None, {"recompute_attention": True}),
            (two_replicas, {"recompute": True}),
        )
    )
    assert again == pytest.approx(plain, rel=1e-5)
    assert two == pytest.approx(plain, rel=1e-5)


def on_top(kind: str, num_sequences: int = 1) -> BertModel:
    """A head of the library's layers, which reads the encoder's tokens."""
    inputs = token_inputs()
    outputs, _ = encode(DROPPING, inputs, num_sequences=num_sequences)
    x, mask = outputs["sequence_output"], inputs["input_mask"]  # [B, S, D]
    if kind == "block":
        seen = {"padding_mask": mask}
        if num_sequences > 1:
            seen = {"attention_mask": rows.same_sequence(mask)}
        x = layers.EncoderBlock.from_bert_config(DROPPING, name="own")(x, **seen)
    if kind == "parts":
        x = layers.SelfAttention.from_bert_config(DROPPING, name="own")(
            layers.Dense(DROPPING.hidden_size, name="wide")(x),
            attention_mask=rows.same_sequence(mask),
        )
        x = layers.Dropout(0.3, name="more")(x)
    x = rows.first_tokens(x, mask, num_sequences)[:, :num_sequences]  # [B, K, D]
    x = x if num_sequences > 1 else x[:, 0]
    logits = heads.SequenceClassifier(num_classes=CLASSES, name="classifier")(x)
    return BertModel(inputs, {"logits": logits}, name="own", num_sequences=num_sequences)


@pytest.mark.parametrize("kind", ["block", "parts", "none"])
def test_heads_made_of_layers(kind):
    results = []
    for batch in both_batches("classification", 8):
        several = batch["sequences"].shape[1]

        class Own(heads.Classification):
            name = "own"

            def losses(self, outputs, batch):
                """Of logits [B, K, L]."""
                logits = tf.reshape(outputs["logits"], [-1, CLASSES])
                return super().losses({"logits": logits}, batch)

        options = {"objective": Own(), "model": lambda k=several: on_top(kind, k)}
        trainer = make_trainer(head="classification", **options)
        values = {name: tf.constant(value) for name, value in batch.items()}
        of_batch = trainer.head.denominators(values)
        results.append(trainer.steps.gradients(values, of_batch, tf.constant(0), None))
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *results)


def test_dropout_of_a_head_on_a_frozen_encoder():
    """The encoder's is off: its vectors are features. The head's own masks change with the step."""
    batch = {n: tf.constant(v) for n, v in make_batch("classification", 8).items()}
    for kind, drops in (("block", True), ("none", False)):
        trainer = make_trainer(
            head="classification", model=lambda kind=kind: on_top(kind), freeze=["^bert/"]
        )
        steps, of_batch = trainer.steps, trainer.head.denominators(batch)
        losses = [
            float(steps.gradients(batch, of_batch, tf.constant(step), None)[0]["classifier"])
            for step in (0, 1)
        ]
        assert (losses[0] != losses[1]) == drops


def test_parts_of_a_batch_whose_rows_are_not_known_before():
    """As in a graph where batches have two shapes."""
    batch = both_batches("classification", 8, 2)[1]
    trainer = make_trainer(head="classification", pack=True, gradient_accumulation_steps=2)
    specs = {n: tf.TensorSpec([None, *value.shape[1:]], value.dtype) for n, value in batch.items()}
    values = {name: tf.constant(value) for name, value in batch.items()}
    rest = trainer.head.denominators(values), tf.constant(0), None
    compute = tf.function(
        lambda part: trainer.steps.gradients(part, *rest), input_signature=[specs]
    )
    found, expected = compute(values), trainer.steps.gradients(values, *rest)
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)
