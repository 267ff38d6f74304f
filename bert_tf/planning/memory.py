"""Bytes of a training step by purpose, on one device, at the peak of the step.

Constant are the weights, the moments, the batch, and the sums of gradients when these are
accumulated. The rest changes in the course of a step:

    forward      each block keeps what its gradient needs; the head adds its own
    backward     block by block from the last, kept values are freed and gradients come
    update       all gradients, for the norm that clips them; nothing is kept any more

One block keeps arrays of T * D elements, unless noted otherwise, in the precision of the layers:

    4              query, key, value and the heads' joined result: operands of products
    2              inputs of the two normalizations, for their gradients
    2              their results: operands of products (the second is the next block's input)
    3 of T * F     feed-forward product, tanh inside gelu, and gelu's result
    2 of B*N*S*S   attention probabilities before dropout (float32 always) and after it

Dropout masks are not kept: they are a hash, computed again where needed. With `recompute` a block
keeps only its input, T * D, and the rest exists for one block at a time.

All of this is what XLA makes of a step for CPUs; for accelerators see accelerators.py.
"""

import dataclasses
from collections.abc import Callable

from bert_tf.planning.workload import FLOAT32, INT32, Workload

# T * F arrays that the gradients of an activation function and of the product after it need.
WIDE_KEPT = {"gelu": 3, "gelu_erf": 3, "relu": 2, "tanh": 2, "linear": 1}


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    constant: dict[str, int]  # weights, optimizer moments, ...: during the whole step
    phases: dict[str, dict[str, int]]  # the temporary bytes at several points of a step

    @property
    def peak(self) -> str:
        """The phase with the most bytes."""
        return max(self.phases, key=lambda phase: sum(self.phases[phase].values()))

    @property
    def purposes(self) -> dict[str, int]:
        """Bytes by purpose at the peak."""
        return self.constant | self.phases[self.peak]

    @property
    def temporary(self) -> int:
        """Bytes at the peak, without the constant ones."""
        return sum(self.phases[self.peak].values())

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return sum(self.constant.values()) + self.temporary


def step_memory(work: Workload) -> Memory:
    """The bytes that a training step needs on each device."""
    layers = work.config.num_hidden_layers
    kept = block_kept(work)
    if work.recompute:
        one_input = work.hidden_elements * work.activation_bytes
        all_kept = {"inputs of blocks": layers * one_input}
        # While a block's gradient is computed: its recomputed values, and the inputs up to it.
        last, first = all_kept | kept, {"inputs of blocks": one_input} | kept
    else:
        last = all_kept = {name: layers * size for name, size in kept.items()}
        first = kept
    always = {
        # rows of words, rows of types, and the normalized sum after dropout: T * D each
        "embeddings": 3 * work.hidden_elements * work.activation_bytes,
        "dropout counters": dropout_counters(work),
    }
    if work.precision != "float32":
        always["weights in " + work.precision] = work.activation_bytes * work.parameters()
    working_space = {"working space": block_transient(work)}
    encoder, block = (work.parameters(f"bert/encoder/{name}") for name in ("", "layer_0/"))
    word_table = FLOAT32 * work.config.vocab_size * work.config.hidden_size
    # Before the first block's gradients there are those of the head and of the tied word table.
    of_head = FLOAT32 * (work.parameters() - encoder - work.parameters("bert/embeddings/"))
    of_head += word_table if work.masked else 0
    of_all_but_first = of_head + FLOAT32 * (encoder - block)
    update = {
        "gradients": FLOAT32 * work.parameters(),
        "working space": word_table,  # the update of the largest variable
    }
    if work.num_replicas > 1:  # reduced and clipped ones, between two XLA programs
        update["gradients"] *= 2
    phases = {
        "head": all_kept | always | head(work),
        "last block's gradient": last | always | working_space | {"gradients": of_head},
        "first block's gradient": first | always | working_space | {"gradients": of_all_but_first},
        "update": update,
    }
    return Memory(constant(work), phases)


def constant(work: Workload) -> dict[str, int]:
    """Weights, the optimizer's two moments, the batch, and summed gradients; all in float32."""
    size = FLOAT32 * work.parameters()
    rows = work.train_batch_size // work.num_replicas
    per_row = 3 * work.max_seq_length + 2  # ids, mask, segments; label and whether it is real
    if work.head == "pretraining":
        per_row += 3 * work.max_predictions_per_seq
    found = {"weights": size, "moments": 2 * size, "batch": INT32 * rows * per_row}
    if work.gradient_accumulation_steps > 1:
        found["summed gradients"] = size
    return found


def block_kept(work: Workload) -> dict[str, int]:
    """What one encoder block keeps for its gradient, by kind; see the top of the file."""
    config, size = work.config, work.activation_bytes
    dropped = config.attention_probs_dropout_prob > 0 or size != FLOAT32
    return {
        "query, key, value, context": 4 * work.hidden_elements * size,
        "attention probabilities": work.attention_elements * (FLOAT32 + size * dropped),
        "normalizations": 4 * work.hidden_elements * size,
        "feed-forward": WIDE_KEPT[config.hidden_act] * work.intermediate_elements * size,
    }


def block_transient(work: Workload) -> int:
    """The most that a block's gradient needs for itself, minus what it has freed by then.

    First the gradients of gelu's result (T * F) and of the two summands before the normalization
    (T * D each). Later, when the 3 T * F are freed, the gradients of the attention probabilities
    after and before dropout and soft-max, and three of T * D.
    """
    narrow = work.hidden_elements * work.activation_bytes
    wide = work.intermediate_elements * work.activation_bytes
    square = work.attention_elements * FLOAT32
    freed = WIDE_KEPT[work.config.hidden_act] * wide + narrow
    return max(wide + 2 * narrow, 2 * square + 3 * narrow - freed)


def dropout_counters(work: Workload) -> int:
    """The element numbers of a row, N * S * S, which all blocks share."""
    if not work.config.attention_probs_dropout_prob:
        return 0
    return INT32 * work.config.num_attention_heads * work.max_seq_length**2


def head(work: Workload) -> dict[str, int]:
    """Bytes of the head at its peak: for the masked LM its logits and their exponentials.

    M * V in float32 each, kept in one pass (`tied_cross_entropy`); and six M * D of the transform.
    A classifier's few vectors count as three a row, logits of each token as three a token.
    """
    hidden, size = work.config.hidden_size, work.activation_bytes
    if work.head == "pretraining":
        logits = work.masked * work.config.vocab_size
        casted = 0 if size == FLOAT32 else size
        return {
            "masked-LM logits": (2 * FLOAT32 + casted) * logits,
            "head": 6 * work.masked * hidden * size,
        }
    if work.head == "classification":
        return {"head": 3 * work.rows * hidden * size}
    return {"head": work.tokens * (hidden * size + 3 * work.classes * FLOAT32)}


def largest_batch(
    workload: Workload,
    available: int,
    *,
    packing: float = 1.0,
    memory_of: Callable[[Workload], Memory] = step_memory,
) -> int:
    """The largest `train_batch_size` whose step fits; 0 if none does.

    Args:
      workload: its batch size is ignored.
      available: bytes of each device.
      packing: bytes that are allocated for each temporary byte.
      memory_of: what a step needs on such a device.
    """
    unit = workload.num_replicas * workload.gradient_accumulation_steps

    def fits(units: int) -> bool:
        memory = memory_of(dataclasses.replace(workload, train_batch_size=units * unit))
        return sum(memory.constant.values()) + packing * memory.temporary <= available

    low, high = 0, 1  # low fits, high does not
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * unit
