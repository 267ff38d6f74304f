"""Loads what a worker needs; workers are forked from the process that has imported it."""

from bert_tf.runtime import prepare_command

prepare_command()
import data_gen.pipeline  # noqa: E402, F401
