"""Pre-trains BERT: TFRecords -> masked-LM and next-sentence loss -> checkpoints.

    python run_pretraining.py --input_file=/data/*.tfrecord --output_dir=/models/mine \\
        --bert_config_file=bert_config.json --do_train --do_eval

The original's flags keep their names, defaults and meaning. The same command resumes a run that was
stopped, from its last checkpoint, and ends as if it had never been stopped.
"""

from collections.abc import Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.errors import InputError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this script, shared ones first."""
    flags.DEFINE_string("bert_config_file", None, "The bert_config.json of the model.")
    shared_flags.mark_required("bert_config_file")
    shared_flags.define_output_dir()
    shared_flags.define_training()
    shared_flags.define_devices()
    shared_flags.define_export_dir()
    flags.DEFINE_string("input_file", None, "TFRecord files: paths or globs, separated by commas.")
    shared_flags.mark_required("input_file")
    flags.DEFINE_string(
        "eval_input_file",
        None,
        "Files to evaluate on: --max_eval_steps batches at most, each example once. Without it: "
        "--input_file, as in the original.",
    )
    flags.DEFINE_string(
        "vocab_file", None, "The vocabulary of the data; copied to --output_dir for later use."
    )
    flags.DEFINE_bool(
        "do_lower_case",
        None,
        "Whether the text of the data was lower-cased; recorded with the model. Default: as "
        "info_*.json beside the data says.",
    )
    with shared_flags.recorded_in_checkpoints():
        flags.DEFINE_string(
            "init_checkpoint",
            None,
            "First weights: a TF1 or TF2 checkpoint, a .keras file, or a Hugging Face folder.",
        )
        for name, default, what in (
            ("max_seq_length", 128, "Tokens"),
            ("max_predictions_per_seq", 20, "Masked tokens"),
        ):
            text = f"{what} of a record, as the data were made."
            shared_flags.define_count(name, default, text, most=shared_flags.LONGEST)
        shared_flags.define_number("learning_rate", 5e-5, "The peak learning rate, above 0.")
        shared_flags.define_count("num_train_steps", 100000, "Steps in all; the decay ends there.")
        shared_flags.define_count(
            "num_warmup_steps", 10000, "Steps in which the learning rate rises.", least=0
        )
        flags.DEFINE_bool("masked_lm_only", False, "Train without the next-sentence task.")
    shared_flags.define_count(
        "stop_at_step",
        None,
        "End before --num_train_steps, at the learning rate of this step: the first of two phases.",
    )
    flags.DEFINE_bool("do_eval", False, "Evaluate; after training, if both.")
    shared_flags.define_count(
        "eval_batch_size", 8, "Examples of an evaluation step, all devices together."
    )
    shared_flags.define_count("max_eval_steps", 100, "Most batches of an evaluation.")
    shared_flags.define_count(
        "eval_steps", 0, "Also evaluate every so many steps of training; 0: no.", least=0
    )


def check_flags(words: Sequence[str]) -> None:
    """Refuses flags that contradict each other, before anything is loaded."""
    shared_flags.refuse_words(words)
    shared_flags.require_one_of("do_train", "do_eval")
    shared_flags.learning_rates()
    shared_flags.require("eval_steps", "do_train", "do_eval")
    shared_flags.require("stop_at_step", "do_train")
    if (FLAGS.stop_at_step or 0) > FLAGS.num_train_steps:
        raise InputError(
            f"--stop_at_step={FLAGS.stop_at_step} with --num_train_steps={FLAGS.num_train_steps}",
            "a step before the last one; --num_train_steps is the length of all phases together",
            "correct one of the two, or leave out --stop_at_step",
        )
    shared_flags.require(
        "export_dir", "vocab_file", remedy="add the --vocab_file that the data were made with"
    )


if __name__ == "__main__":
    cli.parse(define_flags, check_flags)

import contextlib

import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import loading, tf1
from bert_tf.checkpoints.metadata import (
    METADATA_FILE,
    VOCAB_FILE,
    ModelMetadata,
    Weights,
    read_model_files,
    write_model_files,
)
from bert_tf.cli import from_flags
from bert_tf.config import BertConfig
from bert_tf.data.batches import Batches, SequentialSampler, ShuffledSampler
from bert_tf.data.records import pretraining_record
from bert_tf.data.shards import (
    RecordFiles,
    common_description,
    record_paths,
    refuse_other_vocabulary,
)
from bert_tf.data.sidecars import DataDescription, description_path
from bert_tf.files import is_file, locked, write_eval_results
from bert_tf.heads.other_heads import FillMask, Pretraining
from bert_tf.terminal import number_of
from bert_tf.tokenization.wordpiece import FullTokenizer, refuted_case, vocabulary_sha256
from bert_tf.training import optimization
from bert_tf.training.trainer import Trainer, write_final_evaluation


def main(_: Sequence[str]) -> None:
    """Flags -> config -> data -> trainer -> first weights -> train -> evaluate -> export."""
    strategy = from_flags.make_strategy()
    # Evaluating alone writes one file; a training may go on meanwhile.
    is_run = FLAGS.do_train or FLAGS.export_dir
    with locked(FLAGS.output_dir, folder=True) if is_run else contextlib.nullcontext():
        config = BertConfig.from_json_file(FLAGS.bert_config_file)
        config.check_sequence_length(FLAGS.max_seq_length)
        data, undescribed = describe_data(config)
        metadata = make_metadata(data, undescribed)
        tokenizer = make_tokenizer(config, metadata)
        folder = tf1.CheckpointFolder(FLAGS.output_dir, keep_max=FLAGS.keep_checkpoint_max)
        if FLAGS.do_train:  # every record once an epoch, shuffled
            files = open_files(FLAGS.input_file, config)
            order = ShuffledSampler(
                files.block_records, batch_size=FLAGS.train_batch_size, seed=FLAGS.seed
            )
            batches = Batches(files, order, batch_size=FLAGS.train_batch_size)
        eval_batches = make_eval_batches(config) if FLAGS.do_eval else None
        trainer = make_trainer(config, strategy)

        def write_files() -> None:  # with a vocabulary the folder is a whole model
            write_model_files(folder.path, config, tokenizer, metadata)

        load_first_weights(trainer, folder, data, tokenizer, metadata)
        if FLAGS.do_train:
            trainer.train(
                batches,
                num_train_steps=FLAGS.stop_at_step or FLAGS.num_train_steps,
                folder=folder,
                intervals=from_flags.intervals(),
                run_settings={
                    **from_flags.all_run_settings(strategy, config),
                    "num_records": batches.num_records,
                    "train_records": batches.fingerprint(),
                },
                on_begin=write_files,
                evaluate=lambda _: trainer.evaluate(eval_batches),
            )
            if FLAGS.vocab_file and read_model_files(folder.path)["pieces"] is None:
                write_files()  # the run had finished without a vocabulary
        if FLAGS.do_eval:
            step = trainer.restore(folder, {})
            results = {"global_step": step, **trainer.evaluate(eval_batches)}
            write_eval_results(FLAGS.output_dir, results)
            write_final_evaluation(FLAGS.output_dir, results)
        if FLAGS.export_dir:
            source = loading.open_weights(folder.latest() or FLAGS.init_checkpoint)
            model = loading.PretrainedModel(source, config, tokenizer)
            from_flags.export(model, task="fill_mask", max_seq_length=FLAGS.max_seq_length)
    if tokenizer:
        from_flags.log_results("fill-mask", "A [MASK].", init_checkpoint=FLAGS.output_dir)
    else:
        from_flags.log_results("plot", output_dir=FLAGS.output_dir, picture="curves.png")


# ---------------------------------------------------------------------------- config, tokenizer


def make_metadata(data: DataDescription | None, undescribed: str | None) -> ModelMetadata:
    """The model's properties that its configuration and vocabulary do not hold."""
    return ModelMetadata(
        do_lower_case=case_of_data(data, undescribed),
        never_split=(data and data.never_split) or None,
        architecture=head().architecture,
        max_seq_length=FLAGS.max_seq_length,
    )


