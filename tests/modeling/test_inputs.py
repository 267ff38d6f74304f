"""Inputs that would be broadcast, wrapped or cut are refused wherever arrays come in."""

import keras
import numpy as np
import pytest
import small
import tensorflow as tf

from bert_tf import BertModel, layers, make_model
from bert_tf.errors import InputError
from bert_tf.library.text_models import TextModel
from bert_tf.modeling.inputs import TOKEN_INPUTS

BATCH = small.examples()
IDS, MASK, SEGMENTS = (BATCH[name] for name in TOKEN_INPUTS)
INPUTS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": SEGMENTS}


def changed(array: np.ndarray, value: float) -> np.ndarray:
    """The array with another value in the middle."""
    array = array.astype(np.result_type(np.int64, type(value)))
    array[2, 3] = value
    return array


REFUSED = {
    "a mask for all rows": ({"attention_mask": MASK[:1]}, r"input_mask of shape \[1, 7\]"),
    "a mask of one column": ({"attention_mask": MASK[:, :1]}, r"input_mask of shape \[5, 1\]"),
    "a mask of pairs": ({"attention_mask": MASK[:, None]}, r"input_mask of shape \[5, 1, 7\]"),
    "segments for all rows": ({"token_type_ids": SEGMENTS[:1]}, r"segment_ids of shape \[1, 7\]"),
    "no segment": ({"token_type_ids": changed(SEGMENTS, 4)}, "segment_ids with 4"),
    "a segment below 0": ({"token_type_ids": changed(SEGMENTS, -1)}, "segment_ids with -1"),
    "a label": ({"input_ids": changed(IDS, -100)}, "input_ids with -100"),
    "counted from the end": ({"input_ids": changed(IDS, -1)}, "input_ids with -1"),
    "beyond the table": ({"input_ids": changed(IDS, 41)}, "input_ids with 41"),
    "beyond 32 bits": ({"input_ids": changed(IDS, 2**32 + 3)}, "input_ids with 4294967299"),
    "no whole number": ({"input_ids": changed(IDS, 10.7)}, "input_ids of type float64"),
    "texts": ({"input_ids": np.array([["a text"]])}, "texts as input_ids"),
    "too long": (dict.fromkeys(INPUTS, np.ones((5, 14), int)), "sequences of 14 word pieces"),
}


