"""Guesses for every [MASK], and positions that are asked for."""

import numpy as np
from exported_answers import MASKED, near, strings
from served_models import LENGTH, TOKENIZER, TOP_K

from bert_tf.serving import fill_mask


def test_guesses_for_masks(answers, references):
    found = answers["fill_mask"][0]
    model = references["fill_mask"].model
    assert found["pieces"].shape == (len(MASKED), 3, TOP_K)
    for row, text in enumerate(MASKED):
        cut = text.removesuffix(" [MASK]") if text == MASKED[-1] else text  # what does not fit
        masks = cut.count("[MASK]")
        assert found["num_masks"][row] == masks
        assert set(found["pieces"][row][masks:].ravel()) <= {b""}
        if not masks:
            continue
        wanted = fill_mask.fill_mask(model, TOKENIZER, cut, max_seq_length=LENGTH, top_k=TOP_K)
        pieces = strings(found["pieces"][row][:masks])
        assert pieces == [[guess.piece for guess in guesses] for guesses in wanted]
        probabilities = [[guess.probability for guess in guesses] for guesses in wanted]
        near(found["probabilities"][row][:masks], probabilities)


def test_positions_are_of_the_ids_given(results):
    together, alone, *refused = results["positions"]
    near(alone["probabilities"][0], together["probabilities"][0])
    np.testing.assert_array_equal(alone["pieces"][0], together["pieces"][0])
    assert len(refused) == 4
    for message in refused:
        assert "masked_lm_positions must have a row for each of input_ids" in message
