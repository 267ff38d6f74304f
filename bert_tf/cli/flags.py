"""The flags that several commands share, each defined once, and checks for contradictions.

Nothing here loads TensorFlow: what the flags stand for is made by `cli/from_flags.py`. Only scripts
and `cli/` read flags.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from bert_tf.errors import InputError
from bert_tf.training.settings import OPTIMIZERS, PRECISIONS, STRATEGIES

FLAGS = flags.FLAGS

# ---------------------------------------------------------------------------- kinds of flags


@contextlib.contextmanager
def _marked(attribute: str, value: Any) -> Iterator[None]:
    """Sets an attribute of the flags that are defined in this context, unless it is set already."""
    before = set(FLAGS)
    yield
    for name in set(FLAGS) - before:
        if not hasattr(FLAGS[name], attribute):
            setattr(FLAGS[name], attribute, value)


def group(title: str) -> contextlib.AbstractContextManager:
    """--help shows the flags that are defined in this context under the title."""
    return _marked("group", title)


def recorded_in_checkpoints() -> contextlib.AbstractContextManager:
    """Flags defined in this context affect the result of a run: its checkpoints record them.

    A resumed run is compared with them, and a finished one is not taken for one with others; which
    of them may change when a run is made longer is listed in tasks/run.py.
    """
    return _marked("is_recorded", True)


def run_settings() -> dict[str, Any]:
    """The values of the flags that affect the result of a run."""
    return {name: FLAGS[name].value for name in FLAGS if getattr(FLAGS[name], "is_recorded", False)}


def mark_required(*names: str) -> None:
    """Refuses a command without these flags, or with empty ones as in --output_dir=$UNSET."""
    for name in names:
        flags.register_validator(name, bool, message=f"it is required: write --{name}=VALUE")


MOST = 10**9  # of what flags count: far beyond any use, and an int32
LONGEST = 10**6  # tokens of a sequence
SEEDS = {"least": 0, "most": 2**32 - 1}


class _Number(flags.FloatParser):
    """A float, not NaN; -infinity where no bound excludes it, infinity where it is the bound."""

    def convert(self, argument: Any) -> float:
        value = super().convert(argument)
        if not (value < math.inf or value == self.upper_bound):
            raise ValueError(f"{value} is not a finite number")
        return value


def define_count(
    name: str, default: int | None, help_text: str, *, least: int = 1, most: int = MOST
) -> None:
    """A flag for an integer from `least` to `most`."""
    flags.DEFINE_integer(name, default, help_text, lower_bound=least, upper_bound=most)


def define_number(name: str, default: float | None, help_text: str, **bounds: float) -> None:
    """A flag for a float; `bounds` are absl's lower_bound and upper_bound."""
    flags.DEFINE(_Number(**bounds), name, default, help_text, serializer=flags.ArgumentSerializer())


def define_choices(name: str, default: Sequence[str], choices: Sequence[str], text: str) -> None:
    """A flag for one or more of the choices, each once, separated by commas."""
    flags.DEFINE_list(name, list(default), f"{text}, separated by commas: {', '.join(choices)}.")
    flags.register_validator(
        name,
        lambda words: set(words) <= set(choices) and len(set(words)) == len(words),
        message=f"expected words of {', '.join(choices)}, each once, separated by commas",
    )


def define_switches(**texts: str) -> None:
    """Flags that are off by default."""
    for name, text in texts.items():
        flags.DEFINE_bool(name, False, text)


def define_strings(**texts: str) -> None:
    """Flags without a default."""
    for name, text in texts.items():
        flags.DEFINE_string(name, None, text)


# ---------------------------------------------------------------------------- groups


@group("Model")
def define_model_files() -> None:
    """Files that belong to weights and may not lie beside them."""
    define_strings(
        bert_config_file="Default: the configuration beside the weights.",
        vocab_file="Default: the vocabulary beside the weights.",
    )
    flags.DEFINE_bool(
        "do_lower_case",
        True,
        "Lower-case the text, as in the model's training. If not given: as its files say, else as "
        "its vocabulary shows.",
    )


@group("Model")
def define_pretrained(*, required: bool = True) -> None:
    """A trained model to use: what its folder does not say, flags do."""
    define_strings(
        init_checkpoint="The model: a TF1 or TF2 checkpoint, a .keras file, or a folder of ours or "
        "Hugging Face's."
    )
    define_model_files()
    if required:
        mark_required("init_checkpoint")


