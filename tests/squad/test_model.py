"""Windows -> logits: in order, with or without padding, and only numbers."""

import dataclasses

import model_files
import numpy as np
import pytest
import small
import small_squad
import tensorflow as tf

from bert_tf.checkpoints import loading
from bert_tf.data.batches import BatchingConfig
from bert_tf.errors import InputError
from bert_tf.modeling import models
from bert_tf.modeling.losses import SpanObjective
from bert_tf.squad import model, windows
from bert_tf.squad.windows import WindowSizes
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.trainer import Trainer

LENGTH = 16
CONFIG = dataclasses.replace(
    small.CONFIG,
    num_hidden_layers=1,
    max_position_embeddings=17,
    vocab_size=len(small_squad.PIECES),
)


@pytest.fixture(scope="module")
def trainer():
    optimizer = AdamWeightDecay(schedule=Schedule(learning_rate=1.0, num_train_steps=1))
    return Trainer(
        lambda: models.span_model(CONFIG),
        SpanObjective(),
        optimizer,
        strategy=tf.distribute.get_strategy(),
        seed=7,
    )


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """Windows of many lengths, not sorted, and their records."""
    tokenizer = small_squad.make_tokenizer(do_lower_case=True)
    contexts = ["who founded it in 1895 by the cafe " * n + "in 1895" for n in (2, 0, 1, 3, 0)]
    examples = [small_squad.example(context, "who") for context in contexts]
    found = windows.prediction_windows(examples, tokenizer, WindowSizes(LENGTH, 5, 2))
    path = str(tmp_path_factory.mktemp("model") / "eval.tf_record")
    return found, windows.write_windows(
        path, found, max_seq_length=LENGTH, is_training=False, config=CONFIG
    )


def logits_of(trainer, questions, *, bucket_by_length=True):
    found, records = questions
    batching = BatchingConfig(
        max_seq_length=LENGTH,
        bucket_by_length=bucket_by_length,
    )
    return model.window_logits(trainer, records, found, batching, batch_size=3)


def test_logits_of_each_window_in_order(trainer, questions):
    found, _ = questions
    buckets = logits_of(trainer, questions)
    padded = logits_of(trainer, questions, bucket_by_length=False)
    for column, whole in zip(buckets, padded, strict=True):
        assert [len(row) for row in column] == [len(window.input_ids) for window in found]
        assert {len(row) for row in whole} == {LENGTH}
        for row, padded_row in zip(column, whole, strict=True):
            np.testing.assert_allclose(row, padded_row[: len(row)], atol=1e-5)
    for number, window in enumerate(found):  # each by itself
        ids, segment_ids = (tf.constant(x[None]) for x in (window.input_ids, window.segment_ids))
        alone = trainer.model({"input_ids": ids, "input_mask": tf.ones_like(ids),
                               "segment_ids": segment_ids}, training=False)  # fmt: skip
        for column, name in zip(buckets, ("start_logits", "end_logits"), strict=True):
            np.testing.assert_allclose(column[number], alone[name][0], atol=1e-5)


def test_a_model_that_gives_no_numbers_is_refused(trainer, questions):
    (bias,) = (v for v in trainer.model.trainable_variables if v.path.endswith("output_bias"))
    before = bias.numpy()
    bias.assign([np.nan, 0.0])
    try:
        with pytest.raises(InputError, match="start_logits are NaN or infinite for"):
            logits_of(trainer, questions)
    finally:
        bias.assign(before)


def test_weights_without_the_head_are_refused():
    tensors = model_files.tensors_of("span")
    answering = models.span_model(small.CONFIG)
    without_pooler = {name: v for name, v in tensors.items() if "/pooler/" not in name}
    required = {"required": model.ENCODER_AND_HEAD}
    loading.load_checkpoint(answering, model_files.weights_of(without_pooler), **required)
    encoder = {name: v for name, v in tensors.items() if name.startswith("bert/")}
    with pytest.raises(InputError, match="a model without a question-answering head"):
        loading.load_checkpoint(answering, model_files.weights_of(encoder), **required)
