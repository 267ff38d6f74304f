"""Fine-tunes on SQuAD v1.1 or v2.0, answers questions, and scores the answers.

    python run_squad.py --train_file=train-v1.1.json --predict_file=dev-v1.1.json \
        --do_train --do_predict --do_eval --init_checkpoint=uncased_L-12_H-768_A-12 \
        --output_dir=/models/squad
    python run_squad.py --version_2_with_negative ...

Configuration and vocabulary are those beside the checkpoint unless flags name others.
"""

from collections.abc import Sequence

import bert_tf  # noqa: F401  (first: it makes settings that TensorFlow reads when it loads)
from bert_tf import checkpoints, losses, models, weights
from bert_tf import flags as shared_flags
from bert_tf.errors import InputError
from bert_tf.files import write_eval_results
from bert_tf.fine_tuning import (
    Batching,
    FineTuningSchedule,
    predictions_in_order,
    write_records,
)
from bert_tf.formats.base import ModelFacts
from bert_tf.optimization import AdamWeightDecay, Schedule
from bert_tf.records import RecordFiles
from bert_tf.squad import evaluation, files
from bert_tf.squad.alignment import make_alignment
from bert_tf.squad.answers import AnswerSizes, Prediction, best_non_null, predict
from bert_tf.squad.reading import SquadFile, read_squad, training_set
from bert_tf.squad.window_records import record_values, squad_record
from bert_tf.squad.windows import Window, WindowSizes, prediction_windows, training_windows
from bert_tf.training import Trainer

# isort: split
from absl import flags, logging

FLAGS = flags.FLAGS
ENCODER_AND_HEAD = r"bert/(?!pooler/)|cls/squad/"


def define_flags() -> None:
    """The flags of this script, shared ones first."""
    shared_flags.define_tuned_model()
    shared_flags.define_fine_tuning()
    shared_flags.define_training()
    shared_flags.define_devices()
    flags.DEFINE_string("train_file", None, "Questions with answers to train on, SQuAD's JSON.")
    flags.DEFINE_string("predict_file", None, "Questions to answer; with answers for --do_eval.")
    flags.DEFINE_bool("do_predict", False, "Answer the questions of --predict_file.")
    flags.DEFINE_bool("do_eval", False, "Score the answers, as the official scripts do.")
    flags.DEFINE_float("learning_rate", 5e-5, "The peak learning rate.")
    flags.DEFINE_integer("max_seq_length", 384, "Most pieces of a window.")
    flags.DEFINE_integer("doc_stride", 128, "How far a window begins behind the one before.")
    flags.DEFINE_integer("max_query_length", 64, "Most pieces of a question; longer ones are cut.")
    flags.DEFINE_integer("n_best_size", 20, "Starts and ends of a window, answers of a question.")
    flags.DEFINE_integer("max_answer_length", 30, "Most pieces of an answer.")
    flags.DEFINE_bool("version_2_with_negative", False, "Questions may have no answer (v2.0).")
    flags.DEFINE_float(
        "null_score_diff_threshold", 0.0, "No answer if its score is above the best one's by more."
    )
    flags.DEFINE_bool(
        "legacy_alignment", True, "Cut answers from the text as the original does; else by offsets."
    )
    flags.DEFINE_bool("verbose_logging", False, "Accepted for the original's commands; no effect.")


def main(argv: Sequence[str]) -> None:
    """Flags -> model -> training windows -> training -> answers -> scores."""
    check_flags(argv[1:])
    strategy = shared_flags.make_strategy()
    shared_flags.check_batch_sizes(strategy, "train_batch_size", "predict_batch_size")
    source = weights.open_weights(shared_flags.begin_with(is_training=FLAGS.do_train))
    config = weights.config_of(source, FLAGS.bert_config_file)
    config.check_sequence_length(FLAGS.max_seq_length)
    case = shared_flags.given_case()
    tokenizer = weights.tokenizer_of(source, config, FLAGS.vocab_file, case)
    folder = checkpoints.CheckpointFolder(FLAGS.output_dir, keep_max=FLAGS.keep_checkpoint_max)
    questions = read_squad(FLAGS.predict_file) if FLAGS.do_predict else None
    facts = ModelFacts(
        do_lower_case=tokenizer.do_lower_case, architecture="BertForQuestionAnswering"
    )
    if FLAGS.do_train:
        if folder.latest():
            weights.refuse_other_model(folder.path, config, tokenizer, facts)
        weights.write_model_files(folder.path, config, tokenizer, facts)
        trainer = train(source, config, tokenizer, folder, strategy)
    else:
        trainer = restore(source, config, strategy)
    if questions is not None:
        predictions = answer(trainer, config, tokenizer, questions)
        write_predictions(predictions)
        if FLAGS.do_eval:
            score(questions, predictions)


