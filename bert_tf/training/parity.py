"""Differences between a device and google-research/bert, as `bert-tf check` prints them.

bert_tf/goldens has the results of the original's code (benchmarks/make_goldens.py) for a model of
two layers: vectors, losses and gradients of a batch, and losses and weights of twelve updates.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.matching import load_checkpoint
from bert_tf.config import BertConfig
from bert_tf.data import SEQUENCES
from bert_tf.data.records import pretraining_record
from bert_tf.heads.head import Batch
from bert_tf.heads.pretraining import Pretraining
from bert_tf.modeling.models import BertModel
from bert_tf.modeling.names import checkpoint_name
from bert_tf.training.compilation import compiled_parts
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.options import StepConfig
from bert_tf.training.trainer import Trainer

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens"
NUM_UPDATES = 12
# Soft-max does not depend on a key's bias, so its gradient is only rounding, but Adam's steps are
# as long as for other weights. Below float32 it is not compared after updates.
NO_GRADIENT = "/key/bias"


def differences(device: str, precision: str, goldens: pathlib.Path) -> dict[str, dict[str, float]]:
    """The differences of a device's results from the original's.

    Args:
      device: CPU:0, GPU:1, ...
      precision: the precision of `StepConfig`, or TF32: float32 with products of fewer bits, on
        GPUs.
      goldens: the folder of the original's results.

    Returns:
      The largest difference by kind (vectors, gradients, losses, weights) and name; relative for
      values above 1.
    """
    tf.config.experimental.enable_tensor_float_32_execution(precision == "TF32")
    trained = np.load(goldens / "train_one_hot.npz")
    golden = dict(np.load(goldens / "forward.npz"))
    for step, loss in enumerate(trained["losses"]):
        golden[f"loss {step + 1}"] = loss
    for name in trained.files:
        if name.startswith("final/"):
            golden[name] = trained[name]
    with tf.device(device):
        trainer = _trainer(device, precision.replace("TF32", "float32"), trained, goldens)
        load_checkpoint(trainer.model, goldens / "bert_model.ckpt")
        ours = _results(trainer, golden_batches(goldens))
    if precision != "float32":
        weights = ours["weights"]
        ours["weights"] = {n: weights[n] for n in weights if not n.endswith(NO_GRADIENT)}
    differences = {}
    for kind, values in ours.items():
        differences[kind] = {name: _difference(values[name], golden[name]) for name in values}
    return differences


def golden_batches(goldens: pathlib.Path) -> dict[str, np.ndarray]:
    """The original's twelve batches, [12, B, ...] each."""
    stored = np.load(goldens / "batches.npz")
    batches = {}
    for stored_name in stored.files:
        number, _, name = stored_name.partition("/")
        if number == "0":
            batches[name] = np.stack([stored[f"{i}/{name}"] for i in range(NUM_UPDATES)])
    shape = batches["input_ids"].shape[:2]  # [12, B]
    sequences = np.arange(shape[1], dtype=np.int32)[:, np.newaxis]  # [B, 1]
    batches["is_real_example"] = np.ones(shape, np.float32)
    batches[SEQUENCES] = np.broadcast_to(sequences, (*shape, 1))
    return batches


def _trainer(
    device: str, precision: str, trained: Mapping[str, Any], goldens: pathlib.Path
) -> Trainer:
    """The trainer of the golden updates, without dropout."""
    config = BertConfig.from_json_file(goldens / "bert_config.json")
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = dataclasses.replace(config, **no_dropout)
    schedule = Schedule(
        learning_rate=float(trained["init_lr"]),
        num_train_steps=int(trained["num_train_steps"]),
        num_warmup_steps=int(trained["num_warmup_steps"]),
    )
    return Trainer(
        lambda: Pretraining().model(config, with_losses=True),
        Pretraining(),
        AdamWeightDecay(schedule),
        strategy=tf.distribute.OneDeviceStrategy(device),
        seed=1,
        step_config=StepConfig(precision=precision, recompute_attention=True),
    )


