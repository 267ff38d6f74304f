"""Examples/s of a pre-training step: ours beside PyTorch's BERT, turn by turn in one run.

    python benchmarks/train_step.py --sizes=2x128,4x256

Batch 32, 128 tokens, 20 predictions, dropout 0.1, forward, backward, clip and AdamW, random ids.
Contenders:

    ours       the shipped layers, optimizer and loop (bert_tf.training.trainer.Trainer)
    hf         transformers' BertForPreTraining in PyTorch, which projects only the masked
               positions onto the vocabulary (its own forward projects all)
    hf-malloc  the same, with the allocator settings that bert_tf makes for itself

Without torch and transformers only ours is measured. --torch_python names a Python that has them,
if they are not installed beside TensorFlow.

--record=speed.jsonl (`make speed`) measures ours alone, appends a line for each size, and warns if
it is slower than the last line of this machine.
"""

import os
import platform
import subprocess
import sys
import time

from measuring import ROOT, Contender, Results, command, in_turn, parse_options, print_rates, serve

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
    options = parse_options(
        __doc__,
        sizes=("2x128", "4x256"),  # layers x hidden size
        rounds=7,
        seconds=6.0,  # of a turn, about
        torch_python=sys.executable,
        record=None,
        contender=None,  # what this process is, if it is one
    )
    if options.contender:
        make = our_step if options.contender == "ours" else hf_step
        serve(timed(make(*map(int, options.sizes[0].split("x")))))
        return
    others = not options.record and has_torch(options.torch_python)
    for size in options.sizes:
        contenders = {name: start(name, size, options.torch_python)
                      for name in (CONTENDERS if others else ("ours",))}  # fmt: skip
        speeds = rates(contenders, options.rounds, options.seconds)
        print_rates(f"L x H {size}, examples/s", speeds)
        if options.record:
            # Other programs only slow a turn down, so the fastest one varies least.
            record(Results(options.record), size, max(speeds["ours"]))


def timed(run_steps):
    """Takes so many steps; answers the seconds."""

    def answer(num_steps: int) -> dict[str, float]:
        begin = time.perf_counter()
        run_steps(num_steps)
        return {"seconds": time.perf_counter() - begin}

    return answer


def has_torch(python: str) -> bool:
    """Whether that Python has torch and transformers."""
    words = [python, "-c", "import torch, transformers"]
    return subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0


def start(name: str, size: str, python: str, root=ROOT) -> Contender:
    """A contender's process, ready to take steps."""
    python = sys.executable if name == "ours" else python
    script = root / "benchmarks/train_step.py"
    words = command(script, python=python, contender=name, sizes=size)
    environment = {"PYTHONPATH": str(root)} if name == "ours" else {}
    return Contender(words, **environment, **(MALLOC if name == "hf-malloc" else {}))


def rates(
    contenders: dict[str, Contender],
    rounds: int,
    seconds: float,
    *,
    batch: int = BATCH,
    trial: int = 5,
) -> dict[str, list[float]]:
    """Examples/s of every turn, by contender; ends them.

    Args:
      contenders: by name, each of which takes as many steps as it is asked for.
      rounds: turns of each.
      seconds: of a turn, about.
      batch: examples of a step.
      trial: steps that tell how many make a turn.
    """
    steps = {}
    for name, contender in contenders.items():
        contender.ask(3)  # compiles
        steps[name] = max(1, round(trial * seconds / contender.ask(trial)["seconds"]))
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for name in in_turn(contenders, rounds):
        found[name].append(batch * steps[name] / contenders[name].ask(steps[name])["seconds"])
    for contender in contenders.values():
        contender.close()
    return found


def record(results: Results, size: str, speed: float) -> None:
    """Keeps the examples/s of a size; compares them with the last ones of this machine."""
    git = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    key = {"machine": f"{platform.node()}, {os.cpu_count()} cores", "size": size}
    before = results.find(**key)
    now = {"time": time.strftime("%Y-%m-%d %H:%M:%S"), "commit": commit}
    results.add(now | key | {"examples_per_second": round(speed, 1)})
    if before:
        change = speed / before[-1]["examples_per_second"] - 1
        print(f"{size:8} {change:+.0%} against {before[-1]['commit']} of {before[-1]['time']}")
        if change < -MOST_SLOWER:
            print("WARNING: slower. If other programs are running, measure again without them.")


def random_batch() -> dict:
    """Arrays of one batch, every position real."""
    import numpy as np

    random = np.random.default_rng(0)

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
        "sequences": np.arange(BATCH, dtype=np.int32)[:, None],
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


def hf_loss(model, batch):
    """The loss of a batch; only the masked positions are projected onto the vocabulary."""
    import torch

    cross_entropy = torch.nn.functional.cross_entropy
    output = model.bert(
        input_ids=batch["input_ids"],
        attention_mask=batch["input_mask"],
        token_type_ids=batch["segment_ids"],
    )
    rows = torch.arange(BATCH)[:, None]
    masked = output.last_hidden_state[rows, batch["masked_lm_positions"]]  # [B, P, D]
    masked_lm = model.cls.predictions(masked)  # [B, P, V]
    next_sentence = model.cls.seq_relationship(output.pooler_output)  # [B, 2]
    loss = cross_entropy(masked_lm.flatten(0, 1), batch["masked_lm_ids"].flatten())
    return loss + cross_entropy(next_sentence, batch["next_sentence_labels"][:, 0])


def hf_step(num_layers: int, hidden_size: int):
    """Takes n steps of transformers' BERT in PyTorch."""
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=VOCAB,
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
        hidden_act="gelu_new",
    )
    model = transformers.BertForPreTraining(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    batch = {name: torch.from_numpy(value).long() for name, value in random_batch().items()}

    def one_step() -> None:
        optimizer.zero_grad(set_to_none=True)
        hf_loss(model, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def run_steps(num_steps: int) -> None:
        for _ in range(num_steps):
            one_step()

    return run_steps


if __name__ == "__main__":
    main()
