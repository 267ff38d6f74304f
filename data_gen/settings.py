"""What data generation is asked to do; without TensorFlow, as flags are checked before it loads."""

import dataclasses

from bert_tf.errors import InputError

NUM_SPECIAL_TOKENS = 3  # [CLS], [SEP] and [SEP]
BLOCK_CHARACTERS = 1 << 20  # of text, the unit of work


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the instances depend on besides text and vocabulary; named as the flags.

    Raises:
      InputError: a setting of whole words without `do_whole_word_mask`.
    """

    max_seq_length: int  # S
    max_predictions_per_seq: int  # P
    masked_lm_prob: float
    short_seq_prob: float
    dupe_factor: int
    random_seed: int
    do_whole_word_mask: bool
    words_from_spaces: bool = False
    one_draw_per_word: bool = False
    pack: bool = False

    def __post_init__(self) -> None:
        for name in ("words_from_spaces", "one_draw_per_word"):
            if getattr(self, name) and not self.do_whole_word_mask:
                received = f"--{name} without --do_whole_word_mask"
                raise InputError(received, "both, or neither", f"add it, or leave out --{name}")


@dataclasses.dataclass(frozen=True)
class Job:
    """What to make of which files; the fields are named as the flags."""

    input_file: str
    output_file: str
    vocab_file: str
    settings: Settings
    do_lower_case: bool | None = None  # None: as the vocabulary shows
    never_split: tuple[str, ...] = ()  # pieces that are kept whole
    input_format: str = "text"  # a key of documents.INPUT_FORMATS
    language: str = "en"
    num_shards: int = 0  # 0: the files that output_file names
    num_workers: int = 0
    temp_dir: str | None = None
    block_characters: int = BLOCK_CHARACTERS
