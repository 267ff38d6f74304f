"""The options of batches. Loads no TensorFlow."""

from bert_tf.options import Options, option


class Batching(Options, title="Fine-tuning"):
    """How fine-tuning makes batches of its records."""

    bucket_by_length: bool = option(
        "Pack the examples of a batch into rows that have hardly any padding.",
        default=True,
        recorded=True,
    )


class Datasets(Options, title="Data"):
    """Data from tensorflow-datasets."""

    tfds_name: str | None = option(
        "A dataset of tensorflow-datasets, in place of files: squad or glue/mrpc, say. The "
        "environment variable TFDS_DATA_DIR says where its data are kept.",
        default=None,
    )
