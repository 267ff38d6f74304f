"""What always guessing the most frequent answer scores on pre-training records.

    python benchmarks/most_frequent.py --train='train-*.tfrecord' --eval=held_out.tfrecord

The most frequent masked piece and the more frequent next-sentence label of the training records,
scored on the evaluation records: the floor for masked_lm_accuracy and next_sentence_accuracy.
"""

import argparse

import numpy as np
from bert_tf.data.records import pretraining_record
from bert_tf.data.shards import RecordFiles

CHUNK = 4096


def main() -> None:
    """Counts of the training answers -> shares of the evaluation answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True)
    parser.add_argument("--eval", required=True)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--max_predictions_per_seq", type=int, default=20)
    options = parser.parse_args()
    record = pretraining_record(
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=options.max_predictions_per_seq,
    )
    pieces, labels = answers(RecordFiles(options.train, record))
    eval_pieces, eval_labels = answers(RecordFiles(options.eval, record))
    piece, label = np.bincount(pieces).argmax(), np.bincount(labels).argmax()
    print(f"piece {piece}: masked_lm_accuracy {np.mean(eval_pieces == piece):.4f}")
    print(f"label {label}: next_sentence_accuracy {np.mean(eval_labels == label):.4f}")


def answers(files: RecordFiles) -> tuple[np.ndarray, np.ndarray]:
    """All masked pieces [masked positions] and next-sentence labels [records] of some files."""
    pieces, labels = [], []
    for start in range(0, len(files), CHUNK):
        batch = files.read(range(start, min(start + CHUNK, len(files))))
        pieces.append(batch["masked_lm_ids"][batch["masked_lm_weights"] > 0])
        labels.append(batch["next_sentence_labels"][:, 0])
    return np.concatenate(pieces), np.concatenate(labels)


if __name__ == "__main__":
    main()
