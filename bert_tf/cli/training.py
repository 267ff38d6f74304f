"""What commands that train make of their options: devices, a model and its files, a run, an export.

Imported when the options are read: it loads TensorFlow.
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
      InputError: the devices are unavailable, two TPUs are named, a path is local and the TPU is
        another machine's, or they cannot share a batch of training.
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
    """Lets GPUs multiply float32 in TF32, or not; says it where that is what they do."""
    tf.config.experimental.enable_tensor_float_32_execution(devices.tf32)
    if devices.tf32 and step.precision == "float32" and tf.config.list_physical_devices("GPU"):
        logging.info("GPUs multiply float32 in TF32, with 10 of its 23 bits; --notf32: in all.")


def _refuse_local_paths(tpu: str | None, options: Options) -> None:
    """Refuses local paths for a TPU of another machine, before anything is connected."""
    values = values_of(options)
    for option in options_of(type(options)):
        paths = (values[option.name] or "").split(",") if option.says("of_tpu") else ()
        for path in filter(None, paths):
            if not path.startswith("gs://"):
                raise InputError(
                    f"--{option.flag}={path} with the TPU {tpu or '(none named)'}",
                    "a path that begins with gs://: the TPU's machine cannot read local ones",
                    f"copy it to a bucket and give --{option.flag}=gs://..., or run on the TPU's "
                    "machine with --tpu=local",
                )


def step_of_devices(step: StepConfig) -> StepConfig:
    """How a step is computed: as chosen, and as suits the devices.

    Accelerators have more to gain from memory than they lose by computing attention again.
    """
    others = {device.device_type for device in tf.config.list_logical_devices()} - {"CPU"}
    return dataclasses.replace(step, recompute_attention=bool(others))


def shared_size(name: str, size: int, strategy: tf.distribute.Strategy) -> int:
    """A size of batches on which no result depends: the next one that the devices can share."""
    replicas = strategy.num_replicas_in_sync
    rest = size % replicas
    if rest:
        size += replicas - rest
        logging.info("--%s is taken as %d, for %d devices.", name, size, replicas)
    return size


def check_batch_size(
    name: str, size: int, strategy: tf.distribute.Strategy, step: StepConfig | None = None
) -> None:
    """Refuses a size of batches that the devices cannot share, where a result depends on it.

    Args:
      name: of the option.
      size: its value.
      strategy: the devices.
      step: how each device cuts its part again; None: it does not.
    """
    step = step or StepConfig()
    step.check_batch_size(size, strategy.num_replicas_in_sync, name=f"--{name}")


def settings_of(options: Options, config: BertConfig) -> Settings:
    """What affects the trained weights, besides the data; recorded in checkpoints."""
    return recorded(options).with_values(**config.to_dict())


# ---------------------------------------------------------------------------- fine-tuning


RESULTS = (  # files that commands which train write into --output_dir
    r"^((test_)?eval_results\w*\.txt|report\w*\.html|test_results\w*\.tsv|\w+_predictions\.tsv|"
    r"(nbest_)?predictions\.json|null_odds\.json|trials(_summary)?\.tsv|run\.json)$"
)
LEFT_BY_RUNS = r"^(eval|checkpoint|.*\.tf_record|model\.ckpt-\d+\.index)$"


def refuse_others(options: TrainingCommand, inputs: Iterable[str] = ()) -> None:
    """Refuses to write over files in --output_dir that are read, or that no command has written.

    Args:
      options: of the command; the files that they name are read.
      inputs: files that are read besides.

    Raises:
      InputError: there is such a file.
    """
    folder = options.output_dir
    written = paths_in(folder, RESULTS)
    values = values_of(options)
    paths = [values[option.name] for option in options_of(type(options)) if option.says("path")]
    named = [path for value in filter(None, paths) for path in str(value).split(",")]
    outputs(written, [path for path in [*named, *inputs] if is_file(path)])
    if written and not paths_in(folder, LEFT_BY_RUNS) and not has_record(folder):
        received = f"{written[0]}, a file that no command has written there"
        expected = "a folder in which only results have the names of results"
        raise InputError(received, expected, "move it, or choose another --output_dir")


def with_sizes(command: Command, model: PretrainedModel, *names: str) -> Command:
    """Options with the sizes of sequences that are not given: without training the model's own.

    Raises:
      InputError: the model has no positions for so long sequences.
    """
    known = model.source.metadata.known() if not command.do_train else {}
    options = resolved(command, **{name: known.get(name) for name in names})
    model.config.check_sequence_length(values_of(options)["max_seq_length"])
    return options


def open_initial_model(options: FineTuningCommand) -> PretrainedModel:
    """The model that a run begins with.

    Training begins with --init_checkpoint, or goes on in --output_dir. Without training it is the
    model of --output_dir if there is one.

    Args:
      options: of the command.
    """
    folder, given = options.output_dir, options.model.init_checkpoint
    if given and not options.do_train and tf1.has_checkpoints(folder):
        if os.path.abspath(given) != os.path.abspath(folder):
            text = "Using the model in %s, not --init_checkpoint=%s; for that one give another "
            logging.warning(text + "--output_dir.", folder, given)
        given = None
    if not given and not paths_in(folder, r"config\.json$"):  # no model of any format
        expected = "the model that training begins with, or the --output_dir of a run"
        raise InputError(f"no --init_checkpoint, and no model in {folder}", expected, NO_MODEL)
    return complete_model(open_weights(pinned(given, folder) or folder), options.model)


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
    """How a run is trained."""
    return TrainingConfig.of(
        options.training,
        schedule=schedule,
        intervals=options.intervals,
        run_settings=settings_of(options, run.model.config),
    )


# ---------------------------------------------------------------------------- export


def export(options: TrainingCommand, model: PretrainedModel, **serving: Any) -> None:
    """Exports the model of a run to --export_dir, if that is given.

    Args:
      options: of the command.
      model: what the run began with; the run's own weights are taken where it has some.
      **serving: fields of `serving.options.ServingOptions`.
    """
    if not options.export_dir:
        return
    # By name: a script that trains loads nothing of serving before it exports.
    module = importlib.import_module("bert_tf.serving.export")
    module.export_run(
        options.output_dir,
        model.source,
        model.config,
        model.tokenizer,
        options.export_dir,
        options=module.ServingOptions(**serving),
    )
