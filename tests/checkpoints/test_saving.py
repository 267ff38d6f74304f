"""Weights edited, saved in every format, read again, compared; nothing half-made is left."""

import dataclasses
import json

import killed
import model_files
import numpy as np
import pytest
import small
import tensorflow as tf

from bert_tf import load_checkpoint, make_model
from bert_tf.checkpoints.loading import open_weights, tokenizer_of
from bert_tf.checkpoints.metadata import WRITTEN
from bert_tf.checkpoints.saving import (
    POSITION_TABLE,
    WORD_TABLE,
    add_pieces,
    difference_of_outputs,
    extend_positions,
    outputs_of,
    random_inputs,
    save_weights,
    without_slots,
    write_weights,
)
from bert_tf.checkpoints.shown_heads import OUTPUT_BIAS, head_weights
from bert_tf.cli.convert import default_format, description
from bert_tf.errors import InputError

CONFIG, weights_of = small.CONFIG, model_files.weights_of
WORDS, BIAS, POSITIONS = WORD_TABLE, OUTPUT_BIAS, POSITION_TABLE


@pytest.fixture
def grown():
    """Random weights with Adam's moments of what grows, and a counter."""
    weights = model_files.tensors_of()
    slots = {f"{name}/adam_{m}": weights[name] + 1 for name in (WORDS, BIAS) for m in "mv"}
    return weights | slots | {"global_step": np.int64(7)}


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
    """Exact to the byte, with the original's names."""
    tensors = model_files.tensors_of(kind)
    weights = open_weights(model_files.write_tf1(tmp_path / "first", tensors))
    for number, name in enumerate(("bert_tf", "hugging_face", "tf1")):
        weights = open_weights(save_weights(weights, f"{tmp_path}/{number}", format=name))
        model_files.assert_same(model_files.all_tensors(weights), tensors)
        assert weights.config == CONFIG
        assert weights.pieces == model_files.PIECES
    assert weights.path == f"{tmp_path}/2/bert_model.ckpt"
    values = json.loads((tmp_path / "2/bert_config.json").read_text())
    assert values.keys() == CONFIG.to_dict().keys() - {"layer_norm_eps"}  # as the original knows


def test_the_originals_own_checkpoint(tmp_path, tiny):
    first = open_weights(str(tiny / "bert_model.ckpt"))
    everything = model_files.all_tensors(first)
    with_slots = open_weights(save_weights(first, f"{tmp_path}/a", format="bert_tf"))
    model_files.assert_same(model_files.all_tensors(with_slots), everything)
    assert len(first.slots) >= 2 * len(first.names)
    theirs = open_weights(save_weights(with_slots, f"{tmp_path}/b", format="hugging_face"))
    last = open_weights(save_weights(theirs, f"{tmp_path}/c", format="tf1"))
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
    weights = weights_of(tensors, config=config)
    with pytest.raises(InputError, match=says) as caught:
        save_weights(weights, f"{tmp_path}/a", format="tf1")
    assert "--format=bert_tf" in caught.value.remedy
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------- nothing half-made


def test_a_place_where_nothing_can_be_made(tmp_path, tensors):
    weights = weights_of(tensors)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("keep")
    places = {"mine": "already exists", "mine/notes.txt/a": "cannot be written"}
    for place, says in places.items():
        with pytest.raises(InputError, match=says):
            save_weights(weights, tmp_path / place, format="bert_tf")
    with pytest.raises(AttributeError, match="Expected: one that has its own\nTo do: load it by"):
        print(make_model("classification", CONFIG).tokenizer)
    assert "shapes" not in repr(weights)  # nor the vocabulary: pages of names
    with pytest.raises(InputError, match=r"without a bert_config\.json"):
        save_weights(dataclasses.replace(weights, config=None), tmp_path / "a")
    assert [p.name for p in tmp_path.rglob("*")] == ["mine", "notes.txt"]


@pytest.mark.parametrize("function", [save_weights, load_checkpoint])
def test_a_model_and_a_path_that_are_swapped(tmp_path, tensors, function):
    """Both functions take the model first."""
    model, weights = make_model("embeddings", CONFIG), weights_of(tensors)
    folder = tmp_path / "a"
    for first, second in ((str(folder), model), (folder, weights), (folder, "b"), (weights, model)):
        with pytest.raises(InputError, match="as a path\nExpected: the model first") as caught:
            function(first, second)
        assert f"bert_tf.{function.__name__}(model, path)" in caught.value.remedy
    with pytest.raises(InputError, match="None as a model"):
        function(None, folder)
    assert not folder.exists()


