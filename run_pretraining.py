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
from bert_tf.cli.flags import ABOVE_0, FLAGS, LONGEST, YES_OR_NO, Count, Number, Path
from bert_tf.errors import InputError


class PretrainingFlags:
    """The flags of this script.

    Attributes:
      bert_config_file: The bert_config.json of the model.
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
      masked_lm_only: Train without the next-sentence task. Causal models never have it.
      stop_at_step: End before --num_train_steps, at the learning rate of this step: the first of
        two phases.
      do_eval: Evaluate; after training, if both.
      eval_batch_size: Examples of an evaluation step, all devices together.
      max_eval_steps: Most batches of an evaluation.
      eval_steps: Also evaluate every so many steps of training; 0: no.
    """

    _recorded = (
        "init_checkpoint max_seq_length max_predictions_per_seq learning_rate num_train_steps "
        "num_warmup_steps masked_lm_only"
    )
    _most_used = (
        "input_file bert_config_file vocab_file output_dir do_train do_eval num_train_steps"
    )
    bert_config_file = Path(required=True)
    input_file = Path(required=True)
    eval_input_file = Path()
    vocab_file = Path()
    do_lower_case = YES_OR_NO
    init_checkpoint = Path()
    max_seq_length = Count(128, most=LONGEST)
    max_predictions_per_seq = Count(20, most=LONGEST)
    learning_rate = Number(5e-5, ABOVE_0)
    num_train_steps = 100000
    num_warmup_steps = Count(10000, 0)
    masked_lm_only = False
    stop_at_step = Count(None)
    do_eval = False
    eval_batch_size = 8
    max_eval_steps = 100
    eval_steps = Count(0, 0)


def define_flags() -> None:
    """The flags of this script and those of every training."""
    model_flags.define_run(PretrainingFlags)


def check_flags(words: Sequence[str]) -> None:
    """Refuses flags that contradict each other, before anything is loaded."""
    shared_flags.refuse_words(words)
    model_flags.require_one_of("do_train", "do_eval")
    shared_flags.require("eval_steps", "do_train", "do_eval")
    shared_flags.require("stop_at_step", "do_train")
    if (FLAGS.stop_at_step or 0) > FLAGS.num_train_steps:
        expected = f"at most --num_train_steps={FLAGS.num_train_steps}"
        raise InputError(f"--stop_at_step={FLAGS.stop_at_step}", expected, "correct one of the two")
    shared_flags.require("export_dir", "vocab_file")


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

import contextlib
import dataclasses
import functools
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import companions, loading, metadata, tf1
from bert_tf.cli import from_flags
from bert_tf.config import BertConfig, Intervals
from bert_tf.data import shards
from bert_tf.data.batches import Batches, SequentialSampler, ShuffledSampler
from bert_tf.data.records import DataDescription, pretraining_record
from bert_tf.files import locked, paths_in
from bert_tf.heads.pretraining import FillMask, NextToken, Pretraining
from bert_tf.terminal import log_end, number_of
from bert_tf.tokenization.wordpiece import FullTokenizer
from bert_tf.training import optimization
from bert_tf.training.trainer import Trainer, write_eval_results, write_final_evaluation

SIZES = ("max_seq_length", "max_predictions_per_seq")  # of a record
# Weights that a run has not left, which it would not begin with.
_MODEL = r"^(?!model\.ckpt-\d+\.index).*\.(index|keras|h5|safetensors|bin)$"


class Given(NamedTuple):
    """The model and the data of the flags, checked against each other."""

    config: BertConfig
    facts: metadata.ModelMetadata
    tokenizer: FullTokenizer | None
    data: DataDescription | None
    batches: Batches | None  # to train on
    eval_batches: Batches | None


