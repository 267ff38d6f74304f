"""What a training run will need on GPUs and TPUs, before it starts: memory, work, time.

    workload     what is trained, how and on what; the variables by name
    memory       bytes by purpose at the peak of a step; the largest batch that fits
    tables       FLOPs of a step by part, and its seconds; all of it as text

    programs     the real steps as programs, which needs TensorFlow
    compilers    what the compilers of accelerators make of them

But for the last two everything is arithmetic on sizes: nothing is built, no device is needed, and
TensorFlow is not loaded. Dimensions are those of modeling/layers.py, and here also

    M masked positions of a batch, B * P    T tokens of a batch, B * S    L layers    C classes

where B is the size of one device's micro-batch.
"""
