"""A run that computes nothing: its evaluations return given accuracies, one after the other."""

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
    """A run with given accuracies.

    Attributes:
      accuracies: the results of the next evaluations.
      files_written: the folders for which `write_model_files` was called.
      asked: the arguments of the calls for training batches.
    """

    metric = "eval_accuracy"
    task = get_task("rte")

    def __init__(self, folder, accuracies=()):
        self.output_dir = str(folder)
        self.accuracies = [*accuracies]
        self.files_written = []
        self.asked = []
        self.step = 0
        source = types.SimpleNamespace(path="begun/with")
        tokenizer = types.SimpleNamespace(pieces=None)
        self.model = types.SimpleNamespace(source=source, config=None, tokenizer=tokenizer)
        self.batching = types.SimpleNamespace(training=self._training)
        self.trainer = self
        self.strategy = tf.distribute.get_strategy()
        self.step_config = StepConfig()

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
        self.trainer = types.SimpleNamespace(
            train=self._trained, state=self.state, restore=self._restored
        )
        return self.trainer

    def load_pretrained(self):
        pass

    def state(self, step, run_settings):
        return {
            "w": np.full([3], step, np.float32),
            tf1.GLOBAL_STEP: np.int64(step),
            tf1.RUN_SETTINGS: np.array(json.dumps(run_settings, sort_keys=True)),
        }

    def _training(self, files, **asked):
        self.asked.append(asked)

    def _restored(self, folder, _):
        return tf1.step_of(folder.latest())

    def _trained(self, batches, plan, *, folder, run_settings, **_):
        folder.save(plan.last_step, self.state(plan.last_step, run_settings))


def make_config(**changes) -> TrainingConfig:
    """A configuration; `changes` are fields of `TrainingConfig`."""
    fields = {
        "schedule": FineTuningSchedule(train_batch_size=8, learning_rate=3e-5),
        "seed": 5,
        "run_settings": {"learning_rate": 0.5, "hidden_dropout_prob": 0.1},
        "intervals": Intervals(eval_steps=10),
        "early_stopping": 2,
        **changes,
    }
    may_change = frozenset({"num_train_epochs", "eval_steps", "early_stopping"})
    fields["run_settings"] = Settings(fields["run_settings"], may_change=may_change)
    return TrainingConfig(**fields)


def saved_settings(folder) -> dict:
    """The settings in the latest checkpoint of a folder."""
    return tf1.CheckpointReader(tf1.CheckpointFolder(folder).latest()).run_settings()
