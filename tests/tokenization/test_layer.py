"""The tokenizer as a layer: eagerly, in tf.data, in a model, its file and its export."""

import dataclasses

import keras
import numpy as np
import pytest
import small
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf import BertModel, FullTokenizer, InputError, layers

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "a", "é", "中", "##b", ","]
TOKENIZER = FullTokenizer("v", pieces=PIECES, max_length=9)
TEXTS = ["unaffable, a", "", "a a a a a a a a a a a", "É 中中 ab\ud800", "x"]
PAIRS = ["a", "unaffable", "a a a a a a a a a a", "", " "]


def same(found, expected) -> None:
    assert list(found) == list(expected)
    for name, value in found.items():
        assert value.dtype == tf.int32
        np.testing.assert_array_equal(value, expected[name])


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text("unafble, é中", max_size=30), st.text(max_size=30))))
def test_the_ids_of_the_tokenizer(pairs):
    """Of texts and of pairs, padded to the longest or to a length."""
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    for given_pairs in ((), (second,)):
        expected = TOKENIZER(first, *given_pairs)
        same(
            layers.Tokenizer(TOKENIZER, max_length=9)(first, *given_pairs), expected
        ) if pairs else None
        wide = layers.Tokenizer(TOKENIZER, 9)(tf.constant(encoded(first), tf.string), *given_pairs)
        if pairs:
            width = expected["input_ids"].shape[1]
            same({name: value[:, :width] for name, value in wide.items()}, expected)
            assert not np.any(wide["input_ids"][:, width:])
        assert wide["input_ids"].shape == (len(pairs), 9)


def encoded(texts: list[str]) -> list[bytes]:
    return [text.encode("utf-8", "replace") for text in texts]


