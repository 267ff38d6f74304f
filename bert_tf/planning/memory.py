"""Bytes of a training step by purpose, on one GPU or TPU, as XLA's compilers lay them out.

Constant are the weights, the moments, the batch, and the sums of gradients if these are
accumulated. The rest changes in the course of a step:

    head         each block keeps what its gradient needs; the head adds its own
    gradients    block by block from the last, kept values are freed and gradients come
    update       all gradients, for the norm that clips them; nothing is kept any more

This was read off the buffers that the compilers assign to BERT's layers in bfloat16 where they
recompute nothing of their own accord (benchmarks/compilers.py compares the largest batches):

    attention      its probabilities are computed again (`StepConfig.recompute_attention`): those
                   before and after dropout exist for one block at a time, with dropout's masks
    feed-forward   gelu's derivative is computed again, so GPUs keep its input and its result; TPUs
                   fuse it into the products around it, and keep one T * F array, the product
    weights        GPUs copy them into the precision of the layers for all of the step; TPUs convert
                   them on their way into each product. Both copy the word table for the head
    logits         M * V twice in float32: on GPUs logits and exponentials, on TPUs exponentials,
                   the second time flat for the scatter. And once in the precision of the layers,
                   which on GPUs takes the place of one of the others
    gradients      of kernels they wait in the precision of the layers for the norm that clips them.
                   The word table's is computed at once on TPUs; GPUs leave it, and keep the logits
                   that it needs, until the blocks are done
    order          GPUs compute attention again as soon as a block's gradient is there, beside what
                   the feed-forward half has kept; TPUs when that is free

With `recompute` a block keeps only its input, T * D, and the rest exists for one block at a time.
"""

import dataclasses

from bert_tf.planning.workload import FLOAT32, INT32, Workload

# T * F arrays that the gradients of an activation function and of the product after it need; those
# of a function's own are computed again, unless the whole block is.
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
    def total(self) -> int:
        """Bytes at the peak."""
        return sum(self.purposes.values())


def step_memory(work: Workload, kind: str = "gpu") -> Memory:
    """The bytes that a training step needs on each device, of the kind gpu or tpu."""
    layers, size, is_gpu = work.config.num_hidden_layers, work.activation_bytes, kind == "gpu"
    weights, encoder = sum(work.parameters.values()), work.parameters["encoder"]
    tables, block = work.parameters["embeddings"], encoder // layers
    word_table = work.config.vocab_size * work.config.hidden_size * bool(work.masked)
    # What blocks keep.
    kept = block_kept(work, kind)
    last = all_kept = {name: layers * bytes_kept for name, bytes_kept in kept.items()}
    first = kept
    if work.recompute:
        one_input = work.hidden_elements * size
        all_kept = {"inputs of blocks": layers * one_input}
        last, first = all_kept | kept, {"inputs of blocks": one_input} | kept
    # What is there during all of forward and backward.
    always = {"embeddings": 3 * work.hidden_elements * size}
    if is_gpu and size < FLOAT32:
        always["weights in " + work.precision] = size * (weights - tables)
    if not is_gpu and work.config.attention_probs_dropout_prob:  # numbers of a row's elements
        counters = work.config.num_attention_heads * work.max_seq_length**2
        always["dropout counters"] = INT32 * counters
    update = {"gradients": size * encoder + FLOAT32 * (weights - encoder)}
    if is_gpu and work.num_replicas > 1:  # gradients leave the program, and are clipped
        always["gradients"] = FLOAT32 * weights
        update["gradients"] = 2 * FLOAT32 * weights
    update["working space"] = FLOAT32 * word_table
    backward = always | {"attention again": attention_again(work, kind)}
    logits = size * work.masked * work.config.vocab_size
    backward["head"] = logits if is_gpu else FLOAT32 * word_table
    gradients = {"gradients": size * (encoder - block) + always.get("gradients", 0)}
    phases = {
        "head": all_kept | always | head(work, kind),
        "last block's gradient": last | backward,
        "first block's gradient": first | backward | gradients,
        "update": update,
    }
    return Memory(constant(work), phases)


def constant(work: Workload) -> dict[str, int]:
    """What is there during the whole step: all in float32, the optimizer has two moments."""
    weights = FLOAT32 * sum(work.parameters.values())
    per_row = 3 * work.max_seq_length + 2  # ids, mask, segments; label and whether it is real
    per_row += 3 * work.row_sizes[1] * bool(work.masked)
    rows = work.train_batch_size // work.num_replicas
    found = {"weights": weights, "moments": 2 * weights, "batch": INT32 * rows * per_row}
    if work.gradient_accumulation_steps > 1:
        found["summed gradients"] = weights
    return found


def block_kept(work: Workload, kind: str) -> dict[str, int]:
    """What one encoder block keeps for its gradient.

    Arrays of T * D: query, key, value and the heads' joined result, this in two layouts; the inputs
    of the two normalizations and their results, of which the second is the next block's input.
    """
    narrow = work.hidden_elements * work.activation_bytes
    wide = work.intermediate_elements * work.activation_bytes
    wide_kept = min(WIDE_KEPT[work.config.hidden_act], 3 if work.recompute else 2)
    return {
        "query, key, value, context": 5 * narrow,
        "normalizations": 4 * narrow,
        "feed-forward": wide * (1 if kind == "tpu" else wide_kept),
    }


def attention_again(work: Workload, kind: str) -> int:
    """While a block's attention is computed again: two of B * N * S * S, masks, what is beside.

    On GPUs in place of one of the feed-forward half's arrays, if that is computed again as well; on
    TPUs the gradient of the block's result, in float32, in place of what that half had kept;
    nothing where that was more, as for short sequences.
    """
    wide = work.intermediate_elements * work.activation_bytes
    if kind == "gpu":
        again = work.attention_elements * (2 * work.activation_bytes + 2)
        return max(0, again - (wide if work.recompute else 0))
    again = work.attention_elements * (2 * work.activation_bytes + 1)
    return max(0, again + FLOAT32 * work.hidden_elements - (0 if work.recompute else wide))


def head(work: Workload, kind: str) -> dict[str, int]:
    """Bytes of the head at its peak."""
    hidden, size = work.config.hidden_size, work.activation_bytes
    if work.of_head.per_token:
        return {"head": work.tokens * (hidden * size + 3 * work.classes * FLOAT32)}
    if not work.masked:
        return {"head": 3 * work.rows * hidden * size}
    casted = size if size < FLOAT32 else 0
    logits = work.masked * work.config.vocab_size
    return {
        "masked-LM logits": (2 * FLOAT32 + (0 if kind == "gpu" else casted)) * logits,
        "head": 6 * work.masked * hidden * size,
        "word table": casted * work.config.vocab_size * hidden,
    }


def largest_batch(workload: Workload, available: int, kind: str = "gpu") -> int:
    """The largest `train_batch_size` whose step fits; 0 if none does.

    Args:
      workload: its batch size is ignored.
      available: bytes of each device.
      kind: of the devices, gpu or tpu.
    """
    unit = workload.num_replicas * workload.gradient_accumulation_steps

    def fits(units: int) -> bool:
        work = dataclasses.replace(workload, train_batch_size=units * unit)
        return step_memory(work, kind).total <= available

    low, high = 0, 1  # low fits, high does not
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * unit


def amount(size: int) -> str:
    """Bytes with three digits and a unit, of powers of 10.

    >>> amount(1234567890), amount(25_000), amount(7)
    ('1.23 GB', '25 kB', '7 B')
    """
    number = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"
