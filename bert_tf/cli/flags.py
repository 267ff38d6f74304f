"""The flags that several scripts share, each defined once, and the way a script is run.

A script calls the `define_*` functions that it needs, adds its own flags, and ends with
`flags.run(main)`. Only scripts read flags; what is in `bert_tf` takes arguments.
"""

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf
from absl import flags, logging

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.loading import PretrainedModel, config_of, open_weights, tokenizer_of
from bert_tf.config import BertConfig
from bert_tf.data.batches import BatchingConfig
from bert_tf.errors import InputError
from bert_tf.training import distribution
from bert_tf.training.intervals import Intervals
from bert_tf.training.settings import OPTIMIZERS, PRECISIONS, STRATEGIES, StepConfig


def define_model(*, required: bool = True) -> None:
    """Which BERT: its configuration, its first weights, and where it is written."""
    flags.DEFINE_string("bert_config_file", None, "The bert_config.json of the model.")
    flags.DEFINE_string("output_dir", None, "The folder for checkpoints and results.")
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "First weights: a TF1 or TF2 checkpoint, a .keras file, or a Hugging Face folder.",
    )
    if required:
        flags.mark_flags_as_required(["bert_config_file", "output_dir"])


def define_pretrained(*, required: bool = True) -> None:
    """A trained model to use: what its folder does not say, flags do."""
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "The model: a TF1 or TF2 checkpoint, a .keras file, or a folder of ours or Hugging Face's.",
    )
    define_model_files()
    if required:
        flags.mark_flag_as_required("init_checkpoint")


def define_model_files() -> None:
    """What belongs to weights and may not lie beside them."""
    flags.DEFINE_string("bert_config_file", None, "Default: the configuration beside the weights.")
    flags.DEFINE_string("vocab_file", None, "Default: the vocabulary beside the weights.")
    flags.DEFINE_bool(
        "do_lower_case", True, "As the model was trained. Not given: what its files say, else true."
    )


def define_tuned_model() -> None:
    """The model to begin with, and where the tuned one is written."""
    define_pretrained(required=False)
    flags.FLAGS["init_checkpoint"].help += " Without it: the model of --output_dir."
    flags.DEFINE_string("output_dir", None, "The folder for checkpoints and results.")
    flags.mark_flag_as_required("output_dir")


def define_export() -> None:
    """Where a script leaves its model for serving."""
    flags.DEFINE_string(
        "export_dir",
        None,
        "At the end, write the model (the best checkpoint if the run keeps one, else the last) as "
        "a SavedModel that takes raw text, for TensorFlow Serving: the next version in this "
        "folder. See export_model.py.",
    )


def parse_learning_rates(words: Sequence[str]) -> tuple[float, ...]:
    """--learning_rate as numbers, each once.

    Raises:
      InputError: one is no number above 0.
    """
    rates = []
    for word in words:
        try:
            rates.append(float(word))
        except ValueError:
            rates.append(math.nan)
        if not 0 < rates[-1] < math.inf or rates[-1] in rates[:-1]:
            raise InputError(
                received=f"--learning_rate with {word!r}",
                expected="numbers above 0, each once, commas between",
                remedy="correct --learning_rate",
            )
    return tuple(rates)


def given_case() -> bool | None:
    """--do_lower_case, or None where the command does not say it."""
    return flags.FLAGS.do_lower_case if flags.FLAGS["do_lower_case"].present else None


def refuse_words(words: Sequence[str]) -> None:
    """Refuses what stands in a command outside any flag."""
    if words:
        raise InputError(
            received=f"{words[0]!r} outside any flag",
            expected="flags only, as in --input_file=...",
            remedy="write --flag=value with an equals sign and no space, for a switch --flag or "
            "--noflag, and put quotes around a pattern, so that the shell does not expand it",
        )


def define_vocabulary(*, required: bool = True) -> None:
    """How text becomes pieces."""
    flags.DEFINE_string("vocab_file", None, "The WordPiece vocabulary, one piece a line.")
    flags.DEFINE_bool(
        "do_lower_case", True, "Lower-case the text and strip accents (uncased models)."
    )
    if required:
        flags.mark_flag_as_required("vocab_file")


