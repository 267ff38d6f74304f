"""The layers against numbers worked out by hand and against BERT in plain NumPy (reference.py)."""

import json
import math

import keras
import numpy as np
import pytest
import reference
import small
import tensorflow as tf
from keras import ops
from small import close, hidden_states

from bert_tf import BertConfig, BertModel, heads, layers, make_model
from bert_tf.checkpoints.tf1 import checkpoint_name
from bert_tf.errors import InputError
from bert_tf.modeling.heads import Transform
from bert_tf.modeling.layers import Dropout, activation

B, S, P = small.ROWS, small.S, small.P
D, F, V = small.CONFIG.hidden_size, small.CONFIG.intermediate_size, small.CONFIG.vocab_size
# Of 7 tokens: all, some, one, one behind padding, none.
MASKS = np.array([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6, [0, 0, 1, 0, 0, 0, 0], [0] * 7])


# ---------------------------------------------------------------------------- by hand


def attention(x: np.ndarray) -> layers.SelfAttention:
    """Two heads, q = k = v = x."""
    config = BertConfig(vocab_size=5, hidden_size=x.shape[-1], num_attention_heads=2)
    layer = layers.SelfAttention(config)
    layer.build(x.shape)
    for projection in (layer.query, layer.key, layer.value):
        projection.kernel.assign(np.eye(x.shape[-1]))
    return layer


def test_attention_with_identity_weights():
    """Two heads of 4 columns, and scores that give soft-maxes of 3:1 and 1:4.

    Head 0 sees (a, 0, 0, 0) and zeros, with a * a / sqrt(4) = ln 3.
    Head 1 sees zeros and (b, 0, 0, 0), with b * b / sqrt(4) = ln 4.
    A third token is masked: whatever it is, it changes nothing.
    """
    a, b = math.sqrt(2 * math.log(3)), math.sqrt(2 * math.log(4))
    x = np.full([1, 3, 8], 7.0)
    x[0, 0] = [a, 0, 0, 0, 0, 0, 0, 0]
    x[0, 1] = [0, 0, 0, 0, b, 0, 0, 0]
    context = np.array(attention(x)(x, padding_mask=np.array([[1, 1, 0]])))[0]
    close(context[0], np.array([3 / 4 * a, 0, 0, 0, 1 / 2 * b, 0, 0, 0]))
    close(context[1], np.array([1 / 2 * a, 0, 0, 0, 4 / 5 * b, 0, 0, 0]))


def test_a_fully_masked_row_attends_as_if_unmasked():
    """-10000 is added to every score alike; scores that survive the sum in float32 exactly."""
    x = np.array([[[4.0, 2.0], [0.0, 8.0], [6.0, 0.0]]])  # scores are whole numbers
    layer = attention(x)
    for mask in (np.zeros([1, 3], np.int32), np.ones([1, 3], bool)):
        np.testing.assert_array_equal(layer(x, padding_mask=mask), layer(x))


@pytest.mark.parametrize(
    ("name", "of_one", "of_minus_two"),
    [
        ("gelu", 0.8411919906, -0.0454022840),  # x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
        ("gelu_erf", 0.8413447461, -0.0455002639),  # x times the normal law's share below x
        ("relu", 1.0, 0.0),
        ("tanh", 0.7615941560, -0.9640275801),
        ("linear", 1.0, -2.0),
    ],
)
def test_activations(name, of_one, of_minus_two):
    close(activation(name)(np.float32([1, -2, 0])), np.array([of_one, of_minus_two, 0]), 2e-7)


def test_normalization():
    """(x - mean) / sqrt(variance + 1e-12), scaled and moved; its deviation is that of the N."""
    layer = layers.AddAndNorm(BertConfig(vocab_size=5, hidden_size=3, num_attention_heads=1))
    residual = np.array([[[1.0, 2.0, 6.0]]])  # mean 3, variance (4 + 1 + 9) / 3
    layer.build(residual.shape, residual.shape)
    layer.projection.kernel.assign(np.zeros([3, 3]))
    layer.norm.gamma.assign([1, 2, 3])
    layer.norm.beta.assign([0, 0, 10])
    deviation = math.sqrt(14 / 3)
    expected = np.array([[[-2 / deviation, -2 / deviation, 9 / deviation + 10]]])
    close(layer(np.zeros([1, 1, 3]), residual), expected)
    # Keras's own epsilon, 1e-3, would make something else of a small variance.
    close(layer(np.zeros([1, 1, 3]), residual * 1e-2), expected, 1e-5)


