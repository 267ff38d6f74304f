"""Real tokens a second of pre-training at 512 tokens: packed rows beside a sequence a row.

    BERT_TF_DATA=... python benchmarks/packed_rows.py                    whole articles
    BERT_TF_DATA=... python benchmarks/packed_rows.py --paragraphs=2     the beginning of each

Makes both data sets of the same Wikipedia articles by the shipped generator, and takes turns with
compiled training steps of one model on each. Prints how full the rows are, real tokens a second of
every kind, and the median ratio of the turns beside the one that the fill predicts.
"""

import argparse
import os
import pathlib
import re
import statistics
import tempfile
import time

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

import numpy as np
import tensorflow as tf
from bert_tf import BertConfig, heads
from bert_tf.config import StepConfig
from bert_tf.data.batches import Batches, ShuffledSampler
from bert_tf.data.records import PACKED, pretraining_record
from bert_tf.data.shards import RecordFiles, read_description
from bert_tf.training import distribution
from bert_tf.training.optimization import AdamWeightDecay, Schedule
from bert_tf.training.trainer import Trainer
from data_gen.pipeline import create
from data_gen.settings import Job, Settings

S, P, ROWS = 512, 80, 8
ARTICLE = re.compile(r"(<doc [^>]*>\n)(.*?)(</doc>)", re.DOTALL)


def main() -> None:
    """Text -> both data sets -> steps in turns -> a table."""
    options = parse_options()
    data = pathlib.Path(os.environ["BERT_TF_DATA"])
    with tempfile.TemporaryDirectory() as folder:
        text = write_text(data / "wiki" / "extracted", pathlib.Path(folder), options)
        kinds = {}
        for name, pack in (("a sequence a row", False), ("packed rows", True)):
            path = f"{folder}/{name}".replace(" ", "_")
            kinds[name] = Steps(make_data(data, text, path, pack), options)
        for steps in kinds.values():
            steps.take(2)  # compiles
        rates: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(options.rounds):
            for name, steps in kinds.items():
                rates[name].append(steps.take(options.steps))
        for name, steps in kinds.items():
            found = f"{steps.fill:6.1%} full, {statistics.median(rates[name]):9,.0f} real tokens/s"
            print(f"{name:18} {steps.records:7} records {found}")
        one, packed = kinds.values()
        ratio = statistics.median(b / a for a, b in zip(*rates.values(), strict=True))
        predicted = packed.fill / one.fill
        print(f"ratio {ratio:.3f}, of the fill {predicted:.3f}: {ratio / predicted:.3f} of it")


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=6, help="of the Wikipedia sample")
    parser.add_argument("--paragraphs", type=int, help="of each article, from its beginning")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4, help="of a turn")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    return parser.parse_args()


def write_text(source: pathlib.Path, folder: pathlib.Path, options: argparse.Namespace) -> str:
    """The articles, or the title and first paragraphs of each, in one file."""
    texts = [path.read_text("utf-8") for path in sorted(source.iterdir())[: options.files]]
    if options.paragraphs:
        texts = [ARTICLE.sub(lambda article: cut(article, options.paragraphs), t) for t in texts]
    path = folder / "text"
    path.write_text("".join(texts), "utf-8")
    return str(path)


def cut(article: re.Match, paragraphs: int) -> str:
    """An article's title and first paragraphs; lines of a few words are headings."""
    title, *lines = [line for line in article[2].splitlines() if line.strip()]
    kept = [line for line in lines if len(line) > 80][:paragraphs]
    return article[1] + "\n".join([title, "", *kept]) + "\n" + article[3]


def make_data(data: pathlib.Path, text: str, path: str, pack: bool) -> str:
    """Records as the paper's second phase takes them."""
    settings = Settings(
        max_seq_length=S, max_predictions_per_seq=P, masked_lm_prob=0.15, short_seq_prob=0.1,
        dupe_factor=1, random_seed=1, do_whole_word_mask=False, pack=pack,
    )  # fmt: skip
    vocabulary = str(data / "vocab" / "uncased_en_30522.txt")
    create(Job(text, path, vocabulary, settings, True, input_format="wikiextractor"))
    return path


class Steps:
    """Training steps of a model of its own on one data set."""

    def __init__(self, path: str, options: argparse.Namespace):
        data = read_description(path)
        config = BertConfig(
            vocab_size=data.vocab_size, hidden_size=options.hidden,
            num_hidden_layers=options.layers, num_attention_heads=options.hidden // 64,
            intermediate_size=4 * options.hidden, max_position_embeddings=S, type_vocab_size=2,
        )  # fmt: skip
        record = pretraining_record(
            max_seq_length=S, max_predictions_per_seq=P, packed_with=data.packed_with
        )
        files = RecordFiles(path, record)
        order = ShuffledSampler(files.block_records, batch_size=ROWS, seed=1)
        self.records, head = len(files), heads.Pretraining()
        model_options = {"with_losses": True, "num_sequences": data.sequences_per_record}
        trainer = Trainer(
            lambda: head.model(config, **model_options),
            head,
            AdamWeightDecay(Schedule(learning_rate=1e-4, num_train_steps=10**6)),
            strategy=distribution.make_strategy("one"),
            seed=1,
            step_config=StepConfig(xla=True),
        )
        self._steps, self._step = trainer.steps, 0
        self._totals = tf.zeros([len(trainer.steps.loss_names) + 1])
        self._batches = iter(Batches(files, order, batch_size=ROWS).dataset())
        name = PACKED if data.pack else "input_mask"
        numbers = files.read(range(len(files)))[name]
        self.fill = float(np.mean(numbers > 0))
        self._name = name

    def take(self, num_steps: int) -> float:
        """Makes some updates; gives the real tokens a second."""
        batches = [next(self._batches) for _ in range(num_steps)]
        tokens = sum(int(np.sum(batch[self._name].numpy() > 0)) for batch in batches)
        begin = time.perf_counter()
        for batch in batches:
            self._totals = self._steps.train_on(self._totals, batch, tf.constant(self._step))
            self._step += 1
        self._totals.numpy()  # waits for them
        return tokens / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
