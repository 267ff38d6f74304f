"""The original's checkpoints, TF1's bundles of named tensors; ours are the same."""

from bert_tf.checkpoints import tf1
from bert_tf.checkpoints.metadata import Weights, beside, folder_of


def open_bundle(path: str) -> Weights:
    """Opens a checkpoint given as `checkpoints.find_checkpoint` takes it."""
    prefix = tf1.find_checkpoint(path)
    reader = tf1.open_checkpoint(prefix)
    shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    return Weights(
        path=prefix,
        format="tf1",
        shapes=shapes,
        read=lambda name: tf1.read_tensor(reader, name, prefix=prefix),
        **beside(folder_of(prefix)),
    )