def define_training() -> None:
    """The update, how often the loop looks up, and the random seed."""
    flags.DEFINE_enum(
        "optimizer",
        "adamw",
        list(OPTIMIZERS),
        "adamw: Adam with decoupled weight decay, as the original. lamb: its layer-wise form.",
    )
    flags.DEFINE_bool(
        "bias_correction", False, "Correct Adam's moments for their start at 0 (the original: no)."
    )
    flags.DEFINE_float("end_learning_rate", 0.0, "The learning rate at the end of the decay.")
    flags.DEFINE_integer("seed", 12345, "Seeds weights, data order and dropout.")
    flags.DEFINE_integer("save_checkpoints_steps", 1000, "Steps between two checkpoints.")
    flags.DEFINE_integer("keep_checkpoint_max", 5, "How many checkpoints are kept; 0 keeps all.")
    flags.DEFINE_integer(
        "iterations_per_loop", 1000, "Most steps between two looks of the host at the device."
    )
    flags.DEFINE_integer("log_steps", 100, "Steps between two lines of progress.")
    flags.DEFINE_integer(
        "gradient_accumulation_steps",
        1,
        "Parts in which each device takes its examples of a step: less memory, the same result.",
    )
    flags.DEFINE_bool(
        "recompute", False, "Compute encoder blocks again for their gradients: less memory."
    )
    flags.DEFINE_bool(
        "clip_per_replica",
        False,
        "Clip the gradients of each device before they are added up, as the original does on TPUs.",
    )


def define_fine_tuning() -> None:
    """How a pre-trained model is trained on, as in the original's run_classifier and run_squad."""
    flags.DEFINE_bool("do_train", False, "Train.")
    flags.DEFINE_integer("train_batch_size", 32, "Examples of a step, all devices together.")
    flags.DEFINE_integer(
        "predict_batch_size", 8, "Examples of a prediction step, all devices together."
    )
    flags.DEFINE_float("num_train_epochs", 3.0, "How often each example is trained on.")
    flags.DEFINE_float(
        "warmup_proportion", 0.1, "The share of the steps in which the learning rate rises."
    )
    flags.DEFINE_bool(
        "bucket_by_length",
        True,
        "Batches of alike lengths, cut to the longest; no work on padding. Not on a TPU.",
    )
    flags.DEFINE_float(
        "layerwise_lr_decay",
        1.0,
        "Above 0, at most 1: the learning rate is multiplied by it for every level down, from the "
        "head (1 time the rate) over pooler and layers to the embeddings.",
    )
    flags.DEFINE_list(
        "freeze",
        [],
        "Patterns of the names of weights to leave as they are, as in "
        "bert/embeddings,bert/encoder/layer_[0-5]/; found anywhere in a name.",
    )
    flags.DEFINE_bool(
        "legacy_shuffle",
        False,
        "Mix the examples as little as the original's buffer of 100 does; with "
        "--nobucket_by_length the batches are the original's.",
    )


def define_devices() -> None:
    """What the model runs on."""
    flags.DEFINE_enum(
        "strategy",
        "auto",
        list(STRATEGIES),
        "auto: tpu with --use_tpu or --tpu, multiworker if the environment variable TF_CONFIG "
        "names several processes, mirrored with several GPUs, else one device.",
    )
    flags.DEFINE_integer(
        "num_cpu_devices", 1, "Logical devices to split the CPU into, for trying mirrored."
    )
    flags.DEFINE_enum(
        "precision",
        "float32",
        list(PRECISIONS),
        "What layers compute in. Weights, norms, soft-max and losses are float32 in any case.",
    )
    flags.DEFINE_bool("xla", True, "Compile steps with XLA.")
    flags.DEFINE_integer(
        "max_restarts",
        10,
        "multiworker: how often a process begins again, from the last checkpoint, after another "
        "one was lost; then, or with 0, it ends.",
    )
    flags.DEFINE_bool("use_tpu", False, "Run on the TPU named by --tpu_name.")
    flags.DEFINE_string(
        "tpu_name",
        None,
        "The TPU: local, that of this machine; or the name or grpc://address of another machine's. "
        "This process reads for it, batch by batch, so local is faster.",
    )
    flags.DEFINE_string("tpu", None, "The same as --use_tpu --tpu_name=TPU.")
    flags.DEFINE_string("tpu_zone", None, "The zone of a TPU that is given by name.")
    flags.DEFINE_string("gcp_project", None, "The cloud project of a TPU that is given by name.")
    flags.DEFINE_string("master", None, "Accepted for the original's commands; has no effect.")
    flags.DEFINE_integer("num_tpu_cores", 8, "Accepted for the original's commands; no effect.")


