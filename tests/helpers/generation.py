"""What the tests of data generation share: a small vocabulary, and jobs over the sample text."""

import dataclasses
import pathlib
import random

import tensorflow as tf

from bert_tf.data.records import DataSettings
from data_gen.pipeline import Job

ROOT = pathlib.Path(__file__).parents[2]
SAMPLE_TEXT = str(ROOT / "data_gen" / "sample_text" / "[ps]*.txt")  # two of the four files: 23 KB
S, P = 37, 7
SETTINGS = DataSettings(
    max_seq_length=S, max_predictions_per_seq=P, masked_lm_prob=0.15, short_seq_prob=0.1,
    dupe_factor=3, random_seed=12345, do_whole_word_mask=False,
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# No character is in two of them.
CHINESE_WORDS = ["使用", "语言", "模型", "来", "预测", "下", "一个", "词"]


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


def write_chinese(folder: pathlib.Path, *, num_documents: int = 60) -> dict[str, str]:
    """Text of CHINESE_WORDS between spaces, and its vocabulary, as fields of a job."""
    rng, text, vocabulary = random.Random(7), folder / "chinese.txt", folder / "chinese_vocab.txt"
    documents = (
        "".join(f"{' '.join(rng.choices(CHINESE_WORDS, k=rng.randint(2, 14)))} 。\n"
                for _ in range(rng.randint(2, 9)))
        for _ in range(num_documents)
    )  # fmt: skip
    text.write_text("\n".join(documents), encoding="utf-8")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"".join(CHINESE_WORDS), "。"]
    vocabulary.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return {"input_file": str(text), "vocab_file": str(vocabulary)}


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def serialized(*paths) -> list[bytes]:
    """The records of some files."""
    return [item.numpy() for item in tf.data.TFRecordDataset([str(path) for path in paths])]
