"""The steps of the training scripts as programs for a compiler."""

import numpy as np
import pytest
from small_plans import B, C, P, S, changed

from bert_tf.planning import programs
from bert_tf.planning.workload import HEADS


@pytest.mark.parametrize("head", HEADS)
def test_a_batch_is_that_of_the_records(head):
    batch = programs.random_batch(changed(head=head))
    assert batch["input_ids"].shape == (B, S)
    assert batch["is_real_example"].dtype == np.float32
    labels = {
        "pretraining": {"masked_lm_ids": (B, P), "next_sentence_labels": (B, 1)},
        "classification": {"label_ids": (B, 1)},
        "token_labels": {"label_ids": (B, S)},
        "question_answering": {"start_positions": (B, 1), "end_positions": (B, 1)},
    }[head]
    assert {name: batch[name].shape for name in labels} == labels
    assert batch.get("label_ids", np.zeros(1)).max() < C