# ---------------------------------------------------------------------------- by reference


def test_embeddings():
    ids, segments = (small.examples()[name] for name in ("input_ids", "segment_ids"))
    layer = layers.Embeddings(small.CONFIG, dtype="float64")
    x, weights = reference.run_layer(layer, "bert/embeddings/", ids, segments)
    rows = zip(ids, segments, strict=True)
    close(x, np.stack([reference.embed(weights, *row) for row in rows]), 1e-12)
    _, table = layer(ids, segments, with_table=True)
    close(table, weights["bert/embeddings/word_embeddings"], 1e-12)


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf"])
def test_encoder_block(hidden_act):
    config = BertConfig.from_dict(small.CONFIG.to_dict() | {"hidden_act": hidden_act})
    x, scope = hidden_states(B, S, D), "bert/encoder/layer_0"
    layer = layers.EncoderBlock(config, dtype="float64", name="layer_0")
    output, weights = reference.run_layer(layer, f"{scope}/", x, padding_mask=MASKS)
    expected = np.stack(
        [
            reference.encoder_block(weights, config, scope, row, mask)
            for row, mask in zip(x, MASKS, strict=True)
        ]
    )
    close(output[:-1], expected[:-1])
    # With every key masked, float32 keeps three decimals of a score beside -10000.
    close(output[-1:], expected[-1:], 5e-3)


def test_padding_changes_nothing():
    """What stands in padded places, and how many there are, is not to be seen in the others."""
    model = BertModel(small.CONFIG)
    reference.put_weights(model, reference.random_weights(small.CONFIG, seed=5))
    rng = np.random.default_rng(1)
    ids, segments = rng.integers(0, V, [2, 2, S])
    segments %= small.CONFIG.type_vocab_size
    mask = np.array([[1] * 4 + [0] * 3] * 2)

    def run(columns, **changed):
        inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": segments} | changed
        outputs = model({name: value[:, :columns] for name, value in inputs.items()})
        return np.concatenate(
            [outputs["sequence_output"][:, :4], outputs["pooled_output"][:, None]], 1
        )

    expected = run(S)
    close(
        run(S, input_ids=np.where(mask, ids, 3), segment_ids=np.where(mask, segments, 0)), expected
    )
    close(run(5), expected, 2e-6)
    assert np.abs(run(S, input_ids=np.where(mask, ids[::-1], ids)) - expected).max() > 0.1


def test_longer_sequences_than_positions():
    model = BertModel(small.CONFIG)
    longest = small.CONFIG.max_position_embeddings
    for length in (2, longest):
        model(np.ones([1, length], np.int32))
    ids = np.ones([1, longest + 1], np.int32)
    with pytest.raises(InputError, match="sequences of 14 word pieces"):
        model(ids)
    with pytest.raises(ValueError, match="received sequences of 14, expected at most 13"):
        layers.Embeddings(small.CONFIG)(ids, ids)


# ---------------------------------------------------------------------------- a model of layers


def composed() -> keras.Model:
    """As in docs/library.md, "Build a model from the layers", with the masked-LM head too."""
    config = small.CONFIG
    names = ("input_ids", "segment_ids", "input_mask", "masked_lm_positions")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    ids, segments, mask, positions = inputs.values()
    x, table = layers.Embeddings(config)(ids, segments, with_table=True)  # [B, S, D], [V, D]
    for i in range(config.num_hidden_layers):
        x = layers.EncoderBlock(config, name=f"layer_{i}")(x, padding_mask=mask)  # [B, S, D]
    logits = heads.NextSentenceHead(config)(layers.Pooler(config)(x))  # [B, 2]
    outputs = {"sequence_output": x, "next_sentence_logits": logits}
    outputs["masked_lm_logits"] = heads.MaskedLmHead(config)(x, positions, table)  # [B, P, V]
    return keras.Model(inputs, outputs)


@pytest.fixture(scope="module")
def pretraining() -> BertModel:
    model = make_model("pretraining", small.CONFIG)
    reference.put_weights(model, reference.random_weights(small.CONFIG, seed=6))
    return model


