"""How far a device is from google-research/bert: what `bert-tf check` prints.

bert_tf/goldens has what the original's own code computed (benchmarks/make_goldens.py): for a model
of two layers the vectors, losses and gradients of one batch, and the losses and weights of twelve
updates.
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
from bert_tf.training.compilation import parts_of
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.options import StepConfig
from bert_tf.training.trainer import Trainer

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens"
NUM_UPDATES = 12
# Soft-max does not depend on a key's bias: its gradient is rounding alone, of which Adam makes
# steps as long as any others. So in less than float32 it is not compared after updates.
NO_GRADIENT = "/key/bias"


def differences(device: str, precision: str, goldens: pathlib.Path) -> dict[str, dict[str, float]]:
    """How far a device's figures are from the original's.

    Args:
      device: CPU:0, GPU:1, ...
      precision: of `StepConfig`, or TF32: float32 with products of fewer bits, on GPUs.
      goldens: the folder of the original's figures.

    Returns:
      The largest difference by kind (vectors, gradients, losses, weights) and name; of numbers
      above 1 the relative one.
    """
    tf.config.experimental.enable_tensor_float_32_execution(precision == "TF32")
    trained = np.load(goldens / "train_one_hot.npz")
    golden = dict(np.load(goldens / "forward.npz")) | {
        f"loss {step + 1}": loss for step, loss in enumerate(trained["losses"])
    }
    golden |= {name: trained[name] for name in trained.files if name.startswith("final/")}
    batches = golden_batches(goldens)
    with tf.device(device):
        trainer = _trainer(device, precision.replace("TF32", "float32"), trained, goldens)
        load_checkpoint(trainer.model, goldens / "bert_model.ckpt")
        by_xla = parts_of(trainer.step_config, trainer.strategy).answers
        batch = {name: rows[0] for name, rows in batches.items()}
        found = _of_one_batch(trainer.model, batch, by_xla=by_xla)
        iterator = iter(tf.data.Dataset.from_tensor_slices(batches))
        for step in range(NUM_UPDATES):
            means = trainer.run_steps(iterator, step, step + 1)[1]
            found["losses"][f"loss {step + 1}"] = means["loss"]
    weights = {f"final/{checkpoint_name(v)}": v for v in trainer.model.trainable_variables}
    skipped = () if precision == "float32" else (NO_GRADIENT,)
    found["weights"] = {n: w for n, w in weights.items() if not n.endswith(skipped)}
    return {
        kind: {name: _difference(value, golden[name]) for name, value in ours.items()}
        for kind, ours in found.items()
    }


def golden_batches(goldens: pathlib.Path) -> dict[str, np.ndarray]:
    """The original's twelve batches, [12, B, ...] each."""
    stored = np.load(goldens / "batches.npz")
    names = [name.removeprefix("0/") for name in stored.files if name.startswith("0/")]
    rows = {n: np.stack([stored[f"{i}/{n}"] for i in range(NUM_UPDATES)]) for n in names}
    shape = rows["input_ids"].shape[:2]
    sequences = np.broadcast_to(np.arange(shape[1], dtype=np.int32)[:, np.newaxis], (*shape, 1))
    return rows | {"is_real_example": np.ones(shape, np.float32), SEQUENCES: sequences}


def _trainer(
    device: str, precision: str, trained: Mapping[str, Any], goldens: pathlib.Path
) -> Trainer:
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


def _of_one_batch(model: BertModel, batch: Batch, *, by_xla: bool) -> dict[str, dict[str, Any]]:
    """Vectors of every layer, losses, and gradients, without dropout; compiled by XLA or not."""
    blocks = [layer.name for layer in model.layers if layer.name.startswith("layer_")]
    inner = {name: model.get_layer(name).output for name in blocks}
    inner["embedding_output"] = model.get_layer(blocks[0]).input[0]
    whole, head = BertModel(model.input, model.output | inner, name=model.name), Pretraining()
    variables = {f"grad/{checkpoint_name(v)}": v.value for v in model.trainable_variables}

    @tf.function(jit_compile=by_xla or None, autograph=False)
    def compute(batch: Batch) -> tuple[Batch, Batch, Batch]:
        with tf.GradientTape() as tape:
            outputs = whole({name: batch[name] for name in whole.input}, training=False)
            sums, weights = head.loss_sums(outputs, batch), head.denominators(batch)
            loss = head.loss(sums, weights)
        mlm, nsp = (tf.nn.log_softmax(outputs[f"{name}_logits"]) for name in head.terms)
        logits = {"mlm_log_probs": tf.reshape(mlm, [-1, mlm.shape[-1]]), "nsp_log_probs": nsp}
        vectors = {name: outputs[name] for name in (*inner, "sequence_output", "pooled_output")}
        means = {"mlm_loss": sums["masked_lm"] / (weights["masked_lm"] + 1e-5), "loss": loss}
        means["nsp_loss"] = sums["next_sentence"] / weights["next_sentence"]
        gradients = {n: tf.convert_to_tensor(g) for n, g in tape.gradient(loss, variables).items()}
        return vectors | logits, gradients, means

    found = compute({name: tf.constant(value) for name, value in batch.items()})
    return dict(zip(("vectors", "gradients", "losses"), found, strict=True))


def _difference(ours: Any, theirs: np.ndarray) -> float:
    ours = np.reshape(tf.cast(ours, tf.float64), theirs.shape)
    return float(np.max(np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))))


def write_golden_records(folder: pathlib.Path) -> dict[str, Any]:
    """Writes the batches as records and the model's configuration; returns flags that name them."""
    batches = golden_batches(GOLDENS)
    sizes = {"max_seq_length": batches["input_ids"].shape[-1]}
    sizes["max_predictions_per_seq"] = batches["masked_lm_ids"].shape[-1]
    record, path = pretraining_record(**sizes), folder / "train.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for i, j in np.ndindex(batches["input_ids"].shape[:2]):
            writer.write(record.serialize({f.name: batches[f.name][i, j] for f in record.features}))
    config = folder / "bert_config.json"
    config.write_bytes((GOLDENS / "bert_config.json").read_bytes())
    return sizes | {"input_file": path, "bert_config_file": config}
