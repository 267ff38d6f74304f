"""LoRA: what is trained, what is computed and what is saved."""

import keras
import model_files
import numpy as np
import pytest
import reference
import small

from bert_tf import BertModel, make_model
from bert_tf.checkpoints.loading import load_checkpoint, open_weights
from bert_tf.checkpoints.saving import save_weights
from bert_tf.errors import InputError
from bert_tf.modeling import models
from bert_tf.modeling.lora import TARGETS, add_lora

D, F = small.CONFIG.hidden_size, small.CONFIG.intermediate_size
LAYERS, CLASSES, RANK = small.CONFIG.num_hidden_layers, model_files.NUM_CLASSES, 5
BATCH = small.examples()
INPUTS = {name: BATCH[name] for name in models.TOKEN_INPUTS}
QUERY = "bert/encoder/layer_1/attention/self/query/kernel"


def classifier() -> keras.Model:
    model = make_model("classification", small.CONFIG, num_classes=CLASSES)
    reference.put_weights(model, model_files.tensors_of("classifier"))
    return model


def logits(model: keras.Model) -> np.ndarray:
    return np.array(model(INPUTS)["logits"])


def trained_names(model: keras.Model) -> set[str]:
    return {variable.path for variable in model.trainable_variables}


class Trained(keras.Model):
    """A classifier's logits alone, for `fit`."""

    def __init__(self, classifier: keras.Model):
        super().__init__()
        self.classifier = classifier

    def call(self, inputs, training=None):
        return self.classifier(inputs, training=training)["logits"]


def train(model: keras.Model, steps: int = 3) -> None:
    keras.utils.set_random_seed(1)
    fitted = Trained(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    fitted.compile(keras.optimizers.Adam(0.05), loss, run_eagerly=True)  # no seconds of tracing
    labels = np.arange(small.ROWS) % CLASSES
    fitted.fit(INPUTS, labels, batch_size=small.ROWS, epochs=steps, verbose=0)


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
        (("query", "value"), 2 * (D + D), 0),
        (("intermediate",), D + F, 0),
        (("output", "key", "attention_output"), F + D + 2 * (D + D), 0),
        (("pooler",), 0, D + D),
        (tuple(TARGETS), 4 * (D + D) + 2 * (D + F), D + D),
    ],
)
def test_the_number_of_trained_weights(targets, of_a_layer, others):
    """in + out weights a rank of each kernel, and the head."""
    model = classifier()
    head = CLASSES * D + CLASSES
    assert add_lora(model, RANK, targets=targets) == RANK * (LAYERS * of_a_layer + others) + head
    assert (
        sum(np.size(v) for v in model.trainable_variables)
        == RANK * (LAYERS * of_a_layer + others) + head
    )


def test_nothing_changes_at_first_and_then_the_factors_and_the_head_alone(before):
    model = classifier()
    unchanged = logits(model)
    add_lora(model, RANK)
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


def test_an_encoder_that_was_frozen_as_a_whole():
    model = classifier()
    for layer in model.layers[:-1]:
        layer.trainable = False
    assert add_lora(model, 1, targets=["key"]) == LAYERS * (D + D) + CLASSES * D + CLASSES


def test_predictions_that_were_compiled_before():
    """`predict` keeps its graph, in which there are no factors."""
    model = classifier()
    old = model.predict(INPUTS, verbose=0)["logits"]
    add_lora(model)
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    new = model.predict(INPUTS, verbose=0)["logits"]
    np.testing.assert_allclose(new, logits(model), rtol=1e-5)
    assert np.abs(new - old).max() > 0.01


@pytest.mark.parametrize(
    ("changes", "received"),
    [
        ({"rank": 0}, "rank 0"),
        ({"rank": 2.5}, "rank 2.5"),
        ({"rank": True}, "rank True"),
        *[
            ({"alpha": value}, "alpha")
            for value in (0, -1.0, float("nan"), float("inf"), "x", True)
        ],
        ({"targets": "query"}, "targets 'query'"),
        ({"targets": ()}, r"targets \(\)"),
        ({"targets": ("query", "dense")}, "dense"),
    ],
)
def test_arguments_that_are_none(changes, received):
    model = classifier()
    with pytest.raises(InputError, match=received):
        add_lora(model, **changes)
    assert len(model.trainable_variables) == len(model.weights)


def test_other_models():
    inputs = keras.Input((3,))
    with pytest.raises(InputError, match="without a BERT encoder"):
        add_lora(keras.Model(inputs, keras.layers.Dense(2, name="query")(inputs)))
    model = BertModel(small.CONFIG)
    add_lora(model, 1)
    with pytest.raises(InputError, match="has LoRA already"):
        add_lora(model, 2)


# ---------------------------------------------------------------------------- what is saved


