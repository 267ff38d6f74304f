"""The steps that commands which train share: devices, the initial model, a run, an export.

It loads TensorFlow, and is imported after the flags are parsed.
"""

import dataclasses
import importlib
import os
from collections.abc import Iterable
from typing import Any, TypeVar

import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import PretrainedModel, complete_model, open_weights, pinned
from bert_tf.cli.record import has_record
from bert_tf.cli.training_options import FineTuningCommand, TrainingCommand
from bert_tf.config import BertConfig
from bert_tf.data.packing import BatchingConfig
from bert_tf.errors import NO_MODEL, InputError
from bert_tf.files import is_file, outputs, paths_in
from bert_tf.options import Options, Settings, options_of, recorded, resolved, values_of
from bert_tf.training import distribution
from bert_tf.training.fine_tuning import Run, TrainingConfig
from bert_tf.training.options import Devices, FineTuningSchedule, StepConfig

Command = TypeVar("Command", bound=FineTuningCommand)

# ---------------------------------------------------------------------------- devices


def make_strategy(options: TrainingCommand) -> tf.distribute.Strategy:
    """The devices that the options name, watched for hangs.

    Raises:
      InputError: the devices are unavailable, two TPUs are named, a path is local although the TPU
        is another machine's, or the devices cannot share a training batch.
    """
    devices = options.devices
    distribution.HANGS.limit = devices.hang_seconds
    name = devices.strategy
    tpu = devices.tpu or devices.tpu_name
    if devices.tpu_name not in (None, tpu):
        received = f"--tpu={tpu} and --tpu_name={devices.tpu_name}"
        raise InputError(received, "one TPU: --tpu=A is --use_tpu --tpu_name=A", "leave out one")
    if devices.use_tpu or devices.tpu or name == "tpu":
        name = "tpu"
        if tpu != "local":
            _refuse_local_paths(tpu, options)
    strategy = distribution.make_strategy(
        name, tpu=tpu, tpu_zone=devices.tpu_zone, gcp_project=devices.gcp_project
    )
    _choose_tf32(devices, options.step)
    if options.do_train:
        size = options.schedule.train_batch_size
        check_batch_size("train_batch_size", size, strategy, options.step)
    return strategy


def _choose_tf32(devices: Devices, step: StepConfig) -> None:
    """Lets GPUs multiply float32 in TF32, or not; logs if they do."""
    tf.config.experimental.enable_tensor_float_32_execution(devices.tf32)
    if devices.tf32 and step.precision == "float32" and tf.config.list_physical_devices("GPU"):
        logging.info("GPUs multiply float32 in TF32, with 10 of its 23 bits; --notf32: in all.")


def _refuse_local_paths(tpu: str | None, options: Options) -> None:
    """Refuses local paths for a TPU of another machine, before anything is connected."""
    values = values_of(options)
    for option in options_of(type(options)):
        if not option.says("of_tpu") or not values[option.name]:
            continue
        for path in filter(None, values[option.name].split(",")):
            if not path.startswith("gs://"):
                received = f"--{option.flag}={path} with the TPU {tpu or '(none named)'}"
                expected = "a path that begins with gs://: the TPU's machine cannot read local ones"
                remedy = f"copy it to a bucket and give --{option.flag}=gs://..., "
                remedy += "or run on the TPU's machine with --tpu=local"
                raise InputError(received, expected, remedy)


def step_of_devices(step: StepConfig) -> StepConfig:
    """The configuration of a step; with an accelerator it computes attention again.

    That saves memory, which is worth more there than the time.
    """
    kinds = {device.device_type for device in tf.config.list_logical_devices()}
    has_accelerator = bool(kinds - {"CPU"})
    return dataclasses.replace(step, recompute_attention=has_accelerator)


def shared_size(name: str, size: int, strategy: tf.distribute.Strategy) -> int:
    """The next batch size that the devices can share, for batches on which no result depends."""
    replicas = strategy.num_replicas_in_sync
    rest = size % replicas
    if rest:
        size += replicas - rest
        logging.info("--%s is taken as %d, for %d devices.", name, size, replicas)
    return size


def check_batch_size(
    name: str, size: int, strategy: tf.distribute.Strategy, step: StepConfig | None = None
) -> None:
    """Refuses a batch size that the devices cannot share, for batches on which results depend.

    Args:
      name: the name of the option.
      size: its value.
      strategy: the devices.
      step: how each device splits its part of a batch; None: not at all.
    """
    step = step or StepConfig()
    step.check_batch_size(size, strategy.num_replicas_in_sync, name=f"--{name}")