@group("Model")
def define_fine_tuned_model() -> None:
    """The model to begin with, and the folder of the run."""
    define_pretrained(required=False)
    FLAGS["init_checkpoint"].help += " Without it: the model of --output_dir."
    define_output_dir()


def define_output_dir() -> None:
    """The folder of a run."""
    define_strings(output_dir="The folder for checkpoints and results.")
    mark_required("output_dir")


@group("Export")
def define_export_dir() -> None:
    """Where a run leaves its model for serving."""
    define_strings(
        export_dir="At the end, export the model (the best checkpoint if the run keeps one, else "
        "the last) as a SavedModel that takes raw text, for TensorFlow Serving: the next version "
        "in this folder. See bert-tf export."
    )


@group("Training")
def define_training() -> None:
    """The update, the intervals of the loop, and the random seed."""
    define_switches(do_train="Train.")
    with recorded_in_checkpoints():
        define_count("train_batch_size", 32, "Examples of a step, all devices together.")
        flags.DEFINE_enum(
            "optimizer",
            "adamw",
            OPTIMIZERS,
            "adamw: Adam with decoupled weight decay, as the original. lamb: its layer-wise form.",
        )
        text = "The learning rate at the end of the decay."
        define_number("end_learning_rate", 0.0, text, lower_bound=0.0)
        define_count("seed", 12345, "Seeds weights, data order and dropout.", **SEEDS)
        define_switches(
            bias_correction="Correct Adam's moments for their start at 0 (the original does not).",
            clip_per_replica="Clip the gradients of each device before they are added up, as the "
            "original does on TPUs.",
        )
    define_count("save_checkpoints_steps", 1000, "Steps between two checkpoints.")
    define_count("keep_checkpoint_max", 5, "How many checkpoints are kept; 0 keeps all.", least=0)
    text = "Most steps in a call of the compiled loop; between calls the host logs and saves."
    define_count("iterations_per_loop", 1000, text)
    define_count("log_steps", 100, "Steps between two lines of progress.")
    text = "Micro-batches of each device in a step: less memory, the same result."
    define_count("gradient_accumulation_steps", 1, text)
    define_switches(
        recompute="Compute encoder blocks again for their gradients: less memory.",
    )


@group("Fine-tuning")
def define_fine_tuning(*, max_seq_length: int, max_seq_length_help: str) -> None:
    """How a pre-trained model is fine-tuned, as in the original's run_classifier and run_squad."""
    define_count("predict_batch_size", 8, "Examples of a prediction step, all devices together.")
    with recorded_in_checkpoints():
        define_count("max_seq_length", max_seq_length, max_seq_length_help, most=LONGEST)
        text, bounds = "How often each example is trained on.", {"lower_bound": 0.0}
        define_number("num_train_epochs", 3.0, text, upper_bound=1e6, **bounds)
        text, most = (
            "The share of the steps in which the learning rate rises.",
            math.nextafter(1, 0),
        )
        define_number("warmup_proportion", 0.1, text, upper_bound=most, **bounds)
        flags.DEFINE_bool(
            "bucket_by_length",
            True,
            "Batch examples of similar length and trim their padding. Ignored on a TPU.",
        )
        define_number(
            "layerwise_lr_decay",
            1.0,
            "Above 0, at most 1 (0.9 is usual): a factor of the learning rate for each level, from "
            "the head (the rate itself) over pooler and layers to the embeddings.",
            lower_bound=math.nextafter(0.0, 1.0),
            upper_bound=1.0,
        )
        flags.DEFINE_list(
            "freeze",
            [],
            "Patterns of the names of weights to leave as they are, as in "
            "bert/embeddings,bert/encoder/layer_[0-5]/; found anywhere in a name.",
        )
        define_switches(
            legacy_shuffle="Mix the examples as little as the original's buffer of 100 does; with "
            "--nobucket_by_length the batches are the original's."
        )


@group("Fine-tuning")
def define_best_checkpoint() -> None:
    """Evaluation during fine-tuning, which chooses the checkpoint that is kept."""
    with recorded_in_checkpoints():
        text = "Evaluate every so many steps, and keep the best checkpoint; 0: no."
        define_count("eval_steps", 0, text, least=0)
        text = "Stop after so many evaluations without a better one; 0: never."
        define_count("early_stopping", 0, text, least=0)


@group("Data")
def define_tfds(purpose: str) -> None:
    """Data from tensorflow-datasets."""
    define_strings(
        tfds_name=f"A dataset of tensorflow-datasets, {purpose}.",
        tfds_data_dir="Where tensorflow-datasets keeps its data.",
    )


