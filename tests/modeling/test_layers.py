"""The layers against numbers worked out by hand and against BERT in plain NumPy (reference.py)."""

import math

import keras
import numpy as np
import pytest
import reference
import small
import tensorflow as tf
from keras import ops
from small import close

from bert_tf import BertConfig, BertModel, InputError, heads, layers, make_model
from bert_tf.modeling import models
from bert_tf.training.step import layer_precision

B, S, P = small.ROWS, small.S, small.P
D, F, V = small.CONFIG.hidden_size, small.CONFIG.intermediate_size, small.CONFIG.vocab_size


# ---------------------------------------------------------------------------- by hand


def attention(x: np.ndarray) -> layers.SelfAttention:
    """Two heads, q = k = v = x."""
    layer = layers.SelfAttention(hidden_size=x.shape[-1], num_heads=2)
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


ATTENDING = (layers.EncoderBlock, layers.SelfAttention)


@pytest.mark.parametrize("layer", ATTENDING)
def test_masks_of_keras(layer):
    """As the padding_mask of the same places: eagerly, in a graph, computed again, in 16 bits."""
    x = np.random.default_rng(3).normal(size=(3, 5, D)).astype(np.float32)
    ids = np.array([[4, 2, 9, 0, 0], [1, 1, 1, 1, 1], [7, 0, 0, 0, 0]])
    x[ids == 0] = 0.0
    attend = layer.from_bert_config(small.CONFIG)
    expected = np.array(attend(x, padding_mask=ids != 0))
    assert np.abs(attend(x) - expected).max() > 1e-3
    masked = keras.layers.Masking()(x)
    close(attend(masked), expected)
    np.testing.assert_array_equal(attend(masked)._keras_mask, ids != 0)
    close(attend(masked, padding_mask=np.ones_like(ids)), expected)  # what both allow is seen
    first = np.arange(5) < 1 + 0 * ids
    close(attend(masked, padding_mask=first), attend(x, padding_mask=first & (ids != 0)))
    inputs = keras.Input((5, D))
    model = keras.Model(inputs, attend(keras.layers.Masking()(inputs)))
    close(model(x), expected)
    close(model.predict(x, verbose=0), expected)
    table = keras.layers.Embedding(10, D, mask_zero=True)
    stack = keras.Sequential([table, attend, keras.layers.GlobalAveragePooling1D()])
    found, vectors = stack(ids), attend(table(ids), padding_mask=ids != 0)
    close(found[0], np.mean(vectors[0, :3], axis=0))
    half = layer.from_bert_config(small.CONFIG, dtype="mixed_bfloat16")
    close(half(masked), np.array(half(x, padding_mask=ids != 0), np.float32), 1e-6)


def test_where_masks_of_keras_end():
    """Layers of single places pass them on, as losses skip padding; pooled vectors have none."""
    x = keras.layers.Masking()(np.pad(np.ones([2, 3, D], np.float32), [(0, 0), (0, 2), (0, 0)]))
    config = small.CONFIG
    tags = heads.TokenClassifier(num_classes=4)
    wide = layers.Dense(5)(x)
    for y in (wide, tags(x), layers.Dropout(0.5)(x)):
        assert y._keras_mask.numpy().tolist() == [[True] * 3 + [False] * 2] * 2
    pooled = layers.Pooler.from_bert_config(config)(x)
    embeddings = layers.Embeddings.from_bert_config(config)
    embeddings.build((2, 5))
    words = heads.MaskedLmHead(embeddings=embeddings)(x, np.zeros([2, P], np.int32))
    assert not any(hasattr(y, "_keras_mask") for y in (pooled, tags(pooled), words))


# ---------------------------------------------------------------------------- as Keras's layers

SIZES = {"hidden_size": 6, "num_heads": 3, "intermediate_size": 10}


