"""What a training run will need on GPUs and TPUs, before it starts: its memory.

    workload     what is trained, how and on what; the parameters by part
    memory       bytes by purpose at the peak of a step; the largest batch that fits
    steps        the trainer of a workload and a batch for it, which needs TensorFlow

The first two are arithmetic on sizes: nothing is built, no device is needed, and TensorFlow is not
loaded. Dimensions are those of modeling/layers.py, and here also

    M masked positions of a batch, B * P    T tokens of a batch, B * S    L layers    C classes

where B is the size of one device's micro-batch.
"""
