"""The model that answers, against the layers that are trained."""

import dataclasses

import numpy as np
import pytest
import small
import tensorflow as tf

from bert_tf.modeling import models
from bert_tf.serving.inference import ACTIVATIONS, HEADS, InferenceModel, tensors_of

CLASSES = 3
NAMES = ("input_ids", "input_mask", "segment_ids")


def keras_model(head: str, config):
    return {
        "sequence": lambda: models.classifier_model(config, num_classes=CLASSES),
        "tokens": lambda: models.token_model(config, num_classes=CLASSES),
        "spans": lambda: models.span_model(config),
        "masked_lm": lambda: models.pretraining_model(config, next_sentence=False),
        "vectors": lambda: models.bert_encoder(config),
    }[head]()


def randomized(model):
    """The model with weights that make every part of it matter."""
    rng = np.random.default_rng(11)
    for variable in model.trainable_variables:
        value = rng.standard_normal(variable.shape) * 0.5 + float(variable.name == "gamma")
        variable.assign(value.astype(np.float32))
    return model


def inputs_of(head: str, config, rows: int = small.ROWS) -> dict:
    examples = small.examples(rows, config=config)
    names = (*NAMES, "masked_lm_positions") if head == "masked_lm" else NAMES
    return {name: tf.constant(examples[name]) for name in names}


@pytest.mark.parametrize(
    ("head", "hidden_act"),
    [*((head, "gelu") for head in HEADS), *(("vectors", name) for name in ACTIVATIONS)],
)
def test_outputs_are_those_of_the_layers(head, hidden_act):
    config = dataclasses.replace(small.CONFIG, hidden_act=hidden_act, layer_norm_eps=1e-3)
    model = randomized(keras_model(head, config))
    inputs = inputs_of(head, config)
    wanted = model(inputs, training=False)
    found = InferenceModel(tensors_of(model), config, head=head)(inputs)
    assert set(found) <= set(wanted)
    for name, value in found.items():
        real = np.ones(value.shape, bool)
        if name in ("sequence_output", "start_logits", "end_logits") or head == "tokens":
            real[inputs["input_mask"].numpy() == 0] = False
        limit = 2e-5 * np.abs(wanted[name]).max()
        np.testing.assert_allclose(value[real], wanted[name].numpy()[real], rtol=0, atol=limit)


@pytest.mark.parametrize("head", HEADS)
def test_no_rows(head):
    config = small.CONFIG
    model = keras_model(head, config)
    inputs = {name: value[:0] for name, value in inputs_of(head, config).items()}
    for value in InferenceModel(tensors_of(model), config, head=head)(inputs).values():
        assert value.shape[0] == 0


def test_what_a_head_does_not_need_is_left_out():
    config = small.CONFIG
    model = keras_model("vectors", config)
    tensors = tensors_of(model)
    whole = InferenceModel(tensors, config, head="vectors")
    assert sum(v.shape.num_elements() for v in whole.variables) == model.count_params()
    bare = InferenceModel(tensors, config, head="vectors", pooler=False)
    assert not bare.has_pooler
    inputs = inputs_of("vectors", config)
    assert set(bare(inputs)) == {"sequence_output"}


def test_unknown_heads_are_refused():
    with pytest.raises(ValueError, match="'nose'"):
        InferenceModel({}, small.CONFIG, head="nose")