def test_numbers_are_enough_and_all_that_is_saved():
    """The defaults are the original's; a layer of a configuration is that of its numbers."""
    block = layers.EncoderBlock(**SIZES)
    config = BertConfig(
        vocab_size=7, hidden_size=6, num_attention_heads=3, intermediate_size=10,
        hidden_act="relu", hidden_dropout_prob=0.2, attention="causal",
    )  # fmt: skip
    defaults = {"dropout": 0.1, "attention_dropout": 0.1, "activation": "gelu", "causal": False}
    sizes = {**SIZES, **defaults, "initializer_range": 0.02, "layer_norm_eps": 1e-12}
    of_keras = {"name", "trainable", "dtype"}
    assert {n: v for n, v in block.get_config().items() if n not in of_keras} == sizes
    other = layers.EncoderBlock.from_bert_config(config, dropout=0.3, name="mine")
    own = {"activation": "relu", "dropout": 0.3, "causal": True}
    assert other.name == "mine"
    assert {n: v for n, v in other.get_config().items() if n not in of_keras} == sizes | own
    again = layers.EncoderBlock.from_config(other.get_config())
    assert again.get_config() == other.get_config()
    assert (block.num_heads, other.attention.causal) == (3, True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.EncoderBlock(8, 3, 9), "8, which is no multiple of num_heads 3"),
        (lambda: layers.EncoderBlock(8, 0, 9), "num_heads 0\n.*at least 1"),
        (lambda: layers.EncoderBlock(8, 2, 9, activation="swish"), "activation 'swish'\n.*gelu"),
        (lambda: layers.EncoderBlock(8, 2, 9, dropout=1), "dropout 1\n.*below 1"),
        (lambda: layers.EncoderBlock(small.CONFIG, 2, 9), "from_bert_config"),
        (lambda: layers.Embeddings(9, 8, max_positions=0), "max_positions 0\n"),
        (lambda: heads.MaskedLmHead(), "hidden_size None\n"),
        (lambda: layers.Embeddings(9, 8)(np.ones([2, 4], "float16")), "ids of type"),
        (lambda: layers.EncoderBlock(**SIZES)(np.ones([2, 4, 6]), np.ones([2, 4, 4])), "2, 4, 4"),
    ],
)  # fmt: skip
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_who_sees_whom_and_how_much():
    """Of each head, of all heads, of padding: what the probabilities say."""
    x = np.random.default_rng(4).normal(size=(2, 5, 6)).astype(np.float32)
    block, seen = layers.EncoderBlock(**SIZES), np.random.default_rng(5).random((2, 3, 5, 5)) < 0.5
    seen |= np.eye(5, dtype=bool)
    y, p = block(x, attention_mask=seen, return_attention_scores=True)
    close(np.sum(p, axis=-1), np.ones([2, 3, 5]))
    np.testing.assert_array_equal(np.array(p) > 0, seen)
    close(block(x, attention_mask=seen), y)
    of_all, padding = seen[:, 0], np.arange(5) < [[5], [3]]
    _, p = block(x, padding, of_all, return_attention_scores=True)
    allowed = np.broadcast_to((of_all & padding[:, None])[:, None], p.shape)
    rows = np.broadcast_to(allowed.any(axis=-1, keepdims=True), p.shape)  # else as if unmasked
    np.testing.assert_array_equal((np.array(p) > 0)[rows], allowed[rows])
    inputs = keras.Input((5, 6))
    outputs = block(inputs, return_attention_scores=True)
    model = keras.Model(inputs, outputs)
    assert [tuple(o.shape) for o in outputs] == [(None, 5, 6), (None, 3, 5, 5)]
    assert [o.shape for o in model.predict(x, verbose=0)] == [(2, 5, 6), (2, 3, 5, 5)]


def test_embeddings_of_ids_alone():
    """Segments 0, positions 0, 1, ..., and id 0 as the mask of what follows."""
    ids = np.array([[3, 1, 2, 0], [5, 5, 0, 0]])
    embed = layers.Embeddings(vocab_size=7, hidden_size=6, max_positions=9)
    x, zeros = embed(ids), np.zeros_like(ids)
    close(x, embed(ids, zeros, zeros + np.arange(4)))
    assert np.abs(np.array(x) - embed(ids, zeros, zeros + 8 - np.arange(4))).max() > 1e-3
    block = layers.EncoderBlock(**SIZES)
    close(block(x), block(x, padding_mask=ids != 0))
    without = layers.Embeddings(7, 6, mask_zero=False)(ids)
    assert getattr(without, "_keras_mask", None) is None
    stack = keras.Sequential([embed, block, keras.layers.GlobalAveragePooling1D()])
    close(stack(ids)[1], np.mean(block(x)[1, :2], axis=0))
    assert embed.compute_output_shape(input_ids_shape=(None, 4)) == (None, 4, 6)


