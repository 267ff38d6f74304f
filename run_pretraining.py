"""Pre-trains BERT: TFRecords -> masked-LM and next-sentence loss -> checkpoints.

    python run_pretraining.py --input_file=/data/*.tfrecord --output_dir=/models/mine \\
        --bert_config_file=bert_config.json --do_train --do_eval

The original's flags keep their names, defaults and meaning. The same command resumes a run that was
stopped, from its last checkpoint, and ends as if it had never been stopped.
"""

from collections.abc import Sequence

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.cli import model_flags
from bert_tf.cli.flags import FLAGS


def define_flags() -> None:
    """The flags of this script and those of every training."""
    model_flags.define_run(model_flags.Pretraining)


def check_flags(words: Sequence[str]) -> None:
    """Refuses flags that lack others, before anything is loaded."""
    shared_flags.refuse_words(words)
    model_flags.require_one_of("do_train", "do_eval")
    shared_flags.require("export_dir", "vocab_file")


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

import contextlib
import functools
import math
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import companions, loading, tf1
from bert_tf.checkpoints.companions import Companions
from bert_tf.cli import from_flags
from bert_tf.config import BertConfig, Intervals
from bert_tf.data import shards
from bert_tf.data.batches import Batches, SequentialSampler, ShuffledSampler
from bert_tf.data.records import pretraining_record
from bert_tf.errors import InputError
from bert_tf.files import locked
from bert_tf.heads import head_named
from bert_tf.heads.pretraining import Pretraining
from bert_tf.training import optimization
from bert_tf.training.trainer import Trainer, write_eval_results, write_final_evaluation


def main(_: Sequence[str]) -> None:
    """Flags -> model, data -> trainer -> first weights -> train -> evaluate -> export."""
    strategy = from_flags.make_strategy()
    # Evaluating alone writes one file; a training may go on meanwhile.
    is_run = FLAGS.do_train or FLAGS.export_dir
    with locked(FLAGS.output_dir, folder=True) if is_run else contextlib.nullcontext():
        FLAGS.init_checkpoint = loading.pinned(FLAGS.init_checkpoint, FLAGS.output_dir)
        model = read_model()
        batches = make_batches(model) if FLAGS.do_train else None
        eval_batches = make_eval_batches(model) if FLAGS.do_eval else None
        folder = tf1.CheckpointFolder(FLAGS.output_dir, keep_max=FLAGS.keep_checkpoint_max)
        trainer = make_trainer(model, strategy)
        model = load_first_weights(trainer, folder, model)
        # Cached: the last evaluation of training is that of --do_eval.
        evaluate = functools.cache(lambda _: trainer.evaluate(eval_batches))
        if FLAGS.do_train:
            trainer.train(
                batches,
                num_train_steps=min(FLAGS.stop_at_step or math.inf, FLAGS.num_train_steps),
                folder=folder,
                intervals=from_flags.of_flags(Intervals),
                run_settings=run_settings_of(batches, model.config),
                on_begin=lambda: model.write(folder.path),
                evaluate=evaluate,
            )
        if FLAGS.do_eval:
            step = trainer.restore(folder, {})
            results = {"global_step": step, **evaluate(step)}
            write_eval_results(FLAGS.output_dir, results)
            write_final_evaluation(FLAGS.output_dir, results)
        if FLAGS.export_dir:
            source = loading.open_weights(folder.latest() or FLAGS.init_checkpoint)
            pretrained = loading.PretrainedModel(source, model.config, model.tokenizer)
            from_flags.export(pretrained, task="fill_mask", max_seq_length=FLAGS.max_seq_length)
        if is_run:
            from_flags.write_record()
    logging.info("Wrote %s", FLAGS.output_dir)


# ---------------------------------------------------------------------------- model and data


def read_model() -> Companions:
    """The configuration and, as flags and data say, what belongs to the model."""
    config, vocab_file = config_and_vocabulary()
    train = FLAGS.do_train or not FLAGS.eval_input_file
    patterns = (FLAGS.input_file if train else "", FLAGS.do_eval and FLAGS.eval_input_file)
    paths = [path for pattern in filter(None, patterns) for path in shards.record_paths(pattern)]
    model = companions.of_data(
        paths,
        config,
        vocab_file=vocab_file,
        do_lower_case=FLAGS.do_lower_case,
        output_dir=FLAGS.output_dir,
        is_exported=bool(FLAGS.export_dir),
    )
    for name in ("max_seq_length", "max_predictions_per_seq") if model.data else ():
        if not FLAGS[name].present:
            FLAGS[name].value = getattr(model.data, name)
    config.check_sequence_length(FLAGS.max_seq_length)
    architecture, length = head(config).architecture, FLAGS.max_seq_length
    return model.with_facts(architecture=architecture, max_seq_length=length)


