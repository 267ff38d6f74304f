"""Text -> a WordPiece vocabulary for it.

    bert-tf vocab --input_file='wiki/*' --input_format=wikiextractor \\
        --output_file=vocab.txt --vocab_size=30522

    count       the words of the text, cut and normalized as the tokenizer will do it
    alphabet    the characters that get a piece of their own; words with others become [UNK]
    train       the most frequent pair of pieces is merged, again and again (package tokenizers)
    coverage    the new vocabulary, tried on the counted words

The order of the file: [PAD] [UNK] [CLS] [SEP] [MASK], the alphabet, the merges. Same text and
flags, same bytes.
"""

from collections.abc import Sequence

import tensorflow as tf
from absl import flags

from bert_tf.cli import flags as shared_flags
from bert_tf.cli import main as cli
from bert_tf.errors import InputError
from bert_tf.files import expand_patterns
from bert_tf.tokenization.wordpiece import FullTokenizer
from data_gen.checks import input_errors, require_least
from data_gen.documents import INPUT_FORMATS, DocumentReader
from data_gen.outputs import complete_file
from data_gen.vocabulary import count_words, learn_vocabulary, log_coverage, measure_coverage
from data_gen.workers import prepare_script

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this script; those that create_pretraining_data.py has too mean the same."""
    flags.DEFINE_string("input_file", None, "Text files: paths or globs, separated by commas.")
    flags.DEFINE_string("output_file", None, "The vocabulary to write.")
    flags.DEFINE_integer("vocab_size", 30522, "Pieces of the vocabulary, special ones included.")
    flags.DEFINE_bool(
        "do_lower_case", True, "Lower-case the text and strip accents (uncased models)."
    )
    flags.DEFINE_integer("min_frequency", 2, "How often two pieces must meet to be merged.")
    flags.DEFINE_float(
        "character_coverage",
        0.9999,
        "Share of the text's characters that get a piece; words with others become [UNK].",
    )
    flags.DEFINE_enum(
        "input_format", "text", list(INPUT_FORMATS), "Text, or what WikiExtractor writes."
    )
    flags.DEFINE_integer(
        "num_workers", 0, "Processes; 0: as many as there are cores and memory for."
    )
    flags.mark_flags_as_required(["input_file", "output_file"])


def main(argv: Sequence[str]) -> None:
    """Makes what the flags say."""
    prepare_script()
    shared_flags.refuse_words(argv[1:])
    check_flags()
    reader = DocumentReader(expand_patterns(FLAGS.input_file), input_format=FLAGS.input_format)
    with input_errors(), complete_file(FLAGS.output_file) as temporary:
        words = count_words(
            reader, do_lower_case=FLAGS.do_lower_case, num_workers=FLAGS.num_workers
        )
        vocabulary = learn_vocabulary(
            words,
            vocab_size=FLAGS.vocab_size,
            min_frequency=FLAGS.min_frequency,
            character_coverage=FLAGS.character_coverage,
        )
        with tf.io.gfile.GFile(temporary, "w") as file:
            file.write("".join(f"{piece}\n" for piece in vocabulary))
        tokenizer = FullTokenizer(temporary, FLAGS.do_lower_case)
        coverage = measure_coverage(tokenizer, words)
        log_coverage(coverage, FLAGS.output_file, vocab_size=FLAGS.vocab_size)


def check_flags() -> None:
    """Raises `InputError` for a value that cannot work."""
    for name, least in (("min_frequency", 1), ("vocab_size", 1), ("num_workers", 0)):
        require_least(name, FLAGS[name].value, least)
    if not 0 < FLAGS.character_coverage <= 1:
        raise InputError(
            received=f"--character_coverage={FLAGS.character_coverage}",
            expected="a share above 0, up to 1",
            remedy="use 0.9999, or 1 to keep every character",
        )


if __name__ == "__main__":
    cli.parse(define_flags)
    cli.run(main)
