"""The options that commands which train share. Loads no TensorFlow."""

from bert_tf import runtime
from bert_tf.checkpoints.options import ModelFiles
from bert_tf.data.options import Batching
from bert_tf.errors import InputError
from bert_tf.files import refuse_pattern
from bert_tf.options import NEVER, Options, option
from bert_tf.training.options import (
    Devices,
    Epochs,
    FineTuning,
    FineTuningIntervals,
    StepConfig,
    Updates,
)


class RunFolder(Options, title="Model"):
    """The folders of a run."""

    output_dir: str = option(
        "The folder for checkpoints and results. The same command resumes a run in it.",
        path=True,
        of_tpu=True,
        original=True,
    )
    export_dir: str | None = option(
        "At the end, export the model (the best checkpoint if the run keeps one, else the last) "
        "as a SavedModel that takes raw text, for TensorFlow Serving: the next version in this "
        "folder, in float32. See bert-tf export.",
        default=None,
        path=True,
        of_tpu=True,
    )


class WithoutEffect(Options, title="Accepted for the original's commands, without effect"):
    """Options of the original's commands that are accepted and ignored."""

    master: str | None = option("No effect.", default=None, acts=NEVER, original=True)
    num_tpu_cores: int = option("No effect.", default=8, low=0, acts=NEVER, original=True)


class TrainingCommand(RunFolder, title="Training"):
    """The options of every command that trains."""

    do_train: bool = option("Train.", default=False, original=True)
    schedule: Updates
    step: StepConfig = StepConfig()
    devices: Devices = Devices()
    ignored: WithoutEffect = WithoutEffect()

    def prepare(self) -> None:
        """Chooses what XLA compiles in bfloat16 on a CPU."""
        of_tpu = self.devices.use_tpu or self.devices.tpu or self.devices.strategy == "tpu"
        if self.step.precision == "bfloat16" and self.step.xla and not of_tpu:
            runtime.cluster_graphs()

    def check(self) -> None:
        """Refuses folders that TensorFlow could not read."""
        refuse_pattern(self.output_dir, "--output_dir=")
        refuse_pattern(self.export_dir or "", "--export_dir=")


class InitialModel(ModelFiles, title="Model"):
    """The model that fine-tuning begins with."""

    init_checkpoint: str | None = option(
        "The model: a TF1 or TF2 checkpoint, a .keras file, the folder of a run or of a Hugging "
        "Face model, or hf:OWNER/NAME[@REVISION], fetched from their hub. Without it: the model "
        "of --output_dir.",
        default=None,
        path=True,
        of_tpu=True,
        original=True,
    )


class FineTuningCommand(TrainingCommand, title="Fine-tuning"):
    """The options of every command that fine-tunes: run_classifier.py and run_squad.py."""

    model: InitialModel = InitialModel()
    predict_batch_size: int = option(
        "Examples of a prediction step, all devices together.",
        default=8,
        low=1,
        acts="do_predict",
        original=True,
    )
    schedule: Epochs
    batching: Batching = Batching()
    training: FineTuning = FineTuning()
    intervals: FineTuningIntervals = FineTuningIntervals()


def require_one_of(**values: object) -> None:
    """Raises `InputError` if none of these options is set."""
    if not any(values.values()):
        received = "neither " + " nor ".join(f"--{name}" for name in values)
        raise InputError(received, "at least one of them", "add one of them")


def require(name: str, value: object, **needed: object) -> None:
    """Raises `InputError` if an option is set without all the options that it needs."""
    if value and not all(needed.values()):
        listed = " and ".join(f"--{needed_name}" for needed_name in needed)
        expected = f"{listed}: --{name} has no effect alone"
        remedy = f"add {listed}, or leave out --{name}"
        raise InputError(f"--{name} without {listed}", expected, remedy)
