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
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden_size", type=int, default=768)
    parser.add_argument("--vocab_size", type=int, default=30522)
    parser.add_argument("--max_seq_length", type=int, default=512)
    parser.add_argument("--max_predictions_per_seq", type=int, default=77)
    parser.add_argument("--train_batch_size", type=int, default=8)
    parser.add_argument("--gradient_accumulation_steps", default="1,4", help="with commas")
    parser.add_argument("--precision", default="float32", help="with commas")
    parser.add_argument("--steps", type=int, default=2, help="after the one that compiles")
    parser.add_argument("--computation", help=argparse.SUPPRESS)
    return parser.parse_args()


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


def make_trainer(options: argparse.Namespace):
    """The shipped trainer of a pre-training model, its weights random."""
    import bert_tf
    from bert_tf.modeling import losses, models
    from bert_tf.training import optimization, settings
    from bert_tf.training import trainer as training

    import tensorflow as tf

    config = bert_tf.BertConfig(
        vocab_size=options.vocab_size,
        hidden_size=options.hidden_size,
        num_hidden_layers=options.layers,
        num_attention_heads=max(1, options.hidden_size // 64),
        intermediate_size=4 * options.hidden_size,
        max_position_embeddings=max(512, options.max_seq_length),
        type_vocab_size=2,
    )
    return training.Trainer(
        lambda: models.pretraining_model(config, with_losses=True),
        losses.PretrainingObjective(),
        optimization.AdamWeightDecay(
            schedule=optimization.Schedule(learning_rate=1e-4, num_train_steps=10**6)
        ),
        strategy=tf.distribute.get_strategy(),
        seed=1,
        step_config=settings.StepConfig(**json.loads(options.computation)),
    )


def make_iterator(options: argparse.Namespace):
    """One batch, again and again."""
    import tensorflow as tf

    return iter(tf.data.Dataset.from_tensors(random_batch(options)).repeat())


def random_batch(options: argparse.Namespace) -> dict:
    """Arrays of one batch, every position real."""
    import numpy as np

    rng = np.random.default_rng(0)
    rows, length = options.train_batch_size, options.max_seq_length
    predictions = min(options.max_predictions_per_seq, length)

    def ids(high: int, *shape: int):
        return rng.integers(0, high, shape).astype(np.int32)

    return {
        "input_ids": ids(options.vocab_size, rows, length),
        "input_mask": np.ones([rows, length], np.int32),
        "segment_ids": ids(2, rows, length),
        "masked_lm_positions": ids(length, rows, predictions),
        "masked_lm_ids": ids(options.vocab_size, rows, predictions),
        "masked_lm_weights": np.ones([rows, predictions], np.float32),
        "next_sentence_labels": ids(2, rows, 1),
        "is_real_example": np.ones([rows], np.float32),
    }


if __name__ == "__main__":
    main()
