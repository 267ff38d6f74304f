"""The functional models: names and shapes of the original's variables, sizes, inputs, outputs."""

import keras
import numpy as np
import pytest
import reference
import small

from bert_tf import BertConfig, BertModel, make_model, runtime
from bert_tf.checkpoints.tf1 import checkpoint_name
from bert_tf.config import HEADS
from bert_tf.errors import InputError
from bert_tf.modeling.inputs import SYNONYMS

# Layers, hidden size, weights of encoder with pooler, and with both heads too; 30,522 pieces.
RELEASED_SIZES = [
    (2, 128, 4_385_920, 4_433_468),
    (4, 256, 11_170_560, 11_267_900),
    (6, 512, 35_068_416, 35_363_644),
    (8, 512, 41_373_184, 41_668_412),
    (10, 768, 95_306_496, 95_930_684),
    (12, 768, 109_482_240, 110_106_428),
    (24, 1024, 335_141_888, 336_226_108),
]
RELEASED_ENCODERS = [  # cased base and large, Chinese, multilingual cased
    (28996, 12, 768, 108_310_272),
    (28996, 24, 1024, 333_579_264),
    (21128, 12, 768, 102_267_648),
    (119547, 12, 768, 177_853_440),
]


def released_config(vocab_size: int, num_layers: int, hidden_size: int) -> BertConfig:
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=hidden_size * 4,
        type_vocab_size=2,
    )


def shapes_without_memory(build) -> dict[str, tuple[int, ...]]:
    """The weights of the model that `build` makes; their values are never made."""
    try:
        with keras.StatelessScope(initialize_variables=False):
            model = build()
        shapes = {checkpoint_name(variable): variable.shape for variable in model.weights}
        assert len(shapes) == len(model.weights)
        assert model.count_params() == count(shapes)
        return shapes
    finally:
        keras.utils.clear_session()


def count(shapes) -> int:
    return sum(int(np.prod(shape)) for shape in shapes.values())


@pytest.mark.parametrize(("num_layers", "hidden_size", "encoder", "with_heads"), RELEASED_SIZES)
def test_names_shapes_and_counts_of_released_sizes(num_layers, hidden_size, encoder, with_heads):
    config = released_config(30522, num_layers, hidden_size)
    pretraining = shapes_without_memory(lambda: make_model("pretraining", config))
    assert pretraining == reference.variable_shapes(config)
    assert count(pretraining) == with_heads
    assert len(pretraining) == 7 + 16 * num_layers + 7
    alone = reference.variable_shapes(config, heads=False)
    assert count(alone) == encoder == config.num_parameters
    if num_layers == 2:
        assert shapes_without_memory(lambda: BertModel(config)) == alone


@pytest.mark.parametrize(("vocab_size", "num_layers", "hidden_size", "encoder"), RELEASED_ENCODERS)
def test_counts_of_other_vocabularies(vocab_size, num_layers, hidden_size, encoder):
    config = released_config(vocab_size, num_layers, hidden_size)
    assert count(reference.variable_shapes(config, heads=False)) == encoder


def test_names_and_shapes_where_no_two_sizes_are_alike():
    shapes = shapes_without_memory(lambda: make_model("pretraining", small.CONFIG))
    assert shapes == reference.variable_shapes(small.CONFIG)


def test_without_next_sentence():
    shapes = shapes_without_memory(lambda: make_model("fill_mask", small.CONFIG))
    expected = reference.variable_shapes(small.CONFIG)
    assert expected.keys() - shapes.keys() == {
        "cls/seq_relationship/output_weights",
        "cls/seq_relationship/output_bias",
    }
    assert shapes.items() <= expected.items()


def test_inputs_and_outputs_by_name():
    model = make_model("pretraining", small.CONFIG)
    inputs = small.model_inputs(small.examples())
    assert set(model.input) == set(inputs)
    outputs = model(inputs)
    rows, length, hidden = small.ROWS, small.S, small.CONFIG.hidden_size
    shapes = {
        "sequence_output": (rows, length, hidden),
        "pooled_output": (rows, hidden),
        "masked_lm_logits": (rows, small.P, small.CONFIG.vocab_size),
        "next_sentence_logits": (rows, 2),
    }
    assert {name: tuple(value.shape) for name, value in outputs.items()} == shapes
    assert {name: value.shape for name, value in model.output.items()} == {
        "sequence_output": (None, None, hidden),
        "pooled_output": (None, hidden),
        "masked_lm_logits": (None, None, small.CONFIG.vocab_size),
        "next_sentence_logits": (None, 2),
    }


