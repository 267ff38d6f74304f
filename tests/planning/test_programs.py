"""The steps of the training scripts as programs for a compiler."""

import numpy as np
import pytest
from small_plans import B, C, P, S, changed

from bert_tf.planning import programs
from bert_tf.planning.devices import STEPS
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


def test_one_model_gives_the_programs_of_all_steps_and_shapes():
    work = changed(head="token_labels", train_batch_size=6, gradient_accumulation_steps=3)
    made = programs.Programs(work)
    found = {s: made.lowered(s, batch) for s, batch in zip(STEPS, (6, 5, 4), strict=True)}
    assert b"while" in found["train"]
    assert b"while" not in found["evaluate"]
    assert len({len(hlo) for hlo in found.values()}) == 3
    assert made.lowered("train", 6) is found["train"]
