"""Exports a trained model as a SavedModel that takes raw text, for TensorFlow Serving.

    bert-tf export --init_checkpoint=/models/mrpc --export_dir=/serving/mrpc
    bert-tf export --init_checkpoint=/models/squad --export_dir=/serving/squad
    bert-tf export --init_checkpoint=all-MiniLM-L6-v2 --export_dir=/serving/vectors

The folder of a run says what its model is for and how it was trained; for other folders, flags do.
A task, labels or --pairs that contradict the folder are refused; other flags override it. The
command writes /serving/mrpc/1, then /serving/mrpc/2 and so on. --format=litert or onnx writes one
file for these runtimes, which takes ids in place of text.
"""

from bert_tf.checkpoints.options import Pretrained
from bert_tf.options import Options, option
from bert_tf.serving.options import EXPORT_FORMATS, SAVED_MODEL, TASKS, ServingOptions


class Served(ServingOptions):
    """What the command offers: the package's own tasks, and lengths that texts can have."""

    task: str | None = option(
        "What the model does; default: as its files say.", default=None, choices=TASKS
    )


class Export(Options, most_used="init_checkpoint export_dir format task labels max_seq_length"):
    """The options of this command."""

    model: Pretrained
    export_dir: str = option("The folder of all versions of the model.", path=True)
    format: str = option(
        "saved_model takes raw text. litert (bert-tf[litert]) and onnx (bert-tf[onnx]) are single "
        "files that take ids; litert's has one row of --max_seq_length ids.",
        default=SAVED_MODEL,
        choices=EXPORT_FORMATS,
    )
    int8: bool = option(
        "Weights as int8, a quarter of the size; litert and onnx. With onnx, an answer then "
        "depends on the other texts of its batch; for answers that do not, send one unpadded text "
        "at a time.",
        default=False,
    )
    serving: Served = Served()


def main(options: Export) -> None:
    """Model -> SavedModel, or a file for LiteRT or ONNX Runtime."""
    from absl import logging

    from bert_tf.checkpoints.loading import complete_model, open_weights
    from bert_tf.serving.export import export_checkpoint

    model = complete_model(open_weights(options.model.init_checkpoint), options.model)
    path = export_checkpoint(
        model.source,
        model.config,
        model.tokenizer,
        options.export_dir,
        options=ServingOptions.of(options.serving),
        file_format=options.format,
        int8=options.int8,
    )
    logging.info("Exported %s to %s", model.source.path, path)
