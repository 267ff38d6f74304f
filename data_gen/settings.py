"""What data generation is asked to do; without TensorFlow, as flags are checked before it loads."""

import dataclasses
import math

from bert_tf.errors import InputError

NUM_SPECIAL_TOKENS = 3  # [CLS], [SEP] and [SEP]
BLOCK_CHARACTERS = 1 << 20  # of text, the unit of work


def enough_predictions(max_seq_length: int, masked_lm_prob: float) -> int:
    """The most tokens that are masked in a sequence.

    >>> [enough_predictions(length, 0.15) for length in (128, 512)]
    [20, 77]
    """
    return math.ceil(max_seq_length * masked_lm_prob)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the instances depend on besides text and vocabulary; named as the flags.

    Raises:
      InputError: a setting of whole words without `do_whole_word_mask`, or shares that are
        negative or do not sum to 1.
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
    mask_share: float = 0.8  # of the tokens to predict, these three
    random_share: float = 0.1
    unchanged_share: float = 0.1

    def __post_init__(self) -> None:
        for name in ("words_from_spaces", "one_draw_per_word"):
            if getattr(self, name) and not self.do_whole_word_mask:
                received = f"--{name} without --do_whole_word_mask"
                raise InputError(received, "both, or neither", f"add it, or leave out --{name}")
        shares = self.mask_share, self.random_share, self.unchanged_share
        if min(shares) < 0 or not math.isclose(sum(shares), 1, abs_tol=1e-6):
            names = ("mask_share", "random_share", "unchanged_share")
            given = " ".join(f"--{n}={s:g}" for n, s in zip(names, shares, strict=True))
            expected = "three shares from 0 to 1 that sum to 1"
            raise InputError(f"{given}, in sum {sum(shares):g}", expected, "correct the shares")


@dataclasses.dataclass(frozen=True)
class Job:
    """What to make of which files; the fields are named as the flags."""

    input_file: str
    output_file: str
    vocab_file: str
    settings: Settings
    do_lower_case: bool | None = None  # None: as the vocabulary shows
    strip_accents: bool | None = None  # None: as do_lower_case
    never_split: tuple[str, ...] = ()  # pieces that are kept whole
    input_format: str = "text"  # a key of documents.INPUT_FORMATS
    language: str = "en"
    num_shards: int = 0  # 0: the files that output_file names
    num_workers: int = 0
    temp_dir: str | None = None
    block_characters: int = BLOCK_CHARACTERS
