"""Examples/s of a pre-training step: ours beside PyTorch's BERT, turn by turn in one run.

    python benchmarks/train_step.py --sizes=2x128,4x256

Batch 32, 128 tokens, 20 predictions, dropout 0.1, forward, backward, clip and AdamW, random ids.
Each contender is a process of its own that trains when told to; they take turns, so that a change
of the machine's speed affects all. Contenders:

    ours       the shipped layers, optimizer and loop (bert_tf.training.trainer.Trainer)
    hf         transformers' BertForPreTraining in PyTorch, which projects only the masked
               positions onto the vocabulary (its own forward projects all)
    hf-malloc  the same, with the allocator settings that bert_tf makes for itself

Without torch and transformers only ours is measured. --torch_python names a Python that has them,
if they are not installed beside TensorFlow.

--record=speed.jsonl (`make speed`) measures ours alone, appends a line for each size, and warns if
it is slower than the last line of this machine.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

BATCH, LENGTH, PREDICTIONS, VOCAB = 32, 128, 20, 30522
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
CONTENDERS = ("ours", "hf", "hf-malloc")
MOST_SLOWER = 0.15  # than the last record, without a warning


def main() -> None:
    """Contenders by size, turn by turn -> a table."""
    options = parse_options()
    if options.contender:
        num_layers, hidden_size = map(int, options.sizes.split("x"))
        step = {"ours": our_step, "hf": hf_step, "hf-malloc": hf_step}[options.contender]
        serve(step(num_layers, hidden_size))
        return
    others = not options.record and has_torch(options.torch_python)
    contenders = CONTENDERS if others else ("ours",)
    print(f"{'size':8} {'contender':10} {'examples/s: min':>16} {'median':>8} {'max':>8}   ours is")
    for size in options.sizes.split(","):
        speeds = measure(size, contenders, options)
        report(size, speeds)
        if options.record:
            # Other programs only slow a turn down, so the fastest one varies least.
            record(pathlib.Path(options.record), size, max(speeds["ours"]))


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="2x128,4x256", help="layers x hidden size, with commas")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender")
    parser.add_argument("--seconds", type=float, default=6.0, help="about how long a turn is")
    parser.add_argument("--torch_python", default=sys.executable)
    parser.add_argument("--record", help="a file of JSON lines to compare with and append to")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    return parser.parse_args()


def has_torch(python: str) -> bool:
    """Whether that Python has torch and transformers."""
    return (
        subprocess.run(
            [python, "-c", "import torch, transformers"], stderr=subprocess.DEVNULL
        ).returncode
        == 0
    )


def measure(size: str, contenders, options) -> dict[str, list[float]]:
    """Examples/s of every turn, by contender."""
    processes = {name: start(name, size, options) for name in contenders}
    seconds_per_step = {name: tell(process, 3) / 3 for name, process in processes.items()}
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, process in processes.items():
            steps = max(1, round(options.seconds / seconds_per_step[name]))
            seconds_per_step[name] = tell(process, steps) / steps
            speeds[name].append(BATCH / seconds_per_step[name])
    for process in processes.values():
        process.stdin.close()
        process.wait()
    return speeds


def start(name: str, size: str, options) -> subprocess.Popen:
    """A contender's process, ready to take steps."""
    python = sys.executable if name == "ours" else options.torch_python
    process = subprocess.Popen(
        [python, __file__, f"--contender={name}", f"--sizes={size}"],
        env={**os.environ, **(MALLOC if name == "hf-malloc" else {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    tell(process, 2)  # compiles and warms up
    return process


def tell(process: subprocess.Popen, num_steps: int) -> float:
    """Lets a contender take steps; the seconds it took."""
    print(num_steps, file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())["seconds"]


def serve(run_steps) -> None:
    """In the contender's process: takes as many steps as each line says, and answers the time."""
    for line in sys.stdin:
        start_time = time.perf_counter()
        run_steps(int(line))
        print(json.dumps({"seconds": time.perf_counter() - start_time}), flush=True)


def report(size: str, speeds: dict[str, list[float]]) -> None:
    """The rows of one size; the ratio is the median over the rounds of ours to the contender."""
    for name, values in speeds.items():
        ratio = statistics.median(a / b for a, b in zip(speeds["ours"], values, strict=True))
        print(
            f"{size:8} {name:10} {min(values):16.1f} {statistics.median(values):8.1f} "
            f"{max(values):8.1f}   {ratio:.2f} times",
            flush=True,
        )


def record(path: pathlib.Path, size: str, speed: float) -> None:
    """Appends the examples/s of a size; compares them with the last ones of this machine."""
    git = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True)
    machine = f"{platform.node()}, {os.cpu_count()} cores"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    before = [
        old for old in map(json.loads, lines) if (old["machine"], old["size"]) == (machine, size)
    ]
    new = {"time": time.strftime("%Y-%m-%d %H:%M:%S"), "commit": commit.stdout.strip()}
    new |= {"machine": machine, "size": size, "examples_per_second": round(speed, 1)}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(new) + "\n")
    if before:
        last = before[-1]
        change = speed / last["examples_per_second"] - 1
        print(f"{size:8} {change:+.0%} against {last['commit']} of {last['time']}")
        if change < -MOST_SLOWER:
            print("WARNING: slower. If other programs are running, measure again without them.")


def random_batch(seed: int = 0) -> dict:
    """Arrays of one batch, every position real."""
    import numpy as np

    random = np.random.default_rng(seed)

    def ids(*shape, high=VOCAB):
        return random.integers(0, high, shape).astype(np.int32)

    return {
        "input_ids": ids(BATCH, LENGTH),
        "input_mask": np.ones([BATCH, LENGTH], np.int32),
        "segment_ids": ids(BATCH, LENGTH, high=2),
        "masked_lm_positions": ids(BATCH, PREDICTIONS, high=LENGTH),
        "masked_lm_ids": ids(BATCH, PREDICTIONS),
        "masked_lm_weights": np.ones([BATCH, PREDICTIONS], np.float32),
        "next_sentence_labels": ids(BATCH, 1, high=2),
        "is_real_example": np.ones([BATCH], np.float32),
    }


def our_step(num_layers: int, hidden_size: int):
    """Takes n steps of the shipped training loop."""
    from bert_tf import runtime

    runtime.prepare_process()  # as commands do, before TensorFlow loads
    import bert_tf
    import tensorflow as tf
    from bert_tf import heads, make_model
    from bert_tf.training import optimization
    from bert_tf.training import trainer as training

    config = bert_tf.BertConfig(
        vocab_size=VOCAB,
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
        type_vocab_size=2,
    )
    schedule = optimization.Schedule(learning_rate=1e-4, num_train_steps=10**6)
    trainer = training.Trainer(
        lambda: make_model("pretraining", config, with_losses=True),
        heads.Pretraining(),
        optimization.AdamWeightDecay(schedule),
        strategy=tf.distribute.get_strategy(),
        seed=1,
    )
    iterator = iter(tf.data.Dataset.from_tensors(random_batch()).repeat())
    step = 0

    def run_steps(num_steps: int) -> None:
        nonlocal step
        trainer.run_steps(iterator, step, step + num_steps)
        step += num_steps

    return run_steps


def hf_step(num_layers: int, hidden_size: int):
    """Takes n steps of transformers' BERT in PyTorch."""
    import torch
    import transformers

    torch.manual_seed(1)
    model = transformers.BertForPreTraining(
        transformers.BertConfig(
            vocab_size=VOCAB,
            hidden_size=hidden_size,
            num_hidden_layers=num_layers,
            num_attention_heads=hidden_size // 64,
            intermediate_size=4 * hidden_size,
            hidden_act="gelu_new",
        )
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    batch = {name: torch.from_numpy(value).long() for name, value in random_batch().items()}
    rows = torch.arange(BATCH)[:, None]
    cross_entropy = torch.nn.functional.cross_entropy

    def one_step() -> None:
        output = model.bert(
            input_ids=batch["input_ids"],
            attention_mask=batch["input_mask"],
            token_type_ids=batch["segment_ids"],
        )
        masked = output.last_hidden_state[rows, batch["masked_lm_positions"]]  # [B, P, D]
        masked_lm = model.cls.predictions(masked)  # [B, P, V]
        next_sentence = model.cls.seq_relationship(output.pooler_output)  # [B, 2]
        loss = cross_entropy(masked_lm.flatten(0, 1), batch["masked_lm_ids"].flatten())
        loss = loss + cross_entropy(next_sentence, batch["next_sentence_labels"][:, 0])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def run_steps(num_steps: int) -> None:
        for _ in range(num_steps):
            one_step()

    return run_steps


if __name__ == "__main__":
    main()