def test_the_format_by_default_and_an_unknown_one(tmp_path, tensors):
    """That of the command, where the weights do not have it already."""
    weights = weights_of(tensors)
    read = open_weights(save_weights(weights, tmp_path / "a"))
    assert read.format == default_format("convert", weights) == "hugging_face"
    assert default_format("convert", read) == "bert_tf"
    assert [default_format("strip", of) for of in (weights, read)] == ["bert_tf", "hugging_face"]
    with pytest.raises(InputError, match="format 'keras'\nExpected: one of hugging_face, tf1"):
        save_weights(weights, tmp_path / "b", format="keras")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("file_format", [name for name in WRITTEN if name != "tf1"])
@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), tf.errors.DataLossError(None, None, "x")],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_in_the_middle(tmp_path, tensors, file_format, error):
    """Of the last tensor: what was written before is gone too."""
    weights = weights_of(tensors)

    def read(name: str) -> np.ndarray:
        if name == weights.names[-1]:
            raise error
        return tensors[name]

    failing = dataclasses.replace(weights, read=read)
    expected = InputError if isinstance(error, tf.errors.OpError) else type(error)
    with pytest.raises(expected):
        save_weights(failing, f"{tmp_path}/a", format=file_format)
    assert not list(tmp_path.iterdir())


def test_leftovers_of_a_killed_process(tmp_path, tensors):
    """They go; a folder of the user's with a similar name stays."""
    for folder in (tmp_path / "a.incomplete", killed.leave(tmp_path / "a", None) / "a"):
        (folder / "incomplete").mkdir(parents=True)
        (folder / "model.safetensors").write_text("half")
    path = save_weights(weights_of(tensors), f"{tmp_path}/a", format="tf1")
    model_files.assert_same(model_files.all_tensors(open_weights(path)), tensors)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "a.incomplete"]
    assert not (tmp_path / "a/model.safetensors").exists()
    assert (tmp_path / "a.incomplete/model.safetensors").exists()


@pytest.mark.parametrize("file_format", WRITTEN)
def test_the_proof_comes_before_the_name(tmp_path, tensors, file_format):
    """It reads the whole model under a temporary name; without it nothing is left."""
    weights, path, read = weights_of(tensors), tmp_path / "x/a", []

    def prove(folder: str) -> None:
        assert not path.exists()
        read.append(model_files.all_tensors(open_weights(folder)))
        if len(read) == 1:
            raise InputError("other outputs", "the same", "report it")

    with pytest.raises(InputError, match="other outputs"):
        write_weights(weights, str(path), file_format, prove=prove)
    assert not list(tmp_path.iterdir())
    written = write_weights(weights, str(path), file_format, prove=prove)
    model_files.assert_same(model_files.all_tensors(open_weights(written)), read[0])
    model_files.assert_same(read[1], read[0])
    assert [p.name for p in (tmp_path / "x").iterdir()] == ["a"]


def test_a_path_that_only_tensorflow_takes_for_a_pattern(tmp_path, tensors):
    """Of Hugging Face's format it is one like any other."""
    path, weights = tmp_path / "lr=[1e-4]", weights_of(tensors)
    for file_format in ("tf1", "bert_tf"):
        with pytest.raises(InputError, match="without square brackets"):
            save_weights(weights, path, format=file_format)
    assert not path.exists()
    written = open_weights(save_weights(weights, path))
    assert written.names == open_weights(save_weights(weights, tmp_path / "a")).names


# ---------------------------------------------------------------------------- strip


SLOTS = {  # what optimizers add to the variable VAR, and beside all
    "BERTAdam": ("VAR/BERTAdam", "VAR/BERTAdam_1"),
    "AdamWeightDecayOptimizer": ("VAR/AdamWeightDecayOptimizer", "VAR/AdamWeightDecayOptimizer_1"),
    "Adam": ("VAR/Adam", "VAR/Adam_1", "beta1_power", "beta2_power"),
    "in a scope": ("VAR/train/Adam", "VAR/train/Adam_1", "train/beta1_power"),
    "LAMB": ("VAR/lamb_m", "VAR/lamb_v", "global_step"),
    "LAMBOptimizer": ("VAR/LAMBOptimizer", "VAR/LAMBOptimizer_1", "beta1_power_1"),
    "Momentum": ("VAR/Momentum",),
    "Adagrad": ("VAR/Adagrad",),
    "RMSProp": ("VAR/RMSProp", "VAR/RMSProp_1"),
    "Keras": ("training/Adam/VAR/m", "training/Adam/VAR/v", "training/Adam/iter",
              "training/Adam/learning_rate", "training/Adam/beta_1", "training/Adam/decay"),
    "means": ("VAR/ExponentialMovingAverage", "VAR/ExponentialMovingAverage/biased",
              "VAR/ExponentialMovingAverage/local_step"),
    "float16": ("VAR/adam_m", "VAR/adam_v", "current_loss_scale", "good_steps"),
}  # fmt: skip


