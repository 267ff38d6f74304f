"""What a worker needs, loaded before workers are forked; without TensorFlow's start-up notices."""

from bert_tf.runtime import without_notices

with without_notices():
    import data_gen.pipeline  # noqa: F401