def merged_by_hand(model: keras.Model) -> np.ndarray:
    """The kernel QUERY of layer 1 + 10 / 5 of the product of its factors."""
    (layer,) = (x for x in model._flatten_layers() if QUERY.endswith(f"{x.path}/kernel"))
    a, b = np.array(layer.lora_kernel_a), np.array(layer.lora_kernel_b)
    return np.array(layer._kernel) + 2 * a @ b


@pytest.mark.parametrize("to_format", ["tf1", "hugging_face"])
def test_a_checkpoint_has_the_merged_kernels(tmp_path, trained, before, to_format):
    weights = open_weights(save_weights(f"{tmp_path}/a", trained, to_format=to_format))
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
    load_checkpoint(plain, weights, required=".*")
    np.testing.assert_allclose(logits(plain), logits(trained), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["model.keras", "model.weights.h5"])
def test_kerass_files_have_the_merged_kernels(tmp_path, trained, name):
    path = str(tmp_path / name)
    trained.save(path) if name.endswith(".keras") else trained.save_weights(path)
    (tmp_path / "bert_config.json").write_text(small.CONFIG.to_json_string())
    weights = open_weights(path)
    np.testing.assert_allclose(weights.read(QUERY), merged_by_hand(trained), rtol=1e-6, atol=1e-7)
    plain = classifier()
    load_checkpoint(plain, path, required=".*")
    np.testing.assert_allclose(logits(plain), logits(trained), rtol=1e-5, atol=1e-5)
    if name.endswith(".keras"):
        loaded = keras.models.load_model(path)
        assert trained_names(loaded) == {"classifier/output_weights", "classifier/output_bias"}
        assert len(loaded.weights) == len(plain.weights)
        for layer in loaded.layers:
            layer.trainable = True
        assert len(loaded.trainable_variables) == len(plain.weights)
        np.testing.assert_allclose(logits(loaded), logits(trained), rtol=1e-5, atol=1e-5)


def test_what_is_saved_is_not_rounded_to_the_type_that_is_computed_in(tmp_path, before):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = classifier()
    finally:
        keras.config.set_dtype_policy("float32")
    add_lora(model, RANK)
    model.save_weights(str(tmp_path / "model.weights.h5"))
    (tmp_path / "bert_config.json").write_text(small.CONFIG.to_json_string())
    for weights in (
        open_weights(f"{tmp_path}/model.weights.h5"),
        open_weights(save_weights(f"{tmp_path}/a", model, to_format="tf1")),
    ):
        model_files.assert_same(model_files.all_tensors(weights), before)


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


def test_checkpoints_are_not_loaded_under_lora(tmp_path, before):
    model = classifier()
    add_lora(model)
    weights = open_weights(model_files.write_tf1(tmp_path / "a", before))
    with pytest.raises(InputError, match="which has LoRA") as caught:
        load_checkpoint(model, weights)
    assert caught.value.remedy == "load the weights first, then call add_lora"


def test_frozen_layers_are_loaded_and_saved(tmp_path, before):
    """Not left out, as a part of the model that does not train."""
    model = make_model("classification", small.CONFIG, num_classes=CLASSES)
    model.layers[1].trainable = False
    model.trainable = False
    load_checkpoint(model, model_files.weights_of(before), required=".*")
    model.save(str(tmp_path / "model.keras"))
    for weights in (
        open_weights(f"{tmp_path}/model.keras"),
        open_weights(save_weights(f"{tmp_path}/a", model, to_format="bert_tf")),
    ):
        model_files.assert_same(model_files.all_tensors(weights), before)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_quantization_rounds_the_merged_kernels_once(tmp_path):
    """Not the kernels alone, and the sum again when it is saved."""
    model = classifier()
    add_lora(model, RANK, alpha=10)
    train(model)
    model.save_weights(str(tmp_path / "merged.weights.h5"))
    merged = classifier()
    merged.load_weights(str(tmp_path / "merged.weights.h5"))
    for one in (model, merged):
        one.quantize("int8")
    np.testing.assert_array_equal(logits(model), logits(merged))
    model.save(str(tmp_path / "model.keras"))
    loaded = keras.models.load_model(str(tmp_path / "model.keras"))
    np.testing.assert_allclose(logits(loaded), logits(model), atol=1e-6)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_a_quantized_model(before):
    """Its kernels are whole numbers; the factors are not, and train."""
    model = classifier()
    model.quantize("int8")
    unchanged = logits(model)
    assert add_lora(model, RANK) == RANK * LAYERS * 2 * (D + D) + CLASSES * D + CLASSES
    np.testing.assert_allclose(logits(model), unchanged, atol=1e-6)
    train(model)
    assert np.abs(logits(model) - unchanged).max() > 0.01
    with pytest.raises(InputError, match="layers are quantized"):
        save_weights("/nowhere/a", model, to_format="tf1")
