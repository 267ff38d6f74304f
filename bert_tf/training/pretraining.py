"""Pre-training: data -> model, plan and batches of a run -> trainer with initial weights.

`run_pretraining.py` calls these functions; the loop is in trainer.py. `Companions` are the parts of
a model beside its weights: configuration, vocabulary, facts.
"""

from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import companions, loading, tf1
from bert_tf.checkpoints.companions import Companions
from bert_tf.config import BertConfig
from bert_tf.data import shards
from bert_tf.data.batches import Batches, SequentialSampler, ShuffledSampler
from bert_tf.data.records import pretraining_record
from bert_tf.errors import InputError
from bert_tf.heads import head_named
from bert_tf.heads.pretraining import Pretraining
from bert_tf.options import resolved
from bert_tf.training import optimization
from bert_tf.training.options import (
    Intervals,
    PretrainedFrom,
    PretrainingData,
    PretrainingSchedule,
    StepConfig,
)
from bert_tf.training.plan import RunPlan
from bert_tf.training.trainer import Trainer


def pretraining_head(task: str, config: BertConfig) -> Pretraining:
    """The head of a --task; a causal model has no next sentences.

    Raises:
      InputError: it is no head of pre-training.
    """
    if task == "pretraining" and config.is_causal:
        task = "fill_mask"
    head = head_named(task)
    if not isinstance(head, Pretraining):
        expected = "pretraining, or a head of your own that derives from it"
        raise InputError(f"--task={task}", expected, "leave out --task")
    return head


# ---------------------------------------------------------------------------- model and data


def model_of_data(
    options: PretrainedFrom,
    data: PretrainingData,
    patterns: Sequence[str],
    *,
    output_dir: str,
    is_exported: bool,
) -> tuple[Companions, PretrainingData]:
    """The model that is pre-trained with data.

    Args:
      options: its configuration, vocabulary, case and initial weights.
      data: its records.
      patterns: the patterns of the files that are read.
      output_dir: the folder of the run, which may be resumed.
      is_exported: whether the run ends with an export, which tokenizes texts.

    Returns:
      The model, and `data` with the sizes of the records.

    Raises:
      InputError: data, vocabulary, case and configuration do not belong together.
    """
    config, vocab_file = companions.config_and_vocabulary(options, options.init_checkpoint)
    paths = []
    for pattern in patterns:
        paths += shards.record_paths(pattern)
    model = companions.of_data(
        paths,
        config,
        vocab_file=vocab_file,
        do_lower_case=options.do_lower_case,
        output_dir=output_dir,
        is_exported=is_exported,
    )
    data = resolved(
        data,
        max_seq_length=model.data and model.data.max_seq_length,
        max_predictions_per_seq=model.data and model.data.max_predictions_per_seq,
    )
    config.check_sequence_length(data.max_seq_length)
    architecture = pretraining_head(data.task, config).architecture
    return model.with_facts(architecture=architecture, max_seq_length=data.max_seq_length), data


def open_records(patterns: str, data: PretrainingData, model: Companions) -> shards.RecordFiles:
    """The record files of patterns, separated by commas.

    Raises:
      InputError: there are no such files, or their first records do not fit the model.
    """
    record = pretraining_record(
        max_seq_length=data.max_seq_length,
        max_predictions_per_seq=data.max_predictions_per_seq,
        vocab_size=model.config.vocab_size,
        type_vocab_size=model.config.type_vocab_size,
        next_sentence="next_sentence" in pretraining_head(data.task, model.config).terms,
        packed_with=model.data and model.data.packed_with,
    )
    return shards.RecordFiles(patterns, record, keep_indexes=True)


def plan_of(
    files: shards.RecordFiles,
    schedule: PretrainingSchedule,
    intervals: Intervals,
    *,
    output_dir: str,
    seed: int,
) -> RunPlan:
    """The plan of a run, which may be resumed with another batch size.

    If it is resumed with other records, it reads them as if all steps had been made with them.

    Args:
      files: the records.
      schedule: steps and batch size.
      intervals: steps between logging, saving and evaluation.
      output_dir: the folder of the run.
      seed: the seed of the order of the records.
    """
    plan = RunPlan(
        num_records=len(files),
        batch_size=schedule.train_batch_size,
        num_train_steps=schedule.num_train_steps,
        last_step=schedule.last_step,
        seed=seed,
        intervals=intervals,
    )
    latest = tf1.CheckpointFolder(output_dir).latest()
    saved = tf1.CheckpointReader(latest).run_settings() if latest else {}
    if saved.get("train_records") == files.fingerprint():
        plan = plan.resumed(tf1.step_of(latest), saved)
    return plan


