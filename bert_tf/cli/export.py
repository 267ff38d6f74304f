"""Exports a trained model as a SavedModel that takes raw text, for TensorFlow Serving.

    bert-tf export --init_checkpoint=/models/mrpc --export_dir=/serving/mrpc
    bert-tf export --init_checkpoint=/models/squad --export_dir=/serving/squad
    bert-tf export --init_checkpoint=all-MiniLM-L6-v2 --export_dir=/serving/vectors

The folder of a run says what its model is for and how it was trained; for other folders, flags do.
A task, labels or --pairs that contradict the folder are refused; other flags override it. The
command writes /serving/mrpc/1, then /serving/mrpc/2 and so on. --format=litert or onnx writes one
file for these runtimes, which takes ids in place of text.
"""

import dataclasses
from collections.abc import Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.serving.options import DEFAULT_CHOICES, FORMATS, SAVED_MODEL, TASKS, ServingOptions

FLAGS = flags.FLAGS
DEFAULTS = ServingOptions()
AS_TRAINED = "default: as the model was trained, else"


def define_flags() -> None:
    """The flags of this command, shared ones first."""
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
    flags.DEFINE_list("labels", [], "Names of the classes; default: the model's own, else numbers.")
    flags.DEFINE_bool(
        "pairs", None, f"The model was trained on pairs of texts; {AS_TRAINED} single texts."
    )
    for name, text in (
        ("num_choices", f"Choices of a multiple-choice record; {AS_TRAINED} {DEFAULT_CHOICES}."),
        (
            "max_seq_length",
            "Most tokens of a sequence; longer texts are cut, contexts of questions and texts with "
            f"token labels are cut into windows; {AS_TRAINED} 384 for questions, and the model's "
            "maximum for the rest.",
        ),
        ("doc_stride", f"Tokens from the start of a window to the next; {AS_TRAINED} 128."),
        ("max_query_length", f"Most tokens of a question; {AS_TRAINED} 64."),
        ("top_k", "Tokens to list for each [MASK], or answers for each question."),
        ("n_best_size", "Starts and ends tried in a window; answers ranked for a question."),
        ("max_answer_length", "Most tokens of an answer."),
    ):
        least = int(name != "max_query_length")
        shared_flags.define_count(name, getattr(DEFAULTS, name), text, least=least)
    flags.DEFINE_bool(
        "version_2_with_negative",
        None,
        "Questions may have no answer. Default: yes if a threshold is given; otherwise as the "
        "model was trained; otherwise if one is stored.",
    )
    shared_flags.define_number(
        "null_score_diff_threshold",
        None,
        "No answer if its score is above the best one's by more; default: as stored, else 0.",
    )
    shared_flags.mark_required("export_dir")


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words)

from absl import logging

from bert_tf.checkpoints.loading import open_weights
from bert_tf.cli import from_flags
from bert_tf.serving.export import export_checkpoint
from bert_tf.serving.signatures import check_options
from bert_tf.terminal.messages import log_end


def main(_: Sequence[str]) -> None:
    """Flags -> model -> SavedModel, or a file for LiteRT or ONNX Runtime."""
    source, options = open_weights(FLAGS.init_checkpoint), serving_options()
    check_options(source, options, ids_only=FLAGS.format != SAVED_MODEL)
    model = from_flags.complete_model(source)
    path = export_checkpoint(
        *(source, model.config, model.tokenizer, FLAGS.export_dir),
        options=options,
        file_format=FLAGS.format,
        int8=FLAGS.int8,
    )
    results = f"Exported {source.path} to {path}"
    if FLAGS.format == SAVED_MODEL:
        log_end(results, "predict", model=FLAGS.export_dir)
    else:
        logging.info("%s", results)


def serving_options() -> ServingOptions:
    """The options of the flags."""
    given = {field.name: FLAGS[field.name].value for field in dataclasses.fields(ServingOptions)}
    return ServingOptions(**given | {"labels": tuple(FLAGS.labels) or None})


if __name__ == "__main__":
    cli.run(main)
