"""A BiLSTM between encoder and classifier, and the layers that it reads (tables 5 and 7)."""

import dataclasses

import keras
import numpy as np
import pytest
import small
from small_runs import make_batch, make_trainer, packed, take_steps, tensors

from bert_tf import BertModel, make_model
from bert_tf.config import FEATURES
from bert_tf.data import PACKED_TOKENS
from bert_tf.modeling.models import packed_inputs

H, LAYERS = 9, 5  # of a direction; of the encoder
CONFIG = dataclasses.replace(
    small.CONFIG, num_hidden_layers=LAYERS, bilstm_layers=2, bilstm_size=H, initializer_range=0.2
)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x: np.ndarray, kernel, recurrent, bias) -> np.ndarray:
    """x [T, in] -> [T, H] (Hochreiter & Schmidhuber, 1997); input, forget, cell, output gates."""
    h, c, found = np.zeros(H), np.zeros(H), []
    for step in x:
        i, f, g, o = np.split(step @ kernel + h @ recurrent + bias, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        found.append(h)
    return np.array(found)


def by_hand(model: BertModel, features: str, every: list[np.ndarray]) -> np.ndarray:
    """What the BiLSTMs of a model make of one text's layers, [T, D] each: [T, 2 H]."""
    weights = {v.path: np.asarray(v, np.float64) for v in model.weights}
    embeddings, *blocks = every
    summed = {"sum_last_four": blocks[-4:], "sum_all": blocks}.get(features, [])
    if summed:
        shares = np.exp(weights["weighted_sum/layer_weights"])
        x = sum(s * y for s, y in zip(shares / shares.sum(), summed, strict=True))
    else:
        x = {"last": blocks[-1], "second_to_last": blocks[-2], "embeddings": embeddings,
             "concat_last_four": np.concatenate(blocks[-4:], axis=1)}[features]  # fmt: skip
    for i in range(CONFIG.bilstm_layers):
        forward, backward = (
            [weights[f"bilstm_{i}/{way}_lstm/lstm_cell/{name}"]
             for name in ("kernel", "recurrent_kernel", "bias")]
            for way in ("forward", "backward")
        )  # fmt: skip
        x = np.concatenate([lstm(x, *forward), lstm(x[::-1], *backward)[::-1]], axis=1)
    return x


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("head", ["token_labels", "classification"])
def test_logits_are_those_by_hand(head, features):
    """Of each text alone, without its padding; of batches that the step packs, too."""
    keras.utils.set_random_seed(7)
    config = dataclasses.replace(CONFIG, features=features)
    model = make_model(head, config, num_classes=3)
    for variable in model.weights:
        if variable.name == "layer_weights":
            variable.assign(np.linspace(-1, 1, variable.shape[0]))
    encoder = BertModel(config, all_layers=True)
    with packed_inputs():
        other = make_model(head, config, num_classes=3)
    shared = {v.path: v for v in model.weights}
    for variable in (*encoder.weights, *other.weights):
        variable.assign(shared[variable.path])
    examples = small.examples()
    inputs = {name: examples[name] for name in encoder.input}
    outputs = {name: np.asarray(value, np.float64) for name, value in encoder(inputs).items()}
    found = np.asarray(model(inputs)["logits"])
    tokens = packed(head, small.ROWS)[PACKED_TOKENS]
    of_packed = np.asarray(other({**inputs, PACKED_TOKENS: tokens})["logits"])
    weight, bias = (np.asarray(shared[f"classifier/output_{name}"]) for name in ("weights", "bias"))
    names = ("embedding_output", *(f"layer_{i}" for i in range(LAYERS)))
    for row, length in enumerate(inputs["input_mask"].sum(axis=1)):
        x = by_hand(model, features, [outputs[name][row, :length] for name in names])
        if head == "classification":
            x = np.concatenate([x[-1, :H], x[0, H:]])
        expected = x @ weight.T + bias
        for logits in (found[row], of_packed[row]):
            logits = logits if head == "classification" else logits[:length]
            small.close(logits, expected, 1e-5)


def test_no_rows_and_a_keras_file(tmp_path):
    model, inputs = make_model("token_labels", CONFIG, num_classes=3), small.examples()
    ids = inputs["input_ids"]
    assert model(ids[:0])["logits"].shape == (0, small.S, 3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    small.close(loaded(ids)["logits"], np.asarray(model(ids)["logits"]))


@pytest.mark.parametrize("head", ["token_labels", "question_answering"])
def test_fixed_features(head):
    """A step is one program; the encoder's weights stay, and what is on top of it learns."""
    config = dataclasses.replace(CONFIG, features="sum_last_four", bilstm_layers=1)
    trainer = make_trainer(config, head=head, xla=True, freeze=["^bert/"])
    before = tensors(trainer)
    batch = make_batch(head, 8)
    first, later = (take_steps(trainer, batch, steps)["loss"] for steps in (1, 9))
    assert later < first
    after = tensors(trainer)
    changed = {name for name in before if not (before[name] == after[name]).all()}
    assert not any(name.startswith("bert/") for name in changed)
    own = {name for name in before if name.startswith(("bilstm_0/", "weighted_sum/", "output_"))}
    assert own
    assert own <= changed
