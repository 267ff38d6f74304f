"""The models on other backends of Keras, called, trained and saved: TensorFlow's numbers."""

import dataclasses
import functools
import os
import subprocess
import sys

import backend_answers
import keras
import model_files
import numpy as np
import pytest
import small

CONFIG = dataclasses.replace(small.CONFIG, num_hidden_layers=1)  # each takes seconds to compile


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With what `backend_answers` reads, and TensorFlow's answers."""
    folder = tmp_path_factory.mktemp("backends")
    (folder / "config.json").write_text(CONFIG.to_json_string())
    np.savez(folder / "inputs.npz", **small.examples())
    tensors = model_files.tensors_of("classifier", CONFIG)
    model_files.write_tf1(folder / "classifier", tensors, config=CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        # A graph of few steps takes longer to trace than to run.
        compiled = functools.partialmethod(keras.Model.compile, run_eagerly=True)
        patch.setattr(keras.Model, "compile", compiled)
        backend_answers.write(folder)
    return folder


@pytest.fixture(scope="module")
def theirs(folder):
    """TensorFlow's answers by name."""
    return dict(np.load(folder / "tensorflow.npz"))


@pytest.fixture(scope="module", params=["jax", "torch"])
def backend(request):
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return request.param


@pytest.fixture(scope="module")
def ours(backend, folder):
    """The backend's answers by name."""
    command = [sys.executable, backend_answers.__file__, str(folder)]
    environment = os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(command, env=environment, stderr=subprocess.PIPE)
    assert ended.returncode == 0, ended.stderr.decode()
    return dict(np.load(folder / f"{backend}.npz"))


def test_numbers_are_those_of_tensorflow(ours, theirs):
    assert theirs.keys() <= ours.keys()
    for name, expected in theirs.items():
        assert np.abs(ours[name] - expected).max() < 1e-5, name


@pytest.mark.parametrize("model", ["encoder", "words"])
def test_every_way_to_call_is_the_same_call(ours, theirs, model):
    """Masks of floats and bools are the same masks, too."""
    names = [name for name in ours if name.startswith(f"{model}/")]
    assert len(names) == 2 * (5 * 6 + 2)
    for name in names:
        _, kind, _, output = name.split("/")
        kind = "whole" if kind in ("floats", "bools") else kind
        first = f"{model}/{kind}/model(...)/{output}"
        assert np.abs(ours[name] - ours[first]).max() < 1e-6, name
        assert np.abs(ours[name] - theirs[first]).max() < 1e-5, name
    output = {"encoder": "sequence_output", "words": "words"}[model]
    whole, zeros = (ours[f"{model}/{kind}/predict/{output}"] for kind in ("whole", "zeros"))
    assert np.abs(whole - zeros).max() > 1e-3


def test_unknown_names_are_refused(ours):
    messages = ours["refused"]
    for name, message in zip(("attn_mask", "labels", "output_attentions"), messages, strict=True):
        assert f"inputs of a model: input_ids, {name}" in message


def test_fit(ours):
    """It trains by Keras's optimizer, and by ours with dropout."""
    assert (np.diff(ours["still losses"]) < 0).all()
    assert (np.abs(ours["still table"]).max(axis=1) > 1e-6).all()  # each row has a gradient
    losses = ours["losses"]
    assert losses[-5:].mean() < losses[:5].mean() / 2
    assert ours["evaluated"] < losses[:5].mean() / 2


def test_dropout(ours):
    one, other = ours["dropped"]
    assert np.unique(one) == pytest.approx([0, 1 / 0.7])
    assert (one == 0).mean() == pytest.approx(0.3, abs=0.03)
    assert (one != other).mean() == pytest.approx(2 * 0.3 * 0.7, abs=0.03)  # another mask


def test_files(backend, folder, ours, theirs):
    for output in ("words", "is_next"):
        np.testing.assert_array_equal(ours[f"saved/{output}"], ours[f"trained/{output}"])
        small.close(ours[f"read/{output}"], theirs[f"words/whole/model(...)/{output}"], 1e-5)
    model = keras.models.load_model(folder / f"{backend}_words.keras", compile=False)
    outputs = model(backend_answers.inputs_of(model, np.load(folder / "inputs.npz")))
    small.close(outputs["words"], ours["trained/words"], 1e-5)


def test_classifier_of_texts(ours):
    """What it gives before training is compared with TensorFlow's."""
    np.testing.assert_array_equal(ours["classifier read"], ours["classifier trained"])
    before, after = ours["classifier"], ours["classifier trained"]  # [5, 3]
    grown = (after - after.mean(axis=1, keepdims=True)) - (
        before - before.mean(axis=1, keepdims=True)
    )
    assert (grown[:, 2] > 1e-3).all()  # the label that counts, of any text
