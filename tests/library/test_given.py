"""What `fit`, `evaluate` and `predict` are given: texts, words, labels, weights, datasets.

Losses are in units of log 2: by its bias alone the head gives the labels 1/2, 1/4 and 1/4.
"""

import collections
import math

import keras
import model_files
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import InputError
from bert_tf.library.arrays import dataset_of_ids

pytestmark = pytest.mark.usefixtures("_quickly")
LABELS, TAGS = ["bad", "so so", "good"], ["O", "B", "I"]
TEXTS, OPINIONS = ["w1 w2", "w3", "w4 w5 w6", "w7"], ["bad", "bad", "so so", "good"]
NUMBERS = [0, 0, 1, 2]
SENTENCES, NAMES = [["w1", "w2", "w3"], ["w4"]], [["O", "B", "I"], ["O"]]
MANY = 300  # more than a message may show


class Column(collections.UserList):
    """What is used of a column of the package datasets: a sequence, but no list."""


def with_known_losses(model):
    """Losses 1, 2 and 2 of the labels, which stay so."""
    for variable in model.get_layer("classifier").variables:
        is_bias = "bias" in variable.path
        variable.assign(np.log([1 / 2, 1 / 4, 1 / 4]) if is_bias else np.zeros(variable.shape))
    options = model.compile_options()
    model.compile(keras.optimizers.SGD(0.0), **options)
    return model


def unlike(model):
    """Gives texts logits that are not alike."""
    kernel = next(x for x in model.get_layer("classifier").variables if "bias" not in x.path)
    kernel.assign(np.random.default_rng(3).standard_normal(kernel.shape))


@pytest.fixture(scope="module")
def of_texts(encoder):
    return bert_tf.classifier(encoder, labels=LABELS)


@pytest.fixture(scope="module")
def of_words(encoder):
    return bert_tf.token_classifier(encoder, labels=TAGS)


@pytest.fixture
def texts(of_texts):
    return with_known_losses(of_texts)


@pytest.fixture
def words(of_words):
    return with_known_losses(of_words)


def loss_of(model, *given, **options) -> float:
    """The loss of the first step of `fit`."""
    history = model.fit(*given, **options, shuffle=False, verbose=0)
    return history.history["loss"][0] / math.log(2)


def batches(*parts, size: int = 4):
    """A dataset of tuples, or of its only part."""
    return tf.data.Dataset.from_tensor_slices(parts if len(parts) > 1 else parts[0]).batch(size)


def refused(says: str, method, *given, **options):
    with pytest.raises(InputError, match=says) as caught:
        method(*given, **options)
    assert len(str(caught.value)) < 300  # never all data
    assert str(caught.value).count("w1") < 8


# ---------------------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("x", "says"),
    [
        ([TEXTS * MANY, TEXTS * MANY], r"texts\[0\], of type list"),
        ((TEXTS * MANY, TEXTS * MANY, TEXTS * MANY), r"texts\[0\], of type list"),
        ([["w1", "w2"]] * MANY, r"texts\[0\], of type list: \['w1', 'w2'\]\n.*\n.*give tuples"),
        ({"text": TEXTS * MANY}, "of type dict.*\n.*\n.*those of one key"),
        ({"w1", "w2"}, "of type set"),
        (None, "of type NoneType"),
        ([None] * MANY, r"texts\[0\], of type NoneType"),
        ([*TEXTS * MANY, float("nan")], rf"texts\[{4 * MANY}\], of type float: nan"),
        ([1, 2] * MANY, r"texts\[0\], of type int"),
        ([[2, 6, 3]] * MANY, r"texts\[0\], of type list"),
        (np.array([["w1", "w2"]] * MANY), rf"shape \({MANY}, 2\)"),
        (["w1", ("w2", "w3")] * MANY, r"texts\[1\], of type tuple"),
        ((TEXTS * MANY, TEXTS), f"{4 * MANY} texts and 4 second"),
        ([], "no texts"),
        ({"input_ids": [[2, 3], [2]]}, "one of unequal rows"),
    ],
)
def test_what_are_no_texts(texts, x, says):
    refused(says, texts.predict, x)
    refused(says, texts.fit, x, OPINIONS)


