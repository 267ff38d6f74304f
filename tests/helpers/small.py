"""A BERT small enough for every test, with different sizes on all axes, and examples for it."""

import numpy as np
import tensorflow as tf

from bert_tf import BertConfig, BertModel
from bert_tf.data.records import Record, pretraining_record

ROWS = 5  # examples
S = 7  # max_seq_length
P = 3  # max_predictions_per_seq
CONFIG = BertConfig(
    vocab_size=41, hidden_size=22, num_hidden_layers=2, num_attention_heads=2, intermediate_size=37,
    max_position_embeddings=13, type_vocab_size=4,
)  # fmt: skip
RECORD = pretraining_record(
    max_seq_length=S,
    max_predictions_per_seq=P,
    vocab_size=CONFIG.vocab_size,
    type_vocab_size=CONFIG.type_vocab_size,
)


def examples(rows: int = ROWS, *, seed: int = 1, config: BertConfig = CONFIG) -> dict:
    """Random features of `rows` examples: 2 to S tokens, 1 to P predictions, the rest padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, S + 1, rows)
    predictions = rng.integers(1, P + 1, rows)
    mask = np.arange(S) < lengths[:, None]
    weights = np.arange(P) < predictions[:, None]
    positions = np.array([rng.integers(0, length, P) for length in lengths])
    return {
        "input_ids": (rng.integers(1, config.vocab_size, (rows, S)) * mask).astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "segment_ids": (rng.integers(0, config.type_vocab_size, (rows, S)) * mask).astype(np.int32),
        "masked_lm_positions": (positions * weights).astype(np.int32),
        "masked_lm_ids": (rng.integers(1, config.vocab_size, (rows, P)) * weights).astype(np.int32),
        "masked_lm_weights": weights.astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1)).astype(np.int32),
    }


def with_layers(model: BertModel) -> BertModel:
    """The model with the further outputs of `BertModel(config, all_layers=True)`."""
    blocks = [layer for layer in model.layers if layer.name.startswith("layer_")]
    hidden = {"embedding_output": blocks[0].input[0]}
    for block in blocks:
        hidden[block.name] = block.output
    return BertModel(model.input, model.output | hidden, name=model.name)


def model_inputs(batch) -> dict:
    """The inputs of a pre-training model in a batch."""
    names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
    return {name: batch[name] for name in names}


def write_records(path, features, record: Record = RECORD) -> str:
    """Writes a TFRecord file with an example for each row of the features; returns its path."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in range(len(features["input_ids"])):
            values = {feature.name: features[feature.name][row] for feature in record.features}
            writer.write(record.serialize(values))
    return str(path)


def hidden_states(*shape: int, seed: int = 1) -> np.ndarray:
    """Random numbers."""
    return np.random.default_rng(seed).standard_normal(shape)


def close(ours, expected, tolerance=1e-6):
    """Asserts that shapes are equal, and values nearly so."""
    ours = np.asarray(ours)
    assert ours.shape == expected.shape
    assert np.abs(ours - expected).max() < tolerance
