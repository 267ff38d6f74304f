"""The options of a model's files. Loads no TensorFlow."""

from bert_tf.options import Options, option


class ModelFiles(Options, title="Model"):
    """Files that belong to weights, for those that do not lie beside them."""

    bert_config_file: str | None = option(
        "The sizes of the model. Default: the configuration beside the weights.",
        default=None,
        path=True,
        original=True,
    )
    vocab_file: str | None = option(
        "The word pieces. Default: the vocabulary beside the weights.",
        default=None,
        path=True,
        original=True,
    )
    do_lower_case: bool | None = option(
        "Lower-case the text and strip accents, as in the model's training. If not given: as its "
        "files say, else as its vocabulary shows.",
        default=None,
        shown=True,
        original=True,
    )


class Pretrained(ModelFiles, title="Model"):
    """A trained model."""

    init_checkpoint: str = option(
        "The model: a TF1 or TF2 checkpoint, a .keras file, the folder of a run or of a Hugging "
        "Face model, or hf:OWNER/NAME[@REVISION], fetched from their hub.",
        path=True,
        original=True,
    )
