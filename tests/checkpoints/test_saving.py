"""Saving in every format, what is read again, and that nothing half-made is left."""

import dataclasses
import json

import killed
import model_files
import numpy as np
import pytest
import reference
import small
import tensorflow as tf

from bert_tf.checkpoints.loading import open_weights
from bert_tf.checkpoints.metadata import FORMATS
from bert_tf.checkpoints.saving import WRITERS, save_weights
from bert_tf.errors import InputError

CONFIG = small.CONFIG


# ---------------------------------------------------------------------------- there and back


def tf1_restored(prefix: str, shapes) -> dict[str, np.ndarray]:
    """By a v1 graph with variables of those names, and TensorFlow 1's Saver."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name, value.shape, value.dtype, use_resource=False)
            for name, value in shapes.items()
        }
        tf.compat.v1.train.Saver().restore(session, prefix)
        return session.run(variables)


@pytest.mark.parametrize("kind", model_files.KINDS)
def test_tf1_ours_hugging_face_tf1(tmp_path, kind):
    """Exact to the byte, with the original's names and shapes at the end."""
    tensors = model_files.tensors_of(kind)
    weights = open_weights(model_files.write_tf1(tmp_path / "first", tensors))
    for number, to_format in enumerate(("bert_tf", "hugging_face", "tf1")):
        weights = open_weights(save_weights(f"{tmp_path}/{number}", weights, to_format=to_format))
        model_files.assert_same(model_files.all_tensors(weights), tensors)
        assert weights.config == CONFIG
        assert weights.pieces == model_files.PIECES
    assert weights.path == f"{tmp_path}/2/bert_model.ckpt"
    restored = tf1_restored(weights.path, tensors)
    model_files.assert_same(restored, tensors)
    shapes = reference.variable_shapes(CONFIG, heads=kind == "pretraining")
    shapes |= {
        "classifier": {"output_weights": (3, 22), "output_bias": (3,)},
        "span": {"cls/squad/output_weights": (2, 22), "cls/squad/output_bias": (2,)},
    }.get(kind, {})
    assert {name: value.shape for name, value in restored.items()} == shapes


def test_the_originals_own_checkpoint(tmp_path, goldens_dir):
    first = open_weights(str(goldens_dir / "pretraining_tiny/bert_model.ckpt"))
    everything = model_files.all_tensors(first)
    with_slots = open_weights(save_weights(f"{tmp_path}/a", first, to_format="bert_tf"))
    model_files.assert_same(model_files.all_tensors(with_slots), everything)
    assert len(first.slots) >= 2 * len(first.names)
    theirs = open_weights(save_weights(f"{tmp_path}/b", with_slots, to_format="hugging_face"))
    last = open_weights(save_weights(f"{tmp_path}/c", theirs, to_format="tf1"))
    weights_alone = {name: everything[name] for name in first.names}
    model_files.assert_same(tf1_restored(last.path, weights_alone), weights_alone)
    model_files.assert_same(model_files.all_tensors(last), weights_alone)
    assert (last.pieces, last.config) == (first.pieces, first.config)


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"hidden_act": "gelu_erf"}, "exact gelu"), ({"layer_norm_eps": 1e-5}, "1e-05")],
)
def test_what_the_original_cannot_compute(tmp_path, tensors, changes, says):
    config = dataclasses.replace(CONFIG, **changes)
    weights = model_files.weights_of(tensors, config=config)
    with pytest.raises(InputError, match=says) as caught:
        save_weights(f"{tmp_path}/a", weights, to_format="tf1")
    assert "--to_format=bert_tf" in caught.value.remedy
    assert not list(tmp_path.iterdir())


def test_what_is_written(tmp_path, tensors):
    """The original's configuration has no key that it does not know."""
    assert tuple(WRITERS) == FORMATS
    save_weights(f"{tmp_path}/a", model_files.weights_of(tensors), to_format="tf1")
    values = json.loads((tmp_path / "a/bert_config.json").read_text())
    assert values.keys() == CONFIG.to_dict().keys() - {"layer_norm_eps"}
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "vocab.txt",
    ]


# ---------------------------------------------------------------------------- nothing half-made


def test_a_place_where_nothing_can_be_made(tmp_path, tensors):
    weights = model_files.weights_of(tensors)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("keep")
    places = {"mine": "already exists", "mine/notes.txt/a": "cannot be written"}
    for place, says in places.items():
        with pytest.raises(InputError, match=says):
            save_weights(tmp_path / place, weights, to_format="bert_tf")
    with pytest.raises(InputError, match=r"without a bert_config\.json"):
        save_weights(tmp_path / "a", dataclasses.replace(weights, config=None), to_format="bert_tf")
    assert [p.name for p in tmp_path.rglob("*")] == ["mine", "notes.txt"]


@pytest.mark.parametrize("to_format", FORMATS)
@pytest.mark.parametrize(
    "error",
    [
        InputError(received="a", expected="b", remedy="c"),
        KeyboardInterrupt(),
        tf.errors.DataLossError(None, None, "x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_in_the_middle(tmp_path, tensors, to_format, error):
    """Of the last tensor: what was written before is gone too."""
    weights = model_files.weights_of(tensors)

    def read(name: str) -> np.ndarray:
        if name == weights.names[-1]:
            raise error
        return tensors[name]

    failing = dataclasses.replace(weights, read=read)
    expected = InputError if isinstance(error, tf.errors.OpError) else type(error)
    with pytest.raises(expected):
        save_weights(f"{tmp_path}/a", failing, to_format=to_format)
    assert not list(tmp_path.iterdir())


def test_leftovers_of_a_killed_process(tmp_path, tensors):
    """They go; a folder of the user's with a similar name stays."""
    killed.leave_lock(tmp_path / ".a.lock")
    for folder in ("a.incomplete", killed.left_name("a")):
        (tmp_path / folder / "incomplete").mkdir(parents=True)
        (tmp_path / folder / "model.safetensors").write_text("half")
    path = save_weights(f"{tmp_path}/a", model_files.weights_of(tensors), to_format="tf1")
    model_files.assert_same(model_files.all_tensors(open_weights(path)), tensors)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "a.incomplete"]
    assert not (tmp_path / "a/model.safetensors").exists()
    assert (tmp_path / "a.incomplete/model.safetensors").exists()
