"""Sizes that are all different, and workloads of these sizes, for the tests of planning."""

import dataclasses

from hypothesis import strategies as st

from bert_tf import BertConfig
from bert_tf.planning.workload import PLANNED, PUBLISHED, Workload

V = 997  # vocabulary
D = 60  # hidden size
L = 2  # layers
N = 3  # attention heads
F = 140  # intermediate size
B = 11  # batch
S = 53  # sequence
P = 7  # predictions
C = 5  # classes
CONFIG = BertConfig(
    vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=N, intermediate_size=F,
    max_position_embeddings=71, type_vocab_size=4,
)  # fmt: skip
WORK = Workload(
    config=CONFIG, max_seq_length=S, train_batch_size=B, max_predictions_per_seq=P, num_classes=C
)
BASE = Workload(config=PUBLISHED["BERT-Base"])
SETTINGS = st.fixed_dictionaries(
    {
        "head": st.sampled_from([*PLANNED]),
        "max_seq_length": st.integers(1, 71),
        "train_batch_size": st.integers(1, 300),
        "precision": st.sampled_from(["float32", "bfloat16"]),
        "recompute": st.booleans(),
    }
)


def changed(workload=WORK, **changes) -> Workload:
    """The workload with changes of its fields."""
    return dataclasses.replace(workload, **changes)
