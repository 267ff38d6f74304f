"""Examples/s of a fine-tuning step on a CPU in float32 and bfloat16, beside PyTorch, in one run.

    python benchmarks/bfloat16_steps.py --sizes=4x256,6x384,12x768 --torch_python=...

Batch 16, 128 tokens, two classes, dropout 0.1: forward, backward, clip and AdamW; random ids.
Contenders take turns of some seconds, each a process of its own:

    float32, bfloat16   our trainer, as the commands run it with --precision
    hf-float32          transformers' model in PyTorch
    hf-autocast         under torch.autocast in bfloat16
    hf-compiled         that, by torch.compile
    hf-malloc           hf-autocast with the allocator settings that bert_tf makes for itself
"""

import sys

from measuring import Contender, command, parse_options, print_rates, serve
from train_step import MALLOC, VOCAB, has_torch, rates, timed

BATCH, LENGTH = 16, 128
OURS = ("float32", "bfloat16")
PYTORCH = ("hf-autocast", "hf-malloc", "hf-compiled", "hf-float32")


def main() -> None:
    """Contenders by size, turn by turn -> a table for each size."""
    options = parse_options(
        __doc__,
        sizes=("4x256", "6x384", "12x768"),  # layers x hidden size
        rounds=3,
        seconds=6.0,  # of a turn, about
        contenders=(),  # default: all
        torch_python=sys.executable,
        contender=None,  # what this process is, if it is one
    )
    if options.contender:
        make = our_step if options.contender in OURS else hf_step
        serve(timed(make(options.contender, *map(int, options.sizes[0].split("x")))))
        return
    names = options.contenders or (*OURS, *PYTORCH * has_torch(options.torch_python))
    for size in options.sizes:
        contenders = {name: start(name, size, options.torch_python) for name in names}
        speeds = rates(contenders, options.rounds, options.seconds, batch=BATCH, trial=2)
        print_rates(f"L x H {size}, examples/s", speeds, ours="bfloat16")


def start(name: str, size: str, python: str) -> Contender:
    """A contender's process."""
    python = sys.executable if name in OURS else python
    words = command(__file__, python=python, contender=name, sizes=size)
    return Contender(words, **(MALLOC if name == "hf-malloc" else {}))


def sizes_of(num_layers: int, hidden_size: int) -> dict[str, int]:
    """A configuration's; the heads are 64 wide, those of 384 as MiniLM's 32."""
    return {
        "vocab_size": VOCAB,
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 12 if hidden_size == 384 else hidden_size // 64,
        "intermediate_size": 4 * hidden_size,
    }


def our_step(precision: str, num_layers: int, hidden_size: int):
    """Takes n steps of the shipped training loop, in a process as a command prepares it."""
    from bert_tf import runtime

    runtime.prepare_process()
    if precision == "bfloat16":
        runtime.cluster_graphs()
    import bert_tf
    import tensorflow as tf
    from bert_tf.planning.steps import make_trainer, random_batch
    from bert_tf.planning.workload import Workload

    work = Workload(
        config=bert_tf.BertConfig(**sizes_of(num_layers, hidden_size), type_vocab_size=2),
        head="classification",
        train_batch_size=BATCH,
        max_seq_length=LENGTH,
        precision=precision,
    )
    trainer = make_trainer(work, recompute_attention=False)  # as on CPUs
    iterator = iter(tf.data.Dataset.from_tensors(random_batch(work)).repeat())
    step = 0

    def run_steps(num_steps: int) -> None:
        nonlocal step
        trainer.run_steps(iterator, step, step + num_steps)
        step += num_steps

    return run_steps


def hf_step(name: str, num_layers: int, hidden_size: int):
    """Takes n steps of transformers' BERT in PyTorch."""
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.BertConfig(**sizes_of(num_layers, hidden_size), num_labels=2)
    model = transformers.BertForSequenceClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    forward = torch.compile(model) if name == "hf-compiled" else model
    inputs = {
        "input_ids": torch.randint(0, VOCAB, (BATCH, LENGTH)),
        "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long),
        "labels": torch.randint(0, 2, (BATCH,)),
    }

    def one_step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=name != "hf-float32"):
            loss = forward(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def run_steps(num_steps: int) -> None:
        for _ in range(num_steps):
            one_step()

    return run_steps


if __name__ == "__main__":
    main()