def begin_with(*, is_training: bool) -> str:
    """The path of the model that a fine-tuning script begins with.

    Training begins with --init_checkpoint, or goes on in --output_dir. Without training it is the
    model of --output_dir if there is one.
    """
    values = flags.FLAGS
    if is_training:
        return values.init_checkpoint or values.output_dir
    if tf1.has_checkpoints(values.output_dir):
        if values.init_checkpoint:
            logging.warning(
                "Using the model in %s, not --init_checkpoint=%s; for that one give another "
                "--output_dir.",
                values.output_dir,
                values.init_checkpoint,
            )
        return values.output_dir
    return values.init_checkpoint or values.output_dir


def open_pretrained() -> PretrainedModel:
    """The model of `begin_with`, with configuration and tokenizer as the flags say or it does.

    Raises:
      InputError: it cannot be read, or something of it does not fit the flags.
    """
    values = flags.FLAGS
    source = open_weights(begin_with(is_training=values.do_train))
    config = config_of(source, values.bert_config_file)
    config.check_sequence_length(values.max_seq_length)
    tokenizer = tokenizer_of(source, config, values.vocab_file, given_case())
    return PretrainedModel(source, config, tokenizer)


def make_strategy() -> tf.distribute.Strategy:
    """What the flags of `define_devices` say to run on. On a TPU it turns --bucket_by_length off.

    Raises:
      InputError: it is not to be had, flags contradict others, or a path is local here and the TPU
        is another machine's.
    """
    values = flags.FLAGS
    name, tpu = values.strategy, values.tpu or values.tpu_name
    if values.use_tpu or values.tpu or name == "tpu":
        if name not in ("auto", "tpu"):
            raise InputError(
                received=f"--strategy={name} with {'--use_tpu' if values.use_tpu else '--tpu'}",
                expected="auto or tpu, to run on a TPU",
                remedy="leave out one of the two",
            )
        check_tpu_paths(tpu)
        take_one_length()
        name = "tpu"
    return distribution.make_strategy(
        name,
        tpu=tpu,
        tpu_zone=values.tpu_zone,
        gcp_project=values.gcp_project,
        num_cpu_devices=values.num_cpu_devices,
    )


# What a run reads again and again or leaves behind.
_PATHS_OF_TPU = ("output_dir", "export_dir", "input_file", "eval_input_file", "init_checkpoint")


def check_tpu_paths(tpu: str | None) -> None:
    """Refuses local paths for a TPU of another machine, before anything is connected.

    Raises:
      InputError: naming the first flag with such a path.
    """
    if tpu == "local":
        return
    for name in _PATHS_OF_TPU:
        value = flags.FLAGS[name].value if name in flags.FLAGS else None
        for path in (value or "").split(","):
            if path and not path.startswith("gs://"):
                raise InputError(
                    received=f"--{name}={path} with the TPU {tpu or '(none named)'}",
                    expected="a path that begins with gs://: the TPU is of another machine. A TPU "
                    "worker cannot read a local path, nor can who goes on with the run elsewhere",
                    remedy=f"copy it to a bucket and give --{name}=gs://..., or run on the TPU "
                    "virtual machine itself with --tpu=local",
                )


def take_one_length() -> None:
    """Turns --bucket_by_length off: a TPU's program is for batches of one shape."""
    name = "bucket_by_length"
    if name in flags.FLAGS and flags.FLAGS[name].value:
        logging.info("--no%s: on a TPU all batches are of --max_seq_length.", name)
        flags.FLAGS[name].value = False