def test_texts_pairs_and_ids(texts):
    """Tuples in a list are pairs, and so is a tuple of two columns."""
    seconds = ["w7", "", "w8 w9", "w1"]
    ids, of_pairs = texts.tokenizer(TEXTS), texts.tokenizer(TEXTS, seconds)
    pairs = [*zip(TEXTS, seconds, strict=True)]
    as_lists = {name: value.tolist() for name, value in ids.items()}
    unlike(texts)
    for alike in (
        (ids, as_lists, TEXTS, tuple(TEXTS), Column(TEXTS), np.array(TEXTS), tf.constant(TEXTS)),
        (of_pairs, pairs, Column(pairs), (TEXTS, seconds), (Column(TEXTS), np.array(seconds))),
    ):
        expected, *others = (texts.predict(x, verbose=0) for x in alike)
        assert np.ptp(expected, axis=0).max() > 1e-3
        for other in others:
            np.testing.assert_array_equal(other, expected)


def test_texts_are_cut_to_the_positions_in_every_way(encoder, tmp_path, caplog):
    """Of a model made, loaded by Keras, by bert_tf or trained on texts: 13 ids, in datasets too."""
    _, tokenizer = bert_tf.load(encoder)
    config = bert_tf.BertConfig.from_dict(tokenizer_config := {
        "vocab_size": tokenizer.vocab_size, "hidden_size": 6, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 7, "max_position_embeddings": 9,
    })  # fmt: skip
    made = bert_tf.make_model("classification", config, num_classes=3, tokenizer=tokenizer)
    other = tokenizer_config | {"max_position_embeddings": 11}
    longer = bert_tf.make_model("classification", other, num_classes=3, tokenizer=tokenizer)
    made.labels = LABELS
    made.save(path := str(tmp_path / "made.keras"))
    loaded = [keras.models.load_model(path), bert_tf.load(path)[0]]
    by_texts = bert_tf.classifier(path, labels=LABELS)
    long = ["w1 " * 30]
    for model in (made, *loaded, by_texts):
        assert model.tokenizer(long)["input_ids"].shape == (1, 9)
        model(model.tokenizer(long))
    assert longer.tokenizer(long)["input_ids"].shape == (1, 11)
    assert tokenizer(long)["input_ids"].shape == (1, 13)
    caplog.clear()
    expected = by_texts.predict(long, verbose=0)
    assert caplog.messages == ["Cut to 9 tokens (max_seq_length): 1 of 1 text."]
    np.testing.assert_allclose(by_texts.predict(batches(long), verbose=0), expected, atol=1e-6)
    of_words = bert_tf.token_classifier(path, labels=TAGS)
    refused("of 10 word pieces\nExpected: 9 or fewer", of_words.predict, [["w1"] * 8])


# ---------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("y", "says"),
    [
        (None, "y=None"),
        ([None] * MANY, "the label None"),
        ([*OPINIONS * MANY, None], "the label None"),
        ([float("nan"), 1.0] * MANY, "the label nan"),
        ([0.5, 1.0] * MANY, r"the label 0\.5"),
        ([0, 3] * MANY, "the label 3\n.*0 to 2, the places of bad, so so, good"),
        (np.array([0, -1]), "the label -1"),
        ([["bad"], ["good"]] * MANY, r"the label \['bad'\]"),
        ([[0], [1, 2]] * MANY, r"the label \[0\]"),
        ({"label": OPINIONS * MANY}, "labels of type dict"),
        ({"bad", "good"}, "labels of type set"),
        (np.eye(3)[NUMBERS], r"shape \[4, 3\], a row of numbers each\n.*\n.*argmax"),
        (np.eye(3)[NUMBERS].tolist(), r"shape \[4, 3\], a row of numbers each"),
    ],
)
def test_what_are_no_labels(texts, y, says):
    refused(says, texts.fit, TEXTS, y)
    refused(says, texts.fit, TEXTS, OPINIONS, validation_data=(TEXTS, y))
    refused(says, texts.evaluate, TEXTS, y)
    refused(says, texts.train_on_batch, texts.tokenizer(TEXTS), y)


