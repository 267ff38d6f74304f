"""What a worker needs, loaded before workers are forked."""

from bert_tf.runtime import prepare_command

prepare_command()
import data_gen.pipeline  # noqa: E402, F401
