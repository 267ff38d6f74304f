"""The options of batches. Loads no TensorFlow."""

from bert_tf.options import Options, option


class Batching(Options, title="Fine-tuning"):
    """How fine-tuning makes batches of its records."""

    bucket_by_length: bool = option(
        "Pack the examples of a batch into rows that have hardly any padding.",
        default=True,
        recorded=True,
    )