@pytest.mark.parametrize(
    "y",
    [OPINIONS, tuple(OPINIONS), Column(OPINIONS), np.array(OPINIONS), np.array(OPINIONS, object),
     tf.constant(OPINIONS), [0, "bad", 1, b"good"], NUMBERS, Column(NUMBERS), np.array(NUMBERS),
     np.array(NUMBERS, np.float32), tf.constant(NUMBERS), np.array(NUMBERS)[:, np.newaxis]],
)  # fmt: skip
def test_labels(texts, y):
    assert texts.evaluate(TEXTS, y, verbose=0)[0] / math.log(2) == pytest.approx(6 / 4)
    balanced = {"bad": 2 / 3, 1: 4 / 3, "good": 4 / 3}
    assert loss_of(texts, TEXTS, y, class_weight=balanced) == pytest.approx(5 / 3)


# ---------------------------------------------------------------------------- weights


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (1 + 1 + 2 + 2) / 4),
        ({"class_weight": {"bad": 3, "good": 0.5}}, (3 + 3 + 2 + 1) / 4),
        ({"class_weight": {0: 3, np.int64(2): 0.5}}, (3 + 3 + 2 + 1) / 4),
        ({"class_weight": {"bad": 3, 2: 0.5}, "sample_weight": [1, 2, 0, 4]}, (3 + 6 + 4) / 4),
        ({"class_weight": "balanced"}, (2 / 3 + 2 / 3 + 8 / 3 + 8 / 3) / 4),
        ({"class_weight": "balanced", "sample_weight": np.array([0, 1, 1, 1])}, (1 + 2 + 2) / 4),
    ],
)
def test_weights_of_texts(texts, options, expected):
    assert loss_of(texts, TEXTS, OPINIONS, **options) == pytest.approx(expected)
    assert loss_of(texts, texts.tokenizer(TEXTS), NUMBERS, **options) == pytest.approx(expected)
    texts.train_on_batch(TEXTS, OPINIONS, **options)
    if options.get("class_weight") != "balanced":
        weights = [options["sample_weight"]] if "sample_weight" in options else []
        for y in (OPINIONS, NUMBERS):
            data = batches(TEXTS, y, *weights)
            given = {name: x for name, x in options.items() if name == "class_weight"}
            assert loss_of(texts, data, **given) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 6 / 4),  # with padding of O it would be 8 / 6
        ({"class_weight": {"O": 3, "B": 0.5}}, (3 + 1 + 2 + 3) / 7.5),
        ({"class_weight": {0: 3, 1: 0.5}}, (3 + 1 + 2 + 3) / 7.5),
        ({"class_weight": "balanced"}, (2 / 3 + 8 / 3 + 8 / 3 + 2 / 3) / 4),
        ({"sample_weight": [2, 3]}, (2 + 4 + 4 + 3) / 9),
        ({"sample_weight": [[1, 0, 2], [4]]}, (1 + 4 + 4) / 7),
        ({"sample_weight": np.array([[1, 0, 2], [4, 7, 7]])}, (1 + 4 + 4) / 7),
        ({"sample_weight": Column([Column([1, 0, 2]), 4])}, (1 + 4 + 4) / 7),
        ({"sample_weight": [[1, 0, 2], [4]], "class_weight": {"O": 3}}, (3 + 4 + 12) / 17),
        ({"sample_weight": [1, 0], "class_weight": "balanced"}, (1 + 2 + 2) / 3),
    ],
)
def test_weights_of_words(words, options, expected):
    """Means over words, whatever padding there is."""
    assert loss_of(words, SENTENCES, NAMES, **options) == pytest.approx(expected)
    words.train_on_batch(SENTENCES, NAMES, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"class_weight": {"worse": 1}}, "the label 'worse'\n.*one of "),
        ({"class_weight": {7: 1}}, "the label 7\n"),
        ({"class_weight": {0: "heavy"}}, r"class_weight \['heavy'\]"),
        ({"class_weight": "balance"}, "class_weight='balance'\n"),
        ({"class_weight": [1.0] * MANY}, "class_weight="),
        ({"class_weight": {0: 2}, "sample_weight": [1, 2, 3]}, r"shape \[3\]|3 weights"),
        ({"sample_weight": ["heavy"] * 4}, "'heavy'|4 weights"),
    ],
)
def test_what_are_no_weights(texts, words, options, says):
    refused(says, texts.fit, TEXTS, OPINIONS, **options)
    refused(says, words.fit, SENTENCES, NAMES, **options)


