"""Examples/s of fine-tuning and of prediction, with packed batches and with padded ones.

    python benchmarks/packed_batches.py --weights=all-MiniLM-L6-v2 --glue=glue --tasks=mrpc,cola

In one process a model of each kind trains and predicts, turn by turn, so that a change of the
machine's speed affects both. Same weights, data, batches and seed:

    packed    the examples of a batch in rows that have hardly any padding (default)
    plain     --nobucket_by_length: every example padded to --max_seq_length

A turn of training is --steps updates of the shipped loop, input included. A turn of prediction is
the whole dev set, and both kinds must predict the same. Not counted: reading, tokenizing, writing
records, and the first step of every shape, in which it is compiled; the seconds of these are
printed. With --full each kind then starts again and trains all --epochs; the dev metrics are
printed with the time, compilation included.
"""

import argparse
import os
import statistics
import tempfile
import time

from bert_tf import runtime

runtime.prepare_process()  # as commands do, before TensorFlow loads

import numpy as np
from bert_tf.checkpoints import loading as weights
from bert_tf.data.packing import BatchingConfig, real_lengths
from bert_tf.tasks.registry import get_task
from bert_tf.tasks.text_run import TextData, TextRun
from bert_tf.training.distribution import make_strategy
from bert_tf.training.fine_tuning import FineTuningSchedule, make_optimizer
from bert_tf.training.trainer import Trainer

KINDS = ("packed", "plain")
FOLDERS = {"mrpc": "MRPC", "sst-2": "SST-2", "cola": "CoLA", "rte": "RTE", "sts-b": "STS-B"}


def main() -> None:
    """Every task, both kinds -> a table."""
    options = parse_options()
    for name in options.tasks.split(","):
        with tempfile.TemporaryDirectory() as folder:
            report(name, *make_contenders(name, folder, options), options)


def parse_options() -> argparse.Namespace:
    """The command line."""
    root = os.environ.get("BERT_TF_DATA", ".")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", default=f"{root}/weights/all-MiniLM-L6-v2")
    parser.add_argument("--glue", default=f"{root}/glue", help="the folder of GLUE's folders")
    parser.add_argument("--tasks", default="mrpc,sst-2,cola", help=f"of {', '.join(FOLDERS)}")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each kind")
    parser.add_argument("--steps", type=int, default=50, help="updates of a turn")
    parser.add_argument("--batch_size", type=int, default=32, help="of training and prediction")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--full", action="store_true", help="train to the end too")
    return parser.parse_args()


class Contender:
    """One kind of batches: a run, its trainer, and where it is in its data."""

    def __init__(self, run: TextRun, train: TextData, dev: TextData, options: argparse.Namespace):
        """`train` has its records."""
        self.run, self.train_data, self.dev, self.options = run, train, dev, options
        self.start_anew()

    def start_anew(self) -> None:
        """Weights, moments and data at the beginning."""
        options, run = self.options, self.run
        schedule = FineTuningSchedule(
            train_batch_size=options.batch_size,
            num_train_epochs=options.epochs,
            bias_correction=True,
        )
        self.num_steps = schedule.num_train_steps(len(self.train_data.examples))
        optimizer = make_optimizer(schedule, self.num_steps)
        self.trainer: Trainer = run.make_trainer(optimizer, seed=options.seed)
        run.load_pretrained()
        self.batches = run.batching.training(
            self.train_data.files,
            batch_size=options.batch_size,
            num_train_steps=self.num_steps,
            seed=options.seed,
        )
        self.step = 0
        self.iterator = iter(self.batches.dataset(start=0))

    def train(self, num_steps: int) -> float:
        """Takes that many steps; returns the seconds."""
        begin = time.perf_counter()
        self.trainer.run_steps(self.iterator, self.step, self.step + num_steps)
        self.step += num_steps
        return time.perf_counter() - begin

    def predict(self) -> float:
        """Predicts all of dev; returns the seconds."""
        begin = time.perf_counter()
        self.run.trainer = self.trainer
        self.logits = self.run.predict(self.dev)
        return time.perf_counter() - begin

    def compile(self) -> float:
        """A step of every length, forward and backward, and all of dev; seconds.

        Those are steps 0, whose learning rate is 0 while it rises: weights stay as they are.
        """
        begin = time.perf_counter()
        for batch in self.first_batches().values():
            iterator = iter(self.batches.dataset(start=batch))
            self.trainer.run_steps(iterator, 0, 1)
        self.predict()
        return time.perf_counter() - begin

    def first_batches(self) -> dict[tuple, int]:
        """For every shape of what is computed a batch that has it."""
        found: dict[tuple, int] = {}
        for number, rows in enumerate(self.batches.rows(range(self.num_steps))):
            whole = (len(rows), self.options.max_seq_length)
            packing = self.batches.packing
            found.setdefault(packing.fill(rows).shape[1:] if packing else whole, number)
        return found

    def computed_for_a_real_one(self) -> float:
        """Tokens that are computed in all steps, by those that are real."""
        rows, packing = self.batches.rows(range(self.num_steps)), self.batches.packing
        real = real_lengths(self.train_data.files)[rows].sum()
        if packing is None:
            return rows.size * self.options.max_seq_length / real
        return sum(packing.fill(one).size for one in rows) / real


