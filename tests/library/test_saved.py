"""Models that were saved, pickled or named: in fresh processes, and trained further."""

import dataclasses
import functools
import json
import multiprocessing
import operator
import pathlib
import pickle
import subprocess
import sys

import joblib
import keras
import numpy as np
import pytest
import small

import bert_tf
from bert_tf.errors import InputError
from bert_tf.heads import make_model

CONFIG = dataclasses.replace(small.CONFIG, num_hidden_layers=1)
ROOT = pathlib.Path(__file__).parents[2]
LABELS, TAGS = ["bad", "so so", "good"], ["O", "B", "I"]
SIZES = {"max_seq_length": 13, "doc_stride": 3, "max_query_length": 4}
TEXTS, OPINIONS = ["w1 w2", "w3", "w4 w5 w6"], ["bad", "good", "bad"]
SENTENCES, NAMES = [["w1", "w2", "w3"], ["w4"]], [["O", "B", "I"], ["O"]]
ASKED = (["w1", "w2"], ["w3 w4", "w5"])
ANSWERS = [{"text": ["w4"], "answer_start": [3]}, {"text": [], "answer_start": []}]
MAKERS = {
    "texts": (bert_tf.classifier, {"labels": LABELS}, TEXTS, OPINIONS),
    "words": (bert_tf.token_classifier, {"labels": TAGS}, SENTENCES, NAMES),
    "questions": (bert_tf.question_answerer, SIZES, ASKED, ANSWERS),
}


def outputs_of(model, x):
    return keras.tree.map_structure(np.array, model(x))


def equal(found, expected):
    keras.tree.map_structure(np.testing.assert_array_equal, found, expected)


def close(found, expected):
    """Up to the order of sums, which differs between graphs."""
    near = functools.partial(np.testing.assert_allclose, atol=1e-6)
    keras.tree.map_structure(near, found, expected)


def compiled(model):
    """With our optimizer, and a loss and metrics of its own."""
    model.compile(bert_tf.make_optimizer(6, learning_rate=1e-3), **model.compile_options())
    return model


# ---------------------------------------------------------------------------- fresh processes

# Every line in a fork that has loaded Keras and nothing of ours, and has run nothing yet.
FRESH = """
import io, os, pickle, sys

import joblib, keras, numpy as np

folder, *lines = sys.argv[1:]
with open(os.path.join(folder, "expected"), "rb") as file:
    x, *every = pickle.load(file)
for line in lines:
    if not os.fork():
        assert not any(name.startswith("bert_tf") for name in sys.modules)
        exec(line)
        numbers = [*range(len(every))]
        for number in numbers if "pickle" in line else (numbers[-1], 0):
            is_compiled, expected = every[number]
            path = os.path.join(folder, str(number))
            if "pickle" in line:
                model = pickle.load(open(path + ".pickle", "rb"))
            elif "joblib" in line:
                model = joblib.load(path + ".joblib")
            else:
                model = keras.models.load_model(path + ".keras")
            found = keras.tree.map_structure(np.array, model(x))
            keras.tree.map_structure(np.testing.assert_array_equal, found, expected)
            if is_compiled:
                assert type(model.optimizer).__name__ == "AdamWeightDecay"
                assert int(model.optimizer.iterations) == 1
                assert model.tokenizer.positions == 13
        os._exit(0)
    status = os.wait()[1]
    print(line if status else "", end="")
"""
IMPORTS = (
    "from bert_tf.modeling.models import BertModel",
    "import bert_tf.modeling.layers",
    "from bert_tf import BertModel",
    "from bert_tf.heads import MaskedLmHead",
    "import bert_tf.training.optimization",
    "import bert_tf.library.fit_models",
    "import bert_tf; bert_tf.layers",
)


@pytest.fixture(scope="module")
def models(encoder) -> list:
    """A compiled classifier first, and one of every kind."""
    first = compiled(bert_tf.classifier(encoder, labels=LABELS))
    first.fit(TEXTS, OPINIONS, verbose=0)
    _, *others = (make(encoder, **options) for make, options, *_ in MAKERS.values())
    heads = [make_model(head, CONFIG) for head in ("pretraining", "fill_mask")]
    return [first, *others, bert_tf.BertModel(CONFIG), *heads]