def config_and_vocabulary() -> tuple[BertConfig, str | None]:
    """Those of the flags; without --bert_config_file those of the model of --init_checkpoint."""
    if FLAGS.bert_config_file:
        return BertConfig.from_json_file(FLAGS.bert_config_file), FLAGS.vocab_file
    if not FLAGS.init_checkpoint:
        remedy = "add --bert_config_file, or --init_checkpoint with a model that has such a file"
        raise InputError("no --bert_config_file", "the sizes of the model", remedy)
    weights = loading.open_weights(FLAGS.init_checkpoint)
    return loading.config_of(weights), FLAGS.vocab_file or weights.vocab_file


def head(config: BertConfig) -> Pretraining:
    """What is pre-trained."""
    is_word_by_word = FLAGS.task == "pretraining" and config.is_causal
    found = head_named("fill_mask" if is_word_by_word else FLAGS.task)
    if not isinstance(found, Pretraining):
        expected = "pretraining, or a head of your own that derives from it"
        raise InputError(f"--task={FLAGS.task}", expected, "leave out --task")
    return found


def open_files(patterns: str, model: Companions) -> shards.RecordFiles:
    """The record files, whose first records are of this model's sizes."""
    record = pretraining_record(
        max_seq_length=FLAGS.max_seq_length,
        max_predictions_per_seq=FLAGS.max_predictions_per_seq,
        vocab_size=model.config.vocab_size,
        type_vocab_size=model.config.type_vocab_size,
        next_sentence="next_sentence" in head(model.config).terms,
        packed_with=model.data and model.data.packed_with,
    )
    return shards.RecordFiles(patterns, record, keep_indexes=True)


def make_batches(model: Companions) -> Batches:
    """--input_file, every record once an epoch, shuffled, also if the batch size has changed.

    A run of 8 records a step that goes on after step 50 with 16 has read 400 records, as if there
    had been 25 steps: its offset is -400, and the first size orders the records. With other records
    than before the offset is 0, as if all steps had been made with these.
    """
    files, size = open_files(FLAGS.input_file, model), FLAGS.train_batch_size
    latest, first_size, offset = tf1.CheckpointFolder(FLAGS.output_dir).latest(), size, 0
    saved = tf1.CheckpointReader(latest).run_settings() if latest else {}
    if saved.get("train_records") == files.fingerprint():
        last_size = saved["train_batch_size"]
        first_size, offset = saved.get("data_order", (last_size, 0))
        offset += tf1.step_of(latest) * (last_size - size)
    order = ShuffledSampler(files.block_records, batch_size=first_size, seed=FLAGS.seed)
    return Batches(files, order, batch_size=size, offset=offset)


def make_eval_batches(model: Companions) -> Batches:
    """--eval_input_file once, or --input_file repeated as in the original."""
    patterns = FLAGS.eval_input_file or FLAGS.input_file
    files, size = open_files(patterns, model), FLAGS.eval_batch_size
    num_examples = FLAGS.max_eval_steps * size
    if FLAGS.eval_input_file:
        num_examples = min(len(files), num_examples)
    logging.info("Evaluating on %d examples, of %d in %s", num_examples, len(files), patterns)
    order = SequentialSampler(len(files))
    return Batches(files, order, batch_size=size, num_examples=num_examples)


# ---------------------------------------------------------------------------- training


def make_trainer(model: Companions, strategy: tf.distribute.Strategy) -> Trainer:
    """Model, loss and optimizer on the devices."""
    schedule, objective = from_flags.of_flags(optimization.Schedule), head(model.config)
    num_sequences = model.data.sequences_per_record if model.data else 1
    return Trainer(
        lambda: objective.model(model.config, with_losses=True, num_sequences=num_sequences),
        objective,
        optimization.CLASSES[FLAGS.optimizer](schedule, bias_correction=FLAGS.bias_correction),
        strategy=strategy,
        seed=FLAGS.seed,
        step_config=from_flags.step_config(),
    )


def load_first_weights(
    trainer: Trainer, folder: tf1.CheckpointFolder, model: Companions
) -> Companions:
    """Loads --init_checkpoint, unless the run has a checkpoint of its own to resume from.

    Returns:
      The model, with the origin of these weights.
    """
    given = FLAGS.init_checkpoint
    source = companions.first_weights(folder, given, is_trained=FLAGS.do_train)
    if source is None:
        return model
    # Before the files that belong to another model are overwritten.
    companions.check_companions(source, model, FLAGS.bert_config_file)
    if not folder.latest():  # else `Trainer.restore` loads it, with the moments
        logging.info("%s", loading.load_weights(trainer.model, source))
    return model.with_facts(origin=source.metadata.origin)


def run_settings_of(batches: Batches, config: BertConfig) -> dict[str, Any]:
    """What decides the result of the run; recorded in its checkpoints."""
    settings = {"num_records": batches.num_records, "train_records": batches.fingerprint()}
    order = batches.sampler.batch_size, batches.offset
    if order != (FLAGS.train_batch_size, 0):
        settings["data_order"] = order
    return from_flags.all_run_settings(config) | settings


if __name__ == "__main__":
    cli.run(main)
