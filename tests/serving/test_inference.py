"""The model that answers, against the layers that are trained."""

import dataclasses

import heads_of_ones_own
import numpy as np
import pytest
import small
import tensorflow as tf

from bert_tf import heads
from bert_tf.heads import NAMES, head_named, make_model
from bert_tf.modeling.models import layer_dtype
from bert_tf.serving.inference import ACTIVATIONS, PORTABLE_ACTIVATIONS, InferenceModel

ATTENTIONS = ("bidirectional", "causal")
SERVED = [head for head in NAMES if head != "pretraining"]
BILSTM = heads_of_ones_own.bilstm(heads.TokenLabels, "sum_all", layers=1, size=9)
ONE_LAYER = {"num_hidden_layers": 1}


def randomized(head: heads.Head, config):
    """A model with weights that make every part of it matter."""
    model = head.model(config, num_classes=3, num_choices=1)
    rng = np.random.default_rng(11)
    for variable in model.trainable_variables:
        value = rng.standard_normal(variable.shape) * 0.5 + float(variable.name == "gamma")
        variable.assign(value.astype(np.float32))
    return model


@pytest.mark.parametrize(
    ("head", "changes"),
    [(head, ONE_LAYER | {"attention": kind}) for head in SERVED for kind in ATTENTIONS]
    + [(BILSTM, {})]  # reads all layers
    + [("embeddings", ONE_LAYER | {"hidden_act": name}) for name in ACTIVATIONS],
)
def test_outputs_are_those_of_the_layers(head, changes):
    config = dataclasses.replace(small.CONFIG, layer_norm_eps=1e-3, **changes)
    head = head_named(head) if isinstance(head, str) else head
    model, outputs = randomized(head, config), head.outputs
    examples = small.examples(small.ROWS, config=config)
    inputs = {name: tf.constant(examples[name]) for name in model.input}
    has_choices = head.name == "multiple_choice"  # here one of each example; it is served as [B, S]
    asked = {name: value[:, None] if has_choices else value for name, value in inputs.items()}
    wanted = model(asked, training=False)
    for activations in (ACTIVATIONS, PORTABLE_ACTIVATIONS):
        served = InferenceModel(model, config, outputs, activations)
        found = served(inputs)
        assert tuple(found) == outputs
        for name, value in found.items():
            real = np.ones(value.shape, bool)
            if name in ("sequence_output", "start_logits", "end_logits") or head == "token_labels":
                real[inputs["input_mask"].numpy() == 0] = False
            limit = 2e-5 * np.abs(wanted[name]).max()
            np.testing.assert_allclose(value[real], wanted[name].numpy()[real], rtol=0, atol=limit)
    if head.name == "fill_mask":  # its head is served in the precision of its table
        with layer_dtype("mixed_bfloat16"):
            model = randomized(head, config)
    in_bfloat16 = InferenceModel(model, config, outputs, precision="bfloat16")(inputs)
    for name, value in in_bfloat16.items():
        assert value.dtype == found[name].dtype
        difference = np.abs(value - found[name]).mean() / np.abs(found[name]).mean()
        assert 0 < difference < 0.05
    # As exports do: of sizes that are not known.
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in inputs}
    graph = tf.function(served, input_signature=[specs])
    nothing = graph({name: value[:0] for name, value in inputs.items()})
    assert {value.shape[0] for value in nothing.values()} == {0}


def test_what_a_head_does_not_need_is_left_out():
    model = make_model("embeddings", small.CONFIG)
    whole = InferenceModel(model, small.CONFIG, ("sequence_output", "pooled_output"))
    assert sum(v.shape.num_elements() for v in whole.variables) == model.count_params()
    bare = InferenceModel(model, small.CONFIG, ("sequence_output",))
    assert len(whole.variables) == len(bare.variables) + 2
