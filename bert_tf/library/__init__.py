"""For programs that use Keras: a model with its tokenizer and optimizer, and texts for `fit`.

Importing it registers our classes with Keras, so that `keras.models.load_model` reads .keras files.
"""

from bert_tf.library import models  # noqa: F401
from bert_tf.training import optimization  # noqa: F401
