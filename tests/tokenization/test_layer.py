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
