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
from bert_tf.cli import model_flags
from bert_tf.cli.flags import YES_OR_NO, Choice, Count, Number
from bert_tf.serving.options import EXPORT_FORMATS, SAVED_MODEL, TASKS, ServingOptions

FLAGS = flags.FLAGS


class Export:
    """The flags of this command.

    Attributes:
      export_dir: The folder of all versions of the model.
      format: saved_model takes raw text. litert (bert-tf[litert]) and onnx (bert-tf[onnx]) are
        single files that take ids; litert's has one row of --max_seq_length ids.
      int8: Weights as int8, a quarter of the size; litert and onnx.
      task: What the model does; default: as its files say.
      labels: Names of the classes; default: the model's own, else numbers.
      pairs: The model was trained on pairs of texts; default: as trained, else single texts.
      max_seq_length: Most tokens of a sequence; longer texts are cut, contexts of questions and
        texts with token labels are cut into windows; default: as trained, else 384 for questions,
        and the model's maximum for the rest.
      doc_stride: Tokens from the start of a window to the next; default: as trained, else 128.
      max_query_length: Most tokens of a question; default: as trained, else 64; where a window
        has no room beside that, half of it.
      top_k: Tokens to list for each [MASK], or answers for each question.
      n_best_size: Starts and ends tried in a window; answers ranked for a question.
      max_answer_length: Most tokens of an answer.
      version_2_with_negative: Questions may have no answer. Default: yes if a threshold is given;
        otherwise as the model was trained; otherwise if one is stored.
      null_score_diff_threshold: No answer if its score is above the best one's by more; default: as
        stored, else 0.
    """

    _most_used = "init_checkpoint export_dir format task labels max_seq_length"
    export_dir = shared_flags.Path(required=True)
    format = Choice(SAVED_MODEL, EXPORT_FORMATS)
    int8 = False
    task = Choice(None, TASKS)
    labels = ()
    pairs = YES_OR_NO
    max_seq_length = Count(None)
    doc_stride = Count(None)
    max_query_length = Count(None, 0)
    top_k = 5
    n_best_size = 20
    max_answer_length = 30
    version_2_with_negative = YES_OR_NO
    null_score_diff_threshold = Number(None)


def define_flags() -> None:
    """The flags of this command and of its model."""
    model_flags.define_pretrained()
    shared_flags.define(Export)


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words)

from absl import logging

from bert_tf.checkpoints.loading import open_weights
from bert_tf.cli import from_flags
from bert_tf.serving.export import export_checkpoint


def main(_: Sequence[str]) -> None:
    """Flags -> model -> SavedModel, or a file for LiteRT or ONNX Runtime."""
    source, options = open_weights(FLAGS.init_checkpoint), serving_options()
    model = from_flags.complete_model(source)
    path = export_checkpoint(
        *(source, model.config, model.tokenizer, FLAGS.export_dir),
        options=options,
        file_format=FLAGS.format,
        int8=FLAGS.int8,
    )
    logging.info("Exported %s to %s", source.path, path)


def serving_options() -> ServingOptions:
    """The options of the flags."""
    given = {
        field.name: FLAGS[field.name].value
        for field in dataclasses.fields(ServingOptions)
        if field.name in FLAGS
    }
    return ServingOptions(**given | {"labels": tuple(FLAGS.labels) or None})


if __name__ == "__main__":
    cli.run(main)
