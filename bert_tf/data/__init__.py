"""Records -> batches.

row         number of a record, counted through all files             shards.RecordFiles
block       consecutive records of a file, read in one go             records.BlockIndex
sampler     position 0, 1, 2, ... of a run -> row                     batches.ShuffledSampler
batch t     the rows at positions t * B to (t + 1) * B - 1            batches.Batches
packed row  several sequences in a row: records of pre-training       records.pretraining_record
            and batches of fine-tuning                                packing
in memory   batches of texts to predict and of tables                 grouping
"""

import math

# The key of a batch under which each sequence has its number in the global batch: int32 [B, K], -1
# where there is none. A row of packed pre-training counts as one sequence, [B, 1].
SEQUENCES = "sequences"


def enough_predictions(max_seq_length: int, masked_lm_prob: float) -> int:
    """The most tokens that are masked in a sequence: its share `masked_lm_prob`, rounded up.

    >>> [enough_predictions(length, 0.15) for length in (128, 512)]
    [20, 77]
    """
    return math.ceil(max_seq_length * masked_lm_prob)


def packed_sizes(
    max_seq_length: int, max_predictions_per_seq: int, masked_lm_prob: float
) -> tuple[int, int]:
    """K and P of a packed row: the most sequences, and the most predictions of all together.

    Each sequence rounds its own number of predictions, up as often as down.

    >>> packed_sizes(512, 80, 0.15)
    (16, 85)
    """
    num_sequences = max(2, max_seq_length // 32)
    of_all_tokens = enough_predictions(max_seq_length, masked_lm_prob) + num_sequences // 2
    num_predictions = min(num_sequences * max_predictions_per_seq, of_all_tokens)
    return num_sequences, num_predictions
