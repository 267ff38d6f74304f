"""How long a save keeps training from its next step: in the foreground, and as it is shipped.

    python benchmarks/checkpoint_pause.py --folder=DISK             BERT-Base: 1.3 GB with moments
    python benchmarks/checkpoint_pause.py --layers=2 --hidden_size=128 --saves=3

One process trains with the shipped step and saves as `bert_tf.training.trainer.Trainer` does, every
other time in the foreground: weights and moments are copied, and training waits until they are on
the disk. Columns, the median over the saves and the worst:

    pause       from the end of a step to the beginning of the next one, in seconds
    next step   what the step after the save takes longer than an undisturbed one: TensorFlow then
                copies the weights that it updates while they are still being written
    in all      what all steps and pauses up to the next save take longer than undisturbed steps
    writing     from the beginning of a save until its checkpoint is on the disk
    steps/s     of the steps that end while it is written, beside undisturbed ones

Undisturbed steps are those that begin when the checkpoint before has been written.
"""

import argparse
import dataclasses
import os
import statistics
import tempfile
import time

from memory import add_sizes, make_iterator, make_trainer, peak_bytes


@dataclasses.dataclass
class Save:
    """A save and the steps up to the next one; times are of `time.perf_counter`.

    Attributes:
      in_background: whether training goes on meanwhile.
      begin: the end of the step that is saved.
      written: when its checkpoint is on the disk.
      steps: begin and end of each step that follows.
    """

    in_background: bool
    begin: float
    written: float = 0.0
    steps: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    @property
    def pause(self) -> float:
        """Seconds without a step."""
        return self.steps[0][0] - self.begin

    def undisturbed(self) -> list[float]:
        """Seconds of each step that began when all was written."""
        return [end - begin for begin, end in self.steps if begin > self.written]

    def meanwhile(self) -> list[float]:
        """Seconds of each step that ended while the checkpoint was written."""
        return [end - begin for begin, end in self.steps if end < self.written]


def main() -> None:
    """Saves of both kinds, turn by turn -> a table."""
    options = parse_options()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        saves, size, start = measure(options, folder)
    step = statistics.median(seconds for save in saves for seconds in save.undisturbed())
    print(
        f"L{options.layers} H{options.hidden_size}: {size / 1e9:.2f} GB a checkpoint; "
        f"{os.cpu_count()} cores; a step of {options.train_batch_size} x "
        f"{options.max_seq_length} takes {step:.2f} s, {1 / step:.2f} steps/s"
    )
    peak = peak_bytes() / 1e9
    print(f"peak memory: {start / 1e9:.2f} GB before the first save, {peak:.2f} at the end")
    print(f"{'save':12}{'pause':>15}{'next step':>15}{'in all':>15}{'writing':>15}{'steps/s':>9}")
    for in_background in (False, True):
        report([save for save in saves if save.in_background == in_background], step)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(parser, max_seq_length=64, max_predictions_per_seq=10, train_batch_size=4)
    parser.add_argument("--saves", type=int, default=6, help="of each kind")
    parser.add_argument("--steps", type=int, default=10, help="between two saves")
    parser.add_argument("--folder", default=None, help="where checkpoints are written for a while")
    parser.set_defaults(computation="{}")
    return parser.parse_args()


def measure(options: argparse.Namespace, folder: str) -> tuple[list[Save], int, int]:
    """The saves of a run, the bytes of a checkpoint, and the peak memory before the first."""
    from bert_tf import runtime

    runtime.prepare_process()  # as commands do, before TensorFlow loads
    import numpy as np
    from bert_tf.checkpoints.tf1 import CheckpointFolder

    saves: list[Save] = []
    start = 0

    class Folder(CheckpointFolder):
        """Every other save is one in the foreground."""

        def start_saving(self, step, tensors) -> None:
            if saves[-1].in_background:
                super().start_saving(step, tensors)
            else:
                super().start_saving(step, {n: np.array(value) for n, value in tensors.items()})
                self.wait()

        def _write(self, step, tensors) -> None:
            super()._write(step, tensors)
            saves[-1].written = time.perf_counter()

    trainer, iterator = make_trainer(options), make_iterator(options)
    run = Folder(folder, keep_max=1)
    last = (2 * options.saves + 1) * options.steps
    for step in range(last):
        begin = time.perf_counter()
        trainer.run_steps(iterator, step, step + 1)
        end = time.perf_counter()
        if saves:
            saves[-1].steps.append((begin, end))
        if (step + 1) % options.steps == 0 and step + 1 < last:
            run.wait()  # the thread has ended long before, if there are enough steps in between
            saves.append(Save(len(saves) % 2 == 1, end))
            start = start or peak_bytes()
            run.start_saving(step + 1, trainer.state(step + 1, {}))
    run.wait()
    size = sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder) if "ckpt" in name)
    return saves, size, start


def report(saves: list[Save], step: float) -> None:
    """The line of one kind of save."""

    def column(values: list[float]) -> str:
        return f"{statistics.median(values):8.3f}{max(values):7.3f}"

    meanwhile = [seconds for save in saves for seconds in save.meanwhile()]
    of_steps = [sum(end - begin for begin, end in save.steps) for save in saves]
    columns = (
        [save.pause for save in saves],
        [save.steps[0][1] - save.steps[0][0] - step for save in saves],
        [save.pause + seconds - step * len(save.steps)
         for save, seconds in zip(saves, of_steps, strict=True)],
        [save.written - save.begin for save in saves],
    )  # fmt: skip
    rate = f"{len(meanwhile) / sum(meanwhile):9.2f}" if meanwhile else f"{'-':>9}"
    kind = "background" if saves[0].in_background else "foreground"
    print(f"{kind:12}{''.join(map(column, columns))}{rate}")


if __name__ == "__main__":
    main()
