"""The trainer of a workload and a batch for it, to measure training steps."""

import numpy as np
import tensorflow as tf

from bert_tf.data import SEQUENCES
from bert_tf.data.records import input_features, pretraining_record
from bert_tf.heads import head_named
from bert_tf.planning.workload import MASKED_SHARE, Workload
from bert_tf.training import optimization
from bert_tf.training.options import StepConfig
from bert_tf.training.trainer import Trainer


def make_trainer(work: Workload, *, recompute_attention: bool = True) -> Trainer:
    """The trainer of a workload on one device, with random weights."""
    head = head_named("fill_mask" if work.masked and work.config.is_causal else work.head)
    options = {"num_classes": work.num_classes}
    if work.masked:
        num_sequences, _ = work.row_sizes
        options = {"with_losses": True, "num_sequences": num_sequences}
    schedule = optimization.Schedule(learning_rate=1e-4, num_train_steps=10**6)
    return Trainer(
        lambda: head.model(work.config, **options),
        head,
        optimization.AdamWeightDecay(schedule),
        strategy=tf.distribute.get_strategy(),
        seed=1,
        step_config=StepConfig(
            precision=work.precision,
            recompute=work.recompute,
            recompute_attention=recompute_attention,
            gradient_accumulation_steps=work.gradient_accumulation_steps,
        ),
    )


def random_batch(work: Workload) -> dict[str, np.ndarray]:
    """A batch of random records of the workload's head, without padding.

    The arrays are input_ids, input_mask and segment_ids int32 [B, S], is_real_example float32 [B],
    and the labels as in the head's records.
    """
    rng = np.random.default_rng(0)
    rows = work.train_batch_size
    length = work.max_seq_length
    vocabulary = {"vocab_size": work.config.vocab_size, "type_vocab_size": 2}
    if work.masked:
        positions = work.max_predictions_per_seq
        features = pretraining_record(
            max_seq_length=length,
            max_predictions_per_seq=positions,
            packed_with=MASKED_SHARE if work.pack else None,
            **vocabulary,
        ).features
    else:
        labels = head_named(work.head).label_features(length, work.num_classes, 1)
        features = (*input_features(length, **vocabulary), *labels)
    sequences = np.arange(rows, dtype=np.int32)[:, np.newaxis]
    batch = {"is_real_example": np.ones(rows, np.float32), SEQUENCES: sequences}
    for feature in features:
        shape = (rows, feature.size)
        dtype = feature.batch_dtype
        if feature.key == "input_mask" or dtype == np.float32:
            batch[feature.key] = np.ones(shape, dtype)
        else:
            numbers = rng.integers(feature.least, feature.most + 1, shape)
            batch[feature.key] = numbers.astype(dtype)
    return batch
