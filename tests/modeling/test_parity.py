"""The original's own figures: forward, gradients, twelve updates (pretraining_tiny)."""

import dataclasses

import numpy as np
import pytest
import small
import tensorflow as tf

from bert_tf import BertConfig, load_checkpoint, make_model
from bert_tf.checkpoints.tf1 import CheckpointFolder, checkpoint_name
from bert_tf.config import Intervals, StepConfig
from bert_tf.data.batches import Batches, SequentialSampler
from bert_tf.data.records import pretraining_record
from bert_tf.data.shards import RecordFiles
from bert_tf.heads.pretraining import Pretraining
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.trainer import Trainer

NUM_BATCHES = 12


@pytest.fixture(scope="module")
def tiny(goldens_dir):
    return goldens_dir / "pretraining_tiny"


@pytest.fixture(scope="module")
def config(tiny):
    return BertConfig.from_json_file(tiny / "bert_config.json")


def batch_number(tiny, number: int) -> dict[str, tf.Tensor]:
    arrays = np.load(tiny / "batches.npz")
    batch = {
        key.split("/")[1]: tf.constant(arrays[key])
        for key in arrays.files
        if key.startswith(f"{number}/")
    }
    batch["is_real_example"] = tf.ones([batch["input_ids"].shape[0]])
    return batch


def close(ours, golden, tolerance):
    np.testing.assert_allclose(np.asarray(ours), golden, rtol=tolerance, atol=tolerance)


def test_forward_losses_and_gradients(tiny, config):
    model = small.with_layers(make_model("pretraining", config, with_losses=True))
    load_checkpoint(model, tiny / "bert_model.ckpt")
    batch, golden = batch_number(tiny, 0), np.load(tiny / "forward.npz")
    objective = Pretraining()
    with tf.GradientTape() as tape:
        outputs = model({name: batch[name] for name in model.input}, training=False)
        sums, weights = objective.loss_sums(outputs, batch), objective.denominators(batch)
        loss = objective.loss(sums, weights)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])

    compared = {"embedding_output", "layer_0", "layer_1", "sequence_output", "pooled_output"}
    for name in compared:
        close(outputs[name], golden[name], 1e-5)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        name = f"grad/{checkpoint_name(variable)}"
        compared.add(name)
        close(tf.convert_to_tensor(gradient), golden[name], 1e-5)
    for name, ours in {
        "mlm_log_probs": tf.reshape(
            tf.nn.log_softmax(outputs["masked_lm_logits"]), [-1, config.vocab_size]
        ),
        "nsp_log_probs": tf.nn.log_softmax(outputs["next_sentence_logits"]),
        "mlm_loss": sums["masked_lm"] / (weights["masked_lm"] + 1e-5),
        "nsp_loss": sums["next_sentence"] / weights["next_sentence"],
        "loss": loss,
    }.items():
        compared.add(name)
        close(ours, golden[name], 1e-5)
    assert set(golden.files) - compared <= {"mlm_per_example"}


def write_records(path, tiny, numbers) -> RecordFiles:
    """The batches of those numbers as a TFRecord file."""
    batches = [batch_number(tiny, number) for number in numbers]
    sizes = {"max_seq_length": batches[0]["input_ids"].shape[1]}
    sizes["max_predictions_per_seq"] = batches[0]["masked_lm_ids"].shape[1]
    record = pretraining_record(**sizes)
    rows = {n: np.concatenate([batch[n] for batch in batches]) for n in batches[0]}
    return RecordFiles(small.write_records(path, rows, record), record)


@pytest.mark.parametrize("compiled", [False, True])
def test_twelve_steps(tiny, config, tmp_path, compiled):
    files = write_records(tmp_path / "batches.tfrecord", tiny, range(NUM_BATCHES))
    golden = np.load(tiny / "train_one_hot.npz")
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = dataclasses.replace(config, **no_dropout)
    schedule = Schedule(
        learning_rate=float(golden["init_lr"]),
        num_train_steps=int(golden["num_train_steps"]),
        num_warmup_steps=int(golden["num_warmup_steps"]),
    )
    trainer = Trainer(
        lambda: make_model("pretraining", config, with_losses=True),
        Pretraining(),
        AdamWeightDecay(schedule),
        strategy=tf.distribute.get_strategy(),
        seed=3,
        step_config=StepConfig(xla=compiled),
    )
    load_checkpoint(trainer.model, tiny / "bert_model.ckpt")
    losses = []
    trainer.train(
        Batches(files, SequentialSampler(len(files)), batch_size=4),
        num_train_steps=NUM_BATCHES,
        folder=CheckpointFolder(tmp_path / "run"),
        intervals=Intervals(iterations_per_loop=1),
        run_settings={},
        on_stop=lambda step, means: losses.append(means["loss"]),
    )
    close(losses, golden["losses"], 1e-4)
    for variable in trainer.model.trainable_variables:
        close(variable, golden[f"final/{checkpoint_name(variable)}"], 1e-4)
