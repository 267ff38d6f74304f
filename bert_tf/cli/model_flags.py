"""The flags that commands with a model share, each declared once: files, training, devices."""

from bert_tf.cli import flags as shared_flags
from bert_tf.cli.flags import ABOVE_0, FLAGS, LONGEST, SEED, Choice, Count, Number, Path
from bert_tf.config import OPTIMIZERS, PRECISIONS, STRATEGIES
from bert_tf.errors import InputError


class ModelFiles:
    """Files that belong to weights and may not lie beside them.

    Attributes:
      bert_config_file: The sizes of the model. Default: the configuration beside the weights.
      vocab_file: The word pieces. Default: the vocabulary beside the weights.
      do_lower_case: Lower-case the text and strip accents, as in the model's training. If not
        given: as its files say, else as its vocabulary shows.
    """

    _title = "Model"
    bert_config_file = Path()
    vocab_file = Path()
    do_lower_case = True


class Pretrained:
    """A trained model.

    Attributes:
      init_checkpoint: The model: a TF1 or TF2 checkpoint, a .keras file, the folder of a
        run or of a Hugging Face model, or hf:OWNER/NAME[@REVISION], fetched from their hub.
    """

    _title = "Model"
    init_checkpoint = Path()


class Run:
    """The folders of a run.

    Attributes:
      output_dir: The folder for checkpoints and results. The same command resumes a run in it.
      export_dir: At the end, export the model (the best checkpoint if the run keeps one, else the
        last) as a SavedModel that takes raw text, for TensorFlow Serving: the next version in this
        folder. See bert-tf export.
    """

    _title = "Model"
    output_dir = Path(required=True)
    export_dir = Path()


class Training:
    """The update, the intervals of the loop, and the random seed.

    Attributes:
      do_train: Train.
      train_batch_size: Examples of a step, all devices together.
      optimizer: adamw: Adam with decoupled weight decay, as the original. lamb: its layer-wise
        form.
      seed: Seeds weights, data order and dropout.
      bias_correction: Correct Adam's moments for their start at 0 (the original does not).
      save_checkpoints_steps: Steps between two checkpoints. Ctrl-C and SIGTERM save one more.
      keep_checkpoint_max: How many checkpoints are kept; 0 keeps all.
      iterations_per_loop: Most steps in a call of the compiled loop; between calls the host logs
        and saves.
      log_steps: Steps between two lines of progress, and points of the curves. If not given: 100,
        and fewer in a run of less than 2,000 steps, for some twenty points.
      gradient_accumulation_steps: Micro-batches of each device in a step: less memory, the same
        result.
      recompute: Compute encoder blocks again for their gradients: less memory.
    """

    _title = "Training"
    _acts = """
        do_train: train_batch_size optimizer bias_correction log_steps
        do_train: iterations_per_loop save_checkpoints_steps keep_checkpoint_max
        do_train: gradient_accumulation_steps recompute
        do_train dev_share: seed"""
    _recorded = "train_batch_size optimizer seed bias_correction"
    do_train = False
    train_batch_size = 32
    optimizer = Choice("adamw", OPTIMIZERS)
    seed = SEED
    bias_correction = False
    save_checkpoints_steps = 1000
    keep_checkpoint_max = Count(5, 0)
    iterations_per_loop = 1000
    log_steps = Count(None)
    gradient_accumulation_steps = 1
    recompute = False


class Pretraining:
    """How a model is pre-trained, as in the original's run_pretraining.

    Attributes:
      bert_config_file: The bert_config.json of the model. Default: that of --init_checkpoint, and
        then so --vocab_file.
      input_file: TFRecord files: paths or globs, separated by commas.
      eval_input_file: Files to evaluate on: --max_eval_steps batches at most, each example once.
        Without it: --input_file, as in the original.
      vocab_file: The vocabulary of the data; copied to --output_dir for later use.
      do_lower_case: Whether the text of the data was lower-cased; recorded with the model. Default:
        as info_*.json beside the data says.
      init_checkpoint: First weights: a TF1 or TF2 checkpoint, a .keras file, a Hugging Face folder,
        or hf:OWNER/NAME[@REVISION], which is fetched from their hub.
      max_seq_length: Tokens of a record, as the data were made. If not given: as info_*.json beside
        the data says.
      max_predictions_per_seq: Masked tokens of a record, likewise.
      learning_rate: The peak learning rate, above 0.
      num_train_steps: Steps in all; the decay ends there.
      num_warmup_steps: Steps in which the learning rate rises.
      task: The head that is trained: pretraining; fill_mask, without next sentences, as causal
        models always are; or one of your own (docs/own_head.md).
      stop_at_step: End before --num_train_steps, at the learning rate of this step: the first of
        two phases.
      do_eval: Evaluate; after training, if both.
      eval_batch_size: Examples of an evaluation step, all devices together.
      max_eval_steps: Most batches of an evaluation.
      eval_steps: Also evaluate every so many steps of training; 0: no.
    """

    _acts = """
        do_train: learning_rate num_train_steps num_warmup_steps stop_at_step eval_steps
        do_eval: eval_input_file eval_batch_size max_eval_steps eval_steps"""
    _recorded = (
        "init_checkpoint max_seq_length max_predictions_per_seq learning_rate num_train_steps "
        "num_warmup_steps task"
    )
    _most_used = (
        "input_file bert_config_file vocab_file output_dir do_train do_eval num_train_steps"
    )
    bert_config_file = Path()
    input_file = Path(required=True)
    eval_input_file = Path()
    vocab_file = Path()
    do_lower_case = shared_flags.YES_OR_NO
    init_checkpoint = Path()
    max_seq_length = Count(128, most=LONGEST)
    max_predictions_per_seq = Count(20, most=LONGEST)
    learning_rate = Number(5e-5, ABOVE_0)
    num_train_steps = 100000
    num_warmup_steps = Count(10000, 0)
    task = "pretraining"
    stop_at_step = Count(None)
    do_eval = False
    eval_batch_size = 8
    max_eval_steps = 100
    eval_steps = Count(0, 0)