@pytest.mark.parametrize("optimizer", SLOTS)
def test_slots_of_every_optimizer(tmp_path, optimizer):
    """Stripped, and not counted, however they are named; of all heads."""
    tensors = {k: v for kind in model_files.KINDS for k, v in model_files.tensors_of(kind).items()}
    weights = tensors | {"own/temperature": np.float32(3)}
    slots = {
        slot.replace("VAR", name): np.full_like(value, 2) if "VAR" in slot else np.float32(0.5)
        for slot in SLOTS[optimizer]
        for name, value in weights.items()
    }
    slots |= {n: np.float32(1) for n in slots if n.endswith("local_step")}
    source = weights_of(weights | slots)
    assert (source.names, source.slots) == (sorted(weights), sorted(slots))
    model_files.assert_same(model_files.all_tensors(without_slots(source)), weights)
    parameters = sum(np.size(value) for value in weights.values())
    assert f"  {len(weights)} weights, {parameters:,} parameters\n" in description(source)
    assert "own/temperature" in head_weights(source)
    path = save_weights(without_slots(source), tmp_path / "stripped", format="bert_tf")
    model_files.assert_same(model_files.all_tensors(open_weights(path)), weights)


def test_a_second_encoder_has_weights_of_its_own():
    """Names within names are slots only if something follows them."""
    one = model_files.tensors_of()
    other = {f"other/{name}": value + 1 for name, value in one.items()}
    # Only of a weight's shape.
    own = {"bert/pooler/dense/bias/scale": np.ones(3, np.float32)}
    assert weights_of(one | other | own).slots == []


# ---------------------------------------------------------------------------- extra tokens


def test_extra_tokens_take_spare_rows_first(grown):
    """38 pieces, 41 rows, 5 new pieces: three spare rows and two new ones."""
    grown[BIAS][38:] = -10000
    weights = weights_of(grown, pieces=model_files.PIECES[:38])
    new = ["[A]", "[B]", "c", "##d", "é"]
    longer = add_pieces(weights, new, seed=9)
    assert longer.pieces == (*model_files.PIECES[:38], *new)
    assert longer.config.vocab_size == len(longer.pieces) == 43
    table, bias = longer.read(WORDS), longer.read(BIAS)
    np.testing.assert_array_equal(table[:38], grown[WORDS][:38])
    np.testing.assert_array_equal(bias[:38], grown[BIAS][:38])
    np.testing.assert_array_equal(bias[38:], np.zeros(5))
    assert not np.any(table[38:41] == grown[WORDS][38:])
    assert len(np.unique(table[38:])) == 5 * 22  # all drawn, no two alike
    assert np.abs(table[38:]).max() <= 2 * CONFIG.initializer_range
    assert table.dtype == np.float32
    for slot in ("adam_m", "adam_v"):
        np.testing.assert_array_equal(longer.read(f"{WORDS}/{slot}")[38:], np.zeros((5, 22)))
    tokenizer = tokenizer_of(longer, longer.config, None, True)
    assert tokenizer.convert_tokens_to_ids(new) == [38, 39, 40, 41, 42]
    report = load_checkpoint(make_model("pretraining", longer.config), longer)
    assert not report.missing


def test_extra_tokens_within_the_spare_rows(grown):
    weights = weights_of(grown, pieces=model_files.PIECES[:38])
    one, same, other = (add_pieces(weights, ["n"], seed=seed) for seed in (1, 1, 2))
    assert one.config == CONFIG
    np.testing.assert_array_equal(one.read(WORDS)[39:], grown[WORDS][39:])
    np.testing.assert_array_equal(one.read(WORDS), same.read(WORDS))
    assert not np.any(one.read(WORDS)[38] == other.read(WORDS)[38])
    two = add_pieces(one, ["m"], seed=1).read(WORDS)
    assert not np.any(two[38] == two[39])


@pytest.mark.parametrize(
    ("pieces", "extra", "says"),
    [
        (model_files.PIECES, ["new", "w3"], "w3"),
        (model_files.PIECES, ["new", "new"], "new"),
        (None, ["new"], "without a vocabulary"),
    ],
)
def test_refused_extra_tokens(grown, pieces, extra, says):
    with pytest.raises(InputError, match=says):
        add_pieces(weights_of(grown, pieces=pieces), extra)


# ---------------------------------------------------------------------------- positions


