"""The original's checkpoints, TF1's bundles of named tensors; ours are the same."""

from bert_tf import checkpoints
from bert_tf.formats.base import Weights, beside, folder_of


def open_bundle(path: str) -> Weights:
    """Opens a checkpoint given as `checkpoints.find_checkpoint` takes it."""
    prefix = checkpoints.find_checkpoint(path)
    reader = checkpoints.open_checkpoint(prefix)
    shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    return Weights(
        path=prefix,
        format="tf1",
        shapes=shapes,
        read=lambda name: checkpoints.read_tensor(reader, name, prefix=prefix),
        **beside(folder_of(prefix)),
    )
