"""The losses of all heads, worked out by hand; of pre-training on a vocabulary of three."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import heads

LN2, LN4, LN8 = math.log(2), math.log(4), math.log(8)
# The soft-max of these is 1/8, 2/8, 5/8, whatever is added to all.
LOGITS = [math.log(1), math.log(2), math.log(5)]
BOTH, MASKED = heads.Pretraining(), heads.FillMask()


def outputs_and_batch() -> tuple[dict, dict]:
    """Two examples with two predictions each, the last one padding.

    next-sentence losses: ln 2, ln 4.
    """
    outputs = {
        "masked_lm_logits": np.float32(
            [[LOGITS, np.add(LOGITS, 9)], [np.subtract(LOGITS, 7), [50.0, 0.0, -50.0]]]
        ),
        "masked_lm_losses": np.float32([[LN8, LN4], [math.log(8 / 5), 50.0]]),
        "next_sentence_logits": np.float32([[3.0, 3.0], [math.log(3), 0.0]]),
    }
    batch = {
        "masked_lm_ids": np.array([[0, 1], [2, 0]]),
        "masked_lm_weights": np.float32([[1.0, 1.0], [1.0, 0.0]]),
        "next_sentence_labels": np.array([[0], [1]]),
        "is_real_example": np.ones(2, np.float32),
    }
    return outputs, batch


def measured(outputs, batch, head=BOTH) -> dict[str, float]:
    weights, losses = head.denominators(batch), head.loss_sums(outputs, batch)
    assert set(weights) == set(losses) == set(head.terms)
    named = {"loss": head.loss(losses, weights)} | head.metric_sums(outputs, batch)
    named |= {f"{term}_weight": value for term, value in weights.items()}
    named |= {f"{term}_loss": value for term, value in losses.items()}
    for value in named.values():
        assert (value.dtype, value.shape) == (tf.float32, ())
    return {name: float(value) for name, value in named.items()}


def test_by_hand():
    expected = {
        "masked_lm_weight": 3,
        "masked_lm_loss": LN8 + LN4 + math.log(8 / 5),
        "masked_lm_accuracy": 1,  # the third: 5/8 is the most
        "next_sentence_weight": 2,
        "next_sentence_loss": LN2 + LN4,
        "next_sentence_accuracy": 1,  # of equal logits the first is taken
        "loss": (LN8 + LN4 + math.log(8 / 5)) / (3 + 1e-5) + (LN2 + LN4) / 2,
    }
    outputs, batch = outputs_and_batch()
    assert measured(outputs, batch) == pytest.approx(expected, rel=1e-6)
    half = {n: tf.cast(v, tf.bfloat16) for n, v in outputs.items() if n.endswith("_logits")}
    assert measured(outputs | half, batch) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("weights", "loss"),
    [
        ([[1, 1], [1, 0]], (LN8 + LN4 + math.log(8 / 5)) / (3 + 1e-5)),
        ([[0.5, 2], [0, 0]], (0.5 * LN8 + 2 * LN4) / (2.5 + 1e-5)),
        ([[1e-5, 0], [0, 0]], LN8 / 2),  # the small number in the denominator
        ([[0, 0], [0, 0]], 0),
    ],
)
def test_masked_lm_alone(weights, loss):
    outputs, batch = outputs_and_batch()
    del outputs["next_sentence_logits"], batch["next_sentence_labels"]
    found = measured(outputs, batch | {"masked_lm_weights": np.float32(weights)}, MASKED)
    assert set(found) == {"loss", "masked_lm_weight", "masked_lm_loss", "masked_lm_accuracy"}
    assert found["loss"] == pytest.approx(loss)


@pytest.mark.parametrize("row", [0, 1])
def test_rows_that_fill_up_a_batch_do_not_count(row):
    outputs, batch = outputs_and_batch()
    batch["is_real_example"] = np.float32([row == 0, row == 1])
    alone = [{k: v[row : row + 1] for k, v in part.items()} for part in outputs_and_batch()]
    assert measured(outputs, batch) == pytest.approx(measured(*alone))


# ---------------------------------------------------------------------------- fine-tuning

TOKENS = {"logits": np.log(np.float32([[[1, 3], [4, 1]], [[1, 1], [1, 9]], [[1, 1], [1, 1]]]))}
SPANS = {
    "start_logits": np.log(np.float32([[1, 3], [4, 1], [1, 1]])),
    "end_logits": np.log(np.float32([[1, 1], [1, 9], [1, 1]])),
}


@pytest.mark.parametrize(
    ("head", "outputs", "labels", "losses", "accuracy"),
    [
        (heads.Classification, np.log(np.float32([[1, 3], [4, 1], [1, 9]])), [[1], [1], [0]],
         [np.log(3 / 4), np.log(1 / 5)], 0.5),
        (heads.MultipleChoice, np.log(np.float32([[1, 3], [4, 1], [1, 9]])), [[1], [1], [0]],
         [np.log(3 / 4), np.log(1 / 5)], 0.5),
        (heads.Regression, np.float32([[1], [1], [1]]), np.float32([[1.5], [-2], [9]]),
         [-0.25, -9], None),
        (heads.MultiLabel, np.log(np.float32([[1, 3], [4, 1], [1, 1]])), [[1, 1], [0, 1], [0, 0]],
         [(np.log(1 / 2) + np.log(3 / 4)) / 2, (np.log(1 / 5) + np.log(1 / 2)) / 2], None),
        (heads.TokenLabels, TOKENS, [[1, -1], [-1, 0], [0, 0]],
         [np.log(3 / 4), np.log(1 / 10)], 0.5),
        (heads.QuestionAnswering, SPANS, [[0], [0], [0]],
         [(np.log(1 / 4) + np.log(1 / 2)) / 2, (np.log(4 / 5) + np.log(9 / 10)) / 2], None),
    ],
)  # fmt: skip
def test_heads_of_tasks(head, outputs, labels, losses, accuracy):
    """The mean of two items; the last row only fills up the batch."""
    outputs = outputs if isinstance(outputs, dict) else {"logits": outputs}
    labels = labels if isinstance(labels, np.ndarray) else np.int32(labels)
    batch = {"label_ids": labels, "is_real_example": np.float32([1, 1, 0])}
    batch |= {"start_positions": labels, "end_positions": labels + 1}
    found = measured(outputs, batch, head())
    assert found.pop("loss") == pytest.approx(-sum(losses) / 2, rel=1e-6)
    (term,) = head.terms
    assert found.get(f"{term}_accuracy") == (accuracy and 2 * accuracy)


def test_losses_of_another_shape_than_the_weights_are_refused():
    """They would be broadcast, and the loss be another one."""

    class Own(heads.Regression):
        def losses(self, outputs, batch):
            """[B, 1] in place of [B]."""
            return {"regression": tf.square(outputs["logits"] - batch["label_ids"])}

    outputs = {"logits": tf.zeros([3, 1])}
    batch = {"label_ids": tf.ones([3, 1]), "is_real_example": tf.ones([3])}
    with pytest.raises(ValueError, match=r"\(3, 1\) and \(3,\) are incompatible"):
        Own().loss_sums(outputs, batch)
