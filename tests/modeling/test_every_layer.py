"""What Keras promises of a layer and of a model holds for every one of ours.

Configurations, `build` alone, shapes and types, a step of `fit`, precision, quantization, files,
masks and clones, without a warning, which pytest makes an error. The arithmetic: test_layers.py.
"""

import dataclasses
import inspect
import json
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import model_files
import numpy as np
import pytest
import small
from keras import ops

import bert_tf
from bert_tf import BertConfig, BertModel, heads, layers, make_model
from bert_tf.errors import InputError
from bert_tf.modeling.heads import MergeChoices
from bert_tf.modeling.parts import parts_of

# No two sizes are alike, but P and the 3 classes of the texts.
B, S, P = small.ROWS, small.S, small.P
# Large weights, so that all that is computed of them differs.
CONFIG = dataclasses.replace(small.CONFIG, num_hidden_layers=1, initializer_range=0.3)
V, T, M = CONFIG.vocab_size, CONFIG.type_vocab_size, CONFIG.max_position_embeddings
D, F, N = CONFIG.hidden_size, CONFIG.intermediate_size, CONFIG.num_attention_heads
U, C, CHOICES = 19, 6, 9  # units of Dense, classes
LABELS = ("bad", "so so", "good")
BATCH = small.examples()
IDS, SEGMENTS, POSITIONS = BATCH["input_ids"], BATCH["segment_ids"], BATCH["masked_lm_positions"]
X = small.hidden_states(B, S, D).astype(np.float32)
POOLED = small.hidden_states(B, D, seed=2).astype(np.float32)
TEXTS = np.array(["w0 w3 w1", "w2"], object)


@pytest.fixture(autouse=True, scope="module")
def _seed():
    keras.utils.set_random_seed(4)


# ---------------------------------------------------------------------------- every layer


class Case(NamedTuple):
    """A kind of layer.

    Attributes:
      arguments: all of the constructor, none of them as by default but for those of Keras.
      inputs: of `call`, by position.
      output: shape.
      shapes: of the weights.
      make: called with arguments and those of Keras.
    """

    arguments: dict[str, Any]
    inputs: tuple[np.ndarray, ...]
    output: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    make: Callable[..., keras.layers.Layer]


def tied_head(**arguments: Any) -> heads.MaskedLmHead:
    embeddings = layers.Embeddings(V, D, M, T)
    embeddings.build((B, S))
    head = heads.MaskedLmHead(**arguments)
    head.tie(embeddings)
    return head


def tokenizer_layer(**arguments: Any) -> layers.Tokenizer:
    return layers.Tokenizer(**{"vocabulary": model_files.PIECES, "do_lower_case": True} | arguments)


KERAS = {"name", "trainable", "dtype"}


