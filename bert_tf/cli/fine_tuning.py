"""Builds the parts of a fine-tuning run from flags: the first model, the run, its training."""

import os
from typing import Any

import tensorflow as tf
from absl import flags, logging

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import PretrainedModel, open_weights, pinned
from bert_tf.cli import from_flags
from bert_tf.cli.flags import of_flags
from bert_tf.config import Intervals
from bert_tf.data.packing import BatchingConfig
from bert_tf.errors import NO_MODEL, InputError
from bert_tf.files import paths_in
from bert_tf.training.fine_tuning import FineTuningSchedule, Run, TrainingConfig

FLAGS = flags.FLAGS


def open_pretrained() -> PretrainedModel:
    """The model that a run begins with.

    Training begins with --init_checkpoint, or goes on in --output_dir. Without training it is the
    model of --output_dir if there is one.
    """
    own, given = FLAGS.output_dir, FLAGS.init_checkpoint
    if given and not FLAGS.do_train and tf1.has_checkpoints(own):
        if os.path.abspath(given) != os.path.abspath(own):
            text = "Using the model in %s, not --init_checkpoint=%s; for that one give another "
            logging.warning(text + "--output_dir.", own, given)
        given = None
    if not given and not paths_in(own, r"config\.json$"):  # no model of any format
        expected = "the model that training begins with, or the --output_dir of a run"
        raise InputError(f"no --init_checkpoint, and no model in {own}", expected, NO_MODEL)
    model = from_flags.complete_model(open_weights(pinned(given, own) or own))
    model.config.check_sequence_length(FLAGS.max_seq_length)
    return model


def of_run(model: PretrainedModel, strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """The arguments of a `Run` of any task."""
    return {
        "model": model,
        "strategy": strategy,
        "batching": of_flags(BatchingConfig),
        "output_dir": FLAGS.output_dir,
        "step_config": from_flags.step_config(),
    }


def training_config(run: Run, learning_rate: float) -> TrainingConfig:
    """How the flags train a run."""
    return of_flags(
        TrainingConfig,
        schedule=of_flags(FineTuningSchedule, learning_rate=learning_rate),
        intervals=of_flags(Intervals),
        run_settings=from_flags.all_run_settings(run.model.config),
    )