def test_extended_positions(caplog):
    """Computed by hand: 3 rows become 8."""
    three = dataclasses.replace(CONFIG, max_position_embeddings=3)
    table = np.array([[1, 10], [2, 20], [3, 30]], np.float32)
    slots = {f"{POSITIONS}/adam_m": table + 1, f"{POSITIONS}/adam_v": table + 2}
    others = {WORDS: np.ones((4, 2), np.float32), "global_step": np.int64(7)}
    weights = weights_of({POSITIONS: table} | slots | others, config=three)
    longer = extend_positions(weights, 8)
    assert longer.config == dataclasses.replace(CONFIG, max_position_embeddings=8)
    expected = {POSITIONS: [[1, 10], [2, 20], [3, 30], [1, 10], [2, 20], [3, 30], [1, 10], [2, 20]]}
    zeros = [[0, 0]] * 5
    expected[f"{POSITIONS}/adam_m"] = [[2, 11], [3, 21], [4, 31], *zeros]
    expected[f"{POSITIONS}/adam_v"] = [[3, 12], [4, 22], [5, 32], *zeros]
    expected = {name: np.array(value, np.float32) for name, value in expected.items()} | others
    model_files.assert_same(model_files.all_tensors(longer), expected)
    assert {name: longer.shapes[name] for name in expected} == {
        name: value.shape for name, value in expected.items()
    }
    (message,) = caplog.messages
    assert "positions 3 to 7 are copies" in message
    assert "Train the model further" in message
    assert extend_positions(weights, 3) is weights
    with pytest.raises(InputError, match=r"max_position_embeddings=2 for .* which has 3"):
        extend_positions(weights, 2)


# ---------------------------------------------------------------------------- the proof

OUTPUTS = {
    "pretraining": {"masked_lm_logits", "next_sentence_logits"},
    "classifier": {"logits"},
    "span": {"start_logits", "end_logits"},
}
SHALLOW = dataclasses.replace(CONFIG, num_hidden_layers=1)


@pytest.mark.parametrize("kind", model_files.KINDS)
def test_the_proof(kind):
    """0 for the same weights; not 0 for any that is changed, and only where it counts."""
    tensors = model_files.tensors_of(kind, SHALLOW)
    weights = weights_of(tensors, config=SHALLOW)
    names = {"pooled_output", "sequence_output"} | OUTPUTS[kind]
    assert model_files.greatest_difference(weights, weights) == dict.fromkeys(names, 0.0)
    inputs = random_inputs(SHALLOW)
    outputs = outputs_of(weights, inputs)
    heads = {n for n in tensors if n.endswith(("output_weights", "output_bias"))}
    for name in [*heads, "bert/encoder/layer_0/output/dense/bias"]:
        changed = tensors | {name: tensors[name].copy()}
        changed[name].flat[0] += 0.5
        other = weights_of(changed, config=SHALLOW)
        found = difference_of_outputs(outputs, outputs_of(other, inputs))
        assert max(found.values()) > 1e-3, name
        assert (found["sequence_output"] > 0) is (name not in heads), name


@pytest.mark.parametrize(
    ("kind", "left_out", "expected"),
    [
        ("pretraining", "cls/pred", {"pooled_output", "sequence_output", "next_sentence_logits"}),
        ("pretraining", "cls/", {"pooled_output", "sequence_output"}),
        ("pretraining", "bert/pooler", {"sequence_output", "masked_lm_logits"}),
        ("classifier", "bert/pooler", {"sequence_output", "logits"}),
        ("span", "bert/pooler", {"sequence_output", "start_logits", "end_logits"}),
    ],
)
def test_the_proof_of_a_model_without_all_parts(kind, left_out, expected):
    """What is not in the weights is not compared: fresh values would differ every time."""
    tensors = model_files.tensors_of(kind, SHALLOW)
    there = {name: value for name, value in tensors.items() if not name.startswith(left_out)}
    weights = weights_of(there, config=SHALLOW)
    assert model_files.greatest_difference(weights, weights) == dict.fromkeys(expected, 0.0)


def test_a_classifier_of_tokens_and_a_head_that_is_lost():
    """Without a pooler the head is that of each token, as in BertForTokenClassification."""
    tensors = model_files.tensors_of("classifier")
    there = {name: value for name, value in tensors.items() if "pooler" not in name}
    outputs = outputs_of(weights_of(there), random_inputs(CONFIG))
    expected = outputs["sequence_output"] @ tensors["output_weights"].T + tensors["output_bias"]
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)
    with pytest.raises(KeyError, match="logits"):
        difference_of_outputs(outputs, {"sequence_output": outputs["sequence_output"]})