def own_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a configuration what is not of every layer of Keras."""
    return {name: value for name, value in config.items() if name not in KERAS}


RANGE = {"initializer_range": 0.3}
NORM = {"layer_norm_eps": 1e-3}
DENSE, NARROW, WIDE = ((D, D), (D,)), ((F, D), (D,)), ((D, F), (F,))
EVERY = {
    layers.Embeddings: Case(
        {"vocab_size": V, "hidden_size": D, "max_positions": M, "type_vocab_size": T}
        | {"dropout": 0.2, "mask_zero": False, **RANGE, **NORM},
        (IDS, SEGMENTS),
        (B, S, D),
        ((V, D), (T, D), (M, D), (D,), (D,)),
        layers.Embeddings,
    ),
    layers.SelfAttention: Case(
        {"hidden_size": D, "num_heads": N, "dropout": 0.2, "causal": True, **RANGE},
        (X,),
        (B, S, D),
        DENSE * 3,
        layers.SelfAttention,
    ),
    layers.EncoderBlock: Case(
        {"hidden_size": D, "num_heads": N, "intermediate_size": F, "dropout": 0.2}
        | {"attention_dropout": 0.4, "activation": "relu", "causal": True, **RANGE, **NORM},
        (X,),
        (B, S, D),
        (*DENSE * 4, *WIDE, *NARROW, *((D,),) * 4),
        layers.EncoderBlock,
    ),
    layers.Pooler: Case({"hidden_size": D, **RANGE}, (X,), (B, D), DENSE, layers.Pooler),
    layers.Dense: Case(
        own_of(keras.layers.Dense(U, activation="tanh").get_config()),
        (X,),
        (B, S, U),
        ((D, U), (U,)),
        layers.Dense,
    ),
    layers.Dropout: Case({"rate": 0.2, "seed": 8}, (X,), (B, S, D), (), layers.Dropout),
    heads.MaskedLmHead: Case(
        {"hidden_size": D, "vocab_size": V, "activation": "relu", "causal": True, **RANGE, **NORM},
        (X, POSITIONS),
        (B, P, V),
        (*DENSE, (D,), (D,), (V,)),
        tied_head,
    ),
    heads.SequenceClassifier: Case(
        {"num_classes": C, **RANGE}, (POOLED,), (B, C), ((C, D), (C,)), heads.SequenceClassifier
    ),
    heads.TokenClassifier: Case(
        {"num_classes": C, **RANGE}, (X,), (B, S, C), ((C, D), (C,)), heads.TokenClassifier
    ),
    heads.NextSentenceHead: Case(
        {"num_classes": C, **RANGE}, (POOLED,), (B, C), ((C, D), (C,)), heads.NextSentenceHead
    ),
    MergeChoices: Case(
        {"activity_regularizer": None, "autocast": True},  # Keras's, of layers without arguments
        (np.stack([IDS] * CHOICES, axis=1),),
        (B * CHOICES, S),
        (),
        MergeChoices,
    ),
}
ATTENDING = (layers.SelfAttention, layers.EncoderBlock)
HALF = "mixed_bfloat16"
POLICIES = {"float32": "float32", HALF: "bfloat16"}  # what each computes in
every_layer = pytest.mark.parametrize("kind", EVERY)


def made(kind: type, **arguments: Any) -> keras.layers.Layer:
    return EVERY[kind].make(**EVERY[kind].arguments | arguments)


def tied_alike(copy: keras.layers.Layer, layer: keras.layers.Layer) -> keras.layers.Layer:
    """The copy, tied to what the layer is tied to, if it is."""
    if isinstance(layer, heads.MaskedLmHead):
        copy.tie(layer._embeddings())
    return copy


def equal(ours: Any, expected: Any) -> None:
    keras.tree.assert_same_structure(ours, expected)
    for y, z in zip(keras.tree.flatten(ours), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(y, z)


def shape_and_type(y: Any) -> tuple:
    return tuple(y.shape), keras.backend.standardize_dtype(y.dtype)


def test_no_layer_is_left_out():
    public = {getattr(layers, name) for name in layers.__all__}
    of_heads = [getattr(heads, name) for name in heads.__all__]
    public |= {
        value
        for value in of_heads
        if isinstance(value, type) and issubclass(value, keras.layers.Layer)
    }
    assert public == (EVERY.keys() | {layers.Tokenizer}) - {MergeChoices}


# ---------------------------------------------------------------------------- configurations


@every_layer
def test_a_configuration_is_the_arguments_and_makes_the_same_layer(kind):
    """Through JSON; and the copy computes the same with the same weights."""
    layer = made(kind, name="mine", trainable=False, dtype="float32")
    config = layer.get_config()
    assert own_of(config) == EVERY[kind].arguments
    assert (config["name"], config["trainable"]) == ("mine", False)
    assert config["dtype"]["config"] == {"name": "float32"}
    y = layer(*EVERY[kind].inputs)
    text = json.dumps(keras.saving.serialize_keras_object(layer))
    copies = (
        kind.from_config(json.loads(json.dumps(config))),
        keras.saving.deserialize_keras_object(json.loads(text)),
    )
    for copy in copies:
        assert type(copy) is kind
        assert copy.get_config() == config
        tied_alike(copy, layer)(*EVERY[kind].inputs)
        for weight, value in zip(copy.weights, layer.get_weights(), strict=True):
            weight.assign(value)
        equal(copy(*EVERY[kind].inputs), y)


@every_layer
def test_the_order_of_a_configuration_is_that_of_the_arguments(kind):
    """So a file has the same bytes in every process."""
    arguments = EVERY[kind].arguments
    expected = [name for name in inspect.signature(kind.__init__).parameters if name in arguments]
    if kind is not layers.Dense:  # Keras's own
        assert [name for name in made(kind).get_config() if name in arguments] == expected


# Keras's own layers write a get_config, and so must what is derived of them.
@pytest.mark.parametrize("kind", [k for k in EVERY if k not in (layers.Dense, layers.Dropout)])
def test_an_argument_of_a_users_own_is_kept(kind):
    class Own(kind):
        def __init__(self, *args, factor=1.5, **kwargs):
            super().__init__(*args, **kwargs)
            self.factor = factor

    arguments = EVERY[kind].arguments
    config = json.loads(json.dumps(Own(factor=2.5, **arguments).get_config()))
    assert config["factor"] == 2.5
    assert config.keys() >= arguments.keys()
    copy = Own.from_config(config)
    assert (copy.factor, copy.get_config()) == (2.5, config)


def test_the_tokenizer_is_saved_with_its_vocabulary():
    layer = tokenizer_layer(length=S, max_length=12, name="mine")
    config = json.loads(json.dumps(layer.get_config()))
    assert own_of(config).keys() == {"vocabulary", "length", "max_length"}
    assert (config["length"], config["max_length"], config["trainable"]) == (S, 12, False)
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    copies = layers.Tokenizer.from_config(config), keras.saving.deserialize_keras_object(serialized)
    expected = layer(TEXTS)
    assert expected["input_ids"].numpy().tolist()[1] == [2, 5 + 2, 3, 0, 0, 0, 0]
    for copy in copies:
        assert copy.get_config() == config
        equal(copy(TEXTS), expected)
    symbolic = layer(keras.Input((), dtype="string"))
    for name, y in expected.items():
        assert shape_and_type(y) == ((2, S), "int32")
        assert shape_and_type(symbolic[name]) == ((None, S), "int32")
    assert not layer.weights


# ---------------------------------------------------------------------------- build, shapes, types


@every_layer
def test_build_alone_makes_all_weights(kind):
    layer = made(kind)
    layer.build(EVERY[kind].inputs[0].shape)
    expected = EVERY[kind].shapes
    assert sorted(tuple(weight.shape) for weight in layer.weights) == sorted(expected)
    assert layer.count_params() == sum(map(math.prod, expected))
    assert len(layer.trainable_weights) == len(layer.weights)
    before = [id(weight) for weight in layer.weights]
    layer(*EVERY[kind].inputs)
    assert [id(weight) for weight in layer.weights] == before


def test_numbers_of_parameters():
    """Of the shapes above, and of the models; a formula each."""
    counts = {kind: sum(map(math.prod, case.shapes)) for kind, case in EVERY.items()}
    square, norm = D * D + D, 2 * D
    block = 4 * square + 2 * D * F + F + D + 2 * norm
    embeddings = (V + T + M) * D + norm
    words = square + norm + V
    assert counts[layers.Embeddings] == embeddings
    assert counts[layers.SelfAttention] == 3 * square
    assert counts[layers.EncoderBlock] == block
    assert counts[heads.MaskedLmHead] == words
    encoder = embeddings + block + square
    classes = {
        "classification": 3, "multi_label": 3, "token_labels": 3, "regression": 1,
        "multiple_choice": 1, "question_answering": 2, "embeddings": 0,
    }  # fmt: skip
    expected = {name: encoder + number * (D + 1) for name, number in classes.items()}
    expected |= {"fill_mask": encoder + words, "pretraining": encoder + words + 2 * (D + 1)}
    assert {name: model(name).count_params() for name in heads.NAMES} == expected
    assert BertModel(CONFIG).count_params() == encoder


@pytest.mark.parametrize("policy", POLICIES)
@every_layer
def test_shapes_and_types(kind, policy):
    """Of an eager call, a symbolic one, and what is said of it beforehand; and batches of any."""
    layer = made(kind, dtype=policy)
    inputs, dtype = EVERY[kind].inputs, "int32" if kind is MergeChoices else POLICIES[policy]
    expected = EVERY[kind].output, dtype
    symbols = [keras.KerasTensor(x.shape, x.dtype) for x in inputs]
    assert shape_and_type(layer.compute_output_spec(*symbols)) == expected
    symbols = [keras.Input(batch_shape=x.shape, dtype=x.dtype) for x in inputs]
    assert shape_and_type(layer(*symbols)) == expected
    assert shape_and_type(layer(*inputs)) == expected
    shapes = [x.shape for x in inputs]
    shapes = shapes[:1] if kind is layers.Embeddings else shapes
    assert layer.compute_output_shape(*shapes) == expected[0]
    known = (D, U, C, V)
    symbols = [
        keras.Input([n if n in known else None for n in x.shape[1:]], dtype=x.dtype) for x in inputs
    ]
    assert layer(*symbols).shape == tuple(n if n in known else None for n in expected[0])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ATTENDING)
def test_shapes_and_types_with_scores(kind, policy):
    layer = made(kind, dtype=policy)
    expected = [((B, S, D), POLICIES[policy]), ((B, N, S, S), "float32")]
    with_scores = {"return_attention_scores": True}
    said = layer.compute_output_spec(keras.KerasTensor(X.shape), **with_scores)
    symbolic = layer(keras.Input(batch_shape=X.shape), **with_scores)
    eager = layer(X, **with_scores)
    for pair in (said, symbolic, eager):
        assert [*map(shape_and_type, pair)] == expected
    np.testing.assert_allclose(ops.sum(eager[1], axis=-1), np.ones((B, N, S)), rtol=1e-6)
    equal(ops.cast(eager[0], "float32"), ops.cast(layer(X), "float32"))


@pytest.mark.parametrize("policy", POLICIES)
def test_shapes_and_types_with_losses(policy):
    layer = made(heads.MaskedLmHead, dtype=policy)
    inputs = X, POSITIONS, BATCH["masked_lm_ids"]
    expected = [((B, P, V), POLICIES[policy]), ((B, P), "float32")]
    symbols = [keras.Input(batch_shape=x.shape, dtype=x.dtype) for x in inputs]
    for pair in (layer.compute_output_spec(*symbols), layer(*symbols), layer(*inputs)):
        assert [*map(shape_and_type, pair)] == expected


@every_layer
def test_precision_is_that_of_all_parts(kind):
    """What is computed is in 16 bits, what is trained in 32; also by the global policy."""
    layer = made(kind, dtype=HALF)
    layer(*EVERY[kind].inputs)
    for part in parts_of(layer, keras.layers.Layer):
        if part is not layer and isinstance(part, layers.Embeddings):
            continue  # that the head is tied to
        assert (part.compute_dtype, part.variable_dtype) == ("bfloat16", "float32"), part.path
        assert part.dtype_policy.name == HALF
    assert all(weight.dtype == "float32" for weight in layer.weights)
    try:
        keras.config.set_dtype_policy(HALF)
        default = made(kind).compute_dtype
    finally:
        keras.config.set_dtype_policy("float32")
    is_classifier = issubclass(kind, heads.SequenceClassifier)  # whose close logits stay apart
    assert default == ("float32" if is_classifier else "bfloat16")


# ---------------------------------------------------------------------------- models


def model(head: str, config: BertConfig = CONFIG, **options: Any) -> BertModel:
    """Of 3 classes or of 9 choices where a head has these."""
    if head in ("classification", "multi_label", "token_labels"):
        options["num_classes"] = len(LABELS)
    if head == "multiple_choice":
        options["num_choices"] = CHOICES
    return make_model(head, config, **options)


def of_choices(x: np.ndarray) -> np.ndarray:
    """[B, ...] -> [B, C, ...], the choices of a row from other rows."""
    return np.stack([np.roll(x, n, axis=0) for n in range(CHOICES)], axis=1)


def inputs_for(model: keras.Model) -> dict[str, np.ndarray]:
    """Of a functional model's own names and ranks."""
    if isinstance(model, Subclassed):
        return {name: BATCH[name] for name in ("input_ids", "input_mask", "segment_ids")}
    inputs = {name: BATCH.get(name, POSITIONS) for name in model.input}
    if len(model.input["input_ids"].shape) == 3:
        inputs = {name: of_choices(x) for name, x in inputs.items()}
    return inputs


