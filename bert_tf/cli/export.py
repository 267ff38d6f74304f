"""Exports a trained model as a SavedModel that takes raw text, for TensorFlow Serving.

    python export_model.py --init_checkpoint=/models/mrpc --export_dir=/serving/mrpc
    python export_model.py --init_checkpoint=/models/squad --export_dir=/serving/squad
    python export_model.py --init_checkpoint=all-MiniLM-L6-v2 --export_dir=/serving/vectors

What the model is for, and how it was trained, is known from the folder of its run, and partly from
others; flags say the rest, and go before what the folder says. /serving/mrpc/1 is made, then
/serving/mrpc/2 and so on. With --format=litert or onnx it is a file for these runtimes, which takes
ids in place of text.
"""

import shlex
import sys
from collections.abc import Sequence

from absl import flags, logging

from bert_tf.checkpoints import loading as weights
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.options import DEFAULT_CHOICES, FORMATS, SAVED_MODEL, TASKS, ServingOptions
from bert_tf.serving.registry import check_options
from bert_tf.squad.windows import WindowSizes

FLAGS = flags.FLAGS
DEFAULTS = ServingOptions()
AS_TRAINED = "default: as the model was trained, else"


def define_flags() -> None:
    """The flags of this script, shared ones first."""
    shared_flags.define_pretrained()
    flags.DEFINE_string("export_dir", None, "The folder of all versions of the model.")
    flags.DEFINE_enum(
        "format",
        SAVED_MODEL,
        FORMATS,
        "saved_model takes raw text. litert (bert-tf[litert]) and onnx (bert-tf[onnx]) are single "
        "files that take ids; litert's has one row of --max_seq_length ids.",
    )
    flags.DEFINE_bool("int8", False, "Weights as int8, a quarter of the size; litert and onnx.")
    flags.DEFINE_enum("task", None, TASKS, "What the model does; default: as its files say.")
    flags.DEFINE_list("labels", [], "Names of the classes, in order; default: the model's own.")
    flags.DEFINE_bool(
        "pairs", None, f"The model was trained on pairs of texts; {AS_TRAINED} single texts."
    )
    flags.DEFINE_integer(
        "num_choices",
        None,
        f"Sequences in a record of multiple choice; {AS_TRAINED} {DEFAULT_CHOICES}.",
    )
    flags.DEFINE_integer(
        "max_seq_length",
        None,
        "Most pieces of a sequence; longer texts are cut, contexts of questions and texts with "
        f"token labels are cut into windows; {AS_TRAINED} {WindowSizes.max_seq_length} for "
        "questions, and all the model takes for the rest.",
    )
    flags.DEFINE_integer(
        "doc_stride",
        None,
        f"How far a window begins behind the one before; {AS_TRAINED} {WindowSizes.doc_stride}.",
    )
    flags.DEFINE_integer(
        "max_query_length",
        None,
        f"Most pieces of a question; {AS_TRAINED} {WindowSizes.max_query_length}.",
    )
    flags.DEFINE_integer(
        "top_k", DEFAULTS.top_k, "Pieces for each [MASK], or answers to a question, to list."
    )
    for name, text in (
        ("n_best_size", "Starts and ends of a window that are looked at, answers of a question."),
        ("max_answer_length", "Most pieces of an answer."),
    ):
        flags.DEFINE_integer(name, getattr(DEFAULTS, name), text)
    flags.DEFINE_bool(
        "version_2_with_negative",
        None,
        "Questions may have no answer; default: if a threshold is given, else as the model was "
        "trained, else whether one is stored.",
    )
    flags.DEFINE_float(
        "null_score_diff_threshold",
        None,
        "No answer if its score is above the best one's by more; default: as stored, else 0.",
    )
    flags.mark_flag_as_required("export_dir")


def main(argv: Sequence[str]) -> None:
    """Flags -> weights -> configuration -> tokenizer -> SavedModel."""
    shared_flags.refuse_words(argv[1:])
    shared_flags.check_limits()
    source = weights.open_weights(FLAGS.init_checkpoint)
    options = serving_options()
    check_options(source, options, ids_only=FLAGS.format != SAVED_MODEL)
    config = weights.config_of(source, FLAGS.bert_config_file)
    tokenizer = weights.tokenizer_of(source, config, FLAGS.vocab_file, shared_flags.given_case())
    path = export_checkpoint(
        source,
        config,
        tokenizer,
        FLAGS.export_dir,
        options=options,
        commands=[shlex.join(["python", *sys.argv])],
        file_format=FLAGS.format,
        int8=FLAGS.int8,
    )
    logging.info("Exported %s to %s", source.path, path)


def serving_options() -> ServingOptions:
    """What the flags say."""
    names = ("task", "pairs", "num_choices", "max_seq_length", "doc_stride", "max_query_length",
             "n_best_size", "max_answer_length", "version_2_with_negative",
             "null_score_diff_threshold", "top_k")  # fmt: skip
    given = {name: FLAGS[name].value for name in names}
    return ServingOptions(**given, labels=tuple(FLAGS.labels) or None)


if __name__ == "__main__":
    cli.parse(define_flags)
    cli.run(main)
