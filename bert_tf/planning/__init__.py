"""What a training will need before it is started: parameters, memory, work and time.

    workload      what is to be trained, and how
    parameters    its variables by name
    memory        bytes by purpose, at the fullest moment of a step; the largest batch that fits
    work          FLOPs and bytes moved of a step, by part
    timing        seconds of a step on a device, and on many
    tables        all of it as text

Everything is arithmetic on sizes: nothing is built and no device is needed. What the backward pass
keeps is what it was seen to keep when XLA compiles our layers; benchmarks/plan_check.py shows how
well that holds. Dimensions are those of bert_tf/layers.py, and here also

    M masked positions of a batch, B * P    T tokens of a batch, B * S    L layers    C classes

whose B is that of one device's micro-batch.
"""

from bert_tf.planning.memory import Memory, largest_batch, step_memory
from bert_tf.planning.parameters import count, variables
from bert_tf.planning.timing import Device, StepTime, all_reduce_seconds, step_time
from bert_tf.planning.work import Part, step_parts
from bert_tf.planning.workload import Workload

__all__ = [
    "Device",
    "Memory",
    "Part",
    "StepTime",
    "Workload",
    "all_reduce_seconds",
    "count",
    "largest_batch",
    "step_memory",
    "step_parts",
    "step_time",
    "variables",
]
