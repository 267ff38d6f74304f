"""What the tests of data generation share: a small vocabulary, and jobs over the sample text."""

import dataclasses
import pathlib

from data_gen.instances import Settings
from data_gen.pipeline import Job

ROOT = pathlib.Path(__file__).parents[2]
SAMPLE_TEXT = str(ROOT / "data_gen" / "sample_text" / "*.txt")
S, P = 37, 7
SETTINGS = Settings(
    max_seq_length=S,
    max_predictions_per_seq=P,
    masked_lm_prob=0.15,
    short_seq_prob=0.1,
    dupe_factor=3,
    random_seed=12345,
    do_whole_word_mask=False,
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def make_job(folder, vocab, **changes) -> Job:
    settings = {name: changes.pop(name) for name in list(changes) if hasattr(SETTINGS, name)}
    values = {
        "input_file": SAMPLE_TEXT,
        "output_file": str(folder / "out.tfrecord"),
        "vocab_file": vocab,
        "num_workers": 1,
        "settings": dataclasses.replace(SETTINGS, **settings),
    }
    return Job(**values | changes)


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
