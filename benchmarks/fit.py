"""Keras's `fit` beside the commands' trainer, on one device and on two, and all beside float64.

    BERT_TF_DATA=DATA python benchmarks/fit.py

MiniLM with a new head on MRPC: the same 20 steps of 16 pairs, optimizer and first weights, without
dropout. Prints how far the weights are apart afterwards, and how far they have moved.
"""

import dataclasses
import os
import pathlib
import tempfile
from typing import Any, NamedTuple

import bert_tf
import keras
import numpy as np
import tensorflow as tf
from bert_tf.checkpoints.tf1 import CheckpointFolder
from bert_tf.data.batches import Batches, SequentialSampler
from bert_tf.data.shards import RecordFiles
from bert_tf.heads import head_named
from bert_tf.modeling.names import checkpoint_name
from bert_tf.tasks.features import classifier_record
from bert_tf.tasks.registry import get_task
from bert_tf.training.fine_tuning import write_records
from bert_tf.training.options import Intervals
from bert_tf.training.plan import RunPlan
from bert_tf.training.trainer import Trainer

from measuring import parse_options, print_rows, print_titles

LABELS = ["0", "1"]
LENGTH, BATCH, STEPS = 64, 16, 20
ROWS = BATCH * STEPS
Weights = dict[str, np.ndarray]


def main() -> None:
    """Data, first weights -> each way -> differences."""
    data = parse_options(__doc__, data=os.environ.get("BERT_TF_DATA", "")).data
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, devices)
    encoder = f"{data}/weights/all-MiniLM-L6-v2"
    inputs, labels = read(data, encoder)
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        config = bert_tf.open_weights(encoder).config
        config = dataclasses.replace(config, **still, classifier_dropout=0.0)
        file.write(config.to_json_string())
        file.flush()
        given = Given(encoder, file.name, inputs, labels)
        first = weights_of(given.model())
        by_way = {
            "fit": fitted(given, first),
            "fit, two devices": fitted(given, first, strategy=two),
            "trainer": trained(config, first, inputs, labels),
        }
        exactly = fitted(given, first, dtype="float64", jit_compile=False)
    print_titles("weights after 20 steps", "from float64", "from fit", "moved")
    for way, weights in by_way.items():
        differences = [apart(weights, other) for other in (exactly, by_way["fit"], first)]
        print_rows([way, *(f"{difference:.1e}" for difference in differences)])


class Given(NamedTuple):
    """What every way of `fit` is given."""

    encoder: str
    config_file: str
    inputs: dict[str, np.ndarray]
    labels: np.ndarray

    def model(self, dtype: str | None = None) -> Any:
        """A classifier; its head is drawn by a seed."""
        keras.utils.set_random_seed(1)
        return bert_tf.classifier(
            self.encoder, labels=LABELS, bert_config_file=self.config_file, dtype=dtype
        )


def read(data: str, encoder: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The first rows of MRPC as inputs [ROWS, S], and their labels [ROWS]."""
    examples = get_task("mrpc").read(f"{data}/glue/MRPC", "train")[:ROWS]
    tokenizer = bert_tf.load(encoder)[1]
    pairs = [[getattr(example, text) for example in examples] for text in ("text_a", "text_b")]
    inputs = tokenizer(*pairs, max_length=LENGTH)
    width = LENGTH - inputs["input_ids"].shape[1]
    padded = {name: np.pad(ids, [[0, 0], [0, width]]) for name, ids in inputs.items()}
    return padded, np.array([int(example.label) for example in examples])


def weights_of(model: Any) -> Weights:
    """The weights of a model by name."""
    return {checkpoint_name(weight): np.asarray(weight) for weight in model.weights}


def optimizer() -> Any:
    """That of both ways."""
    return bert_tf.make_optimizer(STEPS, learning_rate=5e-5)


def fitted(
    given: Given,
    first: Weights,
    *,
    strategy: tf.distribute.Strategy | None = None,
    dtype: str | None = None,
    **options: Any,
) -> Weights:
    """The weights after an epoch of Keras's `fit`."""
    with (strategy or tf.distribute.get_strategy()).scope():
        model = given.model(dtype)
        for weight in model.weights:
            weight.assign(first[checkpoint_name(weight)])
        model.compile(optimizer(), **model.compile_options(), **options)
    model.fit(given.inputs, given.labels, batch_size=BATCH, shuffle=False, verbose=0)
    return weights_of(model)


def trained(
    config: bert_tf.BertConfig, first: Weights, inputs: dict[str, np.ndarray], labels: np.ndarray
) -> Weights:
    """The weights after as many steps of the trainer."""
    record = classifier_record(
        max_seq_length=LENGTH,
        vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
    )
    head = head_named("classification")
    strategy = tf.distribute.get_strategy()
    trainer = Trainer(lambda: head.model(config), head, optimizer(), strategy=strategy, seed=1)
    for name, weight in trainer.steps.weights.items():
        weight.assign(first[name])
    plan = RunPlan(
        num_records=ROWS, batch_size=BATCH, num_train_steps=STEPS, last_step=STEPS, seed=1,
        intervals=Intervals(save_checkpoints_steps=0),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "train")
        write_records(path, record, map(dict, rows_of(inputs, labels)))
        batches = Batches(RecordFiles(path, record), SequentialSampler(ROWS), batch_size=BATCH)
        trainer.train(batches, plan, folder=CheckpointFolder(f"{folder}/run"), run_settings={})
    return {name: weight.numpy() for name, weight in trainer.steps.weights.items()}


def rows_of(inputs: dict[str, np.ndarray], labels: np.ndarray) -> list[dict[str, Any]]:
    """The values of each record."""
    rows = []
    for number, label in enumerate(labels.tolist()):
        row = {name: ids[number] for name, ids in inputs.items()}
        rows.append(row | {"label_ids": [label], "is_real_example": [1]})
    return rows


def apart(one: Weights, other: Weights) -> float:
    """The greatest difference of two weights."""
    names = one.keys() & other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in names)


if __name__ == "__main__":
    main()