def check_flags(words: Sequence[str]) -> None:
    """Refuses what makes no sense, before anything is read."""
    shared_flags.refuse_words(words)
    shared_flags.check_limits()
    if not FLAGS.do_train and not FLAGS.do_predict:
        raise InputError(
            received="neither --do_train nor --do_predict",
            expected="at least one of them",
            remedy="add what is to be done",
        )
    for do, name in (("do_train", "train_file"), ("do_predict", "predict_file")):
        if FLAGS[do].value and not FLAGS[name].value:
            raise InputError(
                received=f"--{do} without --{name}",
                expected="a file of questions in SQuAD's format",
                remedy=f"add --{name}=...",
            )
    if FLAGS.do_eval and not FLAGS.do_predict:
        raise InputError(
            received="--do_eval without --do_predict",
            expected="answers to score",
            remedy="add --do_predict, or score a file of answers with "
            "python -m bert_tf.squad_evaluate",
        )


def window_sizes() -> WindowSizes:
    """How contexts are cut."""
    return WindowSizes(
        max_seq_length=FLAGS.max_seq_length,
        doc_stride=FLAGS.doc_stride,
        max_query_length=FLAGS.max_query_length,
    )


def make_batching(config) -> Batching:
    """How windows become batches."""
    return Batching(
        vocab_size=config.vocab_size,
        max_seq_length=FLAGS.max_seq_length,
        bucket_by_length=FLAGS.bucket_by_length,
        legacy_shuffle=FLAGS.legacy_shuffle,
    )


def make_records(name: str, windows: Sequence[Window], *, is_training: bool) -> RecordFiles:
    """train.tf_record or eval.tf_record, as the original writes them."""
    path = f"{FLAGS.output_dir}/{name}.tf_record"
    kind = {"max_seq_length": FLAGS.max_seq_length, "is_training": is_training}
    record = squad_record(**kind)
    write_records(path, record, (record_values(window, **kind) for window in windows))
    return RecordFiles(path, record)


def train(source, config, tokenizer, folder, strategy) -> Trainer:
    """Questions -> windows -> records -> the trained model."""
    examples = training_set(
        read_squad(FLAGS.train_file), version_2_with_negative=FLAGS.version_2_with_negative
    ).examples
    windows = training_windows(examples, tokenizer, window_sizes())
    logging.info("%s: %d questions, %d windows", FLAGS.train_file, len(examples), len(windows))
    records = make_records("train", windows, is_training=True)
    schedule = FineTuningSchedule(
        train_batch_size=FLAGS.train_batch_size,
        learning_rate=FLAGS.learning_rate,
        num_train_epochs=FLAGS.num_train_epochs,
        warmup_proportion=FLAGS.warmup_proportion,
        end_learning_rate=FLAGS.end_learning_rate,
        layerwise_lr_decay=FLAGS.layerwise_lr_decay,
    )
    num_train_steps = schedule.num_train_steps(len(examples))
    optimizer = schedule.optimizer(
        num_train_steps, kind=FLAGS.optimizer, bias_correction=FLAGS.bias_correction
    )
    trainer = make_trainer(config, optimizer, strategy, freeze=FLAGS.freeze)
    if folder.latest() is None:
        logging.info("%s", weights.load_checkpoint(trainer.model, source))
    trainer.train(
        make_batching(config).training(
            records,
            batch_size=FLAGS.train_batch_size,
            num_train_steps=num_train_steps,
            seed=FLAGS.seed,
        ),
        num_train_steps=num_train_steps,
        folder=folder,
        pace=shared_flags.make_pace(eval_steps=0),
        run_facts=run_facts(len(records)),
    )
    return trainer


