"""Pre-trains BERT: TFRecords -> masked-LM and next-sentence loss -> checkpoints.

    python run_pretraining.py --input_file=/data/*.tfrecord --output_dir=/models/mine \
        --bert_config_file=bert_config.json --do_train --do_eval

The flags of the original have its names, defaults and meaning. Run again with the same flags after
a stop, it goes on from the last checkpoint and ends as if it had never been stopped.
"""

from collections.abc import Sequence

from absl import flags, logging

import bert_tf
from bert_tf.checkpoints import loading as weights
from bert_tf.checkpoints import saving, tf1
from bert_tf.checkpoints.metadata import METADATA_FILE, ModelMetadata, read_model_files
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.data import records, samplers
from bert_tf.data.batches import RecordBatches
from bert_tf.data.shards import RecordFiles
from bert_tf.errors import InputError
from bert_tf.files import write_eval_results, write_text
from bert_tf.modeling import models
from bert_tf.modeling.losses import PretrainingObjective
from bert_tf.serving.export import export_run
from bert_tf.serving.options import ServingOptions
from bert_tf.tokenization.wordpiece import read_vocabulary
from bert_tf.training import optimization
from bert_tf.training import trainer as training

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this script, shared ones first."""
    shared_flags.define_model()
    shared_flags.define_training()
    shared_flags.define_devices()
    shared_flags.define_export()
    flags.DEFINE_string("input_file", None, "TFRecord files: paths or globs with commas between.")
    flags.DEFINE_string(
        "eval_input_file",
        None,
        "Files to evaluate on: --max_eval_steps batches at most, each example once. Without it: "
        "--input_file, as in the original.",
    )
    flags.DEFINE_string(
        "vocab_file", None, "The data's vocabulary; copied to output_dir for what comes after."
    )
    flags.DEFINE_bool(
        "do_lower_case",
        None,
        "The case of the data's text, noted beside the vocabulary. Default: as that tells.",
    )
    flags.DEFINE_integer("max_seq_length", 128, "Tokens of a record, as the data were made.")
    flags.DEFINE_integer(
        "max_predictions_per_seq", 20, "Masked tokens of a record, as the data were made."
    )
    flags.DEFINE_float("learning_rate", 5e-5, "The peak learning rate.")
    flags.DEFINE_bool("do_train", False, "Train.")
    flags.DEFINE_bool("do_eval", False, "Evaluate; after training, if both.")
    flags.DEFINE_integer("train_batch_size", 32, "Examples of a step, all devices together.")
    flags.DEFINE_integer("eval_batch_size", 8, "Examples of a step of evaluation, all devices.")
    flags.DEFINE_integer("num_train_steps", 100000, "Steps in all; the decay ends there.")
    flags.DEFINE_integer("num_warmup_steps", 10000, "Steps in which the learning rate rises.")
    flags.DEFINE_integer("max_eval_steps", 100, "Most batches of an evaluation.")
    flags.DEFINE_integer("eval_steps", 0, "Also evaluate every so many steps of training; 0: no.")
    flags.DEFINE_bool("masked_lm_only", False, "Train without the next-sentence task.")
    flags.mark_flag_as_required("input_file")


def main(argv: Sequence[str]) -> None:
    """Flags -> configuration -> batches -> model -> weights -> train -> evaluate -> export."""
    check_flags(argv[1:])
    strategy = shared_flags.make_strategy()
    shared_flags.check_batch_sizes(strategy)
    config = bert_tf.BertConfig.from_json_file(FLAGS.bert_config_file)
    config.check_sequence_length(FLAGS.max_seq_length)
    metadata = make_metadata()
    tokenizer = make_tokenizer(config, metadata)
    folder = tf1.CheckpointFolder(FLAGS.output_dir, keep_max=FLAGS.keep_checkpoint_max)
    train_batches = make_train_batches(config) if FLAGS.do_train else None
    eval_batches = make_eval_batches(config) if FLAGS.do_eval else None
    trainer = make_trainer(config, strategy)
    load_first_weights(trainer, folder)
    if FLAGS.do_train:
        trainer.train(
            train_batches,
            num_train_steps=FLAGS.num_train_steps,
            folder=folder,
            intervals=shared_flags.make_intervals(eval_steps=FLAGS.eval_steps),
            run_settings=make_run_settings(train_batches, config, strategy),
            on_begin=lambda: write_model_files(config, tokenizer, metadata, folder),
            evaluate=lambda _: trainer.evaluate(eval_batches),
        )
        if tokenizer and read_model_files(folder.path)["pieces"] is None:  # it had ended without
            write_model_files(config, tokenizer, metadata, folder)
    if FLAGS.do_eval:
        step = trainer.restore(folder, {})
        write_eval_results(
            FLAGS.output_dir, {"global_step": step, **trainer.evaluate(eval_batches)}
        )
    if FLAGS.export_dir:
        export(config, tokenizer, folder)


def check_flags(words: Sequence[str]) -> None:
    """Refuses what makes no sense, before anything is read."""
    shared_flags.refuse_words(words)
    if not FLAGS.do_train and not FLAGS.do_eval:
        raise InputError(
            received="neither --do_train nor --do_eval",
            expected="at least one of them",
            remedy="add --do_train, --do_eval, or both",
        )
    shared_flags.check_limits()
    if FLAGS.eval_steps and not (FLAGS.do_train and FLAGS.do_eval):
        raise InputError(
            received="--eval_steps without --do_train and --do_eval",
            expected="training, and an evaluation while it goes",
            remedy="add both, or leave out --eval_steps",
        )
    if FLAGS.export_dir and not FLAGS.vocab_file:
        raise InputError(
            received="--export_dir without --vocab_file",
            expected="the vocabulary that the exported model shall cut text with",
            remedy="add the --vocab_file that the data were made with",
        )


def make_metadata() -> ModelMetadata:
    """What belongs to the model beside its weights."""
    return ModelMetadata(
        do_lower_case=case_of_text(),
        architecture="BertForMaskedLM" if FLAGS.masked_lm_only else "BertForPreTraining",
        max_seq_length=FLAGS.max_seq_length,
    )


def case_of_text() -> bool | None:
    """The do_lower_case of the data: as the flag, the folder or the vocabulary tells; or None."""
    given = FLAGS.do_lower_case
    noted = ModelMetadata.from_json_file(f"{FLAGS.output_dir}/{METADATA_FILE}").do_lower_case
    if None not in (given, noted) and given != noted:
        raise InputError(
            received=f"do_lower_case {given} with {FLAGS.output_dir}, whose model has {noted}",
            expected="the case that the data were made with, the same as long as a run goes on",
            remedy="leave out the flag, or choose another --output_dir",
        )
    given = noted if given is None else given
    if not FLAGS.vocab_file:
        if FLAGS.do_lower_case is not None:
            raise InputError(
                received="--do_lower_case without --vocab_file",
                expected="the vocabulary, beside which the case is noted",
                remedy="add --vocab_file, or leave out --do_lower_case",
            )
        return given
    cased = weights.is_cased(read_vocabulary(FLAGS.vocab_file))
    if cased is not None and given is cased:
        kind = "with capital letters" if cased else "without one capital letter"
        raise InputError(
            received=f"do_lower_case {given} with {FLAGS.vocab_file}, a vocabulary {kind}",
            expected="the case and the vocabulary that the data were made with",
            remedy=f"use --{'no' if given else ''}do_lower_case, or give the data's --vocab_file",
        )
    if given is None and cased is None and FLAGS.export_dir:
        raise InputError(
            received=f"--export_dir with {FLAGS.vocab_file}, which does not tell the case of text",
            expected="the case that the data were made with: the exported model cuts text alike",
            remedy="add --do_lower_case or --nodo_lower_case",
        )
    return given if cased is None else not cased


def make_tokenizer(
    config: bert_tf.BertConfig, metadata: ModelMetadata
) -> bert_tf.FullTokenizer | None:
    """That of --vocab_file, which must be able to be the model's; None without one."""
    if not FLAGS.vocab_file:
        return None
    # Where the case is not known, no text is cut, and the tokenizer is its vocabulary alone.
    tokenizer = bert_tf.FullTokenizer(FLAGS.vocab_file, metadata.do_lower_case is not False)
    tokenizer.require_special_tokens("[CLS]", "[SEP]", "[MASK]")
    config.check_vocabulary_size(tokenizer.vocab_size, vocab_file=FLAGS.vocab_file)
    if FLAGS.export_dir:
        weights.check_spare_rows(tokenizer, config)
    return tokenizer


