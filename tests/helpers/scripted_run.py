"""A run that computes nothing: its model has the accuracies that are given, one after the other."""

import json
import types

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import ModelMetadata
from bert_tf.options import Settings
from bert_tf.tasks.registry import get_task
from bert_tf.training.fine_tuning import Run, TrainingConfig
from bert_tf.training.options import FineTuningSchedule, Intervals, StepConfig

TRAIN = types.SimpleNamespace(examples=range(64), num_counted=64, files=range(70), digest="t1")
DEV = types.SimpleNamespace(digest="digest of dev")


class ScriptedRun(Run):
    """It notes the folders that are made models, and what batches are asked for."""

    metric, task = "eval_accuracy", get_task("rte")

    def __init__(self, folder, accuracies=()):
        self.output_dir, self.accuracies = str(folder), [*accuracies]
        source = types.SimpleNamespace(path="begun/with")
        tokenizer = types.SimpleNamespace(pieces=None)
        self.model = types.SimpleNamespace(source=source, config=None, tokenizer=tokenizer)
        self.batching, self.trainer = types.SimpleNamespace(training=self._training), self
        self.files_written, self.asked, self.step = [], [], 0
        self.strategy, self.step_config = tf.distribute.get_strategy(), StepConfig()

    def prepare(self, data):
        return data

    def evaluate(self, data):
        return {"eval_accuracy": self.accuracies.pop(0), "loss": 0.5}

    def facts(self):
        return {"task": "classification"}

    def metadata(self):
        return ModelMetadata()

    def write_model_files(self, folder):
        self.files_written.append(folder)

    def make_trainer(self, optimizer, *, seed, freeze):
        restore = lambda folder, _: tf1.step_of(folder.latest())  # noqa: E731
        self.trainer = types.SimpleNamespace(train=self._trained, state=self.state, restore=restore)
        return self.trainer

    def load_pretrained(self):
        pass

    def state(self, step, run_settings):
        recorded = np.array(json.dumps(run_settings, sort_keys=True))
        made = {tf1.GLOBAL_STEP: np.int64(step), tf1.RUN_SETTINGS: recorded}
        return {"w": np.full([3], step, np.float32), **made}

    def _training(self, files, **asked):
        self.asked.append(asked)

    def _trained(self, batches, plan, *, folder, run_settings, **_):
        folder.save(plan.last_step, self.state(plan.last_step, run_settings))


def make_config(**changes) -> TrainingConfig:
    fixed = {
        "schedule": FineTuningSchedule(train_batch_size=8, learning_rate=3e-5),
        "seed": 5,
        "run_settings": {"learning_rate": 0.5, "hidden_dropout_prob": 0.1},
        "intervals": Intervals(eval_steps=10),
        "early_stopping": 2,
    }
    given = fixed | changes
    may_change = frozenset({"num_train_epochs", "eval_steps", "early_stopping"})
    given["run_settings"] = Settings(given["run_settings"], may_change=may_change)
    return TrainingConfig(**given)


def saved_settings(folder) -> dict:
    return tf1.CheckpointReader(tf1.CheckpointFolder(folder).latest()).run_settings()
