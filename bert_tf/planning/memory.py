"""Bytes of a training step by purpose, on one device, at the moment when there are the most.

What is there all the time: weights, moments, the batch, and sums of gradients when they are
accumulated. What comes and goes is followed through a step:

    forward      each block keeps what its gradient needs; the head adds its own
    backward     block by block from the last, the kept goes and gradients come
    update       all gradients, for the norm they are clipped by; nothing kept any more

One block keeps, of T * D elements each unless said otherwise, in the precision of the layers:

    4              query, key, value and the heads' joined result: operands of products
    2              what the two normalizations are made of: their gradient needs it again
    2              what they give: operands of products (the second is the next block's input)
    3 of T * F     feed-forward product, tanh inside gelu, and gelu's result
    2 of B*N*S*S   attention probabilities before dropout (float32 always) and after it

Masks of dropout are kept nowhere: they are a hash, computed again where they are needed. With
`recompute` a block keeps its input alone, T * D, and the rest is there for one block at a time.
"""

import dataclasses

from bert_tf.planning.parameters import count, variables
from bert_tf.planning.workload import Workload

FLOAT32 = 4
INT32 = 4
# T * F arrays that the gradient of an activation function and of the product behind it need.
WIDE_KEPT = {"gelu": 3, "gelu_erf": 3, "relu": 2, "tanh": 2, "linear": 1}


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    constant: dict[str, int]  # weights, moments, ...: there during the whole step
    moments: dict[str, dict[str, int]]  # forward, ...: what there is beside, at its fullest

    @property
    def fullest(self) -> str:
        """The moment of a step with the most bytes."""
        return max(self.moments, key=lambda moment: sum(self.moments[moment].values()))

    @property
    def purposes(self) -> dict[str, int]:
        """Bytes by purpose at the fullest moment."""
        return self.constant | self.moments[self.fullest]

    @property
    def temporary(self) -> int:
        """The most bytes beside the constant ones."""
        return sum(self.moments[self.fullest].values())

    @property
    def total(self) -> int:
        """The most bytes at any moment."""
        return sum(self.constant.values()) + self.temporary


def step_memory(workload: Workload) -> Memory:
    """The bytes that a training step needs on each device."""
    work = workload
    kept, transient = block_kept(work), block_transient(work)
    layers = work.config.num_hidden_layers
    if work.recompute:
        one_input = work.tokens * work.config.hidden_size * work.activation_bytes
        all_kept = {"inputs of blocks": layers * one_input}
        # While a block's gradient is made: what it computes again, and the inputs up to it.
        last = all_kept | kept
        first = {"inputs of blocks": one_input} | kept
    else:
        last = all_kept = {name: layers * size for name, size in kept.items()}
        first = kept
    always = {"embeddings": embeddings_kept(work), "dropout counters": dropout_counters(work)}
    if work.precision != "float32":
        always["weights in " + work.precision] = work.activation_bytes * parameters(work)
    gradients, of_head = FLOAT32 * parameters(work), head_gradients(work)
    of_block = FLOAT32 * count(model(work), "bert/encoder/layer_0/")
    moments = {
        "head": all_kept | always | head(work),
        "last block's gradient": last | always | {"working space": transient, "gradients": of_head},
        "first block's gradient": first
        | always
        | {"working space": transient, "gradients": of_head + (layers - 1) * of_block},
        "update": {"gradients": gradients, "working space": update_space(work)},
    }
    if work.num_replicas > 1:  # reduced and clipped ones, between two XLA programs
        moments["update"]["gradients"] *= 2
    return Memory(constant(work), moments)


def model(work: Workload) -> dict[str, tuple[int, ...]]:
    """The variables of the workload's model."""
    return variables(work.config, head=work.head, num_classes=work.num_classes)


def parameters(work: Workload) -> int:
    """Elements of all variables."""
    return count(model(work))


