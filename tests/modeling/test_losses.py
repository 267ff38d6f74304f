"""The pre-training losses, worked out by hand on a vocabulary of three."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf import heads

LN2, LN4, LN8 = math.log(2), math.log(4), math.log(8)
# The soft-max of these is 1/8, 2/8, 5/8, whatever is added to all.
LOGITS = [math.log(1), math.log(2), math.log(5)]


def outputs_and_batch() -> tuple[dict, dict]:
    """Two examples with two predictions each, the last one padding.

    next-sentence losses: ln 2, ln 4.
    """
    outputs = {
        "masked_lm_logits": tf.constant(
            [[LOGITS, np.add(LOGITS, 9)], [np.subtract(LOGITS, 7), [50.0, 0.0, -50.0]]], tf.float32
        ),
        "masked_lm_losses": tf.constant([[LN8, LN4], [math.log(8 / 5), 50.0]]),
        "next_sentence_logits": tf.constant([[3.0, 3.0], [math.log(3), 0.0]]),
    }
    batch = {
        "masked_lm_ids": tf.constant([[0, 1], [2, 0]]),
        "masked_lm_weights": tf.constant([[1.0, 1.0], [1.0, 0.0]]),
        "next_sentence_labels": tf.constant([[0], [1]]),
        "is_real_example": tf.ones([2]),
    }
    return outputs, batch


def measured(outputs, batch, head=None) -> dict[str, float]:
    objective = head or heads.Pretraining()
    weights, losses = objective.denominators(batch), objective.loss_sums(outputs, batch)
    assert set(weights) == set(losses) == set(objective.terms)
    named = {"loss": objective.loss(losses, weights)}
    named |= {f"{term}_weight": value for term, value in weights.items()}
    named |= {f"{term}_loss": value for term, value in losses.items()}
    named |= objective.metric_sums(outputs, batch)
    for value in named.values():
        assert (value.dtype, value.shape) == (tf.float32, ())
    return {name: float(value) for name, value in named.items()}


def test_by_hand():
    assert measured(*outputs_and_batch()) == pytest.approx(
        {
            "masked_lm_weight": 3,
            "masked_lm_loss": LN8 + LN4 + math.log(8 / 5),
            "masked_lm_accuracy": 1,  # the third: 5/8 is the most
            "next_sentence_weight": 2,
            "next_sentence_loss": LN2 + LN4,
            "next_sentence_accuracy": 1,  # of equal logits the first is taken
            "loss": (LN8 + LN4 + math.log(8 / 5)) / (3 + 1e-5) + (LN2 + LN4) / 2,
        },
        rel=1e-6,
    )


def test_the_small_number_in_the_denominator():
    """1e-5 beside the sum of weights: with a weight of 1e-5 the loss is half the mean."""
    outputs, batch = outputs_and_batch()
    batch["masked_lm_weights"] = tf.constant([[1e-5, 0.0], [0.0, 0.0]])
    assert measured(outputs, batch, head=heads.FillMask())["loss"] == pytest.approx(LN8 / 2)
    batch["masked_lm_weights"] = tf.zeros([2, 2])
    assert measured(outputs, batch, head=heads.FillMask())["loss"] == 0


def test_padding_predictions_do_not_count():
    outputs, batch = outputs_and_batch()
    expected = measured(outputs, batch)
    for label, logits in ((1, [0.0, -30.0, 2.0]), (2, [1.0, 2.0, 3.0])):
        batch["masked_lm_ids"] = tf.constant([[0, 1], [2, label]])
        outputs = {name: np.array(value) for name, value in outputs.items()}
        outputs["masked_lm_logits"][1, 1] = logits
        outputs["masked_lm_losses"][1, 1] = label
        assert measured(outputs, batch) == expected


def test_weights_between_none_and_all():
    outputs, batch = outputs_and_batch()
    batch["masked_lm_weights"] = tf.constant([[0.5, 2.0], [0.0, 0.0]])
    given = measured(outputs, batch, head=heads.FillMask())
    assert given["masked_lm_loss"] == pytest.approx(0.5 * LN8 + 2 * LN4)
    assert given["loss"] == pytest.approx((0.5 * LN8 + 2 * LN4) / (2.5 + 1e-5))


@pytest.mark.parametrize("row", [0, 1])
def test_rows_that_fill_up_a_batch_do_not_count(row):
    outputs, batch = outputs_and_batch()
    batch["is_real_example"] = tf.constant([float(row == 0), float(row == 1)])
    alone = [{k: v[row : row + 1] for k, v in part.items()} for part in outputs_and_batch()]
    assert measured(outputs, batch) == pytest.approx(measured(*alone))


def test_masked_lm_only():
    outputs, batch = outputs_and_batch()
    del outputs["next_sentence_logits"], batch["next_sentence_labels"]
    values = measured(outputs, batch, head=heads.FillMask())
    assert set(values) == {"loss", "masked_lm_weight", "masked_lm_loss", "masked_lm_accuracy"}
    assert values["loss"] == pytest.approx((LN8 + LN4 + math.log(8 / 5)) / (3 + 1e-5))


def test_logits_in_half_precision_are_summed_in_single():
    outputs, batch = outputs_and_batch()
    half = {n: tf.cast(v, tf.bfloat16) for n, v in outputs.items() if n.endswith("_logits")}
    assert measured(outputs | half, batch) == pytest.approx(measured(outputs, batch), rel=0.01)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 11), max_size=3).map(sorted))
def test_sums_of_parts_are_the_sums_of_the_whole(seed, cuts):
    """However 11 examples are cut into micro-batches, the loss is that of all."""
    rng = np.random.default_rng(seed)
    outputs = {
        "masked_lm_logits": rng.normal(size=[11, 5, 7]).astype(np.float32),
        "next_sentence_logits": rng.normal(size=[11, 2]).astype(np.float32),
    }
    batch = {
        "masked_lm_ids": rng.integers(0, 7, [11, 5]).astype(np.int32),
        "masked_lm_weights": rng.integers(0, 2, [11, 5]).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, [11, 1]).astype(np.int32),
        "is_real_example": (np.arange(11) < 9).astype(np.float32),
    }
    logits = outputs["masked_lm_logits"].astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probs, batch["masked_lm_ids"][..., None], -1)[..., 0]
    outputs["masked_lm_losses"] = -chosen.astype(np.float32)
    objective = heads.Pretraining()

    def sums(first, stop):
        part = [{k: tf.constant(v[first:stop]) for k, v in x.items()} for x in (outputs, batch)]
        return (
            objective.denominators(part[1]),
            objective.loss_sums(*part),
            objective.metric_sums(*part),
        )

    bounds = [0, *cuts, 11]
    parts = [sums(first, stop) for first, stop in itertools.pairwise(bounds)]
    added = tf.nest.map_structure(lambda *values: tf.add_n(values), *parts)
    for ours, whole in zip(tf.nest.flatten(added), tf.nest.flatten(sums(0, 11)), strict=True):
        assert float(ours) == pytest.approx(float(whole), rel=1e-5, abs=1e-6)
    # The mean over real examples and masked places, in float64.
    weights = batch["masked_lm_weights"] * batch["is_real_example"][:, None]
    masked_lm = -(weights * chosen).sum() / (weights.sum() + 1e-5)
    logits = outputs["next_sentence_logits"].astype(np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    next_sentence = -np.mean(log_probs[range(9), batch["next_sentence_labels"][:9, 0]])
    loss = float(objective.loss(added[1], added[0]))
    assert loss == pytest.approx(masked_lm + next_sentence, rel=1e-5)


# ---------------------------------------------------------------------------- fine-tuning

REAL = np.float32([1, 1, 0])  # the last row only fills up the batch


def value(objective, outputs, batch) -> tuple[float, dict[str, float]]:
    """The loss of a batch, and its metrics as means."""
    weights = objective.denominators(batch)
    loss = objective.loss(objective.loss_sums(outputs, batch), weights)
    sums = objective.metric_sums(outputs, batch)
    (weight,) = weights.values()
    return float(loss), {name: float(s / weight) for name, s in sums.items()}


def test_classifier_objective():
    logits = np.log(np.float32([[1, 3], [4, 1], [1, 9]]))
    batch = {"label_ids": np.int32([[1], [1], [0]]), "is_real_example": REAL}
    loss, metrics = value(heads.Classification(), {"logits": logits}, batch)
    assert loss == pytest.approx(-(np.log(3 / 4) + np.log(1 / 5)) / 2, rel=1e-6)
    assert metrics == {"classifier_accuracy": 0.5}


def test_regression_objective():
    batch = {"label_ids": np.float32([[1.5], [-2], [9]]), "is_real_example": REAL}
    outputs = {"logits": np.float32([[1], [1], [1]])}
    assert value(heads.Regression(), outputs, batch) == ((0.25 + 9) / 2, {})


def test_multi_label_objective():
    logits = np.log(np.float32([[1, 3], [4, 1], [1, 1]]))
    batch = {"label_ids": np.int32([[1, 1], [0, 1], [0, 0]]), "is_real_example": REAL}
    loss, metrics = value(heads.MultiLabel(), {"logits": logits}, batch)
    rows = [(np.log(1 / 2) + np.log(3 / 4)) / 2, (np.log(1 / 5) + np.log(1 / 2)) / 2]
    assert loss == pytest.approx(-sum(rows) / 2, rel=1e-6)
    assert metrics == {}


def test_token_objective_counts_labelled_tokens_alone():
    logits = np.log(np.float32([[[1, 3], [4, 1]], [[1, 1], [1, 9]], [[1, 1], [1, 1]]]))
    batch = {"label_ids": np.int32([[1, -1], [-1, 0], [0, 0]]), "is_real_example": REAL}
    loss, metrics = value(heads.TokenLabels(), {"logits": logits}, batch)
    assert loss == pytest.approx(-(np.log(3 / 4) + np.log(1 / 10)) / 2, rel=1e-6)
    assert metrics == {"token_accuracy": 0.5}


def test_span_objective():
    outputs = {
        "start_logits": np.log(np.float32([[1, 3], [4, 1], [1, 1]])),
        "end_logits": np.log(np.float32([[1, 1], [1, 9], [1, 1]])),
    }
    batch = {
        "start_positions": np.int32([[0], [0], [0]]),
        "end_positions": np.int32([[1], [1], [1]]),
        "is_real_example": REAL,
    }
    loss, metrics = value(heads.QuestionAnswering(), outputs, batch)
    rows = [(np.log(1 / 4) + np.log(1 / 2)) / 2, (np.log(4 / 5) + np.log(9 / 10)) / 2]
    assert loss == pytest.approx(-sum(rows) / 2, rel=1e-6)
    assert metrics == {}
