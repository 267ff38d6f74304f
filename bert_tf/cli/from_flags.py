"""Builds objects from the flags of `cli/model_flags.py`: devices, a model and its files, steps."""

import contextlib
import importlib
import json
import math
import os
import platform
import subprocess
import sys
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

import bert_tf
from bert_tf import files
from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import PretrainedModel, config_of, tokenizer_of
from bert_tf.checkpoints.metadata import Weights
from bert_tf.cli.flags import FLAGS, given_case, of_flags
from bert_tf.config import BertConfig, StepConfig
from bert_tf.errors import InputError
from bert_tf.training import distribution

_BEGAN, _TIME = time.time(), "%Y-%m-%d %H:%M:%S %z"
# What a run reads again and again or leaves behind.
_TPU_PATHS = ("output_dir", "export_dir", "input_file", "eval_input_file", "init_checkpoint")

# ---------------------------------------------------------------------------- devices


def make_strategy() -> tf.distribute.Strategy:
    """The devices of the flags, watched for hangs; batch sizes are checked against their number.

    Raises:
      InputError: the devices are unavailable, two TPUs are named, a path is local and the TPU is
        another machine's, or a batch cannot be shared out.
    """
    distribution.HANGS.limit = FLAGS.hang_seconds
    name, tpu = FLAGS.strategy, FLAGS.tpu or FLAGS.tpu_name
    if FLAGS.tpu_name not in (None, tpu):
        received = f"--tpu={tpu} and --tpu_name={FLAGS.tpu_name}"
        raise InputError(received, "one TPU: --tpu=A is --use_tpu --tpu_name=A", "leave out one")
    if FLAGS.use_tpu or FLAGS.tpu or name == "tpu":
        _check_tpu_paths(tpu)
        name = "tpu"
    given = {"tpu": tpu, "tpu_zone": FLAGS.tpu_zone, "gcp_project": FLAGS.gcp_project}
    strategy = distribution.make_strategy(name, **given)
    tf.config.experimental.enable_tensor_float_32_execution(FLAGS.tf32)
    if FLAGS.tf32 and FLAGS.precision == "float32" and tf.config.list_physical_devices("GPU"):
        logging.info("GPUs multiply float32 in TF32, with 10 of its 23 bits; --notf32: in all.")
    _check_batch_sizes(strategy.num_replicas_in_sync)
    return strategy


def _check_tpu_paths(tpu: str | None) -> None:
    """Refuses local paths for a TPU of another machine, before anything is connected."""
    given = {name: (FLAGS[name].value or "").split(",") for name in _TPU_PATHS if name in FLAGS}
    for name, paths in given.items() if tpu != "local" else ():
        for path in filter(None, paths):
            if not path.startswith("gs://"):
                raise InputError(
                    f"--{name}={path} with the TPU {tpu or '(none named)'}",
                    "a path that begins with gs://: the TPU's machine cannot read local ones",
                    f"copy it to a bucket and give --{name}=gs://..., or run on the TPU's machine "
                    "with --tpu=local",
                )


def _check_batch_sizes(replicas: int) -> None:
    """Refuses batches that devices cannot share where a result depends on it; enlarges others."""
    if FLAGS.do_train:
        size = FLAGS.train_batch_size
        step_config().check_batch_size(size, replicas, name="--train_batch_size")
    if "max_eval_steps" in FLAGS and FLAGS.do_eval:  # the number of batches is the user's
        StepConfig().check_batch_size(FLAGS.eval_batch_size, replicas, name="--eval_batch_size")
    for name in ("eval_batch_size", "predict_batch_size"):
        if name in FLAGS and (rest := FLAGS[name].value % replicas):
            FLAGS[name].value += replicas - rest
            size = FLAGS[name].value
            logging.info("--%s is taken as %d, for %d devices.", name, size, replicas)


# ---------------------------------------------------------------------------- the model


def complete_model(source: Weights) -> PretrainedModel:
    """Weights with the configuration and tokenizer of the flags, or their own.

    Raises:
      InputError: one is missing, or does not fit the flags.
    """
    config = config_of(source, FLAGS.bert_config_file)
    tokenizer = tokenizer_of(source, config, FLAGS.vocab_file, given_case())
    return PretrainedModel(source, config, tokenizer)


# ---------------------------------------------------------------------------- steps, settings


def step_config() -> StepConfig:
    """How a step is computed: as the flags say, and as suits the devices.

    Accelerators have more to gain from memory than they lose by computing attention again.
    """
    others = {device.device_type for device in tf.config.list_logical_devices()} - {"CPU"}
    return of_flags(StepConfig, recompute_attention=bool(others))


def all_run_settings(config: BertConfig) -> dict[str, Any]:
    """The settings that affect the trained weights, besides the data; recorded in checkpoints."""
    recorded = (name for name in FLAGS if getattr(FLAGS[name], "is_recorded", False))
    return {name: FLAGS[name].value for name in recorded} | config.to_dict()


def write_record() -> None:
    """Adds this command to run.json in --output_dir: what has made the model there, and when.

    Flags, versions, the settings of the training (with its data's checksum and number of records),
    scores, null where they are undefined, and the commit of the current folder if it has one.
    """
    latest, scores = tf1.CheckpointFolder(FLAGS.output_dir).latest(), {}
    path = f"{FLAGS.output_dir}/run.json"
    earlier = files.read_json(path).get("commands", []) if files.is_file(path) else []
    for results in files.paths_in(FLAGS.output_dir, r"eval_results\w*\.txt$"):
        if tf.io.gfile.stat(results).mtime_nsec < _BEGAN * 1e9:
            continue  # of an earlier command
        pairs = (line.split(" = ") for line in files.read_text_lines(results))
        found = ((key, float(value)) for key, value in pairs)
        known = {key: value if math.isfinite(value) else None for key, value in found}
        scores[os.path.basename(results)] = known
    git, commit = ["git", "rev-parse", "HEAD"], ""
    with contextlib.suppress(OSError):
        commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    packages = {"bert_tf": bert_tf, "tensorflow": tf, "keras": keras, "numpy": np}
    record = {
        "command": sys.argv,
        "flags": {name: FLAGS[name].value for name in FLAGS if FLAGS[name].present},
        "versions": {name: module.__version__ for name, module in packages.items()},
        "python": platform.python_version(),
        "commit": commit or None,
        "began": time.strftime(_TIME, time.localtime(_BEGAN)),
        "seconds": round(time.time() - _BEGAN, 1),
        "settings": tf1.CheckpointReader(latest).run_settings() if latest else None,
        "scores": scores,
    }
    files.write_text(path, json.dumps({"commands": [*earlier, record]}, indent=2) + "\n")


# ---------------------------------------------------------------------------- export


def export(model: PretrainedModel, **options: Any) -> None:
    """Exports the model of a run to --export_dir, if that is given.

    Args:
      model: what the run began with; the run's own weights are taken where it has some.
      **options: fields of `serving.options.ServingOptions`.
    """
    if not FLAGS.export_dir:
        return
    # By name: a script that trains loads nothing of serving before it exports.
    serving = importlib.import_module("bert_tf.serving.export")
    of_model = (model.source, model.config, model.tokenizer)
    options = serving.ServingOptions(**options)
    serving.export_run(FLAGS.output_dir, *of_model, FLAGS.export_dir, options=options)
