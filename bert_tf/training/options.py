"""The options of training: steps, intervals, schedules, data, devices. Loads no TensorFlow."""

import dataclasses
from typing import Self

from bert_tf.checkpoints.options import ModelFiles
from bert_tf.errors import InputError
from bert_tf.options import LARGEST_SEED, LONGEST, Options, option

PRECISIONS = ("float32", "bfloat16", "float16")
OPTIMIZERS = ("adamw", "lamb")
STRATEGIES = ("auto", "one", "mirrored", "multiworker", "tpu")


class StepConfig(Options, title="Training"):
    """How a training step is computed. Only `precision` changes the result by more than rounding.

    Attributes:
      recompute_attention: whether the gradient recomputes attention's probabilities and the
        derivative of gelu, instead of keeping them.
    """

    precision: str = option(
        "What layers compute in. Weights, moments, norms, soft-max and losses are always float32.",
        default="float32",
        choices=PRECISIONS,
        recorded=True,
    )
    gradient_accumulation_steps: int = option(
        "Micro-batches of each device in a step: less memory, the same result.",
        default=1,
        low=1,
        acts="do_train",
        recorded=False,
    )
    recompute: bool = option(
        "Compute encoder blocks again for their gradients: less memory.",
        default=False,
        acts="do_train",
        recorded=False,
    )
    xla: bool = option("Compile steps with XLA.", default=True)
    recompute_attention: bool = False

    def check_batch_size(self, size: int, num_replicas: int, *, name: str = "batch_size") -> None:
        """Raises InputError unless `size` is a multiple of replicas times accumulation steps."""
        unit = num_replicas * self.gradient_accumulation_steps
        if size % unit:
            parts = f"--gradient_accumulation_steps={self.gradient_accumulation_steps}"
            received = f"{name}={size} for {num_replicas} replicas with {parts}"
            raise InputError(received, "a multiple of their product", f"use a multiple of {unit}")


