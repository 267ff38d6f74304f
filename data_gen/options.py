"""The options of data generation. Loads no TensorFlow."""

from bert_tf.options import LONGEST, Options, Reading, option

MOST_WORKERS = 10_000
MOST_SHARDS = 99_999  # their names have five digits
# Layers and width of the sizes that google-research/bert released: heads are 64 wide, and the
# feed-forward layer is four times as wide as the others.
MODEL_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
MOST_PREDICTIONS = 20  # the original's default, for sequences of 128 tokens
USED_MOST = """
    input_file output_file vocab_file do_lower_case max_seq_length max_predictions_per_seq
    dupe_factor num_workers"""


class Texts(Options):
    """The texts that pre-training data or a vocabulary are made of, and their case."""

    input_file: str = option(
        "Text files: paths or globs, separated by commas.", path=True, original=True
    )
    input_format: str = option(
        "text: a sentence a line, a blank line between documents. paragraphs: the same with a "
        "paragraph a line, which is split into sentences. wikiextractor: as WikiExtractor writes "
        'Wikipedia, split likewise. jsonl: {"text": "..."}, a document a line, with a paragraph a '
        "line in its text, split likewise.",
        default="text",
        choices=("text", "paragraphs", "wikiextractor", "jsonl"),  # documents.INPUT_FORMATS
    )
    reading: Reading = Reading()
    do_lower_case: bool | None = option(
        "Lower-case the text and strip accents (uncased models).",
        default=None,
        shown=True,
        original=True,
    )
    num_workers: int = option(
        "Processes; 0: as many as there are cores.", default=0, low=0, high=MOST_WORKERS
    )


class PretrainingData(Texts, most_used=USED_MOST):
    """The options of `bert-tf data` and `bert-tf beam-data`."""

    output_file: str = option(
        "TFRecord files to write in turn, separated by commas; with --num_shards what the names "
        "of all files begin with.",
        path=True,
        original=True,
    )
    vocab_file: str = option(
        "The WordPiece vocabulary, one word piece a line.", path=True, original=True
    )
    never_split: tuple[str, ...] = option(
        "Pieces of the vocabulary that are kept whole wherever a text has them, such as '<e1>', "
        "separated by commas.",
        default=(),
    )
    added_words: tuple[str, ...] = option(
        "Pieces of the vocabulary that are kept whole wherever a text has them, for uncased models "
        "in any case and with any accents, such as 'Covid-19', separated by commas.",
        default=(),
    )
    do_whole_word_mask: bool = option(
        "Mask all tokens of a word or none of them.", default=False, original=True
    )
    words_from_spaces: bool = option(
        "With --do_whole_word_mask: white space separates words, Chinese ones too, in text that a "
        "segmenter such as jieba has cut. Each punctuation mark remains a word of its own.",
        default=False,
        acts="do_whole_word_mask",
    )
    pack: bool = option(
        "Fill each record with several sequences that do not see each other, instead of padding; "
        "training reads from the data's description that it is so.",
        default=False,
    )
    max_seq_length: int = option(
        "Tokens, [CLS] and [SEP] included.", default=128, low=5, high=LONGEST, original=True
    )
    max_predictions_per_seq: int | None = option(
        f"Most masked tokens of a sequence. If not given: {MOST_PREDICTIONS}, or in a longer "
        "sequence as many as --masked_lm_prob masks, such as 77 of 512 tokens.",
        default=None,
        shown=MOST_PREDICTIONS,
        low=1,
        high=LONGEST,
        original=True,
    )
    random_seed: int = option(
        "Seed of all that is random.",
        default=12345,
        low=-(2**63),
        high=2**63 - 1,
        original=True,
    )
    dupe_factor: int = option(
        "Passes over the text, each with other masks.",
        default=10,
        low=1,
        high=10**6,
        original=True,
    )
    masked_lm_prob: float = option(
        "Share of the tokens that is masked, above 0.",
        default=0.15,
        above=0.0,
        high=1.0,
        original=True,
    )
    mask_share: float = option(
        "Share of the tokens to predict that become [MASK]; table 8 of the paper compares other "
        "shares.",
        default=0.8,
        low=0.0,
        high=1.0,
    )
    random_share: float = option(
        "Share of them that become a random word piece. The rest stay as they are.",
        default=0.1,
        low=0.0,
        high=1.0,
    )
    short_seq_prob: float = option(
        "Share of the documents that are cut into shorter sequences.",
        default=0.1,
        low=0.0,
        high=1.0,
        original=True,
    )
    num_shards: int = option(
        "How many files to write, OUTPUT_FILE-00000-of-00064 and so on. The same command makes "
        "those that are missing. 0: the files that --output_file names.",
        default=0,
        low=0,
        high=MOST_SHARDS,
    )
    language: str = option(
        "Language of paragraphs: its ISO 639 code, of two letters if it has one.",
        default="en",
        acts="input_format=paragraphs or input_format=wikiextractor or input_format=jsonl",
    )
    temp_dir: str | None = option(
        "Local folder for intermediate files, which are smaller than the output; default: beside "
        "it. With --num_shards they stay there until all files are written.",
        default=None,
        path=True,
    )