@pytest.fixture(scope="module")
def model() -> TextModel:
    """One output, as `bert_tf.classifier` makes it."""
    whole = make_model("classification", small.CONFIG, num_classes=3)
    model = TextModel(whole.input, whole.output["logits"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    return model


WAYS = ("__call__", "predict", "evaluate", "fit")
WAYS += ("predict_on_batch", "train_on_batch", "test_on_batch")


@pytest.mark.parametrize("name", REFUSED)
def test_arrays(model, name):
    """Called, and by every method of Keras's that takes arrays; before anything is computed."""
    changes, received = REFUSED[name]
    for way in WAYS:
        labels = () if way in ("__call__", "predict", "predict_on_batch") else (np.zeros(5),)
        with pytest.raises(InputError, match=received):
            getattr(model, way)(INPUTS | changes, *labels)


def test_lists_and_tensors(model):
    for inputs, received in (
        (["a text"], r"texts as input_ids(?s:.*)model\(tokenizer"),
        (keras.ops.convert_to_tensor(["a"]), "texts as input_ids"),
        ([[1, 2], [3]], "a list as input_ids that is no array, such as one of unequal rows"),
        ([1, 2, 3], r"input_ids of shape \[3\]\n"),
        ([IDS, MASK, SEGMENTS + 4], "segment_ids with"),
        (tf.constant(changed(IDS, -100)), "input_ids with -100"),
        (keras.Input((7,), dtype="float16"), "input_ids of type float16"),
        ([IDS, MASK], "a list of 2 inputs"),
        ([IDS, MASK, SEGMENTS, IDS], "a list of 4 inputs"),
    ):
        with pytest.raises(InputError, match=received):
            model(inputs)


def test_whole_numbers_of_other_types(model):
    expected = model(INPUTS)
    np.testing.assert_array_equal(model([IDS, MASK, SEGMENTS]), expected)
    for inputs in (
        {"input_ids": IDS * 1.0},
        {"attention_mask": MASK.astype("f")},
        {"attention_mask": MASK.astype(bool)},
        {"attention_mask": MASK * 0.5},
        {"attention_mask": MASK * -7},
        {"attention_mask": MASK * 1.0, "token_type_ids": SEGMENTS.astype("u1")},
        {name: value.astype(np.uint8) for name, value in INPUTS.items()},
    ):
        np.testing.assert_array_equal(model(INPUTS | inputs), expected)
        np.testing.assert_allclose(model.predict(INPUTS | inputs, verbose=0), expected, atol=1e-6)


@pytest.mark.parametrize(
    "dataset", [{"input_ids": IDS.astype(np.float16)}, {"attention_mask": MASK[:, :1]}]
)
def test_kinds_and_shapes_of_datasets(model, dataset):
    model.predict_function = None  # of no shapes before
    with pytest.raises(
        InputError, match=r"(input_ids of type float16|input_mask of shape \[(None|5), 1\])"
    ):
        model.predict(tf.data.Dataset.from_tensor_slices(INPUTS | dataset).batch(5), verbose=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_that_are_known_only_when_a_graph_runs(model, dtype):
    """With such Keras builds what it loads; as of its own `Embedding`, they are cast."""
    expected = model(INPUTS)
    floats = {name: value.astype(dtype) for name, value in INPUTS.items()}
    model.predict_function = None
    found = model.predict(tf.data.Dataset.from_tensor_slices(floats).batch(5), verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    ids = keras.Input((IDS.shape[1],), dtype=dtype)
    around = keras.Model(ids, model({"input_ids": ids}))
    np.testing.assert_allclose(around(IDS.astype(dtype)), model(IDS), atol=1e-6)


class Around(keras.Model):
    """A model of a user's."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = BertModel(small.CONFIG)

    def call(self, ids):
        return self.inner(ids)["pooled_output"]


def test_errors_within_another_model():
    with pytest.raises(InputError, match="input_ids with -100"):
        Around()(changed(IDS, -100))


def test_shapes_that_are_known_only_when_a_graph_runs():
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in TOKEN_INPUTS}
    encode = tf.function(BertModel(small.CONFIG), input_signature=[specs], autograph=False)
    inputs = {name: BATCH[name] for name in TOKEN_INPUTS}
    encode(inputs)
    for name in ("input_mask", "segment_ids"):
        for change in (lambda x: x[:1], lambda x: x[:, :1], np.transpose):
            with pytest.raises(tf.errors.InvalidArgumentError):
                encode(inputs | {name: change(inputs[name])})


def test_positions_and_labels():
    model = make_model("pretraining", small.CONFIG, with_losses=True)
    batch = {name: BATCH[name] for name in model.input}
    model(batch)
    positions, ids = batch["masked_lm_positions"], batch["masked_lm_ids"]
    for name, value, received in (
        ("masked_lm_positions", positions + small.S, "masked_lm_positions with"),
        ("masked_lm_positions", positions[:1], r"masked_lm_positions of shape \[1, 3\]"),
        ("masked_lm_ids", ids - 100, "masked_lm_ids with"),
        ("masked_lm_ids", ids[:, :1], r"masked_lm_ids of shape \[5, 1\]"),
    ):
        with pytest.raises(InputError, match=received):
            model(batch | {name: value})


def test_inputs_that_are_left_out():
    """Each position is predicted; of more rows than a sequence has positions."""
    model, ids = make_model("fill_mask", small.CONFIG), np.tile(IDS, (3, 1))
    given = {"input_ids": ids, "masked_lm_positions": np.tile(np.arange(small.S), (15, 1))}
    np.testing.assert_array_equal(model(ids)["masked_lm_logits"], model(given)["masked_lm_logits"])


def test_longer_sequences_than_positions_of_a_layer():
    ids = np.ones([1, small.CONFIG.max_position_embeddings + 1], np.int32)
    with pytest.raises(ValueError, match="sequences of 14\nExpected: at most 13"):
        layers.Embeddings.from_bert_config(small.CONFIG)(ids, ids)


def test_choices():
    model = make_model("multiple_choice", small.CONFIG, num_choices=3)
    ids = np.ones((2, 3, 7), np.int32)
    assert model(ids)["logits"].shape == (2, 3)
    for wrong in (ids[:, :1], ids[:, 0]):
        with pytest.raises(InputError, match="input_ids of shape"):
            model(wrong)