def constant(work: Workload) -> dict[str, int]:
    """Weights, the optimizer's two moments, the batch, and summed gradients; all in float32."""
    size = FLOAT32 * parameters(work)
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
    narrow = work.tokens * config.hidden_size * size  # T * D
    squares = work.tokens * config.num_attention_heads * work.max_seq_length  # B * N * S * S
    dropped = config.attention_probs_dropout_prob > 0 or size != FLOAT32
    return {
        "query, key, value, context": 4 * narrow,
        "attention probabilities": squares * (FLOAT32 + size * dropped),
        "normalizations": 4 * narrow,
        "feed-forward": WIDE_KEPT[config.hidden_act]
        * work.tokens
        * config.intermediate_size
        * size,
    }


def block_transient(work: Workload) -> int:
    """The most that a block's gradient needs for itself, less what it has freed by then.

    First the gradients of gelu's result (T * F) and of the two things added before the
    normalization (T * D each). Later, when the 3 T * F are gone, the gradients of the attention
    probabilities after and before dropout and soft-max, and of three T * D.
    """
    config, size = work.config, work.activation_bytes
    narrow = work.tokens * config.hidden_size * size
    wide = work.tokens * config.intermediate_size * size
    squares = work.tokens * config.num_attention_heads * work.max_seq_length * FLOAT32
    freed = WIDE_KEPT[config.hidden_act] * wide + narrow
    return max(wide + 2 * narrow, 2 * squares + 3 * narrow - freed)


def embeddings_kept(work: Workload) -> int:
    """Words' rows, types' rows, and the normalized sum after dropout: T * D each."""
    return 3 * work.tokens * work.config.hidden_size * work.activation_bytes


def dropout_counters(work: Workload) -> int:
    """The numbers of the elements of a row, N * S * S, which all blocks share."""
    if not work.config.attention_probs_dropout_prob:
        return 0
    return INT32 * work.config.num_attention_heads * work.max_seq_length**2


def head(work: Workload) -> dict[str, int]:
    """What the head has at its fullest: for the masked LM its logits and their exponentials.

    M * V in float32 each, kept in one pass (`tied_cross_entropy`); and six M * D of the transform.
    A classifier's few vectors count as three a row, a tagger's logits as three a token.
    """
    config, size = work.config, work.activation_bytes
    if work.head == "pretraining":
        logits = FLOAT32 * work.masked * config.vocab_size
        casted = 0 if size == FLOAT32 else size * work.masked * config.vocab_size
        transform = 6 * work.masked * config.hidden_size * size
        return {"masked-LM logits": 2 * logits + casted, "head": transform}
    if work.head == "classifier":
        return {"head": 3 * work.rows * config.hidden_size * size}
    classes = 2 if work.head == "span" else work.num_classes
    return {"head": work.tokens * (config.hidden_size * size + 3 * classes * FLOAT32)}


def head_gradients(work: Workload) -> int:
    """Gradients that are there before the first block's: of the head and of the tied table."""
    shapes = model(work)
    outside = count(shapes) - count(shapes, "bert/embeddings/") - count(shapes, "bert/encoder/")
    table = work.config.vocab_size * work.config.hidden_size if work.masked else 0
    return FLOAT32 * (outside + table)


def update_space(work: Workload) -> int:
    """The update of the largest variable, the word table."""
    return FLOAT32 * work.config.vocab_size * work.config.hidden_size


def largest_batch(workload: Workload, available: int, *, packing: float = 1.0) -> int:
    """The largest `train_batch_size` whose step fits; 0 if not even the smallest does.

    Args:
      workload: its batch size does not matter.
      available: bytes of each device.
      packing: how much more than the bytes that are there at a time is taken for them.
    """
    unit = workload.num_replicas * workload.gradient_accumulation_steps

    def fits(units: int) -> bool:
        found = step_memory(dataclasses.replace(workload, train_batch_size=units * unit))
        return sum(found.constant.values()) + packing * found.temporary <= available

    if not fits(1):
        return 0
    low, high = 1, 2  # low fits
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * unit