def settings_of(options: Options, config: BertConfig) -> Settings:
    """The settings that affect the trained weights, without the data; checkpoints record them."""
    return recorded(options).with_values(**config.to_dict())


# ---------------------------------------------------------------------------- fine-tuning


RESULTS = (  # files that commands which train write into --output_dir
    r"^((test_)?eval_results\w*\.txt|report\w*\.html|test_results\w*\.tsv|\w+_predictions\.tsv|"
    r"(nbest_)?predictions\.json|null_odds\.json|trials(_summary)?\.tsv|run\.json)$"
)
LEFT_BY_RUNS = r"^(eval|checkpoint|.*\.tf_record|model\.ckpt-\d+\.index)$"


def refuse_others(options: TrainingCommand, inputs: Iterable[str] = ()) -> None:
    """Refuses to overwrite files in --output_dir that are inputs, or that no command has written.

    Args:
      options: the options of the command, some of which name inputs.
      inputs: further inputs.

    Raises:
      InputError: there is such a file.
    """
    folder = options.output_dir
    written = paths_in(folder, RESULTS)
    values = values_of(options)
    paths = [*inputs]
    for option in options_of(type(options)):
        if option.says("path") and values[option.name]:
            paths += str(values[option.name]).split(",")
    outputs(written, filter(is_file, paths))
    if written and not paths_in(folder, LEFT_BY_RUNS) and not has_record(folder):
        received = f"{written[0]}, a file that no command has written there"
        expected = "a folder in which only results have the names of results"
        raise InputError(received, expected, "move it, or choose another --output_dir")


def with_sizes(command: Command, model: PretrainedModel, *names: str) -> Command:
    """Options with defaults for the sizes of sequences: without training those of the model.

    Args:
      command: the options of a command.
      model: the model that it begins with.
      *names: the names of the options.

    Raises:
      InputError: the model has no positions for such long sequences.
    """
    sizes = {} if command.do_train else model.source.metadata.known()
    options = resolved(command, **{name: sizes.get(name) for name in names})
    model.config.check_sequence_length(values_of(options)["max_seq_length"])
    return options


def open_initial_model(options: FineTuningCommand) -> PretrainedModel:
    """The model that a run begins with.

    Training begins with --init_checkpoint, or continues in --output_dir. Without training it is the
    model in --output_dir, if there is one.

    Args:
      options: the options of the command.

    Raises:
      InputError: there is no model in either place, or it cannot be opened.
    """
    folder = options.output_dir
    checkpoint = options.model.init_checkpoint
    if checkpoint and not options.do_train and tf1.has_checkpoints(folder):
        if os.path.abspath(checkpoint) != os.path.abspath(folder):
            message = "Using the model in %s, not --init_checkpoint=%s; for that one give another "
            message += "--output_dir."
            logging.warning(message, folder, checkpoint)
        checkpoint = None
    if not checkpoint and not paths_in(folder, r"config\.json$"):  # no model of any format
        expected = "the model that training begins with, or the --output_dir of a run"
        raise InputError(f"no --init_checkpoint, and no model in {folder}", expected, NO_MODEL)
    return complete_model(open_weights(pinned(checkpoint, folder) or folder), options.model)


def run_arguments(
    options: FineTuningCommand,
    model: PretrainedModel,
    strategy: tf.distribute.Strategy,
    max_seq_length: int,
) -> dict[str, Any]:
    """The arguments of a `Run` of any task."""
    return {
        "model": model,
        "strategy": strategy,
        "batching": BatchingConfig.of(options.batching, max_seq_length=max_seq_length),
        "output_dir": options.output_dir,
        "step_config": step_of_devices(options.step),
    }


def training_config(
    options: FineTuningCommand, run: Run, schedule: FineTuningSchedule
) -> TrainingConfig:
    """The configuration of a run's training."""
    return TrainingConfig.of(
        options.training,
        schedule=schedule,
        intervals=options.intervals,
        run_settings=settings_of(options, run.model.config),
    )


# ---------------------------------------------------------------------------- export


def export(options: TrainingCommand, model: PretrainedModel, **serving: Any) -> None:
    """Exports the model of a run to --export_dir, if that is set.

    Args:
      options: the options of the command.
      model: the model that the run began with. Its weights are exported unless the run has some.
      **serving: fields of `serving.options.ServingOptions`.
    """
    if not options.export_dir:
        return
    # Imported by name: a script that trains loads nothing of serving before it exports.
    module = importlib.import_module("bert_tf.serving.export")
    module.export_run(
        options.output_dir,
        model.source,
        model.config,
        model.tokenizer,
        options.export_dir,
        options=module.ServingOptions(**serving),
    )
