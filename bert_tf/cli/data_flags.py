"""The flags of data generation, and of vocabularies; each declared once."""

from absl import flags

from bert_tf.cli.flags import ABOVE_0, LONGEST, Choice, Count, Number, Path, define
from bert_tf.data import enough_predictions

FLAGS = flags.FLAGS


class Texts:
    """The texts that pre-training data or a vocabulary are made of, and their case.

    Attributes:
      input_file: Text files: paths or globs, separated by commas.
      input_format: text: a sentence a line, a blank line between documents. paragraphs: the same
        with a paragraph a line, which is split into sentences. wikiextractor: as WikiExtractor
        writes Wikipedia, split likewise.
      do_lower_case: Lower-case the text and strip accents (uncased models).
      num_workers: Processes; 0: as many as there are cores.
    """

    input_file = Path(required=True)
    input_format = Choice("text", ["text", "paragraphs", "wikiextractor"])
    do_lower_case = True
    num_workers = Count(0, 0, 10_000)


class PretrainingData:
    """What `bert-tf data` and `bert-tf beam-data` make: the original's flags, then our own.

    Attributes:
      output_file: TFRecord files to write in turn, separated by commas; with --num_shards what the
        names of all files begin with.
      vocab_file: The WordPiece vocabulary, one word piece a line.
      never_split: Pieces of the vocabulary that are kept whole wherever a text has them, such as
        '<e1>', separated by commas.
      do_whole_word_mask: Mask all tokens of a word or none of them.
      words_from_spaces: With --do_whole_word_mask: white space separates words, Chinese ones too,
        in text that a segmenter such as jieba has cut. Each punctuation mark remains a word of its
        own.
      pack: Fill each record with several sequences that do not see each other, instead of padding;
        training reads from the data's description that it is so.
      max_seq_length: Tokens, [CLS] and [SEP] included.
      max_predictions_per_seq: Most masked tokens of a sequence. If not given: 20, or in a longer
        sequence as many as --masked_lm_prob masks, such as 77 of 512 tokens.
      random_seed: Seed of all that is random.
      dupe_factor: Passes over the text, each with other masks.
      masked_lm_prob: Share of the tokens that is masked, above 0.
      mask_share: Share of the tokens to predict that become [MASK]; table 8 of the paper compares
        other shares.
      random_share: Share of them that become a random word piece. The rest stay as they are.
      short_seq_prob: Share of the documents that are cut into shorter sequences.
      num_shards: How many files to write, OUTPUT_FILE-00000-of-00064 and so on. The same command
        makes those that are missing. 0: the files that --output_file names.
      language: Language of paragraphs: its ISO 639 code, of two letters if it has one.
      temp_dir: Local folder for intermediate files, which are smaller than the output; default:
        beside it. With --num_shards they stay there until all files are written.
    """

    _acts = """
        do_whole_word_mask: words_from_spaces
        input_format=paragraphs input_format=wikiextractor: language"""
    _most_used = (
        "input_file output_file vocab_file do_lower_case max_seq_length max_predictions_per_seq "
        "dupe_factor num_workers"
    )
    output_file = Path(required=True)
    vocab_file = Path(required=True)
    never_split = ()
    do_whole_word_mask = False
    words_from_spaces = False
    pack = False
    max_seq_length = Count(128, 5, LONGEST)
    max_predictions_per_seq = Count(20, most=LONGEST)
    random_seed = Count(12345, -(2**63), 2**63 - 1)
    dupe_factor = Count(10, most=10**6)
    masked_lm_prob = Number(0.15, ABOVE_0, 1.0)
    mask_share = Number(0.8, 0.0, 1.0)
    random_share = Number(0.1, 0.0, 1.0)
    short_seq_prob = Number(0.1, 0.0, 1.0)
    num_shards = Count(0, 0, 99_999)  # their names have five digits
    language = "en"
    temp_dir = Path()


def define_pretraining_data() -> None:
    """The flags of `bert-tf data`."""
    define(Texts)
    define(PretrainingData)


def most_predictions() -> int:
    """--max_predictions_per_seq, or as many as the length and the share of the others need."""
    most = FLAGS.max_predictions_per_seq
    if FLAGS["max_predictions_per_seq"].present:
        return most
    return max(most, enough_predictions(FLAGS.max_seq_length, FLAGS.masked_lm_prob))