def main(_: Sequence[str]) -> None:
    """Flags -> config -> data -> trainer -> first weights -> train -> evaluate -> export."""
    strategy = from_flags.make_strategy()
    # Evaluating alone writes one file; a training may go on meanwhile.
    is_run = FLAGS.do_train or FLAGS.export_dir
    with locked(FLAGS.output_dir, folder=True) if is_run else contextlib.nullcontext():
        FLAGS.init_checkpoint = loading.pinned(FLAGS.init_checkpoint, FLAGS.output_dir)
        given = read_given()
        folder = tf1.CheckpointFolder(FLAGS.output_dir, keep_max=FLAGS.keep_checkpoint_max)
        trainer = make_trainer(given, strategy)
        given = load_first_weights(trainer, folder, given)
        # Cached: the last one of training need not be made again.
        evaluate = functools.cache(lambda _: trainer.evaluate(given.eval_batches))
        if FLAGS.do_train:
            trainer.train(
                given.batches,
                num_train_steps=FLAGS.stop_at_step or FLAGS.num_train_steps,
                folder=folder,
                intervals=from_flags.of_flags(Intervals),
                run_settings=run_settings_of(given),
                on_begin=lambda: write_files(folder.path, given),
                evaluate=evaluate,
            )
            if FLAGS.vocab_file and metadata.read_model_files(folder.path)["pieces"] is None:
                write_files(folder.path, given)  # the run had finished without a vocabulary
        if FLAGS.do_eval:
            step = trainer.restore(folder, {})
            results = {"global_step": step, **evaluate(step)}
            write_eval_results(FLAGS.output_dir, results)
            write_final_evaluation(FLAGS.output_dir, results)
        if FLAGS.export_dir:
            source = loading.open_weights(folder.latest() or FLAGS.init_checkpoint)
            model = loading.PretrainedModel(source, given.config, given.tokenizer)
            from_flags.export(model, task="fill_mask", max_seq_length=FLAGS.max_seq_length)
    results = f"Wrote {FLAGS.output_dir}"
    if given.tokenizer:
        model = FLAGS.output_dir if folder.latest() else FLAGS.init_checkpoint
        log_end(results, "fill-mask", "A [MASK].", init_checkpoint=model)
    else:
        log_end(results, "plot", output_dir=FLAGS.output_dir, picture="curves.png")


# ---------------------------------------------------------------------------- config, tokenizer


def read_given() -> Given:
    """Reads what the flags name."""
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    train = FLAGS.do_train or not FLAGS.eval_input_file
    patterns = (FLAGS.input_file if train else "", FLAGS.do_eval and FLAGS.eval_input_file)
    paths = [path for pattern in filter(None, patterns) for path in shards.record_paths(pattern)]
    data, undescribed = companions.describe_data(
        paths, config, vocab_file=FLAGS.vocab_file, output_dir=FLAGS.output_dir
    )
    for name in SIZES if data else ():
        if not FLAGS[name].present:
            FLAGS[name].value = getattr(data, name)
    config.check_sequence_length(FLAGS.max_seq_length)
    case = companions.case_of_data(
        data,
        undescribed,
        given=FLAGS.do_lower_case,
        output_dir=FLAGS.output_dir,
        is_needed=bool(FLAGS.export_dir),
        has_vocabulary=bool(FLAGS.vocab_file),
    )
    facts = metadata.ModelMetadata(
        do_lower_case=case,
        strip_accents=data and data.strip_accents,
        never_split=(data and data.never_split) or None,
        architecture=head(config).architecture,
        max_seq_length=FLAGS.max_seq_length,
    )
    tokenizer = None
    if FLAGS.vocab_file:
        tokenizer = companions.tokenizer_of_data(FLAGS.vocab_file, config, facts)
    batches = make_batches(config, data) if FLAGS.do_train else None
    eval_batches = make_eval_batches(config, data) if FLAGS.do_eval else None
    return Given(config, facts, tokenizer, data, batches, eval_batches)


# ---------------------------------------------------------------------------- data


def open_files(
    patterns: str, config: BertConfig, data: DataDescription | None
) -> shards.RecordFiles:
    """The record files, checked against flags and model."""
    sizes = {name: FLAGS[name].value for name in SIZES}
    if data and data.pack:
        for name, value in sizes.items():  # those of a packed record do not show them
            if (own := getattr(data, name)) != value:
                received = f"--{name}={value} with packed data of {own}"
                raise InputError(received, "what the data were made with", f"use --{name}={own}")
    sizes |= {"vocab_size": config.vocab_size, "type_vocab_size": config.type_vocab_size}
    next_sentence = "next_sentence" in head(config).terms
    record = pretraining_record(
        **sizes, next_sentence=next_sentence, packed_with=data and data.packed_with
    )
    files = shards.RecordFiles(patterns, record, keep_indexes=True)
    num_files = number_of(len(files.paths), "files")
    logging.info("%s: %s, %s", patterns, num_files, number_of(len(files), "records"))
    return files


def make_batches(config: BertConfig, data: DataDescription | None) -> Batches:
    """--input_file, every record once an epoch, shuffled, also if the batch size has changed."""
    files = open_files(FLAGS.input_file, config, data)
    first_size, offset = data_order(files.fingerprint())
    order = ShuffledSampler(files.block_records, batch_size=first_size, seed=FLAGS.seed)
    return Batches(files, order, batch_size=FLAGS.train_batch_size, offset=offset)


