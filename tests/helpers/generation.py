"""Jobs of data generation over the sample text or Chinese text, and their outputs."""

import dataclasses
import pathlib
import random

import tensorflow as tf

from bert_tf.data.records import DataSettings
from data_gen.pipeline import Job

ROOT = pathlib.Path(__file__).parents[2]
SAMPLE_TEXT = str(ROOT / "data_gen" / "sample_text" / "[ps]*.txt")  # two of the four files: 23 KB
S = 37  # max_seq_length
P = 7  # max_predictions_per_seq
SETTINGS = DataSettings(
    max_seq_length=S, max_predictions_per_seq=P, masked_lm_prob=0.15, short_seq_prob=0.1,
    dupe_factor=3, random_seed=12345, do_whole_word_mask=False,
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# No character is in two words.
CHINESE_WORDS = ["使用", "语言", "模型", "来", "预测", "下", "一个", "词"]


def make_job(folder, vocab, **changes) -> Job:
    """A job over the sample text.

    Args:
      folder: the folder of the output.
      vocab: the path of the vocabulary.
      **changes: fields of `Job` or of `DataSettings`.
    """
    settings = {name: value for name, value in changes.items() if hasattr(SETTINGS, name)}
    fields = {name: value for name, value in changes.items() if name not in settings}
    values = {
        "input_file": SAMPLE_TEXT,
        "output_file": str(folder / "out.tfrecord"),
        "vocab_file": vocab,
        "num_workers": 1,
        "settings": dataclasses.replace(SETTINGS, **settings),
    }
    return Job(**values | fields)


def write_chinese(folder: pathlib.Path, *, num_documents: int = 60) -> dict[str, str]:
    """Writes text of CHINESE_WORDS with spaces between words, and its vocabulary.

    Returns:
      Their paths, as fields of a job.
    """
    rng = random.Random(7)
    text = folder / "chinese.txt"
    vocabulary = folder / "chinese_vocab.txt"
    documents = []
    for _ in range(num_documents):
        document = ""
        for _ in range(rng.randint(2, 9)):
            words = rng.choices(CHINESE_WORDS, k=rng.randint(2, 14))
            document += f"{' '.join(words)} 。\n"
        documents.append(document)
    text.write_text("\n".join(documents), encoding="utf-8")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"".join(CHINESE_WORDS), "。"]
    vocabulary.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return {"input_file": str(text), "vocab_file": str(vocabulary)}


def names(folder: pathlib.Path) -> list[str]:
    """The names of all files and folders in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def serialized(*paths) -> list[bytes]:
    """The records of some files."""
    dataset = tf.data.TFRecordDataset([str(path) for path in paths])
    return [record.numpy() for record in dataset]
