"""The memory that a training run needs on GPUs and TPUs, computed before it starts.

    workload     model, batch, precision and devices; the parameters by part
    memory       bytes by purpose at the peak of a step; the largest batch that fits
    steps        the trainer of a workload and a batch for it, which needs TensorFlow

The first two are arithmetic on sizes: they build nothing, need no device, and do not load
TensorFlow. Dimensions are those of modeling/layers.py, and here also

    M masked positions of a batch, B * P    T tokens of a batch, B * S    L layers    C classes

where B is the size of one device's micro-batch.
"""