def training_batches(files: shards.RecordFiles, plan: RunPlan) -> Batches:
    """The batches of a run: every record once in each epoch, shuffled."""
    order = ShuffledSampler(files.block_records, batch_size=plan.order_batch_size, seed=plan.seed)
    return Batches(files, order, batch_size=plan.batch_size, offset=plan.offset)


def evaluation_batches(data: PretrainingData, model: Companions) -> Batches:
    """The batches of an evaluation: --eval_input_file once, else --input_file repeatedly.

    The second is what the original does.
    """
    patterns = data.eval_input_file or data.input_file
    files = open_records(patterns, data, model)
    num_examples = data.max_eval_steps * data.eval_batch_size
    if data.eval_input_file:
        num_examples = min(len(files), num_examples)
    logging.info("Evaluating on %d examples, of %d in %s", num_examples, len(files), patterns)
    order = SequentialSampler(len(files))
    return Batches(files, order, batch_size=data.eval_batch_size, num_examples=num_examples)


# ---------------------------------------------------------------------------- training


def make_trainer(
    model: Companions,
    task: str,
    schedule: PretrainingSchedule,
    *,
    strategy: tf.distribute.Strategy,
    seed: int,
    step_config: StepConfig,
) -> Trainer:
    """The trainer, with model, loss and optimizer on the devices; arguments as for `Trainer`."""
    head = pretraining_head(task, model.config)
    rates = optimization.Schedule(
        learning_rate=schedule.learning_rate,
        num_train_steps=schedule.num_train_steps,
        num_warmup_steps=schedule.num_warmup_steps,
    )
    num_sequences = model.data.sequences_per_record if model.data else 1
    return Trainer(
        lambda: head.model(model.config, with_losses=True, num_sequences=num_sequences),
        head,
        optimization.optimizer_of(schedule, rates),
        strategy=strategy,
        seed=seed,
        step_config=step_config,
    )


def load_first_weights(
    trainer: Trainer,
    folder: tf1.CheckpointFolder,
    model: Companions,
    options: PretrainedFrom,
    *,
    is_trained: bool,
) -> Companions:
    """Loads the initial weights, unless the run has a checkpoint to resume from.

    Args:
      trainer: gets the weights in its model.
      folder: the folder of the run.
      model: the model of the data.
      options: name the initial weights, if any.
      is_trained: whether training follows.

    Returns:
      The model, with the origin of these weights.

    Raises:
      InputError: there are no weights and no training, or the weights are of another model.
    """
    source = companions.first_weights(folder, options.init_checkpoint, is_trained=is_trained)
    if source is None:
        return model
    # Before files of another model in the folder would be overwritten.
    pieces = model.tokenizer and model.tokenizer.pieces
    companions.refuse_other_model(folder, model.config, pieces, model.facts)
    companions.check_companions(source, model, options.bert_config_file)
    if not folder.latest():  # otherwise `Trainer.restore` loads the run's checkpoint, with moments
        logging.info("%s", loading.load_weights(trainer.model, source))
    return model.with_facts(origin=source.metadata.origin)


def restore_last(trainer: Trainer, folder: tf1.CheckpointFolder, options: PretrainedFrom) -> int:
    """Loads the last checkpoint of a run, if there is one; returns the step of the model."""
    if folder.latest():
        return trainer.restore(folder, {})
    return tf1.step_of(options.init_checkpoint or "")


def trained_model(
    folder: tf1.CheckpointFolder, model: Companions, options: PretrainedFrom
) -> loading.PretrainedModel:
    """The model of a run's last checkpoint; without one, of its initial weights."""
    source = loading.open_weights(folder.latest() or options.init_checkpoint)
    return loading.PretrainedModel(source, model.config, model.tokenizer)
