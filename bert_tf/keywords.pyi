"""The keywords behind `**options`, for editors and type checkers alone."""

from typing import TypedDict

class FileOptions(TypedDict, total=False):
    """Of `bert_tf.load`: what the files of a checkpoint do not say."""

    bert_config_file: str | None
    vocab_file: str | None
    do_lower_case: bool | None

class ModelOptions(TypedDict, total=False):
    """Of `Head.model`; with_losses and num_sequences are of pre-training."""

    num_classes: int
    num_choices: int
    with_losses: bool
    num_sequences: int

class OptimizerOptions(TypedDict, total=False):
    """Of `AdamWeightDecay`, without the learning rate."""

    weight_decay_rate: float
    beta_1: float
    beta_2: float
    epsilon: float
    clip_norm: float
    bias_correction: bool
    layerwise_lr_decay: float
    name: str | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    gradient_accumulation_steps: int | None
    loss_scale_factor: float | None

class PredictorOptions(FileOptions, total=False):
    """The fields of `ServingOptions`."""

    task: str | None
    labels: tuple[str, ...] | None
    pairs: bool | None
    num_choices: int | None
    max_seq_length: int | None
    doc_stride: int | None
    max_query_length: int | None
    n_best_size: int
    max_answer_length: int
    version_2_with_negative: bool | None
    null_score_diff_threshold: float | None
    precision: str
    top_k: int