def case_of_data(data: DataDescription | None, undescribed: str | None) -> bool | None:
    """The do_lower_case of the data; None if it is unknown and the model gets no text.

    The vocabulary proves nothing: data of either case may be made with any. `data` describes the
    files that have a description; `undescribed` is one that has none.
    """
    recorded_file = f"{FLAGS.output_dir}/{METADATA_FILE}"
    sources = {
        "the flags": FLAGS.do_lower_case,
        "info_*.json of the data": data and data.do_lower_case,
        recorded_file: ModelMetadata.from_json_file(recorded_file).do_lower_case,
    }
    known = {source: case for source, case in sources.items() if case is not None}
    if len(set(known.values())) == 2:
        raise InputError(
            "do_lower_case " + ", ".join(f"{case} in {source}" for source, case in known.items()),
            "one case: that of the text that the data were made from",
            "leave out or correct the flag; for data of another case use another --output_dir",
        )
    if known and (undescribed is None or set(known) != {"info_*.json of the data"}):
        return next(iter(known.values()))
    # A run that began without knowing it may be resumed.
    if FLAGS.export_dir or (FLAGS.vocab_file and not is_file(recorded_file)):
        raise InputError(
            f"{undescribed}, without {description_path(undescribed)}",
            "that file, which says whether the text was lower-cased; new text must be as well",
            "copy the file too, or add --do_lower_case or --nodo_lower_case, as the data were made",
        )
    logging.warning(
        "No info_*.json says whether the text of %s was lower-cased, so the model will not record "
        "it: add --do_lower_case or --nodo_lower_case.",
        undescribed,
    )
    return None