def make_contenders(name: str, folder: str, options) -> tuple[dict[str, Contender], float]:
    """Both kinds with the same records, and the seconds that reading and writing took."""
    begin = time.perf_counter()
    source = weights.open_weights(options.weights)
    config = weights.config_of(source)
    model = weights.PretrainedModel(source, config, weights.tokenizer_of(source, config))
    task, data_dir = get_task(name), os.path.join(options.glue, FOLDERS[name])
    train = TextData(split=task.split("train"), examples=task.read(data_dir, "train"))
    dev = task.read(data_dir, "dev")
    runs = {}
    for kind in KINDS:
        batching = BatchingConfig(
            max_seq_length=options.max_seq_length, bucket_by_length=kind == "packed"
        )
        shared = {"task": task, "model": model, "strategy": make_strategy("one")}
        runs[kind] = TextRun(**shared, batching=batching, output_dir=folder)
    runs[KINDS[0]].prepare(train)

    def make_dev() -> TextData:
        return TextData(split=task.split("dev"), examples=dev, batch_size=options.batch_size)

    contenders = {kind: Contender(run, train, make_dev(), options) for kind, run in runs.items()}
    return contenders, time.perf_counter() - begin


def report(name: str, contenders: dict[str, Contender], prepared: float, options) -> None:
    """Measures one task and prints its rows."""
    compiled = {kind: one.compile() for kind, one in contenders.items()}
    trained: dict[str, list[float]] = {kind: [] for kind in KINDS}
    predicted: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):  # first: while both have the same weights
        for kind, one in contenders.items():
            predicted[kind].append(len(one.dev.examples) / one.predict())
    for _ in range(options.rounds):
        for kind, one in contenders.items():
            trained[kind].append(options.steps * options.batch_size / one.train(options.steps))
    print(f"\n{name}: reading and writing took {prepared:.0f} s; compiling")
    for kind, one in contenders.items():
        shapes = one.first_batches()
        shown = ", ".join(f"{rows} rows of {width}" for rows, width in shapes)
        share = one.computed_for_a_real_one()
        print(f"  {kind:8} {compiled[kind]:.0f} s for {shown}; {share:.3f} tokens for a real one")
    difference = np.abs(contenders["packed"].logits - contenders["plain"].logits).max()
    print(f"  greatest difference of their logits on dev: {difference:.1e}")
    print(f"  {'examples/s':10} {'kind':8} {'min':>8} {'median':>8} {'max':>8}   packed is")
    print_speeds("training", trained)
    print_speeds("prediction", predicted)
    if options.full:
        train_fully(contenders)


def print_speeds(what: str, speeds: dict[str, list[float]]) -> None:
    """A row of each kind; the ratio is the median over the rounds."""
    pairs = zip(speeds["packed"], speeds["plain"], strict=True)
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    for kind, values in speeds.items():
        times = f"   {ratio:.2f} times as fast" if kind == "packed" else ""
        print(
            f"  {what:10} {kind:8} {min(values):8.1f} {statistics.median(values):8.1f} "
            f"{max(values):8.1f}{times}",
            flush=True,
        )


def train_fully(contenders: dict[str, Contender]) -> None:
    """Trains each to the end from the start, and prints its time and dev metrics."""
    for kind, one in contenders.items():
        begin = time.perf_counter()
        one.start_anew()
        one.train(one.num_steps)
        seconds = time.perf_counter() - begin
        one.run.trainer = one.trainer
        found = one.run.evaluate(one.dev)
        metrics = ", ".join(f"{key} {value:.4f}" for key, value in found.items() if key != "loss")
        print(f"  full       {kind:8} {one.num_steps} steps in {seconds:.0f} s: {metrics}")


if __name__ == "__main__":
    main()