class FineTuning:
    """How a pre-trained model is fine-tuned, as in the original's run_classifier and run_squad.

    Attributes:
      predict_batch_size: Examples of a prediction step, all devices together.
      max_seq_length: Most tokens of an example, or of a window where texts are read in windows;
        longer examples are cut.
      num_train_epochs: How often each example is trained on.
      warmup_proportion: The share of the steps in which the learning rate rises.
      bucket_by_length: Pack the examples of a batch into rows that have hardly any padding.
      layerwise_lr_decay: Above 0, at most 1 (0.9 is usual): a factor of the learning rate for each
        level, from the head (the rate itself) over pooler and layers to the embeddings.
      freeze: Patterns of the names of weights to leave as they are, as in
        bert/embeddings,bert/encoder/layer_[0-5]/; found anywhere in a name. Where it is all of the
        encoder, its dropout is off.
      eval_steps: Evaluate every so many steps, and keep the best checkpoint; 0: no.
      early_stopping: Stop after so many evaluations without a better one; 0: never.
    """

    _title = "Fine-tuning"
    _acts = """
        do_train: num_train_epochs warmup_proportion layerwise_lr_decay freeze eval_steps
        do_eval: eval_steps
        do_predict: predict_batch_size
        eval_steps: early_stopping"""
    _recorded = (
        "max_seq_length num_train_epochs warmup_proportion bucket_by_length layerwise_lr_decay "
        "freeze eval_steps early_stopping"
    )
    predict_batch_size = 8
    max_seq_length = Count(128, most=LONGEST)
    num_train_epochs = Number(3.0, ABOVE_0, 1e6)
    warmup_proportion = Number(0.1, 0.0, shared_flags.BELOW_1)
    bucket_by_length = True
    layerwise_lr_decay = Number(1.0, ABOVE_0, 1.0)
    freeze = ()
    eval_steps = Count(0, 0)
    early_stopping = Count(0, 0)


class Datasets:
    """Data from tensorflow-datasets.

    Attributes:
      tfds_name: A dataset of tensorflow-datasets, in place of files: squad or glue/mrpc, say. The
        environment variable TFDS_DATA_DIR says where its data are kept.
    """

    _title = "Data"
    tfds_name = None


class Devices:
    """What the model runs on.

    Attributes:
      strategy: auto: tpu with --use_tpu or --tpu, multiworker if the environment variable TF_CONFIG
        names several processes, mirrored with several GPUs, else one device.
      precision: What layers compute in. Weights, norms, soft-max and losses are always float32.
      tf32: In float32, let GPUs since Ampere multiply in TF32, with 10 of 23 bits, as TensorFlow
        does by default: faster, and 2e-3 from the original's vectors instead of 1e-6.
      xla: Compile steps with XLA.
      hang_seconds: Report a hang, with the stacks of all threads, after so many seconds without
        progress; three times as many where something is compiled; 0: never.
      sigterm_exit_code: The exit code after SIGTERM, once a checkpoint is saved; 0, say, where a
        platform takes others for failures.
      use_tpu: Run on the TPU named by --tpu_name.
      tpu_name: The TPU: local, that of this machine; or the name or grpc://address of another
        machine's. This process reads for it, batch by batch, so local is faster.
      tpu: The same as --use_tpu --tpu_name=TPU.
      tpu_zone: The zone of a TPU that is given by name.
      gcp_project: The cloud project of a TPU that is given by name.
    """

    _title = "Devices"
    _acts = """
        use_tpu tpu strategy=tpu: tpu_name tpu_zone gcp_project
        precision=float32: tf32"""
    _recorded = "precision"
    strategy = Choice("auto", STRATEGIES)
    precision = Choice("float32", PRECISIONS)
    tf32 = True
    xla = True
    hang_seconds = Count(600, 0)
    sigterm_exit_code = Count(143, 0, 255)
    use_tpu = False
    tpu_name = None
    tpu = None
    tpu_zone = None
    gcp_project = None


class WithoutEffect:
    """Flags of the original's commands that are accepted and ignored.

    Attributes:
      master: No effect.
      num_tpu_cores: No effect.
    """

    _title = "Accepted for the original's commands, without effect"
    _acts = """
        : master num_tpu_cores"""
    master = None
    num_tpu_cores = Count(8, 0)


def define_pretrained(*, required: bool = True) -> None:
    """A trained model to use: what its folder does not say, flags do."""
    shared_flags.define(Pretrained)
    shared_flags.define(ModelFiles)
    if required:
        shared_flags.mark_required("init_checkpoint")


def define_run(*further: type) -> None:
    """The flags of a script that trains."""
    for group in (Run, Training, *further, Devices, WithoutEffect):
        shared_flags.define(group)


def define_fine_tuning(*further: type, max_seq_length: int) -> None:
    """The flags of a script that fine-tunes a model."""
    define_pretrained(required=False)
    FLAGS["init_checkpoint"].help += " Without it: the model of --output_dir."
    define_run(FineTuning, Datasets, *further)
    FLAGS.set_default("max_seq_length", max_seq_length)


def require_one_of(*names: str) -> None:
    """Refuses a command that gives none of these flags."""
    if not any(FLAGS[name].value for name in names):
        received = "neither " + " nor ".join(f"--{name}" for name in names)
        raise InputError(received, "at least one of them", "add one of them")
