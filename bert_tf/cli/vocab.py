"""Text -> a WordPiece vocabulary for it.

    bert-tf vocab --input_file='wiki/*' --input_format=wikiextractor \\
        --output_file=vocab.txt --vocab_size=30522

Same text and flags, same bytes. The steps are those of data_gen/vocabulary.py; it needs the extra
`vocab`.
"""

from collections.abc import Sequence

from absl import flags

from bert_tf.cli import data_flags
from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command; those that `bert-tf data` has too mean the same."""
    flags.DEFINE_string("output_file", None, "The vocabulary to write.")
    data_flags.define_texts()
    shared_flags.define_count("vocab_size", 30522, "Word pieces, special tokens included.")
    shared_flags.define_count("min_frequency", 2, "How often two pieces must meet to be merged.")
    data_flags.define_share(
        "character_coverage",
        0.9999,
        "Share of the text's characters that get a piece; words with others become [UNK].",
    )


if __name__ == "__main__":
    cli.parse(define_flags, shared_flags.refuse_words)

from bert_tf.terminal import log_end
from data_gen.vocabulary import write_vocabulary
from data_gen.workers import prepare_script

NAMES = ("vocab_size", "do_lower_case", "min_frequency", "character_coverage", "input_format",
         "num_workers")  # fmt: skip


def main(_: Sequence[str]) -> None:
    """Flags -> words -> vocabulary."""
    prepare_script()
    values = {name: FLAGS[name].value for name in NAMES}
    write_vocabulary(FLAGS.input_file, FLAGS.output_file, **values)
    log_end(
        f"Wrote {FLAGS.output_file}",
        "data",
        input_file=FLAGS.input_file,
        input_format=None if FLAGS.input_format == "text" else FLAGS.input_format,
        vocab_file=FLAGS.output_file,
        nodo_lower_case=not FLAGS.do_lower_case,
        output_file="train.tfrecord",
    )


if __name__ == "__main__":
    cli.run(main)
