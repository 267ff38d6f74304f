"""What all exports have in common: no texts, features, records, and requests that are refused."""

import numpy as np
import pytest
import served_models
from exported_answers import near, records, strings
from served_models import CONFIG, KINDS, TOKENIZER, TOP_K


@pytest.mark.parametrize("kind", KINDS)
def test_no_texts_no_answers(answers, kind):
    some, none, *_ = answers[kind]
    assert set(none) == set(some)
    for name, value in none.items():
        assert value.shape[0] == 0
        assert value.dtype == some[name].dtype


@pytest.mark.parametrize("kind", KINDS)
def test_features_and_their_records_give_the_same(answers, references, kind):
    _, _, of_ids, of_examples = answers[kind]
    ids, _ = records(kind)
    if kind != "fill_mask":  # whose records have positions too
        for name, value in of_ids.items():
            if value.dtype == np.float32:
                near(of_examples[name], value)
            else:
                np.testing.assert_array_equal(of_examples[name], value, err_msg=name)
    if kind == "multiple_choice":
        rows = [
            [references[kind].outputs(x[x > 0], [0] * (x > 0).sum())["logits"][0] for x in row]
            for row in ids
        ]
        scores = np.exp(rows - np.max(rows, axis=1, keepdims=True))
        near(of_ids["probabilities"], scores / scores.sum(axis=1, keepdims=True))
        return
    first = ids[0, 0][ids[0, 0] > 0]  # 4 pieces, without its padding
    more = {"masked_lm_positions": [[1, 2]]} if kind == "fill_mask" else {}
    wanted = references[kind].outputs(first, [0] * len(first), **more)
    if kind in ("question_answering", "no_answer"):
        near(of_ids["start_logits"][0, :4], wanted["start_logits"])
        near(of_ids["end_logits"][0, :4], wanted["end_logits"])
    elif kind == "embeddings":
        near(of_ids["mean"][0], wanted["sequence_output"].mean(axis=0))
    elif kind == "regression":
        near(of_ids["score"][0], wanted["logits"][0])
    elif kind == "fill_mask":
        assert of_ids["probabilities"].shape == (2, 2, TOP_K)
        best = wanted["masked_lm_logits"].argmax(axis=-1)
        assert strings(of_ids["pieces"][0, :, 0]) == TOKENIZER.convert_ids_to_tokens(best)
    else:
        logits = wanted["logits"].astype(np.float64)
        head = "multi_label" if kind == "multi_label" else "classification"
        shares = served_models.probabilities(head, logits)
        near(of_ids["probabilities"][0][: len(shares)], shares)


def test_requests_that_cannot_be_answered_say_why(results):
    first, uneven, shapes, row, segment, length, record, *others = results["refused"]
    great, no_multiple, not_utf8, again = others
    assert "text_a and text_b must have the same length" in uneven
    assert "must have the same shape" in shapes
    assert f"input_ids must be 0 or more and below {CONFIG.vocab_size}" in row
    assert "segment_ids must be 0 or more and below 2" in segment
    assert "more than 29 pieces" in length
    assert "Could not parse example input" in record
    assert "must have numbers of 32 bits" in great  # and not what is left of it in 32 bits
    assert "must be a multiple of 3" in no_multiple
    assert not_utf8["probabilities"].shape == (2, 3)  # as empty texts
    np.testing.assert_array_equal(again["probabilities"], first["probabilities"])