def test_weights_that_are_not_one_a_word(words):
    for weights in ([[1, 2], [3]], [1, "heavy"], [[1, 2, 3], []]):
        refused("as weights of sentence [01], of", words.fit, SENTENCES, NAMES, None, 1,
                sample_weight=weights)  # fmt: skip
    one_hot = [np.eye(3), np.eye(3)[:1]]
    refused("(?s)the tags array.* of sentence 0", words.fit, SENTENCES, one_hot)
    ids = words.tokenizer(["w1", "w2"])
    refused("a row of numbers each", words.fit, ids, np.zeros((2, 3, 3)))


# ---------------------------------------------------------------------------- columns of words


def objects(rows):
    """An array of objects, as a column of pandas has."""
    column = np.empty(len(rows), object)
    column[:] = rows
    return column


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (SENTENCES, [[0, 1, 2], [0]]),
        (Column(map(Column, SENTENCES)), Column(map(Column, NAMES))),
        (objects(SENTENCES), objects(NAMES)),
        (objects([*map(np.array, SENTENCES)]), objects([np.array([0, 1, 2]), np.array([0])])),
        ([[word.encode() for word in row] for row in SENTENCES], NAMES),
    ],
)
def test_columns_of_words(words, x, y):
    loss, _ = words.evaluate(x, y, verbose=0)
    assert loss / math.log(2) == pytest.approx(6 / 4)
    assert loss_of(words, x, y, validation_data=(x, y)) == pytest.approx(6 / 4)
    assert words.predict(x, verbose=0).shape == (2, 3, 3)


def test_arrays_of_words(words):
    x, y = np.array([["w1", "w2"], ["w3", "w4"]]), np.array([[0, 1], [2, 0]])
    loss, _ = words.evaluate(x, y, verbose=0)
    assert loss / math.log(2) == pytest.approx(6 / 4)


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (None, "None, of type NoneType, as sentences"),
        ({"words": SENTENCES * MANY}, "of type dict, as sentences"),
        ([[], []], "as sentences"),
        (TEXTS * MANY, "'w1 w2' as sentence 0"),
        ([["w1", None]], "as sentence 0"),
    ],
)
def test_what_are_no_sentences(words, x, says):
    refused(says, words.predict, x)


# ---------------------------------------------------------------------------- datasets


def test_datasets_of_texts(texts):
    pairs = (TEXTS, ["w7", "", "w8 w9", "w1"])
    unlike(texts)
    for x in (TEXTS, pairs):
        whole = (x,) if isinstance(x, tuple) else x  # alone it would be texts and labels
        for data in (batches(x, OPINIONS, size=3), batches(x, NUMBERS, size=3)):
            found = texts.evaluate(data, verbose=0)
            assert found == pytest.approx(texts.evaluate(x, OPINIONS, verbose=0), abs=1e-5)
            history = texts.fit(data, validation_data=data, shuffle=False, verbose=0).history
            assert history["val_loss"] == pytest.approx(found[:1], abs=1e-5)
        found = texts.predict(tf.data.Dataset.from_tensor_slices(whole if whole is x else (x,))
                              .batch(3), verbose=0)  # fmt: skip
        np.testing.assert_allclose(found, texts.predict(x, verbose=0), atol=1e-5)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (lambda: batches(TEXTS, OPINIONS).unbatch(), "single texts\n.*\n.*batch"),
        (lambda: batches({"text": TEXTS}, OPINIONS), "a dataset of {'text'"),
        (lambda: batches((TEXTS, TEXTS, TEXTS), OPINIONS), r"a dataset of \("),
        (lambda: batches(TEXTS, np.eye(3)[NUMBERS]), "a row of numbers each"),
    ],
)
def test_datasets_that_are_refused(texts, data, says):
    refused(says, texts.fit, data())


