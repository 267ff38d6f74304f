"""Vectors of texts from the layers of a BERT, which stays as it is.

    python extract_features.py --input_file=texts.txt --output_file=features.jsonl \\
        --bert_config_file=bert_config.json --vocab_file=vocab.txt \\
        --init_checkpoint=bert_model.ckpt --layers=-1,-2,-3,-4
    python extract_features.py --input_file=texts.txt --output_file=vectors.npz \\
        --init_checkpoint=all-MiniLM-L6-v2 --pooling=mean

A line of the input is a text, or two with " ||| " between.
"""

from collections.abc import Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.cli import model_flags
from bert_tf.serving.options import FEATURE_FORMATS, POOLINGS

FLAGS = flags.FLAGS
INPUT_FORMATS = ("text", "jsonl")
ALL_LAYERS, LAST_LAYER = "-1,-2,-3,-4", "-1"  # the original's; for one vector a line


class FeatureFlags:
    """The flags of this script.

    Attributes:
      input_file: Texts, one a line; local or remote.
      output_file: Where the vectors are written; its ending is the format: .npz, .tfrecord, else
        JSON lines.
      input_format: text: "a" or "a ||| b". jsonl: {"text_a": ..., "text_b": ...}. Default: by the
        ending.
      layers: Numbers of layers, negative from the last, and embeddings for the input of the first.
        Default: -1,-2,-3,-4; with --pooling: -1.
      pooling: none: a vector for each token. cls: that of [CLS]. mean: the mean over all real
        tokens.
      max_seq_length: Most tokens of a line; longer ones are cut.
      batch_size: Lines of a step.
      use_tpu: No effect.
      use_one_hot_embeddings: No effect.
    """

    _acts = """
        : use_tpu use_one_hot_embeddings"""
    _most_used = "input_file output_file init_checkpoint layers pooling"
    input_file = shared_flags.Path(required=True)
    output_file = shared_flags.Path(required=True)
    input_format = shared_flags.Choice(None, INPUT_FORMATS)
    layers = None
    pooling = shared_flags.Choice("none", POOLINGS)
    max_seq_length = 128
    batch_size = 32
    use_tpu = False
    use_one_hot_embeddings = False


def define_flags() -> None:
    """The flags of this script, shared ones first."""
    model_flags.define_pretrained()
    shared_flags.define(FeatureFlags)
    shared_flags.define(model_flags.WithoutEffect)


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words)

from absl import logging

from bert_tf import files
from bert_tf.checkpoints.loading import open_weights
from bert_tf.cli import from_flags
from bert_tf.serving import pretrained
from bert_tf.serving.rows import num_lines
from bert_tf.terminal import counted, number_of


def main(_: Sequence[str]) -> None:
    """Flags -> model -> vectors of the lines -> file, which no other process writes meanwhile."""
    with files.locked(FLAGS.output_file):
        write_features()


def write_features() -> None:
    """Model -> vectors of the lines -> --output_file."""
    written = shared_flags.written_format(FLAGS.output_file, FEATURE_FORMATS)
    model = from_flags.complete_model(open_weights(FLAGS.init_checkpoint))
    default = ALL_LAYERS if FLAGS.pooling == "none" else LAST_LAYER
    default = ",".join(default.split(",")[: model.config.num_hidden_layers])
    layers = pretrained.parse_layers(FLAGS.layers or default, model.config)
    extractor = pretrained.Extractor(
        model.source,
        model.config,
        model.tokenizer,
        layers=layers,
        pooling=FLAGS.pooling,
        max_seq_length=FLAGS.max_seq_length,
        batch_size=FLAGS.batch_size,
    )
    logging.info("%s", extractor.load_report)
    read = FLAGS.input_format or shared_flags.format_of(FLAGS.input_file, INPUT_FORMATS)
    lines = pretrained.read_lines(FLAGS.input_file, jsonl=read == "jsonl")
    vectors = counted(extractor.extract(lines), "extract", num_lines(FLAGS.input_file), "lines")
    count = pretrained.WRITERS[written](FLAGS.output_file, vectors, layers)
    logging.info("Wrote the vectors of %s to %s", number_of(count, "lines"), FLAGS.output_file)


if __name__ == "__main__":
    cli.run(main)
