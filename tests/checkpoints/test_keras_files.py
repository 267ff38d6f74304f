"""Keras's own files of every model of this package, and those that are refused."""

import dataclasses
import functools
import pathlib
import subprocess
import sys

import keras
import model_files
import numpy as np
import pytest
import small
from small_runs import make_trainer

from bert_tf import BertModel, load_checkpoint, make_model
from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.saving import save_weights
from bert_tf.checkpoints.shown_heads import shown_head
from bert_tf.errors import InputError
from bert_tf.modeling.names import checkpoint_name

TWO_BLOCKS = small.CONFIG
ONE_BLOCK = dataclasses.replace(small.CONFIG, num_hidden_layers=1)
MODELS = {  # head, options of its model, and its architecture
    "encoder": ("embeddings", {}, "BertModel"),
    "pretraining": ("pretraining", {}, "BertForPreTraining"),
    "losses": ("pretraining", {"with_losses": True}, "BertForPreTraining"),
    "masked LM": ("fill_mask", {}, "BertForMaskedLM"),
    "classes": ("classification", {"num_classes": 3}, "BertForSequenceClassification"),
    "scores": ("regression", {}, "BertForSequenceClassification"),
    "any labels": ("multi_label", {"num_classes": 3}, "BertForSequenceClassification"),
    "span": ("question_answering", {}, "BertForQuestionAnswering"),
    "tokens": ("token_labels", {"num_classes": 3}, "BertForTokenClassification"),
    "tokens of two classes": ("token_labels", {"num_classes": 2}, "BertForTokenClassification"),
    "choices": ("multiple_choice", {"num_choices": 4}, "BertForMultipleChoice"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Gives a model none of whose weights is what a fresh one has, and the folder of its files."""

    @functools.cache
    def make(kind: str) -> tuple[keras.Model, pathlib.Path]:
        rng, folder = np.random.default_rng(5), tmp_path_factory.mktemp("saved")
        head, options, _ = MODELS[kind]
        model = make_model(head, TWO_BLOCKS if kind == "encoder" else ONE_BLOCK, **options)
        for variable in model.trainable_variables:
            variable.assign(rng.standard_normal(variable.shape))
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in model_files.PIECES))
        model.save(str(folder / "model.keras"))
        return model, folder

    return make


@pytest.mark.parametrize("kind", MODELS)
def test_there_and_back(saved, kind):
    model, folder = saved(kind)
    expected = {checkpoint_name(v): np.array(v) for v in model.trainable_variables}
    weights = open_weights(path := f"{folder}/model.keras")
    assert (weights.path, weights.format, weights.config) == (path, "keras", model.config)
    assert weights.pieces == model_files.PIECES
    model_files.assert_same(model_files.all_tensors(weights), expected)
    assert weights.shapes == {name: value.shape for name, value in expected.items()}
    assert weights.metadata.architecture == MODELS[kind][2]
    assert (weights.metadata.task or shown_head(weights)) == MODELS[kind][0]


READ = """
import sys, bert_tf
for path in sys.argv[1:]:
    print(path, len(bert_tf.open_weights(path).names))
"""


def test_a_process_that_has_imported_nothing_else_reads_them(saved):
    """The layers of every head are registered with Keras by then."""
    made = [saved(kind) for kind in ("tokens", "losses")]
    numbers = {f"{folder}/model.keras": len(model.weights) for model, folder in made}
    ended = subprocess.run([sys.executable, "-c", READ, *numbers], capture_output=True, text=True)
    found = (line.rsplit(maxsplit=1) for line in ended.stdout.splitlines())
    assert {path: int(number) for path, number in found} == numbers, ended.stderr


def test_two_weights_of_one_name(tmp_path):
    """Refused wherever weights go by name, instead of one of them lost."""
    encoder = make_model("embeddings", ONE_BLOCK)
    top = keras.layers.Dense(3, name="classifier")(encoder.output["pooled_output"])
    for part in ("one", "two"):
        dense = keras.layers.Dense(3, name="top")
        dense.build((None, 3))  # by itself, and so without the name of its part
        top = keras.Sequential([dense], name=part)(top)
    model = BertModel(encoder.input, {"logits": top}, name="twins")
    assert [v.path for v in model.weights].count("top/kernel") == 2
    says = r"twins with two weights that are both named top/kernel\n"
    folder = tmp_path / "saved"
    for use in (
        lambda: save_weights(model, folder, format="bert_tf"),
        lambda: load_checkpoint(model, model_files.weights_of(model_files.tensors_of())),
        lambda: make_trainer(model=lambda: model, head="classification"),
    ):
        with pytest.raises(InputError, match=says):
            use()
    assert not folder.exists()


def refused(path, message: str) -> InputError:
    with pytest.raises(InputError, match=message) as caught:
        open_weights(str(path))
    assert str(path) in caught.value.received
    return caught.value


def test_weights_without_a_model(tmp_path, saved):
    """Their sizes and their head would have to be guessed."""
    path = tmp_path / "model.weights.h5"
    saved("encoder")[0].save_weights(path)
    assert "model.load_weights(path)" in refused(path, "without the model").remedy


def test_a_foreign_model(tmp_path):
    """A lambda in it is not run: it holds Python's code, which Keras's safe mode refuses."""
    trace, inputs = tmp_path / "trace", keras.Input((3,))
    foreign = keras.Model(inputs, keras.layers.Dense(2, name="stranger")(inputs))
    layer = keras.layers.Lambda(lambda x, path=str(trace): [x, open(path, "w").close()][0])
    with_lambda = keras.Model(inputs, layer(inputs))
    trace.unlink()  # of this very model
    refused(tmp_path / "model.keras", "no checkpoint")
    for model, message in ((foreign, "stranger"), (with_lambda, "cannot be read")):
        model.save(str(tmp_path / "model.keras"))
        refused(tmp_path / "model.keras", message)
    assert not trace.exists()
