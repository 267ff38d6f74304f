"""The flags of data generation, and of vocabularies; each defined once."""

import dataclasses
import math

from absl import flags

from bert_tf.cli.flags import LONGEST, define_count, define_number, mark_required
from data_gen.settings import Settings

FLAGS = flags.FLAGS


def define_texts() -> None:
    """The texts that pre-training data or a vocabulary are made of, and their case."""
    flags.DEFINE_string("input_file", None, "Text files: paths or globs, separated by commas.")
    flags.DEFINE_enum(
        "input_format",
        "text",
        ["text", "wikiextractor"],
        "text: a sentence a line, a blank line between documents. wikiextractor: as WikiExtractor "
        "writes Wikipedia; paragraphs are split into sentences.",
    )
    flags.DEFINE_bool(
        "do_lower_case", True, "Lower-case the text and strip accents (uncased models)."
    )
    help_text = "Processes; 0: as many as there are cores and memory for."
    define_count("num_workers", 0, help_text, least=0, most=10_000)
    mark_required("input_file", "output_file")


def define_pretraining_data() -> None:
    """What `bert-tf data` and `bert-tf beam-data` make: the original's flags, then our own."""
    flags.DEFINE_string(
        "output_file",
        None,
        "TFRecord files to write in turn, separated by commas; with --num_shards what the names of "
        "all files begin with.",
    )
    define_texts()
    flags.DEFINE_string("vocab_file", None, "The WordPiece vocabulary, one word piece a line.")
    mark_required("vocab_file")
    flags.DEFINE_list(
        "never_split",
        [],
        "Pieces of the vocabulary that are kept whole wherever a text has them, such as '<e1>', "
        "separated by commas.",
    )
    flags.DEFINE_bool("do_whole_word_mask", False, "Mask all tokens of a word or none of them.")
    flags.DEFINE_bool(
        "words_from_spaces",
        False,
        "With --do_whole_word_mask: white space separates words, Chinese ones too, in text that a "
        "segmenter such as jieba has cut. Each punctuation mark remains a word of its own.",
    )
    flags.DEFINE_bool(
        "one_draw_per_word",
        False,
        "With --do_whole_word_mask: one draw decides whether all pieces of a word become [MASK], "
        "stay, or are replaced. By default each piece draws for itself, as in the original.",
    )
    define_count("max_seq_length", 128, "Tokens, [CLS] and [SEP] included.", least=5, most=LONGEST)
    define_count("max_predictions_per_seq", 20, "Most masked tokens of a sequence.", most=LONGEST)
    help_text = "Seed of all that is random."
    define_count("random_seed", 12345, help_text, least=-(2**63), most=2**63 - 1)
    define_count("dupe_factor", 10, "Passes over the text, each with other masks.", most=10**6)
    define_share("masked_lm_prob", 0.15, "Share of the tokens that is masked, above 0.")
    help_text = "Share of the documents that are cut into shorter sequences."
    define_number("short_seq_prob", 0.1, help_text, lower_bound=0.0, upper_bound=1.0)
    define_count(
        "num_shards",
        0,
        "How many files to write, OUTPUT_FILE-00000-of-00064 and so on. The same command makes "
        "those that are missing. 0: the files that --output_file names.",
        least=0,
        most=99_999,  # their names have five digits
    )
    flags.DEFINE_string("language", "en", "Language of wikiextractor text (ISO 639 code).")
    flags.DEFINE_string(
        "temp_dir",
        None,
        "Local folder for intermediate files, which are smaller than the output; default: beside "
        "it. With --num_shards they stay there until all files are written.",
    )


def define_share(name: str, default: float, help_text: str) -> None:
    """A flag for a share above 0."""
    least = math.nextafter(0.0, 1.0)
    define_number(name, default, help_text, lower_bound=least, upper_bound=1.0)


def settings_from_flags() -> Settings:
    """The settings of the command line.

    Raises:
      InputError: they contradict each other.
    """
    return Settings(**{f.name: FLAGS[f.name].value for f in dataclasses.fields(Settings)})
