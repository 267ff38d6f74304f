"""The functional models: names and shapes of the original's variables, sizes, inputs, outputs."""

import itertools

import keras
import numpy as np
import pytest
import reference
import small

from bert_tf import BertConfig, BertModel, heads, make_model
from bert_tf.errors import InputError
from bert_tf.modeling.inputs import SYNONYMS
from bert_tf.modeling.names import checkpoint_name

# Word pieces, layers, hidden size, weights of the encoder with pooler, and with both heads too.
RELEASED_SIZES = [
    (30522, 2, 128, 4_385_920, 4_433_468),
    (30522, 8, 512, 41_373_184, 41_668_412),
    (30522, 12, 768, 109_482_240, 110_106_428),
    (30522, 24, 1024, 335_141_888, 336_226_108),
    (28996, 12, 768, 108_310_272, None),  # cased base and large, Chinese, multilingual cased
    (119547, 12, 768, 177_853_440, None),
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


def changed_config(**changes) -> BertConfig:
    return BertConfig.from_dict(small.CONFIG.to_dict() | changes)


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


@pytest.mark.parametrize(("pieces", "layers", "hidden", "encoder", "with_heads"), RELEASED_SIZES)
def test_counts_of_released_sizes(pieces, layers, hidden, encoder, with_heads):
    config = released_config(pieces, layers, hidden)
    alone, both = reference.variable_shapes(config, heads=False), reference.variable_shapes(config)
    assert count(alone) == encoder
    assert with_heads in (None, count(both))
    if layers in (2, 24) and with_heads:
        assert shapes_without_memory(lambda: make_model("pretraining", config)) == both
        assert shapes_without_memory(lambda: BertModel(config)) == alone


def test_names_and_shapes_where_no_two_sizes_are_alike():
    expected = reference.variable_shapes(small.CONFIG)
    assert shapes_without_memory(lambda: make_model("pretraining", small.CONFIG)) == expected
    masked = {n: s for n, s in expected.items() if not n.startswith("cls/seq_relationship/")}
    assert shapes_without_memory(lambda: make_model("fill_mask", small.CONFIG)) == masked


def test_every_head_has_its_model():
    hidden, pieces, every = small.CONFIG.hidden_size, small.CONFIG.vocab_size, (None, None)
    encoder = {"sequence_output": (*every, hidden), "pooled_output": (None, hidden)}
    masked = {"masked_lm_logits": (*every, pieces)}
    expected = {
        "pretraining": encoder | masked | {"next_sentence_logits": (None, 2)},
        "fill_mask": encoder | masked,
        "classification": encoder | {"logits": (None, 3)},
        "multi_label": encoder | {"logits": (None, 3)},
        "regression": encoder | {"logits": (None, 1)},
        "multiple_choice": {"logits": (None, 5)},
        "token_labels": encoder | {"logits": (*every, 3)},
        "question_answering": encoder | {"start_logits": every, "end_logits": every},
        "embeddings": encoder,
    }
    assert expected.keys() == heads.NAMES.keys()
    for name, shapes in expected.items():
        sizes = {"num_classes": 3, "num_choices": 5}
        head = heads.head_named(name)
        for size in sizes.keys() - {*head.sizes}:
            with pytest.raises(InputError, match=f"{size} for the head {name}"):
                make_model(name, small.CONFIG, **{size: sizes[size]})
        model = make_model(name, small.CONFIG, **{size: sizes[size] for size in head.sizes})
        assert {key: value.shape for key, value in model.output.items()} == shapes, name
        assert (model.name, head.name) == (name, name)
        assert set(head.outputs) <= shapes.keys()


def test_heads_of_ones_own():
    class Own(heads.Classification):
        name = "own"

    with pytest.raises(InputError, match="the head 'own'"):
        make_model("own", small.CONFIG)
    heads.register(head := Own())
    assert make_model("own", small.CONFIG.to_dict()).name == "own"
    with pytest.raises(InputError, match="num_classes 0"):
        make_model("own", small.CONFIG, num_classes=0)
    assert heads.head_named("own") is head
    heads.NAMES.pop("own")
    with pytest.raises(InputError, match="a new name"):
        heads.register(heads.Classification)


def test_labels_cannot_be_left_out():
    with pytest.raises(InputError, match="input_ids"):
        make_model("pretraining", small.CONFIG, with_losses=True)(np.ones((2, 3), np.int32))


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


@pytest.mark.parametrize("head", [None, *heads.NAMES])
def test_first_weights_are_drawn_each_on_its_own(head):
    """Keras's initializers draw the same again: positions were once the first rows of the words."""
    keras.utils.set_random_seed(3)
    config = changed_config(hidden_size=24, intermediate_size=24)
    sizes = {"num_classes": 3, "num_choices": 3}
    model = heads.head_named(head).model(config, **sizes) if head else BertModel(config)
    drawn = {v.path: np.ravel(v) for v in model.trainable_variables if v.name != "bias"}
    drawn = {path: values for path, values in drawn.items() if values.std() > 0}
    assert len(drawn) > 12
    for a, b in itertools.combinations(drawn, 2):
        size = min(drawn[a].size, drawn[b].size)
        assert size > 20
        assert abs(np.corrcoef(drawn[a][:size], drawn[b][:size])[0, 1]) < 0.8, (a, b)


@pytest.mark.parametrize(
    "head",
    ["classification", "multiple_choice", "token_labels", "question_answering", "pretraining"],
)
def test_heads_begin_as_the_originals(head):
    """Those of tasks have dropout and first weights of their own, whatever the configuration."""
    config = changed_config(initializer_range=3.0, hidden_dropout_prob=0.0, hidden_size=60)
    model = heads.head_named(head).model(config, num_classes=3, num_choices=3)
    rates = [layer.rate for layer in model.layers if layer.name == "dropout"]
    assert rates == [0.1] * (head not in ("question_answering", "pretraining"))
    weights = reference.take_weights(model)
    (kernel,) = (weights[name] for name in weights if name.endswith("output_weights"))
    assert 1.4 < np.abs(kernel).max() / (3.0 if head == "pretraining" else 0.02) <= 2
    assert np.abs(weights["bert/embeddings/word_embeddings"]).max() > 3


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf", "relu", "tanh", "linear"])
def test_every_output_equals_the_reference(hidden_act):
    """Float32 against float64; see test_layers.py for the parts."""
    config = changed_config(hidden_act=hidden_act)
    model = small.with_layers(make_model("pretraining", config))
    weights, batch = reference.random_weights(config, seed=2), small.examples(seed=4)
    reference.put_weights(model, weights)
    outputs = model(small.model_inputs(batch))
    expected = reference.pretraining_outputs(weights, config, small.model_inputs(batch))
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        small.close(outputs[name], value, 1e-5 * max(1, np.abs(value).max()))


# ---------------------------------------------------------------------------- names of inputs


@pytest.fixture(scope="module")
def encoder():
    model = BertModel(small.CONFIG, all_layers=True)
    reference.put_weights(model, reference.random_weights(small.CONFIG, seed=2))
    return model


def test_inputs_by_hugging_faces_names(encoder):
    batch = small.examples(seed=4)
    ours = {name: batch[name] for name in encoder.input}
    theirs = {ours_name: name for name, ours_name in SYNONYMS.items()}
    renamed = {theirs.get(name, name): value.astype(np.int64) for name, value in ours.items()}
    assert set(renamed) == {"input_ids", "attention_mask", "token_type_ids"}
    outputs, expected = encoder(renamed), encoder(ours)
    each = {"embedding_output", "layer_0", "layer_1"}
    assert set(outputs) == {*each, "sequence_output", "pooled_output"}
    for name, value in expected.items():
        np.testing.assert_array_equal(outputs[name], value)


@pytest.mark.parametrize("left_out", [["segment_ids"], ["input_mask", "segment_ids"]])
def test_inputs_that_are_left_out(encoder, left_out):
    """No padding is read, and all is the first text."""
    batch = small.examples(seed=4)
    assert not batch["input_mask"].all()
    whole = {name: batch[name] for name in encoder.input}
    if "segment_ids" in left_out:
        whole["segment_ids"] = np.zeros_like(batch["segment_ids"])
    expected = encoder(whole)["sequence_output"]
    given = {name: None if name in left_out else x for name, x in whole.items()}
    forms = [given, {name: x for name, x in given.items() if x is not None}]
    forms += [whole["input_ids"], whole["input_ids"].tolist()] if len(left_out) == 2 else []
    for form in forms:
        np.testing.assert_array_equal(encoder(form)["sequence_output"], expected)


def test_inputs_that_are_unknown_or_given_twice(encoder):
    """Keras would take them in the order of their names, and only warn."""
    ids = np.ones((2, 3), np.int32)
    for names in (
        ["input_mask"],
        ["input_ids", "attention_masks"],
        ["input_ids", "input_mask", "attention_mask"],
        ["input_ids", "input_mask", "segment_ids", "label_ids"],
    ):
        with pytest.raises(InputError, match=", ".join(names)) as caught:
            encoder(dict.fromkeys(names, ids))
        assert (
            "input_mask or attention_mask, segment_ids or token_type_ids" in caught.value.expected
        )