def make_trainer(
    config, optimizer: AdamWeightDecay, strategy, *, freeze: Sequence[str] = ()
) -> Trainer:
    """Model and loss on the devices."""
    return Trainer(
        lambda: models.span_model(config),
        losses.SpanObjective(),
        optimizer,
        strategy=strategy,
        seed=FLAGS.seed,
        freeze=freeze,
    )


def run_facts(num_records: int) -> dict:
    """What decides how the run ends, noted in its checkpoints."""
    names = (
        "seed",
        "train_batch_size",
        "max_seq_length",
        "learning_rate",
        "num_train_epochs",
        "warmup_proportion",
        "bucket_by_length",
        "legacy_shuffle",
        "optimizer",
        "bias_correction",
        "layerwise_lr_decay",
        "freeze",
        "doc_stride",
        "max_query_length",
        "version_2_with_negative",
        "init_checkpoint",
    )
    return {name: FLAGS[name].value for name in names} | {"num_records": num_records}


def restore(source, config, strategy) -> Trainer:
    """The model as it is, head included."""
    optimizer = AdamWeightDecay(schedule=Schedule(learning_rate=0.0, num_train_steps=1))
    trainer = make_trainer(config, optimizer, strategy)
    logging.info("%s", weights.load_checkpoint(trainer.model, source, required=ENCODER_AND_HEAD))
    return trainer


def answer(trainer: Trainer, config, tokenizer, questions: SquadFile) -> list[Prediction]:
    """The answers to all questions, in order."""
    windows = prediction_windows(questions.examples, tokenizer, window_sizes())
    logging.info(
        "%s: %d questions, %d windows", questions.source, len(questions.examples), len(windows)
    )
    logits: dict[str, list] = {"start_logits": [], "end_logits": []}
    if windows:
        records = make_records("eval", windows, is_training=False)
        batches = make_batching(config).once(records, batch_size=FLAGS.predict_batch_size)
        found = predictions_in_order(trainer, batches, logits)
        # The original lets the logits of padding compete too; in buckets there are fewer of them.
        length = FLAGS.max_seq_length
        lengths = [len(w.input_ids) if FLAGS.bucket_by_length else length for w in windows]
        logits = {
            name: [row[:length] for row, length in zip(values, lengths, strict=True)]
            for name, values in found.items()
        }
    return predict(
        questions.examples,
        windows,
        logits["start_logits"],
        logits["end_logits"],
        make_alignment(windows, tokenizer, legacy_alignment=FLAGS.legacy_alignment),
        sizes=AnswerSizes(FLAGS.n_best_size, FLAGS.max_answer_length),
        version_2_with_negative=FLAGS.version_2_with_negative,
    )


def write_predictions(predictions: Sequence[Prediction]) -> None:
    """predictions.json, nbest_predictions.json and, of v2.0, null_odds.json."""
    paths = files.write_prediction_files(
        FLAGS.output_dir,
        predictions,
        version_2_with_negative=FLAGS.version_2_with_negative,
        null_score_diff_threshold=FLAGS.null_score_diff_threshold,
    )
    logging.info("Wrote %s", ", ".join(paths))


def score(questions: SquadFile, predictions: Sequence[Prediction]) -> None:
    """eval_results.txt: the official scores, and for v2.0 the best threshold."""
    threshold = FLAGS.null_score_diff_threshold
    made = files.prediction_files(
        predictions,
        version_2_with_negative=FLAGS.version_2_with_negative,
        null_score_diff_threshold=threshold,
    )
    results = evaluation.evaluate(questions, made[files.PREDICTIONS])
    if FLAGS.version_2_with_negative:
        entries = {one.qas_id: best_non_null(one.nbest) for one in predictions}
        best = {qas_id: entry.text if entry else "" for qas_id, entry in entries.items()}
        found = evaluation.best_thresholds(questions.examples, best, made[files.NULL_ODDS])
        results |= {f"best_{name}": value for name, value in found.items()}
    latest = checkpoints.CheckpointFolder(FLAGS.output_dir).latest()
    results["global_step"] = checkpoints.step_of(latest) if latest else 0
    write_eval_results(FLAGS.output_dir, results)


if __name__ == "__main__":
    define_flags()
    shared_flags.run(main)