INFINITY = float("inf")
_LIMITS = {  # of flags of any script: the least value, and what they are below
    "train_batch_size": (1, INFINITY),
    "eval_batch_size": (1, INFINITY),
    "predict_batch_size": (1, INFINITY),
    "batch_size": (1, INFINITY),
    "num_train_steps": (1, INFINITY),
    "num_warmup_steps": (0, INFINITY),
    "num_train_epochs": (0.0, INFINITY),
    "warmup_proportion": (0.0, 1.0),
    "max_eval_steps": (1, INFINITY),
    "eval_steps": (0, INFINITY),
    "early_stopping": (0, INFINITY),
    "num_trials": (1, INFINITY),
    "n_best_size": (1, INFINITY),
    "max_answer_length": (1, INFINITY),
    "null_score_diff_threshold": (-INFINITY, INFINITY),
    "top_k": (1, INFINITY),
    "num_choices": (1, INFINITY),
    "log_steps": (1, INFINITY),
    "save_checkpoints_steps": (1, INFINITY),
    "keep_checkpoint_max": (0, INFINITY),
    "iterations_per_loop": (1, INFINITY),
    "num_cpu_devices": (1, INFINITY),
    "gradient_accumulation_steps": (1, INFINITY),
    "max_restarts": (0, INFINITY),
    "end_learning_rate": (0.0, INFINITY),
    "seed": (0, 2**32),
}


def check_limits() -> None:
    """Refuses numbers that make no sense, before anything is read.

    Raises:
      InputError: naming the flag.
    """
    for name, (least, most) in _LIMITS.items():
        value = flags.FLAGS[name].value if name in flags.FLAGS else None
        if value is not None and not least <= value < most:  # nor NaN
            raise InputError(
                received=f"--{name}={value}",
                expected=f"{least} or more, below {most}",
                remedy=f"correct --{name}",
            )
    values = flags.FLAGS.flag_values_dict()
    if (rates := values.get("learning_rate")) is not None:
        parse_learning_rates([str(rates)] if isinstance(rates, float) else rates)
    if not 0 < (decay := values.get("layerwise_lr_decay", 1.0)) <= 1:
        raise InputError(
            received=f"--layerwise_lr_decay={decay}",
            expected="above 0, at most 1",
            remedy="correct it; 0.9 is usual, and 1 gives every layer the same rate",
        )


def check_batch_sizes(strategy: tf.distribute.Strategy) -> None:
    """Refuses batches that devices cannot share where a result hangs on them; enlarges others."""
    replicas, values = strategy.num_replicas_in_sync, flags.FLAGS
    if values.do_train:
        size = values.train_batch_size
        make_step_config().check_batch_size(size, replicas, name="--train_batch_size")
    if "max_eval_steps" in values and values.do_eval:  # so many batches are evaluated
        StepConfig().check_batch_size(values.eval_batch_size, replicas, name="--eval_batch_size")
    for name in ("eval_batch_size", "predict_batch_size"):
        if name in values and (rest := values[name].value % replicas):
            values[name].value += replicas - rest
            size = values[name].value
            logging.info("--%s is taken as %d, for %d devices.", name, size, replicas)


def make_batching(config: BertConfig) -> BatchingConfig:
    """How records become batches, by the flags of `define_fine_tuning`."""
    values = flags.FLAGS
    return BatchingConfig(
        vocab_size=config.vocab_size,
        max_seq_length=values.max_seq_length,
        bucket_by_length=values.bucket_by_length,
        legacy_shuffle=values.legacy_shuffle,
    )


def make_step_config() -> StepConfig:
    """How steps are computed, by the flags of `define_training` and `define_devices`."""
    names = [field.name for field in dataclasses.fields(StepConfig)]
    return StepConfig(**{name: flags.FLAGS[name].value for name in names})


def make_intervals(*, eval_steps: int) -> Intervals:
    """How often training stops to log, save and evaluate, by the flags of `define_training`."""
    values = flags.FLAGS
    return Intervals(
        iterations_per_loop=values.iterations_per_loop,
        log_steps=values.log_steps,
        save_checkpoints_steps=values.save_checkpoints_steps,
        eval_steps=eval_steps,
    )