def outputs_of(model: keras.Model) -> dict[str, np.ndarray]:
    """Of `BATCH`, by name, in float32."""
    outputs = model(inputs_for(model))
    outputs = outputs if isinstance(outputs, Mapping) else {"logits": outputs}
    return {name: np.array(ops.cast(y, "float32")) for name, y in outputs.items()}


@pytest.mark.parametrize("head", ["encoder", *heads.NAMES])
def test_precision_of_a_model(head):
    is_encoder = head == "encoder"
    made = BertModel(CONFIG, dtype=HALF) if is_encoder else model(head, dtype=HALF)
    assert keras.config.dtype_policy().name == "float32"
    y = made(inputs_for(made))
    for name, value in made.output.items():
        is_logit = "logits" in name and name != "masked_lm_logits"
        expected = "float32" if is_logit else "bfloat16"
        assert value.dtype == keras.backend.standardize_dtype(y[name].dtype) == expected, name
    assert {weight.dtype for weight in made.weights} == {"float32"}
    for part in parts_of(made, keras.layers.Layer):
        if type(part).__module__.startswith("bert_tf.modeling.l"):
            assert part.compute_dtype == "bfloat16", part.path


# ---------------------------------------------------------------------------- a step of fit


def changes_of(model: keras.Model, targets: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """How much each value of each variable changes in a step of `fit` with SGD, by path."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0), dict.fromkeys(targets, loss))
    before = values_of(model)
    model.fit(inputs_for(model), dict(targets), batch_size=B, verbose=0)
    return {path: np.abs(value - before[path]) for path, value in values_of(model).items()}


def values_of(model: keras.Model) -> dict[str, np.ndarray]:
    return {v.path: ops.convert_to_numpy(v).astype(float) for v in model.variables}


def moved(change: np.ndarray) -> bool:
    return change.max() > 1e-6


def of_layers(*, with_words: bool = True) -> keras.Model:
    """A plain model of all layers that have weights, one of them frozen; tied words or none."""
    lengths = {"input_ids": S, "segment_ids": S, "masked_lm_positions": P}
    inputs = {name: keras.Input((n,), dtype="int32", name=name) for name, n in lengths.items()}
    embeddings = layers.Embeddings(V, D, M, T, name="a")
    x = embeddings(inputs["input_ids"], inputs["segment_ids"])
    x = layers.SelfAttention(D, N, name="b", initializer_range=0.2)(x)
    x = layers.EncoderBlock(D, N, F, name="c", initializer_range=0.2)(x)
    pooled = layers.Pooler(D, name="d", initializer_range=0.2)(layers.Dropout(0.2, name="e")(x))
    outputs = {
        "next": heads.NextSentenceHead(name="g")(pooled),
        "text": heads.SequenceClassifier(C, name="h")(pooled),
        "tags": heads.TokenClassifier(C, name="i")(layers.Dense(U, name="j")(x)),
        "frozen": heads.TokenClassifier(3, name="k", trainable=False)(x),
    }
    if with_words:
        head = heads.MaskedLmHead(embeddings=embeddings, name="f")
        outputs["words"] = head(x, inputs["masked_lm_positions"])
    else:
        del inputs["masked_lm_positions"]
    return keras.Model(inputs, outputs)


@pytest.fixture(scope="module")
def of_a_step() -> dict[str, np.ndarray]:
    targets = {
        "words": BATCH["masked_lm_ids"],
        "next": BATCH["next_sentence_labels"],
        "text": np.arange(B),
        "tags": IDS % C,
        "frozen": IDS % 3,
    }
    return changes_of(of_layers(), targets)


TRAINED = {
    layers.Embeddings: "a", layers.SelfAttention: "b", layers.EncoderBlock: "c",
    layers.Pooler: "d", heads.MaskedLmHead: "f", heads.NextSentenceHead: "g",
    heads.SequenceClassifier: "h", heads.TokenClassifier: "i", layers.Dense: "j",
}  # fmt: skip


@pytest.mark.parametrize("kind", TRAINED)
def test_a_step_of_fit_trains_all_weights(kind, of_a_step):
    """But the bias of keys, which adds the same to all scores of a token."""
    changes = {n: v for n, v in of_a_step.items() if n.startswith(f"{TRAINED[kind]}/")}
    assert len(changes) == len(EVERY[kind].shapes)
    assert [n for n, v in changes.items() if not moved(v) and not n.endswith("key/bias")] == []
    assert not any(moved(v) for n, v in changes.items() if n.endswith("key/bias"))


def test_a_step_of_fit_leaves_the_others(of_a_step):
    """Rows of tables that nothing reads, and frozen weights; dropout has drawn."""
    used = {"token_type_embeddings": set(SEGMENTS.flat), "position_embeddings": set(range(S))}
    for name, rows in used.items():
        of_rows = of_a_step[f"a/{name}"].max(axis=1)
        assert {row for row, change in enumerate(of_rows) if change > 1e-8} == rows
    assert of_a_step["a/word_embeddings"].max(axis=1).min() > 1e-8  # by the head, tied to it
    assert not any(v.any() for n, v in of_a_step.items() if n.startswith("k/"))
    states = [change for name, change in of_a_step.items() if name.startswith("seed_generator")]
    assert len(states) == 6  # of each Dropout: 1, 1, 3 and one by itself
    assert all(change.any() for change in states)


TARGETS = {
    "pretraining": {
        "masked_lm_logits": BATCH["masked_lm_ids"],
        "next_sentence_logits": BATCH["next_sentence_labels"],
    },
    "classification": {"logits": np.arange(B) % 3},
    "multiple_choice": {"logits": np.arange(B)},
    "token_labels": {"logits": IDS % 3},
    "question_answering": {"start_logits": np.arange(B), "end_logits": np.arange(B) + 1},
}


# What adds the same to all scores of a soft-max.
WITHOUT_GRADIENT = {
    "multiple_choice": {"classifier/output_bias"},
    "question_answering": {"squad/output_bias", "layer_0/output/LayerNorm/beta"},
}


@pytest.mark.parametrize("head", TARGETS)
def test_a_step_of_fit_trains_a_model(head):
    trained = model(head)
    if head in ("token_labels", "question_answering"):
        trained.pooler.trainable = False  # nothing reads it: of that Keras would warn
    changes = changes_of(trained, TARGETS[head])
    left = {weight.path for weight in trained.weights if not moved(changes[weight.path])}
    frozen = {weight.path for weight in trained.non_trainable_weights}
    key = {"layer_0/attention/self/key/bias"}
    assert left == frozen | key | WITHOUT_GRADIENT.get(head, set())


# ---------------------------------------------------------------------------- quantized


@keras.saving.register_keras_serializable(package="test_every_layer")
class Subclassed(keras.Model):
    """Of layers that are its arguments: Keras loads quantized layers by their configurations."""

    def __init__(self, embeddings, block, tags, **kwargs):
        super().__init__(**kwargs)
        self.embeddings, self.block, self.tags = embeddings, block, tags

    def call(self, inputs):
        x = self.embeddings(inputs["input_ids"], inputs["segment_ids"], mask=inputs["input_mask"])
        return self.tags(self.block(x))

    def get_config(self):
        parts = {"embeddings": self.embeddings, "block": self.block, "tags": self.tags}
        serialize = keras.saving.serialize_keras_object
        return {**super().get_config(), **{name: serialize(part) for name, part in parts.items()}}

    @classmethod
    def from_config(cls, config):
        parts = ("embeddings", "block", "tags")
        deserialize = keras.saving.deserialize_keras_object
        return cls(**config | {name: deserialize(config[name]) for name in parts})


def subclassed() -> Subclassed:
    embeddings = layers.Embeddings.from_bert_config(CONFIG)
    block = layers.EncoderBlock.from_bert_config(CONFIG, name="a.block")
    model = Subclassed(embeddings, block, layers.Dense(U, name="tags"))
    model(inputs_for(model))
    return model


QUANTIZED = {  # the dense layers of each, and the policy that they had
    "functional": (lambda: of_layers(with_words=False), 3 + 6 + 1 + 1, "float32"),
    "BertModel": (lambda: model("pretraining", dtype=HALF), 6 + 1 + 1, HALF),
    "subclassed": (subclassed, 6 + 1, "float32"),
}


@pytest.mark.parametrize("mode", ["int8", "float8"])
@pytest.mark.parametrize("kind", QUANTIZED)
def test_a_quantized_model_is_what_its_file_has(kind, mode, tmp_path):
    """In a file of the file too, and in a clone."""
    make, count, policy = QUANTIZED[kind]
    made = make()
    exact = outputs_of(made)
    with warnings.catch_warnings():
        if not isinstance(made, BertModel):  # Keras warns of every layer that has no int8
            warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
        made.quantize(mode)
    expected = outputs_of(made)
    assert any(np.abs(expected[name] - exact[name]).max() > 1e-4 for name in exact)
    for generation in range(2):
        made.save(tmp_path / f"{generation}.keras")
        made = keras.models.load_model(tmp_path / f"{generation}.keras")
        equal(outputs_of(made), expected)
        parts = parts_of(made, keras.layers.Layer)
        assert [part.quantization_mode for part in parts].count(mode) == count
        policies = {p.dtype_policy.name for p in parts if p.quantization_mode == mode}
        assert policies == {f"{mode}_from_{policy}"}
    if kind != "subclassed":
        clone = keras.models.clone_model(made)
        clone.set_weights(made.get_weights())
        equal(outputs_of(clone), expected)


# ---------------------------------------------------------------------------- files


@pytest.fixture(scope="module")
def tokenizer() -> bert_tf.FullTokenizer:
    return bert_tf.FullTokenizer("vocab.txt", True, pieces=model_files.PIECES)


@pytest.mark.parametrize("head", heads.NAMES)
def test_made_and_loaded_are_one(head, tokenizer, tmp_path):
    """By Keras, by bert_tf, and as weights of a new model."""
    made = model(head, tokenizer=tokenizer)
    if heads.head_named(head).has_names:
        made.labels = LABELS
    made.save(path := str(tmp_path / "model.keras"))
    by_keras = keras.models.load_model(path)
    by_bert_tf, its_tokenizer = bert_tf.load(path)
    fresh = model(head)
    bert_tf.load_checkpoint(fresh, path)
    expected = outputs_of(made)
    for copy in (by_keras, by_bert_tf, fresh):
        equal(outputs_of(copy), expected)
    for copy in (by_keras, by_bert_tf):
        assert type(copy) is BertModel
        assert (copy.labels, copy.name, copy.config) == (made.labels, made.name, CONFIG)
        assert copy.tokenizer.pieces == its_tokenizer.pieces == tokenizer.pieces
    if head == "embeddings":  # the others have the same tokenizers, which take time to make
        texts = [*TEXTS, "w4 " * 2 * M]  # the last is cut
        ids = made.tokenizer(texts)
        assert ids["input_ids"].shape == (3, M)
        for read in (by_keras.tokenizer, by_bert_tf.tokenizer, its_tokenizer):
            equal(dict(read(texts)), dict(ids))


TRAINED_BY = {
    "classification": (
        lambda path: bert_tf.classifier(path, labels=LABELS),
        list(TEXTS),
        lambda outputs: {"logits": outputs["logits"]},
    ),
    "token_labels": (
        lambda path: bert_tf.token_classifier(path, labels=LABELS),
        [text.split() for text in TEXTS],
        lambda outputs: {"logits": outputs["logits"][:, 1:4]},  # each word is a piece
    ),
    "question_answering": (
        lambda path: bert_tf.question_answerer(path, max_seq_length=11, max_query_length=3),
        list(TEXTS),
        lambda outputs: {name: outputs[name] for name in ("end_logits", "start_logits")},
    ),
}


@pytest.mark.parametrize("head", TRAINED_BY)
def test_models_that_fit_trains_on_texts(head, tokenizer, tmp_path):
    """They have the weights of their file, and so has their own, read in each way."""
    make, given, outputs = TRAINED_BY[head]
    made = model(head, tokenizer=tokenizer)
    made.labels = None if head == "question_answering" else LABELS
    made.save(tmp_path / "made.keras")
    of_text = make(str(tmp_path / "made.keras"))
    expected = outputs(made(tokenizer(list(TEXTS))))
    of_text.save(path := str(tmp_path / "texts.keras"))
    by_keras = keras.models.load_model(path)
    for copy in (of_text, by_keras):
        assert type(copy) is type(of_text)
        x = copy.read(given, None, None)[0] if head == "token_labels" else tokenizer(list(TEXTS))
        y = copy(x)
        y = y if isinstance(y, dict) else {"logits": y}
        assert y.keys() == expected.keys()
        for name, value in y.items():
            is_real = np.ones(value.shape, bool)
            is_real[1, 1:] = head != "token_labels" or len(value.shape) < 3
            np.testing.assert_allclose(
                np.array(value)[is_real], np.array(expected[name])[is_real], atol=1e-6
            )
        assert (copy.labels, copy.config) == (made.labels, CONFIG)
    equal(outputs(bert_tf.load(path)[0](tokenizer(list(TEXTS)))), expected)


# ---------------------------------------------------------------------------- masks


SEEN = {"bool": True, "7": 7, "-3": -3, "0.5": np.float32(0.5)}  # all that is not 0


def as_seen(mask: np.ndarray, seen: Any) -> np.ndarray:
    """The mask in the type of `seen`, which stands for True."""
    return np.where(mask, seen, np.zeros_like(seen))


REAL = np.arange(S) < np.array([[7], [2], [5], [1], [6]])  # [B, S]
PADDING = np.arange(S) != np.array([[1], [0], [3], [2], [6]])  # [B, S]
WHO = np.random.default_rng(5).random((B, N, S, S)) < 0.6


class Attending(keras.Model):
    """A layer that attends, behind one of Keras that masks zeros."""

    def __init__(self, layer):
        super().__init__()
        self.masking, self.layer = keras.layers.Masking(), layer

    def call(self, inputs):
        masks = {name: mask for name, mask in inputs.items() if name != "x"}
        return self.layer(self.masking(inputs["x"]), **masks)


def called(way: str, layer: keras.layers.Layer, inputs: dict[str, np.ndarray]) -> Any:
    """The output for x, of which zeros are masked, with masks."""
    if way == "eager":
        masks = {name: mask for name, mask in inputs.items() if name != "x"}
        return layer(keras.layers.Masking()(inputs["x"]), **masks)
    if way == "subclassed":
        return Attending(layer)(inputs)
    symbols = {
        name: keras.Input(x.shape[1:], dtype=x.dtype, name=name) for name, x in inputs.items()
    }
    masks = {name: mask for name, mask in symbols.items() if name != "x"}
    y = layer(keras.layers.Masking()(symbols["x"]), **masks)
    return keras.Model(symbols, y)(inputs)


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("way", ["eager", "functional", "subclassed"])
@pytest.mark.parametrize("kind", ATTENDING)
def test_a_token_sees_what_all_masks_allow(kind, way, seen):
    """As by one attention_mask, the product of all; 0 is not seen, anything else is."""
    layer = kind.from_bert_config(CONFIG)
    x = X * REAL[..., None]
    plain = np.array(layer(X))
    for padding in (None, PADDING):
        for attention in (None, WHO[:, 0], WHO):
            whole = REAL[:, None, None, :]
            masks = {}
            if padding is not None:
                whole = whole & padding[:, None, None, :]
                masks["padding_mask"] = as_seen(padding, SEEN[seen])
            if attention is not None:
                whole = whole & (attention if attention.ndim == 4 else attention[:, None])
                masks["attention_mask"] = as_seen(attention, SEEN[seen])
            whole = np.broadcast_to(whole, (B, N, S, S))
            y = called(way, layer, {"x": x, **masks})
            small.close(y, np.array(layer(x, attention_mask=whole)))
            assert np.abs(np.array(y) - plain).max() > 1e-2
            np.testing.assert_array_equal(y._keras_mask, REAL)


@pytest.mark.parametrize("seen", SEEN)
def test_the_mask_of_embeddings(seen):
    """Given, it is Keras's mask; left out, that of ids; without mask_zero there is none."""
    layer = layers.Embeddings.from_bert_config(CONFIG)
    mask = as_seen(PADDING, SEEN[seen])
    np.testing.assert_array_equal(layer(IDS, SEGMENTS, mask=mask)._keras_mask, PADDING)
    np.testing.assert_array_equal(layer(IDS, SEGMENTS)._keras_mask, IDS != 0)
    np.testing.assert_array_equal(layer(IDS)._keras_mask, IDS != 0)
    ids, given = keras.Input((S,), dtype="int32"), keras.Input((S,), dtype=mask.dtype)
    functional = keras.Model([ids, given], layer(ids, mask=given))
    np.testing.assert_array_equal(functional([IDS, mask])._keras_mask, PADDING)
    bare = layers.Embeddings.from_bert_config(CONFIG, mask_zero=False)
    np.testing.assert_array_equal(bare(IDS, mask=mask)._keras_mask, PADDING)
    assert getattr(bare(IDS, SEGMENTS), "_keras_mask", None) is None


ENDS = (layers.Pooler, heads.MaskedLmHead)


@pytest.mark.parametrize("kind", [k for k, v in EVERY.items() if v.inputs[0] is X])
def test_the_mask_of_an_output(kind):
    """It is the input's; what has no places of its own has none."""
    layer = made(kind)
    x = keras.layers.Masking()(X * REAL[..., None])
    y = layer(x, *EVERY[kind].inputs[1:])
    symbols = [keras.Input(batch_shape=x.shape, dtype=x.dtype) for x in EVERY[kind].inputs]
    symbolic = layer(keras.layers.Masking()(symbols[0]), *symbols[1:])
    if kind in ENDS:
        assert getattr(y, "_keras_mask", None) is None
        assert getattr(symbolic, "_keras_mask", None) is None
    else:
        np.testing.assert_array_equal(y._keras_mask, REAL)
        assert symbolic._keras_mask.shape == (B, S)
    if kind in ATTENDING:
        y, scores = layer(x, return_attention_scores=True)
        np.testing.assert_array_equal(y._keras_mask, REAL)
        assert getattr(scores, "_keras_mask", None) is None


@pytest.mark.parametrize("attention", ["bidirectional", "causal"])
@pytest.mark.parametrize("head", heads.NAMES)
def test_the_mask_of_a_model(head, attention):
    """By both names, as a layer of another model, and as Keras's mask of ids."""
    made = model(head, dataclasses.replace(CONFIG, attention=attention))
    inputs = inputs_for(made)
    ids, mask = np.maximum(inputs.pop("input_ids"), 1), inputs.pop("input_mask") != 0
    others = {"input_ids": ids, **inputs}
    expected = made(others | {"input_mask": mask.astype(np.int32)})
    unmasked = made(others)
    assert any(np.abs(np.array(unmasked[n]) - y).max() > 1e-2 for n, y in expected.items())
    for seen in SEEN.values():
        equal(made(others | {"input_mask": as_seen(mask, seen)}), expected)
        equal(made(others, attention_mask=as_seen(mask, seen)), expected)
    given = others | {"input_mask": as_seen(mask, SEEN["0.5"])}
    symbols = {n: keras.Input(x.shape[1:], dtype=x.dtype, name=n) for n, x in given.items()}
    equal(keras.Model(symbols, made(symbols))(given), expected)
    equal(made(others, mask=mask), expected)
    equal(made(others, mask=dict.fromkeys(inputs) | {"input_ids": mask}), expected)
    if "sequence_output" in expected:
        np.testing.assert_array_equal(expected["sequence_output"]._keras_mask, mask)


# ---------------------------------------------------------------------------- clones


def test_a_clone_of_a_bert_model_is_tied_to_its_own_table():
    made = model("pretraining")
    clone = keras.models.clone_model(made)
    assert type(clone) is BertModel
    clone.set_weights(made.get_weights())
    expected = outputs_of(made)
    equal(outputs_of(clone), expected)
    assert len(clone.weights) == len(made.weights)
    table = clone.embeddings.word_embeddings
    table.assign(ops.flip(table, axis=0))
    changed = outputs_of(clone)["masked_lm_logits"]
    assert np.abs(changed - expected["masked_lm_logits"]).max() > 1e-2
    equal(outputs_of(made), expected)


@pytest.mark.parametrize("way", ["clone", "file"])
def test_a_copy_of_a_plain_model_is_refused_until_it_is_tied(way, tmp_path):
    made = of_layers()
    if way == "clone":
        copy = keras.models.clone_model(made)
        copy.set_weights(made.get_weights())
    else:
        made.save(tmp_path / "model.keras")
        copy = keras.models.load_model(tmp_path / "model.keras")
    with pytest.raises(InputError, match=r"f, a head that is tied to no embeddings[^$]*f\.tie\("):
        outputs_of(copy)
    wrong = layers.Embeddings(V, D + 1, M, T)
    with pytest.raises(InputError, match=f"{V} word pieces and hidden_size {D + 1}"):
        copy.get_layer("f").tie(wrong)
    copy.get_layer("f").tie(copy.get_layer("a"))
    equal(outputs_of(copy), outputs_of(made))
