"""LoRA: what is trained, what is computed and what is saved."""

import keras
import model_files
import numpy as np
import pytest
import reference
import small

from bert_tf import BertModel, make_model
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.matching import load_checkpoint
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError
from bert_tf.modeling.inputs import TOKEN_INPUTS
from bert_tf.modeling.lora import TARGETS, add_lora, frozen_kernel

D, F = small.CONFIG.hidden_size, small.CONFIG.intermediate_size
LAYERS, CLASSES, RANK = small.CONFIG.num_hidden_layers, model_files.NUM_CLASSES, 5
HEAD = CLASSES * D + CLASSES  # weights of it
BATCH = small.examples()
INPUTS = {name: BATCH[name] for name in TOKEN_INPUTS}
QUERY = "bert/encoder/layer_1/attention/self/query/kernel"


def classifier() -> BertModel:
    """With one output, as `bert_tf.classifier` makes it."""
    model = make_model("classification", small.CONFIG, num_classes=CLASSES)
    reference.put_weights(model, model_files.tensors_of("classifier"))
    return BertModel(model.input, model.output["logits"], name=model.name)


def logits(model: keras.Model) -> np.ndarray:
    return np.array(model(INPUTS))


def train(model: keras.Model, steps: int = 3) -> None:
    keras.utils.set_random_seed(1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.05), loss, run_eagerly=True)  # no seconds of tracing
    labels = np.arange(small.ROWS) % CLASSES
    model.fit(INPUTS, labels, batch_size=small.ROWS, epochs=steps, verbose=0)


@pytest.fixture(scope="module")
def before() -> dict[str, np.ndarray]:
    return model_files.tensors_of("classifier")


@pytest.fixture(scope="module")
def trained() -> keras.Model:
    model = classifier()
    add_lora(model, RANK, alpha=10)
    train(model)
    return model


# ---------------------------------------------------------------------------- what is trained


@pytest.mark.parametrize(
    ("targets", "of_a_layer", "others"),
    [
        (("query", "pooler"), D + D, D + D),
        (("output", "key", "attention_output"), F + D + 2 * (D + D), 0),
        (tuple(TARGETS), 4 * (D + D) + 2 * (D + F), D + D),
    ],
)
def test_the_number_of_trained_weights(targets, of_a_layer, others):
    """in + out weights a rank of each kernel, and the head; also if the encoder was frozen."""
    model = classifier()
    for layer in model.layers[:-1]:
        layer.trainable = False
    expected = RANK * (LAYERS * of_a_layer + others) + HEAD
    assert add_lora(model, RANK, targets=targets) == expected
    assert sum(np.size(v) for v in model.trainable_variables) == expected


def test_nothing_changes_at_first_and_then_the_factors_and_the_head_alone():
    """And a quantized model has what training changed, but for rounding."""
    model = classifier()
    unchanged = logits(model)
    keras.utils.set_random_seed(2)  # of the factors
    add_lora(model, RANK, alpha=10)
    np.testing.assert_array_equal(logits(model), unchanged)
    frozen = {id(v): np.array(v) for v in model.non_trainable_variables}
    start = {id(v): np.array(v) for v in model.trainable_variables}
    train(model)
    assert np.abs(logits(model) - unchanged).max() > 0.01
    for variable in model.weights:
        if id(variable) in frozen:
            np.testing.assert_array_equal(variable, frozen[id(variable)])
        else:
            assert (np.array(variable) != start[id(variable)]).any(), variable.path
    assert len(start) == 2 * 2 * LAYERS + 2
    wanted = logits(model)
    model.quantize("int8")
    assert 0 < np.abs(logits(model) - wanted).max() < 0.1 * np.abs(wanted - unchanged).max()


def test_arguments_that_are_none():
    model = classifier()
    for rank in (0, 2.5, True, D + 1):
        with pytest.raises(InputError, match="rank"):
            add_lora(model, rank)
    for targets in ("query", ("query", "dense")):
        with pytest.raises(KeyError):
            add_lora(model, targets=targets)
    assert len(model.trainable_variables) == len(model.weights)


def test_other_models():
    for inputs in ([keras.Input((3,))], []):  # a built model, and one that is not
        with pytest.raises(InputError, match="without a BERT encoder"):
            add_lora(keras.Sequential([*inputs, keras.layers.Dense(2, name="query")]))


# ---------------------------------------------------------------------------- what is saved


def merged_by_hand(model: keras.Model) -> np.ndarray:
    """The kernel QUERY of layer 1 + 10 / 5 of the product of its factors."""
    layer = model.get_layer("layer_1").attention.query
    a, b = np.array(layer.lora_kernel_a), np.array(layer.lora_kernel_b)
    return np.array(frozen_kernel(layer)) + 2 * a @ b


@pytest.mark.parametrize("kind", ["tf1", "hugging_face", "model.keras"])
def test_files_have_the_merged_kernels(tmp_path, trained, before, kind):
    path = str(tmp_path / kind)
    if kind.endswith(".keras"):
        trained.save(path)
    else:
        path = save_weights(trained, path, format=kind)
    weights = open_weights(path)
    tensors = model_files.all_tensors(weights)
    assert tensors.keys() == before.keys()
    changed = {name for name, value in before.items() if (tensors[name] != value).any()}
    assert changed == {"output_weights", "output_bias"} | {
        f"bert/encoder/layer_{i}/attention/self/{name}/kernel"
        for i in range(LAYERS)
        for name in ("query", "value")
    }
    np.testing.assert_allclose(tensors[QUERY], merged_by_hand(trained), rtol=1e-6, atol=1e-7)
    plain = classifier()
    plain.trainable = False  # frozen layers are loaded too
    load_checkpoint(plain, weights, required=".*")
    np.testing.assert_allclose(logits(plain), logits(trained), rtol=1e-5, atol=1e-5)
    if kind.endswith(".keras"):
        loaded = keras.models.load_model(path, compile=False)
        assert len(loaded.trainable_variables) == len(plain.weights) == len(loaded.weights)
        np.testing.assert_allclose(logits(loaded), logits(trained), rtol=1e-5, atol=1e-5)


def test_what_is_saved_is_not_rounded_to_the_type_that_is_computed_in(tmp_path, before):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = classifier()
    finally:
        keras.config.set_dtype_policy("float32")
    add_lora(model, RANK)
    model.save(f"{tmp_path}/model.keras")
    written = save_weights(model, f"{tmp_path}/a", format="tf1")
    for path in (f"{tmp_path}/model.keras", written):
        model_files.assert_same(model_files.all_tensors(open_weights(path)), before)


def test_weights_that_are_loaded_again_can_be_trained_further(tmp_path, trained):
    """Keras's own loading leaves both factors 0, whose gradients are 0 for ever."""
    path = str(tmp_path / "model.weights.h5")
    trained.save_weights(path)
    model = classifier()
    add_lora(model, RANK, alpha=10)
    model.load_weights(path)
    np.testing.assert_allclose(logits(model), logits(trained), rtol=1e-5, atol=1e-5)
    second = [v for v in model.trainable_variables if v.name == "lora_kernel_b"]
    assert not any(np.any(v) for v in second)
    train(model, steps=1)
    assert all(np.any(v) for v in second)
