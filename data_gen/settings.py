"""What the instances depend on besides text and vocabulary."""

import dataclasses
import math
import sys

from bert_tf.errors import InputError

NUM_SPECIAL_TOKENS = 3  # [CLS], [SEP] and [SEP]
RANGES = {  # setting: least, most, and how an error says it
    "max_seq_length": (NUM_SPECIAL_TOKENS + 2, math.inf, "at least 5: [CLS] A [SEP] B [SEP]"),
    "max_predictions_per_seq": (1, math.inf, "at least 1"),
    "dupe_factor": (1, math.inf, "at least 1"),
    "masked_lm_prob": (sys.float_info.min, 1, "a share above 0, at most 1, such as 0.15"),
    "short_seq_prob": (0, 1, "a share from 0 to 1, such as 0.1"),
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the instances depend on besides text and vocabulary; named as the flags.

    Raises:
      InputError: a value is out of its range, or has no meaning beside the others.
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

    def __post_init__(self) -> None:
        for name, (least, most, expected) in RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise InputError(f"--{name}={value}", expected, f"use another --{name}")
        for name in ("words_from_spaces", "one_draw_per_word"):
            if getattr(self, name) and not self.do_whole_word_mask:
                raise InputError(
                    f"--{name} without --do_whole_word_mask",
                    f"--{name} only where whole words are masked",
                    f"add --do_whole_word_mask, or leave out --{name}",
                )
