"""Bytes of a training step by purpose, on one GPU or TPU, as XLA's compilers lay them out.

The weights, the moments, the batch, and the sums of accumulated gradients are constant. The rest
changes in the course of a step:

    head         each block has kept the arrays of its gradient; the head adds its own
    gradients    block by block from the last, kept arrays are freed and gradients come
    update       all gradients, for the norm that clips them; nothing is kept any more

This is read off the buffers that the compilers assign to BERT's layers in bfloat16 if they
recompute nothing by themselves (benchmarks/compilers.py compares the largest batches):

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
    order          GPUs compute attention again as soon as a block's gradient is there, beside the
                   arrays of the feed-forward half; TPUs when these are free

With `recompute` a block keeps only its input, T * D, and the rest exists for one block at a time.
"""

import dataclasses

from bert_tf.planning.workload import FLOAT32, INT32, Workload

# The number of T * F arrays that the gradients of an activation function and of the product after
# it need. The function's own are computed again, unless the whole block is.
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
    always = during_backward(work, kind)
    of_block = block_kept(work, kind)
    num_layers = work.config.num_hidden_layers
    if work.recompute:
        one_input = work.hidden_elements * work.activation_bytes
        all_kept = {"inputs of blocks": num_layers * one_input}
        last_kept = all_kept | of_block
        first_kept = {"inputs of blocks": one_input} | of_block
    else:
        all_kept = {name: num_layers * size for name, size in of_block.items()}
        last_kept = all_kept
        first_kept = of_block
    backward = always | {
        "attention again": attention_again(work, kind),
        "head": head_in_backward(work, kind),
    }
    encoder = work.parameters["encoder"]
    block = encoder // num_layers
    gradients = work.activation_bytes * (encoder - block) + always.get("gradients", 0)
    phases = {
        "head": all_kept | always | head(work, kind),
        "last block's gradient": last_kept | backward,
        "first block's gradient": first_kept | backward | {"gradients": gradients},
        "update": during_update(work, kind),
    }
    return Memory(constant(work), phases)


def constant(work: Workload) -> dict[str, int]:
    """Bytes during the whole step: all in float32, the optimizer has two moments."""
    weights = FLOAT32 * sum(work.parameters.values())
    per_row = 3 * work.max_seq_length + 2  # ids, mask, segments; label and whether it is real
    if work.masked:
        _, num_predictions = work.row_sizes
        per_row += 3 * num_predictions
    rows = work.train_batch_size // work.num_replicas
    sizes = {"weights": weights, "moments": 2 * weights, "batch": INT32 * rows * per_row}
    if work.gradient_accumulation_steps > 1:
        sizes["summed gradients"] = weights
    return sizes


def during_backward(work: Workload, kind: str) -> dict[str, int]:
    """Bytes during all of the forward and the backward pass."""
    size = work.activation_bytes
    weights = sum(work.parameters.values())
    sizes = {"embeddings": 3 * work.hidden_elements * size}
    if kind == "gpu" and size < FLOAT32:
        sizes["weights in " + work.precision] = size * (weights - work.parameters["embeddings"])
    if kind != "gpu" and work.config.attention_probs_dropout_prob:  # numbers of a row's elements
        counters = work.config.num_attention_heads * work.max_seq_length**2
        sizes["dropout counters"] = INT32 * counters
    if _leaves_gradients(work, kind):
        sizes["gradients"] = FLOAT32 * weights
    return sizes


def during_update(work: Workload, kind: str) -> dict[str, int]:
    """Bytes while all gradients are clipped and applied."""
    weights = sum(work.parameters.values())
    encoder = work.parameters["encoder"]
    gradients = work.activation_bytes * encoder + FLOAT32 * (weights - encoder)
    if _leaves_gradients(work, kind):
        gradients = 2 * FLOAT32 * weights
    return {"gradients": gradients, "working space": FLOAT32 * _word_table(work)}


def _leaves_gradients(work: Workload, kind: str) -> bool:
    """Whether gradients leave the program, to be summed over GPUs, and are clipped outside."""
    return kind == "gpu" and work.num_replicas > 1


def _word_table(work: Workload) -> int:
    """Elements of the word table, if the head's gradient has its shape; else 0."""
    return work.config.vocab_size * work.config.hidden_size if work.masked else 0


def head_in_backward(work: Workload, kind: str) -> int:
    """Bytes of the head while the blocks' gradients are computed."""
    if kind == "gpu":  # the logits, for the word table's gradient
        return work.activation_bytes * work.masked * work.config.vocab_size
    return FLOAT32 * _word_table(work)


def block_kept(work: Workload, kind: str) -> dict[str, int]:
    """Bytes that one encoder block keeps for its gradient.

    Arrays of T * D: query, key, value, and the heads' joined result in two layouts; the inputs of
    the two normalizations and their results, of which the second is the next block's input.
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
    """Bytes while a block's attention is computed again: two of B * N * S * S, and masks.

    On GPUs they take the place of an array of the feed-forward half, if that is computed again
    too. On TPUs the gradient of the block's result, in float32, is there as well; both take the
    place of the array that the half has kept. 0 if that array is larger, as for short sequences.
    """
    wide = work.intermediate_elements * work.activation_bytes
    if kind == "gpu":
        needed = work.attention_elements * (2 * work.activation_bytes + 2)
        freed = wide if work.recompute else 0
    else:
        needed = work.attention_elements * (2 * work.activation_bytes + 1)
        needed += FLOAT32 * work.hidden_elements
        freed = 0 if work.recompute else wide
    return max(0, needed - freed)


def head(work: Workload, kind: str) -> dict[str, int]:
    """Bytes of the head at its peak."""
    hidden = work.config.hidden_size
    size = work.activation_bytes
    if work.of_head.per_token:
        return {"head": work.tokens * (hidden * size + 3 * work.classes * FLOAT32)}
    if not work.masked:
        return {"head": 3 * work.rows * hidden * size}
    cast_size = size if size < FLOAT32 else 0  # bytes of an element of a copy in lower precision
    logits_size = 2 * FLOAT32
    if kind != "gpu":
        logits_size += cast_size
    return {
        "masked-LM logits": logits_size * work.masked * work.config.vocab_size,
        "head": 6 * work.masked * hidden * size,
        "word table": cast_size * work.config.vocab_size * hidden,
    }


def largest_batch(workload: Workload, available: int, kind: str = "gpu") -> int:
    """The largest `train_batch_size` whose step fits; 0 if none does.

    Args:
      workload: the workload; its batch size is ignored.
      available: bytes of each device.
      kind: the kind of the devices, gpu or tpu.
    """
    unit = workload.num_replicas * workload.gradient_accumulation_steps

    def fits(units: int) -> bool:
        work = dataclasses.replace(workload, train_batch_size=units * unit)
        return step_memory(work, kind).total <= available

    low = 0  # fits
    high = 1  # does not fit, after the first loop
    while fits(high):
        low = high
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low * unit


def amount(size: int) -> str:
    """Bytes as text, with three digits and a decimal unit.

    >>> amount(1234567890), amount(25_000), amount(7)
    ('1.23 GB', '25 kB', '7 B')
    """
    number = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"