def test_a_dataset_says_which_label_is_unknown(texts):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"bad, so so, good:\] \[worse\]"):
        texts.fit(batches(TEXTS, ["bad", "worse", "good", "bad"]), shuffle=False, verbose=0)


def test_datasets_of_ids(words):
    """As they are, with the weights of classes."""
    x, y, weights = words.read(SENTENCES, NAMES)
    data = batches(x, y, weights)
    assert loss_of(words, data) == pytest.approx(6 / 4)
    assert loss_of(words, data, class_weight={"O": 3}) == pytest.approx((3 + 2 + 2 + 3) / 8)
    data = batches(x, y, [2.0, 0.0])
    assert loss_of(words, data, class_weight={"O": 3}) == pytest.approx((3 + 2 + 2) / 5)
    refused("class_weight='balanced'\nExpected: a dict", words.fit, data, class_weight="balanced")


def test_class_weight_of_batches_that_cannot_be_looked_at(texts):
    data = iter([(texts.tokenizer(TEXTS), np.array(NUMBERS))])
    refused("class_weight with a list_iterator", texts.fit, data, class_weight={0: 1})


# ---------------------------------------------------------------------------- steps


@pytest.mark.parametrize(
    ("given", "options", "steps"),
    [
        ("texts", {"batch_size": 2, "epochs": 3}, 6),
        ("tensors", {"batch_size": 2}, 2),
        ("texts", {"batch_size": 2, "validation_split": 0.3}, 1),  # 2 of 4 rows, as Keras splits
        ("texts", {"epochs": 3, "initial_epoch": 2}, 1),
        ("data", {"epochs": 2}, 4),
        ("endless", {"steps_per_epoch": 3}, 3),
    ],
)
def test_the_schedule_is_that_of_the_steps(encoder, given, options, steps):
    model = bert_tf.classifier(encoder, labels=LABELS)
    ids = {name: tf.constant(x) for name, x in model.tokenizer(TEXTS).items()}
    data = batches(TEXTS, OPINIONS, size=3)
    rows = {
        "texts": (TEXTS, OPINIONS), "tensors": (ids, OPINIONS), "data": (data,),
        "endless": (data.repeat(),),
    }  # fmt: skip
    model.fit(*rows[given], **options, shuffle=False, verbose=0)
    assert model.optimizer.schedule.num_train_steps == steps
    assert int(model.optimizer.iterations) == steps


def test_an_epoch_a_call_is_told_once_for_each_further_one(encoder, caplog):
    model = bert_tf.classifier(encoder, labels=LABELS)
    for calls in range(3):
        model.fit(TEXTS, OPINIONS, verbose=0)
        assert caplog.text.count("has a warm-up and a decay of its own") == calls
    model.compile(keras.optimizers.SGD(0.1), **model.compile_options())
    optimizer = model.optimizer
    model.fit(TEXTS, OPINIONS, verbose=0)
    assert model.optimizer is optimizer
    assert caplog.text.count("has a warm-up") == 2


def test_help_says_what_fit_takes(of_texts, of_words):
    for model in (of_texts, of_words):
        text = type(model).fit.__doc__
        for word in ("texts", "lists of words", "questions", "class_weight", "tf.data"):
            assert word in text


def test_batches_of_texts_have_few_lengths():
    """Of each XLA compiles a program."""
    tokenizer = bert_tf.FullTokenizer("v", pieces=model_files.PIECES, max_length=40)
    texts = ["w1 " * words for words in (1, 14, 15, 30, 31, 60)]
    data = dataset_of_ids(batches(texts, size=1), tokenizer, None)
    assert [x["input_ids"].shape[1] for x in data] == [16, 16, 32, 32, 40, 40]
