"""Trains on devices of another process, which cannot connect to this one.

    python remote_training.py serve ADDRESS
    python remote_training.py train ADDRESS OWN_ADDRESS FOLDER

The first command serves two CPU devices at that address. The second trains on them and pickles
`results` to FOLDER/results.pickle.
"""

import pathlib
import pickle
import sys

import numpy as np
import tensorflow as tf
from small_runs import STEPS, endless, in_order, make_trainer, tensors_of, train, write_files

from bert_tf.training.options import Intervals

DEVICES = [f"/job:worker/replica:0/task:0/device:CPU:{number}" for number in range(2)]


def serve(address: str) -> None:
    """Serves devices until the process is killed."""
    config = tf.compat.v1.ConfigProto(device_count={"CPU": len(DEVICES)})
    tf.distribute.Server({"worker": [address]}, job_name="worker", config=config).join()


def train_there(address: str, own_address: str, folder: str) -> None:
    """Waits for the process at that address, trains on its devices, and writes the results."""
    cluster = tf.train.ClusterSpec({"worker": [address], "localhost": [own_address]})
    tf.config.experimental_connect_to_cluster(cluster, make_master_device_default=False)
    strategy = tf.distribute.MirroredStrategy(
        DEVICES, cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    trained = results(strategy, f"{folder}/both")
    pathlib.Path(folder, "results.pickle").write_bytes(pickle.dumps(trained))


def results(strategy: tf.distribute.Strategy, folder: str) -> dict:
    """Trains a few steps, with dropout; evaluates and predicts.

    Returns:
      The device of a weight, the mean losses by step, the evaluation, the numbers of the predicted
      rows, a predicted output, and the last checkpoint.
    """
    pathlib.Path(folder).mkdir()
    files = write_files(pathlib.Path(folder))
    trainer = make_trainer(strategy=strategy)
    intervals = Intervals(iterations_per_loop=4, log_steps=STEPS, save_checkpoints_steps=STEPS)
    losses = train(trainer, endless(files), folder, intervals=intervals)
    batches = in_order(files, num_examples=len(files))
    predicted = list(trainer.predict(batches, ["next_sentence_logits"]))
    return {
        "device": next(iter(trainer.steps.weights.values())).device,
        "losses": losses,
        "evaluation": trainer.evaluate(batches),
        "rows": np.concatenate([batches.batch_rows(number) for number in range(len(predicted))]),
        "predicted": np.concatenate([outputs["next_sentence_logits"] for outputs in predicted]),
        "checkpoint": tensors_of(folder, STEPS),
    }


if __name__ == "__main__":
    {"serve": serve, "train": train_there}[sys.argv[1]](*sys.argv[2:])