def test_a_fresh_process_reads_all_of_ours(models, tmp_path):
    """Pickles by themselves; .keras files after any import of ours that loads Keras."""
    ids = models[0].tokenizer(TEXTS)
    expected = [(model.compiled, outputs_of(model, ids)) for model in models]
    (tmp_path / "expected").write_bytes(pickle.dumps((ids, *expected)))
    for number, model in enumerate(models):
        (tmp_path / f"{number}.pickle").write_bytes(pickle.dumps(model))
        joblib.dump(model, tmp_path / f"{number}.joblib")
        model.save(tmp_path / f"{number}.keras")
    words = [sys.executable, "-c", FRESH, str(tmp_path), "'pickle'", "'joblib'", *IMPORTS]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr[-2000:]


def test_spawn_sends_models(models):
    ids = models[0].tokenizer(TEXTS)
    sent = [models[-1], *models[:3]]  # the first finds nothing of ours
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(operator.methodcaller("predict_on_batch", ids), sent)
    for model, outputs in zip(sent, found, strict=True):
        equal(outputs, model.predict_on_batch(ids))


def test_what_is_in_a_keras_file(models, tmp_path):
    """The vocabulary, but not in the configuration, which Keras shows if a class is unknown."""
    model = models[0]
    assert model.tokenizer.vocab_file not in json.dumps(model.get_config())
    model.save(path := tmp_path / "model.keras")
    again, tokenizer = bert_tf.load(path)
    assert (again.labels, tokenizer.vocab) == (tuple(LABELS), model.tokenizer.vocab)
    ids = tokenizer(TEXTS)
    np.testing.assert_allclose(again(ids)["logits"], model(ids), atol=1e-6)


# ---------------------------------------------------------------------------- trained further


@pytest.mark.usefixtures("_quickly")
@pytest.mark.parametrize("kind", MAKERS)
def test_loaded_models_take_what_they_took_and_train_further(encoder, kind, tmp_path):
    """Whether nobody, `fit` or the user has compiled them; and the library goes on from them."""
    make, options, x, y = MAKERS[kind]
    new = make(encoder, **options)
    new.save(path := str(tmp_path / "new.keras"))
    asked = x if kind != "questions" else new.tokenizer(*x)
    again = keras.models.load_model(path)
    assert (type(again), again.compiled, again.labels) == (type(new), False, new.labels)
    close(again.predict(asked, verbose=0), new.predict(asked, verbose=0))
    close(again.evaluate(x, y, verbose=0), new.evaluate(x, y, verbose=0))
    before = new.get_weights()[0]
    for model in (new, again):
        model.fit(x, y, batch_size=2, verbose=0)
        assert np.abs(model.get_weights()[0] - before).max() > 1e-6
        model.save(path)
        assert not keras.models.load_model(path).compiled  # its copy compiles itself too
    further = make(path, **options)
    close(further.predict(asked, verbose=0), again.predict(asked, verbose=0))
    compiled(again).fit(x, y, batch_size=2, verbose=0)
    again.save(path)
    copy = keras.models.load_model(path)
    kept = [np.array(variable) for variable in again.optimizer.variables]
    equal([np.array(variable) for variable in copy.optimizer.variables], kept)
    close(copy.evaluate(x, y, verbose=0), again.evaluate(x, y, verbose=0))
    steps = int(copy.optimizer.iterations)
    copy.fit(x, y, batch_size=9, verbose=0)
    assert int(copy.optimizer.iterations) == steps + 1


@pytest.mark.parametrize("path", ["model.h5", "model.hdf5", pathlib.Path("model.h5")])
def test_hdf5_is_refused(models, path, tmp_path):
    with pytest.raises(InputError, match=r"save\(.*\n.*a \.keras file"):
        models[0].save(tmp_path / path)
    assert not [*tmp_path.iterdir()]