def test_with_losses():
    """The cross entropy of each prediction, padding included, by its label alone."""
    model = make_model("pretraining", small.CONFIG, with_losses=True)
    weights, batch = reference.random_weights(small.CONFIG, seed=2), small.examples(seed=4)
    reference.put_weights(model, weights)
    inputs = {name: batch[name] for name in model.input}
    assert set(inputs) == {*small.model_inputs(batch), "masked_lm_ids"}
    losses = np.array(model(inputs)["masked_lm_losses"])
    expected = reference.pretraining_outputs(weights, small.CONFIG, small.model_inputs(batch))
    log_probs = reference.log_softmax(expected["masked_lm_logits"])
    expected = -np.take_along_axis(log_probs, batch["masked_lm_ids"][..., None], -1)[..., 0]
    assert losses.shape == (small.ROWS, small.P)
    assert np.abs(losses - expected).max() < 1e-5


def test_all_layers():
    model = BertModel(small.CONFIG, all_layers=True)
    assert set(model.input) == {"input_ids", "input_mask", "segment_ids"}
    inputs = small.model_inputs(small.examples())
    outputs = model({name: inputs[name] for name in model.input})
    each = ["embedding_output", "layer_0", "layer_1"]
    assert set(outputs) == {*each, "sequence_output", "pooled_output"}
    for name in each:
        assert tuple(outputs[name].shape) == (small.ROWS, small.S, small.CONFIG.hidden_size)
    np.testing.assert_array_equal(outputs["layer_1"], outputs["sequence_output"])
    assert np.abs(outputs["layer_0"] - outputs["layer_1"]).max() > 0.01


def test_first_weights():
    """Kernels and tables: a normal law cut at two deviations; biases 0, scales 1."""
    keras.utils.set_random_seed(3)
    config = released_config(1009, 1, 128)
    weights = reference.take_weights(make_model("pretraining", config))
    for name, value in weights.items():
        if name.endswith(("bias", "beta")):
            assert not value.any(), name
        elif name.endswith("gamma"):
            assert (value == 1).all(), name
        else:
            assert np.abs(value).max() <= 0.04, name
            if value.size > 10_000:  # a normal law cut there has 0.8796 of its deviation
                assert abs(value.std() - 0.02 * 0.8796) < 0.0003, name
                assert abs(value.mean()) < 0.0005, name


def test_every_head_has_its_model():
    sizes = {"num_classes": 3, "num_choices": 5}
    outputs = {name: make_model(name, small.CONFIG, **sizes).output for name in HEADS}
    encoder = {"sequence_output", "pooled_output"}
    assert {name: set(by_name) - encoder for name, by_name in outputs.items()} == {
        "pretraining": {"masked_lm_logits", "next_sentence_logits"},
        "fill_mask": {"masked_lm_logits"},
        "classification": {"logits"},
        "multi_label": {"logits"},
        "regression": {"logits"},
        "multiple_choice": {"logits"},
        "token_labels": {"logits"},
        "question_answering": {"start_logits", "end_logits"},
        "embeddings": set(),
    }
    shapes = {name: one["logits"].shape for name, one in outputs.items() if "logits" in one}
    assert shapes == {
        "classification": (None, 3),
        "multi_label": (None, 3),
        "regression": (None, 1),
        "multiple_choice": (None, 5),
        "token_labels": (None, None, 3),
    }


@pytest.mark.parametrize(
    "head", ["classification", "multiple_choice", "token_labels", "question_answering"]
)
def test_heads_of_tasks_are_the_originals(head):
    """Dropout of 0.1 (none for spans), first weights of 0.02, whatever the configuration says."""
    config = BertConfig.from_dict(
        small.CONFIG.to_dict()
        | {"initializer_range": 3.0, "hidden_dropout_prob": 0.0, "hidden_size": 60}
    )
    model = make_model(head, config, num_classes=3, num_choices=3)
    rates = [layer.rate for layer in model.layers if layer.name == "dropout"]
    assert rates == ([] if head == "question_answering" else [0.1])
    weights = reference.take_weights(model)
    (kernel,) = (weights[name] for name in weights if name.endswith("output_weights"))
    assert 0.03 < np.abs(kernel).max() <= 0.04
    assert np.abs(weights["bert/embeddings/word_embeddings"]).max() > 3


