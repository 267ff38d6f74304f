"""Peak memory and seconds of a pre-training step: plain, in parts, with recomputed blocks.

    python benchmarks/memory.py                                     BERT-Base, 512 tokens
    python benchmarks/memory.py --layers=4 --hidden_size=256 --train_batch_size=4

Every line is a process of its own, which compiles the step, runs it a few times, and reports its
peak memory (VmHWM): weights, moments, gradients, activations, TensorFlow itself and the compiler.
`start` is the peak of a process that has the model and its moments, and has taken no step.
"""

import argparse
import itertools
import json
import pathlib
import re
import subprocess
import sys
import time

GB = 1e9


def main() -> None:
    """Every way to compute a step -> a line."""
    options = parse_options()
    if options.computation:
        print(json.dumps(measure(options)))
        return
    print(
        f"L{options.layers} H{options.hidden_size}, {options.max_seq_length} tokens, "
        f"batch {options.train_batch_size}"
    )
    print(f"{'precision':10}{'parts':>6}{'again':>7}{'start GB':>10}{'peak GB':>9}{'s/step':>9}")
    accumulation = [int(number) for number in options.gradient_accumulation_steps.split(",")]
    ways = itertools.product(options.precision.split(","), accumulation, (False, True))
    for precision, parts, again in ways:
        computation = {
            "precision": precision,
            "gradient_accumulation_steps": parts,
            "recompute": again,
        }
        found = in_process(computation)
        print(
            f"{precision:10}{parts:6}{'yes' if again else 'no':>7}"
            f"{found['start'] / GB:10.2f}{found['peak'] / GB:9.2f}{found['seconds']:9.2f}",
            flush=True,
        )


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(parser, max_seq_length=512, max_predictions_per_seq=77, train_batch_size=8)
    parser.add_argument("--gradient_accumulation_steps", default="1,4", help="with commas")
    parser.add_argument("--precision", default="float32", help="with commas")
    parser.add_argument("--steps", type=int, default=2, help="after the one that compiles")
    parser.add_argument("--computation", help=argparse.SUPPRESS)
    return parser.parse_args()


def add_sizes(parser: argparse.ArgumentParser, **batch: int) -> None:
    """Options for the sizes of a model, by default BERT-Base, and for those of its batch."""
    sizes = {"layers": 12, "hidden_size": 768, "vocab_size": 30522} | batch
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)


def in_process(computation: dict) -> dict[str, float]:
    """The measurements of another process, started with the same options."""
    words = [sys.executable, *sys.argv, f"--computation={json.dumps(computation)}"]
    ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Bytes before and after, and the least seconds of a step."""
    take_step = make_step(options)
    start = peak_bytes()
    take_step()
    seconds = []
    for _ in range(options.steps):
        began = time.perf_counter()
        take_step()
        seconds.append(time.perf_counter() - began)
    return {"start": start, "peak": peak_bytes(), "seconds": min(seconds)}


def peak_bytes() -> int:
    """VmHWM of this process."""
    text = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", text)[1])


def make_step(options: argparse.Namespace):
    """A function that takes one step of the shipped training loop."""
    trainer, iterator, steps = make_trainer(options), make_iterator(options), itertools.count()

    def take_step() -> None:
        now = next(steps)
        trainer.run_steps(iterator, now, now + 1)

    return take_step


def make_work(options: argparse.Namespace):
    """The pre-training of the options, as the planner describes it."""
    from bert_tf import runtime

    runtime.prepare_process()  # as commands do, before TensorFlow loads
    import bert_tf
    from bert_tf.planning.workload import Workload

    config = bert_tf.BertConfig(
        vocab_size=options.vocab_size,
        hidden_size=options.hidden_size,
        num_hidden_layers=options.layers,
        num_attention_heads=max(1, options.hidden_size // 64),
        intermediate_size=4 * options.hidden_size,
        max_position_embeddings=max(512, options.max_seq_length),
        type_vocab_size=2,
    )
    return Workload(
        config=config,
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=min(options.max_predictions_per_seq, options.max_seq_length),
        train_batch_size=options.train_batch_size,
        **json.loads(options.computation),
    )


def make_trainer(options: argparse.Namespace):
    """The shipped trainer of a pre-training model, its weights random."""
    from bert_tf.planning import programs

    return programs.make_trainer(make_work(options), recompute_attention=False)


def make_iterator(options: argparse.Namespace):
    """One batch, again and again."""
    import tensorflow as tf
    from bert_tf.planning import programs

    batch = programs.random_batch(make_work(options))
    return iter(tf.data.Dataset.from_tensors(batch).repeat())


if __name__ == "__main__":
    main()