def test_a_head_tied_by_the_layer(tmp_path):
    """One table, trained through both; in copies and files of a `BertModel`, too."""
    ids, positions = np.array([[3, 1, 2, 0]]), np.array([[1, 2]])
    embed = layers.Embeddings(vocab_size=7, hidden_size=6, dropout=0.0)
    head = heads.MaskedLmHead(embeddings=embed)
    names = ("input_ids", "masked_lm_positions")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    words = head(embed(inputs["input_ids"]), inputs["masked_lm_positions"])
    model = BertModel(inputs, words)
    assert [*model.output.shape] == [None, None, 7]
    close(model([ids, positions]), head(embed(ids), positions))
    model.save(tmp_path / "tied.keras")
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    for one in (model, copy, keras.models.load_model(tmp_path / "tied.keras")):
        assert type(one) is BertModel
        assert len(one.weights) == len(model.weights) == 10
        before = np.array(one([ids, positions]))
        (table,) = (w for w in one.weights if w.path.endswith("word_embeddings"))
        table.assign(np.array(table) * np.array([[1]] * 6 + [[2]]))  # piece 6 is none of the ids
        close(one([ids, positions]), before * [1, 1, 1, 1, 1, 1, 2])
    plain, given = keras.Model(inputs, words), dict(zip(names, (ids, positions), strict=True))
    plain.save(tmp_path / "plain.keras")
    untied = (keras.models.clone_model(plain), keras.models.load_model(tmp_path / "plain.keras"))
    for one in untied:
        with pytest.raises(InputError, match=r"tied to no embeddings(?s:.*)\.tie\(embeddings\)"):
            one(given)
        (table,) = (layer for layer in one.layers if isinstance(layer, layers.Embeddings))
        (own,) = (layer for layer in one.layers if isinstance(layer, heads.MaskedLmHead))
        own.tie(table)
        one.set_weights(plain.get_weights())
        close(one(given), plain(given))
    with pytest.raises(InputError, match="7 word pieces and hidden_size 6"):
        heads.MaskedLmHead(16, embeddings=embed)


@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables .'pooler")
def test_a_head_tied_to_an_encoder_that_is_called_as_a_layer():
    """Its gradient reaches the table, and positions beyond a row read no other row."""
    encoder = BertModel(small.CONFIG)
    ids = np.random.default_rng(2).integers(1, V, (B, S))
    positions = np.tile(np.arange(P), (B, 1))
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    head = heads.MaskedLmHead(embeddings=encoder.embeddings)
    model = keras.Model(inputs, head(encoder(inputs[0])["sequence_output"], inputs[1]))
    expected = head(encoder(ids)["sequence_output"], positions)
    close(model([ids, positions]), expected)
    before = np.array(encoder.embeddings.word_embeddings)
    model.compile(keras.optimizers.SGD(1.0), "mse")
    model.fit([ids, positions], np.zeros(expected.shape), batch_size=B, verbose=0)
    assert (np.abs(np.array(encoder.embeddings.word_embeddings) - before).max(axis=1) > 0).all()
    hidden = encoder(ids)["sequence_output"]
    with pytest.raises(tf.errors.InvalidArgumentError):
        head(hidden, np.where(np.arange(B)[:, None] == 1, S, positions))

    @tf.function(jit_compile=True)
    def compiled(hidden, positions):
        return head(hidden, positions)

    found = compiled(hidden, tf.constant(np.where(np.arange(B)[:, None] == 1, S, positions)))
    others = np.arange(B) != 1
    close(found[others], head(hidden, positions)[others])
    close(found[1], head(0 * hidden, positions)[1])