def test_the_next_sentence_head_begins_as_the_configuration_says():
    config = BertConfig.from_dict(small.CONFIG.to_dict() | {"initializer_range": 3.0})
    weights = reference.take_weights(make_model("pretraining", config))
    assert 1 < np.abs(weights["cls/seq_relationship/output_weights"]).max() <= 6


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf", "relu", "tanh", "linear"])
def test_every_output_equals_the_reference(hidden_act):
    """Float32 against float64; see test_layers.py for the parts."""
    config = BertConfig.from_dict(small.CONFIG.to_dict() | {"hidden_act": hidden_act})
    model = small.with_layers(make_model("pretraining", config))
    weights, batch = reference.random_weights(config, seed=2), small.examples(seed=4)
    reference.put_weights(model, weights)
    outputs = model(small.model_inputs(batch))
    expected = reference.pretraining_outputs(weights, config, small.model_inputs(batch))
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        worst = np.abs(outputs[name] - value).max()
        assert worst < 1e-5 * max(1, np.abs(value).max()), f"{name} {worst}"


@pytest.mark.parametrize(
    "sizes",
    [{"num_hidden_layers": 10_000}, {"hidden_size": 10**7}, {"intermediate_size": 2**31 - 1},
     {"max_position_embeddings": 2**31 - 1}],
)  # fmt: skip
def test_a_model_larger_than_the_memory_is_not_begun(sizes, monkeypatch):
    """The first layer refuses it, in any model: also in one from a .keras file."""
    monkeypatch.setattr(runtime, "memory_bytes", lambda: 10**11)
    sizes = {"hidden_size": 1600, "num_attention_heads": 100, **sizes}
    with pytest.raises(InputError, match=r"a model of .* parameters, which need .* GB\n"):
        BertModel(BertConfig(vocab_size=7, **sizes))


# ---------------------------------------------------------------------------- names of inputs


@pytest.fixture(scope="module")
def encoder():
    model = BertModel(small.CONFIG)
    reference.put_weights(model, reference.random_weights(small.CONFIG, seed=2))
    return model


def test_inputs_by_hugging_faces_names(encoder):
    batch = small.examples(seed=4)
    ours = {name: batch[name] for name in encoder.input}
    theirs = {ours_name: name for name, ours_name in SYNONYMS.items()}
    renamed = {theirs.get(name, name): value.astype(np.int64) for name, value in ours.items()}
    assert set(renamed) == {"input_ids", "attention_mask", "token_type_ids"}
    outputs, expected = encoder(renamed), encoder(ours)
    for name, value in expected.items():
        np.testing.assert_array_equal(outputs[name], value)


@pytest.mark.parametrize(
    "left_out", [["segment_ids"], ["input_mask"], ["input_mask", "segment_ids"]]
)
def test_inputs_that_are_left_out(encoder, left_out):
    """No padding is read, and all is the first text."""
    batch = small.examples(seed=4)
    assert not batch["input_mask"].all()
    whole = {name: batch[name] for name in encoder.input}
    whole |= (
        {"segment_ids": np.zeros_like(batch["segment_ids"])} if "segment_ids" in left_out else {}
    )
    expected = encoder(whole)["sequence_output"]
    given = {name: None if name in left_out else x for name, x in whole.items()}
    forms = [given, {name: x for name, x in given.items() if x is not None}]
    forms += [whole["input_ids"], whole["input_ids"].tolist()] if len(left_out) == 2 else []
    for form in forms:
        np.testing.assert_array_equal(encoder(form)["sequence_output"], expected)


@pytest.mark.parametrize(
    "names",
    [
        ["input_mask"],
        ["input_ids", "attention_masks"],
        ["input_ids", "input_mask", "attention_mask"],
        ["input_ids", "input_mask", "segment_ids", "label_ids"],
    ],
)
def test_inputs_that_are_unknown_or_given_twice(encoder, names):
    """Keras would take them in the order of their names, and only warn."""
    ids = np.ones((2, 3), np.int32)
    with pytest.raises(InputError, match=", ".join(names)) as caught:
        encoder(dict.fromkeys(names, ids))
    assert "input_mask or attention_mask, segment_ids or token_type_ids" in caught.value.expected


def test_labels_of_a_training_model_cannot_be_left_out():
    model = make_model("pretraining", small.CONFIG, with_losses=True)
    with pytest.raises(InputError, match="input_ids"):
        model(np.ones((2, 3), np.int32))