def open_files(patterns: str) -> RecordFiles:
    """The record files, checked against the flags."""
    record = records.pretraining_record(
        max_seq_length=FLAGS.max_seq_length,
        max_predictions_per_seq=FLAGS.max_predictions_per_seq,
        next_sentence=not FLAGS.masked_lm_only,
    )
    files = RecordFiles(patterns, record)
    logging.info("%s: %d files, %d records", patterns, len(files.paths), len(files))
    return files


def make_train_batches(config: bert_tf.BertConfig) -> RecordBatches:
    """Shuffled batches without end; every record once an epoch."""
    files = open_files(FLAGS.input_file)
    return RecordBatches(
        files,
        samplers.ShuffledSampler(len(files), seed=FLAGS.seed),
        batch_size=FLAGS.train_batch_size,
        vocab_size=config.vocab_size,
    )


def make_eval_batches(config: bert_tf.BertConfig) -> RecordBatches:
    """What is evaluated: --eval_input_file once, or --input_file repeated as in the original."""
    files = open_files(FLAGS.eval_input_file or FLAGS.input_file)
    most = FLAGS.max_eval_steps * FLAGS.eval_batch_size
    if FLAGS.eval_input_file:
        num_examples = min(len(files), most)
    else:
        num_examples = most
        logging.warning("Evaluating on the training files; --eval_input_file names others.")
    return RecordBatches(
        files,
        samplers.SequentialSampler(len(files)),
        batch_size=FLAGS.eval_batch_size,
        vocab_size=config.vocab_size,
        num_examples=num_examples,
    )


