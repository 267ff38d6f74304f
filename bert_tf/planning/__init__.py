"""What a training run will need, before it starts: parameters, memory, work and time.

    workload      what is trained and how; its variables by name
    memory        bytes by purpose at the peak of a step; the largest batch that fits
    devices       accelerators by name
    accelerators  bytes by purpose on them
    work          FLOPs and bytes moved in a step, by part
    timing        seconds of a step on one device and on many
    tables        all of it as text

    programs      the real steps as programs, which needs TensorFlow
    lowering      the same in a process of its own
    compilers     what the compilers of accelerators make of them

But for the last three everything is arithmetic on sizes: nothing is built, no device is needed, and
TensorFlow is not loaded. What the backward pass keeps was measured on our layers as XLA compiles
them; benchmarks/plan_check.py compares plan and measurement. Dimensions are those of
modeling/layers.py, and here also

    M masked positions of a batch, B * P    T tokens of a batch, B * S    L layers    C classes

where B is the size of one device's micro-batch.
"""
