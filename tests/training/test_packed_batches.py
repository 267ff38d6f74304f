"""Packed batches: steps and predictions are those of the same batches with their padding."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_runs import CLASSES, DROPPING, HEADS, STILL, make_trainer, packed

from bert_tf import BertModel, heads, layers
from bert_tf.data import PACKED_TOKENS
from bert_tf.modeling.models import packed_inputs

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


def on_top(kind: str) -> BertModel:
    """A head of the library's layers, which reads the encoder's tokens."""
    encoder = BertModel(DROPPING, all_layers=True)
    mask, x = encoder.input["input_mask"], encoder.output["sequence_output"]
    match kind:
        case "block":
            x = layers.EncoderBlock(DROPPING, name="own")(x, padding_mask=mask)
        case "attention":
            x = layers.Attention(DROPPING, name="own")(x, padding_mask=mask)
        case "parts":
            wide = layers.Intermediate(DROPPING, name="wide")(x)
            x = layers.AddAndNorm(DROPPING, name="own")(wide, x)
            x = layers.Dropout(0.3, name="more")(x)
        case "embeddings":
            ids = [encoder.input[name] for name in ("input_ids", "segment_ids")]
            x += layers.Embeddings(DROPPING, name="own")(*ids)
        case "lower layers":
            x = keras.ops.concatenate([encoder.output["embedding_output"], x], axis=-1)
            x = keras.layers.Dense(DROPPING.hidden_size, name="own")(x)
    logits = heads.SequenceClassifier(DROPPING, num_classes=CLASSES, name="classifier")(x[:, 0])
    return BertModel(encoder.input, {"logits": logits}, name="classification")


KINDS = ("block", "attention", "parts", "embeddings", "lower layers")


@pytest.mark.parametrize("kind", KINDS)
def test_heads_made_of_layers(kind):
    """Their dropout is that of rows with padding: packed are the encoder's tokens alone."""

    def packing() -> BertModel:
        with packed_inputs():
            return on_top(kind)

    batch = packed("classification", 8)
    models = {False: lambda: on_top(kind), True: packing}
    options = {"config": DROPPING, "gradient_accumulation_steps": 1}
    expected, found = (
        result_of("classification", batch, pack=pack, model=model, **options)
        for pack, model in models.items()
    )
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5, err_msg=name)


def test_dropout_of_a_head_on_a_frozen_encoder():
    """The encoder's is off: its vectors are features. The head's own masks change with the step."""
    batch = {n: tf.constant(v) for n, v in packed("classification", 8).items()}
    for kind, drops in (("block", True), ("lower layers", False)):
        trainer = make_trainer(
            head="classification", model=lambda kind=kind: on_top(kind), freeze=["^bert/"]
        )
        steps, zero = trainer.steps, tf.constant(0)
        of_batch = trainer.objective.denominators(batch)
        losses = [
            float(steps.gradients(batch, of_batch, tf.constant(step), zero, None)[0]["classifier"])
            for step in (0, 1)
        ]
        assert (losses[0] != losses[1]) == drops


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