def test_the_parts_of_a_model():
    model = make_model("question_answering", small.CONFIG)
    assert model.config == small.CONFIG
    assert model.embeddings is model.get_layer("embeddings")
    assert [x.name for x in model.blocks] == [f"layer_{i}" for i in range(len(model.blocks))]
    assert model.pooler.name == "pooler"
    towers = keras.Model(model.input, BertModel(small.CONFIG)(model.input)["pooled_output"])
    assert models.config_of_model(towers) == small.CONFIG
    own = layers.EncoderBlock(small.CONFIG.hidden_size, 2, 3, name="own")
    on_top = keras.Model(model.input, own(model.output["sequence_output"]))
    assert models.config_of_model(on_top) == small.CONFIG
    made = {"max_positions": 9, "type_vocab_size": 3, "layer_norm_eps": 1e-6}
    x = layers.Embeddings(7, 6, **made)(ids := keras.Input((None,), dtype="int32"))
    for number in range(2):
        x = layers.EncoderBlock(6, 3, 5, causal=True, name=f"layer_{number}")(x)
    x = layers.EncoderBlock(6, 2, 5, name="own")(x)
    found = models.config_of_model(keras.Model(ids, x))
    sizes = (found.num_hidden_layers, found.num_attention_heads, found.max_position_embeddings)
    assert (*sizes, found.type_vocab_size, found.attention) == (2, 3, 9, 3, "causal")
    assert models.config_of_model(keras.Model(ids, layers.Embeddings(7, 6)(ids))) is None


# ---------------------------------------------------------------------------- a model of layers


def composed() -> BertModel:
    """As in docs/library.md, "Build a model from the layers", with the masked-LM head too."""
    config = small.CONFIG
    names = ("input_ids", "segment_ids", "input_mask", "masked_lm_positions")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    ids, segments, mask, positions = inputs.values()
    embeddings = layers.Embeddings.from_bert_config(config)
    x = embeddings(ids, segments)  # [B, S, D]
    for i in range(config.num_hidden_layers):
        x = layers.EncoderBlock.from_bert_config(config, name=f"layer_{i}")(
            x, padding_mask=mask
        )  # [B, S, D]
    logits = heads.NextSentenceHead.from_bert_config(config)(
        layers.Pooler.from_bert_config(config)(x)
    )  # [B, 2]
    outputs = {"sequence_output": x, "next_sentence_logits": logits}
    head = heads.MaskedLmHead.from_bert_config(config, embeddings=embeddings)
    outputs["masked_lm_logits"] = head(x, positions)  # [B, P, V]
    return BertModel(inputs, outputs)


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


# ---------------------------------------------------------------------------- Keras's contract


def test_a_quantized_model(tmp_path):
    """A kernel of int8 is within half a step, a 127th of its column's largest, of what it was."""
    model = make_model("pretraining", small.CONFIG)
    reference.put_weights(model, reference.random_weights(small.CONFIG, seed=8))
    inputs = small.model_inputs(small.examples())
    exact = np.array(model(inputs)["sequence_output"])
    dense = model.get_layer("layer_1").intermediate
    kernel = np.array(dense.kernel)
    model.quantize("int8")
    step = 1 / np.array(dense.kernel_scale)  # [F]
    np.testing.assert_allclose(step, np.abs(kernel).max(axis=0) / 127, rtol=1e-4)
    assert (np.abs(np.array(dense.kernel) * step - kernel) < 0.51 * step).all()
    assert 1e-4 < np.abs(np.array(model(inputs)["sequence_output"]) - exact).max() < 0.2
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    close(loaded(inputs)["masked_lm_logits"], model(inputs)["masked_lm_logits"])


def test_frozen_layers_are_frozen_in_the_file(tmp_path):
    model = BertModel(small.CONFIG)
    model.get_layer("layer_1").trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    trained = {variable.path for variable in loaded.trainable_variables}
    assert trained == {v.path for v in loaded.weights if not v.path.startswith("layer_1/")}


