"""What MirroredStrategy does on GPUs alone, on CPUs.

There it calls a function that XLA compiles in the thread of each replica, where a `merge_call`
fails; on CPUs it does not. It asks one function which of the two, and that is answered for it here.
`make matrix` runs all heads.
"""

import os

import numpy as np
import pytest
import tensorflow as tf
from small_runs import HEADS, largest_difference, make_batch, make_trainer, take_steps, tensors
from tensorflow.python.distribute import mirrored_run

from bert_tf.training.distribution import make_strategy

TRIED = HEADS if "BERT_TF_MATRIX_ALL" in os.environ else ["classification"]


@pytest.fixture(autouse=True)
def _devices_are_gpus(monkeypatch):
    monkeypatch.setattr(mirrored_run, "_is_gpu_device", lambda device: True)


def results(trainer, batch) -> tuple[dict, dict]:
    """The sums of an evaluation, and predictions, before any update."""
    strategy = trainer.strategy
    parts = strategy.num_replicas_in_sync
    rows = {name: np.split(value, parts) for name, value in batch.items()}
    given = strategy.experimental_distribute_values_from_function(
        lambda context: {
            n: tf.constant(v[context.replica_id_in_sync_group]) for n, v in rows.items()
        }
    )
    names = tuple(trainer.objective.outputs)
    sums = tf.nest.map_structure(np.asarray, trainer.steps.evaluate(given))
    outputs = trainer.steps.predict(given, names)
    local = strategy.experimental_local_results
    return sums, {name: np.concatenate(local(rows)) for name, rows in outputs.items()}


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("head", TRIED)
def test_every_head(head, devices, request, monkeypatch):
    """Evaluation, prediction and updates equal those of one device without a strategy."""
    if devices == 1:  # --strategy=mirrored on one GPU
        device = tf.config.list_logical_devices("CPU")[:1]
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: device)
        mirrored = make_strategy("mirrored")
    else:
        mirrored = request.getfixturevalue("two_replicas")
    batch, found = make_batch(head, 4), []
    for strategy in (None, mirrored):
        trainer = make_trainer(strategy=strategy, head=head, xla=strategy is not None)
        sums, outputs = results(trainer, batch)
        take_steps(trainer, batch, 2)
        found.append((sums, outputs, tensors(trainer)))
    (sums, outputs, weights), (same_sums, same_outputs, same_weights) = found
    tf.nest.map_structure(lambda x, y: np.testing.assert_allclose(x, y, 1e-5), same_sums, sums)
    assert largest_difference(outputs, same_outputs) < 1e-5
    assert largest_difference(weights, same_weights) < 1e-4