def test_texts_of_any_shape():
    tokenize = layers.Tokenizer(TOKENIZER, 9)
    rows = tokenize(TEXTS[:4])["input_ids"]
    np.testing.assert_array_equal(tokenize(TEXTS[0])["input_ids"], rows[0])
    for shape in ([4, 1], [2, 2]):
        found = tokenize(np.array(TEXTS[:4], object).reshape(shape))["input_ids"]
        np.testing.assert_array_equal(found, np.reshape(rows, (*shape, 9)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input to reshape"):
        tokenize(["a", "b"], ["c"])


def test_in_a_dataset():
    tokenize = layers.Tokenizer(TOKENIZER, 9)
    data = tf.data.Dataset.from_tensor_slices((TEXTS[:3], [0, 1, 0]))
    batches = list(data.map(lambda text, label: (tokenize(text), label)).batch(2))
    same(batches[0][0], tokenize(TEXTS[:2]))
    assert batches[1][1].numpy().tolist() == [0]
    of_batches = next(iter(data.batch(3).map(lambda text, _: layers.Tokenizer(TOKENIZER)(text))))
    assert of_batches["input_ids"].shape[1] == 9


def test_a_model_of_texts(tmp_path):
    """From its file and its export the same answers, without another file."""
    encoder = BertModel(dataclasses.replace(small.CONFIG, num_hidden_layers=1))
    small_pieces = FullTokenizer("v", pieces=[*PIECES, "[MASK]"][: small.CONFIG.vocab_size])
    tokenize = layers.Tokenizer(small_pieces, length=7, name="tokens")
    texts = keras.Input((), dtype="string", name="texts")
    model = keras.Model(texts, encoder(tokenize(texts))["pooled_output"])
    asked = np.array(["unaffable", "a, a"], object)
    expected = encoder(tokenize(asked))["pooled_output"]
    small.close(model.predict(tf.constant(asked), verbose=0), expected)
    model.save(tmp_path / "texts.keras")
    small.close(keras.models.load_model(tmp_path / "texts.keras")(tf.constant(asked)), expected)
    model.export(tmp_path / "export", verbose=False)
    exported = tf.saved_model.load(tmp_path / "export")
    small.close(exported.serve(tf.constant(asked)), expected)
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    small.close(copy(tf.constant(asked)), expected)
    model.compile("sgd", "mse")
    model.fit(tf.constant(asked), np.zeros_like(expected), verbose=0)


def test_vocabularies(tmp_path):
    """A path, pieces, a tokenizer; the case as they show it, or as it is said."""
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", "utf-8")
    for vocabulary in (path, str(path), PIECES):
        with pytest.raises(InputError, match="does not show whether"):
            layers.Tokenizer(vocabulary)
        made = layers.Tokenizer(vocabulary, do_lower_case=True, max_length=9)
        same(made(TEXTS), TOKENIZER(TEXTS))
        same(layers.Tokenizer.from_config(made.get_config())(TEXTS), TOKENIZER(TEXTS))
    for wrong in ({"length": 4}, {"max_length": 0}, {"length": 7.5}):
        with pytest.raises(InputError, match="at least 5"):
            layers.Tokenizer(TOKENIZER, **wrong)
    with pytest.raises(InputError, match=r"without \[CLS\]"):
        layers.Tokenizer(["[PAD]", "[UNK]", "a"])
    with pytest.raises(InputError, match="which has its own"):
        layers.Tokenizer(TOKENIZER, do_lower_case=True)
    assert layers.Tokenizer(TOKENIZER).max_length == TOKENIZER.max_length == 9


# ---------------------------------------------------------------------------- models of one's own


@keras.saving.register_keras_serializable(package="tests")
class OfTexts(keras.Model):
    """Texts, or pairs by keyword, and layers after the tokenizer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tokenize = layers.Tokenizer(TOKENIZER, 7)
        self.embed = keras.layers.Embedding(len(PIECES), 3)
        self.classify = keras.layers.Dense(2)

    def call(self, texts, text_pairs=None):
        ids = self.tokenize(texts, text_pairs)["input_ids"]  # [B, 7]
        return self.classify(self.embed(ids))


ASKED = tf.constant(["unaffable", "a, a", "é"])
SECOND = tf.constant(["a", "", "a a"])


@pytest.mark.parametrize("pairs", [(), (SECOND,)], ids=["texts", "pairs"])
def test_a_subclassed_model_comes_back_with_all_weights(pairs, tmp_path):
    model = OfTexts()
    expected = model(ASKED, *pairs)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert [w.shape for w in loaded.weights] == [(12, 3), (3, 2), (2,)]
    small.close(loaded(ASKED, *pairs), expected)
    if not pairs:
        small.close(loaded.predict(ASKED, verbose=0), expected)


def test_a_fitted_subclassed_model_comes_back(tmp_path):
    model = OfTexts()
    model.compile("sgd", "mse")
    model.fit(ASKED, np.zeros((3, 7, 2)), verbose=0)
    model.save(tmp_path / "m.keras")
    small.close(keras.models.load_model(tmp_path / "m.keras")(ASKED), model(ASKED))


def test_a_sequential_model_without_an_input(tmp_path):
    class First(keras.layers.Layer):
        def call(self, batch):
            return batch["input_ids"]

    tokenize = layers.Tokenizer(TOKENIZER, 7)
    rest = [First(), keras.layers.Embedding(len(PIECES), 3), keras.layers.Flatten()]
    model = keras.Sequential([tokenize, *rest, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(ASKED, np.zeros((3, 1)), verbose=0)
    expected = model(ASKED)
    assert expected.shape == (3, 1)
    small.close(model.predict(ASKED, verbose=0), expected)
    data = tf.data.Dataset.from_tensor_slices(ASKED).batch(2)
    small.close(model.predict(data, verbose=0), expected)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras", {"First": First})
    small.close(loaded(ASKED), expected)
    model.export(tmp_path / "export", verbose=False)
    exported = tf.saved_model.load(tmp_path / "export")
    small.close(exported.serve(ASKED), expected)


class Typed(OfTexts):
    input_dtype = "string"


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(OfTexts, {"input_signature": [keras.InputSpec("string", (None,))]}), (Typed, {})],
)
def test_an_export_of_a_subclassed_model_takes_texts(kind, arguments, tmp_path):
    model = kind()
    expected = model(ASKED)
    model.export(tmp_path / "export", verbose=False, **arguments)
    exported = tf.saved_model.load(tmp_path / "export")
    (spec,) = exported.signatures["serving_default"].structured_input_signature[1].values()
    assert (spec.dtype, spec.shape.as_list()) == (tf.string, [None])
    small.close(exported.serve(ASKED[:2]), expected[:2])


def test_an_export_of_numbers_says_what_to_do(tmp_path):
    """Keras makes one of a subclass that does not say that it takes texts."""
    model = OfTexts()
    model(ASKED)
    model.export(tmp_path / "export", verbose=False)
    exported = tf.saved_model.load(tmp_path / "export")
    with pytest.raises(tf.errors.InvalidArgumentError, match="with `input_dtype = "):
        exported.serve(tf.constant([1.0]))


@pytest.mark.parametrize("numbers", [np.ones(2), [1, 2], tf.constant([1.0]), 7])
def test_numbers_are_no_texts(numbers):
    with pytest.raises(InputError, match=r"texts.*(int|float)"):
        layers.Tokenizer(TOKENIZER)(numbers)
    with pytest.raises(tf.errors.InvalidArgumentError, match="texts, a tensor of float32"):
        tf.function(layers.Tokenizer(TOKENIZER, 7), autograph=False)(tf.constant([1.0]))


def test_arguments_of_keras():
    made = layers.Tokenizer(TOKENIZER, name="texts", dtype="float16")
    assert (made.name, made.dtype_policy.name, made.trainable) == ("texts", "float16", False)
    again = layers.Tokenizer.from_config(made.get_config())
    assert (again.name, again.dtype_policy.name) == ("texts", "float16")
    with pytest.raises(ValueError, match=r"passed to Tokenizer: \{'lenght': 9\}"):
        layers.Tokenizer(TOKENIZER, lenght=9)
    with pytest.raises(TypeError, match="textpair"):
        made("a", textpair="b")