def test_layers_make_the_model(pretraining, tmp_path):
    """Outputs, names of weights, and a file of Keras's."""
    model, inputs = composed(), small.model_inputs(small.examples())
    reference.put_weights(model, reference.random_weights(small.CONFIG, seed=6))
    expected, encoder = pretraining(inputs), BertModel(small.CONFIG)
    reference.put_weights(encoder, reference.random_weights(small.CONFIG, seed=6))
    whole = encoder({name: inputs[name] for name in encoder.input})
    np.testing.assert_array_equal(whole["sequence_output"], expected["sequence_output"])
    model.save(tmp_path / "model.keras")
    for one in (model, keras.models.load_model(tmp_path / "model.keras")):
        for name, value in one(inputs).items():
            np.testing.assert_array_equal(value, expected[name], name)


def table_gradient(model, loss_of, **inputs) -> np.ndarray:
    variables = {checkpoint_name(v): v for v in model.trainable_variables}
    with tf.GradientTape() as tape:
        loss = loss_of(model(inputs))
    table = variables["bert/embeddings/word_embeddings"].value
    return np.array(tf.convert_to_tensor(tape.gradient(loss, table)))


@pytest.mark.parametrize("by_hand", [False, True])
def test_every_row_of_the_table_learns_through_the_tied_head(pretraining, by_hand):
    model = composed() if by_hand else pretraining
    reference.put_weights(model, reference.random_weights(small.CONFIG, seed=6))
    inputs = small.model_inputs(small.examples())
    unseen = sorted(set(range(V)) - set(inputs["input_ids"].flat))
    assert len(unseen) > 5

    def masked_lm(outputs):
        return tf.reduce_sum(tf.nn.log_softmax(outputs["masked_lm_logits"])[..., 0])

    def next_sentence(outputs):
        return tf.reduce_sum(outputs["next_sentence_logits"][:, 0])

    through_head = table_gradient(model, masked_lm, **inputs)
    assert (np.abs(through_head).max(axis=1) > 1e-4).all()
    through_input = np.abs(table_gradient(model, next_sentence, **inputs)).max(axis=1)
    assert (through_input[unseen] == 0).all()
    for row in range(B):  # the first token has a part in the pooled vector whatever the mask
        assert through_input[inputs["input_ids"][row, 0]] > 1e-4


# ---------------------------------------------------------------------------- Keras's contract

