"""A run on devices of another process, which cannot ask this one for anything.

    python remote_training.py serve ADDRESS
    python remote_training.py train ADDRESS OWN_ADDRESS RECORDS FOLDER

The first lends two CPU devices at that address. The second trains on them; what `results` gives for
one of them, compiled, and for both is pickled to FOLDER/results.pickle.
"""

import pathlib
import pickle
import sys

import numpy as np
import small
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data.batches import Batches
from bert_tf.data.samplers import SequentialSampler, ShuffledSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.modeling.losses import PretrainingObjective
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.settings import Intervals, StepConfig
from bert_tf.training.trainer import Trainer

DEVICES = [f"/job:worker/replica:0/task:0/device:CPU:{number}" for number in range(2)]
CONFIG = bert_tf.BertConfig(**{**vars(small.CONFIG), "num_hidden_layers": 1})
STEPS = 3


def serve(address: str) -> None:
    """Lends devices until it is killed."""
    config = tf.compat.v1.ConfigProto(device_count={"CPU": len(DEVICES)})
    tf.distribute.Server({"worker": [address]}, job_name="worker", config=config).join()


def train(address: str, own_address: str, records: str, folder: str) -> None:
    """Waits for the process at that address and uses its devices."""
    cluster = tf.train.ClusterSpec({"worker": [address], "localhost": [own_address]})
    tf.config.experimental_connect_to_cluster(cluster, make_master_device_default=False)
    one = tf.distribute.OneDeviceStrategy(DEVICES[0])
    both = tf.distribute.MirroredStrategy(
        DEVICES, cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    found = {
        "one": results(one, records, f"{folder}/one", xla=True),
        "both": results(both, records, f"{folder}/both", xla=False),
    }
    pathlib.Path(folder, "results.pickle").write_bytes(pickle.dumps(found))


def results(strategy: tf.distribute.Strategy, records: str, folder: str, *, xla: bool) -> dict:
    """Trains a few steps, with dropout; evaluates and predicts.

    Returns:
      The device of a weight; the mean losses by step, the evaluation, a predicted output, and the
      last checkpoint.
    """
    files = RecordFiles(records, small.RECORD)
    trainer = Trainer(
        lambda: bert_tf.pretraining_model(CONFIG, with_losses=True),
        PretrainingObjective(),
        AdamWeightDecay(schedule=Schedule(learning_rate=1e-3, num_train_steps=STEPS)),
        strategy=strategy,
        seed=3,
        step_config=StepConfig(xla=xla),
    )
    losses = {}
    trainer.train(
        _batches(files, ShuffledSampler(len(files), seed=5)),
        num_train_steps=STEPS,
        folder=CheckpointFolder(folder),
        intervals=Intervals(iterations_per_loop=2, log_steps=STEPS, save_checkpoints_steps=STEPS),
        run_settings={},
        on_stop=losses.__setitem__,
    )
    in_order = _batches(files, SequentialSampler(len(files)), num_examples=len(files))
    predicted = list(trainer.predict(in_order, ["next_sentence_logits"]))
    reader = tf.train.load_checkpoint(f"{folder}/model.ckpt-{STEPS}")
    names = reader.get_variable_to_shape_map().keys() - {"bert_tf/run_facts"}
    return {
        "device": trainer.training_step.weights[0].device,
        "losses": losses,
        "evaluation": trainer.evaluate(in_order),
        "rows": np.concatenate([in_order.batch_rows(number) for number in range(len(predicted))]),
        "predicted": np.concatenate([outputs["next_sentence_logits"] for outputs in predicted]),
        "checkpoint": {name: np.asarray(reader.get_tensor(name)) for name in names},
    }


def _batches(files: RecordFiles, order, num_examples: int | None = None) -> Batches:
    return Batches(files, order, batch_size=4, num_examples=num_examples)


if __name__ == "__main__":
    {"serve": serve, "train": train}[sys.argv[1]](*sys.argv[2:])
