"""Vectors of texts from the layers of a BERT, which stays as it is.

    python extract_features.py --input_file=texts.txt --output_file=features.jsonl \\
        --bert_config_file=bert_config.json --vocab_file=vocab.txt \\
        --init_checkpoint=bert_model.ckpt --layers=-1,-2,-3,-4
    python extract_features.py --input_file=texts.txt --output_file=vectors.npz \\
        --init_checkpoint=all-MiniLM-L6-v2 --pooling=mean --output_format=npz

A line of the input is a text, or two with " ||| " between.
"""

from collections.abc import Sequence

from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.serving.options import EMBEDDINGS, FEATURE_FORMATS, POOLINGS

FLAGS = flags.FLAGS
ALL_LAYERS, LAST_LAYER = "-1,-2,-3,-4", "-1"  # the original's; for one vector a line


def define_flags() -> None:
    """The flags of this script."""
    shared_flags.define_pretrained()
    flags.DEFINE_string("input_file", None, "Texts, one a line; local or remote.")
    flags.DEFINE_string("output_file", None, "Where the vectors are written.")
    flags.DEFINE_enum(
        "input_format",
        None,
        ["text", "jsonl"],
        'text: "a" or "a ||| b". jsonl: {"text_a": ..., "text_b": ...}. Default: by the ending.',
    )
    flags.DEFINE_enum("output_format", "jsonl", FEATURE_FORMATS, "Kind of file.")
    flags.DEFINE_string(
        "layers",
        None,
        f"Numbers of layers, negative from the last, and {EMBEDDINGS} for the input of the first. "
        f"Default: {ALL_LAYERS}; with --pooling: {LAST_LAYER}.",
    )
    flags.DEFINE_enum(
        "pooling",
        "none",
        POOLINGS,
        "none: a vector for each token. cls: that of [CLS]. mean: the mean over all real tokens.",
    )
    shared_flags.define_count("max_seq_length", 128, "Most tokens of a line; longer ones are cut.")
    shared_flags.define_count("batch_size", 32, "Lines of a step.")
    shared_flags.define_without_effect(
        "use_tpu", "master", "num_tpu_cores", "use_one_hot_embeddings"
    )
    shared_flags.mark_required("input_file", "output_file")


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words)

from absl import logging

from bert_tf import files
from bert_tf.checkpoints.loading import open_weights
from bert_tf.cli import from_flags
from bert_tf.serving import pretrained
from bert_tf.serving.rows import num_lines
from bert_tf.terminal import counted


def main(_: Sequence[str]) -> None:
    """Flags -> model -> vectors of the lines -> file, which no other process writes meanwhile."""
    with files.locked(FLAGS.output_file):
        write_features()


def write_features() -> None:
    """Model -> vectors of the lines -> --output_file."""
    model = from_flags.complete_model(open_weights(FLAGS.init_checkpoint))
    default = ALL_LAYERS if FLAGS.pooling == "none" else LAST_LAYER
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
    is_jsonl = FLAGS.input_file.endswith(".jsonl")
    if FLAGS.input_format:
        is_jsonl = FLAGS.input_format == "jsonl"
    lines = pretrained.read_lines(FLAGS.input_file, jsonl=is_jsonl)
    vectors = counted(extractor.extract(lines), "extract", num_lines(FLAGS.input_file), "lines")
    write = pretrained.WRITERS[FLAGS.output_format]
    count = write(FLAGS.output_file, vectors, layers)
    logging.info("Wrote the vectors of %d lines to %s", count, FLAGS.output_file)


if __name__ == "__main__":
    cli.run(main)
