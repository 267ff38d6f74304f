"""Bytes of a training step on accelerators, as XLA's compilers for GPUs and TPUs lay them out.

What differs from a CPU (memory.py), read off the buffers that these compilers assign to BERT's
layers where they recompute nothing of their own accord (benchmarks/plan_check.py --for compares):

    attention      its probabilities are computed again (`StepConfig.recompute_attention`): those
                   before and after dropout exist for one block at a time, with dropout's masks
    feed-forward   TPUs fuse gelu into the products around it: of its three T * F arrays they keep
                   one, the product
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
"""

import functools

from bert_tf.planning.devices import Accelerator
from bert_tf.planning.memory import WIDE_KEPT, Memory, constant, dropout_counters, largest_batch
from bert_tf.planning.workload import FLOAT32, Workload


def accelerator_memory(work: Workload, kind: str) -> Memory:
    """The bytes that a training step needs on each device.

    Args:
      work: what is trained.
      kind: gpu or tpu.
    """
    layers, size = work.config.num_hidden_layers, work.activation_bytes
    kept = block_kept(work, kind)
    if work.recompute:
        one_input = work.hidden_elements * size
        all_kept = {"inputs of blocks": layers * one_input}
        last, first = all_kept | kept, {"inputs of blocks": one_input} | kept
    else:
        last = all_kept = {name: layers * size for name, size in kept.items()}
        first = kept
    encoder, block, tables = (
        work.parameters(f"bert/{name}") for name in ("encoder/", "encoder/layer_0/", "embeddings/")
    )
    word_table = work.config.vocab_size * work.config.hidden_size * bool(work.masked)
    always = {"embeddings": 3 * work.hidden_elements * size}
    of_head = {"head": FLOAT32 * word_table}
    if kind == "gpu":
        of_head = {"head": size * logits(work)}
        if size < FLOAT32:
            always["weights in " + work.precision] = size * (work.parameters() - tables)
    else:
        always["dropout counters"] = dropout_counters(work)
    again = {"attention again": attention_again(work, kind)}
    update = {
        "gradients": size * encoder + FLOAT32 * (work.parameters() - encoder),
        "working space": FLOAT32 * word_table,
    }
    if kind == "gpu" and work.num_replicas > 1:  # gradients leave the program, and are clipped
        always["gradients"] = FLOAT32 * work.parameters()
        update["gradients"] = 2 * FLOAT32 * work.parameters()
    phases = {
        "head": all_kept | always | head(work, kind),
        "last block's gradient": last | always | again | of_head,
        "first block's gradient": first
        | always
        | again
        | of_head
        | {"gradients": size * (encoder - block) + always.get("gradients", 0)},
        "update": update,
    }
    return Memory(constant(work), phases)


def block_kept(work: Workload, kind: str) -> dict[str, int]:
    """What one encoder block keeps for its gradient."""
    narrow = work.hidden_elements * work.activation_bytes
    wide = work.intermediate_elements * work.activation_bytes
    return {
        "query, key, value, context": 4 * narrow,
        "normalizations": 4 * narrow,
        "feed-forward": wide * (1 if kind == "tpu" else WIDE_KEPT[work.config.hidden_act]),
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


def logits(work: Workload) -> int:
    """M * V, elements of the masked LM's logits; 0 for other heads."""
    return work.masked * work.config.vocab_size


def head(work: Workload, kind: str) -> dict[str, int]:
    """Bytes of the head at its peak."""
    hidden, size = work.config.hidden_size, work.activation_bytes
    if work.head == "classification":
        return {"head": 3 * work.rows * hidden * size}
    if work.head != "pretraining":
        return {"head": work.tokens * (hidden * size + 3 * work.classes * FLOAT32)}
    casted = size if size < FLOAT32 else 0
    return {
        "masked-LM logits": (2 * FLOAT32 + (0 if kind == "gpu" else casted)) * logits(work),
        "head": 6 * work.masked * hidden * size,
        "word table": casted * work.config.vocab_size * hidden,
    }


def largest_batch_on(work: Workload, device: Accelerator) -> int:
    """The largest `train_batch_size` whose step fits into a device; 0 if none does."""
    return largest_batch(
        work,
        device.memory_bytes,
        memory_of=functools.partial(accelerator_memory, kind=device.kind),
    )
