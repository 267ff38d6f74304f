"""Writes the vectors of texts from the layers of a BERT.

    python extract_features.py --input_file=texts.txt --output_file=features.jsonl \\
        --bert_config_file=bert_config.json --vocab_file=vocab.txt \\
        --init_checkpoint=bert_model.ckpt --layers=-1,-2,-3,-4
    python extract_features.py --input_file=texts.txt --output_file=vectors.npz \\
        --init_checkpoint=all-MiniLM-L6-v2 --pooling=mean

A line of the input is a text, or two with " ||| " between; or the input is a table or JSON lines
with the columns text_a, or text, and text_b, or others that are named.
"""

from bert_tf.checkpoints.options import Pretrained
from bert_tf.cli.main import run
from bert_tf.cli.paths import written_format
from bert_tf.cli.training_options import WithoutEffect
from bert_tf.options import LONGEST, NEVER, Options, option
from bert_tf.serving.options import FEATURE_FORMATS, POOLINGS, AnswerPrecision, InputRows

# Defaults of --layers.
LAST_LAYERS = "-1,-2,-3,-4"  # the original's
LAST_LAYER = "-1"  # with --pooling, which gives one vector a line


class Features(Options, most_used="input_file output_file init_checkpoint layers pooling"):
    """The options of this script."""

    model: Pretrained
    input_file: str = option("Texts, one a line; local or remote.", path=True, original=True)
    output_file: str = option(
        "Where the vectors are written; its ending is the format: .npz, .tfrecord, else JSON "
        "lines (.jsonl, or none).",
        path=True,
        original=True,
    )
    text_b_column: str | None = option(
        "The column of the second text; default: text_b, if there is one.", default=None
    )
    rows: InputRows = InputRows()
    layers: str | None = option(
        "Numbers of layers, negative from the last, and embeddings for the input of the first. "
        "Default: -1,-2,-3,-4; with --pooling: -1.",
        default=None,
        original=True,
    )
    pooling: str = option(
        "none: a vector for each token. cls: that of [CLS]. mean: the mean over all real tokens.",
        default="none",
        choices=POOLINGS,
    )
    max_seq_length: int = option(
        "Most tokens of a line; longer ones are cut.",
        default=128,
        low=1,
        high=LONGEST,
        original=True,
    )
    batch_size: int = option("Lines of a step.", default=32, low=1, original=True)
    answers: AnswerPrecision = AnswerPrecision()
    use_tpu: bool = option("No effect.", default=False, acts=NEVER, original=True)
    use_one_hot_embeddings: bool = option("No effect.", default=False, acts=NEVER, original=True)
    ignored: WithoutEffect = WithoutEffect()

    def check(self) -> None:
        """Refuses an output whose ending is of another format."""
        written_format(self.output_file, FEATURE_FORMATS)


def main(options: Features) -> None:
    """Model -> vectors of the lines -> file."""
    from absl import logging

    from bert_tf.checkpoints.loading import complete_model, open_weights
    from bert_tf.checkpoints.metadata import model_files
    from bert_tf.files import locked, output
    from bert_tf.serving import pretrained
    from bert_tf.terminal import counted, number_of

    file_format = written_format(options.output_file, FEATURE_FORMATS)
    path = output(
        options.output_file, [options.input_file, *model_files(options.model.init_checkpoint)]
    )
    with locked(path):
        model = complete_model(open_weights(options.model.init_checkpoint), options.model)
        default = LAST_LAYERS if options.pooling == "none" else LAST_LAYER
        default_layers = default.split(",")[: model.config.num_hidden_layers]
        layers = pretrained.parse_layers(options.layers or ",".join(default_layers), model.config)
        extractor = pretrained.Extractor(
            model.source,
            model.config,
            model.tokenizer,
            layers=layers,
            pooling=options.pooling,
            max_seq_length=options.max_seq_length,
            batch_size=options.batch_size,
            precision=options.answers.precision,
        )
        logging.info("%s", extractor.load_report)
        rows = options.rows
        lines = pretrained.read_pairs(
            options.input_file,
            given=(rows.text_a_column, options.text_b_column),
            input_format=rows.input_format,
            reading=rows.reading,
            skip_bad_rows=rows.skip_bad_rows,
        )
        vectors = counted(extractor.extract(lines), "extract", None, "lines")
        count = pretrained.WRITERS[file_format](path, vectors, layers)
    logging.info("Wrote the vectors of %s to %s", number_of(count, "lines"), path)


if __name__ == "__main__":
    run(main)