@group("Devices")
def define_devices() -> None:
    """What the model runs on."""
    flags.DEFINE_enum(
        "strategy",
        "auto",
        STRATEGIES,
        "auto: tpu with --use_tpu or --tpu, multiworker if the environment variable TF_CONFIG "
        "names several processes, mirrored with several GPUs, else one device.",
    )
    text = "Logical devices to split the CPU into, for trying mirrored."
    define_count("num_cpu_devices", 1, text, most=1000)
    with recorded_in_checkpoints():
        text = "What layers compute in. Weights, norms, soft-max and losses are always float32."
        flags.DEFINE_enum("precision", "float32", PRECISIONS, text)
    flags.DEFINE_bool("xla", True, "Compile steps with XLA.")
    define_count(
        "max_restarts",
        10,
        "multiworker: how often a process restarts from the last checkpoint after another one was "
        "lost; then it ends.",
        least=0,
    )
    define_count(
        "hang_seconds",
        600,
        "Report a hang, with the stacks of all threads, after so many seconds without progress; "
        "three times as many where something is compiled; 0: never.",
        least=0,
    )
    define_switches(
        end_when_hung="After the report end the process with exit code 1, for a supervisor to "
        "start it again.",
        use_tpu="Run on the TPU named by --tpu_name.",
    )
    define_strings(
        tpu_name="The TPU: local, that of this machine; or the name or grpc://address of another "
        "machine's. This process reads for it, batch by batch, so local is faster.",
        tpu="The same as --use_tpu --tpu_name=TPU.",
        tpu_zone="The zone of a TPU that is given by name.",
        gcp_project="The cloud project of a TPU that is given by name.",
    )
    define_without_effect("master", "num_tpu_cores")


@group("Accepted for the original's commands, without effect")
def define_without_effect(*names: str) -> None:
    """Flags of the original's commands that are accepted and ignored."""
    text = "Accepted for the original's commands; has no effect."
    for name in names:
        if name == "num_tpu_cores":
            define_count(name, 8, text, least=0)
        else:
            (define_strings if name == "master" else define_switches)(**{name: text})


# ---------------------------------------------------------------------------- checks


def given_case() -> bool | None:
    """--do_lower_case, or None where the command does not say it."""
    return FLAGS.do_lower_case if FLAGS["do_lower_case"].present else None


def refuse_words(words: Sequence[str]) -> None:
    """Refuses words outside any flag."""
    if words:
        raise InputError(
            f"{words[0]!r} outside any flag",
            "flags only, as in --input_file=...",
            "write --flag=value with an equals sign and no space, for a switch --flag or --noflag, "
            "and put quotes around a pattern, so that the shell does not expand it",
        )


def require_one_of(*names: str) -> None:
    """Refuses a command that gives none of these flags."""
    if not any(FLAGS[name].value for name in names):
        listed = " nor ".join(f"--{name}" for name in names)
        raise InputError(f"neither {listed}", "at least one of them", "add one of them")


def require(name: str, *needed: str, remedy: str = "") -> None:
    """Refuses --name without all of the flags that it needs."""
    if FLAGS[name].value not in (None, 0, "") and not all(FLAGS[other].value for other in needed):
        listed = " and ".join(f"--{other}" for other in needed)
        raise InputError(
            f"--{name} without {listed}",
            f"{listed}: --{name} has no effect alone",
            remedy or f"add {listed}, or leave out --{name}",
        )


def check_best_checkpoint() -> None:
    """Refuses evaluation during training without training or data to evaluate."""
    require("eval_steps", "do_train", "do_eval")
    require("early_stopping", "eval_steps", remedy="add --eval_steps=100, say")


def refuse_without_effect(name: str, where: str, hint: str = "") -> None:
    """Refuses a flag that was given where it does nothing."""
    if FLAGS[name].present:
        raise InputError(
            f"--{name} {where}, where it has no effect",
            "flags that have an effect",
            f"leave out --{name}{hint and f'; {hint}'}",
        )


def learning_rates() -> tuple[float, ...]:
    """--learning_rate as finite numbers above 0, each once.

    Raises:
      InputError: one is something else.
    """
    rates: list[float] = []
    given = FLAGS.learning_rate
    for word in given if isinstance(given, list) else [given]:
        try:
            rates.append(float(word))
        except ValueError:
            rates.append(math.nan)
        if not 0 < rates[-1] < math.inf or rates[-1] in rates[:-1]:
            raise InputError(
                f"--learning_rate with {word!r}",
                "numbers above 0, each once, separated by commas",
                "correct --learning_rate",
            )
    return tuple(rates)