def make_tokenizer(config: BertConfig, metadata: ModelMetadata) -> FullTokenizer | None:
    """The tokenizer of --vocab_file, which must fit the model; None without one."""
    if not FLAGS.vocab_file:
        return None
    # If the case is unknown no text is tokenized: only the vocabulary is used.
    lower, kept = metadata.do_lower_case is not False, metadata.never_split or ()
    tokenizer = FullTokenizer(FLAGS.vocab_file, lower, never_split=kept)
    tokenizer.require_special_tokens("[CLS]", "[SEP]", "[MASK]")
    if reason := refuted_case(FLAGS.vocab_file, tokenizer.vocab, metadata.do_lower_case):
        made = f"The data were made with do_lower_case {metadata.do_lower_case}"
        logging.warning("%s, but with %s: make them again if that is wrong.", made, reason)
    config.check_vocabulary_size(tokenizer.vocab_size, vocab_file=FLAGS.vocab_file)
    loading.check_spare_rows(tokenizer, config)
    return tokenizer


# ---------------------------------------------------------------------------- data


def describe_data(config: BertConfig) -> tuple[DataDescription | None, str | None]:
    """The description of all data, checked; and the first file that has none."""
    train = FLAGS.do_train or not FLAGS.eval_input_file
    patterns = (FLAGS.input_file if train else "", FLAGS.do_eval and FLAGS.eval_input_file)
    paths = [path for pattern in filter(None, patterns) for path in record_paths(pattern)]
    data, undescribed = common_description(paths)
    if data is not None:
        config.check_vocabulary_size(data.vocab_size, vocab_file=f"data of {data.vocab_file}")
        own = f"{FLAGS.output_dir}/{VOCAB_FILE}"  # of a run that is resumed
        for path in filter(None, (FLAGS.vocab_file, is_file(own) and own)):
            refuse_other_vocabulary(path, data)
    return data, undescribed


