"""What Keras has no public name for, each with its reason; tests/test_keras_private.py tries it."""


def is_symbolic() -> bool:
    """Whether Keras calls layers only to find out shapes and to make weights.

    It does so for a subclassed model that is loaded, with placeholders of float32 whatever the
    model takes. An export is traced with such placeholders too, which must be refused there: Keras
    has no public way to tell one from the other.
    """
    from keras.src.backend.common.symbolic_scope import in_symbolic_scope

    return in_symbolic_scope()