def make_trainer(config: bert_tf.BertConfig, strategy) -> training.Trainer:
    """Model, loss and optimizer on the devices."""
    optimizer = optimization.make_optimizer(
        FLAGS.optimizer,
        optimization.Schedule(
            learning_rate=FLAGS.learning_rate,
            num_train_steps=FLAGS.num_train_steps,
            num_warmup_steps=FLAGS.num_warmup_steps,
            end_learning_rate=FLAGS.end_learning_rate,
        ),
        bias_correction=FLAGS.bias_correction,
    )
    trainer = training.Trainer(
        lambda: models.pretraining_model(
            config, next_sentence=not FLAGS.masked_lm_only, with_losses=True
        ),
        PretrainingObjective(masked_lm_only=FLAGS.masked_lm_only),
        optimizer,
        strategy=strategy,
        seed=FLAGS.seed,
        step_config=shared_flags.make_step_config(),
    )
    logging.info("%d parameters", trainer.model.count_params())
    return trainer


def load_first_weights(trainer: training.Trainer, folder: tf1.CheckpointFolder) -> None:
    """Puts in --init_checkpoint, unless the run has a checkpoint of its own to go on from."""
    if latest := folder.latest():
        # Of another model? Seen before anything is written over the files that belong to it.
        bert_tf.load_checkpoint(trainer.model, latest)
    elif FLAGS.init_checkpoint:
        source = weights.open_weights(FLAGS.init_checkpoint)
        weights.config_of(source, FLAGS.bert_config_file)  # refuses one that does not belong to it
        logging.info("%s", bert_tf.load_checkpoint(trainer.model, source))
    elif not FLAGS.do_train:
        raise InputError(
            received=f"--do_eval alone, with no checkpoint in {folder.path}",
            expected="a trained model to evaluate",
            remedy="add --do_train, or name a checkpoint with --init_checkpoint",
        )


def write_model_files(
    config: bert_tf.BertConfig,
    tokenizer: bert_tf.FullTokenizer | None,
    metadata: ModelMetadata,
    folder: tf1.CheckpointFolder,
) -> None:
    """What belongs to the checkpoints, beside them; with a vocabulary it is a whole model."""
    if tokenizer is None:
        write_text(f"{folder.path}/bert_config.json", config.to_json_string())
    else:
        saving.write_model_files(folder.path, config, tokenizer, metadata)


def make_run_settings(batches: RecordBatches, config: bert_tf.BertConfig, strategy) -> dict:
    """What decides how the run ends, noted in its checkpoints."""
    names = (
        "seed",
        "train_batch_size",
        "max_seq_length",
        "max_predictions_per_seq",
        "masked_lm_only",
        "learning_rate",
        "num_train_steps",
        "num_warmup_steps",
        "end_learning_rate",
        "optimizer",
        "bias_correction",
        "init_checkpoint",
    )
    settings = {name: FLAGS[name].value for name in names}
    settings |= {"num_records": batches.num_records, "train_data": batches.fingerprint()}
    return (
        settings
        | shared_flags.make_step_config().run_settings(strategy.num_replicas_in_sync)
        | config.to_dict()
    )


def export(
    config: bert_tf.BertConfig,
    tokenizer: bert_tf.FullTokenizer,
    folder: tf1.CheckpointFolder,
) -> None:
    """The latest checkpoint as a SavedModel that guesses masked pieces."""
    export_run(
        FLAGS.output_dir,
        weights.open_weights(folder.latest() or FLAGS.init_checkpoint),
        config,
        tokenizer,
        FLAGS.export_dir,
        options=ServingOptions(task="fill_mask", max_seq_length=FLAGS.max_seq_length),
    )


if __name__ == "__main__":
    cli.parse(define_flags)
    cli.run(main)
