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

from bert_tf.training import distribution

WHOLE = [(head, devices) for head in HEADS for devices in (1, 2)]
PAIRS = WHOLE if "BERT_TF_MATRIX_ALL" in os.environ else [("classification", 1)]


@pytest.fixture(autouse=True)
def _devices_are_gpus(monkeypatch):
    monkeypatch.setattr(mirrored_run, "_is_gpu_device", lambda device: True)


@pytest.fixture(scope="module")
def one_replica():
    return tf.distribute.MirroredStrategy([tf.config.list_logical_devices("CPU")[0].name])


def distributed(strategy, batch):
    """The batch, its rows shared out to the replicas."""
    parts = strategy.num_replicas_in_sync
    rows = {name: np.split(value, parts) for name, value in batch.items()}
    return strategy.experimental_distribute_values_from_function(
        lambda context: {
            n: tf.constant(v[context.replica_id_in_sync_group]) for n, v in rows.items()
        }
    )


def results(trainer, batch) -> tuple[dict, dict]:
    """The sums of an evaluation, and predictions, before any update."""
    strategy, given = trainer.strategy, distributed(trainer.strategy, batch)
    names = tuple(trainer.head.outputs)
    sums = tf.nest.map_structure(np.asarray, trainer.steps.evaluate(given))
    outputs = trainer.steps.predict(given, names)
    local = strategy.experimental_local_results
    return sums, {name: np.concatenate(local(rows)) for name, rows in outputs.items()}


@pytest.mark.parametrize(("head", "devices"), PAIRS)
def test_every_head(head, devices, one_replica, request):
    """Evaluation, prediction and updates equal those of one device without a strategy."""
    mirrored = one_replica if devices == 1 else request.getfixturevalue("two_replicas")
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


def test_three_collectives_a_step(two_replicas):
    """Sums of denominators, of losses, and of all gradients in one, however many these are."""
    trainer, batch = make_trainer(strategy=two_replicas), make_batch("pretraining", 4)
    totals = np.zeros(len(trainer.steps.loss_names) + 1, np.float32)
    given = distributed(two_replicas, batch)
    graph = trainer.steps.train_on.get_concrete_function(totals, given, tf.constant(0)).graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    assert sum(node.op.startswith("Collective") for node in nodes) == 3 * 2
    assert len(trainer.steps.weights) > 20


def test_mirrored_of_one_device_is_that_device(monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["/GPU:0"])
    assert distribution.make_strategy("mirrored") is tf.distribute.get_strategy()
