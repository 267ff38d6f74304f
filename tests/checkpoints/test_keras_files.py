"""Keras's own files of every model of this package, and those that are refused."""

import json
import pathlib
import shutil

import keras
import model_files
import numpy as np
import pytest
import reference
import small

from bert_tf import BertModel, make_model
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.saving import save_weights
from bert_tf.checkpoints.tf1 import checkpoint_name
from bert_tf.errors import InputError

CONFIG = small.CONFIG
MODELS = {
    "encoder": lambda: BertModel(CONFIG),
    "all layers": lambda: BertModel(CONFIG, all_layers=True),
    "pretraining": lambda: make_model("pretraining", CONFIG),
    "masked_lm": lambda: make_model("fill_mask", CONFIG),
    "losses": lambda: make_model("pretraining", CONFIG, with_losses=True),
    "classifier": lambda: make_model("classification", CONFIG, num_classes=model_files.NUM_CLASSES),
    "span": lambda: make_model("question_answering", CONFIG),
    "tokens": lambda: make_model("token_labels", CONFIG, num_classes=model_files.NUM_CLASSES),
    "tokens of two classes": lambda: make_model("token_labels", CONFIG, num_classes=2),
    "choices": lambda: make_model("multiple_choice", CONFIG, num_choices=4),
}
ARCHITECTURES = {  # that the names of weights do not show
    "tokens": "BertForTokenClassification",
    "tokens of two classes": "BertForTokenClassification",
    "choices": "BertForMultipleChoice",
}


def random_model(kind: str) -> keras.Model:
    """A model none of whose weights is what a fresh one has."""
    rng = np.random.default_rng(5)
    model = MODELS[kind]()
    for variable in model.trainable_variables:
        variable.assign(rng.standard_normal(variable.shape))
    return model


@pytest.mark.parametrize("kind", MODELS)
def test_there_and_back(tmp_path, kind):
    model = random_model(kind)
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in model_files.PIECES))
    (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
    model.save(str(tmp_path / "model.keras"))
    model.save_weights(str(tmp_path / "model.weights.h5"))
    expected = {checkpoint_name(v): np.array(v) for v in model.trainable_variables}
    for path in (f"{tmp_path}/model.keras", f"{tmp_path}/model.weights.h5"):
        weights = open_weights(path)
        assert (weights.path, weights.format, weights.config) == (path, "keras", CONFIG)
        assert weights.pieces == model_files.PIECES
        model_files.assert_same(model_files.all_tensors(weights), expected)
        assert weights.shapes == {name: value.shape for name, value in expected.items()}
        assert weights.metadata.architecture == ARCHITECTURES.get(kind)


@pytest.mark.parametrize("to_format", ["tf1", "hugging_face"])
def test_converted(tmp_path, to_format):
    model = random_model("masked_lm")
    model.save(str(tmp_path / "model.keras"))
    weights = open_weights(str(tmp_path / "model.keras"))
    again = open_weights(save_weights(f"{tmp_path}/made", weights, to_format=to_format))
    model_files.assert_same(model_files.all_tensors(again), reference.take_weights(model))
    assert again.config == CONFIG


def refused(path, message: str) -> InputError:
    with pytest.raises(InputError, match=message) as caught:
        open_weights(str(path))
    assert str(path) in caught.value.received
    return caught.value


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> pathlib.Path:
    """A folder with an encoder in files of both kinds."""
    folder = tmp_path_factory.mktemp("whole")
    model = random_model("encoder")
    model.save(str(folder / "model.keras"))
    model.save_weights(str(folder / "model.weights.h5"))
    return folder


@pytest.fixture
def weights_file(tmp_path, whole) -> pathlib.Path:
    return pathlib.Path(shutil.copy(whole / "model.weights.h5", tmp_path))


def test_weights_without_a_configuration(weights_file):
    assert "bert_config.json" in refused(weights_file, r"without a bert_config\.json").expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 1}, "with 2 encoder blocks"),  # Keras would leave the second out
        ({"num_hidden_layers": 3}, "with 2 encoder blocks"),
        ({"intermediate_size": 38}, "cannot be read"),
        ({"vocab_size": 42}, "cannot be read"),
    ],
)
def test_weights_of_another_configuration(weights_file, changes, message):
    config = weights_file.parent / "bert_config.json"
    config.write_text(json.dumps(CONFIG.to_dict() | changes))
    refused(weights_file, message)


def foreign_model() -> keras.Model:
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(2, name="stranger")(inputs))


def test_a_foreign_model(tmp_path):
    foreign_model().save(str(tmp_path / "model.keras"))
    refused(tmp_path / "model.keras", "stranger")


def test_a_lambda_is_not_run(tmp_path):
    """It holds Python's code, which Keras's safe mode refuses."""
    trace = tmp_path / "trace"
    inputs = keras.Input((3,))
    layer = keras.layers.Lambda(lambda x, path=str(trace): [x, open(path, "w").close()][0])
    model = keras.Model(inputs, layer(inputs))
    trace.unlink()  # of this very model
    model.save(str(tmp_path / "model.keras"))
    refused(tmp_path / "model.keras", "cannot be read")
    assert not trace.exists()


def test_foreign_weights(tmp_path):
    foreign_model().save_weights(str(tmp_path / "model.weights.h5"))
    (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
    refused(tmp_path / "model.weights.h5", "with 0 encoder blocks")


def flip(content: bytes) -> bytes:
    """An archive has a checksum of every file in it."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.keras", lambda content: b""),
        ("model.keras", lambda content: b"PK.."),
        ("model.keras", lambda content: content[: len(content) // 2]),
        ("model.keras", flip),
        ("model.weights.h5", lambda content: b""),
        ("model.weights.h5", lambda content: content[: len(content) // 2]),
        ("model.weights.h5", lambda content: content[:-9]),
    ],
)
def test_damaged_files(tmp_path, whole, name, damage):
    (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
    (tmp_path / name).write_bytes(damage((whole / name).read_bytes()))
    refused(tmp_path / name, "cannot be read")


def test_a_file_that_is_not_there(tmp_path):
    refused(tmp_path / "model.keras", "no checkpoint")