def data_order(records: int) -> tuple[int, int]:
    """The batch size that the run began these records with, which orders them; and their offset.

    A run of 8 records a step that goes on after step 50 with 16 has read 400 records, as if there
    had been 25 steps: the offset is -400. With other records than before the offset is 0, as if all
    steps had been made with these.
    """
    size, latest = FLAGS.train_batch_size, tf1.CheckpointFolder(FLAGS.output_dir).latest()
    saved = tf1.CheckpointReader(latest).run_settings() if latest else {}
    if saved.get("train_records") != records:
        return size, 0
    last_size = saved["train_batch_size"]
    first_size, offset = saved.get("data_order", (last_size, 0))
    return first_size, offset + tf1.step_of(latest) * (last_size - size)


def make_eval_batches(config: BertConfig, data: DataDescription | None) -> Batches:
    """--eval_input_file once, or --input_file repeated as in the original."""
    files = open_files(FLAGS.eval_input_file or FLAGS.input_file, config, data)
    size, num_examples = FLAGS.eval_batch_size, FLAGS.max_eval_steps * FLAGS.eval_batch_size
    if FLAGS.eval_input_file:
        if num_examples < len(files):
            says = "Evaluating on %d of %d batches (--max_eval_steps)."
            logging.info(says, FLAGS.max_eval_steps, -(-len(files) // size))
        num_examples = min(len(files), num_examples)
    else:
        logging.warning(
            "Evaluating on the training files, each example %.3g times; --eval_input_file names "
            "others, which are evaluated once.",
            num_examples / len(files),
        )
    order = SequentialSampler(len(files))
    return Batches(files, order, batch_size=size, num_examples=num_examples)


# ---------------------------------------------------------------------------- trainer


def head(config: BertConfig) -> Pretraining:
    """What is pre-trained."""
    if config.is_causal:
        return NextToken()
    return FillMask() if FLAGS.masked_lm_only else Pretraining()


def make_trainer(given: Given, strategy: tf.distribute.Strategy) -> Trainer:
    """Model, loss and optimizer on the devices."""
    schedule, objective = from_flags.of_flags(optimization.Schedule), head(given.config)
    num_sequences = given.data.sequences_per_record if given.data else 1
    return Trainer(
        lambda: objective.model(given.config, with_losses=True, num_sequences=num_sequences),
        objective,
        optimization.CLASSES[FLAGS.optimizer](schedule, bias_correction=FLAGS.bias_correction),
        strategy=strategy,
        seed=FLAGS.seed,
        step_config=from_flags.step_config(),
    )


def load_first_weights(trainer: Trainer, folder: tf1.CheckpointFolder, given: Given) -> Given:
    """Loads --init_checkpoint, unless the run has a checkpoint of its own to resume from.

    Returns:
      What is given, with the origin of these weights.
    """
    latest = folder.latest()
    is_other = FLAGS.init_checkpoint not in (None, latest, folder.path)
    if latest and is_other and not FLAGS.do_train:
        text = "Evaluating %s, not --init_checkpoint=%s; for that one give another --output_dir."
        logging.warning(text, latest, FLAGS.init_checkpoint)
    if path := latest or FLAGS.init_checkpoint:
        source = loading.open_weights(path)
        # Refuses one of another model, before the files that belong to it are overwritten.
        companions.check_companions(
            source,
            bert_config_file=FLAGS.bert_config_file,
            facts=given.facts,
            tokenizer=given.tokenizer,
            data=given.data,
        )
        if not latest:  # else `Trainer.restore` loads it, with the moments
            logging.info("%s", loading.load_weights(trainer.model, source))
        facts = dataclasses.replace(given.facts, origin=source.metadata.origin)
        return given._replace(facts=facts)
    if not FLAGS.do_train:
        received = f"--do_eval alone, with no checkpoint in {folder.path}"
        remedy = "add --do_train, or name a checkpoint with --init_checkpoint"
        raise InputError(received, "a trained model to evaluate", remedy)
    if models := paths_in(folder.path, _MODEL):
        raise tf1.no_run(folder.path, models[0].removesuffix(tf1.INDEX))
    return given


def run_settings_of(given: Given) -> dict[str, Any]:
    """What decides the result of the run; recorded in its checkpoints."""
    batches = given.batches
    settings = {"num_records": batches.num_records, "train_records": batches.fingerprint()}
    order = batches.sampler.batch_size, batches.offset
    if order != (FLAGS.train_batch_size, 0):
        settings["data_order"] = order
    return from_flags.all_run_settings(given.config) | settings


def write_files(folder: str, given: Given) -> None:
    """Writes what belongs beside the checkpoints; with a vocabulary the folder is a whole model."""
    metadata.write_model_files(folder, given.config, given.tokenizer, given.facts)


if __name__ == "__main__":
    cli.run(main)