LAYERS = [
    Dropout(0.3, name="d"),
    *(
        kind(small.CONFIG, name="layer")
        for kind in (
            *(layers.Embeddings, layers.SelfAttention, layers.AddAndNorm, layers.Intermediate),
            *(layers.Attention, layers.EncoderBlock, layers.Pooler),
            *(Transform, heads.MaskedLmHead, heads.NextSentenceHead),
        )
    ),
    heads.SequenceClassifier(small.CONFIG, num_classes=3, dtype="mixed_bfloat16"),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_configuration_of_a_layer_round_trips(layer):
    config = json.loads(json.dumps(layer.get_config()))
    again = type(layer).from_config(config)
    assert json.loads(json.dumps(again.get_config())) == config
    assert again.name == layer.name
    for name in ("config", "rate", "num_classes", "dtype_policy"):
        assert getattr(again, name, None) == getattr(layer, name, None)


def test_a_saved_model_is_whole(tmp_path):
    """Weights, sizes and wiring come from the file alone: it is loaded under another seed."""
    keras.utils.set_random_seed(1)
    model = small.with_layers(make_model("pretraining", small.CONFIG))
    reference.put_weights(model, reference.random_weights(small.CONFIG, seed=7))
    inputs = small.model_inputs(small.examples())
    expected = {name: np.array(value) for name, value in model(inputs).items()}
    model.save(tmp_path / "model.keras")
    keras.utils.set_random_seed(2)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    outputs = loaded(inputs)
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(outputs[name], value, name)
    names = [[checkpoint_name(v) for v in one.weights] for one in (loaded, model)]
    assert names[0] == names[1]


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
@pytest.mark.parametrize("options", [{}, {"activation_quantizer": None}])
def test_a_quantized_model_and_its_file(tmp_path, options):
    """A kernel of int8 is within half a step, a 127th of its column's largest, of what it was."""
    model = make_model("pretraining", small.CONFIG)
    reference.put_weights(model, reference.random_weights(small.CONFIG, seed=8))
    inputs = small.model_inputs(small.examples())
    exact = np.array(model(inputs)["sequence_output"])
    kernel = np.array(model.get_layer("layer_1").intermediate.projection.kernel)
    model.quantize(config=keras.quantizers.Int8QuantizationConfig(**options))
    dense = model.get_layer("layer_1").intermediate.projection
    step = 1 / np.array(dense.kernel_scale)  # [F]
    np.testing.assert_allclose(step, np.abs(kernel).max(axis=0) / 127, rtol=1e-4)
    assert (np.abs(np.array(dense.kernel) * step - kernel) < 0.51 * step).all()
    outputs = model(inputs)
    assert 1e-4 < np.abs(np.array(outputs["sequence_output"]) - exact).max() < 0.2
    model.save(tmp_path / "first.keras")
    loaded = keras.models.load_model(tmp_path / "first.keras")
    loaded.save(tmp_path / "second.keras")
    for again in (loaded, keras.models.load_model(tmp_path / "second.keras")):
        assert again.get_layer("layer_1").intermediate.projection.quantization_mode == "int8"
        for name, value in again(inputs).items():
            np.testing.assert_array_equal(value, outputs[name], name)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_quantized_layers_of_one_model_beside_others(tmp_path):
    """What `filters` leave out stays as it is, in the file too."""
    model = BertModel(small.CONFIG)
    model.quantize("int8", filters="query|value")
    model.save(tmp_path / "model.keras")
    for one in (model, keras.models.load_model(tmp_path / "model.keras")):
        kinds = {v.path.split("/")[-2]: v.dtype for v in one.weights if v.name == "kernel"}
        assert kinds == {"query": "int8", "value": "int8", "key": "float32", "dense": "float32"}


def test_symbolic_shapes_are_the_real_ones():
    batch, x = small.examples(), hidden_states(B, S, D)
    table, positions = hidden_states(V, D), batch["masked_lm_positions"]
    masked = x, positions, table
    for layer, *inputs in (
        (layers.Embeddings(small.CONFIG), batch["input_ids"], batch["segment_ids"]),
        (layers.EncoderBlock(small.CONFIG), x, batch["input_mask"]),
        (layers.Intermediate(small.CONFIG), x),
        (layers.AddAndNorm(small.CONFIG), hidden_states(B, S, F), x),
        (layers.Pooler(small.CONFIG), x),
        (heads.MaskedLmHead(small.CONFIG), *masked),
        (heads.MaskedLmHead(small.CONFIG), *masked, batch["masked_lm_ids"]),
        (heads.SequenceClassifier(small.CONFIG, num_classes=3), x[:, 0]),
    ):
        symbols = [keras.KerasTensor(value.shape, str(value.dtype)) for value in inputs]
        said, real = (
            tf.nest.map_structure(
                lambda y: (tuple(y.shape), keras.backend.standardize_dtype(y.dtype)), outputs
            )
            for outputs in (layer(*symbols), layer(*inputs))
        )
        assert said == real, layer


def test_mixed_precision(monkeypatch):
    softmax_types, softmax = [], ops.softmax

    def noted_softmax(x, axis=-1):
        softmax_types.append(x.dtype)
        return softmax(x, axis=axis)

    monkeypatch.setattr(layers.ops, "softmax", noted_softmax)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = make_model("pretraining", small.CONFIG)
    finally:
        keras.config.set_dtype_policy("float32")
    weights = reference.random_weights(small.CONFIG, seed=2, scale=0.1)
    reference.put_weights(model, weights)
    inputs = small.model_inputs(small.examples())
    softmax_types.clear()
    outputs = model(inputs)
    assert softmax_types == [tf.float32] * small.CONFIG.num_hidden_layers
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}
    expected = reference.pretraining_outputs(weights, small.CONFIG, inputs)
    for name, value in outputs.items():
        expected_type = tf.float32 if name == "next_sentence_logits" else tf.bfloat16
        assert value.dtype == expected_type, name
        error = np.abs(np.array(tf.cast(value, tf.float32)) - expected[name])
        assert error.max() < 0.02 * np.abs(expected[name]).max(), name