def test_a_checkpoint_of_hdf5_is_refused(models, tmp_path):
    keep = keras.callbacks.ModelCheckpoint(tmp_path / "model.h5")
    keep.set_model(models[0])
    with pytest.raises(InputError, match=r"a \.keras file\n.*ModelCheckpoint"):
        keep.on_epoch_end(0, {})
    assert not [*tmp_path.iterdir()]


# ---------------------------------------------------------------------------- inputs of one's own


@pytest.mark.usefixtures("_quickly")
def test_inputs_of_ones_own(tmp_path):
    """A price beside the ids: in a call, by keyword, in `fit`, in a file."""
    encoder = bert_tf.BertModel(CONFIG)
    price = keras.Input((1,), name="price")
    both = keras.layers.Concatenate()([encoder.output["pooled_output"], price])
    model = bert_tf.BertModel(encoder.input | {"price": price}, keras.layers.Dense(3)(both))
    ids, prices = np.array([[2, 6, 3], [2, 7, 0]]), np.array([[0.25], [7.5]], np.float32)
    x = {"input_ids": ids, "price": prices}
    expected = outputs_of(model, x)
    kernel, bias = (np.array(variable) for variable in model.layers[-1].variables)
    pooled = np.array(encoder(ids)["pooled_output"])
    by_hand = np.concatenate([pooled, prices], axis=1) @ kernel + bias
    np.testing.assert_allclose(expected, by_hand, atol=1e-5)
    equal(outputs_of(lambda y: model(y, price=prices), ids), expected)
    equal(np.array(model(**x)), expected)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-6)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, np.array([0, 2]), verbose=0)
    assert np.abs(np.array(model.layers[-1].variables[0]) - kernel)[-1].max() > 1e-6
    model.save(path := tmp_path / "model.keras")
    equal(outputs_of(keras.models.load_model(path), x), outputs_of(model, x))
    with pytest.raises(InputError, match="inputs of a model: input_ids"):
        model(ids)


# ---------------------------------------------------------------------------- names and types


@pytest.mark.parametrize("kind", MAKERS)
def test_a_name_and_a_type_of_ones_own(encoder, kind, tmp_path):
    """A file of such a model still says which head it has."""
    make, options, *_ = MAKERS[kind]
    head = {"texts": "classification", "words": "token_labels", "questions": "question_answering"}
    model = make(encoder, name="mine", dtype="mixed_bfloat16", **options)
    assert (model.name, model.blocks[0].compute_dtype) == ("mine", "bfloat16")
    assert make(encoder, **options).blocks[0].compute_dtype == "float32"
    model.save(path := tmp_path / "mine.keras")
    again, _ = bert_tf.load(path)
    assert again.output.keys() == make_model(head[kind], CONFIG).output.keys()
    assert (again.name, again.metadata.get("task", head[kind])) == (head[kind], head[kind])
    named, _ = bert_tf.load(path, name="other", dtype="mixed_bfloat16")
    assert (named.name, named.embeddings.compute_dtype) == ("other", "bfloat16")
    with pytest.raises(TypeError, match="unknown"):
        make(encoder, unknown=1, **options)
    with pytest.raises(InputError, match="dtype='float33'"):
        make(encoder, dtype="float33", **options)


def test_a_named_model_of_make_model_keeps_its_head(models, tmp_path):
    for head, sizes in (("regression", {}), ("multi_label", {"num_classes": 1})):
        model = make_model(head, CONFIG, name="mine", dtype="mixed_bfloat16",
                           tokenizer=models[0].tokenizer, **sizes)  # fmt: skip
        assert model.embeddings.compute_dtype == "bfloat16"
        model.save(path := tmp_path / "mine.keras")
        again, _ = bert_tf.load(path)
        assert (again.name, again.metadata["task"]) == (head, head)
    with pytest.raises((InputError, TypeError), match="num_labels"):
        make_model("classification", CONFIG, num_labels=3)