def test_mixed_precision(monkeypatch):
    softmax_types, softmax = [], ops.softmax

    def noted_softmax(x, axis=-1):
        softmax_types.append(x.dtype)
        return softmax(x, axis=axis)

    with layer_precision("bfloat16"):
        model = make_model("pretraining", small.CONFIG)
    weights = reference.random_weights(small.CONFIG, seed=2, scale=0.1)
    reference.put_weights(model, weights)
    inputs = small.model_inputs(small.examples())
    monkeypatch.setattr(ops, "softmax", noted_softmax)
    outputs = model(inputs)
    assert softmax_types == [tf.float32] * small.CONFIG.num_hidden_layers
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}
    expected = reference.pretraining_outputs(weights, small.CONFIG, inputs)
    for name, value in outputs.items():
        assert value.dtype == (tf.float32 if name == "next_sentence_logits" else tf.bfloat16), name
        error = np.abs(np.array(tf.cast(value, tf.float32)) - expected[name])
        assert error.max() < 0.02 * np.abs(expected[name]).max(), name


# ---------------------------------------------------------------------------- what models refuse


def test_a_backbone_is_the_encoder_or_is_refused():
    """Of a block that is used twice, of a layer between blocks, of ids without a mask."""
    model = make_model("classification", small.CONFIG, num_classes=3)
    ids = np.random.default_rng(2).integers(1, V, (B, S))
    close(model.backbone(ids)["pooled_output"], model(ids)["pooled_output"])
    inputs = {"input_ids": keras.Input((None,), dtype="int32", name="input_ids")}
    own = layers.EncoderBlock.from_bert_config(small.CONFIG, name="layer_0")
    other = layers.EncoderBlock.from_bert_config(small.CONFIG, name="layer_1")
    embed = layers.Embeddings.from_bert_config(small.CONFIG)
    x = embed(inputs["input_ids"])
    pool = layers.Pooler.from_bert_config(small.CONFIG)
    for y in (pool(own(own(x))), other(layers.Dropout(0.1)(own(x)))):
        assert not hasattr(BertModel(inputs, y), "backbone")
    blind = layers.Embeddings.from_bert_config(small.CONFIG, mask_zero=False)(inputs["input_ids"])
    block = layers.EncoderBlock.from_bert_config(small.CONFIG, name="layer_0")
    assert not hasattr(BertModel(inputs, block(blind)), "backbone")


def test_what_changes_layers_is_traced_again():
    model = make_model("classification", small.CONFIG, num_classes=3)
    ids = np.random.default_rng(2).integers(1, V, (B, S))
    backbone = model.backbone
    backbone.predict(ids, verbose=0)
    model.quantize("int8")
    found = backbone.predict(ids, verbose=0)["pooled_output"]
    close(found, backbone(ids)["pooled_output"], 1e-5)


def test_a_head_of_another_models_embeddings_is_refused():
    ids = keras.Input((None,), dtype="int32", name="input_ids")
    positions = keras.Input((None,), dtype="int32", name="masked_lm_positions")
    first, second = (layers.Embeddings.from_bert_config(small.CONFIG, name=n) for n in "ab")
    second(ids)
    words = heads.MaskedLmHead(embeddings=second)(first(ids), positions)
    with pytest.raises(InputError, match="tied to b of another model"):
        BertModel({"input_ids": ids, "masked_lm_positions": positions}, words)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_ids_that_have_lost_digits(dtype):
    with pytest.raises(InputError, match=f"input_ids of type {dtype}"):
        BertModel(small.CONFIG)(tf.cast([[7, 3]], dtype))


def test_masks_with_one_axis_for_all_heads():
    x = np.random.default_rng(4).normal(size=(2, 5, 6)).astype(np.float32)
    block, seen = layers.EncoderBlock(**SIZES), np.tril(np.ones((2, 5, 5)))
    close(block(x, attention_mask=seen[:, None]), block(x, attention_mask=seen))
    with pytest.raises(InputError, match=r"attention_mask of shape \[2, 1, 1, 5\]"):
        block(x, attention_mask=np.ones((2, 1, 1, 5)))