class Intervals(Options, title="Training"):
    """Steps between logging, saving and evaluation; 0: only at the end."""

    iterations_per_loop: int = option(
        "Most steps in a call of the compiled loop; between calls the host logs and saves.",
        default=1000,
        low=1,
        acts="do_train",
        recorded=False,
        original=True,
    )
    log_steps: int | None = option(
        "Steps between two lines of progress, and points of the curves. If not given: 100, and "
        "fewer in a run of less than 2,000 steps, for some twenty points; 0: only the end.",
        default=None,
        low=0,
        acts="do_train",
        recorded=False,
    )
    save_checkpoints_steps: int = option(
        "Steps between two checkpoints; 0: one at the end. Ctrl-C and SIGTERM save one more.",
        default=1000,
        low=0,
        acts="do_train",
        recorded=False,
        original=True,
    )
    eval_steps: int = option(
        "Also evaluate every so many steps of training; 0: no.",
        default=0,
        low=0,
        acts="do_train and do_eval",
        recorded=False,
    )

    def of_run(self, num_train_steps: int) -> Self:
        """These intervals, with a default of log_steps that fits the length of a run.

        It divides save_checkpoints_steps, so that the means that a run logs do not depend on
        whether it was killed and resumed.
        """
        if self.log_steps is not None:
            return self
        steps = max(1, min(100, num_train_steps // 20))
        while self.save_checkpoints_steps % steps:
            steps -= 1
        return dataclasses.replace(self, log_steps=steps)


class FineTuningIntervals(Intervals, title="Fine-tuning"):
    """The same for fine-tuning, where evaluations select the best checkpoint."""

    eval_steps: int = option(
        "Evaluate every so many steps, and keep the best checkpoint; 0: no.",
        default=0,
        low=0,
        acts="do_train and do_eval",
        recorded=True,
        may_change=True,
    )


# ---------------------------------------------------------------------------- schedules


class Updates(Options, title="Training"):
    """Batch size and optimizer of every training."""

    train_batch_size: int = option(
        "Examples of a step, all devices together.",
        default=32,
        low=1,
        acts="do_train",
        recorded=True,
        original=True,
    )
    optimizer: str = option(
        "adamw: Adam with decoupled weight decay, as the original. lamb: its layer-wise form.",
        default="adamw",
        choices=OPTIMIZERS,
        acts="do_train",
        recorded=True,
    )
    bias_correction: bool = option(
        "Correct Adam's moments for their start at 0 (the original does not).",
        default=False,
        acts="do_train",
        recorded=True,
    )


class PretrainingSchedule(Updates):
    """Steps, learning rate and optimizer of a pre-training."""

    learning_rate: float = option(
        "The peak learning rate, above 0.",
        default=5e-5,
        above=0.0,
        acts="do_train",
        recorded=True,
        original=True,
    )
    num_train_steps: int = option(
        "Steps in all; the decay ends there.",
        default=100000,
        low=1,
        acts="do_train",
        recorded=True,
        original=True,
    )
    num_warmup_steps: int = option(
        "Steps in which the learning rate rises.",
        default=10000,
        low=0,
        acts="do_train",
        recorded=True,
        original=True,
    )
    stop_at_step: int | None = option(
        "End before --num_train_steps, at the learning rate of this step: the first of two phases.",
        default=None,
        low=1,
        acts="do_train",
        recorded=False,
    )

    @property
    def last_step(self) -> int:
        """The step at which training ends."""
        return min(self.stop_at_step or self.num_train_steps, self.num_train_steps)


class Epochs(Updates, title="Fine-tuning"):
    """Epochs and optimizer of a fine-tuning, without the learning rate."""

    num_train_epochs: float = option(
        "How often each example is trained on.",
        default=3.0,
        above=0.0,
        high=1e6,
        acts="do_train",
        recorded=True,
        may_change=True,
        original=True,
    )
    warmup_proportion: float = option(
        "The share of the steps in which the learning rate rises.",
        default=0.1,
        low=0.0,
        below=1.0,
        acts="do_train",
        recorded=True,
        original=True,
    )
    layerwise_lr_decay: float = option(
        "Above 0, at most 1 (0.9 is usual): a factor of the learning rate for each level, from "
        "the head (the rate itself) over pooler and layers to the embeddings.",
        default=1.0,
        above=0.0,
        high=1.0,
        acts="do_train",
        recorded=True,
    )

    def at(self, learning_rate: float) -> "FineTuningSchedule":
        """The schedule with a learning rate."""
        return FineTuningSchedule.of(self, learning_rate=learning_rate)


class FineTuningSchedule(Epochs):
    """Epochs, learning rate and optimizer of a fine-tuning."""

    learning_rate: float = option(
        "The peak learning rate, above 0.",
        default=5e-5,
        above=0.0,
        acts="do_train",
        recorded=True,
        original=True,
    )


# ---------------------------------------------------------------------------- pre-training


class PretrainedFrom(ModelFiles):
    """The model that is pre-trained, and its initial weights."""

    bert_config_file: str | None = option(
        "The bert_config.json of the model. Default: that of --init_checkpoint, and then so "
        "--vocab_file.",
        default=None,
        path=True,
        original=True,
    )
    vocab_file: str | None = option(
        "The vocabulary of the data; copied to --output_dir for later use.",
        default=None,
        path=True,
        original=True,
    )
    do_lower_case: bool | None = option(
        "Whether the text of the data was lower-cased; recorded with the model. Default: as "
        "info_*.json beside the data says.",
        default=None,
        original=True,
    )
    init_checkpoint: str | None = option(
        "First weights: a TF1 or TF2 checkpoint, a .keras file, a Hugging Face folder, or "
        "hf:OWNER/NAME[@REVISION], which is fetched from their hub.",
        default=None,
        path=True,
        of_tpu=True,
        recorded=True,
        original=True,
    )


class PretrainingData(Options):
    """The records of pre-training, and the head that is trained on them."""

    input_file: str = option(
        "TFRecord files: paths or globs, separated by commas.",
        path=True,
        of_tpu=True,
        original=True,
    )
    eval_input_file: str | None = option(
        "Files to evaluate on: --max_eval_steps batches at most, each example once. Without it: "
        "--input_file, as in the original.",
        default=None,
        path=True,
        of_tpu=True,
        acts="do_eval",
    )
    max_seq_length: int | None = option(
        "Tokens of a record, as the data were made. If not given: as info_*.json beside the data "
        "says.",
        default=None,
        shown=128,
        low=1,
        high=LONGEST,
        recorded=True,
        original=True,
    )
    max_predictions_per_seq: int | None = option(
        "Masked tokens of a record, likewise.",
        default=None,
        shown=20,
        low=1,
        high=LONGEST,
        recorded=True,
        original=True,
    )
    task: str = option(
        "The head that is trained: pretraining; fill_mask, without next sentences, as causal "
        "models always are; or one of your own (docs/own_head.md).",
        default="pretraining",
        recorded=True,
    )
    eval_batch_size: int = option(
        "Examples of an evaluation step, all devices together.",
        default=8,
        low=1,
        acts="do_eval",
        original=True,
    )
    max_eval_steps: int = option(
        "Most batches of an evaluation.", default=100, low=1, acts="do_eval", original=True
    )

    def files(self, *, is_trained: bool, is_evaluated: bool) -> list[str]:
        """The patterns of the files that a run reads."""
        patterns = []
        if is_trained or not self.eval_input_file:
            patterns.append(self.input_file)
        if is_evaluated and self.eval_input_file:
            patterns.append(self.eval_input_file)
        return patterns


# ---------------------------------------------------------------------------- runs


class Training(Options, title="Training"):
    """The seed of a training, and the number of checkpoints that it keeps."""

    seed: int = option(
        "Seeds weights, data order and dropout.",
        default=12345,
        low=0,
        high=LARGEST_SEED,
        acts="do_train or dev_share",
        recorded=True,
    )
    keep_checkpoint_max: int = option(
        "How many checkpoints are kept; 0 keeps all.",
        default=5,
        low=0,
        acts="do_train",
        recorded=False,
    )


class FineTuning(Training, title="Fine-tuning"):
    """The same for fine-tuning, with frozen weights and early stopping."""

    freeze: tuple[str, ...] = option(
        "Patterns of the names of weights to leave as they are, as in "
        "bert/embeddings,bert/encoder/layer_[0-5]/; found anywhere in a name. Where it is all of "
        "the encoder, its dropout is off.",
        default=(),
        acts="do_train",
        recorded=True,
    )
    early_stopping: int = option(
        "Stop after so many evaluations without a better one; 0: never.",
        default=0,
        low=0,
        acts="eval_steps",
        recorded=True,
        may_change=True,
    )


class Devices(Options, title="Devices"):
    """The devices that the model runs on."""

    strategy: str = option(
        "auto: tpu with --use_tpu or --tpu, multiworker if the environment variable TF_CONFIG "
        "names several processes, mirrored with several GPUs, else one device.",
        default="auto",
        choices=STRATEGIES,
    )
    tf32: bool = option(
        "In float32, let GPUs since Ampere multiply in TF32, with 10 of 23 bits, as TensorFlow "
        "does by default: faster, and 2e-3 from the original's vectors instead of 1e-6.",
        default=True,
        acts="precision=float32",
    )
    hang_seconds: int = option(
        "Report a hang, with the stacks of all threads, after so many seconds without progress; "
        "three times as many where something is compiled; 0: never.",
        default=600,
        low=0,
    )
    sigterm_exit_code: int = option(
        "The exit code after SIGTERM, once a checkpoint is saved; 0, say, where a platform takes "
        "others for failures.",
        default=143,
        low=0,
        high=255,
    )
    use_tpu: bool = option("Run on the TPU named by --tpu_name.", default=False, original=True)
    tpu_name: str | None = option(
        "The TPU: local, that of this machine; or the name or grpc://address of another "
        "machine's. This process reads for it, batch by batch, so local is faster.",
        default=None,
        acts="use_tpu or tpu or strategy=tpu",
        original=True,
    )
    tpu: str | None = option("The same as --use_tpu --tpu_name=TPU.", default=None)
    tpu_zone: str | None = option(
        "The zone of a TPU that is given by name.",
        default=None,
        acts="use_tpu or tpu or strategy=tpu",
        original=True,
    )
    gcp_project: str | None = option(
        "The cloud project of a TPU that is given by name.",
        default=None,
        acts="use_tpu or tpu or strategy=tpu",
        original=True,
    )