def open_files(patterns: str, config: BertConfig) -> RecordFiles:
    """The record files, checked against flags and model."""
    record = pretraining_record(
        max_seq_length=FLAGS.max_seq_length,
        max_predictions_per_seq=FLAGS.max_predictions_per_seq,
        next_sentence=not FLAGS.masked_lm_only,
        vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
    )
    files = RecordFiles(patterns, record, keep_indexes=True)
    num_files = number_of(len(files.paths), "files")
    logging.info("%s: %s, %s", patterns, num_files, number_of(len(files), "records"))
    return files


def make_eval_batches(config: BertConfig) -> Batches:
    """--eval_input_file once, or --input_file repeated as in the original."""
    files = open_files(FLAGS.eval_input_file or FLAGS.input_file, config)
    num_examples = FLAGS.max_eval_steps * FLAGS.eval_batch_size
    if FLAGS.eval_input_file:
        num_examples = min(len(files), num_examples)
    else:
        logging.warning(
            "Evaluating on the training files, each example %.3g times; --eval_input_file names "
            "others, which are evaluated once.",
            num_examples / len(files),
        )
    order = SequentialSampler(len(files))
    return Batches(files, order, batch_size=FLAGS.eval_batch_size, num_examples=num_examples)


# ---------------------------------------------------------------------------- trainer


def head() -> Pretraining:
    """What is pre-trained."""
    return FillMask() if FLAGS.masked_lm_only else Pretraining()


def make_trainer(config: BertConfig, strategy: tf.distribute.Strategy) -> Trainer:
    """Model, loss and optimizer on the devices."""
    schedule = optimization.Schedule(
        learning_rate=FLAGS.learning_rate,
        num_train_steps=FLAGS.num_train_steps,
        num_warmup_steps=FLAGS.num_warmup_steps,
        end_learning_rate=FLAGS.end_learning_rate,
    )
    optimizer = optimization.CLASSES[FLAGS.optimizer]
    trainer = Trainer(
        lambda: head().model(config, with_losses=True),
        head(),
        optimizer(schedule, bias_correction=FLAGS.bias_correction),
        strategy=strategy,
        seed=FLAGS.seed,
        step_config=from_flags.step_config(),
    )
    logging.info("%d parameters", trainer.model.count_params())
    return trainer


def load_first_weights(
    trainer: Trainer,
    folder: tf1.CheckpointFolder,
    data: DataDescription | None,
    tokenizer: FullTokenizer | None,
    metadata: ModelMetadata,
) -> None:
    """Loads --init_checkpoint, unless the run has a checkpoint of its own to resume from."""
    latest = folder.latest()
    if path := latest or FLAGS.init_checkpoint:
        source = loading.open_weights(path)
        # Refuses one of another model, before the files that belong to it are overwritten.
        loading.config_of(source, FLAGS.bert_config_file)
        loading.refuse_other_case(source, metadata.do_lower_case)
        loading.refuse_lost_pieces(source, metadata.never_split or ())
        refuse_vocabulary(source, data, tokenizer)
        report = loading.load_checkpoint(trainer.model, source)
        if not latest:
            logging.info("%s", report)
    elif not FLAGS.do_train:
        raise InputError(
            f"--do_eval alone, with no checkpoint in {folder.path}",
            "a trained model to evaluate",
            "add --do_train, or name a checkpoint with --init_checkpoint",
        )


def refuse_vocabulary(
    source: Weights, data: DataDescription | None, tokenizer: FullTokenizer | None
) -> None:
    """Raises `InputError` if the data's vocabulary is not that of the first weights."""
    if tokenizer:  # which `describe_data` has compared with the data
        loading.refuse_other_pieces(source, tokenizer.pieces, FLAGS.vocab_file)
    elif data and source.pieces and vocabulary_sha256(source.pieces) != data.vocab_sha256:
        raise InputError(
            f"data made with {data.vocab_file}, another vocabulary than that of {source.path}",
            f"data made with {source.vocab_file}",
            "make the data with it; if only pieces [unusedN] were replaced, add --vocab_file",
        )


if __name__ == "__main__":
    cli.run(main)
