"""Gradients in less memory: what a block of the encoder computed is computed again for them.

Without it the backward pass needs all that the forward pass computed in every block, some 20
tensors as large as a block's input for each; with it that of one block at a time, and the blocks'
inputs. The work is a third more. Dropout masks are a hash of places (dropout.py), so the second
pass draws those of the first.
"""

import contextlib
from collections.abc import Callable, Iterator

_wanted: list[bool] = []


@contextlib.contextmanager
def recomputing(wanted: bool) -> Iterator[None]:
    """Within this context, if `wanted`, the encoder's blocks keep their inputs alone."""
    _wanted.append(wanted)
    try:
        yield
    finally:
        _wanted.pop()


def is_wanted() -> bool:
    """Whether the innermost `recomputing` says so."""
    return bool(_wanted) and _wanted[-1]


def recomputed(function: Callable, x):
    """function(x), of which only x is kept for the gradient; with TensorFlow.

    Args:
      function: from a tensor to a tensor. It may use variables, which get gradients, and other
        tensors, which do not.
      x: a tensor.
    """
    import tensorflow as tf  # here: the layers run without it on other backends

    def behind(other):
        """x, but not before `other` is there: else a compiler finds that it has all that already
        and keeps it. What it cannot know is whether `other` is a number."""
        first = tf.reshape(other, [-1])[0]
        return tf.where(tf.math.is_nan(first), tf.cast(first, x.dtype), x)

    @tf.custom_gradient
    def run(x):
        def gradient(upstream, variables=()):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                again = behind(upstream)
                tape.watch([again, *variables])
                result = function(again)
            of_x, *of_variables = tape.gradient(
                result, [again, *variables], output_gradients=upstream
            )
            return of_x, of_variables

        return function(x), gradient

    return run(x)