def _results(trainer: Trainer, batches: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Vectors, gradients, losses and weights by the names of the goldens; trains the model."""
    by_xla = compiled_parts(trainer.step_config, trainer.strategy).answers
    first_batch = {name: tf.constant(rows[0]) for name, rows in batches.items()}
    vectors, gradients, losses = _of_one_batch(trainer.model, first_batch, by_xla=by_xla)
    iterator = iter(tf.data.Dataset.from_tensor_slices(dict(batches)))
    for step in range(NUM_UPDATES):
        _, means = trainer.run_steps(iterator, step, step + 1)
        losses[f"loss {step + 1}"] = means["loss"]
    weights = {f"final/{checkpoint_name(v)}": v for v in trainer.model.trainable_variables}
    return {"vectors": vectors, "gradients": gradients, "losses": losses, "weights": weights}


def _of_one_batch(model: BertModel, batch: Batch, *, by_xla: bool) -> tuple[Batch, Batch, Batch]:
    """Vectors of every layer, gradients, and losses, without dropout; compiled by XLA or not."""
    blocks = [layer.name for layer in model.layers if layer.name.startswith("layer_")]
    hidden = {name: model.get_layer(name).output for name in blocks}
    hidden["embedding_output"] = model.get_layer(blocks[0]).input[0]
    with_hidden = BertModel(model.input, model.output | hidden, name=model.name)
    head = Pretraining()
    variables = {f"grad/{checkpoint_name(v)}": v.value for v in model.trainable_variables}

    @tf.function(jit_compile=by_xla or None, autograph=False)
    def compute(batch: Batch) -> tuple[Batch, Batch, Batch]:
        with tf.GradientTape() as tape:
            outputs = with_hidden({name: batch[name] for name in with_hidden.input}, training=False)
            loss_sums = head.loss_sums(outputs, batch)
            denominators = head.denominators(batch)
            loss = head.loss(loss_sums, denominators)
        gradients = tape.gradient(loss, variables)
        gradients = {name: tf.convert_to_tensor(gradients[name]) for name in gradients}
        names = (*hidden, "sequence_output", "pooled_output")
        vectors = {name: outputs[name] for name in names}
        mlm_log_probs = tf.nn.log_softmax(outputs["masked_lm_logits"])  # [B, P, V]
        vectors["mlm_log_probs"] = tf.reshape(mlm_log_probs, [-1, mlm_log_probs.shape[-1]])
        vectors["nsp_log_probs"] = tf.nn.log_softmax(outputs["next_sentence_logits"])
        losses = {
            "mlm_loss": loss_sums["masked_lm"] / (denominators["masked_lm"] + 1e-5),
            "nsp_loss": loss_sums["next_sentence"] / denominators["next_sentence"],
            "loss": loss,
        }
        return vectors, gradients, losses

    return compute(batch)


def _difference(ours: Any, theirs: np.ndarray) -> float:
    """The largest difference of two arrays, relative for values above 1."""
    ours = np.reshape(tf.cast(ours, tf.float64), theirs.shape)
    return float(np.max(np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))))


def write_golden_records(folder: pathlib.Path) -> dict[str, Any]:
    """Writes the batches as records, and the configuration; returns flags that name them."""
    batches = golden_batches(GOLDENS)
    sizes = {
        "max_seq_length": batches["input_ids"].shape[-1],
        "max_predictions_per_seq": batches["masked_lm_ids"].shape[-1],
    }
    record = pretraining_record(**sizes)
    path = folder / "train.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for batch, row in np.ndindex(batches["input_ids"].shape[:2]):
            values = {f.name: batches[f.name][batch, row] for f in record.features}
            writer.write(record.serialize(values))
    config = folder / "bert_config.json"
    config.write_bytes((GOLDENS / "bert_config.json").read_bytes())
    return sizes | {"input_file": path, "bert_config_file": config}
